"""exp, erf, sin and cos of float64 tensors from +, -, * and tables, each with a proved error.

Nothing is taken on faith from a mathematical library: coefficients and constants come from python-flint balls, and
the error of every evaluation is the sum of three parts that are computed when the table is made: the remainder of the
Taylor polynomial (a ball over the whole interval), the rounding of the coefficients, and the rounding of Horner's
rule. Only IEEE addition, multiplication, rounding to an integer and multiplication by powers of two are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import factorial

import torch
from flint import arb, arb_series, ctx, fmpq
from torch import Tensor

from verify.arithmetic.exact_reals import rational
from verify.arithmetic.slack import OF_FEW

U = fmpq(1, 2**53)
BITS = 200
LARGEST_ANGLE = 2.0**20  # beyond it sine and cosine are only known to lie in [-1, 1]
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

    def __call__(self, t: Tensor) -> Tensor:
        value = torch.full_like(t, self.coefficients[-1])
        for a in reversed(self.coefficients[:-1]):
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

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """k and r."""
        k = torch.round(x * self.inverse)
        high, middle, low = self.parts
        return k, ((x - k * high) - k * middle) - k * low

    def error(self, k: int, r: fmpq) -> fmpq:
        """Bounds the error of r: three roundings of numbers that are at most 2 r and that of k low.

        The first difference is at most r + k (middle + low) < 2 r, as k middle < 2^-11 for |k| <= 2^20.
        """
        return 3 * U * 2 * r + k * (U * abs(rational(self.parts[2])) * 2 + self.left)


HALF_LOG_2 = fmpq(36, 100)  # r of exp, beyond ln(2)/2 = 0.3466 by what rounding k can add


MOST_POWER = 512


@cache
def _powers() -> Tensor:
    """2^i for -512 <= i <= 512, exactly."""
    return torch.tensor([2.0**i for i in range(-MOST_POWER, MOST_POWER + 1)], dtype=torch.float64)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, exactly, for whole numbers from -512 to 512."""
    return _powers().to(exponent.device)[exponent + MOST_POWER]


@cache
def _exp() -> tuple[PeriodReduction, Polynomial]:
    with ctx.workprec(BITS):
        reduction = PeriodReduction.by(arb(2).log())
    degree = 13
    exact = [fmpq(1, factorial(i)) for i in range(degree + 1)]
    remainder = 2 * HALF_LOG_2 ** (degree + 1) / factorial(degree + 1)  # e^0.36 < 2
    return reduction, taylor(exact, HALF_LOG_2, remainder, reduction.error(2000, HALF_LOG_2))


def exp_error() -> float:
    """The relative error of `exp`; what is smaller than e^-700 may be lost altogether, less than LOST."""
    return round_up(_exp()[1].error / fmpq(69, 100))  # e^-0.36 > 0.69


def exp(x: Tensor) -> Tensor:
    """e^x for x at most 700 (NaN above), off by exp_error() of its value and by LOST."""
    reduction, polynomial = _exp()
    k, r = reduction(x.clamp(SMALLEST_EXPONENT - 1, LARGEST_EXPONENT + 1))
    whole = torch.nan_to_num(k).long()
    half = whole // 2
    value = polynomial(r) * power_of_two(half) * power_of_two(whole - half)
    value = torch.where(x < SMALLEST_EXPONENT, torch.zeros_like(value), value)
    return torch.where(x <= LARGEST_EXPONENT, value, torch.full_like(value, torch.nan))


ERF_END, ERF_STEPS, ERF_DEGREE = 6, 32, 8  # from 6 on erf is 1, off by 2.2e-17


@cache
def _erf() -> tuple[Tensor, float]:
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
    return torch.tensor(columns, dtype=torch.float64).T.contiguous(), round_up(worst)


def _erf_series(x: arb, length: int = ERF_DEGREE + 1) -> list[arb]:
    """The first Taylor coefficients of erf at x."""
    with ctx.workprec(BITS):
        series = arb_series([x, 1], prec=length).erf()
        return [series[i] for i in range(length)]


def erf_error() -> float:
    """The absolute error of `erf`."""
    return _erf()[1]


def erf(x: Tensor) -> Tensor:
    """erf(x), off by at most erf_error()."""
    table = _erf()[0].to(x.device)
    size = x.abs()
    i = (size * ERF_STEPS).clamp(0, ERF_END * ERF_STEPS - 1)
    i = torch.nan_to_num(i).floor().long()  # NaN stays NaN through t
    t = size.clamp(max=float(ERF_END)) - (i.double() + 0.5) * (1 / ERF_STEPS)
    value = table[ERF_DEGREE][i]
    for row in range(ERF_DEGREE - 1, -1, -1):
        value = value * t + table[row][i]
    value = torch.where(size >= ERF_END, torch.ones_like(value), value)
    return torch.where(x < 0, -value, value)


QUARTER = fmpq(79, 100)  # r of sine and cosine, beyond pi/4 = 0.7854 by what rounding k can add


@cache
def _circle() -> tuple[PeriodReduction, Polynomial, Polynomial]:
    """Reduction by pi/2, and sine and cosine on |r| <= QUARTER as polynomials in r."""
    with ctx.workprec(BITS):
        reduction = PeriodReduction.by(arb.pi() / 2)
    degree, t_error = 17, reduction.error(2**20, QUARTER)
    remainder = QUARTER ** (degree + 1) / factorial(degree + 1)
    sine = [fmpq((-1) ** (i // 2), factorial(i)) if i % 2 else fmpq(0) for i in range(degree + 1)]
    cosine = [fmpq(0) if i % 2 else fmpq((-1) ** (i // 2), factorial(i)) for i in range(degree + 1)]
    return reduction, taylor(sine, QUARTER, remainder, t_error), taylor(cosine, QUARTER, remainder, t_error)


def circle_error() -> float:
    """The absolute error of `sine` and `cosine` on |x| <= LARGEST_ANGLE."""
    _, sine_r, cosine_r = _circle()
    return round_up(max(sine_r.error, cosine_r.error))


def sine(x: Tensor, quarters: int = 0) -> Tensor:
    """sin(x + quarters pi/2), off by at most circle_error() for |x| <= LARGEST_ANGLE; NaN beyond."""
    reduction, sine_r, cosine_r = _circle()
    k, r = reduction(x)
    quadrant = torch.remainder(k + quarters, 4)
    value = torch.where((quadrant == 1) | (quadrant == 3), cosine_r(r), sine_r(r))
    value = torch.where(quadrant >= 2, -value, value)
    return torch.where(x.abs() <= LARGEST_ANGLE, value, torch.full_like(value, torch.nan))


def cosine(x: Tensor) -> Tensor:
    """cos(x), off by at most circle_error() for |x| <= LARGEST_ANGLE; NaN beyond."""
    return sine(x, 1)
