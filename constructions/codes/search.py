"""Searches token codes for inventory counting in d < T dimensions, on the worst-case gap itself.

What is maximised is the gap of constructions.codes.code, in logarithms, together with the condition that the neurons of
all other tokens stay off.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.codes.code import FAR, Code, log_readings, others_upper
from constructions.progress import Progress
from constructions.seeds import generator
from constructions.threads import one_thread


def search(
    model: str,
    T: int,
    L: int,
    d: int,
    *,
    seed: int = 0,
    restarts: int = 4,
    steps: int = 3000,
    progress: Progress | None = None,
) -> Code:
    """The best code found by Adam from several random starts at once; the same seed gives the same code.

    Claim: W-2 (spread instead of size) and its counterparts for lin and dot+sftm.
    Shapes: see Code. A gap above zero is needed, and is still no proof: the verifier judges the weights.

    >>> search("dot", 6, 4, 3, steps=300).gap > 0
    True
    """
    with one_thread():
        return _search(model, T, L, d, seed, restarts, steps, progress)


def _search(
    model: str, T: int, L: int, d: int, seed: int, restarts: int, steps: int, progress: Progress | None
) -> Code:
    g = generator(seed)
    E = torch.nn.functional.normalize(torch.randn(restarts, T, d, generator=g, dtype=torch.float64), dim=-1)
    X = 2.0 * torch.eye(d, dtype=torch.float64).repeat(restarts, 1, 1)
    W_1 = E.transpose(1, 2).clone()
    parameters = (E.requires_grad_(), X.requires_grad_(), W_1.requires_grad_())
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    best_gap, best = torch.full((restarts,), -torch.inf, dtype=torch.float64), [p.detach().clone() for p in parameters]
    for step in range(steps):
        share = step / steps
        if progress is not None:
            progress(share)
        sharpness = 10.0 * 200.0**share
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - share) + 2e-4
        loss, gap = _loss(model, E, X, W_1, L, sharpness)
        better = gap > best_gap
        if better.any():
            best_gap = torch.where(better, gap, best_gap)
            for kept, parameter in zip(best, parameters, strict=True):
                kept[better] = parameter.detach()[better]
        optimizer.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    winner = int(best_gap.argmax())
    found = [x[winner].numpy() for x in best]
    return Code(model, found[0], found[1], found[2], float(best_gap[winner]))


def _loss(model: str, E: Tensor, X: Tensor, W_1: Tensor, L: int, sharpness: float) -> tuple[Tensor, Tensor]:
    """The smooth loss of each restart, and its true gap (minus infinity while a wrong neuron can be on)."""
    # without softmax R is (L - k) D, so evenness of D is all, and the hardest pair of counts is 1 and 2
    is_product = model != "dot+sftm"
    readings = log_readings(model, E, X, W_1, L if not is_product else 2)
    readings = (readings - readings.mean((-3, -1), keepdim=True)).flatten(-2)  # each neuron has its own scale
    high = torch.logsumexp(sharpness * readings, -1) / sharpness
    low = -torch.logsumexp(-sharpness * readings, -1) / sharpness
    if is_product:
        slack = math.log((L - 1) / (L - 2)) if L > 2 else 20.0
        gaps = slack + low - high
        true_gap = slack + (readings.amin(-1) - readings.amax(-1))[..., 0]
    elif L > 2:
        gaps = low[..., :-1] - high[..., 1:]
        true_gap = (readings.amin(-1)[..., :-1] - readings.amax(-1)[..., 1:]).amin(-1)
    else:  # one reading to tell from zero: make it as even as possible
        gaps, true_gap = low - high, torch.zeros(len(E), dtype=E.dtype) + (readings.amin(-1)[..., 0] > -20)
    penalty = _off_penalty(model, E, X, W_1, L)
    loss = torch.logsumexp(-sharpness * gaps, -1) / sharpness + penalty
    return loss, torch.where(penalty.detach() <= 0, true_gap.detach(), -torch.inf)


def _off_penalty(model: str, E: Tensor, X: Tensor, W_1: Tensor, L: int) -> Tensor:
    """How far the neurons of other tokens are from staying off while the own one is on from count 2 upwards."""
    T = E.shape[-2]
    V = E @ W_1
    own = V.diagonal(dim1=-2, dim2=-1)
    if model != "dot+sftm":  # the mixing is scaled down until only the residual matters here
        largest = (V - FAR * torch.eye(T, dtype=E.dtype)).amax(-2)
        return (0.1 - (own - largest)).clamp(min=0).sum(-1)
    readings = log_readings(model, E, X, W_1, L).exp()
    weakest = 2 * own - (readings[..., 1:, :, :].amax((-3, -1)) if L > 2 else 0.0)
    largest = others_upper(model, E, X, W_1, L).amax(-2)
    return 2 * (largest - weakest + 0.02 * own.abs()).clamp(min=0).sum(-1)
