"""The size of the circuit transformer, and the precision that its proof needs, as formulas."""

from __future__ import annotations

import sympy

n, T, s, k = sympy.symbols("n T s k", positive=True, integer=True)

FLOAT32_SIGNIFICAND = 24
FLOAT32_VANISHING = 150  # exp(x) < 2^-150, half the smallest subnormal, is rounded to 0


def address_bits() -> sympy.Expr:
    """k, the bits of a position's number: positions are 1..n+T-1.

    Claim: E-3.4.

    >>> address_bits().subs({n: 32, T: 4736})
    13
    """
    return sympy.ceiling(sympy.log(T + n, 2))


def width() -> sympy.Expr:
    """The embedding size: token, two retrieved tokens, result, gate type, three addresses, and a one.

    Claim: E-3.4.

    >>> width().subs(k, 13)
    45
    """
    return 3 * k + 6


def largest_value() -> sympy.Expr:
    """B_s, the largest number of s integer and s fractional bits.

    >>> largest_value().subs(s, 2)
    15/4
    """
    return 2**s - sympy.Integer(2) ** (-s)


def dead_scores_vanish() -> sympy.Rel:
    """[exp(-B_s)]_s = 0: exp(-B_s) is at most half a step, a tie going to 0. True for every s >= 1.

    Claim: E-3.4, "we will use the fact that".

    >>> [bool(dead_scores_vanish().subs(s, value)) for value in range(4)]
    [False, True, True, True]
    """
    return sympy.Le(sympy.exp(-largest_value()), sympy.Integer(2) ** (-s - 1))


def gate_sum_fits() -> sympy.Rel:
    """x_a + x_b + c = 3 does not saturate, so that subtracting 2 leaves 1 for AND of two ones.

    For s = 1 it stops at B_1 = 3/2, the bias -2 at -3/2, and AND of two ones is 0.

    >>> [bool(gate_sum_fits().subs(s, value)) for value in range(1, 4)]
    [False, True, True]
    """
    return sympy.Ge(largest_value(), 3)


def required_bits(has_reachable_and: bool = True) -> int:
    """The smallest s: 2 when some input makes both inputs of some AND gate 1, else 1.

    Claim: E-3.4, where s is "some constant"; the smallest is ours.

    >>> required_bits(), required_bits(has_reachable_and=False)
    (2, 1)
    """
    conditions = [dead_scores_vanish()] + ([gate_sum_fits()] if has_reachable_and else [])
    return next(value for value in range(1, 64) if all(condition.subs(s, value) for condition in conditions))


def exact_in_float32() -> sympy.Rel:
    """When the same weights run in float32 with no rounding at all, in every order of summation.

    Every partial sum of a score is a multiple of 2^-s below 2k 2^s, which 24 bits hold; one wrong address
    bit costs 2 B_s there (nothing saturates), and exp(-2 B_s) must underflow to 0.

    >>> [value for value in range(1, 13) if exact_in_float32().subs({s: value, k: 13})]
    [6, 7, 8, 9]
    """
    fits = sympy.Le(2 * k * 4**s, 2**FLOAT32_SIGNIFICAND)
    return sympy.And(fits, sympy.Gt(2 * largest_value(), FLOAT32_VANISHING * sympy.log(2)))
