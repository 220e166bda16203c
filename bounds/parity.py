"""Parity by a sawtooth of the own count: its values, its margin, and the neurons that it takes."""

from __future__ import annotations

import sympy as sp

k = sp.Symbol("k", integer=True, positive=True)
L = sp.Symbol("L", integer=True, positive=True)


def difference() -> sp.Expr:
    """The odd logit less the even one at own count k.

    >>> [difference().subs(k, n) for n in (1, 2, 3)]
    [1, -1, 1]
    """
    return -((-1) ** k)


def neurons() -> sp.Expr:
    """How many ReLU neurons the sawtooth has.

    >>> neurons().subs(L, 10)
    9
    """
    return sp.Max(1, L - 1)
