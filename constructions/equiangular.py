"""Equiangular lines: simplex, conference matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from constructions.errors import BadInput
from constructions.finite_fields import quadratic_character_matrix
from constructions.line_systems import Integers, LineSystem


def simplex(T: int) -> LineSystem:
    """The T = d + 1 corners of a regular simplex, with all inner products -1 / d.

    Claim: A-4.4: attains the Welch bound at d = T - 1; the Gram matrix is I - (J - I) / (T - 1).
    Shapes: (T, T - 1).
    Raises: BadInput when T < 2.

    >>> simplex(4).coherence_squared, simplex(4).d
    (Fraction(1, 9), 3)
    """
    if T < 2:
        raise BadInput(f"T={T}: a simplex needs T >= 2 corners")
    seidel = np.eye(T, dtype=np.int64) - 1
    return LineSystem("simplex", T - 1, Fraction(1, (T - 1) ** 2), seidel=seidel)


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


def conference(q: int) -> LineSystem:
    """q + 1 equiangular lines in R^((q+1)/2), an equiangular tight frame.

    Claim: van Lint & Seidel, Indag. Math. 28 (1966): a symmetric conference matrix of order T gives T lines in
    R^(T/2) with coherence 1 / sqrt(T - 1).
    Shapes: (q + 1, (q + 1) / 2).
    Raises: BadInput as conference_matrix.

    >>> conference(5).T, conference(5).d, conference(5).coherence_squared  # diagonals of the icosahedron
    (6, 3, Fraction(1, 5))
    """
    return LineSystem(f"conference matrix, Paley q={q}", (q + 1) // 2, Fraction(1, q), seidel=conference_matrix(q))
