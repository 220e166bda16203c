"""Contextual counting without a mask, the weights of constructions.contextual_positions_arrays as a module."""

from __future__ import annotations

import torch

from constructions import contextual_positions_arrays
from constructions.contextual.bidirectional import BidirectionalContextualTransformer
from constructions.model_arrays import name_of


def build(
    N: int,
    R: int,
    *,
    coordinates: int | None = None,
    dtype: torch.dtype = torch.float64,
    u: float | None = None,
) -> BidirectionalContextualTransformer:
    """Builds the bidirectional transformer with absolute positions that counts the ones of each of R regions.

    Claim: W-19 (ours); constructions.contextual_positions_arrays says why it is right.
    Shapes: scores of rank 1 + `coordinates`; by default the fewest coordinates that the dtype's exponents allow, one
        for each block of 128 positions in float64, of 16 in float32 and bfloat16.
    Raises: BadInput for sizes below one, R beyond 64, or too few coordinates.

    >>> build(16, 3)(torch.tensor([[2, 1, 0, 1, 3, 1, 2, 3, 2, 1, 3]])).argmax(-1).tolist()
    [[2, 0, 1]]
    """
    built = contextual_positions_arrays.build(N, R, coordinates=coordinates, dtype=name_of(dtype), u=u)
    return built.made(BidirectionalContextualTransformer)


def block_length(dtype: torch.dtype) -> int:
    """How many positions one coordinate holds in a dtype.

    >>> block_length(torch.float32)
    16
    """
    return contextual_positions_arrays.block_length(name_of(dtype))
