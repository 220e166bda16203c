"""Every multiset of m tokens as a prefix of its largest tokens and a leaf of its smallest, and how many orders it has.

In colexicographic order the leaves that go with a prefix, all of whose tokens are at most its least one, are the first
ones of their table. So a sum over a multiset costs one addition, and no table is longer than that of the leaves.

Orders. Let u be the least token of the prefix P, a how often P holds it, and c how often the leaf Q does. The multiset
has m! / (a + c)! / (product of the other multiplicities' factorials) orders. That is outer(P) f(Q), where

    outer(P) = C(m, a + |Q|) times the orders of P without u,   f(Q) = C(a + |Q|, |Q|) orders(Q) / C(a + c, c),

both of them whole numbers: choose the places of all u and of Q together, then fill them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np

from verify.tasks.histogram.multisets import Multisets, multisets_of

IN_CACHE = 1 << 21  # numbers in a table of leaves, whose first ones are read by far most often
OF_ORDERS = 1 << 23  # numbers in all tables of f
A_HALF = 1 << 22  # numbers in a table of the larger or the smaller tokens of prefixes
MOST_PREFIXES = 1 << 24
PADDING = 64  # numbers behind a table that is read in vectors
A_SUM = 1 << 62  # above all sums of f: they fit into 64 bits


@dataclass(frozen=True)
class Prefixes:
    """The multisets of m of S tokens, of a sequence's `slots` other positions, in leaves of the size `leaf`.

    Shapes: everything that is told of prefixes is (number,), in their colexicographic order.

    >>> prefixes = Prefixes(3, 4, 2, 4)
    >>> int(sum(prefixes.outer[i] * prefixes.orders(i).sum() for i in range(prefixes.number))) == 3**4
    True
    """

    S: int
    m: int
    leaf: int
    slots: int

    @property
    def size(self) -> int:
        """How many tokens a prefix has."""
        return self.m - self.leaf

    @property
    def halves(self) -> tuple[int, int]:
        """How many of a prefix's tokens are its smaller, and how many its larger ones."""
        return self.size // 2, self.size - self.size // 2

    @property
    def multisets(self) -> Multisets:
        """Prefixes, their halves and leaves."""
        return multisets_of(self.S, max(self.leaf, self.size), self.slots)

    @property
    def number(self) -> int:
        return self.multisets.number(self.size)

    @cached_property
    def least(self) -> np.ndarray:
        """The least token of each prefix; the largest of all where there is none."""
        found = np.full(1, self.S - 1, dtype=np.int32)
        for m in range(1, self.size + 1):
            found = np.concatenate(
                [found[:n] if m > 1 else np.full(1, u, dtype=np.int32) for _, n, u in self.multisets.parts(m)]
            )
        return found

    @cached_property
    def held(self) -> np.ndarray:
        """How often each prefix holds its least token."""
        found, least = np.zeros(1, dtype=np.int32), np.full(1, -1, dtype=np.int32)
        for m in range(1, self.size + 1):
            parts = list(self.multisets.parts(m))
            found = np.concatenate([found[:n] + (least[:n] == u) if m > 1 else found[:1] + 1 for _, n, u in parts])
            least = np.concatenate([least[:n] if m > 1 else np.full(1, u, dtype=np.int32) for _, n, u in parts])
        return found

    @cached_property
    def smaller(self) -> np.ndarray:
        """The index of the multiset of each prefix's smaller tokens."""
        small = self.halves[0]
        found = np.arange(self.multisets.number(small), dtype=np.int32)
        for m in range(small + 1, self.size + 1):
            found = np.concatenate([found[:n] for _, n, _ in self.multisets.parts(m)])
        return found

    @cached_property
    def larger(self) -> np.ndarray:
        """The index of the multiset of each prefix's larger tokens."""
        small, starts = self.halves[0], self.multisets.starts
        found = np.zeros(self.multisets.number(small), dtype=np.int32)
        for m in range(small + 1, self.size + 1):
            parts = self.multisets.parts(m)
            found = np.concatenate([found[:n] + starts[m - small][u] for _, n, u in parts]).astype(np.int32)
        return found

    @cached_property
    def distinct(self) -> np.ndarray:
        """How many different tokens each prefix has."""
        return self.multisets.distinct[self.size].astype(np.int32)

    @cached_property
    def outer(self) -> np.ndarray:
        """What multiplies f, in 64 bits where all multisets of all slots can be counted in them."""
        whole, sizes = self.multisets.whole, range(self.size + 1)
        all_of_least = np.array([comb(self.size, a) for a in sizes], dtype=whole)[self.held]
        places = np.array([comb(self.m, a + self.leaf) for a in sizes], dtype=whole)[self.held]
        found: np.ndarray = self.multisets.arrangements[self.size] // all_of_least * places
        return found

    @cached_property
    def leaves(self) -> np.ndarray:
        """How many leaves go with each prefix."""
        found: np.ndarray = self.multisets.starts[self.leaf][self.least + 1].astype(np.int32)
        return found

    @cached_property
    def until(self) -> np.ndarray:
        """How many multisets the prefixes up to each one have."""
        return np.cumsum(self.leaves, dtype=np.int64)

    @cached_property
    def unshared(self) -> np.ndarray:
        """How many of the leaves, which come first, do not hold the prefix's least token."""
        if not self.size:
            return self.leaves
        found: np.ndarray = self.multisets.starts[self.leaf][self.least].astype(np.int32)
        return found

    @cached_property
    def _f(self) -> tuple[np.ndarray, np.ndarray]:
        """f for each least token and each number of it, one table after the other, and where they begin."""
        multisets, n = self.multisets, self.leaf
        orders, parts, begin, at = multisets.arrangements[n].astype(np.int64), [], [], 0
        for u in range(self.S):
            numbers = [int(multisets.starts[n - c][u]) if c < n else 1 for c in range(n + 1)]
            c = np.repeat(np.arange(n + 1), numbers)
            for a in range(self.size + 1):
                among = np.array([comb(a + c, c) for c in range(n + 1)])
                parts.append(orders[: len(c)] * comb(a + n, n) // among[c])
                begin.append(at)
                at += len(c)
        return np.concatenate(parts), np.array(begin, dtype=np.int64).reshape(self.S, self.size + 1)

    @property
    def f(self) -> np.ndarray:
        """In how many orders leaves come, one table after the other."""
        return self._f[0]

    @cached_property
    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """How many different tokens each leaf has, and f, with zeros behind them."""
        distinct = self.multisets.distinct[self.leaf].astype(np.int32)
        return np.pad(distinct, (0, PADDING)), np.pad(self.f, (0, PADDING))

    @cached_property
    def f_from(self) -> np.ndarray:
        """Where the table of each prefix begins in f."""
        found: np.ndarray = self._f[1][self.least, self.held]
        return found

    @cached_property
    def of_leaves(self) -> np.ndarray:
        """The sum of f over the leaves of each prefix, which fits into 64 bits; so differences of longer sums do."""
        sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.f)])
        found: np.ndarray = sums[self.f_from + self.leaves] - sums[self.f_from]
        return found

    def orders(self, i: int) -> np.ndarray:
        """f of the leaves of prefix i."""
        return self.f[self.f_from[i] : self.f_from[i] + self.leaves[i]]

    def pairs(self, prefixes: np.ndarray, leaves: np.ndarray) -> int:
        """How many orders these multisets, one leaf for each prefix, have together."""
        f = self.f[self.f_from[prefixes] + leaves]
        return int((self.outer[prefixes] * f).sum())

    def tokens(self, prefixes: np.ndarray, leaves: np.ndarray) -> np.ndarray:
        """The tokens of these multisets in increasing order (n, m)."""
        return np.hstack([self.multisets.tokens(self.leaf, leaves), self.multisets.tokens(self.size, prefixes)])


def prefixes_of(S: int, m: int, slots: int, r: int) -> Prefixes | None:
    """The multisets with leaves as large as the cache allows for r forms; None where there are too many prefixes."""
    for leaf in reversed(range(min(m, 1), m + 1)):
        size = m - leaf
        has_room = comb(S - 1 + leaf, leaf) * r <= IN_CACHE and comb(S + leaf, leaf + 1) * (size + 1) <= OF_ORDERS
        is_small = has_room or leaf <= 1
        if is_small and S**leaf * comb(m, leaf) < A_SUM:
            half = comb(S - 1 + size - size // 2, S - 1) * r
            fits = comb(S - 1 + size, size) <= MOST_PREFIXES and half <= A_HALF
            return with_leaf(S, m, leaf, slots) if fits else None
    return None


@lru_cache(maxsize=16)
def with_leaf(S: int, m: int, leaf: int, slots: int) -> Prefixes:
    """The prefixes, with the tables that have been made of them, whatever number of forms they are for."""
    return Prefixes(S, m, leaf, slots)
