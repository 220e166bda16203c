"""The bracket on the share of wrong inputs: what was decided, narrowed by means and variances where much is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest
from math import ceil, comb, floor

import numpy as np

from verify.frame.clock import Deadline
from verify.tasks.histogram.merging import merged_row, normalised
from verify.tasks.histogram.moments import COARSE, FINE, Behind, Moments
from verify.tasks.histogram.nearly_equal import CountedCell, seconds_to_count
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Space, Table, number_of_points
from verify.tasks.histogram.task import Progress

WORTH = 1e-3  # of the open pairs: own counts that hold less are not bounded
CLOSE = 0.1  # of the largest weight, by which the weights of all slots may differ that are bounded together
BEFORE_COUNTING = 0.05  # of the time, for means and variances where multisets will be counted
FOR_COUNTING = 0.98  # of the time that is left, for cells that are yet to be counted as planned
LEFT_OUT = 0.005, 0.01, 0.02  # on what shares rivals may be ahead that are not counted: the first that time allows
# how much of a vector's orders is near a tie, at least, to be looked at closer, and how many times as long that takes
LOOKS = (0.0, 1.6), (0.05, 1.45), (0.1, 1.3), (0.15, 1.2), (0.2, 1.1), (0.3, 0.95), (0.5, 0.8), (1.0, 0.65), (9.0, 0.6)


@dataclass(frozen=True)
class Held:
    """The cells of one query token with these own counts, how many of their pairs are wrong, and how many open."""

    row: Row
    t: int
    counts: tuple[int, ...]
    wrong: int
    open: int


def pairs_of(stored: StoredModel, row: Row, counts: Iterable[int]) -> int:
    """How many (sequence, position) pairs the cells of one token with these own counts hold."""
    return len(row.positions) * sum(_of_position(stored, k) for k in counts)


def _of_position(stored: StoredModel, k: int) -> int:
    found: int = comb(stored.L - 1, k - 1) * (stored.T - 1) ** (stored.L - k)
    return found


@dataclass
class ShareBounds:
    """Between which shares of the inputs of a position, query token and own count are wrong."""

    reduction: Reduction
    shares: dict[tuple[int, int, int], tuple[Fraction, Fraction]] = field(default_factory=dict)

    def find(self, cells: list[tuple[Row, int, list[int]]], deadline: Deadline, progress: Progress) -> None:
        """Bounds cells, those that hold most pairs first, until the time is up."""
        stored = self.reduction.stored
        space = Space(stored)
        cells = as_one_row(cells, self.reduction)
        chosen = [cell for cell in cells if cell[0].groups and stored.T > 1]
        total = sum(pairs_of(stored, row, counts) for row, _, counts in chosen)
        chosen.sort(key=lambda cell: -pairs_of(stored, cell[0], cell[2]))
        started, detail, countable = deadline.clock(), FINE, list[tuple[Table, int, Behind]]()
        for done, (row, t, counts) in enumerate(chosen):
            now = deadline.clock()
            share = 1.0 if stored.A is None else BEFORE_COUNTING
            if done == 1 and (now - started) * (len(chosen) - 1) > share * (deadline.at - now):
                detail = COARSE
            worth = [k for k in counts if k < stored.L and pairs_of(stored, row, [k]) * len(chosen) > WORTH * total]
            if not worth:
                continue
            table = Table(self.reduction, in_one_group(row, self.reduction), t, space, np.float64)
            moments = Moments(table, worth, detail)
            for k in worth:
                if deadline.is_up():
                    return
                behind = moments.behind(k)
                if behind is not None:
                    least, most = map(Fraction, behind.wrong)
                    self._narrow(table, k, [(least, most)] * len(row.positions))
                    countable.append((table, k, behind))
            progress(done / len(chosen))
        self._count(countable, deadline)

    def _count(self, cells: list[tuple[Table, int, Behind]], deadline: Deadline) -> None:
        """Counts the multisets of cells whose slots are nearly equal, those of most open inputs for each first.

        Own counts take turns, as their cells take more or less time than was thought, each count in its own way.
        """
        if self.reduction.stored.A is None:
            return
        cells.sort(key=lambda cell: -self._worth(*cell[:2]))
        of_count = [[cell for cell in cells if cell[1] == own] for own in dict.fromkeys(k for _, k, _ in cells)]
        cells = [cell for turn in zip_longest(*of_count) for cell in turn if cell is not None]
        seconds = np.array([[seconds_to_count(*cell, share) for cell in cells] for share in LEFT_OUT])
        own = np.array([k for _, k, _ in cells], dtype=int)
        planned, taken, pace = (np.full(self.reduction.stored.L + 1, x) for x in (0.0, 0.0, 1.0))
        for i, (table, k, behind) in enumerate(cells):
            if deadline.is_up():
                return
            now = deadline.clock()
            rest, left = seconds[:, i:] @ pace[own[i:]], FOR_COUNTING * (deadline.at - now)
            chosen = int(np.argmax(np.append(rest[:-1] < left, True)))
            least, times = how_close(float(rest[chosen]), left)
            cell = CountedCell.of(table, k, behind, LEFT_OUT[chosen])
            if cell is not None:
                self._narrow(table, k, cell.shares(deadline, least))
            planned[k] += seconds[chosen, i] * times
            taken[k] += deadline.clock() - now
            pace[k] = taken[k] / planned[k]

    def _worth(self, table: Table, k: int) -> Fraction:
        """How many open pairs there are for each multiset."""
        low, high = self.shares[table.row.positions[0], table.t, k]
        pairs = pairs_of(self.reduction.stored, table.row, [k])
        return pairs * (high - low) / max(1, number_of_points(table.row, table.stored.T, [k], table.stored.L))

    def _narrow(self, table: Table, k: int, shares: list[tuple[Fraction, Fraction]]) -> None:
        """Takes what is known of the share of one query token and own count at each position."""
        for position, (least, most) in zip(table.row.positions, shares, strict=True):
            low, high = self.shares.get((position, table.t, k), (Fraction(0), Fraction(1)))
            self.shares[position, table.t, k] = max(low, least), min(high, most)

    def pairs(self, held: Held) -> tuple[int, int]:
        """At least and at most how many of a cell's pairs are wrong."""
        least = most = 0
        for k in held.counts:
            pairs = _of_position(self.reduction.stored, k)
            for position in held.row.positions:
                low, high = self.shares.get((position, held.t, k), (Fraction(0), Fraction(1)))
                least, most = least + ceil(low * pairs), most + floor(high * pairs)
        return least, most

    def narrowed(self, held: list[Held], least: int, most: int) -> tuple[int, int]:
        """At least and at most how many pairs are wrong, where these are without bounds, and have been held so."""
        wrong, saved = 0, 0
        for cell in held:
            low, high = self.pairs(cell)
            wrong += max(cell.wrong, low)
            saved += max(0, cell.wrong + cell.open - high)
        return max(wrong, least), most - saved


