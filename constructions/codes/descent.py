"""Unit vectors spread out by descent, which needs torch."""

from __future__ import annotations

import torch
from torch import Tensor

from constructions.model_arrays import Array
from constructions.progress import Progress
from constructions.seeds import generator
from constructions.threads import one_thread


def descended(T: int, m: int, seed: int, steps: int, progress: Progress | None = None) -> Array:
    """T unit vectors of R^m whose largest overlap fell by Adam from four random starts, the best of them.

    >>> descended(4, 3, 0, 10).shape
    (4, 3)
    """
    with one_thread():
        return _descended(T, m, seed, steps, progress).numpy()


def _descended(T: int, m: int, seed: int, steps: int, progress: Progress | None) -> Tensor:
    g = generator(seed)
    v = torch.randn(4, T, m, generator=g, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([v], lr=0.05)
    diagonal = 9 * torch.eye(T, dtype=torch.float64)
    for step in range(steps):
        if progress is not None:
            progress(step / steps)
        sharpness = 5.0 * 400.0 ** (step / steps)
        unit = torch.nn.functional.normalize(v, dim=-1)
        overlaps = (unit @ unit.transpose(1, 2) - diagonal).flatten(1)
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / steps) + 1e-4
        optimizer.zero_grad()
        (torch.logsumexp(sharpness * overlaps, 1) / sharpness).sum().backward()
        optimizer.step()
    unit = torch.nn.functional.normalize(v.detach(), dim=-1)
    largest = (unit @ unit.transpose(1, 2) - diagonal).flatten(1).amax(1)
    return unit[int(largest.argmin())]
