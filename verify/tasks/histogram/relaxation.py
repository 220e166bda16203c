"""The linear relaxation over a region: every pre-activation's range, and the least value of each logit difference.

* Every pre-activation has an exact range (a row minimum and maximum per cluster), so neurons are on, off or undecided.
* Each logit difference is bounded below by a linear form: neurons that are on or off are exact, an undecided ReLU lies
  between two lines (0 or z below, the chord above); the minimum of that form over the region is again a minimum per
  cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic.balls import TINY, Ball, stacked
from verify.arithmetic.slack import ENLARGE, FAINT, LOST_BY_MANY, U, gamma
from verify.tasks.histogram.reduction import Reduces, Row, forms_of_token
from verify.tasks.histogram.regions import Regions, Tree
from verify.tasks.histogram.stored import Array, StoredModel


@dataclass(frozen=True)
class LogitPairs:
    """Pairs of the right logit and another one: dW (P, p) and db (P,), the differences of what is read out."""

    dW: Array
    db: Array

    def __getitem__(self, index: np.ndarray) -> LogitPairs:
        return LogitPairs(self.dW[index], self.db[index])

    def __neg__(self) -> LogitPairs:
        return LogitPairs(-self.dW, -self.db)


@dataclass(frozen=True)
class LogitLines:
    """What lies around each neuron's ReLU in its range (B, p): slopes below and above, and the excess above."""

    under: Array
    over: Array
    excess: Array

    @classmethod
    def of(cls, lower: Array, upper: Array) -> LogitLines:
        """Lines for pre-activations between these ends (B, r), the last of which is no neuron's."""
        z_low, z_high = lower[:, :-1], upper[:, :-1]
        on, off = z_low >= 0, z_high <= 0
        with np.errstate(invalid="ignore", divide="ignore"):
            chord = z_high / (z_high - z_low)
        chord = np.where(chord >= TINY, np.minimum(chord, 1.0), 0.0)
        over = np.where(on, 1.0, np.where(off, 0.0, chord))
        # relu(z) - over z is convex, so it is largest at an end of the range; the products there may underflow
        excess = np.maximum(-over * z_low, z_high - over * z_high) + 4 * U * (z_high - z_low) + FAINT
        under = np.where(on, 1.0, np.where(off, 0.0, (z_high > -z_low).astype(float)))
        return cls(under, over, np.where(on | off, 0.0, excess))

    def below(self, i: np.ndarray, of: LogitPairs) -> tuple[Array, Array]:
        """A linear form (P, r) and a constant (P,) that lie below each difference in its region i."""
        up, down = np.maximum(of.dW, 0.0), np.minimum(of.dW, 0.0)
        form = np.empty((len(i), of.dW.shape[1] + 1))
        np.multiply(self.under[i], up, out=form[:, :-1])
        form[:, :-1] += self.over[i] * down
        form[:, -1] = of.db
        return form, np.einsum("ij,ij->i", down, self.excess[i])


