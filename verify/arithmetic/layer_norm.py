"""A LayerNorm's parts, in numbers whose operations are exact or hold what they stand for.

Rationals, fractions, arrays of them, balls of many bits: any of them can be the entries. What rounding does to a
LayerNorm is bounded by the engine, and where rows share errors by the transformers of inductive counting.
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


def inverse_deviation(
    at: Operations, c: np.ndarray, noise: np.ndarray, size: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """A number r, and a relative error that holds 1 / sqrt(variance + eps) of each row: 1/s = r (1 + e).

    `c` are midpoints less their mean, which is rounded: the standard deviation is off by that and by the noise's root
    mean square. Nothing is known where s may be 0, or eps is negative or no number: NaN, or an infinite error.
    """
    d = c.shape[-1]
    rms = root_mean_square(noise)[1] + 4 * gamma(d + 8) * root_mean_square(size)[1]
    rms = (rms + underflow(total(size) > 0, 2)) * ENLARGE
    least, most = root_mean_square(c)
    root = np.sqrt(np.array([eps]))
    low = hypotenuse(np.maximum(least * (1 - 4 * U) - rms, 0), root * (1 - 4 * U))[0]
    high = hypotenuse((most + rms) * ENLARGE, root * (1 + 4 * U))[1]
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
