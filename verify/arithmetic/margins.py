"""By how much a computed answer is right: the one function of logits that every run is judged by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from torch import Tensor


def margins(logits: Tensor, right: Tensor) -> Tensor:
    """(logit of the right class) - (largest other logit) over the last axis: NaN where a logit is.

    Infinite where there is no other class. Shapes: `logits` (..., classes), `right` (...).
    """
    right = right.unsqueeze(-1)
    own = logits.gather(-1, right).squeeze(-1)
    if logits.shape[-1] == 1:
        return own.masked_fill(~own.isnan(), math.inf)
    return own - logits.scatter(-1, right, -math.inf).amax(-1)  # amax propagates NaN


def margins_of(logits: Array, right: np.ndarray | int) -> Array:
    """As `margins`, of arrays of floats, without torch.

    >>> float(margins_of(np.array([1.0, 4.0, 3.0]), 1))
    1.0
    >>> margins_of(np.array([[0.0, np.nan], [0.0, 2.0]]), np.array([0, 0]))
    array([nan, -2.])
    """
    place = np.asarray(right)[..., None]
    own: Array = np.take_along_axis(logits, place, -1)[..., 0]
    if logits.shape[-1] == 1:
        return np.where(np.isnan(own), own, math.inf)
    others = logits.copy()
    np.put_along_axis(others, place, -math.inf, -1)
    return np.asarray(own - others.max(-1))  # max propagates NaN
