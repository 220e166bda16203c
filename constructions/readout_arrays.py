"""A staircase of lines whose thresholds are given, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from constructions.model_arrays import Array, rounded_to


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
