"""exp, erf, sin and cos of float64 tensors from +, -, * and tables, each with a proved error: polynomials of
verify.arithmetic.polynomials."""

from __future__ import annotations

from functools import cache
from math import factorial

import torch
from flint import arb, ctx, fmpq
from torch import Tensor

from verify.arithmetic.polynomials import (
    BITS,
    ERF_DEGREE,
    ERF_END,
    ERF_STEPS,
    LARGEST_EXPONENT,
    SMALLEST_EXPONENT,
    PeriodReduction,
    Polynomial,
    erf_parts,
    exp_parts,
    round_up,
    taylor,
)
from verify.arithmetic.polynomials import erf_error as erf_error
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


@cache
def _erf() -> Tensor:
    return torch.from_numpy(erf_parts()[0])


def erf(x: Tensor) -> Tensor:
    """erf(x), off by at most erf_error()."""
    table = _erf().to(x.device)
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
