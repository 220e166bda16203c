"""Multisets in blocks: every combination of some first choices with one table of last ones, and what they count for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from verify.tasks.histogram.stored import Array


@dataclass(frozen=True)
class CellMultisets:
    """Multisets of one cell: which group holds which other tokens.

    Shapes: for each group (n, m) indices of tokens in increasing order; the group's other slots hold the query token.
    n is the `number` of multisets, also where no group says it: a sequence of one token has none.
    """

    k: int
    number: int
    held: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: np.ndarray) -> CellMultisets:
        return CellMultisets(self.k, len(index), tuple(tokens[index] for tokens in self.held))

    def listed(self) -> Iterator[list[int]]:
        """Each multiset as whole numbers: for each group how many other tokens, and their indices."""
        for i in range(len(self)):
            yield [number for tokens in self.held for number in (tokens.shape[1], *tokens[i].tolist())]


@dataclass(frozen=True)
class MultisetBlock:
    """Multisets of the slots of one row's positions: every first choice of tokens with every last one.

    Shapes: first (r, n) the forms of the first choices, ways (n,) and last_ways (number,) in how many orders both
    come, distinct (n,) and last_distinct (number,) how many tokens they surely have. `held` gives the tokens of each
    group of slots for indices of first and last choices; of a single group, the distinct tokens are exact.
    """

    first: Array
    ways: np.ndarray
    distinct: np.ndarray
    number: int
    last_ways: np.ndarray
    last_distinct: np.ndarray
    held: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]
    positions: int
    is_single: bool

    def pairs(self, index: np.ndarray) -> int:
        """How many (sequence, position) pairs these multisets stand for."""
        first, last = np.divmod(index, self.number)
        return int((self.ways[first] * self.last_ways[last]).sum()) * self.positions

    def lowest(self, index: np.ndarray) -> np.ndarray:
        """At most the number of distinct tokens of each of these (n,); exactly that for one group."""
        first, last = np.divmod(index, self.number)
        result: np.ndarray = 1 + np.maximum(self.distinct[first], self.last_distinct[last])
        return result

    def points(self, index: np.ndarray, k: int) -> CellMultisets:
        """These multisets, token by token."""
        return CellMultisets(k, len(index), self.held(*np.divmod(index, self.number)))


@dataclass(frozen=True)
class Last:
    """What a block's last choices add to each form, (r, 1) at least and at most, in pieces.

    Each piece has the index of its first choice, their number n, a change (r, 1) and a table (r, n or more): the
    change and one column are what a choice adds.
    """

    low: Array
    high: Array
    pieces: list[tuple[int, int, Array, Array]]


@dataclass(frozen=True)
class BlockPart:
    """Some first choices of a block with some last ones, from the indices `firsts` and `lasts` on.

    Shapes: first (r, n) and last (r, m) add up to the forms; radius (C - 1, 1) is what a difference may be off by.
    """

    block: MultisetBlock
    firsts: int
    lasts: int
    first: Array
    last: Array
    radius: Array

    def forms(self, i: np.ndarray, j: np.ndarray) -> Array:
        """The forms of some choices (r, n)."""
        return self.last[:, j].astype(np.float64) + self.first[:, i]

    def normaliser(self) -> Array:
        """The last form of all multisets (n m,)."""
        result: Array = np.add.outer(self.first[-1].astype(np.float64), self.last[-1]).ravel()
        return result

    def _of_firsts(self, values: np.ndarray) -> np.ndarray:
        return values[self.firsts : self.firsts + self.first.shape[1]]

    def _of_lasts(self, values: np.ndarray) -> np.ndarray:
        return values[self.lasts : self.lasts + self.last.shape[1]]

    def pairs(self, chosen: np.ndarray) -> int:
        """How many (sequence, position) pairs the chosen multisets (n,) stand for."""
        ways, last_ways = self._of_firsts(self.block.ways), self._of_lasts(self.block.last_ways)
        of_first = np.where(chosen.reshape(len(ways), -1), last_ways, 0).sum(1)
        return int((ways * of_first).sum()) * self.block.positions

    def least_distinct(self) -> int:
        """At most the number of distinct tokens of any of these."""
        firsts, lasts = self._of_firsts(self.block.distinct), self._of_lasts(self.block.last_distinct)
        return 1 + max(int(firsts.min()), int(lasts.min()))

    def lowest(self) -> np.ndarray:
        """At most the number of distinct tokens of each of these (n,); exactly that for one group."""
        firsts, lasts = self._of_firsts(self.block.distinct), self._of_lasts(self.block.last_distinct)
        found = np.maximum.outer(firsts, lasts).ravel()
        result: np.ndarray = 1 + found
        return result

    def indices(self, chosen: np.ndarray) -> np.ndarray:
        """Where some of these multisets are among all of the block."""
        first, last = np.divmod(chosen, self.last.shape[1])
        return (self.firsts + first) * self.block.number + self.lasts + last


@dataclass
class Near:
    """Multisets of one block that are near a tie: their indices, and what `_closer` needs of them."""

    index: list[np.ndarray] = field(default_factory=list)
    z: list[Array] = field(default_factory=list)
    difference: list[Array] = field(default_factory=list)
    radius: list[Array] = field(default_factory=list)
    number: int = 0

    def add(self, index: np.ndarray, z: Array, difference: Array, radius: Array) -> None:
        self.index.append(index)
        self.z.append(z)
        self.difference.append(difference)
        self.radius.append(np.broadcast_to(radius, difference.shape))
        self.number += len(index)

    def joined(self) -> tuple[np.ndarray, Array, Array, Array]:
        """Indices (n,), forms (r, n), differences and what they may be off by (C - 1, n)."""
        index, *others = self.index, self.z, self.difference, self.radius
        z, difference, radius = (np.concatenate(parts, axis=1) for parts in others)
        return np.concatenate(index), z, difference, radius
