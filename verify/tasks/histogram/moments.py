"""Bounds the wrong share of a cell by means and variances, where its multisets are too many to be decided.

The L - k tokens of a cell (row, t, k) that are not t are independent and uniform. By Cantelli's inequality a logit
difference f with mean m > 0 and variance v is at most zero with probability at most v / (v + m^2); where f_b > 0, a
difference f_j is at most zero only where f_j - y f_b is, for any y >= 0, which may vary far less.

A second one can be such an f_b as well, as it is positive itself but where it is counted not to be.

Mean and variance. f is a sum of d_i ReLU(z_i) over neurons i, and z_i a sum of one step for each token. Given some of
the tokens, the mean of ReLU(z_i) is that of one sum of independent steps: a table on a grid. In Hoeffding's
decomposition of f into orthogonal parts of l tokens each, a part that all l-sets of tokens share has one variance v_l,
so that Var f = sum of comb(n, l) v_l, and Var E[f | r tokens] = sum of comb(r, l) v_l gives v_1 to v_q. What f has of
more than q tokens is a sum over neurons again, with a standard deviation of at most the sum of theirs, each of which
is known: the variance of ReLU(z_i) less those of its first q parts.

What is left out. A neuron's z_i differs from its grid, and at other positions by their weights, by some e_i. That
changes f by at most the sum of |d_i| |e_i|, and so its mean and its standard deviation by at most the sum of
|d_i| sqrt(E e_i^2).

Underflow. Cantelli's bound is the same for any positive multiple of f, so each readout is first scaled by a power of
two to a size of about 1; squares are taken of ratios, and what products and squares still lose is added everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, nextafter

import numpy as np

from verify.arithmetic.slack import FAINT, INFLATION, LEAST, gamma
from verify.tasks.histogram.multisets import Multisets, multisets_of
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import CountReadout, Table

MOST_GIVEN = 8  # tokens, beyond which rounding is multiplied by too much
SAMPLED = 1 << 10  # inputs that show which multiple of another difference to take off; they bound nothing
LEAST_UNIT = -500  # of the grid, as a power of two
ROOT = 2.0**-536  # more than the root of LEAST: what a root of a mean of squares loses where they underflow
LARGEST_SCALE = 1000  # exponent: readouts are not scaled beyond this power of two
FAR = 1 << 40  # units, far beyond any sum of a neuron that changes sides


@dataclass(frozen=True)
class Detail:
    """How many points a neuron's sum of steps has, roughly, and how many numbers a table of conditional means."""

    points: int
    values: int


FINE, COARSE = Detail(1 << 14, 1 << 22), Detail(1 << 13, 1 << 19)  # COARSE takes less than half of the time


