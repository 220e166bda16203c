"""State dicts in the layout of document A's public code, written here from the document's formulas."""

from __future__ import annotations

import math

import torch


def staircase(thresholds: list[float], is_falling: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Lines with slopes -3, -2.5, ... that meet at the thresholds; class 0 in front is never right."""
    ordered = thresholds[::-1] if is_falling else thresholds
    slopes, intercepts = [-3.0], [30.0]
    for threshold in ordered:
        slopes.append(slopes[-1] + 0.5)
        intercepts.append(intercepts[-1] - 0.5 * threshold)
    if is_falling:
        slopes, intercepts = slopes[::-1], intercepts[::-1]
    return torch.tensor([-100.0, *slopes]), torch.tensor([-100.0, *intercepts])


def hand_built(model: str, T: int = 32, L: int = 10, seed: int = 0) -> dict[str, torch.Tensor]:
    """One of the six hand-built models in float32, on a random orthonormal basis."""
    g = torch.Generator().manual_seed(seed)
    e = torch.linalg.qr(torch.randn(T, T, generator=g, dtype=torch.float64)).Q
    common = e.sum(0)
    k = range(1, L + 1)
    E, W_1, b_1 = e, e, -1.0
    mixer = {"token_mixer.Q": torch.eye(T) * math.sqrt(T), "token_mixer.K": torch.eye(T)}
    a = 1 / (L + 1)
    if model == "dot":
        E, W_1, b_1 = e + common, common[None] / (T + 1), 0.0
        gamma = [n + L * (T + 2) + 1.0 for n in k]
    elif model == "bos":
        E, W_1 = torch.cat([e, common[None]]), common[None]
        gamma = [T + n for n in map(float, k)]
    elif model == "bos+sftm":
        E, W_1, b_1 = torch.cat([e, common[None]]), common[None], 0.0
        gamma = [math.e / ((n + 1) * math.e + L - n) * (T - 1) + 2 for n in k]
    elif model == "dot+sftm":
        gamma = [math.e * n / (math.e * n + L - n) for n in k]
    else:
        # a on every position and 2a on the diagonal
        mixer = {"token_mixer.A": a * (torch.ones(L, L) + torch.eye(L))}
        if model == "lin":
            b_1, gamma = -(1.0 + a), [n * a for n in range(1, L + 2)]
        else:
            weight, own = math.exp(a), math.exp(2 * a)
            gamma = [((n - 1) * weight + own) / ((L - 1) * weight + own) for n in k]
    thresholds = [(before + after) / 2 for before, after in zip(gamma, gamma[1:], strict=False)]
    slopes, intercepts = staircase(thresholds, gamma[0] > gamma[-1])
    p = len(W_1)
    state = {
        "semantic_emb.weight": E,
        "positional_emb.pe": torch.arange(L)[None],
        "positional_emb.embedding.weight": torch.randn(L, T, generator=g),
        **mixer,
        "fc1.weight": W_1,
        "fc1.bias": torch.tensor(b_1),
        "fc2.weight": slopes[:, None].expand(-1, p),
        "fc2.bias": intercepts,
    }
    return {name: v.float().contiguous() if v.is_floating_point() else v for name, v in state.items()}
