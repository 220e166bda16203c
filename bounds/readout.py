"""The staircase of lines: what it does to L separated values of one scalar."""

from __future__ import annotations

from collections.abc import Sequence

import sympy


def staircase(gamma: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    """The margin of each count: with unit steps of the slope, half the distance to the nearer neighbour.

    Claim: A-B.4 (App. B.4). At gamma_k line k exceeds line k - 1 by gamma_k - (gamma_(k-1) + gamma_k)/2, and
        lines further away lose by more, since each step adds another positive term.

    >>> staircase([sympy.Integer(1), sympy.Integer(2), sympy.Integer(4)])
    [1/2, 1/2, 1]
    """
    gaps = [sympy.Abs(after - before) / 2 for before, after in zip(gamma, gamma[1:], strict=False)]
    return [sympy.Min(*gaps[max(0, k - 1) : k + 1]) for k in range(len(gamma))]
