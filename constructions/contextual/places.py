"""What the encoders that know positions share: their parameters, sizes by a file, and all of a run but the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from constructions.contextual.transformer import BOS, DTYPES, TOKENS
from constructions.errors import BadInput
from constructions.layouts import hint


class EncoderWithPlaces(nn.Module):
    """Zero parameters of the shapes that a class names by its sizes; `positions` has a row for each place, BOS first.

    Raises: BadInput for a size below one.
    """

    shapes: ClassVar[Mapping[str, tuple[str, ...]]]
    E: Tensor
    positions: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    W_1: Tensor
    b_1: Tensor
    W_2: Tensor
    b_2: Tensor
    P: Tensor
    U_Q: Tensor
    U_K: Tensor
    U_V: Tensor
    W_out: Tensor
    b_out: Tensor

    def __init__(self, *, dtype: torch.dtype = torch.float64, **sizes: int) -> None:
        super().__init__()
        for name, value in sizes.items():
            if value < 1:
                raise BadInput(f"{name}={value}: must be at least 1")
        for name, shape in self.shapes.items():
            zeros = torch.zeros([sizes[size] for size in shape], dtype=dtype)
            self.register_parameter(name, nn.Parameter(zeros, requires_grad=False))

    def placed(self, tokens: Tensor) -> Tensor:
        """Tokens (..., n) plus positions, BOS in front (..., n + 1, d)."""
        tokens = torch.cat([tokens.new_full((*tokens.shape[:-1], 1), BOS), tokens], dim=-1)
        return self.E[tokens] + self.positions[: tokens.shape[-1]]

    def attended(self, x: Tensor, scores: Tensor) -> Tensor:
        """What every prompt reads (..., R, g) of the encoder's stream x (..., n, d), given its attention's scores."""
        x = x + torch.softmax(scores, dim=-1) @ (x @ self.W_V) @ self.W_O
        x = x + torch.relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2
        scores = (self.P @ self.U_Q) @ (x @ self.U_K).transpose(-2, -1)
        return torch.softmax(scores, dim=-1) @ (x @ self.U_V)

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    @property
    def R(self) -> int:
        """The number of prompts."""
        return int(self.P.shape[0])

    @property
    def longest(self) -> int:
        """The longest string that has places, BOS not counted."""
        return int(self.positions.shape[0]) - 1

    def extra_repr(self) -> str:
        d, p = self.W_1.shape
        return f"d={d}, p={p}, R={self.R}, places={self.longest + 1}, classes={len(self.b_out)}, dtype={self.dtype}"


def weights_dtype(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype of the embeddings, or float64 where there are none.

    >>> weights_dtype({"E": torch.zeros(5, 8)}), weights_dtype({})
    (torch.float32, torch.float64)
    """
    return weights["E"].dtype if "E" in weights else torch.float64


def fitting_sizes(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """The sizes of a model whose tensors these are.

    Raises: BadInput for a missing, unknown, misshapen or non-finite tensor, or another dtype than the first one's.

    >>> weights = {"E": torch.zeros(5, 8), "W": torch.zeros(8, 2)}
    >>> fitting_sizes(weights, {"E": ("tokens", "d"), "W": ("d", "e")})
    {'tokens': 5, 'd': 8, 'e': 2}
    """
    if set(weights) != set(shapes):
        odd = sorted(set(weights) ^ set(shapes))[0]
        said = hint(shapes, weights)
        raise BadInput(f"weights: {odd} is missing or unknown; a file of this model has {', '.join(shapes)}.{said}")
    sizes: dict[str, int] = {}
    dtype = weights["E"].dtype
    for name, shape in shapes.items():
        found = weights[name]
        if found.dtype != dtype or dtype not in DTYPES.values():
            raise BadInput(f"weights: {name} is {found.dtype}; all must have one dtype of {', '.join(DTYPES)}")
        fits = found.ndim == len(shape) and all(
            n > 0 and sizes.setdefault(size, n) == n for size, n in zip(shape, found.shape, strict=True)
        )
        if not fits:
            said = "x".join(shape) or "one number"
            raise BadInput(f"weights: {name} has shape {tuple(found.shape)}, which does not fit {said}")
        if not bool(found.isfinite().all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")
    if sizes["tokens"] != len(TOKENS):
        raise BadInput(f"weights: E has {sizes['tokens']} rows, and there are {len(TOKENS)} tokens: {' '.join(TOKENS)}")
    return sizes
