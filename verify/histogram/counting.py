"""How many (sequence, position) pairs a region holds: exactly, at least, and roughly."""

from __future__ import annotations

from functools import cached_property
from math import ceil, comb, factorial, prod

import numpy as np
from scipy.special import gammaln

from verify.arithmetic.balls import gamma
from verify.histogram.reduction import Row
from verify.histogram.regions import Regions, Tree
from verify.histogram.stored import Array


class Counting:
    """Multinomials of one row's slots over one tree of clusters."""

    def __init__(self, row: Row, tree: Tree, T: int, L: int) -> None:
        self.row, self.tree, self.T, self.L = row, tree, T, L

    def exactly(self, regions: Regions) -> list[int]:
        """The exact number of (sequence, position) pairs in each region."""
        sizes = [int(n) for n in self.row.sizes]
        clusters = [int(n) for n in self.tree.size]
        out = []
        for i in range(len(regions)):
            weight = len(self.row.positions)
            free_slots = 0
            for g, size in enumerate(sizes):
                if regions.free[i, g]:
                    free_slots += size
                    continue
                counts = regions.counts[i, g]
                nodes = np.nonzero(counts)[0]
                n = [int(counts[node]) for node in nodes]
                weight *= factorial(size) // (factorial(int(regions.own[i, g])) * prod(map(factorial, n)))
                weight *= prod(clusters[node] ** m for node, m in zip(nodes, n, strict=True))
            if free_slots:
                missing = int(regions.k[i]) - 1 - int(regions.own[i].sum())
                weight *= comb(free_slots, missing) * (self.T - 1) ** (free_slots - missing)
            out.append(weight)
        return out

    def above(self, regions: Regions) -> int:
        """At least the number of pairs in these regions, vectorised where float64 can hold it."""
        if regions.free.any() or not len(regions) or self.L > 170:
            return sum(self.exactly(regions))
        factorials, powers = self._factors
        shares = powers[np.arange(self.tree.Q), regions.counts] / factorials[regions.counts]
        sizes = self.row.sizes
        arrangements = (factorials[sizes] / factorials[regions.own]).prod(1) * len(self.row.positions)
        total = float((shares.prod((1, 2)) * arrangements).sum())
        roundings = 4 * len(sizes) * (self.tree.Q + 4) + len(regions)
        if not np.isfinite(total):
            return sum(self.exactly(regions))
        return ceil(total * (1 + 2 * gamma(roundings)))

    def logarithm(self, regions: Regions) -> Array:
        """Roughly the logarithm of the number of pairs, to look at large regions first."""
        n = regions.counts.astype(float)
        share = n * np.log(self.tree.size) - gammaln(n + 1)
        own = gammaln(regions.own.astype(float) + 1)
        free = (regions.free * self.row.sizes).sum(1) * np.log(self.T)
        result: Array = share.sum((1, 2)) - own.sum(1) + free
        return result

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """n! and (cluster size)^n for n = 0..L - 1 <= 170, rounded; infinity where float64 cannot hold them."""

        def rounded(n: int) -> float:
            return float(n) if n.bit_length() < 1000 else np.inf

        slots = range(self.L)
        factorials = np.array([float(factorial(n)) for n in slots])
        powers = np.array([[rounded(int(size) ** n) for n in slots] for size in self.tree.size])
        return factorials, powers
