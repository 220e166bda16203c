"""Just enough finite fields for Paley matrices: primes, and squares of odd primes."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from constructions.errors import BadInput
from constructions.line_systems import Integers


def is_prime(n: int) -> bool:
    """Whether n is prime, by trial division.

    >>> [n for n in range(20) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    return n > 1 and all(n % i for i in range(2, isqrt(n) + 1))


def is_paley_order(q: int) -> bool:
    """Whether q is an odd prime or the square of one, the fields that quadratic_character_matrix knows.

    >>> [q for q in range(30) if is_paley_order(q)]
    [3, 5, 7, 9, 11, 13, 17, 19, 23, 25, 29]
    """
    return q % 2 == 1 and (is_prime(q) or (isqrt(q) ** 2 == q and is_prime(isqrt(q))))


@lru_cache(maxsize=32)
def quadratic_character_matrix(q: int) -> Integers:
    """chi(x - y) for all x, y of the field with q elements: 1 for nonzero squares, -1 for non-squares, 0 at x = y.

    Claim: Paley 1933. The field of p^2 elements is F_p(i), i^2 the least non-square; a + b i is listed at a p + b.
    Shapes: (q, q).
    Raises: BadInput unless q is an odd prime or the square of one.

    >>> quadratic_character_matrix(3).tolist()
    [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
    """
    if not is_paley_order(q):
        raise BadInput(f"q={q}: must be an odd prime or the square of one (the fields this project builds)")
    p = q if is_prime(q) else isqrt(q)
    low, high = np.arange(q) % p, np.arange(q) // p
    squares_mod_p = {x * x % p for x in range(1, p)}
    non_square = next(x for x in range(2, p + 1) if x % p not in squares_mod_p)
    square_low = (low * low + non_square * high * high) % p
    square_high = 2 * low * high % p
    chi = -np.ones(q, dtype=np.int64)
    chi[square_high * p + square_low] = 1
    chi[0] = 0
    difference_low = (low[:, None] - low[None, :]) % p
    difference_high = (high[:, None] - high[None, :]) % p
    return chi[difference_high * p + difference_low]