def how_close(rest: float, left: float) -> tuple[float, float]:
    """How much of a vector's orders is near a tie, at least, to be looked at closer, and how much longer that takes.

    Of the vectors of all cells the same is asked, as far as may be: what most orders have in common comes first.
    Units: seconds for the rest of the cells, and that are left.
    """
    return next(((least, times) for least, times in LOOKS if times * rest < left), LOOKS[-1])


def as_one_row(cells: list[tuple[Row, int, list[int]]], reduction: Reduction) -> list[tuple[Row, int, list[int]]]:
    """The cells of each token in one row of all their positions, and all counts, if all slots weigh nearly the same."""
    if reduction.stored.A is None:
        return cells
    weights, L = normalised(reduction), reduction.stored.L
    of_token: dict[int, tuple[set[int], set[int]]] = {}
    for row, t, counts in cells:
        positions, own = of_token.setdefault(t, (set(), set()))
        positions.update(row.positions)
        own.update(counts)
    used = sorted(set().union(*(positions for positions, _ in of_token.values())))
    others = [[m for m in range(L) if m != position] for position in used]
    each = np.array([weights.mid[position][slots] for position, slots in zip(used, others, strict=True)])
    if not each.size or not np.ptp(each) <= CLOSE * np.abs(each).max():
        return cells
    slots = {position: (tuple(own),) for position, own in zip(used, others, strict=True)}
    rows = {
        positions: merged_row(positions, tuple(slots[position] for position in positions), weights)
        for positions in {tuple(sorted(positions)) for positions, _ in of_token.values()}
    }
    return [(rows[tuple(sorted(positions))], t, sorted(own)) for t, (positions, own) in of_token.items()]


def in_one_group(row: Row, reduction: Reduction) -> Row:
    """The row with all slots in one group, whatever their weights."""
    if len(row.groups) == 1:
        return row
    slots = tuple((tuple(sorted(slot for group in groups for slot in group)),) for groups in row.slots)
    return merged_row(row.positions, slots, normalised(reduction))
