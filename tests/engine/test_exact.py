"""Floats beside a ball of any size: on the right side of every number in it, and of the sign that is known."""

from fractions import Fraction

import pytest
from flint import arb, ctx

from verify.arithmetic.exact_reals import float_above as above
from verify.arithmetic.exact_reals import float_below as below

SIZES = [Fraction(n) * Fraction(2) ** k for n in (1, -1, 3) for k in (-1200, -1076, -1075, -1074, -1022, 0, 900)]


@pytest.mark.parametrize("x", [*SIZES, Fraction(0)], ids=range(len(SIZES) + 1))
def test_floats_lie_on_their_side(x):
    with ctx.workprec(256):
        ball = arb(x.numerator) / arb(x.denominator)
        assert Fraction(below(ball)) <= x <= Fraction(above(ball))
        assert (below(ball) > 0) <= (x > 0) and (above(ball) <= 0) <= (x <= 0)
