"""A causal decoder with learned positions, softmax attention and ReLU layers; its readout has a class per answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.files import naming, read_tensors
from constructions.layouts import hint
from constructions.written_files import write_whole

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
LAYER_NAMES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2")
KEY = "weightproof.adder"
Cache = tuple[Tensor, Tensor]  # the keys and values of the tokens so far


class Layer(nn.Module):
    """One layer: x += attention(x), then x += ReLU(x W_1 + b_1) W_2. Scores are q k, not divided by sqrt(d_h).

    Without the skip connection the two results replace x instead.

    Shapes: W_Q, W_K (heads, d, d_h); W_V (heads, d, d_v); W_O (heads, d_v, d); W_1 (d, p); b_1 (p,); W_2 (p, d).
    """

    def __init__(self, *, d: int, heads: int, d_h: int, d_v: int, p: int, dtype: torch.dtype) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.W_Q, self.W_K = zeros(heads, d, d_h), zeros(heads, d, d_h)
        self.W_V, self.W_O = zeros(heads, d, d_v), zeros(heads, d_v, d)
        self.W_1, self.b_1, self.W_2 = zeros(d, p), zeros(p), zeros(p, d)

    def keys_and_values(self, x: Tensor) -> Cache:
        """What is read of the tokens x (..., n, d): keys (..., heads, n, d_h) and values (..., heads, n, d_v)."""
        x = x.unsqueeze(-3)
        return x @ self.W_K, x @ self.W_V

    def forward(self, x: Tensor, context: Cache, hidden: Tensor | None, skip: bool = True) -> Tensor:
        """The stream after the layer, for queries x (..., q, d); `hidden` (q, n) marks keys that are not seen."""
        keys, values = context
        scores = (x.unsqueeze(-3) @ self.W_Q) @ keys.transpose(-2, -1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        attended = (torch.softmax(scores, dim=-1) @ values @ self.W_O).sum(-3)
        x = x + attended if skip else attended
        written = torch.relu(x @ self.W_1 + self.b_1) @ self.W_2
        return x + written if skip else written


class AdderTransformer(nn.Module):
    """Token and position embeddings, causal layers, and a linear readout over the answers.

    Claim: E, Sec. 4 (described there, without weights). A zero model; the builders fill in the weights.
    `p` has the number of neurons of each layer.
    Shapes: E (tokens, d); positions (length, d); W_out (d, classes); b_out (classes,); skip () bool.
    Raises: BadInput for a size below one.

    >>> AdderTransformer(tokens=4, length=3, classes=3, d=2)(torch.tensor([[0, 2, 3]])).shape
    torch.Size([1, 3, 3])
    """

    skip: Tensor

    def __init__(
        self,
        *,
        tokens: int,
        length: int,
        classes: int,
        d: int,
        heads: int = 1,
        d_h: int = 1,
        d_v: int = 1,
        p: tuple[int, ...] = (0,),
        skip: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        sizes = {"tokens": tokens, "length": length, "classes": classes, "d": d, "heads": heads, "d_h": d_h, "d_v": d_v}
        for name, value in sizes.items():
            if value < 1:
                raise BadInput(f"{name}={value}: must be at least 1")
        if not p or min(p) < 0:
            raise BadInput(f"p={p}: must be a number of neurons, zero or more, for each layer")

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.E, self.positions = zeros(tokens, d), zeros(length, d)
        self.layers = nn.ModuleList(Layer(d=d, heads=heads, d_h=d_h, d_v=d_v, p=k, dtype=dtype) for k in p)
        self.W_out, self.b_out = zeros(d, classes), zeros(classes)
        self.register_buffer("skip", torch.tensor(skip))

    @property
    def has_skip(self) -> bool:
        return bool(self.skip)

    @property
    def dtype(self) -> torch.dtype:
        return self.E.dtype

    @property
    def length(self) -> int:
        """The largest number of tokens that it reads."""
        return self.positions.shape[0]

    @property
    def classes(self) -> int:
        return self.b_out.shape[0]

    @property
    def blocks(self) -> tuple[Layer, ...]:
        """The layers, first to last."""
        return tuple(layer for layer in self.layers if isinstance(layer, Layer))

    def sizes(self) -> dict[str, int]:
        """The architecture's numbers, in the papers' letters; p counts the neurons of all layers."""
        heads, d, d_h = self.blocks[0].W_Q.shape
        p = sum(layer.b_1.shape[0] for layer in self.blocks)
        return {"layers": len(self.layers), "heads": heads, "d": d, "d_h": d_h, "p": p}

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., n, classes) after every position of tokens (..., n)."""
        n = tokens.shape[-1]
        hidden = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.E[tokens] + self.positions[:n]
        for layer in self.blocks:
            x = layer.forward(x, layer.keys_and_values(x), hidden, self.has_skip)
        return x @ self.W_out + self.b_out

    def generate(self, prompt: Tensor, limit: int) -> Tensor:
        """Greedy answers (..., limit) to prompts (..., n): each answer is the next token, keys and values are kept.

        >>> AdderTransformer(tokens=4, length=5, classes=3, d=2).generate(torch.tensor([[0, 2, 3]]), 2)
        tensor([[0, 0]])
        """
        cache: list[Cache] = []
        answers: list[Tensor] = []
        tokens, start = prompt, 0
        while True:
            logits = self._next_logits(tokens, start, cache)
            answers.append(logits.argmax(-1))
            start += tokens.shape[-1]
            if len(answers) == limit:
                return torch.stack(answers, -1)
            tokens = answers[-1].unsqueeze(-1)

    def _next_logits(self, tokens: Tensor, start: int, cache: list[Cache]) -> Tensor:
        """Logits after the last of these new tokens; the cache, one entry per layer, grows by them."""
        n = tokens.shape[-1]
        hidden = torch.ones(n, start + n, dtype=torch.bool).triu(start + 1)
        x = self.E[tokens] + self.positions[start : start + n]
        for i, layer in enumerate(self.blocks):
            keys, values = layer.keys_and_values(x)
            if start:
                keys, values = torch.cat((cache[i][0], keys), -2), torch.cat((cache[i][1], values), -2)
                cache[i] = keys, values
            else:
                cache.append((keys, values))
            x = layer.forward(x, (keys, values), hidden, self.has_skip)
        return x[..., -1, :] @ self.W_out + self.b_out

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.sizes().items()) + f", dtype={self.dtype}"


