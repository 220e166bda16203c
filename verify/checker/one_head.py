"""Cells of one head with nothing but affine maps behind it, exactly: D (logit - another - margin) is one sum."""

from collections.abc import Sequence
from functools import cache

from flint import arb

from verify.checker.halving import CellBounds, Terms
from verify.checker.lines import Pair, ends
from verify.checker.one_layer import Sets
from verify.checker.reading import NOT_CHECKABLE, require

BITS = 192  # of whole numbers after the smallest weight's point
Ends = tuple[dict[int, int], dict[int, int]]  # the lower and the upper end for each token


class OneHeadTables:
    """What each token at its place adds to D (logit - another - margin), for one own token."""

    def __init__(
        self, sets: Sets, weights: dict[Pair, arb], apart: int, rows: dict[Pair, dict[int, arb]], margin: float
    ) -> None:
        self.sets, bits = sets, BITS + 2 * apart
        self.weights = {pair: ends(w, bits) for pair, w in weights.items()}
        self.due = {pair: ends(w * arb(margin), bits)[1] for pair, w in weights.items()}
        self.sums = {(*pair, c): ends(w * x, bits) for pair, w in weights.items() for c, x in rows[pair].items()}
        self.table = cache(self._table)

    def _table(self, place: int, due: int, rival: int) -> Ends:
        """The terms at a place: the least ones with the margin, the greatest ones without."""
        low, high = dict[int, int](), dict[int, int]()
        for t in self.sets[place]:
            (y_low, y_high), (c_low, c_high) = self.sums[place, t, due], self.sums[place, t, rival]
            low[t], high[t] = y_low - c_high - self.due[place, t], y_high - c_low
        return low, high


class OneHeadCell(CellBounds):
    """One cell, on which sums of terms are least and greatest place by place."""

    def __init__(self, tables: OneHeadTables, sets: Sets, due: int, _: CellBounds | None = None) -> None:
        self.tables, self.sets, self.due = tables, sets, due
        whole = sum(min(tables.weights[j, t][0] for t in chosen) for j, chosen in enumerate(sets))
        require(whole > 0, "the weights on a cell may be 0", NOT_CHECKABLE)

    def least(self, rivals: Sequence[int]) -> dict[int, int]:
        return {c: self._sum(c, 0) for c in rivals}

    def is_behind(self, rivals: Sequence[int]) -> bool:
        return any(self._sum(c, 1) <= 0 for c in rivals)

    def terms(self, rival: int) -> Terms:
        return [self.tables.table(j, self.due, rival)[0] for j in range(len(self.sets))]

    def _sum(self, rival: int, end: int) -> int:
        """The least sum of the terms on a cell, or for end 1 the greatest one."""
        extreme, table = (min, max)[end], self.tables.table
        return sum(
            extreme(map(table(j, self.due, rival)[end].__getitem__, chosen)) for j, chosen in enumerate(self.sets)
        )
