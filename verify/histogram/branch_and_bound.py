"""Decides what the vertices leave open: splits the multiset of other tokens until every part is decided.

A region fixes, for a query token t with own count k, how many slots of each group hold t and how many hold
a token of each cluster of other tokens. Clusters come from a binary tree, so a region is split by sharing
out one cluster's slots between its two halves. Over a region

* every pre-activation has an exact range (a row minimum and maximum per cluster), so neurons are on, off
  or undecided;
* each logit difference is bounded below by a linear form: neurons that are on or off are exact, an
  undecided ReLU lies between two lines (0 or z below, the chord above); the minimum of that form over the
  region is again a minimum per cluster.

A region is right when every difference is positive, and wrong when one of them is nowhere positive. A
region that cannot be split and is still open is a single input up to exact symmetry; exact arithmetic
decides it. Leaves count sequences by multinomials, so a finished search knows the exact number of wrong
(sequence, position) pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, comb, factorial, prod

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist
from scipy.special import gammaln

from verify.arithmetic.balls import ENLARGE, TINY, Ball, U, gamma
from verify.histogram.exact_forward import ExactForward
from verify.histogram.reduction import Reduction, Row, slot_groups
from verify.histogram.stored import Array, StoredModel

WORKING_NUMBERS = 1 << 21  # size of the largest working array of one batch
FRONTIER_BYTES = 1 << 30


@dataclass
class Regions:
    """A batch of regions: own count k, slots per group that hold t, slots per group and cluster.

    Shapes: k (B,), own (B, G), counts (B, G, Q). `free` (B, G) marks groups that are not shared out yet
    between t and the others; `wrong` (B,) marks regions known to be wrong throughout.
    """

    k: np.ndarray
    own: np.ndarray
    counts: np.ndarray
    free: np.ndarray
    wrong: np.ndarray

    def __len__(self) -> int:
        return len(self.k)

    def __getitem__(self, index: np.ndarray | slice) -> Regions:
        return Regions(self.k[index], self.own[index], self.counts[index], self.free[index], self.wrong[index])

    @classmethod
    def join(cls, parts: list[Regions]) -> Regions:
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("k", "own", "counts", "free", "wrong")
            )
        )

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes + self.own.nbytes

    @property
    def level(self) -> np.ndarray:
        """A lower bound on the number of distinct tokens in any sequence of the region."""
        return 1 + (self.counts > 0).sum(-1).max(-1, initial=0)


@dataclass(frozen=True, order=True)
class Candidate:
    """A wrong input, ordered by number of distinct tokens, then sequence, then position."""

    distinct: int
    tokens: tuple[int, ...]
    position: int


class Tree:
    """A binary tree of token clusters: leaves 0..S-1, then one node per merge, the root last."""

    def __init__(self, points: Array) -> None:
        S = len(points)
        self.S, self.Q = S, 2 * S - 1
        self.children = np.full((self.Q, 2), -1)
        if S > 1:
            self.children[S:] = linkage(pdist(points), method="complete")[:, :2].astype(int)
        self.members: list[list[int]] = [[s] for s in range(S)]
        for left, right in self.children[S:]:
            self.members.append(self.members[left] + self.members[right])
        self.size = np.array([len(m) for m in self.members])

    def least(self, leaves: Array) -> Array:
        """Minimum over each cluster along the last axis: (..., S) to (..., Q)."""
        out = np.empty((self.Q, *leaves.shape[:-1]))
        out[: self.S] = np.moveaxis(leaves, -1, 0)
        for node in range(self.S, self.Q):
            left, right = self.children[node]
            np.minimum(out[left], out[right], out=out[node])
        return np.moveaxis(out, 0, -1)


class Search:
    """The open cells of one query token t in one row (class of positions)."""

    def __init__(self, reduction: Reduction, exact: ExactForward, row: Row, t: int, counts: list[int]) -> None:
        self.stored: StoredModel = reduction.stored
        self.exact, self.row, self.t = exact, row, t
        base, own, others = reduction.tables(row, t, t + 1).of_token(t)
        self.tokens = np.array([s for s in range(self.stored.T) if s != t])
        H = others[self.tokens]
        self.base, self.own_form, self.H = base.mid, own.mid, H.mid  # (r,), (r,), (S, r)
        self.tree = Tree(self._influence(H))
        self.G = len(row.groups)
        self.a = row.weight.mid  # (G,)
        self._set_errors(base, own, H)
        self.H_least = self.tree.least(self.H.T).T  # (Q, r)
        self.H_most = -self.tree.least(-self.H.T).T
        self.wrong_pairs = 0
        self.candidates: list[Candidate] = []
        self.right_margin: dict[int, float] = {}
        self.pending: dict[int, list[Regions]] = {}
        self._push(self._roots(counts))

    def _influence(self, H: Ball) -> Array:
        """What a token's term can do to the logits, to cluster tokens that act alike."""
        readout = np.abs(self.stored.W_2 - self.stored.W_2.mean(1, keepdims=True)).max(1)
        scale = np.append(readout, np.abs(self.stored.b_2 - self.stored.b_2.mean()).max())
        points = H.mid * (scale / (scale.max() or 1.0))
        points = np.where(np.isfinite(points), points, 0.0)
        return points / (np.abs(points).max() or 1.0)

    def _set_errors(self, base: Ball, own: Ball, H: Ball) -> None:
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
            self.form_error = (gamma(roundings) * size + radius) * ENLARGE  # (r,)
            # |slope of any relaxation| <= |dW|, intercept <= size |dW|: twice the size covers both.
            per_neuron = (2 * gamma(2 * roundings) * size + radius) * ENLARGE
            k = np.arange(1, stored.L + 1)
            dW, db = self._differences(k)
            self.difference_error = (
                np.einsum("r,krc->kc", per_neuron[:-1], np.abs(dW)) + per_neuron[-1] * np.abs(db)
            ) * (1 + gamma(stored.p + 8))
            # W_2 and b_2 have not come through the door. A product that underflows is off by at most 2^-1075, then
            # multiplied by at most a form's size or by `slots`; one that overflows may hide what it cancels.
            reach = (base.magnitude + max(1.0, slots) * largest) * ENLARGE
            self.difference_error += 2.0**-1060 * (roundings * (1 + slots) + reach.sum())
            most = np.einsum("r,krc->kc", reach[:-1], np.abs(dW)) + reach[-1] * np.abs(db)
            self.difference_error = np.where(most < 2.0**1000, self.difference_error, np.inf)

    def _differences(self, k: np.ndarray) -> tuple[Array, Array]:
        """(W_2)_right - (W_2)_j (B, p, C) and (b_2)_right - (b_2)_j (B, C)."""
        right = k - self.stored.first_count
        W_2, b_2 = self.stored.W_2, self.stored.b_2
        return W_2[:, right].T[:, :, None] - W_2[None], b_2[right][:, None] - b_2[None]

    def _roots(self, counts: list[int]) -> Regions:
        L, Q, G = self.stored.L, self.tree.Q, self.G
        k = np.array(counts, dtype=np.int32)
        B = len(k)
        roots = Regions(
            k,
            np.zeros((B, G), dtype=np.int32),
            np.zeros((B, G, Q), dtype=np.int32),
            np.full((B, G), G > 1),
            np.zeros(B, dtype=bool),
        )
        if G == 1:
            roots.own[:, 0] = k - 1
            roots.counts[:, 0, -1] = L - k
        return roots

    # -- bounds ------------------------------------------------------------------------------------

    def _form_ranges(self, regions: Regions) -> tuple[Array, Array]:
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
        return everything + np.where(taken, gain, 0.0).sum(1)

    def _least_differences(
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

    # -- the search --------------------------------------------------------------------------------

    def run(self, regions: Regions) -> None:
        """Decides a batch of regions or replaces them by their parts."""
        flagged = regions.wrong
        if flagged.any():
            self._split(regions[flagged], None)
            regions = regions[~flagged]
        if not len(regions):
            return
        lower, upper = self._form_ranges(regions)
        every = np.arange(len(regions))
        dW, db = self._differences(regions.k)
        least, spread = self._least_differences(regions, dW, db, lower, upper)
        least = least - self.difference_error[regions.k - 1]
        least[every, regions.k - self.stored.first_count] = np.inf
        worst = least.argmin(1)  # NaN counts as the minimum
        margin = least[every, worst]
        right = margin > 0
        self._record_right(regions.k[right], margin[right], upper[right, -1])
        still = ~right
        if not still.any():
            return
        regions, worst, lower, upper = regions[still], worst[still], lower[still], upper[still]
        spread, dW, db = spread[still], dW[still], db[still]
        every = np.arange(len(regions))
        dW_worst, db_worst = dW[every, :, worst], db[every, worst]
        negated, _ = self._least_differences(regions, -dW_worst[..., None], -db_worst[:, None], lower, upper)
        error = self.difference_error[regions.k - 1, worst]
        wrong = -negated[:, 0] + error <= 0
        self._add_wrong(regions[wrong])
        undecided = ~wrong
        if undecided.any():
            ambiguous = ~((lower[:, :-1] >= 0) | (upper[:, :-1] <= 0))
            gap = (ambiguous * np.abs(dW_worst)) @ (self.H_most - self.H_least)[:, :-1].T
            score = spread[every, worst] + np.where(np.isfinite(gap), gap, 0.0)
            self._split(regions[undecided], score[undecided])

    def _record_right(self, k: np.ndarray, margin: Array, D_upper: Array) -> None:
        for count in np.unique(k):
            chosen = k == count
            smallest = float((margin[chosen] / D_upper[chosen] * (1 - 4 * U)).min())
            self.right_margin[int(count)] = min(smallest, self.right_margin.get(int(count), np.inf))

    def _split(self, regions: Regions, score: Array | None) -> None:
        """Replaces regions by their parts; without a score they are known wrong and only get resolved."""
        has_free = np.asarray(regions.free.any(1))
        if has_free.any():
            self._share_out_group(regions[has_free])
            regions = regions[~has_free]
            score = None if score is None else score[~has_free]
        if not len(regions):
            return
        can_split = (regions.counts > 0) & self._is_splittable(exactly=score is None)
        is_point = ~np.asarray(can_split.any((1, 2)))
        for i in np.nonzero(is_point)[0]:
            self._decide_point(regions[i : i + 1])
        regions, can_split = regions[~is_point], can_split[~is_point]
        if not len(regions):
            return
        effect = regions.counts * np.abs(self.a)[None, :, None]
        if score is not None:
            effect = effect * np.where(np.isfinite(score), score, 0.0)[~is_point, None, :]
        choice = np.where(can_split, effect, -1.0).reshape(len(regions), -1).argmax(1)
        self._push(self._halves(regions, choice // self.tree.Q, choice % self.tree.Q))

    def _halves(self, regions: Regions, g: np.ndarray, node: np.ndarray) -> Regions:
        """Every way to share out cluster `node`'s slots in group g between its two halves."""
        i = np.arange(len(regions))
        n = regions.counts[i, g, node].astype(int)
        parent = np.repeat(i, n + 1)
        first = np.arange(len(parent)) - np.repeat(np.cumsum(n + 1) - (n + 1), n + 1)
        parts = regions[parent]
        left, right = self.tree.children[node[parent]].T
        j, group = np.arange(len(parent)), g[parent]
        parts.counts[j, group, node[parent]] = 0
        parts.counts[j, group, left] += first.astype(np.int32)
        parts.counts[j, group, right] += (n[parent] - first).astype(np.int32)
        return parts

    def _share_out_group(self, regions: Regions) -> None:
        """Every way to give the heaviest free group its number of slots that hold t."""
        sizes = self.row.sizes
        impact = np.where(regions.free, (np.abs(self.a) * sizes)[None] + 1e-300, -1.0)
        g = impact.argmax(1)
        missing = regions.k - 1 - regions.own.sum(1)
        i = np.arange(len(regions))
        elsewhere = (regions.free * sizes).sum(1) - sizes[g]
        fewest = np.maximum(0, missing - elsewhere)
        most = np.minimum(sizes[g], missing)
        n = most - fewest + 1
        parent = np.repeat(i, n)
        own = np.arange(len(parent)) - np.repeat(np.cumsum(n) - n, n) + fewest[parent]
        parts = regions[parent]
        j, group = np.arange(len(parent)), g[parent]
        parts.own[j, group] = own
        parts.counts[j, group, self.tree.Q - 1] = sizes[group] - own
        parts.free[j, group] = False
        self._push(parts)

    @cached_property
    def _looks_uniform(self) -> np.ndarray:
        """Clusters whose tokens have the same linear forms as far as float64 can tell (Q,)."""
        noise = 4 * self.form_error + 1e-12 * np.abs(self.H).max(0, initial=0.0)
        return (self.tree.size == 1) | ((self.H_most - self.H_least) <= noise).all(1)

    def _is_splittable(self, exactly: bool) -> np.ndarray:
        """Clusters with more than one token; those whose tokens act exactly alike need no split to be decided."""
        return self.tree.size > 1 if exactly else ~self._uniform

    @cached_property
    def _uniform(self) -> np.ndarray:
        """Clusters whose tokens have exactly the same linear forms, by the exact features and scores (Q,)."""
        uniform = self.tree.size == 1
        key: dict[int, tuple[object, ...]] = {}

        def exact_key(s: int) -> tuple[object, ...]:
            if s not in key:
                token = int(self.tokens[s])
                features = tuple(self.exact.features.entry(token, i) for i in range(self.stored.p))
                score = () if self.stored.is_linear else (self.exact.scores.entry(self.t, token),)
                key[s] = (*score, *features)
            return key[s]

        for node in range(self.tree.S, self.tree.Q):
            left, right = self.tree.children[node]
            if self._looks_uniform[node] and uniform[left] and uniform[right]:
                first = exact_key(self.tree.members[left][0])
                uniform[node] = first == exact_key(self.tree.members[right][0])
        return uniform

    def _decide_point(self, region: Regions) -> None:
        if region.wrong[0]:
            self._add_candidates(region)
            return
        candidate = self._first_input(region, 0)
        judgement = self.exact.judge(candidate.tokens, candidate.position)
        if judgement.is_right:
            k = int(region.k[0])
            self.right_margin[k] = min(judgement.margin[0], self.right_margin.get(k, np.inf))
        else:
            self._add_wrong(region)

    # -- bookkeeping -------------------------------------------------------------------------------

    def _push(self, regions: Regions) -> None:
        levels = regions.level
        for level in np.unique(levels):
            self.pending.setdefault(int(level), []).append(regions[levels == level])

    def _add_wrong(self, regions: Regions) -> None:
        """Counts wrong regions and keeps an input of each; several groups must be resolved to find the smallest."""
        if not len(regions):
            return
        self.wrong_pairs += sum(self.weights(regions))
        if self.G <= 1:
            self._add_candidates(regions)
            return
        self._add_candidates(regions[:1])
        resolved = regions[:]
        resolved.wrong = np.ones(len(regions), dtype=bool)
        self._push(resolved)

    def _add_candidates(self, regions: Regions) -> None:
        """Keeps the smallest input of these wrong regions."""
        levels = regions.level
        at_least = np.nonzero(levels == levels.min())[0] if self.G <= 1 else np.arange(len(regions))
        best = min(self._first_input(regions, int(i)) for i in at_least)
        self.candidates = [min([*self.candidates, best])]

    def _first_input(self, regions: Regions, i: int) -> Candidate:
        """The smallest input of one region (for several groups: with the smallest token of each cluster)."""
        region = regions[i : i + 1]
        own = region.own[0].astype(int)
        missing = int(region.k[0]) - 1 - int(own.sum())
        holdings: list[list[int]] = []
        for g, size in enumerate(self.row.sizes):
            if region.free[0, g]:
                taken = min(missing, int(size))
                missing -= taken
                tokens = [self.t] * taken + [int(self.tokens[0])] * (int(size) - taken)
            else:
                tokens = [self.t] * int(own[g])
                for node in np.nonzero(region.counts[0, g])[0]:
                    smallest = int(self.tokens[self.tree.members[node]].min())
                    tokens += [smallest] * int(region.counts[0, g, node])
            holdings.append(sorted(tokens))
        if not self.stored.is_linear:  # every arrangement counts: the sorted one comes first
            sequence = sorted([self.t, *(token for tokens in holdings for token in tokens)])
            return Candidate(len(set(sequence)), tuple(sequence), sequence.index(self.t))
        inputs = []
        for position in self.row.positions:
            sequence = [self.t] * self.stored.L
            for slots, tokens in zip(slot_groups(self.stored, position), holdings, strict=True):
                for slot, token in zip(slots, tokens, strict=True):
                    sequence[slot] = token
            inputs.append(Candidate(len(set(sequence)), tuple(sequence), position))
        return min(inputs)

    def weights(self, regions: Regions) -> list[int]:
        """The exact number of (sequence, position) pairs in each region."""
        sizes = [int(n) for n in self.row.sizes]
        clusters = [int(n) for n in self.tree.size]
        out = []
        for i in range(len(regions)):
            weight = len(self.row.positions)
            free_slots = 0
            for g, size in enumerate(sizes):
                if regions.free[i, g]:
                    free_slots += size
                    continue
                counts = regions.counts[i, g]
                nodes = np.nonzero(counts)[0]
                n = [int(counts[node]) for node in nodes]
                weight *= factorial(size) // (factorial(int(regions.own[i, g])) * prod(map(factorial, n)))
                weight *= prod(clusters[node] ** m for node, m in zip(nodes, n, strict=True))
            if free_slots:
                missing = int(regions.k[i]) - 1 - int(regions.own[i].sum())
                weight *= comb(free_slots, missing) * (self.stored.T - 1) ** (free_slots - missing)
            out.append(weight)
        return out

    def log_weights(self, regions: Regions) -> Array:
        """Roughly the logarithm of the number of pairs, to look at large regions first."""
        n = regions.counts.astype(float)
        share = n * np.log(self.tree.size) - gammaln(n + 1)
        own = gammaln(regions.own.astype(float) + 1)
        free = (regions.free * self.row.sizes).sum(1) * np.log(self.stored.T)
        return share.sum((1, 2)) - own.sum(1) + free

    @property
    def batch_size(self) -> int:
        r, C = self.stored.p + 1, self.stored.classes
        return max(1, WORKING_NUMBERS // (C * max(r, self.tree.Q) + self.G * (C + r) * self.stored.L))

    def open_pairs(self) -> int:
        """An upper bound on the number of pairs not decided yet; zero exactly when none is left."""
        return sum(self._weight_above(regions[~regions.wrong]) for parts in self.pending.values() for regions in parts)

    def _weight_above(self, regions: Regions) -> int:
        """At least the number of pairs in these regions, vectorised where float64 can hold it."""
        if regions.free.any() or not len(regions) or self.stored.L > 170:
            return sum(self.weights(regions))
        factorials, powers = self._weight_factors
        shares = powers[np.arange(self.tree.Q), regions.counts] / factorials[regions.counts]
        sizes = self.row.sizes
        arrangements = (factorials[sizes] / factorials[regions.own]).prod(1) * len(self.row.positions)
        total = float((shares.prod((1, 2)) * arrangements).sum())
        roundings = 4 * self.G * (self.tree.Q + 4) + len(regions)
        if not np.isfinite(total):
            return sum(self.weights(regions))
        return ceil(total * (1 + 2 * gamma(roundings)))

    @cached_property
    def _weight_factors(self) -> tuple[Array, Array]:
        """n! and (cluster size)^n for n = 0..L - 1 <= 170, rounded; infinity where float64 cannot hold them."""

        def rounded(n: int) -> float:
            return float(n) if n.bit_length() < 1000 else np.inf

        slots = range(self.stored.L)
        factorials = np.array([float(factorial(n)) for n in slots])
        powers = np.array([[rounded(int(size) ** n) for n in slots] for size in self.tree.size])
        return factorials, powers

    @property
    def is_finished(self) -> bool:
        return not any(len(regions[~regions.wrong]) for parts in self.pending.values() for regions in parts)

    def run_level(self, level: int, is_over: Callable[[], bool]) -> None:
        """Decides all pending regions of a level, newest first, including those that appear meanwhile."""
        parts = self.pending.setdefault(level, [])
        while parts and not is_over():
            taken = [parts.pop()]
            while parts and sum(map(len, taken)) < self.batch_size:
                taken.append(parts.pop())
            regions = Regions.join(taken)
            if len(regions) > self.batch_size:
                parts.append(regions[self.batch_size :])
            self.run(regions[: self.batch_size])
        if not parts:
            del self.pending[level]

    def run_heaviest(self, is_over: Callable[[], bool]) -> None:
        """Decides the pending regions that hold most inputs (those that hold fewest when memory runs short)."""
        regions = Regions.join([part for parts in self.pending.values() for part in parts])
        regions = regions[~regions.wrong]
        self.pending = {}
        order = np.argsort(self.log_weights(regions), kind="stable")
        if regions.nbytes < FRONTIER_BYTES:
            order = order[::-1]
        position, last = 0, max(self.batch_size, len(order) // 8)
        while position < min(last, len(order)) and not is_over():
            self.run(regions[order[position : position + self.batch_size]])
            position += self.batch_size
        if position < len(order):
            self._push(regions[order[position:]])
