"""The largest token by one steep head: its least margin, and from which steepness on it is right."""

from __future__ import annotations

import sympy as sp

n = sp.Symbol("n", integer=True, positive=True)
s = sp.Symbol("s", positive=True)


def least_margin() -> sp.Expr:
    """The largest token's logit less another's at the least: the largest once, the token below it n - 1 times.

    >>> least_margin().subs({n: 4, s: sp.log(8)})
    5/11
    """
    return (sp.exp(s) - (n - 1)) / (sp.exp(s) + (n - 1))


def steepness() -> sp.Expr:
    """The steepness that a head must exceed to be right about n tokens.

    >>> steepness().subs(n, 4)
    log(3)
    """
    return sp.log(n - 1)