def from_state_dict(weights: Mapping[str, Tensor]) -> AdderTransformer:
    """A model of whatever sizes the tensors have.

    Raises: BadInput for a missing, unknown, misshapen, non-float or non-finite tensor.

    >>> from_state_dict(AdderTransformer(tokens=4, length=3, classes=3, d=2).state_dict()).classes
    3
    """
    layers = len({name.split(".")[1] for name in weights if name.startswith("layers.")})
    names = ["E", "positions", *(f"layers.{i}.{n}" for i in range(layers) for n in LAYER_NAMES), "W_out", "b_out"]
    if not layers:
        raise BadInput(
            "weights: layers.0.W_Q is missing; an adder has E, positions, layers.N.W_Q, ..., W_out, b_out."
            + hint(("E", "positions", "layers.0.W_Q", "W_out", "b_out"), weights)
        )
    skip = weights.get("skip", torch.tensor(True))
    if skip.numel() != 1 or skip.item() not in (0, 1):
        raise BadInput("weights: skip must be one boolean")
    for name in names:
        W = weights.get(name)
        if W is None:
            said = hint(names, weights)
            raise BadInput(f"weights: {name} is missing; an adder of {layers} layers has {', '.join(names)}.{said}")
        if W.dtype not in DTYPES.values() or W.dtype != weights["E"].dtype:
            raise BadInput(f"weights: {name} is {W.dtype}; all must be one dtype of {', '.join(DTYPES)}")
        if not bool(torch.isfinite(W.double()).all()):
            raise BadInput(f"weights: {name} has an infinite or NaN entry; nothing can be proved about it")
    if unknown := sorted(set(weights) - {*names, "skip"}):
        raise BadInput(f"weights: {unknown[0]} is not part of an adder, which has {', '.join(names)}, skip")
    if weights["layers.0.W_Q"].ndim != 3 or weights["layers.0.W_V"].ndim != 3 or weights["E"].ndim != 2:
        raise BadInput("weights: E must be (tokens, d), W_Q (heads, d, d_h) and W_V (heads, d, d_v)")
    heads, d, d_h = weights["layers.0.W_Q"].shape
    model = AdderTransformer(
        tokens=weights["E"].shape[0],
        length=weights["positions"].shape[0],
        classes=weights["b_out"].numel(),
        d=d,
        heads=heads,
        d_h=d_h,
        d_v=weights["layers.0.W_V"].shape[2],
        skip=bool(skip),
        p=tuple(weights[f"layers.{i}.b_1"].numel() for i in range(layers)),
        dtype=weights["E"].dtype,
    )
    for name, own in model.named_parameters():
        if own.shape != weights[name].shape:
            raise BadInput(
                f"weights: {name} has shape {tuple(weights[name].shape)}, the other tensors ask {tuple(own.shape)}"
            )
    model.load_state_dict({**dict(weights), "skip": model.skip})
    return model


def load(path: str) -> tuple[AdderTransformer, dict[str, Any]]:
    """A model from a .safetensors file or a .pt state_dict (read without running code), and what was saved with it.

    Raises: BadInput when the file cannot be read or is no adder.
    """
    with naming(path):
        weights, header = read_tensors(path, KEY, ("E",))
        return from_state_dict(weights), header


def to_bytes(model: AdderTransformer, header: Mapping[str, Any] | None = None) -> bytes:
    """The state_dict as the bytes of a safetensors file, with a JSON object beside it."""
    from safetensors.torch import save

    tensors = {name: W.detach().cpu().contiguous() for name, W in model.state_dict().items()}
    return bytes(save(tensors, {KEY: json.dumps(dict(header or {}), sort_keys=True)}))


def save(model: AdderTransformer, path: str, header: Mapping[str, Any] | None = None) -> None:
    """Writes the weights as safetensors; the file appears whole or not at all.

    Raises: BadInput when the folder does not exist or cannot be written.
    """
    write_whole(path, to_bytes(model, header))
