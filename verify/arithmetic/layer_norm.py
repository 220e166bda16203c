"""A LayerNorm's parts, in numbers whose operations are exact or hold what they stand for.

Rationals, fractions, arrays of them, balls of many bits: any of them can be the entries of `centred` and of
`squared_deviation`. The rest bounds s = sqrt(variance + eps), which a LayerNorm divides by, of rows in float64: of
midpoints and errors, and of what a dtype computes. The engine's rules do so for tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verify.arithmetic.norms import hypotenuse, root_mean_square, total
from verify.arithmetic.operations import ULPS, Operations
from verify.arithmetic.rings import F
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma, underflow


def centred(x: Sequence[F]) -> list[F]:
    """The entries of a row less their mean.

    >>> from fractions import Fraction
    >>> [str(part) for part in centred([Fraction(1), Fraction(2)])]
    ['-1/2', '1/2']
    """
    mean = sum(x[1:], x[0]) / len(x)
    return [entry - mean for entry in x]


def squared_deviation(x: Sequence[F], eps: F) -> F:
    """The variance of the entries plus eps, the square of what a LayerNorm divides by.

    >>> from fractions import Fraction
    >>> str(squared_deviation([Fraction(1), Fraction(2)], Fraction(1, 4)))
    '1/2'
    """
    squares = [part * part for part in centred(x)]
    return sum(squares[1:], squares[0]) / len(x) + eps


def deviation(least: np.ndarray, most: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on s = sqrt(v^2 + eps), v the root mean square of a row less its mean, between `least` and `most`.

    For an eps that is negative or no number they are 0 and NaN.

    >>> [float(end[0]) for end in deviation(np.array([3.0]), np.array([3.0]), 16.0)]  # doctest: +ELLIPSIS
    [4.99999999999..., 5.00000000000...]
    """
    root = np.sqrt(np.array([eps]))
    return hypotenuse(least, root * (1 - 4 * U))[0], hypotenuse(most, root * (1 + 4 * U))[1]


def deviation_near(c: np.ndarray, noise: np.ndarray, size: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on s of rows that are within `noise` of their midpoints, and at most `size`.

    `c` are midpoints less their mean, which is rounded: the standard deviation is a seminorm, at most the root mean
    square, so that it is off by that of the noise and of what is rounded.
    """
    rms = root_mean_square(noise)[1] + 4 * gamma(c.shape[-1] + 8) * root_mean_square(size)[1]
    rms = (rms + underflow(total(size) > 0, 2)) * ENLARGE
    least, most = root_mean_square(c)
    return deviation(np.maximum(least * (1 - 4 * U) - rms, 0), (most + rms) * ENLARGE, eps)


def inverse_deviation(
    at: Operations, c: np.ndarray, noise: np.ndarray, size: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """A number r, and a relative error that holds 1 / sqrt(variance + eps) of each row: 1/s = r (1 + e).

    Rows and eps are as in `deviation_near`. Nothing is known where s may be 0, or eps is negative or no number: NaN, or
    an infinite error.
    """
    d, (low, high) = c.shape[-1], deviation_near(c, noise, size, eps)
    least, most = np.maximum(1 / high * (1 - 4 * U) - LEAST, 0), 1 / low * (1 + 4 * U) + LEAST
    r = (least + most) / 2
    error = ((most - least) / 2 + LEAST) / r * ENLARGE + 4 * U
    if at.is_real:
        return r, error
    lost = of_root(at, d, np.square(size).mean(-1, keepdims=True) * (1 + gamma(d + 4)) / np.square(low) * ENLARGE, low)
    return r, (error + lost * (1 + error)) * ENLARGE


def of_root(at: Operations, d: int, share: np.ndarray, low: np.ndarray) -> np.ndarray:
    """What a dtype's 1 / sqrt(variance + eps) may be off by, relatively, where the root is at least `low`.

    The variance is off by a share of the mean square of d numbers, which is at most `share` times the root's square. So
    it is off by `off` relatively, which leaves 1/sqrt(1 - off), of which the root and what divides by it are off.
    """
    off: np.ndarray = (at.off_in_variance(d) * share + 2 * at.lost_in_sums(2 * d) / np.square(low)) * ENLARGE
    is_some = off <= 0.5
    of_variance = 1 / np.sqrt(1 - np.where(is_some, off, 0.0))
    relative = (of_variance * (1 + at.by_root(ULPS, 8)) - 1) * ENLARGE + 16 * U
    return np.where(is_some, relative, np.full_like(off, math.inf))
