"""In what share of the orders of one multiset its logit differences are not positive: all orders are equally likely.

The n slots of a position p weigh a + x_s, and hold the tokens of a multiset in any order. In LANES multisets near a
tie, which differ in little, most neurons are on in all of them at every order (alpha = 1) or off in all of them (0); of
the others (1/2) only |e_i| <= reach_i is known of what a form is off by. A difference f with readout d is then off by

    sum_s x_s q(token of slot s) + sum_i alpha_i d_i shift_i, and at most 1/2 sum |d_i| reach_i over the others,

with q(t) = sum_i alpha_i d_i v_i(t). Let c be any number, y_s = x_s less their mean, X the sum of the x_s, S the sum of
q(t) - c over the slots' tokens t, and R at least that of (q(t) - c)^2. The first sum is Z + X c + X S / n,

    Z = sum_s y_s (q(token of slot s) - c),   |Z| <= |y| sqrt(R),   E Z = 0,   E Z^2 <= |y|^2 R / (n - 1) = v.

E Z = 0 as each slot holds each token alike often, and the y_s add up to 0.
A slot's variance is at most R / n, the covariance of two slots -1 / (n - 1) of it, and

    sum_s y_s^2 - sum_{s != s'} y_s y_s' / (n - 1) = |y|^2 n / (n - 1).

So the difference is g + Z, with the rest in g, but for at most b. Let m = g - b. By Cantelli's inequality it is not
positive in at most

    a share v / (v + m^2) of the orders if m > 0, and in none if m > |y| sqrt(R), that is m^2 > (n - 1) v;

it is positive in at most the same share with m = -g - b. Some difference is not positive in at most the sum of the
first shares, and in at least what the least of the second ones leaves. That holds for each position by itself.

c is the mean of q over the tokens of the prefix, which are the same for all the multisets, and S is taken over the
leaf: over the prefix it is what c is rounded by, for each token.

Rounding. All is float32. Sums of what is positive are off by a factor that ABOVE covers, and so is the square of m.
What q, the shifts, y, c, and S are off by, relative to the sums of their absolute terms, is part of `rest`, and so is
what underflows, and the rounding of g (DIFFERENCE). A share near 1 is off by a few units of float32, far less than
ABSOLUTE; one that is not a number says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from verify.arithmetic.slack import ENLARGE_LONG
from verify.tasks.histogram.narrow import LANES, Narrow, Single, above
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import NARROW, UNDERFLOW, CountReadout, Table, gamma32

ABOVE = 1 + 2.0**-8
MOST_TERMS = 1 << 12  # of a sum in float32, of tokens or of neurons: far fewer than ABOVE has room for
LEAST_MULTIPLE = 2.0**-100  # of float32 that is normal, so that it is not flushed to zero
NO_NAN = 2.0**50  # above all q whose squares are finite in float32, and so are sums of them
FLUSHED = 2.0**-100  # far more than what a variance loses to underflow
ABSOLUTE = 2.0**-20  # far more than the rounding of a share
DIFFERENCE = 2.0**-20  # far more than the rounding of g for each of the error that a difference near a tie is below
LOST = 2.0**-50  # of the root of a sum of squares, where these underflow


@dataclass(frozen=True)
class Dominance:
    """Where the first difference f is positive, f_j is if f_j - multiple f > 0: so if computed ones are above `apart`.

    Shapes: multiple (rivals,) not negative, 0 for the first one; apart (rivals,) what the computed ones are off by.
    """

    multiple: Single
    apart: Single

    @classmethod
    def of(cls, narrow: Narrow, multiple: Array) -> Dominance:
        """With what float32 may be off by: both differences, and their combination.

        An error is more than five roundings of the sum of the difference's absolute terms. Twice as much covers those
        of the product and of the sum, and of the readout of the combination in float64.
        """
        y = np.where((multiple > LEAST_MULTIPLE) & (multiple < NARROW), multiple, 0).astype(np.float32)
        y[0] = 0
        error = narrow.error.astype(np.float64)
        return cls(y, above(2 * (error + y * error[0]) * ENLARGE_LONG))

    def readout(self, readout: CountReadout) -> CountReadout:
        """The readout of f_j - multiple f, with errors by which that of f_j and that of f are rounded."""
        y = self.multiple.astype(np.float64)[:, None]
        return replace(readout, d=readout.d - y * readout.d[0], error=readout.error + y * readout.error[0])


@dataclass(frozen=True)
class Orders:
    """What bounds the differences of a cell's multisets over their orders.

    Shapes: reach (neurons,); values (neurons + rivals, tokens) and shifts (neurons + rivals, positions), at last those
    of the neurons that are on, for each rival, and drift (positions,), with zeros up to whole vectors; larger and
    smaller (n, tokens) how often halves of prefixes hold each token, with the slots that hold the query token; places
    (tokens of a leaf, leaves) the token in each place of a leaf, with zeros behind them; rest (rivals,);
    variance and drift_each (positions,) what multiplies R to give v, and S to be part of g, in whole vectors. `last`
    is n - 1, `share` one by the tokens of a prefix. Vectors are looked at closer where the multisets of theirs that are
    near a tie have at least so many orders.
    """

    reach: Single
    values: Single
    shifts: Single
    drift: Single
    larger: Single
    smaller: Single
    places: np.ndarray
    rest: Single
    variance: Single
    drift_each: Single
    last: np.float32
    share: np.float32
    dominance: Dominance
    least: float = 0.0

    @classmethod
    def of(cls, table: Table, narrow: Narrow, readout: CountReadout, is_on: np.ndarray, is_bent: np.ndarray) -> Orders:
        """Those of a cell in parts for the readout of its rivals, whose errors are the cell's and the readout's own."""
        d, neurons, prefixes = readout.d, int(is_bent.sum()), narrow.prefixes
        x, drift = table.slots.away[0], table.slots.away[0].sum(1)
        values, shifts = (np.vstack([rows[is_bent], (d * is_on) @ rows]) for rows in (table.values.T, table.shifts.T))
        size = np.abs(d) @ np.abs(table.values).max(0)
        of_shifts = np.abs(d) @ np.abs(table.shifts).max(0)
        length, slots = float(np.sqrt((x**2).sum(1)).max() * ENLARGE_LONG), x.shape[1]
        relative = 8 * gamma32(len(table.start) + slots + 20)
        rounding = relative * (of_shifts + (length * slots + np.abs(x).sum(1).max()) * size)
        lost = 2 * LOST * length + UNDERFLOW[np.float32] * (1 + slots) * (
            2 + len(size) + size + of_shifts + np.abs(d).sum(1) + table.spread.sum()
        )
        rest = (narrow.error.astype(np.float64) + readout.error[:, 0] + rounding + lost) * ENLARGE_LONG
        multisets, own = prefixes.multisets, slots - prefixes.m
        rest = np.where(size < NO_NAN, rest, np.inf)
        small, large, leaves = (
            multisets.tokens(size, np.arange(multisets.number(size))) for size in (*prefixes.halves, prefixes.leaf)
        )
        smaller, larger = (_held(tokens, len(table.values)) for tokens in (small, large))
        larger[:, len(table.tokens)] += own
        return cls(
            above((table.spread[is_bent] + narrow.off[:neurons]) * ENLARGE_LONG),
            _in_vectors(values),
            _in_vectors(shifts),
            _in_vectors(drift[None])[0],
            larger,
            smaller,
            np.ascontiguousarray(np.pad(leaves.T.astype(np.int32), ((0, 0), (0, 2 * LANES)))),
            above(rest),
            _in_vectors(above(((x - x.mean(1, keepdims=True)) ** 2).sum(1) * (ABOVE / max(1, slots - 1)))[None])[0],
            _in_vectors(drift[None] / max(1, slots))[0],
            np.float32(slots - 1),
            np.float32(1 / max(1, prefixes.size + own)),
            Dominance(np.zeros(len(d), np.float32), np.full(len(d), np.inf, np.float32)),
        )

    def judge(
        self, narrow: Narrow, at: np.ndarray, differences: Single, near: np.ndarray, weights: Array, f: np.ndarray
    ) -> Array:
        """Shares (2, positions) of the orders of the leaves (prefixes `at`, n) near a tie that are looked at closer.

        At least and at most those that are wrong, times the weights (prefixes,) and f (n,). These leaves are not near
        then.
        """
        n, prefixes = near.shape[1], narrow.prefixes
        total = np.zeros((2, len(self.variance)))
        padded = np.pad(near, ((0, 0), (0, -n % LANES))).reshape(len(at), -1, LANES)
        orders = (padded * np.pad(f, (0, -n % LANES)).reshape(-1, LANES)).sum(2) * weights[:, None]
        i, block = np.nonzero(padded.any(2) & (orders >= self.least))
        if not len(i):
            return total
        lanes = block[:, None] * LANES + np.arange(LANES)
        is_near, lanes = padded[i, block], np.minimum(lanes, n - 1)
        alpha, beta = self._sides(narrow, at[i], lanes, is_near)
        sums = differences[:, i[:, None], lanes]  # (rivals, blocks, LANES)
        multiple, apart = (x[:, None, None] for x in (self.dominance.multiple, self.dominance.apart))
        is_ahead = sums - multiple * sums[0] > apart
        is_turned = is_near & ~is_ahead & (sums - narrow.error[:, None, None] <= 0)
        c, of = np.nonzero(is_turned.any(2))
        held = self.larger[prefixes.larger[at[i[of]]]] + self.smaller[prefixes.smaller[at[i[of]]]]
        R, S, moved, bent = self._spread(narrow.W[:, c], c, alpha[:, of], beta[:, of], held, self.places[:, lanes[of]])
        turned, lane = np.nonzero(is_turned[c, of])
        moved = moved[turned] + self.drift_each * S[turned, lane][:, None]
        shares = self.shares(sums[c[turned], of[turned], lane], R[turned, lane], moved, bent[turned])
        behind, ahead = (np.full((len(i), LANES, total.shape[1]), x, np.float32) for x in (0, 1))
        np.add.at(behind, (of[turned], lane), shares[0])
        np.minimum.at(ahead, (of[turned], lane), shares[1])
        rows = np.repeat(i[:, None], LANES, axis=1)[is_near], lanes[is_near]
        near[rows] = False
        weight = weights[rows[0]] * f[rows[1]]
        of_each = 1 - ahead[is_near], np.where(behind < 1, behind, 1)[is_near]
        return np.array([weight @ share.astype(np.float64) for share in of_each])

    def _sides(self, narrow: Narrow, at: np.ndarray, lanes: np.ndarray, is_near: np.ndarray) -> tuple[Single, Single]:
        """Which neurons (neurons, blocks) are on in all near multisets of a block (1), or off (0); others' reach."""
        prefixes, neurons, reach = narrow.prefixes, len(self.reach), self.reach[:, None, None]
        u = (narrow.larger[prefixes.larger[at]] + narrow.smaller[prefixes.smaller[at]]).T[:neurons]
        z = u[:, :, None] + narrow.leaves[:neurons, lanes]
        is_on, is_off = ((found | ~is_near).all(2) for found in (z > reach, z < -reach))
        alpha = np.where(is_on, 1, np.where(is_off, 0, 0.5)).astype(np.float32)
        return alpha, np.where(is_on | is_off, np.float32(0), self.reach[:, None] * np.float32(0.5))

    def _spread(
        self, W: Single, c: np.ndarray, alpha: Single, beta: Single, held: Single, leaves: np.ndarray
    ) -> tuple[Single, Single, Single, Single]:
        """R and S (m, LANES), the positions' g - f but for what S adds (m, positions), and b (m,).

        They are of differences to rivals c (m,) in blocks of these sides (neurons, m) and leaves (places, m, LANES).
        """
        neurons = len(alpha)
        q, shift = (rows[neurons + c] + (W * alpha).T @ rows[:neurons] for rows in (self.values, self.shifts))
        centre = self.share * (held * q).sum(1, keepdims=True)
        away = q - centre
        of_leaf = np.take_along_axis(away[None], leaves, 2)
        total = (held * away**2).sum(1, keepdims=True) + (of_leaf**2).sum(0)
        bent: Single = (np.abs(W) * beta).sum(0) * np.float32(ABOVE) + self.rest[c]
        return total, of_leaf.sum(0), shift + self.drift * centre, bent.astype(np.float32)

    def shares(self, f: Single, R: Single, moved: Single, bent: Single) -> tuple[Single, Single]:
        """At most the shares (m, positions) of orders in which differences f (m,) are not positive, or are positive."""
        variance = self.variance * R[:, None] + np.float32(FLUSHED)
        off, g = bent[:, None], f[:, None] + moved
        return self._cantelli(g - off, variance), self._cantelli(-g - off, variance)

    def _cantelli(self, m: Single, variance: Single) -> Single:
        square = m * m
        share = variance / (variance + square) + np.float32(ABSOLUTE)
        return np.where(m > 0, np.where(square > self.last * variance, np.float32(0), share), np.float32(1))


def _in_vectors(rows: Array | Single) -> Single:
    """Rows in float32, with zeros behind them up to whole vectors."""
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % LANES))).astype(np.float32))


def _held(tokens: np.ndarray, width: int) -> Single:
    """How often multisets (n, size) hold each token, in whole vectors (n, tokens)."""
    found, index = np.zeros((len(tokens), width + -width % LANES), dtype=np.float32), np.arange(len(tokens))
    np.add.at(found, (index[:, None], tokens), 1)
    return found
