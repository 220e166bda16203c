"""Models near one that get an input wrong: every number moves in the direction that hurts most, in float64.

What is found here is a proposal; the verifier's word on the model is what counts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from verify.changes.boxes import ModelBox, RivalQuestions
from verify.frame.clock import Deadline

AT_ONCE = 512
MOST_SLOPES = 1 << 21  # of all pairs that are followed at a time: 16 MiB
STEPS = 3  # of the direction that hurts, found again where the last one leads
HALVINGS = 40
GROWTH = 1.25
WIDEST = 2.0**10  # radius beyond which no wrong model is looked for

Weights = dict[str, Tensor]


def gap_of(box: ModelBox, weights: Weights, tokens: Tensor, position: Tensor, right: Tensor, rival: Tensor) -> Tensor:
    """The gap of one pair at these weights."""
    output = functional_call(box.module, weights, (tokens.unsqueeze(0),))
    logits = output.reshape(-1, output.shape[-1])
    row = logits.gather(0, position.reshape(1, 1).expand(1, logits.shape[-1]))[0]
    gap: Tensor = (row.gather(0, right.reshape(1)) - row.gather(0, rival.reshape(1)))[0]
    return gap


def slopes(box: ModelBox, pairs: RivalQuestions, until: Deadline) -> tuple[Tensor, Tensor]:
    """The gap of each pair, and how fast it falls with the radius, at the stored weights.

    Raises: TimeIsUp.
    """
    stored = {name: w.detach() for name, w in box.module.named_parameters()}

    def one(*pair: Tensor) -> tuple[Tensor, Tensor]:
        found = grad(lambda w: gap_of(box, w, *pair))(stored)
        falls = [(slope.abs() * box.reach[name]).sum() for name, slope in found.items()]
        return gap_of(box, stored, *pair), torch.stack(falls).sum()

    parts, step = [], max(1, min(AT_ONCE, MOST_SLOPES // sum(w.numel() for w in stored.values())))
    for i in range(0, len(pairs), step):
        until.check()
        parts.append(vmap(one)(*_columns(pairs[slice(i, i + step)])))
    gap, slope = zip(*parts, strict=True)
    return torch.cat(gap), torch.cat(slope)


def hurt(box: ModelBox, pairs: RivalQuestions, first: Tensor, until: Deadline) -> tuple[Tensor, Weights]:
    """For each pair a radius at which its gap is not positive, infinite where none is found, and the direction there.

    The direction (-1, 0 or 1 for each number) is that of the slopes, taken again at the point that the last one leads
    to. `first` is where to begin. At the deadline the radii are those found so far.
    """
    stored = {name: w.detach() for name, w in box.module.named_parameters()}

    def moved(r: Tensor, direction: Weights) -> Weights:
        return {name: w + r * box.reach[name] * direction[name] for name, w in stored.items()}

    def one(r: Tensor, *pair: Tensor) -> tuple[Tensor, Weights]:
        direction = {name: torch.zeros_like(w) for name, w in stored.items()}
        for _ in range(STEPS):
            found = grad(lambda w: gap_of(box, w, *pair))(moved(r, direction))
            direction = {name: -slope.sign() for name, slope in found.items()}
        return gap_of(box, moved(r, direction), *pair), direction

    gap_at, columns = vmap(one), _columns(pairs)
    high = torch.where(torch.isfinite(first), first, torch.ones_like(first))
    is_wrong = gap_at(high, *columns)[0] <= 0
    while bool((~is_wrong & (high <= WIDEST)).any()) and not until.is_up():
        high = torch.where(is_wrong, high, GROWTH * high)
        is_wrong = gap_at(high, *columns)[0] <= 0
    low, found = torch.zeros_like(high), is_wrong
    for _ in range(HALVINGS):
        if until.is_up():
            break
        middle = (low + high) / 2
        is_wrong = gap_at(middle, *columns)[0] <= 0
        low, high = torch.where(is_wrong, low, middle), torch.where(is_wrong, middle, high)
    return torch.where(found, high, torch.inf), gap_at(high, *columns)[1]


def _columns(pairs: RivalQuestions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return pairs.questions.tokens, pairs.questions.position, pairs.questions.right, pairs.rival
