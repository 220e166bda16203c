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
    """As `margins`, of arrays.

    >>> float(margins_of(np.array([1.0, 4.0, 3.0]), 1))
    1.0
    >>> margins_of(np.array([[0.0, np.nan], [0.0, 2.0]]), np.array([0, 0]))
    array([nan, -2.])
    """
    import torch

    found: Array = margins(torch.as_tensor(logits), torch.as_tensor(right)).numpy()
    return found
