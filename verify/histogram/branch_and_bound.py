"""Decides what the vertices leave open: splits the multiset of other tokens until every part is decided.

Regions are divided by regions.py, bounded by relaxation.py and counted by counting.py; here they are decided.

A region is right when every difference is positive, and wrong when one of them is nowhere positive. A
region that cannot be split and is still open is a single input up to exact symmetry; exact arithmetic
decides it. Leaves count sequences by multinomials, so a finished search knows the exact number of wrong
(sequence, position) pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic.balls import U
from verify.histogram.counting import Counting
from verify.histogram.exact_forward import ExactForward
from verify.histogram.reduction import Reduces, Row, slot_groups
from verify.histogram.regions import Regions, halves, roots, share_out_group
from verify.histogram.relaxation import Relaxation
from verify.histogram.stored import Array

WORKING_NUMBERS = 1 << 21  # size of the largest working array of one batch
FRONTIER_BYTES = 1 << 30


@dataclass(frozen=True, order=True)
class Candidate:
    """A wrong input, ordered by number of distinct tokens, then sequence, then position."""

    distinct: int
    tokens: tuple[int, ...]
    position: int


class Search:
    """The open cells of one query token t in one row (class of positions).

    Without `exact` the search can only prove: it is lost as soon as a region is wrong, or a single input is left that
    only exact arithmetic would decide. That is the search on computed numbers, of which exact arithmetic says nothing.
    """

    def __init__(self, reduction: Reduces, exact: ExactForward | None, row: Row, t: int, counts: list[int]) -> None:
        self.stored, self.exact, self.row, self.t = reduction.stored, exact, row, t
        self.relaxation = Relaxation(reduction, row, t)
        self.tokens, self.tree = self.relaxation.tokens, self.relaxation.tree
        self.counting = Counting(row, self.tree, self.stored.T, self.stored.L)
        self.G = len(row.groups)
        self.is_lost = False
        self.wrong_pairs = 0
        self.candidates: list[Candidate] = []
        self.right_margin: dict[int, float] = {}
        self.pending: dict[int, list[Regions]] = {}
        self._push(roots(counts, self.stored.L, self.tree, self.G))

    def run(self, regions: Regions) -> None:
        """Decides a batch of regions or replaces them by their parts."""
        flagged = regions.wrong
        if flagged.any():
            self._split(regions[flagged], None)
            regions = regions[~flagged]
        if not len(regions):
            return
        lower, upper = self.relaxation.form_ranges(regions)
        every = np.arange(len(regions))
        dW, db = self.relaxation.differences(regions.k)
        least, spread = self.relaxation.least_differences(regions, dW, db, lower, upper)
        least = least - self.relaxation.difference_error[regions.k - 1]
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
        negated, _ = self.relaxation.least_differences(regions, -dW_worst[..., None], -db_worst[:, None], lower, upper)
        error = self.relaxation.difference_error[regions.k - 1, worst]
        wrong = -negated[:, 0] + error <= 0
        self._add_wrong(regions[wrong])
        undecided = ~wrong
        if undecided.any():
            ambiguous = ~((lower[:, :-1] >= 0) | (upper[:, :-1] <= 0))
            gap = (ambiguous * np.abs(dW_worst)) @ (self.relaxation.H_most - self.relaxation.H_least)[:, :-1].T
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
            free = regions[has_free]
            self._push(share_out_group(free, self.tree, self.row.sizes, self.relaxation.a))
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
        effect = regions.counts * np.abs(self.relaxation.a)[None, :, None]
        if score is not None:
            effect = effect * np.where(np.isfinite(score), score, 0.0)[~is_point, None, :]
        choice = np.where(can_split, effect, -1.0).reshape(len(regions), -1).argmax(1)
        self._push(halves(regions, self.tree, choice // self.tree.Q, choice % self.tree.Q))

    def _is_splittable(self, exactly: bool) -> np.ndarray:
        """Clusters with more than one token; those whose tokens act exactly alike need no split to be decided."""
        return self.tree.size > 1 if exactly else ~self._uniform

    @cached_property
    def _uniform(self) -> np.ndarray:
        """Clusters whose tokens have exactly the same linear forms, by the exact features and scores (Q,)."""
        uniform: np.ndarray = self.tree.size == 1
        if self.exact is None:  # two tokens that act alike exactly may be computed differently
            return uniform
        exact = self.exact
        key: dict[int, tuple[object, ...]] = {}

        def exact_key(s: int) -> tuple[object, ...]:
            if s not in key:
                token = int(self.tokens[s])
                features = tuple(exact.features.entry(token, i) for i in range(self.stored.p))
                score = () if self.stored.is_linear else (exact.scores.entry(self.t, token),)
                key[s] = (*score, *features)
            return key[s]

        for node in range(self.tree.S, self.tree.Q):
            left, right = self.tree.children[node]
            if self.relaxation.looks_uniform[node] and uniform[left] and uniform[right]:
                first = exact_key(self.tree.members[left][0])
                uniform[node] = first == exact_key(self.tree.members[right][0])
        return uniform

    def _decide_point(self, region: Regions) -> None:
        if region.wrong[0]:
            self._add_candidates(region)
            return
        if self.exact is None:
            self.is_lost = True
            return
        candidate = self._first_input(region, 0)
        judgement = self.exact.judge(candidate.tokens, candidate.position)
        if judgement.is_right:
            k = int(region.k[0])
            self.right_margin[k] = min(judgement.margin[0], self.right_margin.get(k, np.inf))
        else:
            self._add_wrong(region)

    def _push(self, regions: Regions) -> None:
        levels = regions.level
        for level in np.unique(levels):
            self.pending.setdefault(int(level), []).append(regions[levels == level])

    def _add_wrong(self, regions: Regions) -> None:
        """Counts wrong regions and keeps an input of each; several groups must be resolved to find the smallest."""
        if not len(regions):
            return
        if self.exact is None:
            self.is_lost = True
            return
        self.wrong_pairs += sum(self.counting.exactly(regions))
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

    @property
    def batch_size(self) -> int:
        r, C = self.stored.p + 1, self.stored.classes
        return max(1, WORKING_NUMBERS // (C * max(r, self.tree.Q) + self.G * (C + r) * self.stored.L))

    def open_pairs(self) -> int:
        """An upper bound on the number of pairs not decided yet; zero exactly when none is left."""
        return sum(self.counting.above(regions[~regions.wrong]) for parts in self.pending.values() for regions in parts)

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
        order = np.argsort(self.counting.logarithm(regions), kind="stable")
        if regions.nbytes < FRONTIER_BYTES:
            order = order[::-1]
        position, last = 0, max(self.batch_size, len(order) // 8)
        while position < min(last, len(order)) and not is_over():
            self.run(regions[order[position : position + self.batch_size]])
            position += self.batch_size
        if position < len(order):
            self._push(regions[order[position:]])
