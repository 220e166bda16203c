"""Every multiset of tokens in one order, so that each size is the one before with one more token in every way.

In colexicographic order the multisets whose tokens are all at most u come first: those of size m with largest token u
are that first part of size m - 1, each with u added. A sum over a multiset costs one addition that way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np

KEPT = 1 << 20  # tokens in a table of all multisets of one size


@dataclass(frozen=True)
class Multisets:
    """All multisets of at most `size` of the tokens 0..S-1, of a sequence's `slots` other positions.

    >>> multisets = Multisets(3, 2, 2)
    >>> multisets.tokens(2, np.arange(multisets.number(2))).tolist()
    [[0, 0], [0, 1], [1, 1], [0, 2], [1, 2], [2, 2]]
    """

    S: int
    size: int
    slots: int

    @property
    def whole(self) -> type:
        """A type of numbers that holds how many sequences all multisets of all slots are, times their positions."""
        return np.int64 if (self.slots + 1) ** 2 * (self.S + 1) ** self.slots < 1 << 62 else object

    def number(self, m: int) -> int:
        """How many multisets of size m there are."""
        return self._below(self.S, m)

    def _below(self, u: int, m: int) -> int:
        """How many of size m have only tokens below u."""
        return comb(u + m - 1, m) if u else int(m == 0)

    @cached_property
    def starts(self) -> list[np.ndarray]:
        """For each size m where the multisets with largest token u begin (S + 1,)."""
        return [np.array([self._below(u, m) if u else 0 for u in range(self.S + 1)]) for m in range(self.size + 1)]

    def parents(self, m: int, u: int) -> int:
        """How many multisets of size m - 1 become one of size m by adding u as their largest token."""
        return comb(u + m - 1, m - 1)

    def tokens(self, m: int, index: np.ndarray) -> np.ndarray:
        """The tokens of these multisets of size m in increasing order (n, m)."""
        if self.number(m) * m > KEPT:
            return self._tokens(m, index)
        if m not in self._kept:
            self._kept[m] = self._tokens(m, np.arange(self.number(m)))
        found: np.ndarray = self._kept[m][index]
        return found

    @cached_property
    def _kept(self) -> dict[int, np.ndarray]:
        """The tokens of all multisets, by size."""
        return {}

    def _tokens(self, m: int, index: np.ndarray) -> np.ndarray:
        found = np.empty((len(index), m), dtype=np.intp)
        for place in reversed(range(m)):
            starts = self.starts[place + 1]
            found[:, place] = np.searchsorted(starts, index, side="right") - 1
            index = index - starts[found[:, place]]
        return found

    @cached_property
    def arrangements(self) -> list[np.ndarray]:
        """In how many orders each multiset of each size can be written."""
        return [self._arrangements(m) for m in range(self.size + 1)]

    @cached_property
    def _repeats(self) -> list[np.ndarray]:
        """How often each multiset holds its largest token."""
        found = [np.zeros(1, dtype=np.int16)]
        for m in range(1, self.size + 1):
            parts = []
            for u in range(self.S):
                repeats = np.ones(self.parents(m, u), dtype=np.int16)
                if m > 1:
                    begin = int(self.starts[m - 1][u])
                    repeats[begin:] += found[-1][begin : len(repeats)]
                parts.append(repeats)
            found.append(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int16))
        return found

    def _arrangements(self, m: int) -> np.ndarray:
        ways: np.ndarray = np.ones(1, dtype=self.whole)
        for size in range(1, m + 1):
            parts = [ways[: self.parents(size, u)] for u in range(self.S)]
            ways = (np.concatenate(parts) if parts else ways[:0]) * size // self._repeats[size]
        return ways

    @cached_property
    def distinct(self) -> list[np.ndarray]:
        """How many different tokens each multiset of each size has."""
        found = [np.zeros(1, dtype=np.int16)]
        for m in range(1, self.size + 1):
            parts = [found[-1][: self.parents(m, u)] for u in range(self.S)]
            found.append((np.concatenate(parts) if parts else found[-1][:0]) + (self._repeats[m] == 1))
        return found

    def sums(self, steps: np.ndarray, size: int) -> list[np.ndarray]:
        """The sums of steps (r, S) over every multiset of each size up to this one: (r, number) each."""
        found: list[np.ndarray] = [np.zeros((len(steps), 1), dtype=steps.dtype)]
        for m in range(1, size + 1):
            sums = np.empty((len(steps), self.number(m)), dtype=steps.dtype)
            for start, n, u in self.parts(m):
                np.add(found[-1][:, :n], steps[:, [u]], out=sums[:, start : start + n])
            found.append(sums)
        return found

    def parts(self, m: int) -> Iterator[tuple[int, int, int]]:
        """The multisets of size m in parts that share their largest token: (first, how many, that token)."""
        for u in range(self.S):
            yield int(self.starts[m][u]), self.parents(m, u), u


@lru_cache(maxsize=16)
def multisets_of(S: int, size: int, slots: int) -> Multisets:
    """The multisets, with the tables that have been made of them."""
    return Multisets(S, size, slots)
