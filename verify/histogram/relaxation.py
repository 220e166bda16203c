"""The linear relaxation over a region: every pre-activation's range, and the least value of each logit difference.

* Every pre-activation has an exact range (a row minimum and maximum per cluster), so neurons are on, off or undecided.
* Each logit difference is bounded below by a linear form: neurons that are on or off are exact, an undecided ReLU lies
  between two lines (0 or z below, the chord above); the minimum of that form over the region is again a minimum per
  cluster.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from verify.arithmetic.balls import ENLARGE, TINY, Ball, U, gamma
from verify.histogram.reduction import Reduces, Row
from verify.histogram.regions import Regions, Tree
from verify.histogram.stored import Array, StoredModel


class Relaxation:
    """The linear forms of one query token t in one row, with bounds on all that float64 rounds away.

    Shapes: base and own_form (r,), H (S, r) for the S other tokens; `tree` clusters those that act alike.
    """

    def __init__(self, reduction: Reduces, row: Row, t: int) -> None:
        self.stored: StoredModel = reduction.stored
        self.row = row
        base, own, others = reduction.tables(row, t, t + 1).of_token(t)
        self.tokens = np.array([s for s in range(self.stored.T) if s != t])
        H = others[self.tokens]
        self.base, self.own_form, self.H = base.mid, own.mid, H.mid
        self.tree = Tree(self._influence(H))
        self.G = len(row.groups)
        self.a = row.weight.mid  # (G,)
        self.form_error, self.difference_error = self._errors(base, own, H)
        self.H_least = self.tree.least(self.H.T).T  # (Q, r)
        self.H_most = -self.tree.least(-self.H.T).T

    def _influence(self, H: Ball) -> Array:
        """What a token's term can do to the logits, to cluster tokens that act alike."""
        readout = np.abs(self.stored.W_2 - self.stored.W_2.mean(1, keepdims=True)).max(1)
        scale = np.append(readout, np.abs(self.stored.b_2 - self.stored.b_2.mean()).max())
        points = H.mid * (scale / (scale.max() or 1.0))
        points = np.where(np.isfinite(points), points, 0.0)
        return points / (np.abs(points).max() or 1.0)

    def _errors(self, base: Ball, own: Ball, H: Ball) -> tuple[Array, Array]:
        """Bounds, valid in every region, on the rounding of a pre-activation and of a logit difference.

        `size` bounds the sum of absolute terms of each linear form, `radius` the error that its
        coefficients already carry. A coefficient passes through at most `roundings` operations.
        """
        stored, row = self.stored, self.row
        sizes = row.sizes.astype(float)
        largest = np.maximum(H.magnitude.max(0), own.magnitude)
        loosest = np.maximum(H.rad.max(0), own.rad)
        slots = float((sizes * row.weight.magnitude).sum()) * ENLARGE
        slack = float((sizes * row.weight.rad).sum()) * ENLARGE
        roundings = stored.p + self.G * self.tree.Q + 3 * stored.L + 50
        with np.errstate(invalid="ignore"):
            size = (base.magnitude + slots * largest) * ENLARGE
            radius = (base.rad + slots * loosest + slack * largest) * ENLARGE
            form_error = (gamma(roundings) * size + radius) * ENLARGE  # (r,)
            # |slope of any relaxation| <= |dW|, intercept <= size |dW|: twice the size covers both.
            per_neuron = (2 * gamma(2 * roundings) * size + radius) * ENLARGE
            k = np.arange(1, stored.L + 1)
            dW, db = self.differences(k)
            difference_error = (np.einsum("r,krc->kc", per_neuron[:-1], np.abs(dW)) + per_neuron[-1] * np.abs(db)) * (
                1 + gamma(stored.p + 8)
            )
            # W_2 and b_2 have not come through the door. A product that underflows is off by at most 2^-1075, then
            # multiplied by at most a form's size or by `slots`; one that overflows may hide what it cancels.
            reach = (base.magnitude + max(1.0, slots) * largest) * ENLARGE
            difference_error += 2.0**-1060 * (roundings * (1 + slots) + reach.sum())
            most = np.einsum("r,krc->kc", reach[:-1], np.abs(dW)) + reach[-1] * np.abs(db)
            difference_error = np.where(most < 2.0**1000, difference_error, np.inf)
        return form_error, difference_error

    def differences(self, k: np.ndarray) -> tuple[Array, Array]:
        """(W_2)_right - (W_2)_j (B, p, C) and (b_2)_right - (b_2)_j (B, C)."""
        right = k - self.stored.first_count
        W_2, b_2 = self.stored.W_2, self.stored.b_2
        return W_2[:, right].T[:, :, None] - W_2[None], b_2[right][:, None] - b_2[None]

    def form_ranges(self, regions: Regions) -> tuple[Array, Array]:
        """The range of every linear form over each region: (B, r) twice."""
        n = regions.counts.reshape(len(regions), -1).astype(float)
        own = regions.own.astype(float)
        least, most = self._per_cluster(self.H_least, self.H_most)
        mine = self.a[:, None] * self.own_form
        fixed = self.base + own @ mine
        lower = fixed + n @ least.reshape(-1, least.shape[-1])
        upper = fixed + n @ most.reshape(-1, most.shape[-1])
        if regions.free.any():
            B, shape = len(regions), mine.shape
            mine = np.broadcast_to(mine, (B, *shape))
            lower = lower + self._share_free(regions, mine, np.broadcast_to(least[:, -1], (B, *shape)))
            upper = upper - self._share_free(regions, -mine, np.broadcast_to(-most[:, -1], (B, *shape)))
        return lower - self.form_error, upper + self.form_error

    def _per_cluster(self, least: Array, most: Array) -> tuple[Array, Array]:
        """Extremes per cluster times each group's weight: (Q, r) to (G, Q, r)."""
        a = self.a[:, None, None]
        return np.where(a >= 0, a * least, a * most), np.where(a >= 0, a * most, a * least)

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
        self, regions: Regions, dW: Array, db: Array, lower: Array, upper: Array
    ) -> tuple[Array, Array]:
        """Least value of sum_i relu(z_i) dW_ij + D db_j over each region (B, J), without rounding errors.

        Shapes: dW (B, p, J), db (B, J), lower and upper (B, r). Also returns each cluster's spread (B, J, Q).
        """
        z_low, z_high = lower[:, :-1], upper[:, :-1]
        on, off = z_low >= 0, z_high <= 0
        with np.errstate(invalid="ignore", divide="ignore"):
            chord = z_high / (z_high - z_low)
        chord = np.where(chord >= TINY, np.minimum(chord, 1.0), 0.0)
        over = np.where(on, 1.0, np.where(off, 0.0, chord))
        # relu(z) - over z is convex, so it is largest at an end of the range
        excess = np.maximum(-over * z_low, z_high - over * z_high) + 4 * U * (z_high - z_low)
        excess = np.where(on | off, 0.0, excess)
        under = np.where(on, 1.0, np.where(off, 0.0, (z_high > -z_low).astype(float)))
        slope = np.where(dW >= 0, under[..., None] * dW, over[..., None] * dW)
        constant = np.einsum("bpj,bp->bj", np.minimum(dW, 0.0), excess)
        form = np.concatenate([slope, db[:, None]], axis=1)  # (B, r, J)
        q = np.swapaxes(form, 1, 2) @ self.H.T  # (B, J, S)
        own = np.einsum("brj,r->bj", form, self.own_form)
        q_least, q_most = self.tree.least(q), -self.tree.least(-q)
        total = constant + np.einsum("brj,r->bj", form, self.base)
        total = total + own * (regions.own * self.a).sum(1)[:, None]
        for g, a in enumerate(self.a):
            n = regions.counts[:, g].astype(float)
            total = total + np.einsum("bq,bjq->bj", n, a * (q_least if a >= 0 else q_most))
        if regions.free.any():
            mine = self.a[None, :, None] * own[:, None, :]
            root_least, root_most = q_least[:, None, :, -1], q_most[:, None, :, -1]
            a = self.a[None, :, None]
            total = total + self._share_free(regions, mine, np.where(a >= 0, a * root_least, a * root_most))
        return total, q_most - q_least

    @cached_property
    def looks_uniform(self) -> np.ndarray:
        """Clusters whose tokens have the same linear forms as far as float64 can tell (Q,)."""
        noise = 4 * self.form_error + 1e-12 * np.abs(self.H).max(0, initial=0.0)
        result: np.ndarray = (self.tree.size == 1) | ((self.H_most - self.H_least) <= noise).all(1)
        return result
