"""Softplus, ELU and what they are made of: logarithms of 1 + x, exponentials less 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from verify.arithmetic import elementary
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, U
from verify.engine.balls import Arithmetic, Ball
from verify.engine.rules.pointwise import ULPS, bounded_exp, log, logistic, slopes, smooth, steepest
from verify.engine.rules.registry import rule

LARGEST_FACTOR = 2.0**10  # of the factors in ELU and softplus: their slopes are then within 2^-40 of what float64 says


def log_of_one_plus(x: Ball) -> Ball:
    """log(1 + x) in real arithmetic; no number where x may be -1 or less."""
    rounding = 2 * U * (1 + x.mid.abs())
    return log(Arithmetic(), Ball(1 + x.mid, (x.radius + rounding) * ENLARGE))


@rule("aten.log1p.default")
def log1p(at: Arithmetic, x: Ball) -> Ball:
    """log(1 + x); no number where x may be -1 or less."""
    found = log_of_one_plus(x)
    return Ball(found.mid, (found.radius + ULPS * at.u * (found.mid.abs() + found.radius) + at.tiny) * ENLARGE)


@rule("aten.expm1.default")
def expm1(at: Arithmetic, x: Ball) -> Ball:
    """e^x - 1; unbounded above e^700."""
    value, rad = bounded_exp(at, x)
    size = (value - 1).abs() + rad
    out = (rad + 2 * U * (value + 1) + ULPS * at.u * size + at.tiny) * ENLARGE
    return Ball(value - 1, at.checked(size, out))


def has_softplus(beta: float = 1, threshold: float = 20) -> bool:
    """Whether `softplus` has a rule for these."""
    return 1 / LARGEST_FACTOR <= beta <= LARGEST_FACTOR and 0 <= threshold <= 700


@rule("aten.softplus.default")
def softplus(at: Arithmetic, x: Ball, beta: float = 1, threshold: float = 20) -> Ball:
    """log(1 + e^(beta x)) / beta, or x where beta x is above the threshold; 0 <= f' <= 1, |f''| <= beta / 4.

    At the threshold f falls to x, by log(1 + e^-threshold) / beta: a ball round it holds both. A dtype's kernel rounds
    beta x, takes exp and log(1 + .), and divides: with y = e^(beta x), y / (1 + y) <= log(1 + y), so that all that is
    off by less than 4 ULPS u f + 2 u |x|; it may overflow in e^(beta x), and then gives no number.
    """
    b, r = float(beta), x.radius
    z = b * x.mid
    tail = log_of_one_plus(exponential_of(-z.abs()))
    # z is off by U of itself, which moves f by as much, divided by beta
    own = (tail.radius + 4 * U * (z.abs() + tail.mid)) / b * ENLARGE + LOST
    reach = (b * r + 4 * (U + at.u) * (z.abs() + b * r)) * ENLARGE + LOST
    is_beyond, may_be = z - reach > threshold, z + reach >= threshold
    fall = math.log1p(math.exp(-threshold)) / b * (1 + 2.0**-20)
    own = at.checked(elementary.exp((z + reach).clamp(max=threshold)) * ENLARGE, own + torch.where(may_be, fall, 0.0))
    share = logistic(z)
    between = slopes(x, share, b / 4, 0.0, 1.0)
    value = torch.where(is_beyond, x.mid, (z.clamp(min=0) + tail.mid) / b)
    slope = torch.where(is_beyond, 1.0, steepest(x, share, b / 4, 1.0))
    between = Ball(torch.where(is_beyond, 1.0, between.mid), torch.where(is_beyond, 0.0, between.radius))
    dtype_error = 4 * ULPS * (value.abs() + r) + 2 * x.size
    return smooth(at, x, value, torch.where(is_beyond, 0.0, own), slope, dtype_error, between)


def exponential_of(x: Tensor) -> Ball:
    """e^x of numbers that are not positive."""
    value = elementary.exp(x)
    return Ball(value, (value * elementary.exp_error() + LOST) * ENLARGE)


def has_elu(alpha: float = 1, scale: float = 1, input_scale: float = 1) -> bool:
    """Whether `elu` has a rule for these."""
    return 0 < input_scale <= LARGEST_FACTOR and max(abs(scale), abs(alpha * scale)) <= LARGEST_FACTOR


@rule("aten.elu.default")
def elu(at: Arithmetic, x: Ball, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Ball:
    """scale x where positive, else alpha scale (e^(input_scale x) - 1)."""
    P, N, k = float(scale), float(alpha) * float(scale), float(input_scale)
    m, r = x.mid, x.radius
    above, below = m - r * ENLARGE > 0, m + r * ENLARGE < 0
    inner = elementary.exp(m.clamp(max=0) * k)
    value = torch.where(m > 0, m * P, (inner - 1) * N)
    # the exponent is off by U of itself, which moves e^x by U / e; then four roundings, that of alpha scale among them
    own = 4 * U * value.abs() + torch.where(m > 0, 0.0, abs(N) * (elementary.exp_error() + 4 * U)) + LOST
    most = max(abs(P), abs(N * k)) * ENLARGE
    where_below = slopes(x, N * k * inner, abs(N) * k * k, min(0.0, N * k), max(0.0, N * k))
    low, high = min(P, 0.0, N * k), max(P, 0.0, N * k)
    between = (high + low) / 2, (high - low) / 2 * ENLARGE + 2.0**-40
    mid = torch.where(above, P, torch.where(below, where_below.mid, between[0]))
    rad = torch.where(above, 0.0, torch.where(below, where_below.radius, between[1]))
    slope = torch.where(above, abs(P), torch.where(below, steepest(x, N * k * inner, abs(N) * k * k, most), most))
    own = at.checked((most * x.size + abs(N)) * ENLARGE, own)
    dtype_error = 2 * ULPS * (value.abs() + most * r + torch.where(above, 0.0, abs(N)))
    return smooth(at, x, value, own, slope, dtype_error, Ball(mid, rad))


def known_factors(name: str, arguments: Sequence[object]) -> bool:
    """Whether an activation has a rule for the Python numbers that it is called with."""
    numbers = cast(Sequence[float], arguments)
    if name == "aten.softplus.default":
        return has_softplus(*numbers)
    return name != "aten.elu.default" or has_elu(*numbers)
