"""Operations rounded to nearest, ties to even, in any binary format, on whole float64 arrays.

The numbers of a format are float64 numbers. A result is computed as a float64 number and what float64 rounded away
(error-free transformations), and is then rounded once: p = 52 is as exact as p = 2. Rounding a float64 result
alone would round twice.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.slack import Array

FLOAT64 = FORMATS["float64"]
CASTS = {FORMATS["float32"]: np.float32, FORMATS["float16"]: np.float16}  # as IEEE 754 rounds, once and to even
SPLITTER = 2.0**27 + 1  # Veltkamp: cuts a significand into halves of 26 bits
SAFE = 2.0**900  # where all numbers are below it and a product is above its inverse, float64 errors are exact


def rounded(x: Array, fmt: Format, rest: Array | float = 0.0) -> Array:
    """x + rest rounded once to the format, where x is the float64 number nearest to x + rest.

    Of `rest` only the sign matters, and only where x is half-way between two numbers of the format.

    >>> half_way = np.array([1 + 2.0**-11])
    >>> [rounded(half_way, FORMATS["float16"], rest).item() for rest in (0.0, 1e-30)]
    [1.0, 1.0009765625]
    """
    x = np.asarray(x, dtype=np.float64)
    if fmt is FLOAT64:
        return x
    if fmt in CASTS and np.ndim(rest) == 0 and not rest:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return x.astype(CASTS[fmt]).astype(np.float64)
    magnitude = np.abs(x)
    result = _at_precision(x, fmt.p, rest)
    is_subnormal = (magnitude < fmt.tiny) & (x != 0)
    if is_subnormal.any():
        result[is_subnormal] = _on_grid(x[is_subnormal], fmt, np.broadcast_to(rest, x.shape)[is_subnormal])
    if magnitude.max(initial=0.0) < fmt.largest:  # all are finite numbers, and none grows beyond it
        return result
    beyond = fmt.largest if fmt.saturates else np.inf
    result = np.where(np.isnan(x), x, result)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(result) > fmt.largest, np.copysign(beyond, x), result)


def _at_precision(x: Array, p: int, rest: Array | float) -> Array:
    """x + rest rounded to p significand bits, whatever its exponent; anything where x is NaN.

    The bits of a float64 number, read as a whole number, grow with its magnitude, and a carry out of the significand is
    the next exponent. So a half less one, added below the last bit that stays, carries where the bits below it are more
    than a half; one more carries a half as well, which is due where the last bit is odd or `rest` points outwards.
    """
    dropped = FLOAT64.p - p
    if not dropped:
        return x.copy()
    bits = x.view(np.int64)
    carries_half = (bits >> dropped) & 1
    if np.ndim(rest) or rest:
        inwards_or_even = np.where(np.asarray(rest) < 0, x < 0, carries_half)
        carries_half = np.where(np.asarray(rest) > 0, x > 0, inwards_or_even)
    carries_half = carries_half + ((1 << (dropped - 1)) - 1)
    carries_half += bits
    carries_half &= -(1 << dropped)
    return np.asarray(carries_half).view(np.float64)


def _on_grid(x: Array, fmt: Format, rest: Array) -> Array:
    """x + rest rounded to a multiple of the smallest subnormal, with the sign of x."""
    quantum = fmt.smallest_exponent - (fmt.p - 1)
    steps = np.ldexp(x, -quantum)
    is_half_way = np.abs(steps - np.trunc(steps)) == 0.5
    nearest = np.rint(steps)
    nearest = np.where(is_half_way & (rest > 0), np.ceil(steps), nearest)
    nearest = np.where(is_half_way & (rest < 0), np.floor(steps), nearest)
    return np.copysign(np.ldexp(nearest, quantum), x)


def flushed(x: Array, fmt: Format) -> Array:
    """Subnormal numbers replaced by the zero of their sign."""
    return np.where(np.abs(x) < fmt.tiny, np.copysign(0.0, x), x)


def add(x: Array, y: Array, fmt: Format) -> Array:
    """x + y rounded once."""
    total, rest = two_sum(x, y)
    return rounded(total, fmt, rest)


def multiply(x: Array, y: Array, fmt: Format) -> Array:
    """x y rounded once."""
    if fmt is FLOAT64 or 2 * fmt.p <= FLOAT64.p:
        return rounded(x * y, fmt)
    product, rest = two_product(x, y)
    return rounded(product, fmt, rest)


def divide(x: Array, y: Array, fmt: Format) -> Array:
    """x / y rounded once: the sign of the remainder x - q y says on which side of q the quotient lies."""
    with np.errstate(all="ignore"):
        q = np.asarray(x / y)
        if fmt is FLOAT64:
            return q
        high, low = two_product(q, y)
        return rounded(q, fmt, np.sign((x - high) - low) * np.sign(y))


def multiply_add(x: Array, y: Array, z: Array, fmt: Format) -> Array:
    """x y + z rounded once, as a fused kernel does (Boldo and Melquiond: the tail rounded to odd).

    >>> multiply_add(np.array([1 + 2.0**-52]), np.array([1 - 2.0**-52]), np.array([-1.0]), FLOAT64).item() == -2.0**-104
    True
    """
    x, y, z = np.broadcast_arrays(x, y, z)
    high, low = two_product(x, y)
    sum_low, tail = two_sum(z, low)
    head, middle = two_sum(high, sum_low)
    head, rest = two_sum(head, sum_to_odd(middle, tail))
    result = rounded(head, fmt, rest)
    return _with_exact_extremes(result, x, y, z) if fmt is FLOAT64 else result


def exponential(x: Array, fmt: Format) -> Array:
    """exp(x) to within a hair of half a unit in the last place (float64's, rounded); exp(0) = 1."""
    with np.errstate(over="ignore", under="ignore"):
        return rounded(np.exp(x), fmt)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The float64 sum and its exact error (Knuth); no error where the sum is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        s = np.asarray(x + y)
        part = s - x
        error = (x - (s - part)) + (y - part)
        return s, np.where(np.isfinite(s), error, 0.0)


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The float64 product and its exact error (Dekker), if neither overflows nor underflows."""
    with np.errstate(all="ignore"):
        product = np.asarray(x * y)
        x_high, x_low = _halves(x)
        y_high, y_low = _halves(y)
        error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
        return product, np.where(np.isfinite(product), error, 0.0)


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high


def sum_to_odd(x: Array, y: Array) -> Array:
    """x + y rounded to odd: an inexact sum takes the neighbour whose last bit is 1, so that no later rounding ties."""
    s, error = two_sum(x, y)
    is_even = (s.view(np.int64) & 1) == 0
    return np.where(is_even & (error != 0), np.nextafter(s, np.copysign(np.inf, error)), s)


def _with_exact_extremes(result: Array, x: Array, y: Array, z: Array) -> Array:
    """The few float64 results near overflow or underflow, where errors of products are not exact, by fractions."""
    with np.errstate(all="ignore"):
        size = np.abs(x * y)
        is_finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
        largest = np.max([size, np.abs(x), np.abs(y), np.abs(z)], axis=0)
        is_extreme = (largest > SAFE) | ((size < 1 / SAFE) & (x != 0) & (y != 0))
        result = np.where(is_finite, result, x * y + z)
    for i in zip(*np.nonzero(is_extreme & is_finite), strict=True):
        exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i]))
        try:
            result[i] = float(exact) if exact else x[i] * y[i] + z[i]
        except OverflowError:
            result[i] = np.inf if exact > 0 else -np.inf
    return result
