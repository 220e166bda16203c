"""Digit addition: the margin of one head, how many digits attention can carry, and what lookahead misses."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

n, B, p, H, d_h = sp.symbols("n B p H d_h", positive=True, integer=True)


def one_head_margin() -> sp.Expr:
    """The margin of the one-head adder with exact weights: half of the unit of U.

    Claim: W-E4.1 (ours).

    >>> one_head_margin().subs({B: 10, n: 5})
    1/200000
    """
    return B**-n / 2


def largest_digits() -> sp.Expr:
    """An upper bound on n for one layer of H heads with d_h values of p bits, whose scores do not depend on digits.

    Claim: W-E4.1 (ours). "The first number, then the second" is one of the orders in which a sum may be taken: after
    the first number the heads hold p H d_h bits, and these must tell B^n numbers apart.

    >>> sp.floor(largest_digits().subs({p: 32, H: 1, d_h: 1, B: 10}))
    9
    """
    return p * H * d_h * sp.log(2) / sp.log(B)


def wrong_answers(digits: int, base: int, lookahead: int) -> int:
    """How many of the B^(2n) pairs are answered wrongly where carries from below the next k columns are not seen.

    Claim: E-4. A digit is wrong iff the k columns below it all sum to B - 1 and the true carry into them is 1.
    The walk over columns keeps the length of the run of B - 1 up to k, and the carry.

    >>> [wrong_answers(5, 10, k) for k in range(6)]
    [9496715625, 1739250000, 135000000, 9000000, 450000, 0]
    """
    below, exactly, above = Fraction(base + 1, 2 * base) - Fraction(1, base), Fraction(1, base), Fraction(0)
    above = 1 - below - exactly
    states = {(0, 0): Fraction(1)}  # run of B - 1 and carry, with all answers right so far
    for _ in range(digits):
        after: dict[tuple[int, int], Fraction] = {}
        for (run, carry), share in states.items():
            if run >= lookahead and carry:
                continue
            ways = ((0, 0, below), (min(run + 1, lookahead), carry, exactly), (0, 1, above))
            for new_run, new_carry, part in ways:
                after[new_run, new_carry] = after.get((new_run, new_carry), Fraction(0)) + share * part
        states = after
    right = sum((share for (run, carry), share in states.items() if not (run >= lookahead and carry)), Fraction(0))
    return int((1 - right) * base ** (2 * digits))
