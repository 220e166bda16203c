"""Constant-bit arithmetic: s integer bits, s fractional bits and a sign, rounded after every operation."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from flint import arb, ctx

from constructions.array_parts import in_parts
from constructions.errors import BadInput

MAX_BITS = 12  # B_s has 2s significant bits, and float32, in which the weights are stored, has 24
Ints = np.ndarray[Any, np.dtype[Any]]


def largest_value(s: int) -> Fraction:
    """The largest value B_s = 2^s - 2^-s.

    >>> largest_value(2)
    Fraction(15, 4)
    """
    return Fraction(4**s - 1, 2**s)


def round_to_bits(x: Fraction, s: int) -> Fraction:
    """The representable value nearest to x, a tie going to the smaller magnitude; saturates at B_s.

    Claim: E, Sec. 3.3 (constant-bit precision). The readable reference that `FixedPoint` is tested against.

    >>> [str(round_to_bits(Fraction(x), 1)) for x in ("0.25", "0.26", "-0.75", "9")]
    ['0', '1/2', '-1/2', '3/2']
    """
    steps = abs(x) * 2**s
    down = steps.numerator // steps.denominator
    nearest = down + (steps - down > Fraction(1, 2))
    magnitude = Fraction(min(nearest, 4**s - 1), 2**s)
    return magnitude if x >= 0 else -magnitude


@lru_cache(maxsize=4096)
def exp_to_bits(x: Fraction, s: int) -> Fraction:
    """exp(x) rounded to s bits, decided by balls that shrink until they hold one candidate.

    exp of a rational other than 0 is irrational, so that there are no ties and the loop ends.

    >>> exp_to_bits(Fraction(0), 2), exp_to_bits(-largest_value(2), 2)
    (Fraction(1, 1), Fraction(0, 1))
    """
    if x == 0:
        return round_to_bits(Fraction(1), s)
    if x > s:  # exp(x) > 2^s > B_s, as e > 2
        return largest_value(s)
    precision = 64
    while True:
        before, ctx.prec = ctx.prec, precision
        try:
            ball = (arb(x.numerator) / x.denominator).exp()
            low, high = (_as_fraction(end) for end in (ball.lower(), ball.upper()))
        finally:
            ctx.prec = before
        if round_to_bits(low, s) == round_to_bits(high, s):
            return round_to_bits(low, s)
        precision *= 2


def _as_fraction(end: arb) -> Fraction:
    mantissa, exponent = end.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


@dataclass(frozen=True)
class FixedPoint:
    """The same arithmetic on whole numpy arrays: the integer j stands for the value j 2^-s.

    Claim: E, Sec. 3.3. Every operation is one exact integer operation followed by one rounding.
    Raises: BadInput unless 1 <= s <= 12.

    >>> bits = FixedPoint(2)
    >>> bits.decode(bits.add(bits.encode(np.array([3.0])), bits.encode(np.array([2.0]))))
    array([3.75])
    """

    s: int

    def __post_init__(self) -> None:
        if not isinstance(self.s, int) or isinstance(self.s, bool) or not 1 <= self.s <= MAX_BITS:
            raise BadInput(
                f"s={self.s}: must be a whole number of bits from 1 to {MAX_BITS}, either side of the point. Below, 1 "
                "is no value of the arithmetic; above, its largest value does not fit float32."
            )

    @property
    def one(self) -> int:
        return 1 << self.s

    @cached_property
    def largest(self) -> int:
        return int(4**self.s - 1)

    @cached_property
    def dtype(self) -> type[np.signedinteger[Any]]:
        """The narrowest integers that hold a product of two values and the half added to round it."""
        return np.int16 if self.s <= 3 else np.int32 if self.s <= 7 else np.int64

    def encode(self, x: np.ndarray[Any, Any]) -> Ints:
        """Rounds finite float64 values: |x| 2^s is exact, and less 1/2 too unless it is below 1/2."""
        x = np.asarray(x, dtype=np.float64)
        result: Ints = np.empty(x.shape, self.dtype)
        for part, encoded in zip(in_parts(x), in_parts(result), strict=True):
            steps = np.ceil(np.minimum(np.abs(part), self.one) * self.one - 0.5)  # 2^s, above B_s
            encoded[...] = np.copysign(np.clip(steps, 0, self.largest), part)
        return result

    def decode(self, j: Ints) -> np.ndarray[Any, Any]:
        return np.asarray(j, dtype=np.float64) / self.one

    def add(self, x: Ints, y: Ints) -> Ints:
        """[x + y]_s: the sum of two values is a multiple of 2^-s, so that it only saturates."""
        return self.saturate(x + y)

    def multiply(self, x: Ints, y: Ints) -> Ints:
        """[x y]_s: floor((p + half) / 2^s), less one where p > 0 is a tie, rounds p / 2^s."""
        product = np.asarray(x * y)
        product += self.one // 2
        product -= product > self.one // 2
        product >>= self.s
        return self.saturate(product)

    def divide(self, x: Ints, y: Ints) -> Ints:
        """[x / y]_s for y > 0 (the divisions of softmax and of the scores)."""
        numerator = np.abs(np.asarray(x, dtype=np.int64)) << (self.s + 1)
        magnitude = self.saturate((numerator + y - 1) // (2 * np.asarray(y, dtype=np.int64)))
        return np.where(x < 0, -magnitude, magnitude).astype(self.dtype)

    def saturate(self, x: Ints) -> Ints:
        """Clips in place, and returns, an array that nobody else holds."""
        x = np.asarray(x)
        np.maximum(x, -self.largest, out=x)
        result: Ints = np.minimum(x, self.largest, out=x)
        return result

    def exp(self, x: Ints) -> Ints:
        """[exp(x)]_s, each different value computed once."""
        values, which = np.unique(x, return_inverse=True)
        table = [int(exp_to_bits(Fraction(int(j), self.one), self.s) * self.one) for j in values]
        return np.array(table, dtype=self.dtype)[which].reshape(np.shape(x))

    @cached_property
    def vanishing(self) -> int:
        """The largest j with [exp(j 2^-s)]_s = 0; below -B_s where there is none."""
        low, high = -self.largest - 1, 0
        while high - low > 1:
            middle = (low + high) // 2
            is_zero = exp_to_bits(Fraction(middle, self.one), self.s) == 0
            low, high = (middle, high) if is_zero else (low, middle)
        return low


@dataclass(frozen=True)
class _Term:
    """One product of each column's sum: which rows are read, and their weights, as signs where all are 1, -1 or 0."""

    bits: FixedPoint
    rows: Ints
    weights: Ints
    has_signs: bool

    @classmethod
    def of(cls, bits: FixedPoint, rows: Ints, weights: Ints) -> _Term:
        has_signs = bool(np.isin(weights, (-bits.one, 0, bits.one)).all())
        return cls(bits, rows, np.sign(weights) if has_signs else weights, has_signs)

    def times(self, x: Ints) -> Ints:
        """[x w]_s: exactly x, -x or 0 where w is a sign."""
        read = x[..., self.rows]
        if self.has_signs:
            return read if (self.weights == 1).all() else read * self.weights
        return self.bits.multiply(read, self.weights)


