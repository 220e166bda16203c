"""Exactly how many answers are wrong, and the smallest wrong one, where few columns decide a digit.

Below the answer's column, only the classes of the next `depth` sums matter: K (stops a carry), P (passes it on),
G (makes one). If the stream's range says right or wrong for all of a cell, then whole answers are counted by a walk
over the columns whose state is the last `depth` classes and the carry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from verify.tasks.addition.columns import sums_of, windows
from verify.tasks.addition.proof import ColumnCell, ColumnCells

DEEPEST = 5
State = tuple[str, int, bool]  # the last classes, lowest first, the carry out of them, and whether a digit was wrong
Choices = Sequence[range]  # by column: the digits that a number may have there


@dataclass(frozen=True)
class Windows:
    """Which cells are right: by column, sum, classes of the columns below, and carry in."""

    cells: ColumnCells
    depth: int
    is_right: dict[tuple[int, int, str, int], bool]

    def wrong(self, first: Choices, second: Choices) -> int:
        """How many pairs of numbers with these digits get a wrong answer."""
        sums = self.cells.sums
        states: dict[State, int] = {("", 0, False): 1}
        for j in range(sums.n):
            ways = _ways(first[j], second[j])
            after: dict[State, int] = defaultdict(int)
            for (window, carry, is_wrong), number in states.items():
                for s, pairs in ways.items():
                    wrong_here = not self.is_right[j, s, window, carry]
                    carry_out = int(s + carry >= sums.B)
                    kind = "K" if s < sums.B - 1 else "P" if s == sums.B - 1 else "G"
                    kept = (window + kind)[-self.depth :] if self.depth else ""
                    after[kept, carry_out, is_wrong or wrong_here] += number * pairs
            states = after
        return sum(
            number
            for (window, carry, is_wrong), number in states.items()
            if is_wrong or not self.is_right[sums.n, 0, window, carry]
        )

    def smallest(self) -> tuple[int, int] | None:
        """The wrong pair with the least first number, and then the least second one."""
        sums = self.cells.sums
        free = [range(sums.B)] * sums.n
        if not self.wrong(free, free):
            return None
        first = self._least(free, lambda digits: self.wrong(digits, free) > 0)
        second = self._least(free, lambda digits: self.wrong(first, digits) > 0)
        value = [sum(d[0] * sums.B**j for j, d in enumerate(digits)) for digits in (first, second)]
        return value[0], value[1]

    def _least(self, free: Choices, fails: object) -> list[range]:
        digits = list(free)
        for j in reversed(range(len(digits))):
            low, high = 0, len(digits[j]) - 1
            while low < high:  # the least digit such that some number up to it fails
                middle = (low + high) // 2
                digits[j] = range(middle + 1)
                low, high = (low, middle) if fails(digits) else (middle + 1, high)  # type: ignore[operator]
            digits[j] = range(low, low + 1)
        return digits


def find(cells: ColumnCells, deepest: int = DEEPEST) -> Windows | None:
    """The least depth at which every cell is right or wrong as a whole; None where none is found.

    Only for models of one written direction, in real arithmetic.
    """
    if len(cells.stream.lanes) != 1 or cells.arithmetic is not None:
        return None
    for depth in range(min(deepest, cells.sums.n) + 1):
        found = _decided(cells, depth)
        if found is not None:
            return Windows(cells, depth, found)
    return None


def _decided(cells: ColumnCells, depth: int) -> dict[tuple[int, int, str, int], bool] | None:
    n, B = cells.sums.n, cells.sums.B
    out = {}
    for i in range(n + 1):
        for window in windows(min(depth, i)):
            for s in range(2 * B - 1) if i < n else (0,):
                for carry in (0, 1):
                    verdicts = {_verdict(cells, ColumnCell(i, s, carry, token), window) for token in cells.kinds(i)}
                    if verdicts == {"none"}:
                        continue
                    if len(verdicts) != 1 or verdicts == {"open"}:
                        return None
                    out[i, s, window, carry] = verdicts == {"right"}
    return out


def _verdict(cells: ColumnCells, cell: ColumnCell, window: str) -> str:
    box = cells.box(cell, window)
    if box is None:
        return "none"
    readout, right = cells.readout(cell.column, cell.token), cells.right(cell)
    if readout.least_margin(box, right) > 0:
        return "right"
    return "wrong" if readout.is_wrong(box[0], right) else "open"


def _ways(first: range, second: range) -> dict[int, int]:
    """How many pairs of digits have each sum."""
    ways: dict[int, int] = defaultdict(int)
    for d in first:
        for e in second:
            ways[d + e] += 1
    return ways


__all__ = ["Windows", "find", "sums_of"]
