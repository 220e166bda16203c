"""Small modules as lists of steps, run by torch; tests/oracles/exact_programs.py runs the same steps in balls."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Program(nn.Module):
    """Reads two tokens, embeds them as one row of numbers, and takes its steps: the last one gives the logits."""

    def __init__(self, steps: list[tuple]) -> None:
        super().__init__()
        self.names = [name for name, *_ in steps]
        self.constants: list[list] = []
        for i, (_, *given) in enumerate(steps):
            for j, x in enumerate(given):
                if isinstance(x, Tensor):
                    self.register_parameter(f"p{i}_{j}", nn.Parameter(x, requires_grad=False))
            self.constants.append([None if isinstance(x, Tensor) else x for x in given])

    def given(self, i: int) -> list:
        return [getattr(self, f"p{i}_{j}") if x is None else x for j, x in enumerate(self.constants[i])]

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens
        for i, name in enumerate(self.names):
            x = RUN[name](x, *self.given(i))
        return x


RUN: dict[str, Callable] = {
    "embed": lambda t, A, B: A[t[:, 0]] + B[t[:, 1]],
    "linear": lambda x, W, b: x @ W + b,
    "layer_norm": lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
    "group_norm": lambda x, w, b, eps: F.group_norm(x, x.shape[-1] // 2, w, b, eps),
    "rms_norm": lambda x, w, eps: F.rms_norm(x, x.shape[-1:], w, eps),
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "divide": lambda x, c: x / c,
    "scale": lambda x, c: x * c,
    "shift": lambda x, c: x + c,
    "divide_by": lambda x, W, b: x / (x @ W + b),
    "gate": lambda x, W, b: x * (x @ W + b),
    "unit": lambda x: x / (x * x).sum(-1, keepdim=True).sqrt(),
    "squares": lambda x: x.pow(2),
    "root": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x, c: torch.rsqrt(x * x + c),
    "reciprocal": lambda x: x.reciprocal(),
    "standard": lambda x: (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, correction=0).sqrt(),
    "cube": lambda x: x.pow(3),
    "exp": torch.exp,
    "add_own": lambda x, W, b: x + (x @ W + b),
    "attend": lambda x, K, V: F.scaled_dot_product_attention(
        x[:, None], K.expand(len(x), *K.shape), V.expand(len(x), *V.shape)
    )[:, 0],
    "clamp": lambda x, low, high: x.clamp(low, high),
    "minus_max": lambda x: x - x.amax(-1, keepdim=True),
    "log": lambda x, c: (x * x + c).log(),
}
PARTS = {  # which further numbers a step has: a matrix, a vector, an eps or a constant
    "linear": "Mv", "layer_norm": "vve", "group_norm": "vve", "rms_norm": "ve", "relu": "", "gelu": "", "tanh": "",
    "sigmoid": "", "silu": "", "softmax": "", "log_softmax": "", "divide": "c", "scale": "c", "shift": "c",
    "divide_by": "Mv", "gate": "Mv", "unit": "", "squares": "", "root": "", "rsqrt": "e", "reciprocal": "",
    "standard": "", "cube": "", "exp": "", "add_own": "Mv", "attend": "KK", "clamp": "", "minus_max": "", "log": "e",
}  # fmt: skip
