"""One layer whose scores read no digit, decided for all pairs of numbers cell by cell.

A cell fixes the answer's column, the sum of its two digits, the carry into it, and the token at the query. What the
stream holds there is a range for each written direction; the readout's least margin on it decides the cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from flint import fmpq

from constructions.adder.digits import Digits
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.stored import numbers
from verify.tasks.addition.columns import Range
from verify.tasks.addition.readout import Box, Overflows, Readout, slack
from verify.tasks.addition.shares import Direction, Stream, Unfit, exactly, stream_of

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder


@dataclass(frozen=True)
class ColumnCell:
    """An answer's column, the sum of its digits (0 in the leading column) and the carry into it, by query token."""

    column: int
    s: int
    carry: int
    token: int


@dataclass
class ColumnCells:
    """The cells of one model in one reading, and the margin of each."""

    model: Adder
    stream: Stream
    arithmetic: RoundedArithmetic | None = None
    _readouts: dict[tuple[int, int], Readout] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Adder, sums: Digits, arithmetic: RoundedArithmetic | None = None) -> ColumnCells:
        """Raises: Unfit where the reduction does not apply."""
        return cls(model, stream_of(model, sums, arithmetic), arithmetic)

    @property
    def sums(self) -> Digits:
        return self.stream.sums

    def all(self) -> Iterator[ColumnCell]:
        """Every cell that some pair of numbers is in, and perhaps a few more, one for each kind of query token."""
        n, B = self.sums.n, self.sums.B
        for i in range(n + 1):
            for token in self.kinds(i):
                for s in range(2 * B - 1) if i < n else (0,):
                    for carry in (0, 1) if i else (0,):
                        yield ColumnCell(i, s, carry, token)

    def kinds(self, i: int) -> list[int]:
        """Query tokens, one for each that neurons or readout may tell apart."""
        tokens = list(self.stream.embedded[i])
        return tokens if self._reads_own_digit else tokens[:1]

    @cached_property
    def _reads_own_digit(self) -> bool:
        """Whether a direction in which digits are embedded is written by attention, or read after it."""
        layer = self.model.blocks[0]
        embedded = (numbers(self.model.E)[: self.sums.B] != 0).any(0)
        read = (numbers(layer.W_1) != 0).any(1) | (numbers(self.model.W_out) != 0).any(1)
        read[list(self.stream.lanes)] = True
        return bool((embedded & read).any())

    def readout(self, i: int, token: int) -> Readout:
        if (i, token) not in self._readouts:
            self._readouts[i, token] = Readout.of(self.model, self.stream.lanes, self.stream.embedded[i][token])
        return self._readouts[i, token]

    def right(self, cell: ColumnCell) -> int:
        """The answer's digit."""
        return cell.carry if cell.column == self.sums.n else (cell.s + cell.carry) % self.sums.B

    def box(self, cell: ColumnCell, window: str = "") -> Box | None:
        """Returns the ranges of the written directions in a cell, or None where the cell is empty."""
        box: Box = []
        embedded = self.stream.embedded[cell.column][cell.token]
        for lane, direction in zip(self.stream.lanes, self.stream.directions[cell.column], strict=True):
            found = direction.attended.range(cell.s, window, cell.carry)
            if found is None:
                return None
            low, high = (fmpq(end, 1 << self.stream.bits) for end in found)
            if self.arithmetic is not None:
                low, high = self._computed(direction, cell, low, high)
            low, high = low + embedded[lane], high + embedded[lane]
            if self.arithmetic is not None:  # rounding is monotone: what it makes of the ends bounds the rest
                u = exactly(float(self.arithmetic.growth(1)))
                low, high = low - u * abs(low), high + u * abs(high)
            box.append((low, high))
        return box

    def _computed(self, direction: Direction, cell: ColumnCell, low: fmpq, high: fmpq) -> tuple[fmpq, fmpq]:
        """The ends of the computed sum of a direction's terms; each end by its own size where no term is negative."""
        assert direction.size is not None
        relative, absolute = exactly(direction.relative), exactly(direction.absolute)
        if direction.size == direction.attended and low >= 0:
            return low - relative * low - absolute, high + relative * high + absolute
        found = direction.size.range(cell.s, "", cell.carry)
        assert found is not None
        error = relative * fmpq(found[1], 1 << self.stream.bits) + absolute
        return low - error, high + error

    def margin(self, cell: ColumnCell) -> fmpq | None:
        """A lower bound on the margin in a cell; None where the cell is empty."""
        box = self.box(cell)
        if box is None:
            return None
        readout, right = self.readout(cell.column, cell.token), self.right(cell)
        if self.arithmetic is None:
            return readout.least_margin(box, right)
        embedded = self.stream.embedded[cell.column][cell.token]
        loss = slack(self.model, readout, self.stream.lanes, embedded, box, right, self.arithmetic)
        return readout.least_margin(box, right, loss)

    def ends(self, cell: ColumnCell) -> Iterator[tuple[int, int]]:
        """Pairs of numbers in a cell at the ends of each direction's range."""
        for direction in self.stream.directions[cell.column]:
            for side in (0, 1):
                yield direction.attended.extreme(cell.s, cell.carry, side)


__all__ = ["ColumnCell", "ColumnCells", "Overflows", "Range", "Unfit"]
