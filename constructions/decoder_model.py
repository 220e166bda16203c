"""A causal decoder in the layout of GPT-2: embeddings, pre-LayerNorm blocks, unembedding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from constructions.decoder_positions import EPS, POSITIONAL, angles, waves
from constructions.errors import BadInput

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def zeros(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=dtype))


class Rotation(nn.Module):
    """Rotary position embedding: turns the pair (x_i, x_(i + d/2)) by position id times its frequency."""

    cos: Tensor
    sin: Tensor

    def __init__(self, positions: int, d: int, dtype: torch.dtype) -> None:
        super().__init__()
        if d % 2:
            raise BadInput(f"d_head={d}: rope turns pairs, so it must be even")
        table = angles(positions, d)
        self.register_buffer("cos", torch.from_numpy(np.cos(table)).to(dtype), persistent=False)
        self.register_buffer("sin", torch.from_numpy(np.sin(table)).to(dtype), persistent=False)

    def forward(self, x: Tensor, first: int) -> Tensor:
        """Turns rows (..., n, d) whose position ids are first + 1, first + 2, ..."""
        rows = slice(first, first + x.shape[-2])
        cos, sin = self.cos[rows], self.sin[rows]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Causal multi-head softmax attention, scores divided by the root of the head size.

    Head h uses the columns h d_head .. (h + 1) d_head - 1 of W_Q, W_K, W_V, and those rows of W_O.
    Shapes: W_Q, W_K, W_V (d, n_heads d_head); b_Q, b_K, b_V (n_heads d_head,); W_O (n_heads d_head, d); b_O (d,).
    """

    def __init__(
        self, d: int, n_heads: int, d_head: int, rotation: Rotation | None, has_bias: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.n_heads, self.d_head, self.rotation = n_heads, d_head, rotation
        inner = n_heads * d_head
        self.W_Q, self.W_K, self.W_V = (zeros(d, inner, dtype=dtype) for _ in range(3))
        self.W_O = zeros(inner, d, dtype=dtype)
        self.b_Q, self.b_K, self.b_V = (zeros(inner, dtype=dtype) if has_bias else None for _ in range(3))
        self.b_O = zeros(d, dtype=dtype) if has_bias else None

    def forward(self, x: Tensor, first: int, row: int | None) -> Tensor:
        """What attention adds to the stream (..., n, d), position ids from first + 1; of `row` only, if it is given."""
        n = x.shape[-2]
        asking = x if row is None else x[..., row : row + 1, :]
        q = self.by_head(asking, self.W_Q, self.b_Q)
        k = self.by_head(x, self.W_K, self.b_K)
        v = self.by_head(x, self.W_V, self.b_V)
        if self.rotation is not None:
            q, k = self.rotation(q, first + (row or 0)), self.rotation(k, first)
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        if row is not None:
            future = future[row : row + 1]
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        mixed = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ v
        out = mixed.transpose(-3, -2).flatten(-2) @ self.W_O
        return out if self.b_O is None else out + self.b_O

    def by_head(self, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        """x W + b with one axis for the heads: (..., n_heads, n, d_head)."""
        y = x @ W if b is None else x @ W + b
        return y.view(*y.shape[:-1], self.n_heads, self.d_head).transpose(-3, -2)


class MLP(nn.Module):
    """activation(x W_in + b_in) W_out + b_out.

    Shapes: W_in (d, d_mlp); b_in (d_mlp,); W_out (d_mlp, d); b_out (d,).
    """

    def __init__(self, d: int, d_mlp: int, activation: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.activation = activation
        self.W_in, self.b_in = zeros(d, d_mlp, dtype=dtype), zeros(d_mlp, dtype=dtype)
        self.W_out, self.b_out = zeros(d_mlp, d, dtype=dtype), zeros(d, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](x @ self.W_in + self.b_in) @ self.W_out + self.b_out


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); without LayerNorm the norms change nothing."""

    def __init__(self, attention: Attention, mlp: MLP | None, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.norm_1, self.attention = norms[0], attention
        self.norm_2, self.mlp = norms[1], mlp

    def forward(self, x: Tensor, first: int, row: int | None) -> Tensor:
        asking = x if row is None else x[..., row : row + 1, :]
        x = asking + self.attention(self.norm_1(x), first, row)
        return x if self.mlp is None else x + self.mlp(self.norm_2(x))


def block_of(model: Decoder, layer: int) -> Block:
    """The block of a layer, the first of which is 0; a list of modules does not know what they are."""
    found = model.blocks[layer]
    assert isinstance(found, Block)
    return found


class Decoder(nn.Module):
    """A causal transformer decoder whose weights are all zero until they are filled in, loaded or initialised.

    Positions: `nope` has none; `sine` and `ape` add a row of W_pos; `rope` rotates queries and keys; `spe` appends the
    position id as the last dimension of the stream. Ids are shift + 1, shift + 2, ...; row i of W_pos belongs to the
    id i + 1. With `bos` the forward puts a token of its own, the last row of W_E, in front of each string, where it
    takes the first id, and leaves its logits out.
    Claim: C, Sec. 2.1 and 3 (GPT-2 blocks, causal, LayerNorm before each sublayer and before the unembedding).
    Args: d_mlp=0 leaves the MLPs out; classes=None means one class for each token of the vocabulary.
    Shapes: W_E (vocabulary [+ 1 for BOS], d, or d - 1 with spe); W_pos (positions, d), or (positions, 1) with spe;
        W_U (d, classes); b_U (classes,) where the layout has one.
    Raises: BadInput for a size below one, an unknown name, or heads that do not divide d.

    >>> model = Decoder(vocabulary=10, d=8, n_heads=2, n_layers=1)
    >>> model(torch.tensor([[1, 2, 3]])).shape, model(torch.tensor([[1, 2, 3]]), position=-1).shape
    (torch.Size([1, 3, 10]), torch.Size([1, 10]))
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        d: int,
        n_heads: int = 1,
        n_layers: int = 1,
        d_mlp: int | None = None,
        d_head: int | None = None,
        classes: int | None = None,
        positions: int = 128,
        pe: str = "ape",
        activation: str = "gelu",
        layernorm: bool = True,
        eps: float = EPS,
        bos: bool = False,
        attention_bias: bool = True,
        unembedding_bias: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        d_mlp = 4 * d if d_mlp is None else d_mlp
        classes = vocabulary if classes is None else classes
        sizes = {"vocabulary": vocabulary, "d": d, "n_heads": n_heads, "n_layers": n_layers}
        for name, value in (sizes | {"classes": classes, "positions": positions}).items():
            if value < 1:
                raise BadInput(f"{name}={value}: must be at least 1")
        if d_mlp < 0:
            raise BadInput(f"d_mlp={d_mlp}: must be at least 1, or 0 for no MLP")
        if d_head is None and d % n_heads:
            raise BadInput(f"n_heads={n_heads}: must divide d={d}, or name d_head")
        if pe not in POSITIONAL:
            raise BadInput(f"pe={pe!r}: must be one of {', '.join(POSITIONAL)}")
        if activation not in ACTIVATIONS:
            raise BadInput(f"activation={activation!r}: must be one of {', '.join(ACTIVATIONS)}")
        if pe == "spe" and d < 2:
            raise BadInput(f"d={d}: spe keeps one dimension for the position, so it must be at least 2")
        d_head = d // n_heads if d_head is None else d_head
        self.pe, self.has_bos, self.positions, self.unused = pe, bos, positions, ()
        self.W_E = zeros(vocabulary + bos, d - (pe == "spe"), dtype=dtype)
        if pe == "ape":
            self.W_pos = zeros(positions, d, dtype=dtype)
        elif pe in ("sine", "spe"):
            table = torch.from_numpy(waves(positions, d)) if pe == "sine" else torch.arange(1, positions + 1)[:, None]
            self.register_buffer("W_pos", table.to(dtype), persistent=False)
        rotation = Rotation(positions, d_head, dtype) if pe == "rope" else None

        def norm() -> nn.Module:
            return nn.LayerNorm(d, eps=eps, dtype=dtype) if layernorm else nn.Identity()

        self.blocks = nn.ModuleList(
            Block(
                Attention(d, n_heads, d_head, rotation, attention_bias, dtype),
                MLP(d, d_mlp, activation, dtype) if d_mlp else None,
                (norm(), norm() if d_mlp else nn.Identity()),
            )
            for _ in range(n_layers)
        )
        self.norm = norm()
        self.W_U = zeros(d, classes, dtype=dtype)
        self.b_U = zeros(classes, dtype=dtype) if unembedding_bias else None

    unused: tuple[str, ...]  # names that a loaded file had and this model has no use for

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, BOS not counted."""
        return self.W_E.shape[0] - self.has_bos

    def forward(self, tokens: Tensor, shift: int = 0, position: int | None = None) -> Tensor:
        """Logits (..., n, classes) of strings of tokens (..., n), position ids from shift + 1 on.

        With `position` only that position's logits (..., classes) are computed: the last block asks for no others.
        """
        x = self.embed(tokens, shift)
        row = None if position is None else range(self.has_bos, x.shape[-2])[position]
        for i, block in enumerate(self.blocks, 1):
            x = block(x, shift, row if i == len(self.blocks) else None)
        logits: Tensor = self.norm(x) @ self.W_U
        if self.b_U is not None:
            logits = logits + self.b_U
        return logits[..., int(self.has_bos) :, :] if row is None else logits[..., 0, :]

    def embed(self, tokens: Tensor, shift: int = 0) -> Tensor:
        """The stream (..., n, d) before the first block, BOS included."""
        if self.has_bos:
            tokens = F.pad(tokens, (1, 0), value=self.W_E.shape[0] - 1)
        n = tokens.shape[-1]
        if self.pe != "nope" and not 0 <= shift <= self.positions - n:
            raise BadInput(f"shift={shift}: with {n} positions it must be 0..{self.positions - n}")
        x = self.W_E[tokens]
        if self.pe == "spe":
            rows = self.W_pos[shift : shift + n].expand(*x.shape[:-1], 1)
            return torch.cat([x, rows], dim=-1)
        return x + self.W_pos[shift : shift + n] if self.pe in ("ape", "sine") else x

    def extra_repr(self) -> str:
        d, classes = self.W_U.shape
        unused = f", unused={list(self.unused)}" if self.unused else ""
        return f"vocabulary={self.vocabulary}, d={d}, classes={classes}, pe={self.pe!r}, bos={self.has_bos}{unused}"


def initialised(model: Decoder, *, seed: int, std: float = 0.02) -> Decoder:
    """The model itself, its matrices drawn as GPT-2 draws them: normal, those back into the stream smaller.

    >>> initialised(Decoder(vocabulary=3, d=4), seed=0).W_E.std().item() > 0
    True
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 2:
                share = math.sqrt(2 * len(model.blocks)) if name.endswith(("W_O", "W_out")) else 1.0
                value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64) * std / share)
    return model
