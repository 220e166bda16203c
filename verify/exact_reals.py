"""Exact real numbers of the two kinds that a stored attention model computes.

A number is a rational combination of basis numbers that are linearly independent over the rationals:

* without softmax the basis is 1 and sqrt(d) (only 1 when d is a square);
* with softmax it is e^(x) for distinct rational x, or e^(x / sqrt(d)). These are independent by the
  Lindemann-Weierstrass theorem: exponentials of distinct algebraic numbers are linearly independent
  over the algebraic numbers.

So a combination is zero exactly when all its coefficients are, and every other one has a sign that
enough digits show. That is why no tie stays open.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from flint import arb, ctx, fmpq

# A basis number: a rational x stands for e^(x * unit); the two strings for 1 and sqrt(d).
Key = fmpq | str
ONE, SQRT = "1", "sqrt"


@dataclass(frozen=True)
class Basis:
    """What the keys mean: d under the square root, and whether exponents are multiples of 1 / sqrt(d)."""

    d: int
    exponents_over_root: bool

    def value(self, key: Key) -> arb:
        """A ball around the basis number at the current working precision."""
        if key == ONE:
            return arb(1)
        if key == SQRT:
            return arb(self.d).sqrt()
        exponent = arb(key)
        return (exponent / arb(self.d).sqrt()).exp() if self.exponents_over_root else exponent.exp()


@dataclass(frozen=True)
class Combination:
    """A rational combination of independent basis numbers.

    >>> basis = Basis(2, False)
    >>> x = Combination(basis, {ONE: fmpq(-7), SQRT: fmpq(5)})  # 5 sqrt(2) - 7
    >>> x.sign(), (x - x).sign(), str(x)
    (1, 0, '-7 + 5*sqrt(2)')
    """

    basis: Basis
    terms: dict[Key, fmpq]

    def __add__(self, other: Combination) -> Combination:
        terms = dict(self.terms)
        for key, coefficient in other.terms.items():
            terms[key] = terms[key] + coefficient if key in terms else coefficient
        return Combination(self.basis, terms)

    def __sub__(self, other: Combination) -> Combination:
        return self + other.scaled(fmpq(-1))

    def scaled(self, factor: fmpq) -> Combination:
        return Combination(self.basis, {key: factor * c for key, c in self.terms.items()})

    @property
    def is_zero(self) -> bool:
        return all(c == 0 for c in self.terms.values())

    def ball(self) -> arb:
        """An enclosure at the current working precision."""
        total = arb(0)
        for key, coefficient in self.terms.items():
            total += arb(coefficient) * self.basis.value(key)
        return total

    def sign(self) -> int:
        """-1, 0 or 1; ends because a combination that is not identically zero is not zero."""
        if self.is_zero:
            return 0
        precision = 64
        while True:
            with ctx.workprec(precision):
                ball = self.ball()
                if ball > 0:
                    return 1
                if ball < 0:
                    return -1
            precision *= 2

    def enclosure(self) -> tuple[float, float]:
        """Floats at or below and at or above the number."""
        precision = 128
        while True:
            with ctx.workprec(precision):
                ball = self.ball()
                if self.is_zero or (ball.is_finite() and ball.rel_accuracy_bits() >= 60):
                    return float_below(ball), float_above(ball)
            precision *= 2

    def __str__(self) -> str:
        names: dict[Key, str] = {ONE: "", SQRT: f"*sqrt({self.basis.d})"}
        parts = [
            f"{c}{names[key]}" if key in names else f"{c}*exp({key}{self._over_root})"
            for key, c in sorted(self.terms.items(), key=lambda term: (term[0] != ONE, str(term[0])))
            if c != 0
        ]
        return " + ".join(parts).replace("+ -", "- ") if parts else "0"

    @property
    def _over_root(self) -> str:
        return f"/sqrt({self.basis.d})" if self.basis.exponents_over_root else ""


def square_root_terms(d: int, numerator: fmpq) -> dict[Key, fmpq]:
    """numerator / sqrt(d) in the basis 1, sqrt(d)."""
    root = isqrt(d)
    if root * root == d:
        return {ONE: numerator / root}
    return {SQRT: numerator / d}


def float_below(ball: arb) -> float:
    """A float at or below every number in the ball."""
    return _directed(ball.lower(), -1)


def float_above(ball: arb) -> float:
    """A float at or above every number in the ball."""
    return _directed(ball.upper(), 1)


def _directed(bound: arb, direction: int) -> float:
    import math

    value = float(bound)
    if math.isnan(value):
        return direction * math.inf
    # float() is within one unit in the last place of the exact bound
    return math.nextafter(value, direction * math.inf)