class StepSums:
    """The sums of independent, uniform steps of some neurons, on a grid of their own.

    Shapes: unit (p,) a power of two; whole (p, S) each token's step above `low` (p,) in units. That leaves out `shift`
    (p,) on average, and `off` (p,) besides, as a root of a mean of squares.
    """

    def __init__(self, steps: Array, n: int, detail: Detail) -> None:
        self.n, self.detail = n, detail
        self.low = steps.min(1)
        span = steps.max(1) - self.low
        exponent = np.ceil(np.log2(np.maximum(span * n / detail.points, 2.0**LEAST_UNIT))).astype(int)
        self.unit = np.ldexp(1.0, exponent)
        self.whole = np.rint((steps - self.low[:, None]) / self.unit[:, None]).astype(np.intp)
        off = steps - self.low[:, None] - self.unit[:, None] * self.whole
        self.rounding = gamma(steps.shape[1] + 20) * np.abs(steps).max(1) + LEAST
        # in units the squares are of numbers below 1, and ROOT is far less than the rounding of a step
        self.shift = off.mean(1)
        self.off = self.unit * ((off / self.unit[:, None]).std(1) + ROOT) + 4 * self.rounding
        self.most = int(self.whole.max(initial=0))  # units of one step

    @cached_property
    def laws(self) -> list[Array]:
        """Of the sums of m = 0..n steps: (p, m most + 1) each."""
        p, S = self.whole.shape
        laws = [np.ones((p, 1))]
        for m in range(1, self.n + 1):
            before, law = laws[-1], np.zeros((p, m * self.most + 1))
            for row, old, shifts in zip(law, before, self.whole.tolist(), strict=True):
                for shift in shifts:
                    row[shift : shift + len(old)] += old
            law /= S
            laws.append(law)
        return laws

    @cached_property
    def above(self) -> list[Array]:
        """The means of max(sum - y, 0) of the sums of m = 0..n steps: the sum of P(sum >= v) over v > y, for y >= 0."""
        found = []
        for law in self.laws:
            at_least = np.cumsum(law[:, ::-1], 1)[:, ::-1]
            means = np.zeros_like(law)
            means[:, :-1] = np.cumsum(at_least[:, :0:-1], 1)[:, ::-1]
            found.append(means)
        return found

    @cached_property
    def lost(self) -> Array:
        """What a conditional mean (p,) loses to underflow: probabilities are quotients by S, n times, summed twice."""
        result: Array = (self.n * self.most + 1.0) ** 2 * (self.n + 1) * LEAST * self.unit + 2 * LEAST
        return result

    @cached_property
    def order(self) -> int:
        """How many tokens may be given, as their multisets fit into a table: one at least."""
        p, S = self.whole.shape
        sizes = range(2, min(self.n, MOST_GIVEN) + 1)
        return max((m for m in sizes if Multisets(S, m, m).number(m) * max(p, 1) <= self.detail.values), default=1)

    @cached_property
    def multisets(self) -> Multisets:
        """Those of so many tokens."""
        return multisets_of(self.whole.shape[1], self.order, self.order)

    @cached_property
    def sums(self) -> list[np.ndarray]:
        """The sums of their steps by size (p, number) each."""
        return self.multisets.sums(self.whole, self.order)

    def thresholds(self, start: Array, n: int) -> tuple[np.ndarray, Array]:
        """Above how many units n steps make a form positive that is `start` (p,) without, and how far that is off."""
        base = start + n * (self.low + self.shift)
        whole = np.clip(np.rint(-base / self.unit), -FAR, FAR)
        off = np.abs(base + whole * self.unit) + 4 * n * self.rounding + gamma(8) * np.abs(start)
        return whole.astype(np.intp), off

    def apart(self, start: Array, n: int) -> Array:
        """Bounds sqrt(E e^2) (p,) of what the grid leaves out of a form with n steps."""
        result: Array = (self.thresholds(start, n)[1] + np.sqrt(n) * self.off) * INFLATION
        return result


class Given:
    """The variances of sums' conditional means given 0, 1, ... q of n tokens, and of their parts of so many tokens.

    Computed means of size x are off by at most `relative` x, and by what they have lost to underflow.
    """

    def __init__(self, n: int, q: int, relative: float) -> None:
        self.n, self.q, self.relative = n, q, relative
        self.variances: list[Array] = []
        self.errors: list[Array] = []
        self.mean: Array = np.zeros(0)
        self.off: Array = np.zeros(0)

    def add(self, values: Array, weights: Array, sizes: Array, lost: Array) -> None:
        """Takes the means (m, number) given each multiset of one token more than before, of what sizes (m,).

        `lost` (m,) is what underflow has taken from them. The squares here and their products with the weights lose
        LEAST each at most.
        """
        off = self.relative * sizes * INFLATION + lost
        if not self.variances:
            self.mean, self.off = values[:, 0], off
        variance = (values - self.mean[:, None]) ** 2 @ weights
        # each value less the mean is off by at most 2 off, and so is the root of the mean of their squares
        self.variances.append(variance)
        of_squares = (2 * values.shape[1] + 8) * LEAST
        root = np.sqrt(variance + of_squares)
        self.errors.append((self.relative * variance + 4 * off * (root + off) + of_squares) * INFLATION)

    def first(self, side: int) -> Array:
        """Bounds the variance (m,) of the parts of at most q tokens, from below (-1) or above (1)."""
        total, error = np.zeros_like(self.mean), np.zeros_like(self.mean)
        for r in range(1, self.q + 1):
            n = sum(comb(self.n, m) * comb(m, r) * (-1) ** (m - r) for m in range(r, self.q + 1))
            total += n * self.variances[r]
            error += abs(n) * (self.errors[r] + gamma(self.q + 4) * self.variances[r] + LEAST)
        return total + side * error * INFLATION


