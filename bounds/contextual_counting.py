"""Contextual counting: gaps between regions, temperatures, leaks, margins, the largest N and R, ranks.

N is the longest string, R the number of regions, k a count, B the number of bias tokens, u the unit round-off.
"""

from __future__ import annotations

import sympy as sp

N, R, j, k, B, u, kappa = sp.symbols("N R j k B u kappa", positive=True)


def position(r: sp.Expr | int = j, bos: bool = True) -> sp.Expr:
    """The encoder's scalar in region r: r ones and r - 1 minus ones over 2r - 1 delimiters, and BOS.

    Claim: B-2.2 with the values +1 for "[" and -1 for "]"; the printed r/(2r-1) has the values 1 and 0.

    >>> [position(r) for r in (1, 2, 3)], position(3, bos=False)
    ([1/2, 1/4, 1/6], 1/5)
    """
    return sp.Integer(1) / (2 * r) if bos else sp.Integer(1) / (2 * r - 1)


def gap(r: sp.Expr | int = j, bos: bool = True) -> sp.Expr:
    """The distance between the positions of regions r and r + 1: it falls like 1/r^2, so R^2 u must stay small.

    Claim: B-2.2.

    >>> sp.factor(gap()), sp.factor(gap(bos=False))
    (1/(2*j*(j + 1)), 2/((2*j - 1)*(2*j + 1)))
    """
    return sp.simplify(position(r, bos) - position(r + 1, bos))


def line(r: sp.Expr | int = j, bos: bool = True) -> tuple[sp.Expr, sp.Expr]:
    """A and c with A y - c = 1 at region r and -1 at region r + 1: integers for every r.

    Claim: B-2.1 (ours: the neurons of both keys).

    >>> [sp.expand(x) for x in line()], line(2, bos=False)
    ([4*j**2 + 4*j, 2*j + 1], (15, 4))
    """
    A = sp.simplify(2 / gap(r, bos))
    return A, sp.simplify(A * (position(r, bos) + position(r + 1, bos)) / 2)


def encoder_leak(length: sp.Expr | int = N, temperature: sp.Expr = kappa) -> sp.Expr:
    """How much digits enlarge the encoder's total: the position shrinks by at most this, relative to 2r.

    Claim: B-2.2. Region R keeps its side of both lines while the leak is below 2R/(2R+1), so ln(2N) is enough.

    >>> encoder_leak()
    N*exp(-kappa)
    """
    return length * sp.exp(-temperature)


def share(count: sp.Expr | int = k, bias: sp.Expr | int = B) -> sp.Expr:
    """The bias tokens' share of the decoder's attention with k ones, without leaks.

    Claim: B-2.1: the count is in the ratio.

    >>> share(3, 1)
    1/4
    """
    return sp.sympify(bias) / (count + bias)


def half_gap(count: sp.Expr | int = k, bias: sp.Expr | int = B) -> sp.Expr:
    """Half of the relative distance between the shares of k and k + 1: sqrt((k+B+1)/(k+B)) - 1, about 1/(2(k+B)).

    Claim: B-2.1. The thresholds are geometric means.

    >>> sp.limit(half_gap(k, 1) * (2 * k), k, sp.oo)
    1
    """
    return sp.sqrt((count + bias + 1) / (count + bias)) - 1


def margin(count: sp.Expr | int = k, bias: sp.Expr | int = B) -> sp.Expr:
    """The margin of count k over k - 1 on the staircase with steps 1: it falls like B / (2 k^2).

    Claim: B-2.1 (ours).

    >>> sp.simplify(margin(1, 1)).evalf(4)
    0.2071
    """
    return sp.sqrt(share(count, bias) * share(count - 1, bias)) - share(count, bias)


def confused(count: sp.Expr | int, built_for: sp.Expr | int, present: sp.Expr | int) -> sp.Expr:
    """The count that a readout for `built_for` bias tokens sees where `present` are there: k built_for / present.

    Claim: B-3.4: with bias "]" the regions are the bias tokens, with bias "0" the zeros.

    >>> confused(2, 4, 3)
    8/3
    """
    return sp.sympify(count) * built_for / present


def first_wrong_count(built_for: int, present: int) -> int | None:
    """The smallest count that is answered wrongly where `present` bias tokens are there instead of `built_for`.

    Claim: B-3.4 (Fig. 5, made exact): right means that present/(k + present) lies between the two thresholds of k,
        the geometric means of its share with its neighbours'. None where all counts are right.

    >>> [first_wrong_count(4, present) for present in (1, 2, 3, 4)], first_wrong_count(252, 253)
    ([1, 1, 2, None], 127)
    """
    if built_for == present:
        return None
    count = 0
    while True:
        count += 1
        # share^2 against built_for^2 / ((c + B)(c + B + 1)), in integers
        seen = (count + present) ** 2 * built_for**2
        above = present**2 * (count + built_for) * (count + built_for + 1)
        below = present**2 * (count + built_for) * (count + built_for - 1)
        if not below < seen < above:
            return count


def largest_length(unit: float) -> int:
    """About how far the readout's steps of 1 go: 4 u (2 + ln N) N^2 <= 1/2, so that half of the margin is left.

    Claim: B-2.1 (ours). Geometric steps go further; `verify contextual --precision` finds the exact limit.

    >>> [largest_length(2.0**-p) for p in (24, 53)]
    [503, 7933874]
    """
    low, high = 1, 2
    while _fits(high, unit):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(middle, unit) else (low, middle)
    return low


def _fits(length: int, unit: float) -> bool:
    return bool(4 * unit * (2 + sp.log(length + 1).evalf()) * (length + 1) ** 2 <= 0.5)


def causal_rank(length: int, softmax: bool = False) -> int:
    """The dimension that exact causal scores need: the rank L of the triangle of ones, or L - 1 up to row offsets.

    Claim: B-2.4 (the printed bound is L; softmax ignores row offsets).

    >>> triangle = sp.Matrix([[1 if column <= row else 0 for column in range(6)] for row in range(6)])
    >>> triangle.rank() == causal_rank(6), (triangle - sp.ones(6, 6)).rank() == causal_rank(6, softmax=True)
    (True, True)
    """
    return length - 1 if softmax else length


def neurons(regions: int) -> int:
    """The fewest ReLU neurons between encoder and decoder for so many regions.

    Claim: W-11 (ours): p neurons make a polygon of p + 1 edges, with 2p + 2 vertices.

    >>> [neurons(regions) for regions in (1, 2, 3, 4, 5)]
    [0, 0, 1, 1, 2]
    """
    return max(0, (regions - 1) // 2)


def latex() -> dict[str, str]:
    """The formulas of this page as LaTeX, by name.

    >>> latex()["share"]
    '\\\\frac{B}{B + k}'
    """
    formulas = {"position": position(), "gap": gap(), "share": share(), "half_gap": half_gap(), "margin": margin()}
    return {name: sp.latex(formula) for name, formula in formulas.items()}
