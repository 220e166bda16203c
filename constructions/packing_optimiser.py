"""Lines far apart, found numerically: batched restarts on a p-norm of the overlaps with p rising."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import normalize

from constructions.errors import BadInput

Progress = Callable[[float], None]


def coherence(vectors: Tensor) -> Tensor:
    """The largest |<v_i, v_j>|, i != j, in float64: an estimate, verify.coherence certifies it.

    Shapes: (..., T, d) -> (...).

    >>> float(coherence(torch.eye(3, dtype=torch.float64)))
    0.0
    """
    overlaps = (vectors @ vectors.mT).abs()
    overlaps.diagonal(dim1=-2, dim2=-1).zero_()
    return overlaps.amax((-1, -2))


def optimised_lines(
    T: int, d: int, *, seed: int = 0, progress: Progress | None = None, steps: int = 3000, restarts: int = 64
) -> Tensor:
    """T unit vectors in R^d of small coherence, the best of all restarts; deterministic by seed.

    Claim: none; what comes out is judged by its coherence.
    Shapes: (T, d).
    Raises: BadInput when T < 1, d < 1, steps < 1 or restarts < 1.

    >>> round(float(coherence(optimised_lines(6, 3, steps=300, restarts=8))), 2)  # 1 / sqrt(5)
    0.45
    """
    for name, value in (("T", T), ("d", d), ("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise BadInput(f"{name}={value}: must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    start = normalize(torch.randn(restarts, T, d, dtype=torch.float64, generator=generator), dim=-1)
    with _one_thread():
        V = _anneal(start, steps, progress)
    return V[coherence(V).argmin()].clone()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Products this small lose by being split over threads, and sums then come out the same on every machine size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _anneal(V: Tensor, steps: int, progress: Progress | None) -> Tensor:
    """Descends the p-norm of the overlaps while p rises from 4 to 1000, with momentum and a common step size."""
    momentum, scale = torch.zeros_like(V), torch.zeros(V.shape[0], 1, 1, dtype=V.dtype)
    for step in range(steps):
        p = 4.0 * 250.0 ** (step / max(steps - 1, 1))
        gradient = _p_norm_gradient(V, p)
        momentum = 0.9 * momentum + 0.1 * gradient
        scale = 0.99 * scale + 0.01 * gradient.square().mean((-1, -2), keepdim=True)
        unbiased = (scale / (1 - 0.99 ** (step + 1))).sqrt()
        V = normalize(V - 0.3 / p * momentum / (unbiased + 1e-12), dim=-1)
        if progress is not None:
            progress((step + 1) / steps)
    return V


def _p_norm_gradient(V: Tensor, p: float) -> Tensor:
    """The gradient of the p-norm of all overlaps along the spheres, with overlaps scaled by the largest."""
    overlaps = V @ V.mT
    overlaps.diagonal(dim1=-2, dim2=-1).zero_()
    size = overlaps.abs()
    weight = (size / size.amax((-1, -2), keepdim=True).clamp_min(1e-300)).clamp_min(1e-300).log().mul(p - 1).exp()
    pull = (weight * overlaps.sign() / weight.sum((-1, -2), keepdim=True)) @ V
    return pull - (pull * V).sum(-1, keepdim=True) * V
