"""Sums of rational multiples of exponentials of rationals: exact arithmetic with a decidable sign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from flint import arb, ctx, fmpq

FIRST_BITS, LAST_BITS = 96, 1 << 22


class Undecided(ArithmeticError):
    """The precision ladder ended before the answer was certain."""


class ExpSum:
    """The real number sum of c e^x over `terms` {x: c}, with x and c rational and no c zero.

    By Lindemann and Weierstrass exponentials of distinct rationals are linearly independent over the
    rationals, so the number is zero exactly when `terms` is empty; otherwise enough bits show its sign.

    >>> e = ExpSum({1: 1})
    >>> ((e + 1) * (e - 1) - e * e + 1).sign(), (e * 1001 - 2721).sign()
    (0, 1)
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Any, Fraction | int]) -> None:
        self.terms = {Fraction(x): Fraction(c) for x, c in terms.items() if c}

    def __add__(self, other: ExpSum | Fraction | int) -> ExpSum:
        out = dict(self.terms)
        for x, c in _as_sum(other).terms.items():
            out[x] = out.get(x, Fraction(0)) + c
        return ExpSum(out)

    def __mul__(self, other: ExpSum | Fraction | int) -> ExpSum:
        if not isinstance(other, ExpSum):
            return ExpSum({x: c * other for x, c in self.terms.items()})
        out: dict[Fraction | int, Fraction | int] = {}
        for x, c in self.terms.items():
            for y, b in other.terms.items():
                out[x + y] = out.get(x + y, 0) + c * b
        return ExpSum(out)

    def __neg__(self) -> ExpSum:
        return self * -1

    def __sub__(self, other: ExpSum | Fraction | int) -> ExpSum:
        return self + (-_as_sum(other))

    def ball(self, bits: int) -> arb:
        """An enclosure computed with this many bits."""
        with ctx.workprec(bits):
            return sum((_rational(c) * _exponential(x, bits) for x, c in self.terms.items()), arb(0))

    def sign(self) -> int:
        """-1, 0 or 1, never a guess. Raises Undecided when the ladder ends first."""
        if not self.terms:
            return 0
        if len({c > 0 for c in self.terms.values()}) == 1:
            return 1 if next(iter(self.terms.values())) > 0 else -1
        for bits in ladder():
            ball = self.ball(bits)
            if ball > 0:
                return 1
            if ball < 0:
                return -1
        raise Undecided(f"the sign of a sum of {len(self.terms)} exponentials needs more than {LAST_BITS} bits")


def ladder() -> Iterable[int]:
    """The precisions to try, doubling."""
    bits = FIRST_BITS
    while bits <= LAST_BITS:
        yield bits
        bits *= 2


def total(sums: Iterable[ExpSum]) -> ExpSum:
    """The sum of many."""
    out = ExpSum({})
    for s in sums:
        out = out + s
    return out


def first_nonpositive(start: ExpSum, slope: ExpSum) -> int | None:
    """The smallest integer k >= 0 with start + k slope <= 0, exactly; None if there is none.

    >>> first_nonpositive(ExpSum({1: 1000}), ExpSum({0: -1}))  # 1000 e = 2718.28...
    2719
    """
    if start.sign() <= 0:
        return 0
    if slope.sign() >= 0:
        return None
    for bits in ladder():
        with ctx.workprec(bits):
            ratio = start.ball(bits) / -slope.ball(bits)
            if not (ratio.is_finite() and ratio.rad() < arb(0.25)):
                continue
            k = max(int(str(ratio.mid().floor().unique_fmpz())) - 1, 0)
        while (start + slope * k).sign() > 0:
            k += 1
        return k
    raise Undecided(f"the quotient of two exponential sums needs more than {LAST_BITS} bits")


def lower_float(ball: arb) -> float:
    """A float not above the ball, except that it may be -inf; finite balls are widened by one step.

    >>> lower_float(arb(3)) <= 3.0
    True
    """
    with ctx.workprec(64):
        low = float(ball.lower())
    return math.nextafter(low, -math.inf) if math.isfinite(low) else -math.inf


def _as_sum(value: ExpSum | Fraction | int) -> ExpSum:
    return value if isinstance(value, ExpSum) else ExpSum({0: value})


def _rational(c: Fraction) -> arb:
    return arb(fmpq(c.numerator, c.denominator))


@lru_cache(maxsize=4096)
def _exponential(x: Fraction, bits: int) -> arb:
    with ctx.workprec(bits):
        return _rational(x).exp()
