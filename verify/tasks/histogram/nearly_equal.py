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
from verify.tasks.histogram.narrow import Narrow, above
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import CountReadout, Table

LEFT_OUT = 0.02  # share of a cell's inputs, at most, on which rivals that are left out are ahead
A_LOOK = 1 << 22  # multisets between two looks at the clock
ENTRIES = 1 << 19  # what makes room for a loop's prefixes, though nothing is entered


@dataclass
class CountedCell:
    """One query token and own count in a row of one group; rivals not counted are ahead on `others` at most."""

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

    def share(self, deadline: Deadline) -> tuple[Fraction, Fraction]:
        """At least and at most what share is wrong; 0 and 1 where time did not suffice."""
        prefixes, loop = self.narrow.prefixes, loop_for(*self.narrow.W.shape, counts_near=True)
        wrong, near = np.empty(prefixes.number, np.int64), np.empty(prefixes.number, np.int64)
        limit = np.full(prefixes.number, -1, np.int32)
        entries = np.empty((max(ENTRIES, room(self.narrow)), 4), dtype=np.int32)
        first = 0
        while first < prefixes.number:
            if deadline.is_up():
                return Fraction(0), Fraction(1)
            before = int(prefixes.until[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(prefixes.until, before + A_LOOK, side="right")))
            zero = np.float32(0)
            first, _ = loop(LoopAsked(self.narrow, first, last, zero, zero, limit, wrong, entries, near))
        least, is_open = (Fraction(int((prefixes.outer * found).sum()), self.number) for found in (wrong, near))
        return least, min(Fraction(1), least + is_open + self.others)


def _rivals(order: np.ndarray, most: Array) -> tuple[np.ndarray, Fraction]:
    """The first difference and those that are not positive too often, and at most how often all others are not."""
    by_share = np.argsort(most[1:]) + 1
    is_left_out = np.cumsum(most[by_share]) <= LEFT_OUT
    others = by_share[is_left_out]
    return np.sort(np.delete(order, others)), sum((Fraction(float(most[i])) for i in others), Fraction(0))
