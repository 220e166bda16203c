"""Numbers between two ends in float64, rounded outwards: where a sum of products is one-sided, sharper than balls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.slack import LEAST, U

Numbers = np.ndarray[Any, Any]  # of floats, or of Fractions where it is exact


@dataclass(frozen=True)
class Interval:
    """Arrays of lower and upper ends in float64, rounded outwards; what is exactly zero stays so.

    >>> x = Interval(np.array([0.1, 0.0]), np.array([0.2, 0.0])) @ np.array([[-1.0, 0.0], [0.0, 5.0]])
    >>> bool(x.low[0] <= -0.2 and -0.1 <= x.high[0]), float(x.low[1]), float(x.high[1])
    (True, 0.0, 0.0)
    >>> tiny = Interval(np.array([1e-200]), np.array([2e-200]))
    >>> [bool(part.high[0] > 0) for part in (tiny * tiny, tiny @ np.array([[1e-200]]))]
    [True, True]
    """

    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, exact: Numbers) -> Interval:
        """Fractions, each between its neighbours in float64."""
        ends = np.array([(float_at_most(x), float_at_least(x)) for x in exact.flat]).reshape(*exact.shape, 2)
        return cls(ends[..., 0], ends[..., 1])

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.low[index], self.high[index])

    def __add__(self, other: Interval) -> Interval:
        low, high = self.low + other.low, self.high + other.high
        return Interval(outward(low, low == 0).low, outward(high, high == 0).high)

    def __mul__(self, other: Interval) -> Interval:
        ends = [outward(a * b, (a == 0) | (b == 0)) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(np.minimum.reduce([x.low for x in ends]), np.maximum.reduce([x.high for x in ends]))

    def __matmul__(self, W: Numbers) -> Interval:
        """The product with exact float64 numbers over the last axis: of n terms that are not 0 each may underflow."""
        up, down = np.maximum(W, 0), np.minimum(W, 0)
        low, high = self.low @ up + self.high @ down, self.high @ up + self.low @ down
        error = self.size @ np.abs(W) * (2 * len(W) + 8) * U + 2 * terms(self.size, W) * LEAST
        return Interval(low - error, high + error)

    @property
    def size(self) -> Numbers:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def is_zero(self) -> bool:
        return not self.size.any()

    def hull(self, axis: int) -> Interval:
        """The smallest interval that holds all along an axis."""
        return Interval(self.low.min(axis), self.high.max(axis))


def outward(x: Numbers, is_exact: Numbers) -> Interval:
    """What one rounded operation stands for: the result's neighbours, or itself where it is exact.

    A sum is exact where it is 0, as sums never underflow, and a product where a factor is.
    """
    return Interval(np.where(is_exact, x, np.nextafter(x, -np.inf)), np.where(is_exact, x, np.nextafter(x, np.inf)))


def terms(x: Numbers, W: Numbers) -> Numbers:
    """How many terms of each sum of x @ W are not 0."""
    found: Numbers = (x != 0).astype(float) @ (W != 0).astype(float)
    return found


def weighted(x: Interval, by: Interval) -> Interval:
    """x @ by for intervals: (..., n) and (n, m), by the four products of their positive and negative parts.

    The least of x y over both intervals is least where x has its lower end for y > 0, and so on: with up and down the
    parts of the ends, low = x_low+ y_low+ + x_low- y_high+ + x_high+ y_low- + x_high- y_high-, sign by sign, is a lower
    bound, and likewise the upper one; the 4 n products and their sums are off by gamma of their absolute values, and by
    what the products lose to underflow.
    """
    plus_low, minus_low = np.maximum(x.low, 0), np.minimum(x.low, 0)
    plus_high, minus_high = np.maximum(x.high, 0), np.minimum(x.high, 0)
    by_up_low, by_down_low = np.maximum(by.low, 0), np.minimum(by.low, 0)
    by_up_high, by_down_high = np.maximum(by.high, 0), np.minimum(by.high, 0)
    low = plus_low @ by_up_low + minus_low @ by_up_high + plus_high @ by_down_low + minus_high @ by_down_high
    high = plus_high @ by_up_high + minus_high @ by_up_low + plus_low @ by_down_high + minus_low @ by_down_low
    error = x.size @ by.size * (8 * by.low.shape[0] + 16) * U + 8 * terms(x.size, by.size) * LEAST
    return Interval(low - error, high + error)
