"""Contextual counting with positions, the weights of constructions.contextual_with_positions_arrays as a module."""

from __future__ import annotations

import torch

from constructions import contextual_with_positions_arrays
from constructions.contextual.positional import PositionalContextualTransformer
from constructions.contextual_with_positions_arrays import BASE, PAIRS, PE, WIDEST, check_slope, largest_slope, steps
from constructions.model_arrays import name_of


def build(
    N: int,
    R: int,
    pe: str,
    *,
    dtype: torch.dtype = torch.float64,
    slope: float | None = None,
    has_mlp: bool = False,
    u: float | None = None,
) -> PositionalContextualTransformer:
    """Builds the causal transformer that counts the ones of each of R regions and knows positions in the way `pe` says.

    Claim: B-3.5 (Sec. 3.5, App. D.1 to D.4); constructions.contextual_with_positions_arrays says what departs, and why
        it is right.
    Shapes: d = 6 + R, one more for absolute positions and for ALiBi; p = 2R - 1; pairs = 8 for RoPE, else 1; q = 1, or
        about log2(N) + 1 neurons where the decoder has an MLP.
    Units: `slope` is ALiBi's, for a distance of one place (default: half of the largest that these weights allow).
    Raises: BadInput for sizes that do not fit, an unknown `pe`, or a slope or length beyond what is built.

    >>> build(16, 3, "alibi")(torch.tensor([[2, 1, 0, 1, 3, 1, 2, 3, 2, 1, 3]])).argmax(-1).tolist()
    [[2, 0, 1]]
    """
    built = contextual_with_positions_arrays.build(N, R, pe, slope=slope, has_mlp=has_mlp, dtype=name_of(dtype), u=u)
    return built.made(PositionalContextualTransformer)


__all__ = ["BASE", "PAIRS", "PE", "WIDEST", "build", "check_slope", "largest_slope", "steps"]
