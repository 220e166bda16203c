"""From one scalar to the argmax over counts: a staircase of lines, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from constructions.model_arrays import Array, rounded_to

CENTRED = 1 << 16  # lines of all staircases that are compared: a quarter of a second


def staircase(gamma: Sequence[float], dtype: str, *, as_printed: bool = False) -> tuple[Array, Array]:
    """Slopes and intercepts of L lines such that line k is the highest one at the scalar gamma[k - 1].

    Claim: A-B.4 (App. B.4, eq. 7-8). Line l takes over from line l - 1 half-way between their two values.
        The printed slopes are -1 + l/(L+1); multiplying all logits by L+1 and adding the same line to each
        changes no argmax and gives the slopes l - c, which every dtype stores exactly; c is the count whose logit
        is zero, chosen so that rounding costs the least. Where gamma decreases with the count the slopes do too.
    Shapes: gamma (L,) strictly monotone; returns W_2's row (L,) and b_2 (L,), both in float64, with each
        intercept already rounded to the dtype so that rounding errors do not add up along the recursion.
    Raises: BadInput when gamma is not strictly monotone.

    >>> [line.tolist() for line in staircase([1.0, 2.0, 3.0], "float32")]
    [[-1.0, 0.0, 1.0], [1.5, 0.0, -2.5]]
    """
    steps = [after - before for before, after in zip(gamma, gamma[1:], strict=False)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise BadInput("gamma: the scalar must increase, or decrease, strictly with the count")
    thresholds = [(before + after) / 2 for before, after in zip(gamma, gamma[1:], strict=False)]
    is_falling = bool(steps) and steps[0] < 0
    if as_printed:
        return staircase_at(thresholds, is_falling, dtype, as_printed=True)
    return centred_staircase(thresholds, [gamma], is_falling, dtype)


def centred_staircase(
    thresholds: Sequence[float], gammas: Sequence[Sequence[float]], is_falling: bool, dtype: str
) -> tuple[Array, Array]:
    """The staircase with given thresholds whose line c is zero, for the c at which rounding costs the least.

    Claim: A-B.4 (App. B.4, eq. 7-8).
    Shapes: thresholds (L - 1,), each of the gammas (L,): where a count's reading varies, its two ends; returns (L,)
        and (L,).

    >>> centred_staircase([1.5, 2.5], [[1.0, 2.0, 3.0]], False, "float32")[0].tolist()
    [-1.0, 0.0, 1.0]
    """
    L = len(thresholds) + 1
    step = max(1, L * L // CENTRED)  # every count is tried as the centre, as long as that is quick
    centred = _staircases_around(np.arange(0, L, step), thresholds, -1.0 if is_falling else 1.0, dtype)
    return min(centred, key=lambda lines: max(rounding_cost(gamma, *lines) for gamma in gammas))


def _staircases_around(
    centres: NDArray[np.int64], thresholds: Sequence[float], direction: float, dtype: str
) -> list[tuple[Array, Array]]:
    """For each c the staircase whose line c is zero; all of them take each step away from their centre together."""
    L = len(thresholds) + 1
    slopes = direction * (np.arange(L, dtype=np.float64) - centres[:, None])
    intercepts = np.zeros((len(centres), L))
    for l in range(1, L):
        after = rounded_to(dtype, intercepts[:, l - 1] - direction * thresholds[l - 1])
        intercepts[:, l] = np.where(l > centres, after, 0.0)
    for l in reversed(range(L - 1)):
        before = rounded_to(dtype, intercepts[:, l + 1] + direction * thresholds[l])
        intercepts[:, l] = np.where(l < centres, before, intercepts[:, l])
    return list(zip(slopes, intercepts, strict=True))


def rounding_cost(gamma: Sequence[float], slopes: Array, intercepts: Array) -> float:
    """The largest |product| + |intercept| of a right line and a neighbour, against how far the one is above the other.

    >>> rounding_cost([1.0, 2.0], np.array([0.0, 1.0]), np.array([0.0, -1.5]))
    7.0
    """
    h = np.array(gamma, np.float64)
    worst = [0.0]
    for right, other in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        products = [h[right] * slopes[line] for line in (right, other)]
        size = sum(np.abs(x) + np.abs(intercepts[line]) for x, line in zip(products, (right, other), strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = products[0] + intercepts[right] - products[1] - intercepts[other]
            worst += np.where(gap > 0, size / gap, np.inf).tolist()
    return max(worst)


def staircase_at(
    thresholds: Sequence[float],
    is_falling: bool,
    dtype: str,
    *,
    as_printed: bool = False,
    growth: float = 1.0,
) -> tuple[Array, Array]:
    """The staircase from the thresholds between counts l and l + 1, for gamma that is known up to a range.

    Claim: A-B.4 (App. B.4, eq. 7-8). With `growth` the slope's step from line l to l + 1 is growth^l instead of 1.
    Shapes: thresholds (L - 1,); returns (L,) and (L,), in float64, each number already rounded to the dtype.

    >>> staircase_at([1.5, 2.5], False, "float32")[1].tolist()
    [0.0, -1.5, -4.0]
    """
    L = len(thresholds) + 1
    direction = -1.0 if is_falling else 1.0
    scale = 1.0 / (L + 1) if as_printed else 1.0
    offset = -1.0 if as_printed else 0.0
    heights = range(1, L + 1) if growth == 1 else accumulate(growth**l for l in range(L))
    slopes = rounded_to(dtype, np.array([offset + direction * scale * height for height in heights]))
    intercepts = np.zeros(L)
    with np.errstate(invalid="ignore"):  # slopes beyond the dtype are infinite, which builders refuse
        falls = ((slopes[:-1] - slopes[1:]) * np.array(thresholds, np.float64)).tolist()
    for l, fall in enumerate(falls, start=1):
        intercepts[l] = rounded_to(dtype, intercepts[l - 1] + fall)
    return slopes, intercepts
