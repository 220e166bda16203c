"""Decides what the vertices leave open: splits the multiset of other tokens until every part is decided.

Regions are divided by regions.py, bounded by relaxation.py and counted by counting.py; here they are decided, and what
is left of rows with almost equal weights goes to arrangements.py.

A region is right when every difference is positive, and wrong when one of them is nowhere positive. A
region that cannot be split and is still open is a single input up to exact symmetry; exact arithmetic
decides it. Leaves count sequences by multinomials, so a finished search knows the exact number of wrong
(sequence, position) pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from verify.tasks.histogram.arrangements import Arrangements, Filled
from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.counting import Multinomials
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.judging import judge, of_ranges, smaller
from verify.tasks.histogram.record import RIGHT, WRONG, Record, without
from verify.tasks.histogram.reduction import Reduces, Row
from verify.tasks.histogram.regions import Regions, halves, roots, share_out_group
from verify.tasks.histogram.relaxation import LogitLines, Relaxation
from verify.tasks.histogram.stored import Array

WORKING_NUMBERS = 1 << 21  # size of the largest working array of one batch
AT_ONCE = 256  # multisets that are decided one by one rather than split


class RegionSearch:
    """The open cells of one query token t in one row (class of positions).

    Without `exact` the search can only prove: it is lost as soon as a region is wrong, or a single input is left that
    only exact arithmetic would decide. That is the search on computed numbers, of which exact arithmetic says nothing.
    It begins with all inputs of these own counts, or with the regions `start`.
    """

    def __init__(
        self,
        reduction: Reduces,
        exact: ExactForward | None,
        row: Row,
        t: int,
        counts: list[int],
        smallest: Smallest | None = None,
        start: Regions | None = None,
        record: Record | None = None,
    ) -> None:
        self.stored, self.exact, self.row, self.t = reduction.stored, exact, row, t
        self.counts, self.is_whole = counts, start is None
        self.relaxation = Relaxation(reduction, row, t, counts)
        self.tokens, self.tree = self.relaxation.tokens, self.relaxation.tree
        self.counting = Multinomials(row, self.tree, self.stored.T, self.stored.L)
        self.G = len(row.groups)
        self.is_lost = False
        self._is_over: Callable[[], bool] = lambda: False
        self.wrong_pairs = 0
        self.smallest = smallest or Smallest()
        self.record = record or without()
        self.right_margin: dict[int, float] = {}
        self.pending: dict[int, list[Regions]] = {}  # by log2 of the pairs that a region holds
        self.unresolved: list[Regions] = []  # counted as wrong, and their smallest input is still to be found
        self.arrangements = None
        if row.spread is not None and exact is not None:
            self.arrangements = Arrangements(self.relaxation, exact, t, self.record)
        if start is None:
            start = roots(self.stored, counts, self.tree, self.G)
            start.part = self.record.roots(row, t, self.tree.clusters, counts)
        self._push(start)

    def run(self, regions: Regions) -> None:
        """Decides a batch of regions or replaces them by their parts."""
        flagged = regions.wrong
        if flagged.any():
            self._split(regions[flagged], None)
            regions = regions[~flagged]
        if not len(regions):
            return
        lower, upper = self.relaxation.form_ranges(regions)
        lines = LogitLines.of(lower, upper)
        judged = judge(
            self.relaxation,
            regions.k,
            regions.rivals,
            lambda i, of: self.relaxation.least_differences(regions, i, of, lines),
        )
        self.right_margin = smaller(self.right_margin, judged.margins(upper[:, -1]))
        self.record.close(regions.part[judged.right], RIGHT)
        self._add_wrong(regions[judged.wrong])
        left = np.flatnonzero(judged.is_open)
        if not len(left):
            return
        regions.rivals &= judged.rivals(self.right_margin, upper[:, -1])
        ambiguous = ~((lower[left, :-1] >= 0) | (upper[left, :-1] <= 0))
        gap = (ambiguous * np.abs(judged.dW[left])) @ (self.relaxation.H_most - self.relaxation.H_least)[:, :-1].T
        self._split(regions[left], judged.spread[left] + np.where(np.isfinite(gap), gap, 0.0))

    def _split(self, regions: Regions, score: Array | None) -> None:
        """Replaces regions by their parts; without a score they are known wrong and only get resolved."""
        if score is not None:
            multisets = self.counting.multisets(regions, self.uniform)
            is_small = (multisets > 1) & (multisets <= AT_ONCE)
            if is_small.any():
                self._decide_each(regions[is_small])
                regions, score = regions[~is_small], score[~is_small]
        can_split = self.tree.size > 1 if score is None else ~self.uniform  # those that act alike are decided together
        for parts in self.divided(regions, score, can_split, self._decide_points):
            self._push(parts)

    def divided(
        self, regions: Regions, score: Array | None, can_split: np.ndarray, decide: Callable[[Regions], None]
    ) -> Iterator[Regions]:
        """The parts of regions: a free group is shared out, or the cluster that gains most by its score is halved.

        Shapes: score (B, Q), can_split (Q,) of clusters. Regions that have no parts are left to `decide`.
        """
        has_free, a = np.asarray(regions.free.any(1)), self.relaxation.a
        if has_free.any():
            yield share_out_group(regions[has_free], self.tree, self.row.sizes, a, self.record)
            regions = regions[~has_free]
            score = None if score is None else score[~has_free]
        is_choice = (regions.counts > 0) & can_split
        is_point = ~np.asarray(is_choice.any((1, 2)))
        decide(regions[is_point])
        regions, is_choice = regions[~is_point], is_choice[~is_point]
        if not len(regions):
            return
        effect = regions.counts * np.abs(a)[None, :, None]
        if score is not None:
            effect = effect * np.where(np.isfinite(score), score, 0.0)[~is_point, None, :]
        choice = np.where(is_choice, effect, -1.0).reshape(len(regions), -1).argmax(1)
        yield halves(regions, self.tree, choice // self.tree.Q, choice % self.tree.Q, self.record)

    def _decide_each(self, regions: Regions) -> None:
        """Decides every multiset of these regions by itself, from the ranges of its pre-activations."""
        points = []
        while len(regions):
            can_split = (regions.counts > 0) & ~self.uniform
            is_point = ~np.asarray(can_split.any((1, 2)))
            points.append(regions[is_point])
            regions, can_split = regions[~is_point], can_split[~is_point]
            choice = can_split.reshape(len(regions), self.G * self.tree.Q).argmax(1)
            regions = halves(regions, self.tree, choice // self.tree.Q, choice % self.tree.Q, self.record)
        whole = Regions.join(points)
        for start in range(0, len(whole), self.batch_size):
            part = whole[start : start + self.batch_size]
            lower, upper = self.relaxation.form_ranges(part)
            right, wrong, margin = of_ranges(self.stored, part.k, lower, upper)
            found = {int(count): float(margin[right & (part.k == count)].min()) for count in np.unique(part.k[right])}
            self.right_margin = smaller(self.right_margin, found)
            self.record.close(part.part[right], RIGHT)
            self._add_wrong(part[wrong])
            left = part[~(right | wrong)]
            if self.arrangements is None:
                self._decide_points(left)
            else:
                self.run(left)

    @cached_property
    def uniform(self) -> np.ndarray:
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

    def _decide_points(self, points: Regions) -> None:
        self._add_candidates(points[points.wrong])
        points = points[~points.wrong]
        if len(points) and self.exact is None:
            self.is_lost = True
        elif self.arrangements is not None:
            self.arrangements.add(points)
        else:
            for i in range(len(points)):
                if self._is_over():  # softmax takes up to a tenth of a second for each
                    self._push(points[i:])
                    break
                self._judge_exactly(points[i : i + 1])

    def _judge_exactly(self, point: Regions) -> None:
        assert self.exact is not None
        candidate = self.first_input(point, 0)
        judgement = self.exact.judge(candidate.tokens, candidate.position)
        if judgement.is_right:
            self.right_margin = smaller(self.right_margin, {int(point.k[0]): judgement.margin[0]})
            self.record.close(point.part, RIGHT)
        else:
            self._add_wrong(point)

    def _push(self, regions: Regions) -> None:
        if not len(regions):
            return
        flagged = regions.wrong
        if flagged.any():
            self.unresolved.append(regions[flagged])
            regions = regions[~flagged]
        sizes = np.floor(self.counting.logarithm(regions)).astype(int)
        for size in np.unique(sizes):
            self.pending.setdefault(int(size), []).append(regions[sizes == size])

    def _add_wrong(self, regions: Regions) -> None:
        """Counts wrong regions and keeps an input of each; several groups must be resolved to find the smallest."""
        if not len(regions):
            return
        if self.exact is None:
            self.is_lost = True
            return
        self.wrong_pairs += self.counting.exactly(regions)
        self.record.close(regions.part, WRONG)
        if self.G <= 1:
            self._add_candidates(regions)
            return
        self._add_candidates(regions[:1])
        is_wrong, part = np.ones(len(regions), dtype=bool), np.full(len(regions), -1, dtype=np.int64)
        self._push(replace(regions, wrong=is_wrong, part=part))

    def _add_candidates(self, regions: Regions) -> None:
        """Keeps the smallest input of these wrong regions."""
        best = self.smallest.candidate
        levels = regions.level
        lowest = levels.min(initial=self.stored.L + 1) if self.G <= 1 else self.stored.L
        if best is not None:
            lowest = min(lowest, best.distinct)
        for i in np.flatnonzero(levels <= lowest):
            self.smallest.add(self.first_input(regions, int(i)))

    def first_input(self, regions: Regions, i: int) -> Candidate:
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
        for position, own_slots in zip(self.row.positions, self.row.slots, strict=True):
            sequence = [self.t] * self.stored.L
            for slots, tokens in zip(own_slots, holdings, strict=True):
                for slot, token in zip(slots, tokens, strict=True):
                    sequence[slot] = token
            inputs.append(Candidate(len(set(sequence)), tuple(sequence), position))
        return min(inputs)

    @property
    def batch_size(self) -> int:
        r, C = self.stored.p + 1, self.stored.classes
        return max(1, WORKING_NUMBERS // (C * max(r, self.tree.Q) + self.G * (C + r) * self.stored.L))

    @property
    def sizes(self) -> dict[int, int]:
        """How many parts are pending of each size: log2 of the pairs that one of them holds."""
        found = {size: sum(map(len, parts)) for size, parts in self.pending.items()}
        if self.arrangements is not None:
            for size, filled in self.arrangements.pending.items():
                found[size] = found.get(size, 0) + sum(map(len, filled))
        return found

    @property
    def nbytes(self) -> int:
        return sum(regions.nbytes for parts in self.pending.values() for regions in parts)

    @property
    def all_wrong_pairs(self) -> int:
        """How many pairs have been found wrong."""
        return self.wrong_pairs + (0 if self.arrangements is None else self.arrangements.wrong_pairs)

    def open_pairs(self) -> int:
        """An upper bound on the number of pairs not decided yet; zero exactly when none is left."""
        found = sum(self.counting.above(regions) for parts in self.pending.values() for regions in parts)
        return found + (0 if self.arrangements is None else self.arrangements.open_pairs())

    @property
    def is_finished(self) -> bool:
        return not self.sizes

    def run_sizes(self, sizes: Sequence[int], is_over: Callable[[], bool]) -> None:
        """Decides the pending regions of these sizes, or replaces them by their parts."""
        self._run_all([part for size in sizes for part in self.pending.pop(size, [])], is_over)
        if self.arrangements is not None:
            self._run_filled(self.arrangements.take(list(sizes)), is_over)

    def run_level(self, level: int, is_over: Callable[[], bool]) -> bool:
        """Decides all that may hold at most `level` distinct tokens; whether nothing of it is left."""
        while not is_over():
            regions = self._take_level(level)
            filled = [] if self.arrangements is None else self.arrangements.take_level(level)
            if not regions and not filled:
                return True
            self._run_all(regions, is_over)
            self._run_filled(filled, is_over)
        return False

    def _run_filled(self, filled: list[Filled], is_over: Callable[[], bool]) -> None:
        """Decides these arrangements, or replaces them by their parts."""
        if self.arrangements is not None:
            self.arrangements.margins = self.right_margin
            self.arrangements.run(filled, self.smallest, is_over)
            self.right_margin = self.arrangements.margins

    def _take_level(self, level: int) -> list[Regions]:
        """The regions of at most this level, resolved ones among them, no longer pending."""
        parts = [*self.unresolved, *(part for parts in self.pending.values() for part in parts)]
        self.unresolved, self.pending = [], {}
        taken = []
        for part in parts:
            is_low = part.level <= level
            taken.append(part[is_low])
            self._push(part[~is_low])
        return [part for part in taken if len(part)]

    def _run_all(self, parts: list[Regions], is_over: Callable[[], bool]) -> None:
        if not parts:
            return
        regions, self._is_over = Regions.join(parts), is_over
        for start in range(0, len(regions), self.batch_size):
            if is_over():
                self._push(regions[start:])
                return
            self.run(regions[start : start + self.batch_size])
