"""Lines far apart, found numerically: many restarts, free and symmetric, on a p-norm of the overlaps with p rising."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from constructions.errors import BadInput
from constructions.frames.line_systems import coherence
from constructions.frames.polish import polished
from constructions.frames.symmetries import KINDS, random_group
from constructions.model_arrays import Array
from constructions.progress import Progress
from constructions.seeds import generator as seeded
from constructions.threads import one_thread

STEPS = 1200  # of each round; at (32, 10) and (32, 13) half as many miss the best basin more often than not
RESTARTS = 512  # of each round at T = 32
FINALISTS = 3
COARSE = (4.0, 1000.0, torch.float32)  # p rises from, to; a p-norm exceeds the maximum by about log(pairs) / p
FINE = (1000.0, 1e6, torch.float64)


def _coherences(vectors: Tensor) -> Tensor:
    """The coherence of each of many frames: (..., T, d) -> (...)."""
    overlaps = (vectors @ vectors.mT).abs()
    overlaps.diagonal(dim1=-2, dim2=-1).zero_()
    return overlaps.amax((-1, -2))


def optimised_lines(
    T: int,
    d: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    steps: int = STEPS,
    restarts: int | None = None,
) -> Array:
    """T unit vectors in R^d of small coherence, the best of all restarts, polished; the same seed gives the same lines.

    Claim: none; what comes out is judged by its coherence. Restarts are free, or orbits of a random small group,
    possibly of a few lines more than T.
    Shapes: (T, d).
    Raises: BadInput when T < 1, d < 1, steps < 1 or restarts < 1.

    >>> round(coherence(optimised_lines(6, 3, steps=200, restarts=8)), 6)  # 1 / sqrt(5)
    0.447214
    """
    restarts = max(16, min(RESTARTS, RESTARTS * 32**2 // max(T, 1) ** 2)) if restarts is None else restarts
    for name, value in (("T", T), ("d", d), ("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise BadInput(f"{name}={value}: must be at least 1")
    generator = seeded(seed)
    rounds = _rounds(T)

    def report(done: float) -> None:
        if progress is not None:
            progress(done / (len(rounds) + FINALISTS))

    with one_thread():
        finalists: list[Tensor] = []
        for number, (kind, n) in enumerate(rounds):
            groups = torch.stack([random_group(kind, n, d, generator) for _ in range(restarts)])
            seeds = torch.randn(restarts, -(-T // n), d, dtype=torch.float64, generator=generator)
            told = partial(report, number)
            lines = _anneal(groups, normalize(seeds, dim=-1), steps, COARSE, told)[:, :T]
            finalists = _best([*finalists, *lines])
            report(number + 1)
        no_group = torch.eye(d, dtype=torch.float64).expand(len(finalists), 1, d, d)
        finalists = list(_anneal(no_group, torch.stack(finalists), steps, FINE, partial(report, len(rounds))))
        results = [lines.numpy() for lines in finalists]
        for number, lines in enumerate(finalists):
            done = len(rounds) + FINALISTS - len(finalists) + number
            results.append(polished(lines.numpy(), told=partial(report, done)))
            report(done + 1)
    return min(results, key=coherence)


def _rounds(T: int) -> list[tuple[str, int]]:
    """Which groups to try: none, then every order up to eight whose orbits waste few lines."""
    rounds = [("cyclic", 1)]
    for n in range(2, 9):
        if -(-T // n) * n - T <= T // 16 and n < T:
            is_power_of_two = n & (n - 1) == 0
            rounds += [(kind, n) for kind in KINDS if kind == "cyclic" or is_power_of_two]
    return rounds


def _best(candidates: list[Tensor]) -> list[Tensor]:
    """The finalists: the lowest coherences, no two within 5e-4 of each other (they would polish to the same)."""
    values = _coherences(torch.stack(candidates))
    kept: list[int] = []
    for index in values.argsort(stable=True).tolist():
        if not kept or values[index] > values[kept[-1]] * (1 + 5e-4):
            kept.append(index)
        if len(kept) == FINALISTS:
            break
    return [candidates[index].clone() for index in kept]


def _anneal(
    groups: Tensor, seeds: Tensor, steps: int, schedule: tuple[float, float, torch.dtype], told: Callable[[], None]
) -> Tensor:
    """Descends the p-norm of the overlaps of the orbits while p rises, by momentum on the spheres.

    By symmetry the overlaps of the seeds with all lines are enough, and so is the gradient in the seeds.
    Shapes: groups (B, n, d, d), seeds (B, m, d) -> lines (B, n m, d), float64.
    """
    B, n, d, _ = groups.shape
    m = seeds.shape[1]
    first, last, dtype = schedule
    stacked, S = groups.reshape(B, n * d, d).to(dtype), seeds.to(dtype)
    momentum, scale = torch.zeros_like(S), torch.zeros(B, 1, 1, dtype=dtype)
    for step in range(steps):
        told()
        p = first * (last / first) ** (step / max(steps - 1, 1))
        gradient = _p_norm_gradient(S, _orbits(stacked, S), p)
        momentum = 0.9 * momentum + 0.1 * gradient
        scale = 0.99 * scale + 0.01 * gradient.square().mean((-1, -2), keepdim=True)
        unbiased = (scale / (1 - 0.99 ** (step + 1))).sqrt()
        S = normalize(S - 0.3 / p * momentum / (unbiased + 1e-12), dim=-1)
    exact = _orbits(groups.reshape(B, n * d, d), S.double())
    return normalize(exact, dim=-1).reshape(B, n * m, d)


def _orbits(stacked: Tensor, S: Tensor) -> Tensor:
    """Every group element on every seed, the seeds themselves first."""
    B, m, d = S.shape
    n = stacked.shape[1] // d
    return (stacked @ S.mT).reshape(B, n, d, m).mT.reshape(B, n * m, d)


def _p_norm_gradient(S: Tensor, V: Tensor, p: float) -> Tensor:
    """The gradient of the p-norm of the overlaps <s, v> along the spheres, up to a factor."""
    overlaps = S @ V.mT
    overlaps.diagonal(dim1=-2, dim2=-1).zero_()
    size = overlaps.abs()
    ratio = (size / size.amax((-1, -2), keepdim=True).clamp_min(1e-30)).clamp_min(1e-30)
    weight = (ratio.log() * (p - 1)).clamp_min(-60.0).exp()
    pull = (weight * overlaps.sign() / weight.sum((-1, -2), keepdim=True)) @ V
    return pull - (pull * S).sum(-1, keepdim=True) * S