@dataclass(frozen=True)
class ReadoutRows:
    """Linear readouts d (C', r): where all are positive a cell is right; error (C',) by rounding.

    The first is the difference to the class that is most often not behind; `order` (C',) are the differences' numbers,
    `multiple` (C',) what of the first one was taken off, of unscaled readouts; 0 where it was of the second.
    """

    d: Array
    error: Array
    order: np.ndarray
    multiple: Array


@dataclass(frozen=True)
class Behind:
    """At most the share of inputs on which each difference is not positive, but for those where the first is not.

    Shapes: order (C',) the differences' numbers, most (C',), and multiple (C',) of the first one that was taken off. At
    least the share `least` is wrong. `on` and `off` (r,) are at most the shares of any position's inputs on which each
    neuron is positive, and on which it is negative.
    """

    order: np.ndarray
    most: Array
    least: float
    on: Array
    off: Array
    multiple: Array

    @property
    def wrong(self) -> tuple[float, float]:
        """Between which shares of all inputs are wrong."""
        return self.least, min(1.0, float(self.most.sum()) * INFLATION)


class Moments:
    """The logit differences of one query token in one row of one group of slots, over all that the slots may hold."""

    def __init__(self, table: Table, counts: list[int], detail: Detail = FINE) -> None:
        self.table, self.L = table, table.stored.L
        self.start, self.steps = table.start.astype(np.float64), table.steps(0).astype(np.float64)
        self.size = table.reach + table.spread + table.form_error
        self.is_bent = np.zeros(len(self.steps), dtype=bool)
        for k in counts:
            self.is_bent |= self._sides(self.L - k)[1]
        self.grid = StepSums(self.steps[self.is_bent], self.L - min(counts), detail)

    def wrong(self, k: int) -> tuple[float, float]:
        """Between which shares of all inputs with own count k are wrong."""
        behind = self.behind(k)
        return (0.0, 1.0) if behind is None else behind.wrong

    def behind(self, k: int) -> Behind | None:
        """On what shares of all inputs with own count k each difference is not positive; None if nothing is known."""
        n, readout = self.L - k, CountReadout.of(self.table, k)
        if not n or not len(readout.d) or not np.isfinite(self.size).all():
            return None
        with np.errstate(all="ignore"):
            is_on, is_bent = self._sides(n)
            rows = self._rows(readout, n)
            mean, off, variance = self._moments(rows, n, is_on, is_bent)
            apart = self._apart(rows, n, is_on, is_bent)
            deviation = (np.sqrt(variance) + apart) * INFLATION
            off = (off + rows.error + apart) * INFLATION
            most = _cantelli(mean - off, deviation)
            least = nextafter(1 - float(_cantelli(-mean - off, deviation)[0]) * INFLATION, 0.0)
            on, off = self._crossing(n, is_on)
        return Behind(
            rows.order, np.where(most <= 1, most, 1.0), least if 0 < least <= 1 else 0.0, on, off, rows.multiple
        )

    def _crossing(self, n: int, is_on: np.ndarray) -> tuple[Array, Array]:
        """At most how often each neuron is positive, and how often negative (r,), at any position; D counts as on.

        A sum on the grid is off by at most half a unit for each step, and by rounding; the rest is the slots' weights.
        A probability is off by n LEAST where it has underflowed, and there are as many as the law has numbers.
        """
        grid, law = self.grid, self.grid.laws[n]
        reach = ((self.table.spread + 2 * self.table.form_error)[self.is_bent] + 8 * n * grid.rounding) * INFLATION
        start = self.start[self.is_bent]
        base = start + n * grid.low
        slack = (reach + gamma(8) * (np.abs(start) + n * np.abs(grid.low))) / grid.unit * INFLATION + n / 2 + 1
        at = -base / grid.unit  # above it a sum of whole steps is positive, but for the slack
        whole, lost = np.arange(law.shape[1]), LEAST * n * law.shape[1]
        rounding = 1 + gamma(n * (self.steps.shape[1] + 2) + law.shape[1])
        found = []
        for chosen in (~(whole < (at - slack)[:, None]), ~(whole > (at + slack)[:, None])):  # so that NaN says nothing
            share = (np.where(chosen, law, 0.0).sum(1) + lost) * rounding * INFLATION
            found.append(np.where(chosen.any(1), np.minimum(share, 1.0), 0.0))
        on, off = is_on.astype(np.float64), (~is_on).astype(np.float64)
        on[self.is_bent], off[self.is_bent] = found
        on[-1], off[-1] = 1.0, 0.0
        return on, off

    def _sides(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Neurons that are on for all inputs with n other tokens, and those that change sides (r,); D counts as on."""
        reach = (self.table.spread + 2 * self.table.form_error) * INFLATION
        low, high = self.start + n * self.steps.min(1), self.start + n * self.steps.max(1)
        is_on, is_off = low > reach, high < -reach
        is_on[-1], is_off[-1] = True, False
        return is_on, ~(is_on | is_off)

    def _rows(self, readout: CountReadout, n: int) -> ReadoutRows:
        """The differences to every class, with a multiple of the first or second one off where that varies less."""
        S = self.steps.shape[1]
        tokens = np.random.default_rng(0).integers(0, S, (SAMPLED, n))
        counts = np.zeros((SAMPLED, S))
        np.add.at(counts, (np.arange(SAMPLED)[:, None], tokens), 1.0)
        z, (readout, scale) = self.start + counts @ self.steps.T, self._scaled(readout)
        z[:, :-1] = np.maximum(z[:, :-1], 0)
        order, base, y = _combined(z @ readout.d.T)
        d, error, scale = readout.d[order], readout.error[order, 0], scale[order]
        size = np.abs(d) + y[:, None] * np.abs(d[base])
        lost = LEAST * (4 + self.size.sum())  # by products with y, times a form, and by the error's own
        error = (error + y * error[base] + gamma(4) * (size @ self.size) + lost) * INFLATION
        multiple = np.where(base == 0, y * (scale[0] / scale), 0.0)
        return ReadoutRows(d - y[:, None] * d[base], error, order, multiple)

    def _scaled(self, readout: CountReadout) -> tuple[CountReadout, Array]:
        """The readout, each difference times a power of two of at least 1 that makes its size about 1, and that."""
        largest, size = (np.frexp(x)[1] for x in (np.abs(readout.d).max(1), np.abs(readout.d) @ self.size))
        scale = np.ldexp(1.0, np.clip(np.minimum(-size, LARGEST_SCALE - largest), 0, LARGEST_SCALE))[:, None]
        return replace(readout, d=readout.d * scale, error=readout.error * scale), scale[:, 0]

    def _moments(self, rows: ReadoutRows, n: int, is_on: np.ndarray, is_bent: np.ndarray) -> tuple[Array, Array, Array]:
        """Means (C',) of each readout on the grid, what they may be off by, and upper bounds on the variances."""
        grid, S = self.grid, self.steps.shape[1]
        among = is_bent[self.is_bent]  # of the neurons on the grid
        d_on, d_bent = rows.d * is_on, rows.d[:, is_bent]
        linear = d_on @ self.steps
        centre = linear.mean(1, keepdims=True)
        start = d_on @ self.start + n * centre[:, 0]
        linear_size = np.abs(d_on) @ (np.abs(self.start) + 4 * n * np.abs(self.steps).max(1))
        q = min(n, grid.order) if is_bent.any() else 1
        of_linear = grid.multisets.sums(linear - centre, q)
        relative = gamma(4 * n * (grid.most + S + 8) + 4 * len(self.steps) + 100)
        of_rows, of_neurons = Given(n, q, relative), Given(n, q, relative)
        lost = grid.lost[among]
        lost_of_rows = (np.abs(d_bent) @ lost + LEAST * (len(self.steps) + 4) * (4 * n + 8)) * INFLATION
        for r in range(q + 1):
            ways = grid.multisets.arrangements[r].astype(np.float64) / float(S**r)
            values = self._given(r, n, among)
            sizes = values.max(1)
            of_neurons.add(values, ways, sizes, lost)
            sizes_of_rows = np.abs(d_bent) @ sizes + linear_size
            of_rows.add(d_bent @ values + of_linear[r] + start[:, None], ways, sizes_of_rows, lost_of_rows)
        variance = np.maximum(of_rows.first(1), 0.0)
        if q < n and is_bent.any():
            rest = self._variances(n, among, of_neurons.mean) * (1 + 2 * relative) - of_neurons.first(-1)
            variance = variance + (np.abs(d_bent) @ np.sqrt(np.maximum(rest, 0.0)) + FAINT) ** 2
        return of_rows.mean, of_rows.off, variance * INFLATION + FAINT

    def _given(self, r: int, n: int, among: np.ndarray) -> Array:
        """The mean of each neuron of some on the grid given each multiset of r tokens (p, number)."""
        grid = self.grid
        above = grid.above[n - r]
        y = grid.thresholds(self.start[self.is_bent], n)[0][:, None] - np.arange(r * grid.most + 1)
        table = np.take_along_axis(above, np.clip(y, 0, above.shape[1] - 1), 1) + np.maximum(-y, 0)
        table *= grid.unit[:, None]
        sums = grid.sums[r] if among.all() else grid.sums[r][among]
        return np.take_along_axis(table if among.all() else table[among], sums, 1)

    def _variances(self, n: int, among: np.ndarray, mean: Array) -> Array:
        """Upper bounds on the variances (p,) of some neurons on the grid, but for relative rounding.

        A probability is off by n LEAST where it has underflowed, and a square or a product by LEAST.
        """
        grid = self.grid
        law = grid.laws[n][among]
        threshold = grid.thresholds(self.start[self.is_bent], n)[0][among]
        above = np.maximum(np.arange(law.shape[1]) - threshold[:, None], 0) * grid.unit[among][:, None]
        squares = (above - mean[:, None]) ** 2
        result: Array = (law * squares).sum(1) + LEAST * law.shape[1] * (2 * n * squares.max(1) + 4)
        return result

    def _apart(self, rows: ReadoutRows, n: int, is_on: np.ndarray, is_bent: np.ndarray) -> Array:
        """Bounds sqrt(E g^2) (C',) of what weights and grid change in each readout."""
        table, d_on = self.table, rows.d * is_on
        off = np.zeros(len(self.steps))
        off[self.is_bent] = self.grid.apart(self.start[self.is_bent], n)
        shift = np.abs(table.shifts)
        of_neurons = off + self._of_weights(table.values.T, n) + shift.max(0)
        found = np.abs(rows.d) @ (of_neurons * is_bent) + self._of_weights(d_on @ table.values.T, n)
        found = found + np.abs(d_on @ table.shifts.T).max(1)
        rounding = gamma(8 * (len(self.steps) + self.L) + 60)
        weights = table.slots.apart[0].sum() + table.slots.drift[0]
        size = np.abs(table.values).max(0) * weights + shift.max(0)
        lost = LEAST * (len(self.steps) + 4) * (4 + weights)  # by products with d, times the weights
        result: Array = (found + 4 * rounding * (np.abs(d_on) @ size) + lost) * INFLATION
        return result

    def _of_weights(self, values: Array, n: int) -> Array:
        """Bounds sqrt(E e^2) (m,) of what the slots' weights change in forms with these values (m, S + 1) at tokens.

        e is the sum over the slots of a difference x of their weights and the value of their token. Less the mean
        value, those of the other tokens are independent and have mean zero, whichever slots hold the query token.
        """
        apart, drift = self.table.slots.apart[0], self.table.slots.drift[0]
        mean = values[:, :-1].mean(1)
        deviation = _root_of_squares(values[:, :-1] - mean[:, None]) / np.sqrt(values.shape[1] - 1)
        own = apart[n:].sum() * np.abs(values[:, -1] - mean)
        lost = FAINT * (1 + apart.sum() + drift) if apart.any() or drift else 0.0
        result: Array = drift * np.abs(mean) + np.hypot(own, _root_of_squares(apart[None]) * deviation) + lost
        return result


def _combined(f: Array) -> tuple[np.ndarray, np.ndarray, Array]:
    """An order of differences, seen in samples f (n, C'), and what each is less y times another: which one, and y.

    The first is that of the least mean to its deviation, the second that of the least then. Of j and b the mean to its
    deviation is largest for the y that makes 1 and -y proportional to the inverse covariance times the means.
    """
    mean, s = f.mean(0), np.atleast_2d(np.cov(f.T, bias=True))
    number, least = len(mean), 1e-300
    ratio = mean / np.maximum(np.sqrt(np.diag(s)), least)

    def against(b: int) -> tuple[Array, Array]:
        above, below = s[b] * mean - np.diag(s) * mean[b], s[b, b] * mean - s[b] * mean[b]
        y = np.divide(above, below, out=np.zeros(number), where=(above > 0) & (below > 0))
        y[b] = 0
        variance = np.diag(s) - 2 * y * s[b] + y**2 * s[b, b]
        found = (mean - y * mean[b]) / np.maximum(np.sqrt(np.maximum(variance, 0)), least)
        is_better = np.isfinite(y) & (found > ratio)
        return np.where(is_better, y, 0.0), np.where(is_better, found, ratio)

    first = int(np.argmin(ratio))
    y, found = against(first)
    rest = [j for j in np.argsort(found).tolist() if j != first]
    order = np.array([first, *rest])
    base = np.zeros(number, dtype=np.intp)
    if rest:
        other, by_other = against(rest[0])
        is_better = (by_other > found) & ~np.isin(np.arange(number), order[:2])
        y, base[is_better] = np.where(is_better, other, y), 1
    return order, base[order], y[order]


def _root_of_squares(x: Array) -> Array:
    """The root of the sum of squares of each row (m, n), which is scaled by a power of two so that none is lost.

    The largest square is then at least 1/4, beside which what the others lose to underflow is nothing that INFLATION
    does not cover; scaling back may underflow once.
    """
    exponent = np.frexp(np.abs(x).max(1, initial=0.0))[1]
    scaled = np.ldexp(x, -exponent[:, None])
    result: Array = np.ldexp(np.sqrt((scaled**2).sum(1)), exponent)
    return result


def _cantelli(mean: Array, deviation: Array) -> Array:
    """Bounds the probability that a number is not positive, by a lower bound on its mean, and one on its deviation.

    v / (v + m^2) = q / (1 + q), q = v / m^2. The ratio of roots is squared, so that nothing underflows but a
    probability itself.
    """
    q = np.minimum((deviation / mean) ** 2, 2.0**1000)
    found = q / (1 + q) * INFLATION + np.where(deviation == 0, 0.0, LEAST)
    return np.where(mean > 0, found, 1.0)
