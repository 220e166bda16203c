"""Taylor polynomials in float64 with a proved error, of arrays and of tensors alike, and exp and erf of arrays.

Nothing is taken on faith from a mathematical library: coefficients and constants come from python-flint balls, and
the error of every evaluation is the sum of three parts that are computed when the table is made: the remainder of the
Taylor polynomial (a ball over the whole interval), the rounding of the coefficients, and the rounding of Horner's
rule. Only IEEE addition, multiplication, rounding to an integer and multiplication by powers of two are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import factorial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from flint import arb, arb_series, ctx, fmpq

from verify.arithmetic.exact_reals import rational
from verify.arithmetic.slack import OF_FEW, Array

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T", Array, "Tensor")  # an array, or a tensor
U = fmpq(1, 2**53)
BITS = 200
SMALLEST_EXPONENT = -700.0  # below it exp is rounded to zero: less than e^-700 < 2^-1000 is lost
LARGEST_EXPONENT = 700.0


def upper(x: arb) -> fmpq:
    """A rational number at least |x|, for every x in the ball."""
    with ctx.workprec(BITS):
        return rational(float(abs(x).upper())) * (1 + 8 * U) + fmpq(1, 2**1000)


def nearest(x: fmpq) -> float:
    return int(x.p) / int(x.q)


def horner_error(coefficients: list[fmpq], t: fmpq, t_error: fmpq) -> fmpq:
    """Bounds the error of Horner's rule on |t| at most `t`, where the argument itself is off by `t_error`.

    p_i = fl(a_i + fl(t p_(i+1))): e_i <= |t| e_(i+1) + u |t p_(i+1)| + u |p_i|, to first order and with |p_i|
    enlarged by its own error; an argument off by t_error moves the result by t_error times the derivative.
    """
    size, error = abs(coefficients[-1]), fmpq(0)
    for a in reversed(coefficients[:-1]):
        product = t * (size + error)
        error = t * error + U * product
        size = abs(a) + t * size
        error += U * (size + error)
    slope = sum((i * abs(a) * (t + t_error) ** (i - 1) for i, a in enumerate(coefficients) if i), fmpq(0))
    return error + t_error * slope


def round_up(x: fmpq) -> float:
    return nearest(x) * (1 + OF_FEW) if x else 0.0


@dataclass(frozen=True)
class Polynomial:
    """Taylor coefficients in float64 and how far Horner's rule with them is off, on |t| <= radius."""

    coefficients: tuple[float, ...]
    error: fmpq

    def __call__(self, t: T) -> T:
        *rest, before, last = self.coefficients
        value = last * t + before
        for a in reversed(rest):
            value = value * t + a
        return value


def taylor(exact: list[fmpq], radius: fmpq, remainder: fmpq, t_error: fmpq) -> Polynomial:
    """The polynomial with these exact coefficients, rounded; |t| <= radius."""
    rounded = [nearest(a) for a in exact]
    rounding = sum(
        (abs(rational(r) - a) * radius**i for i, (r, a) in enumerate(zip(rounded, exact, strict=True))), fmpq(0)
    )
    evaluation = horner_error([rational(r) for r in rounded], radius, t_error)
    return Polynomial(tuple(rounded), remainder + rounding + evaluation)


@dataclass(frozen=True)
class PeriodReduction:
    """x = k period + r by three constants whose sum is the period; the first two times k are exact for |k| < 2^20.

    `error(k)` bounds how far the computed r is off for |k| up to k.
    """

    parts: tuple[float, float, float]
    inverse: float
    left: fmpq

    @classmethod
    def by(cls, period: arb) -> PeriodReduction:
        exact = period.mid().fmpq()
        high = float((exact * 2**31).floor()) / 2**31  # 32 bits or fewer, so that k high is exact
        middle = float(((exact - rational(high)) * 2**63).floor()) / 2**63
        low = nearest(exact - rational(high) - rational(middle))
        left = abs(exact - rational(high) - rational(middle) - rational(low)) + upper(period - period.mid())
        return cls((high, middle, low), nearest(1 / exact), left)

    def __call__(self, x: T) -> tuple[T, T]:
        """k and r."""
        k = (x * self.inverse).round()
        high, middle, low = self.parts
        return k, ((x - k * high) - k * middle) - k * low

    def error(self, k: int, r: fmpq) -> fmpq:
        """Bounds the error of r: three roundings of numbers that are at most 2 r and that of k low.

        The first difference is at most r + k (middle + low) < 2 r, as k middle < 2^-11 for |k| <= 2^20.
        """
        return 3 * U * 2 * r + k * (U * abs(rational(self.parts[2])) * 2 + self.left)


