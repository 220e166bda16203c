"""Numbers known up to a radius, over the whole exponent range: what is exact, and all that a dtype can compute for it.

The balls of `verify.arithmetic.balls` stop at 2^100; absolute positions span all exponents of a dtype.
"""

from __future__ import annotations

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic, is_power_of_two
from verify.arithmetic.balls import Ball, point
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import INFLATION, Array, gamma
from verify.arithmetic.softmax import computed_between

FLOAT64 = FORMATS["float64"]  # in which this is computed


def product(x: Ball, W: Ball, fmt: Format | None, added: Ball | None = None) -> Ball:
    """The matrix product x W (+ added), exactly and as computed in a format in any order of its sums.

    A single product with a power of two is exact where it does not underflow; any other sum of n terms is off by
    gamma(n) times the sum of absolute values, and by a smallest normal number for every operation. Whether there is a
    term is asked of its factors, as the product of two that are not zero may itself underflow.
    """
    size_x, size_W = np.abs(x.mid) + x.rad, np.abs(W.mid) + W.rad
    mid, size = x.mid @ W.mid, size_x @ size_W
    spread = x.rad @ size_W + np.abs(x.mid) @ W.rad
    terms = (size_x > 0).astype(float) @ (size_W > 0)
    is_hard = ((~is_power_of_two(x.mid) | (x.rad > 0)).astype(float) @ (~is_power_of_two(W.mid) | (W.rad > 0))) > 0
    if added is not None:
        mid, size, spread = mid + added.mid, size + np.abs(added.mid) + added.rad, spread + added.rad
        terms = terms + ((added.mid != 0) | (added.rad > 0))
    has_radius = ((x.rad > 0).astype(float) @ (size_W > 0) + (size_x > 0).astype(float) @ (W.rad > 0)) > 0
    floor = np.where(has_radius, 2 * (terms + 1) * FLOAT64.tiny, 0.0)  # a product of radii may underflow
    return Ball(mid, spread * INFLATION + floor + rounding(size, terms, is_hard, fmt))


def scaled(x: Ball, y: Ball, fmt: Format | None) -> Ball:
    """The product of two tensors, entry by entry.

    >>> found = scaled(Ball.exact(np.array([3.0])), Ball.exact(np.array([0.5])), None)
    >>> found.mid.tolist(), found.rad.tolist()
    ([1.5], [0.0])
    """
    size_x, size_y = np.abs(x.mid) + x.rad, np.abs(y.mid) + y.rad
    terms: Array = ((size_x > 0) & (size_y > 0)).astype(np.float64)
    is_hard = ~((is_power_of_two(x.mid) & (x.rad == 0)) | (is_power_of_two(y.mid) & (y.rad == 0)))
    floor = np.where((terms > 0) & ((x.rad > 0) | (y.rad > 0)), 4 * FLOAT64.tiny, 0.0)  # as in `product`
    spread = (x.rad * size_y + np.abs(x.mid) * y.rad) * INFLATION
    return Ball(x.mid * y.mid, spread + floor + rounding(size_x * size_y, terms, is_hard, fmt))


def stored(W: Array, fmt: Format | None) -> Ball:
    """A stored matrix, rounded to the format; a subnormal number may be read as zero."""
    if fmt is None:
        return point(W)
    mid = rounded(W, fmt)
    return Ball(mid, np.where(np.abs(mid) < fmt.tiny, np.abs(mid), 0.0))


def total(x: Ball, y: Ball, fmt: Format | None) -> Ball:
    """The sum of two tensors, entry by entry."""
    size = np.abs(x.mid) + x.rad + np.abs(y.mid) + y.rad
    terms = ((x.mid != 0) | (x.rad > 0)) + 0.0 + ((y.mid != 0) | (y.rad > 0))
    return Ball(x.mid + y.mid, (x.rad + y.rad) * INFLATION + rounding(size, terms, np.zeros(size.shape, bool), fmt))


def rounding(size: Array, terms: Array, is_hard: np.ndarray, fmt: Format | None) -> Array:
    """Bounds the rounding of sums of `terms` products whose sizes sum to `size`: float64's own, and the format's.

    Nothing is rounded where there is no term, or a single one that is exact and whose size is a normal number. Anywhere
    else the smallest normal numbers that are added are far more than what `size` itself has lost to underflow.
    """
    error = np.zeros_like(size)
    for each in (FLOAT64,) if fmt is None else (FLOAT64, fmt):
        steps = np.maximum(terms - 1, 0) + is_hard
        is_lossy = (steps > 0) | ((terms > 0) & (size < each.tiny))
        lost = gamma(steps, each.u) * size + np.where(is_lossy, 2 * (terms + 1) * each.tiny, 0.0)
        error = error + np.where(size < each.largest / 4, lost, np.inf)
    return np.where(np.isnan(error), np.inf, error * INFLATION)


def weights(scores: Ball, first: int, fmt: Format | None) -> tuple[Array, Array]:
    """Ends of the weights of rows, up to one factor for a row: exact ones, and in a format all that are computed.

    The key `first` takes part in every row, so that the maximum that softmax subtracts is not below its score.
    """
    at = RoundedArithmetic.real() if fmt is None else RoundedArithmetic.of(fmt)
    return computed_between(scores, scores.mid[:, [first]], at, np.arange(scores.mid.shape[1]) == first)