class Affine:
    """x W + b in constant-bit arithmetic, each sum taken left to right and the bias last.

    Terms with a zero weight are skipped: [0 x]_s = 0 and [h + 0]_s = h, so that nothing changes.
    Shapes: W (d, m), b (m,), both integers of `bits`.

    >>> bits = FixedPoint(1)
    >>> x_plus_y_minus_1 = Affine(bits, bits.encode(np.array([[1.0], [1.0]])), bits.encode(np.array([-1.0])))
    >>> bits.decode(x_plus_y_minus_1(bits.encode(np.array([[1.0, 1.0]]))))
    array([[0.5]])
    """

    def __init__(self, bits: FixedPoint, W: Ints, b: Ints | None = None) -> None:
        self.bits, self.outputs = bits, W.shape[1]
        b = np.zeros(W.shape[1], bits.dtype) if b is None else b
        self.columns = np.flatnonzero((W != 0).any(axis=0) | (b != 0))
        self.b = b[self.columns]
        W = W[:, self.columns]
        terms = int((W != 0).sum(axis=0).max(initial=0))
        order = np.argsort(W == 0, axis=0, kind="stable")[:terms]  # the nonzero rows first, in order
        self.terms = [_Term.of(bits, rows, np.take_along_axis(W, rows[None], axis=0)[0]) for rows in order]

    def active(self, x: Ints) -> Ints:
        """The columns that are not identically zero: (..., d) -> (..., len(columns))."""
        total: Ints | None = None
        for each in self.terms:
            term = each.times(x)
            total = term if total is None else self.bits.add(total, term)
        if total is None:
            total = np.zeros((*x.shape[:-1], len(self.columns)), self.bits.dtype)
        return self.bits.add(total, self.b) if self.b.any() else total

    def __call__(self, x: Ints) -> Ints:
        if len(self.columns) == self.outputs:
            return self.active(x)
        result = np.zeros((*x.shape[:-1], self.outputs), self.bits.dtype)
        result[..., self.columns] = self.active(x)
        return result

    def added_to(self, stream: Ints, x: Ints) -> Ints:
        """The residual connection [stream + (x W + b)]_s."""
        result = stream.copy()
        result[..., self.columns] = self.bits.add(stream[..., self.columns], self.active(x))
        return result
