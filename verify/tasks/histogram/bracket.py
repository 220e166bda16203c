"""The bracket on the share of wrong inputs: what was decided, narrowed by means and variances where much is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, comb, floor

from verify.frame.clock import Deadline
from verify.tasks.histogram.merging import merged_row, normalised
from verify.tasks.histogram.moments import COARSE, FINE, Moments
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Space, Table
from verify.tasks.histogram.task import Progress

WORTH = 1e-4  # of the open pairs: own counts that hold less are not bounded


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
        chosen = [cell for cell in cells if cell[0].groups and stored.T > 1]
        total = sum(pairs_of(stored, row, counts) for row, _, counts in chosen)
        chosen.sort(key=lambda cell: -pairs_of(stored, cell[0], cell[2]))
        started, detail = deadline.clock(), FINE
        for done, (row, t, counts) in enumerate(chosen):
            now = deadline.clock()
            if done == 1 and (now - started) * (len(chosen) - 1) > deadline.at - now:
                detail = COARSE
            worth = [k for k in counts if k < stored.L and pairs_of(stored, row, [k]) * len(chosen) > WORTH * total]
            if not worth:
                continue
            moments = Moments(Table(self.reduction, in_one_group(row, self.reduction), t, space), worth, detail)
            for k in worth:
                if deadline.is_up():
                    return
                least, most = (Fraction(share) for share in moments.wrong(k))
                self.shares |= {(position, t, k): (least, most) for position in row.positions}
            progress(done / len(chosen))

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


def in_one_group(row: Row, reduction: Reduction) -> Row:
    """The row with all slots in one group, whatever their weights."""
    if len(row.groups) == 1:
        return row
    slots = tuple((tuple(sorted(slot for group in groups for slot in group)),) for groups in row.slots)
    return merged_row(row.positions, slots, normalised(reduction))
