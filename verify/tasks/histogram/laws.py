"""The laws of sequences under which shares are exact: uniform on all T^L, and document A's recursive partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial, perm

import numpy as np

from constructions.errors import BadInput
from verify.tasks.histogram.counting import Multinomials
from verify.tasks.histogram.reduction import Row
from verify.tasks.histogram.regions import Regions
from verify.tasks.histogram.stored import StoredModel

Polynomial = tuple[Fraction, ...]


@dataclass(frozen=True)
class CellLaw:
    """The probability of a cell (row, k) of one token, and of each region, for a position chosen uniformly."""

    name: str
    of_cell: Callable[[Row, int], Fraction]
    of_regions: Callable[[Multinomials, Regions], Fraction]


def law_named(name: str, stored: StoredModel, rows: tuple[Row, ...]) -> CellLaw:
    """The law by its name, for one model.

    Claim: A-D for "partitions" (App. D): every count of a position has probability 1/L exactly.
    Raises: BadInput where the law has no closed form here.
    """
    T, L = stored.T, stored.L
    if name == "uniform":
        return uniform(T, L)
    if name != "partitions":
        raise BadInput(f"law={name!r}: must be uniform or partitions.")
    if T < L:
        raise BadInput(f"law=partitions, T={T}, L={L}: the alphabet may run out, and then shares have no closed form "
                       f"here. Use --T {L} or more, or --law uniform.")  # fmt: skip
    if any(len(row.groups) > 1 for row in rows):
        raise BadInput("law=partitions: positions with unequal mixing weights are not counted. Use --law uniform.")
    return partitions(T, L)


def uniform(T: int, L: int) -> CellLaw:
    """All T^L sequences alike."""
    total = L * T**L

    def of_cell(row: Row, k: int) -> Fraction:
        return Fraction(len(row.positions) * comb(L - 1, k - 1) * (T - 1) ** (L - k), total)

    def of_regions(counting: Multinomials, regions: Regions) -> Fraction:
        return Fraction(counting.exactly(regions), total)

    return CellLaw("uniform", of_cell, of_regions)


def partitions(T: int, L: int) -> CellLaw:
    """Document A's sampler for T >= L: a block of uniform size takes a fresh token, again on the rest, shuffled.

    Block sizes are the cycle lengths of a uniform permutation, as each is uniform on what is left. With m distinct
    tokens of counts c a sequence has probability prod (c_s - 1)! (T - m)!/(T! L!). A position of t with own count k
    has the other counts c_s with probability prod (1/c_s) (T - m)!/T!/L, whatever k is; over all c that is 1/(T L).

    >>> partitions(5, 3).name
    'partitions'
    """

    def of_cell(row: Row, k: int) -> Fraction:
        return Fraction(len(row.positions), L * L * T)

    def of_regions(counting: Multinomials, regions: Regions) -> Fraction:
        share, sizes = Fraction(len(counting.row.positions), L * L), counting.tree.size
        return share * sum((_of_region(regions.counts[i], sizes, T) for i in range(len(regions))), Fraction(0))

    return CellLaw("partitions", of_cell, of_regions)


def _of_region(counts: np.ndarray, sizes: np.ndarray, T: int) -> Fraction:
    """The sum of prod (1/c_s) (T - m)!/T! over the counts that a region holds; counts (G, Q) with G at most 1."""
    held = (
        () if not len(counts) else tuple(sorted((int(sizes[q]), int(counts[0, q])) for q in np.flatnonzero(counts[0])))
    )
    return _of_clusters(held, T)


@lru_cache(maxsize=1 << 16)
def _of_clusters(held: tuple[tuple[int, int], ...], T: int) -> Fraction:
    product: Polynomial = (Fraction(1),)
    for size, n in held:
        factor = _of_cluster(size, n)
        out = [Fraction(0)] * (len(product) + len(factor) - 1)
        for i, a in enumerate(product):
            for j, b in enumerate(factor):
                out[i + j] += a * b
        product = tuple(out)
    return sum((x / perm(T, j + 1) for j, x in enumerate(product)), Fraction(0))  # (T - 1 - j)!/T! = 1/perm(T, j + 1)


@lru_cache(maxsize=1 << 12)
def _of_cluster(size: int, n: int) -> Polynomial:
    """The sum of prod 1/c_s over the ways to fill n slots from `size` tokens, by the number j of tokens that occur.

    It is size!/(size - j)! times |s(n, j)|/n!, with the unsigned Stirling numbers of the first kind.
    """
    stirling = [1] + [0] * n
    for m in range(n):  # |s(m + 1, j)| = m |s(m, j)| + |s(m, j - 1)|
        stirling = [m * x + (stirling[j - 1] if j else 0) for j, x in enumerate(stirling)]
    return tuple(Fraction(perm(size, j) * x, factorial(n)) for j, x in enumerate(stirling) if j <= size)
