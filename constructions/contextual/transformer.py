"""Contextual counting: a causal encoder without positions and a decoder of one cross-attention head per model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from constructions.contextual_counting_arrays import BOS as BOS
from constructions.contextual_counting_arrays import CLOSE as CLOSE
from constructions.contextual_counting_arrays import ONE as ONE
from constructions.contextual_counting_arrays import OPEN as OPEN
from constructions.contextual_counting_arrays import TOKENS as TOKENS
from constructions.contextual_counting_arrays import WEIGHTS as WEIGHTS
from constructions.contextual_counting_arrays import ZERO as ZERO
from constructions.errors import BadInput
from constructions.files import naming, read_tensors, state_bytes
from constructions.layouts import hint
from constructions.written_files import write_whole

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
METADATA_KEY = "weightproof.contextual"


class ContextualCountingTransformer(nn.Module):
    """Encoder: causal softmax attention (one head, no positions) and a feed-forward layer, both with a skip connection;
    decoder: prompt r attends to the encoder's stream with one softmax head; logits over the counts 0, 1, ...

    Claim: B, Sec. 2.2 and 3 (the decoder without self-attention, MLP and skip connection, as in Sec. 3). A zero model;
    constructions.contextual_counting fills in the weights. Scores are not divided by the root of the head size: fold a
    scale into W_Q and U_Q. With `bos` the forward puts BOS in front of each string.
    Shapes: E (5, d); W_Q, W_K, W_V (d, d_h); W_O (d_h, d); W_1 (d, p); b_1 (p,); W_2 (p, d); b_2 (d,); P (R, d);
        U_Q, U_K (d, e); U_V (d, g); W_out (g, classes); b_out (classes,); bos () bool.
    Raises: BadInput for a size below one.

    >>> ContextualCountingTransformer(d=6, p=3, R=2, classes=9)(torch.tensor([[ONE, OPEN, ONE, CLOSE]])).shape
    torch.Size([1, 2, 9])
    """

    bos: Tensor

    def __init__(
        self,
        *,
        d: int,
        p: int,
        R: int,
        classes: int,
        d_h: int = 1,
        e: int = 1,
        g: int = 1,
        bos: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        for name, value in (("d", d), ("p", p), ("R", R), ("classes", classes), ("d_h", d_h), ("e", e), ("g", g)):
            if value < 1:
                raise BadInput(f"{name}={value}: must be at least 1")

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.E = zeros(len(TOKENS), d)
        self.W_Q, self.W_K, self.W_V, self.W_O = zeros(d, d_h), zeros(d, d_h), zeros(d, d_h), zeros(d_h, d)
        self.W_1, self.b_1, self.W_2, self.b_2 = zeros(d, p), zeros(p), zeros(p, d), zeros(d)
        self.P = zeros(R, d)
        self.U_Q, self.U_K, self.U_V = zeros(d, e), zeros(d, e), zeros(d, g)
        self.W_out, self.b_out = zeros(g, classes), zeros(classes)
        self.register_buffer("bos", torch.tensor(bos))

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    @property
    def R(self) -> int:
        """The number of prompts."""
        return self.P.shape[0]

    @property
    def has_bos(self) -> bool:
        return bool(self.bos)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., R, classes) for every prompt, from strings of tokens (..., n) without BOS."""
        return self.decode(self.encode(tokens))

    def encode(self, tokens: Tensor) -> Tensor:
        """The encoder's stream (..., n, d), BOS included where the model has one."""
        if self.has_bos:
            tokens = torch.cat([tokens.new_full((*tokens.shape[:-1], 1), BOS), tokens], dim=-1)
        n = tokens.shape[-1]
        x = self.E[tokens]
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        scores = (x @ self.W_Q) @ (x @ self.W_K).transpose(-2, -1)
        x = x + torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ (x @ self.W_V) @ self.W_O
        return x + torch.relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2

    def decode(self, stream: Tensor) -> Tensor:
        """Logits (..., R, classes) of the prompts that attend to a stream (..., n, d)."""
        scores = (self.P @ self.U_Q) @ (stream @ self.U_K).transpose(-2, -1)
        return torch.softmax(scores, dim=-1) @ (stream @ self.U_V) @ self.W_out + self.b_out

    def extra_repr(self) -> str:
        d, p = self.W_1.shape
        return f"d={d}, p={p}, R={self.R}, classes={self.b_out.shape[0]}, bos={self.has_bos}, dtype={self.dtype}"


