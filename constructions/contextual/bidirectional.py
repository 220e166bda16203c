"""Contextual counting without a mask: a bidirectional encoder with absolute positions, and the decoder as before."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from constructions.contextual.places import EncoderWithPlaces, fitting_sizes, weights_dtype
from constructions.contextual_positions_arrays import SHAPES
from constructions.files import naming, read_tensors, state_bytes

METADATA_KEY = "weightproof.bidirectional"


class BidirectionalContextualTransformer(EncoderWithPlaces):
    """Encoder: softmax attention to every position, before and after (one head), on tokens plus absolute positions, and
    a feed-forward layer, both with a skip connection; decoder: prompt r attends to the encoder's stream.

    Claim: B, Sec. 2.2 and 3 without the causal mask. A zero model; constructions.contextual_positions fills it. BOS
    stands in front of each string, at position 0. Scores are not divided by the root of the head size.
    Shapes: E (5, d); positions (places, d); W_Q, W_K (d, e); W_V (d, h); W_O (h, d); W_1 (d, p); b_1 (p,);
        W_2 (p, d); b_2 (d,); P (R, d); U_Q, U_K (d, f); U_V (d, g); W_out (g, classes); b_out (classes,).
    Raises: BadInput for a size below one.

    >>> import torch
    >>> sizes = dict(tokens=5, places=5, d=8, e=2, h=1, p=3, R=2, f=2, g=1, classes=4)
    >>> BidirectionalContextualTransformer(**sizes)(torch.tensor([[1, 2, 1, 3]])).shape
    torch.Size([1, 2, 4])
    """

    shapes = SHAPES

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., R, classes) for every prompt, from strings of tokens (..., n) without BOS."""
        x = self.placed(tokens)
        scores = (x @ self.W_Q) @ (x @ self.W_K).transpose(-2, -1)
        return self.attended(x, scores) @ self.W_out + self.b_out


def from_state_dict(weights: Mapping[str, Tensor]) -> BidirectionalContextualTransformer:
    """A model of whatever sizes the tensors have.

    Raises: BadInput for a missing, unknown, misshapen or non-finite tensor, or another dtype than the first one's.

    >>> sizes = dict(tokens=5, places=5, d=8, e=2, h=1, p=3, R=2, f=2, g=1, classes=4)
    >>> from_state_dict(BidirectionalContextualTransformer(**sizes).state_dict()).R
    2
    """
    model = BidirectionalContextualTransformer(dtype=weights_dtype(weights), **fitting_sizes(weights, SHAPES))
    model.load_state_dict(dict(weights))
    return model


def load(path: str) -> BidirectionalContextualTransformer:
    """A model from a .safetensors file or a .pt state dict (read without running code).

    Raises: BadInput when the file cannot be read or holds no such model.

    >>> import tempfile
    >>> from pathlib import Path
    >>> sizes = dict(tokens=5, places=5, d=8, e=2, h=1, p=3, R=2, f=2, g=1, classes=4)
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     Path(file.name).write_bytes(as_bytes(BidirectionalContextualTransformer(**sizes))) > 0
    ...     load(file.name).R
    True
    2
    """
    with naming(path):
        return from_state_dict(read_tensors(path, METADATA_KEY, ("E",))[0])


def as_bytes(model: BidirectionalContextualTransformer) -> bytes:
    """The state dict as safetensors.

    >>> sizes = dict(tokens=5, places=5, d=8, e=2, h=1, p=3, R=2, f=2, g=1, classes=4)
    >>> model = BidirectionalContextualTransformer(**sizes)
    >>> as_bytes(model) == as_bytes(from_state_dict(model.state_dict()))
    True
    """
    return state_bytes(model, METADATA_KEY, {"format": 1})
