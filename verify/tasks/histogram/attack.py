"""Attacks an impossibility by gradient descent: many random starts at once, each judged on all T^L inputs.

The forward pass is written again here, for a batch of models, so that it shares nothing with what the proofs read.
A search that finds nothing proves nothing; that it finds weights one size above the bound shows that it can.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.arithmetic.margins import margins_of

LEARNING_RATE = 0.03
SHARPNESS, STEPS_TO_DOUBLE = 4.0, 20  # of the loss, which looks at the smallest margins more and more
Size = tuple[str, int, int, int, int]  # model, T, L, d, p

# Sizes just below each bound, and sizes at which weights exist: the same search should find some there.
BELOW: dict[str, tuple[Size, ...]] = {
    "W-5": (("lin", 2, 2, 2, 1), ("lin+sftm", 2, 2, 2, 1), ("dot+sftm", 2, 2, 2, 1)),
    "W-16": (("dot+sftm", 4, 2, 4, 2), ("lin+sftm", 4, 2, 4, 2)),
    "W-17": (("dot", 4, 3, 2, 1), ("bos", 4, 3, 2, 1), ("dot", 3, 2, 1, 1)),
    "W-18": (("dot", 6, 3, 2, 1),),
}
ABOVE: dict[str, tuple[Size, ...]] = {
    "W-5": (("lin", 2, 2, 2, 2), ("dot+sftm", 2, 2, 2, 2)),
    "W-16": (("dot+sftm", 3, 2, 2, 2), ("lin+sftm", 4, 2, 4, 4)),
    "W-17": (("dot", 3, 2, 2, 1), ("bos", 3, 2, 2, 1)),
    "W-18": (("bos", 4, 2, 3, 1),),
}


@dataclass(frozen=True)
class Attack:
    """How hard a search tried, and the largest smallest margin that one of its models reached on all inputs."""

    model: str
    T: int
    L: int
    d: int
    p: int
    starts: int
    steps: int
    best: float
    counting: int

    def __str__(self) -> str:
        size = f"{self.model} T={self.T} L={self.L} d={self.d} p={self.p}"
        tried = f"{self.starts} starts of {self.steps} steps on all {self.T**self.L} inputs"
        return f"{size}: {tried}, {self.counting} count, best smallest margin {self.best:.3g}"


def attack(model: str, *, T: int, L: int, d: int, p: int, starts: int = 32, steps: int = 600, seed: int = 0) -> Attack:
    """Descends from random weights, all starts in one batch, on the margins of all T^L inputs.

    Units: margins after dividing W_2 and b_2 by their largest entry, as any scale of them answers the same.

    >>> attack("dot", T=3, L=2, d=2, p=1, starts=8, steps=200).counting > 0
    True
    """
    g = torch.Generator().manual_seed(seed)
    weights = {name: scale * torch.randn(starts, *shape, generator=g, dtype=torch.float64)
               for name, (shape, scale) in _shapes(model, T, L, d, p).items()}  # fmt: skip
    _stairs(weights, L)
    parameters = [x.requires_grad_() for x in weights.values()]
    optimiser = torch.optim.Adam(parameters, LEARNING_RATE)
    tokens = torch.cartesian_prod(*[torch.arange(T)] * L).reshape(-1, L)
    right = ((tokens[:, :, None] == tokens[:, None, :]).sum(-1) - 1)[None].expand(starts, -1, -1)
    best = torch.full((starts,), -torch.inf, dtype=torch.float64)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * (1 - 0.95 * step / steps)
        logits = _logits(model, weights, tokens)
        margin = margins_of(logits, right)
        size = torch.maximum(weights["W_2"].abs().amax((1, 2)), weights["b_2"].abs().amax(1)).detach()
        reached = margin.detach().amin((1, 2)) / size
        best = torch.where(reached > best, reached, best)  # NaN is never better
        optimiser.zero_grad()
        torch.nn.functional.softplus(-SHARPNESS * (1 + step / STEPS_TO_DOUBLE) * margin).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return Attack(model, T, L, d, p, starts, steps, float(best.max()), int((best > 0).sum()))


def attacks(sizes: tuple[Size, ...], *, starts: int, steps: int, seed: int = 0) -> list[Attack]:
    """The attack at each of these sizes."""
    return [attack(model, T=T, L=L, d=d, p=p, starts=starts, steps=steps, seed=seed) for model, T, L, d, p in sizes]


def tried(claim: str, seed: int = 0) -> tuple[dict[str, str], bool]:
    """A short attack on a claim, as a check of its argument: what was tried, and whether nothing was found below."""
    below, above = (attacks(sizes[claim], starts=16, steps=200, seed=seed) for sizes in (BELOW, ABOVE))
    told = {f"gradient search below, {i}": str(one) for i, one in enumerate(below, 1)}
    told |= {f"the same search where weights exist, {i}": str(one) for i, one in enumerate(above, 1)}
    return told, not any(one.counting for one in below)


def _shapes(model: str, T: int, L: int, d: int, p: int) -> dict[str, tuple[tuple[int, ...], float]]:
    """The shape of each weight, and the scale that it is drawn with."""
    mixing = {"A": ((L, L), 1.0)} if model.startswith("lin") else {"X": ((d, d), 1.0)}
    bos = {"e_BOS": ((d,), 1.0)} if model.startswith("bos") else {}
    rest = {"W_1": ((d, p), 1.0), "b_1": ((p,), 1.0), "W_2": ((p, L), 1.0), "b_2": ((L,), 1.0)}
    return {"E": ((T, d), 1.0)} | mixing | bos | rest


def _stairs(weights: dict[str, Tensor], L: int) -> None:
    """Every other start has readouts near a staircase, from which more of them succeed."""
    k = torch.arange(L, dtype=torch.float64) - (L - 1) / 2
    weights["W_2"][::2] = 0.3 * weights["W_2"][::2] + k
    weights["b_2"][::2] = 0.3 * weights["b_2"][::2] - k * k / 2 - k


def _logits(model: str, weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Computes the logits (starts, inputs, L, L) of a batch of models. X stands for W_Q W_K^T / sqrt(d)."""
    x = weights["E"][:, tokens]  # (starts, inputs, L, d)
    keys = x
    if "e_BOS" in weights:
        bos = weights["e_BOS"][:, None, None].expand(-1, len(tokens), 1, -1)
        keys = torch.cat([bos, x], dim=2)
    x_X = None if "A" in weights else x @ weights["X"][:, None]
    scores = weights["A"][:, None] if x_X is None else x_X @ keys.transpose(-1, -2)
    mixing = scores.softmax(-1) if model.endswith("+sftm") else scores
    mixed = x + mixing @ keys
    hidden = torch.relu(mixed @ weights["W_1"][:, None] + weights["b_1"][:, None, None])
    return hidden @ weights["W_2"][:, None] + weights["b_2"][:, None, None]
