"""Random sequences whose counts are spread evenly, by recursive partitions."""

from __future__ import annotations

import torch
from torch import Tensor


def sample(T: int, L: int, n: int, generator: torch.Generator | None = None) -> Tensor:
    """n sequences: cut off a block of uniform size, give it a fresh token, repeat on the rest, shuffle.

    Claim: A-D (App. D). Step 4 prints K = k, which would never end; K = k - 1 is meant. When the alphabet
        runs out (T < L) the last token takes all the rest.
    Shapes: (n, L), tokens 0..T-1.

    >>> sample(5, 4, 2, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4])
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    fresh_tokens = uniform(n, T).argsort(1)
    position = torch.arange(1, L + 1)
    x = torch.zeros(n, L, dtype=torch.long)
    K = torch.full((n,), L)
    for j, cut in enumerate(uniform(min(T, L), n)):
        if not K.any():
            break
        k = (cut * K).long().clamp(max=K - 1) + 1  # uniform on 1..K
        if j == T - 1:
            k = torch.ones_like(K)
        block = (position >= k[:, None]) & (position <= K[:, None])
        x = torch.where(block, fresh_tokens[:, j : j + 1], x)
        K = (k - 1).clamp(min=0)
    return x.gather(1, uniform(n, L).argsort(1))
