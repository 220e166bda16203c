"""Searches two layers of one neuron each that count (docs/histogram.md): python -m tests.tools.search_two_layers."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

STARTS, STEPS, RATE, D = 256, 700, 0.03, 2
LEAST = 1e-4  # of a margin, relative to the logits: less may be rounding
CASES = (
    *(("lin", T, L) for T, L in ((2, 2), (2, 3), (2, 4), (3, 3))),
    *((model, T, L) for model in ("lin+sftm", "dot+sftm") for T, L in ((2, 2), (2, 3), (2, 4), (3, 2), (3, 3))),
)


def logits(w: dict[str, Tensor], model: str, tokens: Tensor) -> Tensor:
    """All starts at once: tokens (N, L) -> (starts, N, L, classes), as constructions.two_layers computes them."""
    x = w["E"][:, tokens]
    for layer in "12":
        scores = w[f"A{layer}"][:, None]
        if model.startswith("dot"):
            scores = (x @ w[f"Q{layer}"][:, None]) @ (x @ w[f"K{layer}"][:, None]).transpose(-2, -1) / math.sqrt(D)
        mixing = torch.softmax(scores, dim=-1) if model.endswith("+sftm") else scores
        hidden = torch.relu((x + mixing @ x) @ w[f"W{layer}"][:, None] + w[f"b{layer}"][:, None, None])
        x = hidden @ w[f"V{layer}"][:, None] + w[f"c{layer}"][:, None, None]
    return x


def most_right(model: str, T: int, L: int) -> int:
    """How many of the L T^L positions the best of all starts gets right at any step, by a margin above rounding."""
    torch.manual_seed(0)
    tokens = torch.tensor(list(product(range(T), repeat=L)))
    due = (tokens[:, :, None] == tokens[:, None]).sum(-1) - 1
    shapes = {"E": (T, D), "A1": (L, L), "A2": (L, L), "V1": (1, D), "c1": (D,), "V2": (1, L), "c2": (L,)}
    shapes |= {f"{name}{layer}": (D, D) for name in "QK" for layer in "12"}
    shapes |= {f"W{layer}": (D, 1) for layer in "12"} | {f"b{layer}": (1,) for layer in "12"}
    w = {name: torch.randn(STARTS, *shape).requires_grad_() for name, shape in shapes.items()}
    optimiser, best = torch.optim.Adam(w.values(), lr=RATE), 0
    for _ in range(STEPS):
        found = logits(w, model, tokens)
        first, second = found.topk(2, dim=-1).values.unbind(-1)
        is_right = (found.argmax(-1) == due) & (first - second > LEAST * found.abs().amax(-1))
        best = max(best, int(is_right.sum((1, 2)).max()))
        chance = torch.log_softmax(found, dim=-1).gather(-1, due.expand(STARTS, -1, -1)[..., None])
        optimiser.zero_grad()
        (-chance.mean((1, 2, 3)).sum()).backward()
        optimiser.step()
    return best


if __name__ == "__main__":
    for model, T, L in CASES:
        print(f"{model} T={T} L={L}: {most_right(model, T, L)} of {L * T**L} positions right", flush=True)
