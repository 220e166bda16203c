"""What one layer's stream can hold at an answer's column, by a dynamic programme over columns with carries.

Where no score depends on a digit, the attention's shares are numbers of the position alone, and each direction of the
stream is a sum of one term per position. The terms of a column depend on its two digits, and on its answer's digit,
that is on the carry. So the least and the greatest sum over all pairs of numbers follow column by column, with the two
carries as states. All sums are of integers, in units of 2^-bits, rounded outwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from constructions.adder.digits import Digits

Range = tuple[int, int]
Terms = list[Range]  # by token
EMPTY: Range | None = None
CLASSES = "KPG"  # a column's sum stops a carry (at most B - 2), passes it on (B - 1), or makes one (at least B)


@dataclass(frozen=True)
class DigitQuery:
    """One direction of the stream where the answer's digit in `column` is due, as a sum of terms.

    `first` and `second` have the terms of both numbers' digits by column, `answer` those of the answer's digits that
    are there already, `constant` all others; all in units of 2^-bits.
    """

    sums: Digits
    column: int
    first: list[Terms]
    second: list[Terms]
    answer: dict[int, Terms]
    constant: Range

    @cached_property
    def pairs(self) -> list[list[Range]]:
        """By column and by sum of the two digits: the range of both terms together."""
        B = self.sums.B
        out = []
        for first, second in zip(self.first, self.second, strict=True):
            row = []
            for s in range(2 * B - 1):
                digits = range(max(0, s - B + 1), min(s, B - 1) + 1)
                row.append(
                    (
                        min(first[d][0] + second[s - d][0] for d in digits),
                        max(first[d][1] + second[s - d][1] for d in digits),
                    )
                )
            out.append(row)
        return out

    @cached_property
    def below(self) -> list[list[Range | None]]:
        """By column and carry into it: the range of all terms of the columns below."""
        states: list[Range | None] = [self.constant, EMPTY]
        out = [states]
        for j in range(self.column):
            states = [_hull([_plus(states[k], self.pairs[j][s]) for k, s in self._ways(k_next)]) for k_next in (0, 1)]
            out.append(states)
        return out

    @cached_property
    def above(self) -> dict[int, list[Range]]:
        """By column and carry into it: the range of all terms of that column and those above it."""
        n, B = self.sums.n, self.sums.B
        if self.column == n:
            return {n + 1: [(0, 0), (0, 0)]}
        out = {n: [self.answer[n][0], self.answer[n][1]]}
        for j in range(n - 1, self.column, -1):
            states = []
            for k in (0, 1):
                options = [
                    _add(_add(self.pairs[j][s], self.answer[j][(s + k) % B]), out[j + 1][int(s + k >= B)])
                    for s in range(2 * B - 1)
                ]
                states.append((min(low for low, _ in options), max(high for _, high in options)))
            out[j] = states
        return out

    def _from(self, j: int, s: int, k: int) -> Range:
        """The range of the terms of column j and above, with this sum and carry in column j."""
        here = _add(self.pairs[j][s], self.answer[j][(s + k) % self.sums.B])
        return _add(here, self.above[j + 1][int(s + k >= self.sums.B)])

    def range(self, s: int, window: str, carry: int) -> Range | None:
        """The range over all pairs of numbers with this sum in the own column, these classes below, and this carry in.

        `window` has the classes of the columns just below, lowest first; None where there is no such pair.
        """
        start = self.column - len(window)
        found = [self._through(start, k, window, carry) for k in (0, 1)]
        lower = _hull(found)
        if lower is None:
            return None
        if self.column == self.sums.n:
            return lower
        out = int(s + carry >= self.sums.B)
        return _add(_add(lower, self.pairs[self.column][s]), self.above[self.column + 1][out])

    def _through(self, start: int, k: int, window: str, carry: int) -> Range | None:
        here = self.below[start][k]
        for j, kind in enumerate(window, start):
            if here is None:
                return None
            terms = self.pairs[j]
            sums = sums_of(kind, self.sums.B)
            here = here[0] + min(terms[s][0] for s in sums), here[1] + max(terms[s][1] for s in sums)
            k = {"K": 0, "P": k, "G": 1}[kind]
        return here if k == carry else None

    def _ways(self, carry_out: int) -> list[tuple[int, int]]:
        B = self.sums.B
        return [(k, s) for k in (0, 1) for s in range(2 * B - 1) if int(s + k >= B) == carry_out]

    def extreme(self, s: int, carry: int, side: int) -> tuple[int, int]:
        """A pair of numbers at the least (side 0) or greatest (side 1) end of `range(s, "", carry)`."""
        n, B = self.sums.n, self.sums.B
        digits: dict[int, int] = {}
        choose = min if side == 0 else max
        k = carry
        for j in range(self.column - 1, -1, -1):
            ways = [(kk, t) for kk, t in self._ways(k) if self.below[j][kk] is not None]
            best = choose(ways, key=lambda way: self._end(j, way, side))
            digits[j], k = best[1], best[0]
        if self.column < n:
            digits[self.column] = s
            k = int(s + carry >= B)
            for j in range(self.column + 1, n):
                digits[j] = choose(range(2 * B - 1), key=lambda t, j=j, k=k: self._from(j, t, k)[side])  # type: ignore[misc]
                k = int(digits[j] + k >= B)
        a = b = 0
        for j, t in digits.items():
            options = range(max(0, t - B + 1), min(t, B - 1) + 1)
            d = choose(options, key=lambda d, j=j, t=t: self.first[j][d][side] + self.second[j][t - d][side])  # type: ignore[misc]
            a, b = a + d * B**j, b + (t - d) * B**j
        return a, b

    def _end(self, j: int, way: tuple[int, int], side: int) -> int:
        below = self.below[j][way[0]]
        assert below is not None
        return below[side] + self.pairs[j][way[1]][side]


def sums_of(kind: str, B: int) -> range:
    """The sums of two digits in a class.

    >>> list(sums_of("P", 10)), sums_of("G", 10)
    ([9], range(10, 19))
    """
    return {"K": range(B - 1), "P": range(B - 1, B), "G": range(B, 2 * B - 1)}[kind]


def windows(length: int) -> list[str]:
    """All sequences of classes of a length.

    >>> windows(1), len(windows(2))
    (['K', 'P', 'G'], 9)
    """
    return ["".join(kinds) for kinds in product(CLASSES, repeat=length)]


def _add(x: Range, y: Range) -> Range:
    return x[0] + y[0], x[1] + y[1]


def _plus(x: Range | None, y: Range) -> Range | None:
    return None if x is None else _add(x, y)


def _hull(ranges: Sequence[Range | None]) -> Range | None:
    found = [x for x in ranges if x is not None]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None
