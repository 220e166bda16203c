"""Contextual counting by a causal encoder that knows positions, in any of three ways, and a decoder with an MLP."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from constructions.contextual.places import EncoderWithPlaces, fitting_sizes, weights_dtype
from constructions.contextual_with_positions_arrays import SHAPES
from constructions.errors import BadInput
from constructions.files import naming, read_tensors, state_bytes

METADATA_KEY = "weightproof.positional"


class PositionalContextualTransformer(EncoderWithPlaces):
    """Encoder: causal softmax attention (one head) on tokens plus positions, with rotated queries and keys, less the
    slope times the distance, and a feed-forward layer, both with a skip connection; decoder: prompt r attends to the
    encoder's stream, and a feed-forward layer with a skip connection follows.

    Claim: B, Sec. 3.5 and App. A.1, D.2: absolute positions (AbsPE), rotations (RoPE) and distances (ALiBi) in the
        encoder; without positions, at angle 0 and with slope 0 it is NoPE, and without the numbers of its MLP the
        decoder has none. A zero model; constructions.contextual_with_positions fills it. Rotations are stored as
        cosines and sines of every place. BOS stands in front of each string, at place 0. Scores are not divided by the
        root of the head size. Cross-attention knows no positions.
    Shapes: E (5, d); positions (places, d); cosines, sines (places, pairs); slope (); W_Q, W_K (d, 2 pairs);
        W_V (d, h); W_O (h, d); W_1 (d, p); b_1 (p,); W_2 (p, d); b_2 (d,); P (R, d); U_Q, U_K (d, f); U_V (d, g);
        W_3 (g, q); b_3 (q,); W_4 (q, g); b_4 (g,); W_out (g, classes); b_out (classes,).
    Raises: BadInput for a size below one, and for other than two head coordinates to a pair.

    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> PositionalContextualTransformer(**sizes)(torch.tensor([[1, 2, 1, 3]])).shape
    torch.Size([1, 2, 4])
    """

    shapes = SHAPES
    has_bos = True
    cosines: Tensor
    sines: Tensor
    slope: Tensor
    W_3: Tensor
    b_3: Tensor
    W_4: Tensor
    b_4: Tensor

    def __init__(self, *, dtype: torch.dtype = torch.float64, **sizes: int) -> None:
        super().__init__(dtype=dtype, **sizes)
        if sizes["e"] != 2 * sizes["pairs"]:
            raise BadInput(f"e={sizes['e']}: {sizes['pairs']} pairs rotate {2 * sizes['pairs']} head coordinates")

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., R, classes) for every prompt, from strings of tokens (..., n) without BOS."""
        x = self.placed(tokens)
        place = torch.arange(x.shape[-2], device=x.device)
        distance = place[:, None] - place
        scores = self.rotated(x @ self.W_Q) @ self.rotated(x @ self.W_K).transpose(-2, -1)
        scores = (scores - self.slope * distance.to(x.dtype)).masked_fill(distance < 0, -torch.inf)
        z = self.attended(x, scores)
        z = z + (torch.relu(z @ self.W_3 + self.b_3) @ self.W_4 + self.b_4)
        return z @ self.W_out + self.b_out

    def rotated(self, x: Tensor) -> Tensor:
        """Queries or keys (..., n, e), each pair of coordinates (2i, 2i + 1) turned by its place's angle."""
        first, second = x[..., 0::2], x[..., 1::2]
        cosines, sines = self.cosines[: x.shape[-2]], self.sines[: x.shape[-2]]
        turned = (first * cosines - second * sines, first * sines + second * cosines)
        return torch.stack(turned, dim=-1).flatten(-2)


def from_state_dict(weights: Mapping[str, Tensor]) -> PositionalContextualTransformer:
    """A model of whatever sizes the tensors have.

    Raises: BadInput for a missing, unknown, misshapen or non-finite tensor, or another dtype than the first one's.

    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> from_state_dict(PositionalContextualTransformer(**sizes).state_dict()).R
    2
    """
    model = PositionalContextualTransformer(dtype=weights_dtype(weights), **fitting_sizes(weights, SHAPES))
    model.load_state_dict(dict(weights))
    return model


def load(path: str) -> PositionalContextualTransformer:
    """A model from a .safetensors file or a .pt state dict (read without running code).

    Raises: BadInput when the file cannot be read or holds no such model.

    >>> import tempfile
    >>> from pathlib import Path
    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     Path(file.name).write_bytes(as_bytes(PositionalContextualTransformer(**sizes))) > 0
    ...     load(file.name).R
    True
    2
    """
    with naming(path):
        return from_state_dict(read_tensors(path, METADATA_KEY, ("E",))[0])


def as_bytes(model: PositionalContextualTransformer) -> bytes:
    """The state dict as safetensors.

    >>> sizes = dict(tokens=5, places=5, pairs=1, d=8, e=2, h=1, p=3, R=2, f=2, g=1, q=1, classes=4)
    >>> model = PositionalContextualTransformer(**sizes)
    >>> as_bytes(model) == as_bytes(from_state_dict(model.state_dict()))
    True
    """
    return state_bytes(model, METADATA_KEY, {"format": 1})
