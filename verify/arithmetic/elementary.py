"""exp, erf, sin and cos of float64 tensors from +, -, * and tables, each with a proved error: polynomials of
verify.arithmetic.polynomials."""

from __future__ import annotations

from functools import cache
from math import factorial

import torch
from flint import arb, arb_series, ctx, fmpq
from torch import Tensor

from verify.arithmetic.polynomials import (
    BITS,
    LARGEST_EXPONENT,
    SMALLEST_EXPONENT,
    PeriodReduction,
    Polynomial,
    U,
    exp_parts,
    nearest,
    round_up,
    taylor,
    upper,
)
from verify.arithmetic.polynomials import exp_error as exp_error

LARGEST_ANGLE = 2.0**20  # beyond it sine and cosine are only known to lie in [-1, 1]


MOST_POWER = 512


@cache
def _powers() -> Tensor:
    """2^i for -512 <= i <= 512, exactly."""
    return torch.tensor([2.0**i for i in range(-MOST_POWER, MOST_POWER + 1)], dtype=torch.float64)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, exactly, for whole numbers from -512 to 512."""
    return _powers().to(exponent.device)[exponent + MOST_POWER]


def exp(x: Tensor) -> Tensor:
    """e^x for x at most 700 (NaN above), off by exp_error() of its value and by LOST."""
    reduction, polynomial = exp_parts()
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
