"""Exact real numbers of the kinds that a stored attention model computes, each with a decidable sign.

A number is a rational combination of basis numbers that are linearly independent over the rationals:

* without softmax the basis is 1 and sqrt(d) (only 1 when d is a square);
* with softmax it is e^(x) for distinct rational x, or e^(x / sqrt(d)). These are independent by the
  Lindemann-Weierstrass theorem: exponentials of distinct algebraic numbers are linearly independent
  over the algebraic numbers. Such combinations can be multiplied: e^x e^y = e^(x + y).

So a combination is zero exactly when all its coefficients are, and every other one has a sign that
enough digits show. That is why no tie stays open.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from flint import arb, ctx, fmpq

# A basis number: a rational x stands for e^(x * unit), and so 0 for 1; the string for sqrt(d).
Key = fmpq | str
ONE, SQRT = fmpq(0), "sqrt"

Number = fmpq | Fraction | int | float
LAST_BITS = 1 << 22  # of a quotient; signs need no limit


class Undecided(ArithmeticError):
    """An answer could not be shown within the limits on precision."""


def rational(x: Number) -> fmpq:
    """The exact value of a number.

    >>> rational(0.5), rational(Fraction(1, 3))
    (1/2, 1/3)
    """
    return x if isinstance(x, fmpq) else fmpq(*x.as_integer_ratio())


def precisions() -> Iterator[int]:
    """Bits to try, doubling without end."""
    bits = 64
    while True:
        yield bits
        bits *= 2


@dataclass(frozen=True)
class Basis:
    """The numbers that keys stand for: d under the square root, and whether exponents are multiples of 1 / sqrt(d)."""

    d: int
    exponents_over_root: bool

    def value(self, key: Key, bits: int) -> arb:
        """A ball around the basis number; all of them are positive."""
        with ctx.workprec(bits):
            if isinstance(key, str):
                return arb(self.d).sqrt()
            return _exponential(key, self.d if self.exponents_over_root else 1, bits)


@lru_cache(maxsize=4096)
def _exponential(x: fmpq, d: int, bits: int) -> arb:
    """A ball around e^(x / sqrt(d))."""
    with ctx.workprec(bits):
        return (arb(x) if d == 1 else arb(x) / arb(d).sqrt()).exp()


EXPONENTIALS = Basis(1, exponents_over_root=False)


def exponentials(terms: Mapping[int, Number] | Mapping[Fraction, Number]) -> Combination:
    """The sum of c e^x over `terms` {x: c}, with x and c rational.

    >>> e = exponentials({1: 1})
    >>> ((e + 1) * (e - 1) - e * e + 1).sign(), (e * 1001 - 2721).sign()
    (0, 1)
    """
    return _collected(EXPONENTIALS, ((rational(x), rational(c)) for x, c in terms.items()))


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

    def __add__(self, other: Combination | Number) -> Combination:
        return total([self, self._as_combination(other)])

    def __sub__(self, other: Combination | Number) -> Combination:
        return self + self._as_combination(other).scaled(fmpq(-1))

    def __neg__(self) -> Combination:
        return self.scaled(fmpq(-1))

    def __mul__(self, other: Combination | Number) -> Combination:
        """A rational multiple, or the product of two combinations of exponentials."""
        if not isinstance(other, Combination):
            return self.scaled(rational(other))
        if other.is_rational or self.is_rational:
            x, y = (self, other) if other.is_rational else (other, self)
            return x.scaled(y.terms.get(ONE, fmpq(0)))
        products = (((x, y), c * b) for x, c in self.terms.items() for y, b in other.terms.items())
        return _collected(self.basis, ((_sum_of_exponents(*xy), c) for xy, c in products))

    def scaled(self, factor: fmpq) -> Combination:
        if factor == 1:
            return self
        return Combination(self.basis, {key: factor * c for key, c in self.terms.items()} if factor != 0 else {})

    def _as_combination(self, value: Combination | Number) -> Combination:
        return value if isinstance(value, Combination) else Combination(self.basis, {ONE: rational(value)})

    @property
    def is_zero(self) -> bool:
        return all(c == 0 for c in self.terms.values())

    @property
    def is_rational(self) -> bool:
        """Whether no basis number but 1 is in it, so that it is a number of every basis."""
        return all(key == ONE for key in self.terms)  # a hash of fmpq costs more than comparing a few

    def ball(self, bits: int) -> arb:
        """An enclosure computed with this many bits."""
        with ctx.workprec(bits):
            return sum((arb(c) * self.basis.value(key, bits) for key, c in self.terms.items()), arb(0))

    def __lt__(self, other: Combination) -> bool:
        return (self - other).sign() < 0

    def sign(self) -> int:
        """-1, 0 or 1; ends because a combination that is not identically zero is not zero."""
        signs = {1 if c > 0 else -1 for c in self.terms.values() if c != 0}
        if len(signs) < 2:
            return signs.pop() if signs else 0
        balls = (self.ball(bits) for bits in precisions())
        return next(1 if ball > 0 else -1 for ball in balls if ball > 0 or ball < 0)

    def enclosure(self) -> tuple[float, float]:
        """The largest float at or below the number, and the smallest one at or above it."""
        precision = 128
        while True:
            ball = self.ball(precision)
            if self.is_zero or (ball.is_finite() and ball.rel_accuracy_bits() >= 60):
                with ctx.workprec(precision):
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


def _sum_of_exponents(x: Key, y: Key) -> fmpq:
    if isinstance(x, str) or isinstance(y, str):
        raise TypeError("only combinations of exponentials are multiplied")
    return x + y


def _collected(basis: Basis, terms: Iterable[tuple[Key, fmpq]]) -> Combination:
    """The combination of these terms, equal keys joined and zeros dropped."""
    joined: dict[Key, fmpq] = {}
    for key, c in terms:
        before = joined.get(key)
        joined[key] = c if before is None else before + c
    has_zero = any(c == 0 for c in joined.values())
    return Combination(basis, {key: c for key, c in joined.items() if c != 0} if has_zero else joined)


def total(summands: Iterable[Combination]) -> Combination:
    """The sum of many combinations, all of one basis but for rational ones.

    Raises: TypeError for numbers of two bases.

    >>> str(total([exponentials({1: 2}), exponentials({1: -2, 0: 1})]))
    '1'
    """
    parts = list(summands)
    bases = {x.basis for x in parts if not x.is_rational}
    if len(bases) > 1:
        raise TypeError("numbers of two bases are not added: their sum may have no decidable sign")
    basis = bases.pop() if bases else parts[0].basis if parts else EXPONENTIALS
    return _collected(basis, (term for x in parts for term in x.terms.items()))


def first_nonpositive(start: Combination, slope: Combination) -> int | None:
    """The smallest integer k >= 0 with start + k slope <= 0, exactly; None if there is none.

    Raises: Undecided when k has more than 2^22 bits.

    >>> first_nonpositive(exponentials({1: 1000}), exponentials({0: -1}))  # 1000 e = 2718.28...
    2719
    """
    if start.sign() <= 0:
        return 0
    if slope.sign() >= 0:
        return None
    k = max(_floor_to_one(start, -slope) - 1, 0)
    while (start + slope * k).sign() > 0:
        k += 1
    return k


def _floor_to_one(x: Combination, y: Combination) -> int:
    """The floor of x / y for positive x and y, up to one."""
    for bits in precisions():
        with ctx.workprec(bits):
            ratio = x.ball(bits) / y.ball(bits)
            if ratio.is_finite() and ratio.rad() < arb(0.25):
                floor = ratio.mid().floor().unique_fmpz()
                assert floor is not None, "the floor of an exact number is an integer"
                return int(floor)
        if bits >= LAST_BITS:
            break
    raise Undecided(f"a limit on the counts is a number of more than {LAST_BITS} bits")


def square_root_terms(d: int, numerator: fmpq) -> dict[Key, fmpq]:
    """numerator / sqrt(d) in the basis 1, sqrt(d)."""
    root = math.isqrt(d)
    if root * root == d:
        return {ONE: numerator / root}
    return {SQRT: numerator / d}


def float_below(ball: arb) -> float:
    """A float at or below every number in the ball: positive only if all of them are; -inf without a bound.

    The end of the ball is rounded outwards to the bits of the context first. With more than 53 it is the largest float.

    >>> 2.9 < float_below(arb(3)) <= 3.0 <= float_above(arb(3)) < 3.1
    True
    """
    low = ball.lower()
    found = float(low)  # within one unit in the last place
    if math.isnan(found):
        return -math.inf
    return math.nextafter(found, -math.inf) if arb(found) > low else found


def float_above(ball: arb) -> float:
    """A float at or above every number in the ball: with more than 53 bits in the context the smallest one."""
    return 0.0 - float_below(-ball)


def float_of(ball: arb) -> float:
    """The float nearest the middle of a ball, and the largest or smallest float where that is beyond them all.

    >>> float_of(arb("-1e400")), float_of(arb(3))
    (-1.7976931348623157e+308, 3.0)
    """
    largest = sys.float_info.max
    return max(-largest, min(float(ball.mid()), largest))
