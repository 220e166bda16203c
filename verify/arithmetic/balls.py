"""Vectorised float64 with a proved error radius: every true value lies within rad of mid.

Rounding to nearest has relative error at most U = 2^-53 as long as nothing underflows, so a sum of n
products computed in any order, fused or not, is off by at most n U / (1 - n U) times the sum of the
products' absolute values. That costs one more matrix product. Radii are themselves computed in float64
and then enlarged by far more than their own rounding.

Underflow is kept out at the door: a nonzero number smaller than TINY is replaced by the ball 0 +- TINY.
What remains on the way to a logit are products of at most eleven factors of at least 2^-60 and of
differences of such products, which are at least 2^-53 times their terms, so that nothing that is not zero
comes near 2^-1022. Numbers above HUGE get an infinite radius, which decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, ctx

from verify.arithmetic.slack import ENLARGE, Array, U, gamma

TINY = 2.0**-60
HUGE = 2.0**100
PROBED = 64  # entries, before all of a matrix are looked at
LEAST_UNIT = -50  # exponent: matrices of finer entries are seldom multiplied exactly


@dataclass(frozen=True)
class Ball:
    """Arrays of midpoints and radii.

    >>> x = Ball.exact(np.array([0.1, 3.0]))
    >>> y = x * x
    >>> bool(y.lower[0] <= 0.01 <= y.upper[0]), float(y.mid[1])
    (True, 9.0)
    """

    mid: Array
    rad: Array

    @classmethod
    def exact(cls, x: Array | float) -> Ball:
        """Balls of radius zero, except where the number is too small or too large for this arithmetic."""
        x = np.asarray(x, dtype=np.float64)
        size = np.abs(x)
        tiny = (size > 0) & (size < TINY)
        rad = np.where(tiny, TINY, np.where(size <= HUGE, 0.0, np.inf))
        return cls(np.where(tiny, 0.0, x), rad)

    @property
    def lower(self) -> Array:
        return np.nextafter(self.mid - self.rad, -np.inf)

    @property
    def upper(self) -> Array:
        return np.nextafter(self.mid + self.rad, np.inf)

    @property
    def magnitude(self) -> Array:
        """An upper bound on the absolute value."""
        return (np.abs(self.mid) + self.rad) * ENLARGE

    @property
    def T(self) -> Ball:
        return Ball(self.mid.T, self.rad.T)

    def __getitem__(self, index: Any) -> Ball:
        return Ball(self.mid[index], self.rad[index])

    def __neg__(self) -> Ball:
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Ball) -> Ball:
        mid = self.mid + other.mid
        return Ball(mid, (self.rad + other.rad + U * np.abs(mid)) * ENLARGE)

    def __sub__(self, other: Ball) -> Ball:
        return self + (-other)

    def __mul__(self, other: Ball) -> Ball:
        mid = self.mid * other.mid
        spread = np.abs(self.mid) * other.rad + self.rad * (np.abs(other.mid) + other.rad)
        return Ball(mid, (spread + U * np.abs(mid)) * ENLARGE)

    def __matmul__(self, other: Ball) -> Ball:
        n = self.mid.shape[-1]
        mid = self.mid @ other.mid
        if not (self.rad.any() or other.rad.any()) and _is_exact_product(self.mid, other.mid):
            return Ball(mid, np.zeros(mid.shape))
        size, other_size = np.abs(self.mid), np.abs(other.mid)
        rad = gamma(n + 2) * (size @ other_size)
        if other.rad.any():
            rad = rad + size @ other.rad
        if self.rad.any():
            rad = rad + self.rad @ (other_size + other.rad)
        # gamma(n + 2) also covers the rounding inside these products, whose terms are all positive
        return Ball(mid, rad * (1 + gamma(2 * n + 8)))

    def __truediv__(self, other: Ball) -> Ball:
        """Quotients; the radius is infinite where the divisor may be zero."""
        low = np.nextafter(np.abs(other.mid) - other.rad, -np.inf)
        is_safe = low > TINY**3
        low = np.where(is_safe, low, 1.0)
        mid = self.mid / np.where(is_safe, other.mid, 1.0)
        # |x/y - m/n| <= (|x - m| + |m/n| |y - n|) / |y|, and mid is m/n up to rounding
        spread = (self.rad + np.abs(mid) * ENLARGE * other.rad) / low
        return Ball(mid, np.where(is_safe, (spread + U * np.abs(mid)) * ENLARGE, np.inf))

    def times_power_of_two(self, factor: float) -> Ball:
        return Ball(self.mid * factor, self.rad * factor)


def _is_exact_product(x: Array, y: Array) -> bool:
    """Whether float64 computes a matrix product without rounding, whatever the order of its sums.

    All terms and partial sums are multiples of one power of two, and below 2^53 times it: no entry has more terms that
    are not zero than the fullest row of x or column of y. The test's own products may be rounded, but not from 2^53
    units or more to less; a product of 2^53 + 1 units, 3 times 3002399751580331, is rounded to 2^53.
    """
    if x.ndim != 2 or y.ndim != 2 or not x.size or not y.size:
        return False
    unit, largest, terms = 0, 1.0, x.shape[1]
    for factor, axis in ((x, 1), (y, 0)):
        entries = factor[factor != 0]
        if not len(entries):
            return False  # nothing is gained, and the other factor may hold inf
        most = float(np.abs(entries).max())
        if not most < HUGE or _unit(entries[:PROBED]) < LEAST_UNIT:
            return False
        unit, largest = unit + _unit(entries), largest * most
        terms = min(terms, int(np.count_nonzero(factor, axis=axis).max()))
    return unit >= 2 * LEAST_UNIT and terms * largest < 2.0 ** (53 + unit)


def _unit(x: Array) -> int:
    """The largest e such that all of these numbers, none of them zero, are multiples of 2^e."""
    mantissa, exponent = np.frexp(x)
    integer = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    return int((exponent - 53 + lowest).min())


def stack_last(*balls: Ball) -> Ball:
    """Joins balls along their last axis."""
    return Ball(
        np.concatenate([ball.mid for ball in balls], axis=-1),
        np.concatenate([ball.rad for ball in balls], axis=-1),
    )


def reciprocal_sqrt(d: int) -> Ball:
    """1 / sqrt(d): two correctly rounded operations, and none is needed for a power of four."""
    root = float(np.sqrt(float(d)))
    value = 1.0 / root
    is_exact = d & (d - 1) == 0 and d.bit_length() % 2 == 1
    return Ball(np.asarray(value), np.asarray(0.0 if is_exact else 3 * U * value))


def exponential(x: Ball) -> Ball:
    """exp of arguments that are at most about 0; values below TINY become the ball 0 +- TINY.

    Each midpoint's exponential is a python-flint ball; equal midpoints are computed once.
    """
    unique, inverse = np.unique(x.mid, return_inverse=True)
    values = np.array([_exponential(float(m)) for m in unique])
    mid = values[inverse].reshape(x.mid.shape)
    # |exp(m + r) - exp(m)| <= exp(m) r (1 + r) for 0 <= r <= 1
    spread = np.where(x.rad <= 1, x.rad * (1 + x.rad), np.inf)
    rad = (mid * spread + 3 * U * mid) * ENLARGE
    too_small = mid < TINY
    reaches = np.where(x.rad <= 1, TINY * 3, np.inf)  # e^1 TINY < 3 TINY
    return Ball(np.where(too_small, 0.0, mid), np.where(too_small, reaches, rad))


def _exponential(m: float) -> float:
    """exp(m) to within 3 U relative; 0.0 stands for anything below TINY, NaN for arguments out of range."""
    if not m <= 64.0:
        return float("nan")
    if m < -64.0:
        return 0.0
    with ctx.workprec(96):
        ball = arb(m).exp()
        if ball.rel_accuracy_bits() < 80:
            return float("nan")
        return float(ball)