HALF_LOG_2 = fmpq(36, 100)  # r of exp, beyond ln(2)/2 = 0.3466 by what rounding k can add


@cache
def exp_parts() -> tuple[PeriodReduction, Polynomial]:
    """The reduction by ln 2, and e^r as a polynomial in r."""
    with ctx.workprec(BITS):
        reduction = PeriodReduction.by(arb(2).log())
    degree = 13
    exact = [fmpq(1, factorial(i)) for i in range(degree + 1)]
    remainder = 2 * HALF_LOG_2 ** (degree + 1) / factorial(degree + 1)  # e^0.36 < 2
    return reduction, taylor(exact, HALF_LOG_2, remainder, reduction.error(2000, HALF_LOG_2))


def exp_error() -> float:
    """The relative error of `exp`; what is smaller than e^-700 may be lost altogether, less than LOST."""
    return round_up(exp_parts()[1].error / fmpq(69, 100))  # e^-0.36 > 0.69


def exp(x: Array) -> Array:
    """e^x for -700 <= x <= 700 (NaN for others), off by exp_error() of its value.

    >>> exp(np.array([0.0, 701.0])).tolist()
    [1.0, nan]
    """
    is_within = (x >= SMALLEST_EXPONENT) & (x <= LARGEST_EXPONENT)
    reduction, polynomial = exp_parts()
    k, r = reduction(np.where(is_within, x, 0.0))
    return np.where(is_within, np.ldexp(polynomial(r), k.astype(int)), np.nan)


def decay(x: Array) -> Array:
    """e^-x for x of at least 0, off by exp_error() of its value, and by less than LOST: 0 where x is beyond 700."""
    return np.where(x > LARGEST_EXPONENT, 0.0, exp(-np.minimum(x, LARGEST_EXPONENT)))


ERF_END, ERF_STEPS, ERF_DEGREE = 6, 32, 8  # from 6 on erf is 1, off by 2.2e-17


@cache
def erf_parts() -> tuple[Array, float]:
    """Coefficients (degree + 1, intervals) of erf about the middle of each interval, and the largest error."""
    columns, worst = [], fmpq(0)
    radius = fmpq(1, 2 * ERF_STEPS)
    with ctx.workprec(BITS):
        for i in range(ERF_END * ERF_STEPS):
            centre = (2 * i + 1) * radius
            exact = [a.mid().fmpq() for a in _erf_series(arb(centre.numerator) / centre.denominator)]
            interval = arb(nearest(centre), nearest(radius))  # exact: both are whole numbers over a power of two
            last = abs(_erf_series(interval, ERF_DEGREE + 2)[ERF_DEGREE + 1])
            # t = x - centre is exact: both are multiples of the spacing of x, or x is below 1/64 and t is rounded once
            polynomial = taylor(exact, radius, upper(last) * radius ** (ERF_DEGREE + 1), U * radius)
            columns.append(polynomial.coefficients)
            worst = max(worst, polynomial.error + fmpq(1, 2**180))
        worst = max(worst, upper(1 - arb(ERF_END).erf()))
    return np.ascontiguousarray(np.array(columns).T), round_up(worst)


def _erf_series(x: arb, length: int = ERF_DEGREE + 1) -> list[arb]:
    """The first Taylor coefficients of erf at x."""
    with ctx.workprec(BITS):
        series = arb_series([x, 1], prec=length).erf()
        return [series[i] for i in range(length)]


def erf_error() -> float:
    """The absolute error of `erf`."""
    return erf_parts()[1]


def erf(x: Array) -> Array:
    """erf(x), off by at most erf_error().

    >>> erf(np.array([0.0, -7.0])).tolist()
    [0.0, -1.0]
    """
    table, size = erf_parts()[0], np.abs(x)
    i = np.nan_to_num(np.clip(size * ERF_STEPS, 0, ERF_END * ERF_STEPS - 1)).astype(int)  # NaN stays NaN through t
    t = np.minimum(size, ERF_END) - (i + 0.5) * (1 / ERF_STEPS)
    value = table[ERF_DEGREE][i]
    for row in table[-2::-1]:
        value = value * t + row[i]
    value = np.where(size >= ERF_END, 1.0, value)
    return np.where(x < 0, -value, value)
