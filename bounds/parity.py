"""Parity by a sawtooth of the own count: its values, its margin, its neurons, and its length in a dtype."""

from __future__ import annotations

import math

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


def longest(p: int) -> int:
    """The largest L whose logits' sums are exact in every order, in a format with p significand bits.

    At own count k the terms of one sign come to ((k - 1)^2 + 1) / 2 at most, the bias 1/2 among them, which must not
    exceed 2^(p-1) for all partial sums to be multiples of 1/2 that the format holds. Beyond, an order loses the bias.

    >>> [longest(p) for p in (8, 11, 24, 53)]
    [16, 46, 4096, 94906266]
    """
    return math.isqrt((1 << p) - 1) + 1
