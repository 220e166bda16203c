"""Relation counting in the plane: bos+sftm with one neuron and d = 2, on tokens that the neuron reads differently."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from constructions.coded_relation import read_one_neuron
from constructions.errors import BadInput, NotKnown
from constructions.histogram_arrays import HistogramArrays
from constructions.progress import Progress
from constructions.seeds import generator
from constructions.threads import one_thread

ELEMENTS = 1 << 16  # readings of all restarts together: about 10 ms a step
MOST_RESTARTS = 512


def plane(
    *,
    T: int,
    L: int,
    p: int = 1,
    dtype: str,
    seed: int = 0,
    steps: int = 2000,
    progress: Progress | None = None,
) -> HistogramArrays:
    """bos+sftm with one neuron at d = 2, by descent on the worst gap between the readings of two counts.

    The neuron reads the second coordinate. The scores e_t X e_s are free, so that tokens in convex position can each
    attend most to themselves; the price is that they are read differently (W-7), and the weights of BOS must make up
    for it.
    Claim: W-8.
    Shapes: see HistogramTransformer with d = 2.
    Raises: NotKnown when the readings of two counts overlap on the best tokens found, with the gap reached; BadInput
        for sequences of one token, whose counts are all 1.

    >>> built = plane(T=3, L=2, dtype="float32", steps=100)
    >>> built.predict([2, 0]), built.predict([1, 1])
    ([1, 1], [2, 2])
    """
    if L < 2:
        raise BadInput(f"L={L}: the plane tells counts apart, and there is only one. Use --construction inventory.")
    with one_thread():
        gap, *found = _search(T, L, seed, steps, progress)
    if not gap > 0:
        raise NotKnown(
            f"d=2: one neuron is not known to count T={T} tokens at L={L} in the plane. On tokens that it reads alike, "
            "which lie on a line, it cannot (W-7); on the best others found the readings of two counts overlap "
            f"(gap about {gap:.3g} of their range, above zero is needed; W-8 says where it works). Use --d 3."
        )
    E, e_BOS, X = (x.numpy() for x in found)
    built = HistogramArrays.zeros("bos+sftm", T=T, L=L, d=2, p=p, dtype=dtype)
    identity = np.eye(2)
    built.fill(E=E, e_BOS=e_BOS, W_Q=math.sqrt(2) * X, W_K=identity)
    reading = np.append(E[:, 1], e_BOS[1])
    # every mixed token reads at least twice the least of all tokens: this bias keeps the neuron on
    return read_one_neuron(built, identity[1], bias=2 * float(np.abs(reading).max()))


def _search(T: int, L: int, seed: int, steps: int, progress: Progress | None) -> tuple[float, Tensor, Tensor, Tensor]:
    """The best tokens, BOS and scores by Adam from many random starts at once, and their gap."""
    g = generator(seed)
    R = min(MOST_RESTARTS, max(4, ELEMENTS // (L * T * T)))
    shapes = ((R, T, 2), (R, 1, 2), (R, 2, 2))
    scales = (1.0, 1.0, 2.0)
    E, e_BOS, X = parameters = [
        (scale * torch.randn(*shape, generator=g, dtype=torch.float64)).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    optimizer = torch.optim.Adam(parameters, lr=0.03)
    best, kept = -math.inf, [p.detach()[0].clone() for p in parameters]
    for step in range(steps):
        if progress is not None:
            progress(step / steps)
        sharpness = 20.0 * 50.0 ** (step / steps)
        readings = _readings(E, e_BOS, X, L)
        span = readings.detach().amax((1, 2)) - readings.detach().amin((1, 2)) + 1e-9
        readings = readings / span[:, None, None]
        gaps = (readings.detach().amin(-1)[:, 1:] - readings.detach().amax(-1)[:, :-1]).amin(-1)
        winner = int(gaps.argmax())
        if gaps[winner] > best:
            best, kept = float(gaps[winner]), [p.detach()[winner].clone() for p in parameters]
        high = torch.logsumexp(sharpness * readings, -1) / sharpness
        low = -torch.logsumexp(-sharpness * readings, -1) / sharpness
        optimizer.zero_grad()
        (high[:, :-1] - low[:, 1:]).amax(-1).sum().backward()
        optimizer.step()
    return best, kept[0], kept[1][0], kept[2]


def _readings(E: Tensor, e_BOS: Tensor, X: Tensor, L: int) -> Tensor:
    """What the neuron reads with k slots holding t and the rest s: (R, L, T (T - 1)) for k = 1..L."""
    T = E.shape[1]
    keys = torch.cat([E, e_BOS], dim=1)
    scores = E @ X @ keys.transpose(1, 2)
    weight = (scores - scores.amax(-1, keepdim=True)).exp()[:, None]  # (R, 1, T, T + 1)
    u, u_BOS = E[:, None, :, 1], e_BOS[:, None, :, 1:]
    k = torch.arange(1, L + 1, dtype=E.dtype)[:, None, None]
    own, other, bos = weight[..., :T].diagonal(dim1=-2, dim2=-1)[..., None], weight[..., :T], weight[..., T:]
    total = k * own * u[..., None] + (L - k) * other * u[..., None, :] + bos * u_BOS
    reading = u[..., None] + total / (k * own + (L - k) * other + bos)
    return reading[..., ~torch.eye(T, dtype=torch.bool)]
