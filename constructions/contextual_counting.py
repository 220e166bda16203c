"""Weights for contextual counting, those of constructions.contextual_counting_arrays as a module."""

from __future__ import annotations

import torch

from constructions import contextual_counting_arrays
from constructions.contextual.transformer import DTYPES, ContextualCountingTransformer
from constructions.contextual_counting_arrays import (
    BIASES,
    KEY,
    KEYS,
    POSITION,
    bias_count,
    gate,
    line,
    real_temperature,
    temperature,
)
from constructions.model_arrays import name_of


def build(
    N: int,
    R: int,
    *,
    bias: str = "BOS",
    keys: str = "onehot",
    zeros: int | None = None,
    dtype: torch.dtype = torch.float32,
    u: float | None = None,
) -> ContextualCountingTransformer:
    """The transformer that counts the ones of each of R regions in strings of length up to N.

    Claim: B-2.1, B-2.2 and their composition, B-3.4 (Prop. 2.1, 2.2, Sec. 3.4);
        constructions.contextual_counting_arrays says what departs, and why it is right.
    Shapes: d = 6 + R and p = 2R - 1 (onehot: a lane per region), or d = 8 and p = R + 1 (convex: the points
        (y, height(y)) on a convex polygon with an edge per region).
    Units: `zeros` is the number of 0 tokens that bias "0" is calibrated for (default: half of the N - 2R digits); u the
        unit round-off of the arithmetic to build for (default: the dtype's).
    Raises: BadInput for N < 1, R < 1, an unknown bias or keys, or sizes beyond the dtype.

    >>> build(16, 3)(torch.tensor([[2, 1, 0, 1, 3, 1, 2, 3, 2, 1, 3]])).argmax(-1).tolist()
    [[2, 0, 1]]
    """
    name = name_of(dtype)
    return contextual_counting_arrays.build(N, R, bias=bias, keys=keys, zeros=zeros, dtype=name, u=u).made(
        ContextualCountingTransformer
    )


__all__ = ["BIASES", "DTYPES", "KEY", "KEYS", "POSITION", "bias_count", "build", "gate", "line", "real_temperature"]
__all__ += ["temperature"]
