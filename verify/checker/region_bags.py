"""Positions of all strings of a cell, and the least weighted mean over them (docs/checker.md)."""

from collections.abc import Sequence
from typing import NamedTuple

from verify.checker.ball_rows import Ends
from verify.checker.region_strings import BOS, CLOSE, ONE, OPEN, ZERO, Strings


class Bag(NamedTuple):
    """Positions of a set of strings: `always` there; of `more`, the first ones up to any; of each of `counted` so many
    of any of its kinds; and up to `room` of any that are `free`."""

    always: list[int]
    more: list[list[int]]
    counted: list[tuple[int, list[int]]]
    free: list[int]
    room: int

    @classmethod
    def of_cell(cls, kinds: Sequence[tuple[int, int]], strings: Strings, r: int, low: int, high: int, k: int) -> "Bag":
        """The positions of all strings with low to high regions and k ones in region r."""
        at, zeros = {kind: i for i, kind in enumerate(kinds)}, strings.zeros
        always = [i for (t, m), i in at.items() if t == BOS or t in (OPEN, CLOSE) and m <= 2 * low]
        more = [[at[OPEN, 2 * M - 1], at[CLOSE, 2 * M]] for M in range(low + 1, high + 1)]
        digits = [(t, m) for t, m in kinds if t in (ZERO, ONE) and m <= 2 * high and (t, m) != (ONE, 2 * r - 1)]
        counted = [(k, [at[ONE, 2 * r - 1]])] if k else []
        counted += [(zeros, [at[x] for x in digits if x[0] == ZERO])] if zeros else []
        free = [at[x] for x in digits if zeros is None or x[0] == ONE]
        return cls(always, more, counted, free, strings.N - 2 * low - (zeros or 0) - k)

    def lowest(self, weights: Sequence[Ends], values: Sequence[int]) -> int:
        """A bound below all weighted means of the values, the largest one in whole numbers.

        With every weight in its ends, sum of w (v - a) >= 0 says that the mean is at least a, and each position adds
        least at an end of its weight. Where it is below 0, the mean of the bag that shows it is the next a.
        """
        a = max(values)
        while True:
            total, size = self._least(weights, values, a)
            if total >= 0:
                return a
            a += total // size

    @property
    def kinds(self) -> set[int]:
        """Those that its positions may have."""
        listed = [i for group in (*self.more, *(kinds for _, kinds in self.counted)) for i in group]
        return {*self.always, *listed, *(self.free if self.room else [])}

    def most(self, kinds: set[int]) -> int:
        """How many positions are of these kinds at most."""
        found = sum(i in kinds for i in (*self.always, *(i for group in self.more for i in group)))
        found += sum(n for n, listed in self.counted if kinds & {*listed})
        return found + self.room * bool(kinds & {*self.free})

    def fewest(self, kinds: set[int]) -> int:
        """How many positions are of these kinds at least."""
        return sum(i in kinds for i in self.always) + sum(n for n, listed in self.counted if {*listed} <= kinds)

    def _least(self, weights: Sequence[Ends], values: Sequence[int], a: int) -> Ends:
        """The least sum of w (v - a), and the sum of w there."""

        def term(i: int) -> Ends:
            (low, high), v = weights[i], values[i] - a
            return (low * v, low) if v >= 0 else (high * v, high)

        fixed = [(1, term(i)) for i in self.always]
        fixed += [(n, min(map(term, kinds))) for n, kinds in self.counted if n]
        fixed += [(self.room, min([(0, 0), *map(term, self.free)]))] * (self.room > 0)
        found = least = (sum(n * x for n, (x, _) in fixed), sum(n * w for n, (_, w) in fixed))
        for group in self.more:
            added = [*map(term, group)]
            found = found[0] + sum(x for x, _ in added), found[1] + sum(w for _, w in added)
            least = min(least, found)
        return least
