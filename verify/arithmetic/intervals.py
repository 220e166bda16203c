"""Numbers between two ends in float64, rounded outwards: where a sum of products is one-sided, sharper than balls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.outward import float_neighbours
from verify.arithmetic.slack import LEAST, Index, U

Numbers = np.ndarray  # of floats, or of Fractions where it is exact


@dataclass(frozen=True)
class Interval:
    """Arrays of lower and upper ends in float64, rounded outwards; what is exactly zero stays so.

    >>> x = Interval(np.array([0.1, 0.0]), np.array([0.2, 0.0])) @ Interval.exact(np.array([[-1.0, 0.0], [0.0, 5.0]]))
    >>> bool(x.lower[0] <= -0.2 and -0.1 <= x.upper[0]), float(x.lower[1]), float(x.upper[1])
    (True, 0.0, 0.0)
    >>> tiny = Interval(np.array([1e-200]), np.array([2e-200]))
    >>> [bool(part.upper[0] > 0) for part in (tiny * tiny, tiny @ Interval.exact(np.array([[1e-200]])))]
    [True, True]
    """

    lower: Numbers
    upper: Numbers

    @classmethod
    def of(cls, exact: Numbers) -> Interval:
        """Rational numbers, each between its neighbours in float64; an object that stands in many places, once."""
        assert exact.dtype == object
        known = {id(x): x for x in exact.flat}
        found = {key: float_neighbours(x) for key, x in known.items()}
        ends = np.array([found[id(x)] for x in exact.flat]).reshape(*exact.shape, 2)
        return cls(ends[..., 0], ends[..., 1])

    @classmethod
    def exact(cls, x: Numbers) -> Interval:
        return cls(x, x)

    @classmethod
    def between(cls, low: Numbers, high: Numbers) -> Interval:
        return cls(low, high)

    def __getitem__(self, index: Index) -> Interval:
        return Interval(self.lower[index], self.upper[index])

    def __add__(self, other: Interval) -> Interval:
        """Sums. One is exact where a term is 0, and where it is 0 itself, as sums never underflow."""
        low, high = self.lower + other.lower, self.upper + other.upper
        return Interval(
            next_below(low, (low == 0) | (self.lower == 0) | (other.lower == 0)),
            next_above(high, (high == 0) | (self.upper == 0) | (other.upper == 0)),
        )

    def __mul__(self, other: Interval) -> Interval:
        """Products. One is exact where a factor is 0."""
        pairs = [(a, b) for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        ends = [(a * b, (a == 0) | (b == 0)) for a, b in pairs]
        return Interval(
            np.minimum.reduce([next_below(*end) for end in ends]), np.maximum.reduce([next_above(*end) for end in ends])
        )

    def __matmul__(self, by: Interval) -> Interval:
        """Products of rows (..., n) and (..., n, m), by the four products of their positive and negative parts.

        The least of x y over both intervals is least where x has its lower end for y > 0, and so on: with up and down
        the parts of the ends, low = x_low+ y_low+ + x_low- y_high+ + x_high+ y_low- + x_high- y_high-, sign by sign, is
        a lower bound, and likewise the upper one; the 4 n products and their sums are off by gamma of their absolute
        values, and by what the products lose to underflow.
        """
        plus_low, minus_low = np.maximum(self.lower, 0), np.minimum(self.lower, 0)
        plus_high, minus_high = np.maximum(self.upper, 0), np.minimum(self.upper, 0)
        by_up_low, by_down_low = np.maximum(by.lower, 0), np.minimum(by.lower, 0)
        by_up_high, by_down_high = np.maximum(by.upper, 0), np.minimum(by.upper, 0)
        low = plus_low @ by_up_low + minus_low @ by_up_high + plus_high @ by_down_low + minus_high @ by_down_high
        high = plus_high @ by_up_high + minus_high @ by_up_low + plus_low @ by_down_high + minus_low @ by_down_low
        error = self.size @ by.size * (8 * by.lower.shape[-2] + 16) * U + 8 * terms(self.size, by.size) * LEAST
        return Interval(low - error, high + error)

    def inverse_root(self) -> Interval:
        """1 / sqrt(x) of numbers at or above 0."""
        return Interval(1 / np.sqrt(self.upper) * (1 - 8 * U), 1 / np.sqrt(self.lower) * (1 + 8 * U))

    @property
    def size(self) -> Numbers:
        found: Numbers = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return found

    def hull(self, axis: int) -> Interval:
        """The smallest interval that holds all along an axis."""
        return Interval(self.lower.min(axis), self.upper.max(axis))


def next_below(x: Numbers, is_exact: Numbers) -> Numbers:
    """A number below all that one rounded operation stands for: the result's neighbour, or itself where it is exact."""
    return np.where(is_exact, x, np.nextafter(x, -np.inf))


def next_above(x: Numbers, is_exact: Numbers) -> Numbers:
    return np.where(is_exact, x, np.nextafter(x, np.inf))


def terms(x: Numbers, W: Numbers) -> Numbers:
    """How many terms of each sum of x @ W are not 0."""
    found: Numbers = (x != 0).astype(float) @ (W != 0).astype(float)
    return found
