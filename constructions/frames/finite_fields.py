"""Just enough finite fields (primes and squares of odd primes) for the matrices of Paley: conference and Hadamard."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from constructions.errors import BadInput, NotKnown
from constructions.frames.line_systems import Integers


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


def hadamard_matrix(n: int) -> Integers:
    """A Hadamard matrix of order n: entries +-1, H H^T = n I; by Sylvester, Paley I, Paley II, or doubling.

    Claim: Paley 1933; with doubling this gives every multiple of four below 92.
    Shapes: (n, n).
    Raises: NotKnown when these constructions do not reach n; BadInput when n is not 1, 2 or a multiple of four.

    >>> H = hadamard_matrix(12)
    >>> bool((H @ H.T == 12 * np.eye(12)).all())
    True
    """
    if n < 1 or (n > 2 and n % 4):
        raise BadInput(f"n={n}: a Hadamard matrix has order 1, 2 or a multiple of four")
    if n == 1:
        return np.ones((1, 1), dtype=np.int64)
    if n % 4 == 0 and is_paley_order(n - 1):
        return _paley_one(n - 1)
    if n % 4 == 0 and (n // 2 - 1) % 4 == 1 and is_paley_order(n // 2 - 1):
        return _paley_two(n // 2 - 1)
    if n == 2 or n % 8 == 0:
        return np.kron(np.array([[1, 1], [1, -1]]), hadamard_matrix(n // 2))
    raise NotKnown(f"n={n}: no Hadamard matrix of this order follows from Paley and doubling")


def _paley_one(q: int) -> Integers:
    """I + S with S skew: the bordered character matrix for q = 3 mod 4."""
    S = np.zeros((q + 1, q + 1), dtype=np.int64)
    S[0, 1:], S[1:, 0], S[1:, 1:] = 1, -1, quadratic_character_matrix(q)
    return S + np.eye(q + 1, dtype=np.int64)


def _paley_two(q: int) -> Integers:
    """Each entry of a symmetric conference matrix becomes a 2 x 2 block."""
    C = conference_matrix(q)
    return np.kron(C, np.array([[1, 1], [1, -1]])) + np.kron(
        np.eye(q + 1, dtype=np.int64), np.array([[1, -1], [-1, -1]])
    )


def conference_matrix(q: int) -> Integers:
    """The symmetric conference matrix of order q + 1 by Paley: C C^T = q I, zero diagonal, +-1 elsewhere.

    Claim: Paley, J. Math. Phys. 12 (1933): for prime powers q = 1 mod 4, border of the matrix of quadratic characters.
    Shapes: (q + 1, q + 1).
    Raises: BadInput unless q = 1 mod 4 is a prime or the square of a prime (the fields this project builds).

    >>> C = conference_matrix(5)
    >>> bool((C @ C == 5 * np.eye(6)).all())
    True
    """
    if q % 4 != 1:
        raise BadInput(f"q={q}: a symmetric conference matrix of order q + 1 by Paley needs q = 1 mod 4")
    C = np.ones((q + 1, q + 1), dtype=np.int64)
    C[0, 0] = 0
    C[1:, 1:] = quadratic_character_matrix(q)
    return C
