"""Vectorised float64 with a proved error radius: every true value lies within rad of mid.

Every operation follows the one model of rounding in `verify.arithmetic.slack`, for midpoints and radii of any
size. A sum of n products, computed in any order, fused or not, is off by at most n U / (1 - n U) times the sum
of the products' absolute values, which costs one more matrix product, and by LEAST / 2 for each product that is
not exactly zero. Radii are themselves computed in float64 and then enlarged by far more than their own rounding;
where they are subnormal numbers, their sums are exact and a factor above 1 does not lessen them, so that only
their products have something to lose, which the absolute term covers as well.

`Ball.exact` is a door: it replaces a nonzero number below TINY by the ball 0 +- TINY, and one above HUGE by a ball
of infinite radius, which decides nothing. That keeps ordinary models away from the slower branches. No operation
relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, ctx

from verify.arithmetic.exact_reals import float_above
from verify.arithmetic.slack import ENLARGE, FAINT, LEAST, NORMAL, Array, Index, U, gamma

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

    @classmethod
    def between(cls, low: Array, high: Array) -> Ball:
        """Balls that hold all numbers between two ends."""
        with np.errstate(invalid="ignore", over="ignore"):
            mid = np.where(low == high, low, low / 2 + high / 2)
            rad = np.where(low == high, 0.0, np.maximum(high - mid, mid - low) * ENLARGE)
        is_finite = np.isfinite(low) & np.isfinite(high)
        return cls(np.where(is_finite, mid, 0.0), np.where(is_finite, rad, np.inf))

    @classmethod
    def around(cls, numbers: Sequence[arb] | np.ndarray) -> Ball:
        """Balls that hold those of many bits, each round the float nearest its middle."""
        mid = np.array([float(x) for x in numbers])
        return cls(mid, np.array([float_above(abs(x - arb(m))) for x, m in zip(numbers, mid.tolist(), strict=True)]))

    def hull(self, axis: int) -> Ball:
        """Balls that hold what any of the balls along an axis holds: itself where there is one."""
        if self.mid.shape[axis] == 1:
            return Ball(self.mid.take([0], axis).squeeze(axis), self.rad.take([0], axis).squeeze(axis))
        low, high = ends(self)
        return Ball.between(low.min(axis), high.max(axis))

    @property
    def lower(self) -> Array:
        """A lower bound: the difference is rounded to nearest, so that the next number below is not above it."""
        return np.nextafter(self.mid - self.rad, -np.inf)

    @property
    def upper(self) -> Array:
        """An upper bound, as `lower`."""
        return np.nextafter(self.mid + self.rad, np.inf)

    @property
    def magnitude(self) -> Array:
        """An upper bound on the absolute value; a sum that is a subnormal number is exact."""
        return (np.abs(self.mid) + self.rad) * ENLARGE

    @property
    def T(self) -> Ball:
        return Ball(self.mid.T, self.rad.T)

    def __getitem__(self, index: Index) -> Ball:
        return Ball(self.mid[index], self.rad[index])

    def __neg__(self) -> Ball:
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Ball) -> Ball:
        """Sums. One that is inexact is off by at most half a unit of its last place, and U |mid| is not below that."""
        mid = self.mid + other.mid
        return Ball(mid, (self.rad + other.rad + U * np.abs(mid)) * ENLARGE)

    def __sub__(self, other: Ball) -> Ball:
        return self + (-other)

    def __mul__(self, other: Ball) -> Ball:
        mid = self.mid * other.mid
        spread = np.abs(self.mid) * other.rad + self.rad * (np.abs(other.mid) + other.rad)
        rad = (spread + U * np.abs(mid)) * ENLARGE
        # four products may underflow: the midpoint's, the two of the spread, and U |mid|
        return Ball(mid, _with_underflow(rad, self.is_not_zero & other.is_not_zero))

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
        rad = rad * (1 + gamma(2 * n + 8))
        if not _stays_normal(self, other):
            # each term may underflow in the midpoint and in three sums of the radius, and so may the factor gamma
            terms = self.is_not_zero.astype(np.float64) @ other.is_not_zero.astype(np.float64)
            rad = rad + np.where(terms > 0, (4 * terms + 4) * LEAST, 0.0)
        return Ball(mid, rad)

    def __truediv__(self, other: Ball) -> Ball:
        """Quotients; the radius is infinite where the divisor may be zero."""
        size = np.abs(other.mid)
        low = np.where(other.rad == 0, size, np.nextafter(size - other.rad, -np.inf))
        is_safe = low > 0
        low = np.where(is_safe, low, 1.0)
        mid = self.mid / np.where(is_safe, other.mid, 1.0)
        # |x/y - m/n| <= (|x - m| + |m/n| |y - n|) / |y|, and mid is m/n up to rounding: by U |m/n|, and by LEAST
        numerator = self.rad
        if other.rad.any():
            of_divisor = (np.abs(mid) + LEAST) * ENLARGE * other.rad + LEAST
            numerator = self.rad + np.where(other.rad == 0, 0.0, of_divisor)
        rad = (numerator / low + U * np.abs(mid)) * ENLARGE
        # the midpoint, the radius over the divisor, and U |mid| may underflow; zero over anything is zero
        rad = np.where(self.is_not_zero, _with_underflow(rad, self.is_not_zero), 0.0)
        return Ball(mid, np.where(is_safe, rad, np.inf))

    def times_power_of_two(self, factor: float) -> Ball:
        """Products with a power of two: exact, but where they underflow, or overflow and nothing is known of them."""
        mid, rad = self.mid * factor, self.rad * factor
        is_finite = np.isfinite(mid)
        is_exact = (np.abs(mid) >= NORMAL) | (self.mid == 0)
        rad = np.where(is_exact & (self.rad == 0), 0.0, _with_underflow(rad * ENLARGE, self.is_not_zero))
        return Ball(np.where(is_finite, mid, 0.0), np.where(is_finite, rad, np.inf))

    @property
    def is_not_zero(self) -> np.ndarray:
        """Where the number is not exactly zero for sure."""
        result: np.ndarray = (self.mid != 0) | (self.rad != 0)
        return result


def _with_underflow(rad: Array, may: np.ndarray) -> Array:
    """Adds to enlarged radii what up to 128 products and quotients in them lose to underflow, where there `may` be any.

    Where the sum rounds that away again, the radius is so large that what ENLARGE has added to it is more.
    """
    return rad + np.where(may, FAINT, 0.0)


def _stays_normal(x: Ball, y: Ball) -> bool:
    """Whether no product of midpoints or radii of x and y that is not zero underflows, not even times U.

    Proof. Such a product is at least that of the smallest midpoints and radii that are not zero.
    """
    least = [
        min(float(np.abs(part).min(initial=np.inf, where=part != 0)) for part in (ball.mid, ball.rad))
        for ball in (x, y)
    ]
    return least[0] * least[1] > NORMAL / U**2


def _is_exact_product(x: Array, y: Array) -> bool:
    """Whether float64 computes a matrix product without rounding, whatever the order of its sums.

    All terms and partial sums are multiples of one power of two, 2^-100 or more, and below 2^53 times it, so that none
    is rounded and none underflows: no entry has more terms that are not zero than the fullest row of x or column of y.
    The test's own products may be rounded, but not from 2^53 units or more to less; a product of 2^53 + 1 units, 3
    times 3002399751580331, is rounded to 2^53. That no entry is above HUGE makes no bound hold: it ends the test early.
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