def from_state_dict(weights: Mapping[str, Tensor]) -> ContextualCountingTransformer:
    """A model of whatever sizes the tensors have.

    Raises: BadInput for a missing, unknown, misshapen, non-float or non-finite tensor.

    >>> from_state_dict(ContextualCountingTransformer(d=6, p=3, R=2, classes=9).state_dict()).R
    2
    """
    names = (*WEIGHTS, "bos")
    for name in names:
        if name not in weights:
            said = hint(names, weights)
            raise BadInput(f"weights: {name} is missing; a contextual counting file has {', '.join(names)}.{said}")
    if unknown := sorted(set(weights) - set(names)):
        raise BadInput(f"weights: {unknown[0]} is not part of this model, which has {', '.join(names)}")
    dtype = weights["E"].dtype
    if dtype not in DTYPES.values():
        raise BadInput(f"weights: dtype {dtype} must be one of {', '.join(DTYPES)}")
    for name in WEIGHTS:
        if weights[name].dtype != dtype:
            raise BadInput(f"weights: {name} is {weights[name].dtype}, E is {dtype}; all must have one dtype")
        if not bool(torch.isfinite(weights[name].double()).all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")
        if weights[name].ndim != (1 if name.startswith("b_") else 2) or not weights[name].numel():
            raise BadInput(f"weights: {name} has shape {tuple(weights[name].shape)}, which is no {name}")
    if weights["bos"].dtype != torch.bool or weights["bos"].numel() != 1:
        raise BadInput("weights: bos must be one boolean")
    model = ContextualCountingTransformer(
        d=weights["E"].shape[1],
        p=weights["W_1"].shape[1],
        R=weights["P"].shape[0],
        classes=weights["b_out"].shape[0],
        d_h=weights["W_Q"].shape[1],
        e=weights["U_K"].shape[1],
        g=weights["U_V"].shape[1],
        bos=bool(weights["bos"]),
        dtype=dtype,
    )
    for name, parameter in model.named_parameters():
        if weights[name].shape != parameter.shape:
            raise BadInput(
                f"weights: {name} has shape {tuple(weights[name].shape)}, "
                f"where the other weights ask for {tuple(parameter.shape)}"
            )
    model.load_state_dict({**weights, "bos": weights["bos"].reshape(())})
    return model


def load(path: str) -> ContextualCountingTransformer:
    """A model from a .safetensors file or a .pt state dict (read without running code).

    Raises: BadInput when the file cannot be read or holds no such model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ContextualCountingTransformer(d=6, p=3, R=2, classes=9), f"{folder}/model.safetensors")
    ...     load(f"{folder}/model.safetensors").R
    2
    """
    with naming(path):
        return from_state_dict(read_tensors(path, METADATA_KEY, ("E",))[0])


def as_bytes(model: ContextualCountingTransformer) -> bytes:
    """The safetensors file of a model.

    >>> model = ContextualCountingTransformer(d=6, p=3, R=2, classes=9)
    >>> as_bytes(model) == as_bytes(from_state_dict(model.state_dict()))
    True
    """
    return state_bytes(model, METADATA_KEY, {"format": 1})


def save(model: ContextualCountingTransformer, path: str) -> None:
    """Writes the state dict as safetensors; the file appears whole or not at all.

    Raises: BadInput when the folder does not exist or cannot be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ContextualCountingTransformer(d=6, p=3, R=2, classes=9), f"{folder}/model.safetensors")
    ...     os.listdir(folder)
    ['model.safetensors']
    """
    write_whole(path, as_bytes(model))
