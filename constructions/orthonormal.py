"""Orthonormal token directions."""

from __future__ import annotations

import torch
from torch import Tensor

from constructions.errors import BadInput

BASES = ("standard", "random")


def orthonormal_rows(T: int, d: int, basis: str = "standard", seed: int = 0) -> Tensor:
    """T orthonormal rows of R^d in float64: unit vectors (which survive every rounding) or random by seed.

    Claim: A, App. B.1: some orthonormal family of size T exists in R^d exactly when d >= T.
    Shapes: (T, d).
    Raises: BadInput when d < T, or for an unknown basis.

    >>> orthonormal_rows(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]], dtype=torch.float64)
    """
    if d < T:
        raise BadInput(
            f"d={d}: this construction needs d >= T (orthonormal tokens), got T={T}. "
            f"Use --d {T} or more, or --p {T}, which allows d < T."
        )
    if basis == "standard":
        return torch.eye(T, d, dtype=torch.float64)
    if basis == "random":
        generator = torch.Generator().manual_seed(seed)
        gaussian = torch.randn(d, T, dtype=torch.float64, generator=generator)
        return torch.linalg.qr(gaussian).Q.T.contiguous()
    raise BadInput(f"basis={basis!r}: must be one of {', '.join(BASES)}")