def ends(x: Ball) -> tuple[Array, Array]:
    """The ends of balls; the number itself where there is no radius."""
    return np.where(x.rad == 0, x.mid, x.lower), np.where(x.rad == 0, x.mid, x.upper)


def relu(x: Ball) -> Ball:
    """The larger of x and 0: x itself where it is not below 0, exactly 0 where it is not above, else up to its end.

    >>> found = relu(Ball(np.array([2.0, -2.0, 0.0]), np.ones(3)))
    >>> found.mid.round(9).tolist(), found.rad.round(9).tolist()
    ([2.0, 0.0, 0.5], [1.0, 0.0, 0.5])
    """
    low, high = ends(x)
    is_on, is_off = low >= 0, high <= 0
    above = Ball.between(np.zeros_like(high), np.where(is_on | is_off, 0.0, high))
    return Ball(np.where(is_on, x.mid, above.mid), np.where(is_on, x.rad, above.rad))


def point(x: Array) -> Ball:
    """Numbers as they are."""
    return Ball(x, np.zeros_like(x))


def hull(*balls: Ball) -> Ball:
    """Balls that hold what any of the balls holds."""
    lows, highs = zip(*(ends(x) for x in balls), strict=True)
    return Ball.between(np.minimum.reduce(lows), np.maximum.reduce(highs))


def joined(*balls: Ball, axis: int = -1) -> Ball:
    """Balls one after the other along an axis."""
    return Ball(np.concatenate([x.mid for x in balls], axis), np.concatenate([x.rad for x in balls], axis))


def stacked(*balls: Ball, axis: int = 0) -> Ball:
    """Balls of one shape beside each other along a new axis."""
    return Ball(np.stack([x.mid for x in balls], axis), np.stack([x.rad for x in balls], axis))


def reciprocal_sqrt(d: int) -> Ball:
    """1 / sqrt(d): three rounded operations, the first halved by the root, and none for a power of four.

    The result is at least 2^-512, so that none of them underflows.
    """
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
    # |exp(m + r) - exp(m)| <= exp(m) r (1 + r) for 0 <= r <= 1; where mid is used it is at least TINY, so that what
    # ENLARGE adds to 3 U mid is far above what the products with r lose to underflow
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
