"""Numbers for people, rounded outwards: what is printed of a bound is itself a bound."""

from __future__ import annotations

import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flint import fmpq

Number = int | float | Fraction
DIGITS = 6
PLAIN = range(-5, 16)  # decimal exponents that are written without an e


def decimal(n: int) -> str:
    """The decimal digits of any integer; Python's own str stops at 4300 of them.

    >>> len(decimal(10**5000))
    5001
    """
    from flint import fmpz

    return str(fmpz(n))


def float_at_most(x: fmpq | Fraction) -> float:
    """The largest float64 number that is at most a rational one.

    >>> float_at_most(Fraction(1, 10)) == math.nextafter(0.1, 0), float_at_most(Fraction(1, 10**400))
    (True, 0.0)
    """
    return float_neighbours(x)[0]


def float_at_least(x: fmpq | Fraction) -> float:
    """The smallest float64 number that is at least a rational one."""
    return float_neighbours(x)[1]


def finite(x: float) -> float:
    """The number itself, and the largest or smallest float for an infinity: how a margin beyond all floats is said.

    >>> finite(-math.inf), finite(-0.5)
    (-1.7976931348623157e+308, -0.5)
    """
    return max(-sys.float_info.max, min(x, sys.float_info.max))


def float_neighbours(x: fmpq | Fraction) -> tuple[float, float]:
    """The largest float64 number that is at most a rational one, and the smallest that is at least it.

    >>> float_neighbours(Fraction(1, 2)), float_neighbours(Fraction(-1, 10**400))
    ((0.5, 0.5), (-5e-324, 0.0))
    """
    p, q = int(x.numerator), int(x.denominator)
    try:
        found = p / q + 0.0  # Python rounds a quotient of integers to the nearest
    except OverflowError:
        most = sys.float_info.max
        return (most, math.inf) if p > 0 else (-math.inf, -most)
    n, d = found.as_integer_ratio()
    off = n * q - p * d
    return (
        math.nextafter(found, -math.inf) if off > 0 else found,
        math.nextafter(found, math.inf) if off < 0 else found,
    )


def below(x: Number, digits: int = DIGITS) -> str:
    """The largest number of so many digits that is at most x: how a lower bound is printed.

    >>> below(0.4999998288), below(-0.4999998288), below(0.5), below(float("inf")), below(1e-300)
    ('0.499999', '-0.5', '0.5', 'inf', '1e-300')
    """
    return _written(x, ROUND_FLOOR, digits)


def above(x: Number, digits: int = DIGITS) -> str:
    """The smallest number of so many digits that is at least x: how an upper bound is printed.

    >>> above(0.4999998288), above(Fraction(1, 3)), above(12)
    ('0.5', '0.333334', '12')
    """
    return _written(x, ROUND_CEILING, digits)


def about(x: Number, digits: int = DIGITS) -> str:
    """The nearest number of so many digits, with the word where it is not x itself.

    >>> about(0.5), about(Fraction(1, 3))
    ('0.5', 'about 0.333333')
    """
    low, high = below(x, digits), above(x, digits)
    return low if low == high else f"about {_written(x, ROUND_HALF_EVEN, digits)}"


def value(x: float, exact: str | None = None, digits: int = DIGITS) -> str:
    """A computed value that may differ from x in its last bits: always with the word, unless `exact` is a rational.

    >>> value(0.5), value(0.5, "1/2"), value(0.5, "-19/2 + 59316415/33554432 sqrt(32)"), value(float("inf"))
    ('about 0.5', '0.5', 'about 0.5', 'inf')
    """
    if exact is not None:
        try:
            return about(Fraction(exact), digits)
        except ValueError:  # it has a root
            pass
    return f"about {_written(x, ROUND_HALF_EVEN, digits)}" if abs(x) < float("inf") else _written(x, "", digits)


def _written(x: Number, rounding: str, digits: int) -> str:
    if x != x:
        return "nan"
    if isinstance(x, float) and x in (float("inf"), float("-inf")):
        return "inf" if x > 0 else "-inf"
    exact = Fraction(x)
    context = Context(prec=digits, rounding=rounding, Emin=-(10**9), Emax=10**9)
    value = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    if not value:
        return "0"
    exponent = value.adjusted()
    if exponent in PLAIN:
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa = format(value.scaleb(-exponent, context), "f")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{exponent:+03d}"