class Relaxation:
    """The linear forms of one query token t in one row, with bounds on all that float64 rounds away.

    Shapes: bases (positions of a spread or 1, r), own_form (r,), H (S, r) for the S other tokens; `tree` clusters those
    that act alike.
    """

    def __init__(self, reduction: Reduces, row: Row, t: int, counts: Sequence[int]) -> None:
        self.stored: StoredModel = reduction.stored
        self.row = row
        each, own, others = forms_of_token(reduction, row, t)
        bases = stacked(*each)
        self.tokens = np.array([s for s in range(self.stored.T) if s != t])
        H = others[self.tokens]
        self.bases, self.own_form, self.H = bases.mid, own.mid, H.mid
        self.tree = Tree(self._influence(H))
        self.G = len(row.groups)
        self.a = row.weight.mid  # (G,)
        spread = row.spread
        self.low: Array = self.a if spread is None else spread.low
        self.high: Array = self.a if spread is None else spread.high
        self.apart = np.zeros(self.G) if spread is None else np.maximum(self.a - self.low, self.high - self.a) * ENLARGE
        self.sums = np.zeros((1, self.G)) if spread is None else spread.sums
        self.form_error, self.difference_error = self._errors(bases, own, H, counts)
        self.H_least = self.tree.least(self.H.T).T  # (Q, r)
        self.H_most = -self.tree.least(-self.H.T).T

    def _influence(self, H: Ball) -> Array:
        """What a token's term can do to the logits, to cluster tokens that act alike."""
        readout = np.abs(self.stored.W_2 - self.stored.W_2.mean(1, keepdims=True)).max(1)
        scale = np.append(readout, np.abs(self.stored.b_2 - self.stored.b_2.mean()).max())
        points = H.mid * (scale / (scale.max() or 1.0))
        points = np.where(np.isfinite(points), points, 0.0)
        return points / (np.abs(points).max() or 1.0)

    def _errors(self, bases: Ball, own: Ball, H: Ball, counts: Sequence[int]) -> tuple[Array, dict[int, Array]]:
        """Bounds, valid in every region, on the rounding of a pre-activation and of a logit difference (per count).

        `size` bounds the sum of absolute terms of each linear form, `radius` the error that its
        coefficients already carry. A coefficient passes through at most `roundings` operations, each of which loses at
        most LEAST / 2 to underflow, times the slots' number afterwards.
        """
        stored, row = self.stored, self.row
        sizes = row.sizes.astype(float)
        base = Ball(np.abs(bases.mid).max(0), bases.rad.max(0))
        largest = np.maximum(H.magnitude.max(0), own.magnitude)
        loosest = np.maximum(H.rad.max(0), own.rad)
        # what weights differ by counts four times: for the slot, its shift, and the two terms of the shift's own sum
        slots = float((sizes * (row.weight.magnitude + 4 * self.apart)).sum()) * ENLARGE
        slack = float((sizes * row.weight.rad).sum()) * ENLARGE
        roundings = stored.p + self.G * self.tree.Q + 4 * stored.L + 60
        difference_error: dict[int, Array] = {}
        with np.errstate(invalid="ignore"):
            size = (base.magnitude + slots * largest) * ENLARGE
            radius = (base.rad + slots * loosest + slack * largest) * ENLARGE
            lost = np.where((base.magnitude > 0) | (largest > 0), LOST_BY_MANY * roundings, 0.0)
            form_error = (gamma(roundings) * size + radius) * ENLARGE + lost  # (r,)
            # |slope of any relaxation| <= |dW|, intercept <= size |dW|: twice the size covers both.
            per_neuron = (2 * gamma(2 * roundings) * size + radius) * ENLARGE + 2 * lost
            # W_2 and b_2 have not come through the door. A product that underflows is off by at most 2^-1075, then
            # multiplied by at most a form's size or by `slots`; one that overflows may hide what it cancels.
            reach = (base.magnitude + max(1.0, slots) * largest) * ENLARGE
            underflow = LOST_BY_MANY * (roundings * (1 + slots) + reach.sum())
            for k in counts:
                dW, db = (np.abs(x) for x in self._differences_of(k))
                error = (per_neuron[:-1] @ dW + per_neuron[-1] * db) * (1 + gamma(stored.p + 8)) + underflow
                most = reach[:-1] @ dW + reach[-1] * db
                difference_error[k] = np.where(most < 2.0**1000, error, np.inf)
        return form_error, difference_error

    def _differences_of(self, k: int) -> tuple[Array, Array]:
        """(W_2)_right - (W_2)_j (p, C) and (b_2)_right - (b_2)_j (C,) for one count."""
        right = self.stored.class_of(k)
        W_2, b_2 = self.stored.W_2, self.stored.b_2
        return W_2[:, right][:, None] - W_2, b_2[right] - b_2

    def errors(self, k: np.ndarray) -> Array:
        """What rounding can make of each difference of these own counts (B, C)."""
        counts, index = np.unique(k, return_inverse=True)
        table = np.array([self.difference_error[int(count)] for count in counts]).reshape(-1, self.stored.classes)
        return table[index]

    def differences(self, k: np.ndarray, j: np.ndarray) -> LogitPairs:
        """What must be positive for count k not to lose to class j, for pairs of both."""
        right = k - self.stored.first_count
        readout, b_2 = self.stored.W_2.T, self.stored.b_2
        return LogitPairs(readout[right] - readout[j], b_2[right] - b_2[j])

    def form_ranges(self, regions: Regions) -> tuple[Array, Array]:
        """The range of every linear form over each region: (B, r) twice."""
        n = regions.counts.reshape(len(regions), -1).astype(float)
        own = regions.own.astype(float)
        least, most = self._corners(self.H_least, self.H_most)
        mine_least, mine_most = self._corners(self.own_form, self.own_form)
        lower = self.bases.min(0) + own @ mine_least + n @ least.reshape(-1, least.shape[-1])
        upper = self.bases.max(0) + own @ mine_most + n @ most.reshape(-1, most.shape[-1])
        if regions.free.any():
            B, shape = len(regions), mine_least.shape
            ends = [np.broadcast_to(x, (B, *shape)) for x in (mine_least, least[:, -1], -mine_most, -most[:, -1])]
            lower = lower + self._share_free(regions, ends[0], ends[1])
            upper = upper - self._share_free(regions, ends[2], ends[3])
        return lower - self.form_error, upper + self.form_error

    def _corners(self, least: Array, most: Array) -> tuple[Array, Array]:
        """The least and the largest product of a group's weights with a number between these: (..., r) to (G, ...)."""
        shape = (self.G, *([1] * least.ndim))
        low, high = self.low.reshape(shape), self.high.reshape(shape)
        products = [low * least, low * most] + ([] if low is high else [high * least, high * most])
        return np.minimum.reduce(products), np.maximum.reduce(products)

    def _share_free(self, regions: Regions, mine: Array, rest: Array) -> Array:
        """The least sum over the groups not shared out yet: mine and rest (B, G, r) per slot, to (B, r).

        All their slots contribute `rest`, and those that gain least by holding t make up the own count.
        """
        sizes = self.row.sizes
        free = regions.free[..., None]
        everything = (np.where(free, rest, 0.0) * sizes[None, :, None]).sum(1)
        gain = np.sort(np.repeat(np.where(free, mine - rest, np.inf), sizes, axis=1), axis=1)
        missing = regions.k - 1 - regions.own.sum(1)
        taken = np.arange(gain.shape[1])[None, :, None] < missing[:, None, None]
        result: Array = everything + np.where(taken, gain, 0.0).sum(1)
        return result

    def least_differences(
        self, regions: Regions, i: np.ndarray, of: LogitPairs, lines: LogitLines
    ) -> tuple[Array, Array]:
        """Least value of each difference over the region i that it belongs to, without rounding errors (P,).

        Shapes: i (P,), lines of the regions (B, p). Also returns each cluster's spread (P, Q).
        """
        form, constant = lines.below(i, of)
        q = form @ self.H.T  # (P, S)
        own = form @ self.own_form
        q_least, q_most = self.tree.least(q), -self.tree.least(-q)
        bases = form @ self.bases.T  # (P, positions)
        total = constant
        for g in range(self.G):
            n, mine = regions.counts[i, g].astype(float), regions.own[i, g].astype(float)
            if self.apart[g] == 0:
                extreme = q_least if self.a[g] >= 0 else q_most
                total = total + self.a[g] * (mine * own + np.einsum("pq,pq->p", n, extreme))
                continue
            # the weights' differences sum to `sums`, whatever is shifted out of the terms that they multiply
            shift = mine * own + 0.5 * np.einsum("pq,pq->p", n, q_least + q_most)
            shift = shift / max(1, int(self.row.sizes[g]))
            total = total + mine * self._slot(g, own, shift)
            ends = np.minimum(self._slot(g, q_least, shift[:, None]), self._slot(g, q_most, shift[:, None]))
            total = total + np.einsum("pq,pq->p", n, ends)
            bases = bases + shift[:, None] * self.sums[:, g]
        total = total + bases.min(1)
        if regions.free.any():
            corners = self._corners(own, own)[0].T, self._corners(q_least[:, -1], q_most[:, -1])[0].T
            total = total + self._share_free(regions[i], corners[0][..., None], corners[1][..., None])[:, 0]
        return total, q_most - q_least

    def _slot(self, g: int, q: Array, shift: Array) -> Array:
        """The least that a slot of group g gives to a form whose value at its token is q: concave in q."""
        result: Array = self.a[g] * q - self.apart[g] * np.abs(q - shift)
        return result

    @cached_property
    def looks_uniform(self) -> np.ndarray:
        """Clusters whose tokens have the same linear forms as far as float64 can tell (Q,)."""
        noise = 4 * self.form_error + 1e-12 * np.abs(self.H).max(0, initial=0.0)
        result: np.ndarray = (self.tree.size == 1) | ((self.H_most - self.H_least) <= noise).all(1)
        return result
