"""What the vertices leave open, by the cheaper way: every multiset by itself, or a queue of regions to be split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from verify.frame.clock import Deadline
from verify.tasks.histogram import by_sequence
from verify.tasks.histogram.best_first import OpenCounts, Queue, SearchOutcome
from verify.tasks.histogram.blocks import CellMultisets
from verify.tasks.histogram.bracket import ShareBounds, pairs_of
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.by_prefix import MOST_LEFT, ByPrefix, has_fast_loop, is_one_group, seconds_each
from verify.tasks.histogram.by_sequence import is_by_sequence
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.judging import smaller
from verify.tasks.histogram.merging import alike, close_slots, merged_row, normalised
from verify.tasks.histogram.narrow import Narrow
from verify.tasks.histogram.prefixes import prefixes_of
from verify.tasks.histogram.record import BY_VARIANCES, Record
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.regions import Regions
from verify.tasks.histogram.some_inputs import run_some
from verify.tasks.histogram.tabulating import Space, Table, Tabulated, kept_numbers, number_of_points
from verify.tasks.histogram.task import Progress, tell_bracket

CLOSENESS = (0.005, 0.02, 0.05, 0.2)  # of the largest weight: gaps that groups of slots may have, finest first
NEAR = 0.0005  # of the largest weight: how far the weights of positions may differ that are decided as one
WORTH = 4  # times as many multisets for finer groups are worth their sharper bounds
FEW = 1 << 16  # multisets of one row that are always worth it
A_BLOCK = 1 << 11  # multisets that take as long as one block more
MOST_NUMBERS = 1 << 25  # in the tables of one query token: 256 MiB
AFFORDABLE = 3.0  # times the time that is there: a third of all multisets narrows the bracket more than a search
FOR_A_TRIAL = 0.04  # of that time, for a search that may find everything decided at once
LONG = 0.5  # seconds, from which on there is a trial
FOR_A_COMPARISON = 0.04  # of the time, for a search that may find everything decided
FOR_BOUNDS = 0.8  # of the time that then is there, for means and variances, and counts where slots are nearly equal
FOR_BOUNDS_OF_WRONG = 0.98  # where an input is known to be wrong, so that no proof is looked for
FOR_THE_REST = 0.2  # of the time, for means and variances where not all multisets will be decided in time
FOR_RUNS = 0.05  # of the time that then is there, for inputs that are run
FOR_LOOPS = 1 << 22  # multisets, from which on compiled loops are worth being loaded


@dataclass
class Plan:
    """The cells (row, query token) and their counts, to be decided multiset by multiset, with how many these are."""

    reduction: Reduction
    units: list[tuple[int, Row, int, list[int]]]  # multisets, row, query token, own counts
    total: int
    seconds: float = 0.0
    numbers: int = 0

    @classmethod
    def of(cls, reduction: Reduction, cells: OpenCounts) -> Plan:
        """Groups the slots of every row as finely as is worth it, the cheapest rows first."""
        stored = reduction.stored
        units = [
            (number_of_points(row, stored.T, counts, stored.L), row, t, counts)
            for row, tokens in _rows(reduction, cells)
            for t, counts in tokens.items()
        ]
        units.sort(key=lambda unit: unit[0] / len(unit[1].positions))
        plan = cls(reduction, units, sum(unit[0] for unit in units))
        plan.seconds = sum(number * plan._each(row, counts) for number, row, _, counts in units)
        others = (row for _, row, _, counts in units if not plan.is_by_prefix(row, counts))
        plan.numbers = max((kept_numbers(row, stored.T, stored.p + 1) for row in others), default=0)
        return plan

    def is_by_prefix(self, row: Row, counts: list[int]) -> bool:
        """Whether multisets are decided by prefixes: by compiled loops, or since no table holds them all."""
        stored = self.reduction.stored
        S, L, r = stored.T - 1, stored.L, stored.p + 1
        if not is_one_group(row) or not S or any(prefixes_of(S, L - k, L - 1, r) is None for k in counts):
            return False
        return kept_numbers(row, stored.T, r) > MOST_NUMBERS or (has_fast_loop() and self.total > FOR_LOOPS)

    def _each(self, row: Row, counts: list[int]) -> float:
        """About how many seconds a multiset takes."""
        stored = self.reduction.stored
        if self.is_by_prefix(row, counts):
            return seconds_each(stored.p + 1, stored.classes - 1)
        return 1e-7 + 3e-10 * (stored.p + 1) * (6 + stored.classes)

    def run(self, exact: ExactForward, deadline: Deadline, progress: Progress) -> Queue:
        """Decides all multisets until the time is up: a queue of what is left."""
        queue = Queue(self.reduction, exact, deadline, progress, [])
        total, done, space = self.total, 0, Space(self.reduction.stored)
        stored, started = self.reduction.stored, deadline.clock()
        pairs = stored.L * stored.T**stored.L
        open_pairs = sum(pairs_of(stored, row, counts) for _, row, _, counts in self.units)
        near_ties = 0  # pairs of decided counts whose answer is left to a search
        for number, row, t, counts in self.units:
            share = (deadline.clock() - started) / max(deadline.at - started, 1e-9)
            if share > max(1 - FOR_THE_REST, done / total):
                queue.waiting.append((row, t, counts))
                continue
            part = partial(_advance, progress, done / total, number / total)
            found, rest = self._decide(row, t, counts, queue, space, part)
            left = sum(map(len, found.left))
            if row.spread is None and left > MOST_LEFT:
                queue.waiting.append((row, t, counts))
                continue
            if rest:
                queue.waiting.append((row, t, rest))
            queue.wrong_pairs += found.wrong_pairs
            queue.margins = smaller(queue.margins, found.margins)
            decided = [k for k in counts if k not in rest]
            parts = self._recorded(row, t, decided, found.left, queue.record)
            if left:
                start = regions_of(found.left, row, self.reduction)
                start.part = np.concatenate(parts)
                ks = sorted({points.k for points in found.left})
                search = RegionSearch(self.reduction, exact, row, t, ks, queue.smallest, start, queue.record)
                queue.searches.append(search)
                near_ties += search.open_pairs()
            done += number
            open_pairs -= pairs_of(stored, row, decided)
            tell_bracket(progress, done / total, queue.wrong_pairs, open_pairs + near_ties, pairs)
        return queue

    def search(self, queue: Queue, deadline: Deadline) -> SearchOutcome:
        """Splits regions. If that takes long, some inputs are run, and means and variances bound what stays open."""
        bounds, cells = ShareBounds(self.reduction), [unit[1:] for unit in self.units]
        queue.deadline = deadline.part(FOR_A_COMPARISON)
        searched = queue.run()
        if searched.is_finished:
            return searched
        run_some(self.reduction.stored, queue.exact, queue.smallest, deadline.part(FOR_RUNS))
        share = FOR_BOUNDS if queue.smallest.candidate is None else FOR_BOUNDS_OF_WRONG
        bounds.find(cells, deadline.part(share), queue.progress)
        queue.deadline = deadline
        return narrowed(queue.run(), bounds)

    def _recorded(
        self, row: Row, t: int, counts: list[int], left: list[CellMultisets], record: Record
    ) -> list[np.ndarray]:
        """The numbers of what is left (n,) in the record of what was decided for these own counts."""
        if record.is_full:
            return [np.full(len(points), -1, dtype=np.int64) for points in left]
        stored, found = self.reduction.stored, []
        for k, root in zip(counts, record.roots(row, t, [], counts), strict=True):
            own = [points for points in left if points.k == k]
            listed = [multiset for points in own for multiset in points.listed()]
            multisets = number_of_points(row, stored.T, [k], stored.L) * len(row.positions)
            found.append((k, record.decide_each(int(root), multisets, listed)))
        ends = {k: iter(parts) for k, parts in found}
        return [np.array([next(ends[points.k]) for _ in range(len(points))], dtype=np.int64) for points in left]

    def _decide(
        self, row: Row, t: int, counts: list[int], queue: Queue, space: Space, progress: Progress
    ) -> tuple[Tabulated, list[int]]:
        """The multisets of one query token, those of few other tokens first, and the counts that time did not allow."""
        found, rest, table = Tabulated(), list(counts), None
        for k in sorted(counts, reverse=True):
            if queue.deadline.is_up():
                break
            table = table or Table(self.reduction, row, t, space)
            if is_by_sequence(row, self.reduction.stored.T, self.reduction.stored.L, len(table.start)):
                by_sequence.decide(table, rest, found, queue.smallest)
                return found, []
            if not self._decide_count(table, k, found, queue, progress):
                break
            rest.remove(k)
        return found, rest

    def _decide_count(self, table: Table, k: int, found: Tabulated, queue: Queue, progress: Progress) -> bool:
        """Decides the multisets of one own count; whether time and memory sufficed."""
        row, stored = table.row, self.reduction.stored
        if self.is_by_prefix(row, [k]):
            narrow = Narrow.of(table, k)
            if narrow is not None:
                cell = ByPrefix(table, k, narrow, queue.smallest, queue.margins.get(k, np.inf))
                if cell.run(queue.deadline, progress):
                    found.add(cell.found)
                    return True
                if not cell.is_unsuited:
                    return False
            if kept_numbers(row, stored.T, stored.p + 1) > MOST_NUMBERS:
                return False
        table.decide(k, found, queue.smallest)
        return True


def _advance(progress: Progress, done: float, more: float, share: float) -> None:
    progress(done + more * share)


def decide_open(
    reduction: Reduction, exact: ExactForward, cells: OpenCounts, deadline: Deadline, progress: Progress
) -> SearchOutcome:
    """Decides the open cells until the time is up."""
    plan, now = Plan.of(reduction, cells), deadline.clock()
    if plan.numbers > MOST_NUMBERS or plan.seconds > AFFORDABLE * (deadline.at - now):
        return plan.search(Queue.of(reduction, exact, cells, deadline, progress), deadline)
    if plan.seconds > LONG:
        end = deadline.moved_to(now + FOR_A_TRIAL * min(plan.seconds, deadline.at - now))
        trial = Queue.of(reduction, exact, cells, end, progress).run()
        if trial.is_finished:
            return trial
    started, queue, bounds = deadline.clock(), plan.run(exact, deadline, progress), ShareBounds(reduction)
    if queue.waiting and deadline.left() < FOR_THE_REST * (deadline.at - started):
        bounds.find(queue.waiting, deadline, progress)
    outcome = queue.run()
    if not outcome.is_finished and queue.smallest.candidate is None:
        run_some(reduction.stored, exact, queue.smallest, deadline)
        outcome = queue.run()
    return narrowed(outcome, bounds)


def narrowed(outcome: SearchOutcome, bounds: ShareBounds) -> SearchOutcome:
    """The outcome with the bracket that means and variances narrow, of which there is no tree of splits."""
    stored, before = bounds.reduction.stored, (outcome.wrong_pairs, outcome.wrong_pairs + outcome.open_pairs)
    found = bounds.narrowed(outcome.held, *before)
    if not outcome.open_pairs or found == before:
        return outcome
    total = stored.L * stored.T**stored.L
    share = Fraction(found[0], total), Fraction(min(total, found[1]), total)
    return replace(outcome, error_share=share, record=Record(0, BY_VARIANCES))


def _rows(reduction: Reduction, cells: OpenCounts) -> Iterator[tuple[Row, dict[int, list[int]]]]:
    """Rows with slots grouped as finely as is worth it, and the open counts of each query token."""
    of_row: dict[int, dict[int, list[int]]] = {}
    for (index, t), counts in cells.items():
        of_row.setdefault(index, {})[t] = counts
    rows = reduction.rows
    classes = alike(rows, normalised(reduction).mid, NEAR) if reduction.stored.is_linear else [(0,)]
    for members in classes:
        chosen = [index for index in members if index in of_row]
        is_same = all(of_row[index] == of_row[chosen[0]] for index in chosen)
        merged = [rows[index] for index in chosen]
        if len(chosen) > 1 and not (is_same and any(_groupings(reduction, merged))):
            yield from ((_grouped(reduction, [rows[index]], of_row[index]), of_row[index]) for index in chosen)
        elif chosen:
            tokens = of_row[chosen[0]]
            grouped = _grouped(reduction, merged, tokens)
            yield from (
                (row, tokens) for row in ([grouped] if _is_worth(grouped, merged, tokens, reduction) else merged)
            )


def _is_worth(grouped: Row, rows: list[Row], tokens: dict[int, list[int]], reduction: Reduction) -> bool:
    """Whether a row of close weights is cheaper than all sequences of each of its positions."""
    T, L = reduction.stored.T, reduction.stored.L
    if not all(is_by_sequence(row, T, L, reduction.stored.p + 1) for row in rows):
        return True
    multisets = sum(number_of_points(grouped, T, counts, L) for counts in tokens.values())
    blocks = sum(number_of_points(grouped, 2, counts, L) for counts in tokens.values())
    return multisets + A_BLOCK * blocks < len(rows) * len(tokens) * int(T ** (L - 1))


def _grouped(reduction: Reduction, rows: list[Row], tokens: dict[int, list[int]]) -> Row:
    """One row for these, with the finest groups of close slots that are worth it: finer ones bound better."""
    stored = reduction.stored
    if not stored.is_linear:
        return rows[0]
    found = list(_groupings(reduction, rows))
    numbers = [sum(number_of_points(row, stored.T, own, stored.L) for own in tokens.values()) for row in found]
    return next(row for row, n in zip(found, numbers, strict=True) if n <= max(FEW, WORTH * min(numbers)))


def _groupings(reduction: Reduction, rows: list[Row]) -> Iterator[Row]:
    """A row as it is, and with close slots as one group, by more and more coarse ones."""
    weights, seen = normalised(reduction), set()
    if len(rows) == 1:
        yield rows[0]
        seen.add(len(rows[0].groups))
    positions = tuple(sorted(position for row in rows for position in row.positions))
    for closeness in CLOSENESS:
        slots = tuple(close_slots(weights.mid[position], position, closeness) for position in positions)
        sizes = {tuple(map(len, groups)) for groups in slots}
        if len(sizes) == 1 and len(slots[0]) not in seen:
            seen.add(len(slots[0]))
            yield merged_row(positions, slots, weights)


def regions_of(parts: list[CellMultisets], row: Row, reduction: Reduction) -> Regions:
    """Multisets as regions that cannot be split."""
    stored, groups = reduction.stored, len(row.groups)
    Q, kind = max(1, 2 * (stored.T - 1) - 1), np.int16 if stored.L < 1 << 15 else np.int32
    k = np.concatenate([np.full(len(points), points.k, dtype=np.int32) for points in parts])
    own, counts = np.zeros((len(k), groups), dtype=kind), np.zeros((len(k), groups, Q), dtype=kind)
    start = 0
    for points in parts:
        at = np.arange(start, start + len(points))
        for g, tokens in enumerate(points.held):
            own[at, g] = row.sizes[g] - tokens.shape[1]
            for column in tokens.T:
                counts[at, g, column] += 1  # no row of `at` comes twice
        start += len(points)
    no = np.zeros((len(k), groups), dtype=bool)
    rivals = np.arange(stored.classes) != (k - stored.first_count)[:, None]
    return Regions(k, own, counts, no, np.zeros(len(k), dtype=bool), rivals, np.full(len(k), -1, dtype=np.int64))
