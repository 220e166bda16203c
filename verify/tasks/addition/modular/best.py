"""The best frequencies for K = 1, 2, ...: a complete search, and proof that nothing is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, gcd

import numpy as np
from flint import arb

from bounds.modular import clock_margin
from constructions.errors import BadInput
from verify.arithmetic.exact_reals import float_above, float_below

MOST_SETS = 50_000_000
SAFE = 1e-12  # far more than the float64 errors of a sum of at most 64 cosines, each within 1e-15


@dataclass(frozen=True)
class Best:
    """The best K frequencies of P: their margin as a lower and an upper end, and how many sets were compared."""

    K: int
    frequencies: tuple[int, ...]
    margin: tuple[float, float]
    compared: int
    average: Fraction


def canonical(P: int, frequencies: tuple[int, ...]) -> tuple[int, ...]:
    """The lexicographically smallest sorted set among all multiples by units of P, with w and P - w the same.

    >>> canonical(113, (2, 5)), canonical(7, (3, 1))
    ((1, 23), (1, 2))
    """
    units = [u for u in range(1, P) if gcd(u, P) == 1]
    return min(tuple(sorted(min(u * w % P, -u * w % P) for w in frequencies)) for u in units)


def divisors_of(P: int) -> list[int]:
    """The divisors of P among its frequencies."""
    return [g for g in range(1, (P - 1) // 2 + 1) if P % g == 0]


def sets_to_compare(P: int, K: int) -> int:
    """How many sets of K frequencies hold a divisor of P.

    Raises: BadInput where P has fewer frequencies, or there are too many sets.
    """
    half = (P - 1) // 2
    if not 1 <= K <= half:
        raise BadInput(f"--best {K}: must be from 1 to (P-1)/2 = {half}, the number of frequencies of P={P}")
    compared = len(divisors_of(P)) * comb(half - 1, K - 1)
    if compared > MOST_SETS:
        raise BadInput(f"--best {K}: P={P} has {compared} sets to compare, more than {MOST_SETS}; use a smaller K")
    return compared


def best(P: int, K: int, progress: Callable[[float], None] | None = None) -> Best:
    """The set of K frequencies with the largest margin of the ideal clock, over all sets.

    A unit of P permutes the wrong answers, so every set has the margin of one that holds a divisor of P. Float64
    sums leave out sets that are worse by more than their error; what is left is compared in balls.

    Raises: BadInput where P has fewer frequencies, or there are too many sets.

    >>> best(113, 2).frequencies
    (1, 31)
    """
    compared, divisors, half = sets_to_compare(P, K), divisors_of(P), (P - 1) // 2
    gains = np.array([[float(_gain(P, w, r)) for r in range(1, P // 2 + 1)] for w in range(1, half + 1)])
    champion, candidates = -np.inf, []
    for i, (sets, margins) in enumerate(_searched(gains, divisors, half, K)):
        champion = max(champion, float(margins.max()))
        for j in np.nonzero(margins >= champion - SAFE)[0]:
            candidates.append((float(margins[j]), sets(int(j))))
        if progress is not None and i % 64 == 0:
            progress(0.5)
    kept = {canonical(P, found) for margin, found in candidates if margin >= champion - SAFE}
    ranked = sorted(kept)
    winner = ranked[0]
    for other in ranked[1:]:
        if clock_margin(P, other) > clock_margin(P, winner):
            winner = other
        elif not clock_margin(P, other) <= clock_margin(P, winner) and not _equal(P, other, winner):
            raise AssertionError(f"128 bits do not compare {other} with {winner}")
    margin = clock_margin(P, winner)
    ends = float_below(margin), float_above(margin)
    return Best(K, winner, ends, compared, Fraction(K * P, P - 1))


def _gain(P: int, w: int, r: int) -> arb:
    return 1 - (arb(2 * (w * r % P)) / P).cos_pi()


def _equal(P: int, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two sets attain their margins as the same sums of cosines, term by term."""

    def terms(frequencies: tuple[int, ...]) -> set[tuple[int, ...]]:
        least = float(clock_margin(P, frequencies))
        sums = {}
        for r in range(1, P // 2 + 1):
            key = tuple(sorted(min(w * r % P, -w * r % P) for w in frequencies))
            sums[key] = float(sum((_gain(P, w, r) for w in frequencies), arb(0)))
        return {key for key, value in sums.items() if value <= least + SAFE}

    return bool(terms(a) & terms(b))


def _searched(
    gains: np.ndarray, divisors: list[int], half: int, K: int
) -> Iterator[tuple[Callable[[int], tuple[int, ...]], np.ndarray]]:
    """Margins of all sets that hold a divisor, in blocks: the last two elements of a set vary within a block."""
    for g in divisors:
        rest = [w for w in range(1, half + 1) if w != g]
        free = min(2, K - 1)
        tails = list(combinations(range(len(rest)), free))
        table = np.zeros((len(tails), gains.shape[1]))
        for column in range(free):
            table += gains[np.array([rest[t[column]] for t in tails]) - 1]
        starts = np.array([t[0] if t else 0 for t in tails])
        for head in combinations(range(len(rest)), K - 1 - free):
            first = int(np.searchsorted(starts, head[-1] + 1)) if head else 0
            if first == len(tails):
                continue
            known = (g, *(rest[j] for j in head))
            base = gains[np.array(known) - 1].sum(0)

            def sets(
                j: int, first: int = first, known: tuple[int, ...] = known, tails: list[tuple[int, ...]] = tails,
                rest: list[int] = rest,
            ) -> tuple[int, ...]:  # fmt: skip
                return tuple(sorted((*known, *(rest[t] for t in tails[first + j]))))

            yield sets, (table[first:] + base).min(1)
