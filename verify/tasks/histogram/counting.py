"""How many (sequence, position) pairs a region holds: exactly, at most, and roughly."""

from __future__ import annotations

from functools import cached_property
from math import ceil, comb, factorial, lgamma, prod

import numpy as np

from verify.arithmetic.slack import gamma
from verify.tasks.histogram.reduction import Row
from verify.tasks.histogram.regions import Regions, Tree
from verify.tasks.histogram.stored import Array


class Multinomials:
    """Multinomials of one row's slots over one tree of clusters."""

    def __init__(self, row: Row, tree: Tree, T: int, L: int) -> None:
        self.row, self.tree, self.T, self.L = row, tree, T, L

    def exactly(self, regions: Regions) -> int:
        """The exact number of (sequence, position) pairs in these regions."""
        if self.L * self.T**self.L >= 1 << 63 or regions.free.any():
            return sum(self._exactly(regions, i) for i in range(len(regions)))
        choices, powers = self._choices
        total = np.full(len(regions), len(self.row.positions), dtype=np.int64)
        for g, size in enumerate(self.row.sizes):
            total *= choices[size, regions.own[:, g]]
            left = size - regions.own[:, g].astype(np.int64)
            for node in np.nonzero(regions.counts[:, g].any(0))[0]:
                n = regions.counts[:, g, node]
                total *= choices[left, n] * powers[node, n]
                left -= n
        return int(total.sum(dtype=object))

    def _exactly(self, regions: Regions, i: int) -> int:
        """The number of pairs in one region, however large."""
        weight = len(self.row.positions)
        free_slots = 0
        for g, size in enumerate(int(n) for n in self.row.sizes):
            if regions.free[i, g]:
                free_slots += size
                continue
            counts = regions.counts[i, g]
            nodes = np.nonzero(counts)[0]
            n = [int(counts[node]) for node in nodes]
            weight *= factorial(size) // (factorial(int(regions.own[i, g])) * prod(map(factorial, n)))
            weight *= prod(int(self.tree.size[node]) ** m for node, m in zip(nodes, n, strict=True))
        if free_slots:
            missing = int(regions.k[i]) - 1 - int(regions.own[i].sum())
            weight *= comb(free_slots, missing) * (self.T - 1) ** (free_slots - missing)
        return weight

    def above(self, regions: Regions) -> int:
        """At least the number of pairs in these regions, vectorised where float64 can hold it."""
        if regions.free.any() or not len(regions) or self.L > 170:
            return sum(self._exactly(regions, i) for i in range(len(regions)))
        factorials, powers = self._factors
        shares = powers[np.arange(self.tree.Q), regions.counts] / factorials[regions.counts]
        sizes = self.row.sizes
        arrangements = (factorials[sizes] / factorials[regions.own]).prod(1) * len(self.row.positions)
        total = float((shares.prod((1, 2)) * arrangements).sum())
        roundings = 4 * len(sizes) * (self.tree.Q + 4) + len(regions)
        if not np.isfinite(total):
            return sum(self._exactly(regions, i) for i in range(len(regions)))
        return ceil(total * (1 + 2 * gamma(roundings)))

    def logarithm(self, regions: Regions) -> Array:
        """Roughly the logarithm to base 2 of the number of pairs, to look at large regions first."""
        shares, factorials = self._logarithms
        share = shares[np.arange(self.tree.Q), regions.counts].sum((1, 2))
        free = (regions.free * self.row.sizes).sum(1) * np.log2(max(self.T, 2))
        result: Array = share - factorials[regions.own].sum(1) + free + factorials[self.row.sizes].sum()
        return result

    def multisets(self, regions: Regions, uniform: np.ndarray) -> Array:
        """Roughly how many multisets a region holds up to exact symmetry; infinite where a group is not shared out."""
        sizes, n = np.where(uniform, 1, self.tree.size)[:, None], np.arange(self.L)
        table = log_gamma(sizes + n) - log_gamma(n + 1) - log_gamma(sizes)
        number = np.exp(table[np.arange(self.tree.Q), regions.counts].sum((1, 2)))
        return np.where(regions.free.any(1), np.inf, np.rint(np.minimum(number, 1e300)))

    @cached_property
    def _logarithms(self) -> tuple[Array, Array]:
        """log2 of (cluster size)^n / n! (Q, L) and of n! (L,)."""
        n = np.arange(self.L, dtype=float)
        factorials = log_gamma(n + 1) / np.log(2)
        return n * np.log2(self.tree.size)[:, None] - factorials, factorials

    @cached_property
    def _choices(self) -> tuple[np.ndarray, np.ndarray]:
        """Binomials (L, L) and (cluster size)^n (Q, L), where a product of them counts at most L T^L pairs."""
        slots = range(self.L)
        choices = np.array([[comb(n, m) for m in slots] for n in slots], dtype=np.int64)
        return choices, np.array([[int(size) ** n for n in slots] for size in self.tree.size], dtype=np.int64)

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """n! and (cluster size)^n for n = 0..L - 1 <= 170, rounded; infinity where float64 cannot hold them."""

        def rounded(n: int) -> float:
            return float(n) if n.bit_length() < 1000 else np.inf

        slots = range(self.L)
        factorials = np.array([float(factorial(n)) for n in slots])
        powers = np.array([[rounded(int(size) ** n) for n in slots] for size in self.tree.size])
        return factorials, powers


def log_gamma(x: np.ndarray) -> Array:
    """Roughly ln (x - 1)! for each number of a small array, without loading scipy.

    >>> log_gamma(np.array([1, 2, 4])).round(6).tolist()
    [0.0, 0.0, 1.791759]
    """
    return np.array([lgamma(n) for n in x.ravel()]).reshape(x.shape)
