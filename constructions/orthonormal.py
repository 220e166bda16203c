"""Orthonormal token directions."""

from __future__ import annotations

import numpy as np

from constructions.errors import BadInput
from constructions.model_arrays import Array
from constructions.seeds import check_seed, generator

BASES = ("standard", "random")


def orthonormal_rows(T: int, d: int, basis: str = "standard", seed: int = 0) -> Array:
    """T orthonormal rows of R^d in float64: unit vectors (which survive every rounding) or random by seed.

    Claim: A, App. B.1: some orthonormal family of size T exists in R^d exactly when d >= T.
    Shapes: (T, d).
    Raises: BadInput when d < T, or for an unknown basis or seed.

    >>> orthonormal_rows(2, 3)
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    if d < T:
        raise BadInput(
            f"d={d}: this construction needs d >= T (orthonormal tokens), got T={T}. "
            f"Use --d {T} or more, or --p {T}, which allows d < T."
        )
    check_seed(seed)
    if basis == "standard":
        return np.eye(T, d)
    if basis == "random":
        import torch

        gaussian = torch.randn(d, T, dtype=torch.float64, generator=generator(seed))
        result: Array = torch.linalg.qr(gaussian).Q.T.contiguous().numpy()
        return result
    raise BadInput(f"basis={basis!r}: must be one of {', '.join(BASES)}")
