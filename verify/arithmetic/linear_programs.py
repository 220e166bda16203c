"""Decides systems of linear inequalities exactly: a rational solution, or Farkas' multipliers.

A float solver proposes either; it counts only after an exact check in rationals, so that no rounding decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat
from scipy.optimize import linprog

from verify.arithmetic.exact_reals import rational

Row = Sequence[Fraction | int]
TOLERANCE = 1e-7  # below which a proposed number counts as 0, before the exact check


class ProgramUndecided(ArithmeticError):
    """Neither a solution nor multipliers that were proposed pass the exact check."""


@dataclass(frozen=True)
class Solution:
    """Numbers x with A x >= b, exactly."""

    x: tuple[Fraction, ...]


@dataclass(frozen=True)
class Farkas:
    """Numbers y >= 0 with y A = 0 and y b > 0, exactly: no x has A x >= b."""

    y: tuple[Fraction, ...]


def decide_system(A: Sequence[Row], b: Row) -> Solution | Farkas:
    """Whether some x has A x >= b, with the numbers that show it.

    Shapes: A (m, n), b (m,); x is free.
    Raises: Undecided where rounding hides both.

    >>> decide_system([[1], [-1]], [1, 0])
    Farkas(y=(Fraction(1, 1), Fraction(1, 1)))
    >>> decide_system([[1], [-1]], [1, -3])
    Solution(x=(Fraction(1, 1),))
    """
    matrix, right = np.array(A, dtype=float), np.array(b, dtype=float)
    found = linprog(np.zeros(matrix.shape[1]), A_ub=-matrix, b_ub=-right, bounds=(None, None), method="highs-ds")
    if found.status == 0:
        x = _on_its_face(A, b, found.x)
        if is_solution(A, b, x):
            return Solution(x)
    m, n = matrix.shape
    dual = linprog(
        np.ones(m), A_eq=np.vstack([matrix.T, right]), b_eq=np.append(np.zeros(n), 1.0), bounds=(0, None),
        method="highs-ds",
    )  # fmt: skip
    if dual.status == 0:
        y = _solved_on_support(A, b, dual.x)
        if is_farkas(A, b, y):
            return Farkas(y)
    raise ProgramUndecided(
        f"a system of {m} inequalities in {n} unknowns: neither a solution nor multipliers are exact"
    )


def is_solution(A: Sequence[Row], b: Row, x: Sequence[Fraction]) -> bool:
    """Whether A x >= b, exactly."""
    return all(sum((a * u for a, u in zip(row, x, strict=True)), Fraction(0)) >= c for row, c in zip(A, b, strict=True))


def is_farkas(A: Sequence[Row], b: Row, y: Sequence[Fraction]) -> bool:
    """Whether y >= 0, y A = 0 and y b > 0, exactly."""
    sums = [sum((v * row[j] for v, row in zip(y, A, strict=True)), Fraction(0)) for j in range(len(A[0]))]
    return min(y) >= 0 and not any(sums) and sum((v * c for v, c in zip(y, b, strict=True)), Fraction(0)) > 0


def _on_its_face(A: Sequence[Row], b: Row, x: np.ndarray) -> tuple[Fraction, ...]:
    """The proposed vertex, solved again exactly from the rows that hold with equality there."""
    slack = np.array(A, dtype=float) @ x - np.array(b, dtype=float)
    tight = [i for i in range(len(A)) if slack[i] < TOLERANCE]
    near = [Fraction(float(v)).limit_denominator(10**6) for v in x]
    if not tight:
        return tuple(near)
    corrected = _projected([A[i] for i in tight], [b[i] for i in tight], near)
    return tuple(near) if corrected is None else corrected


def _solved_on_support(A: Sequence[Row], b: Row, y: np.ndarray) -> tuple[Fraction, ...]:
    """The proposed multipliers, solved again exactly where they are not 0."""
    support = [i for i in range(len(A)) if y[i] > TOLERANCE]
    rows = [[A[i][j] for i in support] for j in range(len(A[0]))] + [[b[i] for i in support]]
    right = [Fraction(0)] * len(A[0]) + [Fraction(1)]
    near = [Fraction(float(y[i])).limit_denominator(10**6) for i in support]
    solved = _projected(rows, right, near) or tuple(near)
    out = [Fraction(0)] * len(A)
    for i, value in zip(support, solved, strict=True):
        out[i] = value
    return tuple(out)


def _projected(rows: Sequence[Row], right: Row, near: Sequence[Fraction]) -> tuple[Fraction, ...] | None:
    """Solves rows x = right exactly, with the free unknowns as they are in `near`. None where there is no solution."""
    n = len(near)
    entries = [rational(x) for row, c in zip(rows, right, strict=True) for x in (*row, c)]
    reduced, rank = fmpq_mat(len(rows), n + 1, entries).rref()
    pivots = [next(j for j in range(n + 1) if reduced[i, j] != 0) for i in range(rank)]
    if n in pivots:
        return None
    x = [rational(v) for v in near]
    free = [j for j in range(n) if j not in pivots]
    for i, pivot in enumerate(pivots):
        x[pivot] = reduced[i, n] - sum((reduced[i, j] * x[j] for j in free), fmpq(0))
    return tuple(Fraction(int(v.p), int(v.q)) for v in x)
