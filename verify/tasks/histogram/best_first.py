"""One queue over all rows and query tokens: the parts that hold most inputs are decided first.

As soon as an input is known to be wrong, a share of the time goes to the parts that may hold a smaller one, those of
the fewest distinct tokens first, so that the counterexample becomes the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from verify.frame.clock import Deadline, wall
from verify.tasks.histogram.bracket import Held, pairs_of
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.judging import smaller
from verify.tasks.histogram.merging import merged_rows
from verify.tasks.histogram.record import Record
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.task import Progress, tell_bracket

AT_ONCE = 1 << 12  # parts that are decided before the queue is looked at again
QUEUE_BYTES = 1 << 30  # from which on the smallest parts come first
SHARE_FOR_SMALLEST = 0.1  # of the time left when a counterexample is found
REPORT_SECONDS = 0.5

OpenCounts = dict[tuple[int, int], list[int]]  # of each row and query token


@dataclass(frozen=True)
class SearchOutcome:
    """What branch and bound found: exact counts, bracket, the smallest counterexample, and the cells that it had."""

    wrong_pairs: int
    open_pairs: int
    error_share: tuple[Fraction, Fraction]
    record: Record
    right_margin: dict[int, float]
    counterexample: Candidate | None
    is_smallest: bool
    held: list[Held]
    total: int

    @property
    def exact_wrong_pairs(self) -> int | None:
        """How many pairs are wrong, where that is known."""
        if not self.open_pairs:
            return self.wrong_pairs
        low, high = self.error_share
        return int(low * self.total) if low == high else None

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be found."""
        return not self.open_pairs and (self.counterexample is None or self.is_smallest)


@dataclass
class Queue:
    """The searches of one model, and the cells for which there is no search yet.

    `wrong_pairs` and `margins` (by count) are those of inputs that no search holds, since they were decided before.
    """

    reduction: Reduction
    exact: ExactForward
    deadline: Deadline
    progress: Progress
    waiting: list[tuple[Row, int, list[int]]]
    searches: list[RegionSearch] = field(default_factory=list)
    smallest: Smallest = field(default_factory=Smallest)
    wrong_pairs: int = 0
    margins: dict[int, float] = field(default_factory=dict)
    reported: float = 0.0
    pause: float = REPORT_SECONDS
    record: Record = field(default_factory=Record)

    @classmethod
    def of(
        cls, reduction: Reduction, exact: ExactForward, cells: OpenCounts, deadline: Deadline, progress: Progress
    ) -> Queue:
        """The queue of the open cells: counts for each row of the reduction and each query token."""
        waiting = []
        for merged in merged_rows(reduction):
            counts: dict[int, set[int]] = {}
            for (row, t), open_counts in cells.items():
                if row in merged.members:
                    counts.setdefault(t, set()).update(open_counts)
            waiting += [(merged.row, t, sorted(found)) for t, found in sorted(counts.items())]
        return cls(reduction, exact, deadline, progress, waiting)

    def run(self) -> SearchOutcome:
        """Decides until the time is up or nothing is open."""
        is_smallest = has_tried = False
        while not self._is_over() and (self.waiting or any(search.sizes for search in self.searches)):
            self._start_searches()
            if self.smallest.candidate is not None and not has_tried:
                has_tried, is_smallest = True, self._run_levels(self.deadline.part(SHARE_FOR_SMALLEST))
            self._run_largest()
            self._report()
        left = self._left()
        open_pairs = self._open_pairs(left)
        if not open_pairs and not is_smallest:
            is_smallest = self._run_levels(self.deadline)
        return self._outcome(left, open_pairs, is_smallest)

    def _is_over(self) -> bool:
        return self.deadline.is_up()

    def _start_searches(self) -> None:
        """Makes searches of the waiting cells, at least one, until half of the time that is left is up."""
        end = self.deadline.part(1 / 2)
        while self.waiting:
            row, t, counts = self.waiting.pop(0)
            search = RegionSearch(self.reduction, self.exact, row, t, counts, self.smallest, record=self.record)
            self.searches.append(search)
            if end.is_up():
                break

    def _run_largest(self) -> None:
        """Decides the parts that hold most inputs; those that hold fewest where memory runs short."""
        numbers: dict[int, int] = {}
        for search in self.searches:
            for size, number in search.sizes.items():
                numbers[size] = numbers.get(size, 0) + number
        is_full = sum(search.nbytes for search in self.searches) > QUEUE_BYTES
        chosen: list[int] = []
        for size in sorted(numbers, reverse=not is_full):
            chosen.append(size)
            if sum(numbers[size] for size in chosen) >= AT_ONCE:
                break
        for search in self.searches:
            search.run_sizes(chosen, self._is_over)

    def _run_levels(self, end: Deadline) -> bool:
        """Decides all that may hold an input with fewer distinct tokens, or as few; whether the smallest is known."""
        if self.waiting:
            return False
        for level in range(1, self.reduction.stored.L + 1):
            for search in self.searches:
                if not search.run_level(level, end.is_up):
                    return False
            best = self.smallest.candidate
            if best is not None and best.distinct <= level:
                return True
            self._report()
        return True

    def _report(self) -> None:
        now = self.deadline.clock()
        if now - self.reported > self.pause:
            started = wall()
            pairs, open_pairs = self._pairs(), self._open_pairs(self._left())
            tell_bracket(self.progress, max(0.0, 1 - open_pairs / pairs), self._wrong_pairs(), open_pairs, pairs)
            self.reported, self.pause = now, max(REPORT_SECONDS, 20 * (wall() - started))  # counting may take a while

    def _pairs(self) -> int:
        stored = self.reduction.stored
        pairs: int = stored.L * stored.T**stored.L
        return pairs

    def _wrong_pairs(self) -> int:
        return self.wrong_pairs + sum(search.all_wrong_pairs for search in self.searches)

    def _left(self) -> list[int]:
        """How many pairs each search leaves open, which takes a while to count."""
        return [search.open_pairs() for search in self.searches]

    def _open_pairs(self, left: list[int]) -> int:
        return sum(left) + sum(pairs_of(self.reduction.stored, row, counts) for row, _, counts in self.waiting)

    def _outcome(self, left: list[int], open_pairs: int, is_smallest: bool) -> SearchOutcome:
        stored, total, wrong = self.reduction.stored, self._pairs(), self._wrong_pairs()
        margins = self.margins
        for search in self.searches:
            margins = smaller(margins, search.right_margin)
        share = Fraction(wrong, total), Fraction(min(total, wrong + open_pairs), total)
        held, record = list[Held](), self.record.copy()  # what waits now may be searched later
        for row, t, counts in self.waiting:
            record.roots(row, t, [], counts)
            held.append(Held(row, t, tuple(counts), 0, pairs_of(stored, row, counts)))
        held += [
            Held(search.row, search.t, tuple(search.counts), search.all_wrong_pairs, of_search)
            for search, of_search in zip(self.searches, left, strict=True)
            if search.is_whole
        ]
        return SearchOutcome(
            wrong, open_pairs, share, record, margins, self.smallest.candidate, is_smallest, held, total
        )
