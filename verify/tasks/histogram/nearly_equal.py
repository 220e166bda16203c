"""The share of a cell's wrong inputs by counting all its multisets, where the slots' weights are nearly equal.

A multiset stands for all orders of its tokens, within a radius: it is surely wrong, surely right, or open. All are
counted and none is looked at closer. Rivals that are hardly ever ahead are left out, and bounded by their variances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from verify.frame.clock import Deadline
from verify.tasks.histogram.loops import LoopAsked, loop_for, room
from verify.tasks.histogram.moments import Behind
from verify.tasks.histogram.narrow import Narrow, Single, above
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import UNDERFLOW, CountReadout, Table

LEFT_OUT = 0.02  # share of a cell's inputs, at most, on which rivals that are left out are ahead
A_LOOK = 1 << 22  # multisets between two looks at the clock
ENTRIES = 1 << 19  # what makes room for a loop's prefixes, though nothing is entered
NEVER = np.float32(-np.inf)  # a threshold that every difference is above


@dataclass
class CountedCell:
    """One query token and own count in a row of one group; rivals that are not counted are ahead on `others` at most."""

    narrow: Narrow
    number: int  # of fillings of the slots by other tokens
    others: Fraction

    @classmethod
    def of(cls, table: Table, k: int, behind: Behind) -> CountedCell | None:
        """The cell with as few rivals as may be; None where float32 does not suffice."""
        narrow = Narrow.of(table, k)
        if narrow is None:
            return None
        rivals, others = _rivals(behind.order, behind.most)
        radius = table.radius_of_all(CountReadout.of(table, k))
        error = above((narrow.error.astype(np.float64) + radius)[rivals])
        W = np.ascontiguousarray(narrow.W[:, rivals])
        if not np.isfinite(error).all():
            return None
        return cls(replace(narrow, W=W, error=error), len(table.tokens) ** (table.stored.L - k), others)

    def least(self, deadline: Deadline) -> Fraction:
        """At least this share is wrong; 0 where time did not suffice."""
        found = self._behind(self.narrow.error, deadline)
        return Fraction(0) if found is None else Fraction(found, self.number)

    def most(self, deadline: Deadline) -> Fraction:
        """At most this share is wrong; 1 where time did not suffice.

        What is not counted has differences not below an error that is larger than theirs, so that they are positive.
        """
        larger = self.narrow.error.astype(np.float64) * (1 + 2.0**-20) + 2 * UNDERFLOW[np.float32]
        found = self._behind(-above(larger), deadline)
        return Fraction(1) if found is None else min(Fraction(1), Fraction(found, self.number) + self.others)

    def _behind(self, error: Single, deadline: Deadline) -> int | None:
        """How many fillings have a difference which is negative with the error added, or None where time is up."""
        narrow = replace(self.narrow, error=error)
        prefixes, loop = narrow.prefixes, loop_for(*narrow.W.shape)
        wrong, limit = np.empty(prefixes.number, np.int64), np.full(prefixes.number, -1, np.int32)
        entries = np.empty((max(ENTRIES, room(narrow)), 4), dtype=np.int32)
        found = first = 0
        while first < prefixes.number:
            if deadline.is_up():
                return None
            before = int(prefixes.until[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(prefixes.until, before + A_LOOK, side="right")))
            begin = first
            first, _ = loop(LoopAsked(narrow, begin, last, np.float32(0), NEVER, limit, wrong, entries))
            found += int((prefixes.outer[begin:first] * wrong[begin:first]).sum())
        return found


def _rivals(order: np.ndarray, most: Array) -> tuple[np.ndarray, Fraction]:
    """The first difference and those that are not positive too often, and at most how often all others are not."""
    by_share = np.argsort(most[1:]) + 1
    is_left_out = np.cumsum(most[by_share]) <= LEFT_OUT
    others = by_share[is_left_out]
    return np.sort(np.delete(order, others)), sum((Fraction(float(most[i])) for i in others), Fraction(0))
