"""Which token is the first: by causal masking alone, by BOS's share, or by positions, whatever the tokens are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from constructions.decoder_arrays import DType
from constructions.errors import BadInput
from constructions.inductive.lanes import Design, decoder, zeros
from constructions.model_arrays import ModelArrays


def unmixed(
    *,
    K: int,
    N: int,
    pe: str = "nope",
    layernorm: bool = True,
    positions: int = 128,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder that says whether its token is the first of a string over K types whose first two tokens differ.

    The types are K points v_t on a circle. Under equal weights the mean m of the tokens so far is v_t at the first one,
    and from the second on <v_s, v_t + m> is at most 2 - gap/N for every type s, as one token of N is another type. So
    ReLU(<v_s, v_t + m> - 2 + gap/2N) is gap/2N for s = t at the first token, and 0 everywhere else.
    Claim: C-T11 (ours; C, Table A6, trains one head with d = 4, which without LayerNorm is the size here).
    Raises: BadInput for a single type, whose strings are alike at every position (C-I1), or another embedding.

    >>> import torch
    >>> unmixed(K=3, N=6, layernorm=False).module(torch.tensor([[2, 0, 2, 2, 1]])).argmax(-1).tolist()
    [[1, 0, 0, 0, 0]]
    """
    if K < 2:
        raise BadInput(f"types={K}: on strings of one type no token differs from the first; must be at least 2")
    if pe not in ("nope", "rope"):
        raise BadInput(f"pe={pe!r}: positions tell the first token themselves; must be nope or rope")
    one, said = 2, 3
    circle, gap = 2 * math.pi * np.arange(K) / K, 1 - math.cos(2 * math.pi / K)
    E = np.stack([np.cos(circle), np.sin(circle), np.ones_like(circle), np.zeros_like(circle)], 1)
    mixed = np.diag([1.0, 1.0, 0.0, 0.0])
    W_in, W_out, W_U = zeros(4, K + 1), zeros(K + 1, 4), zeros(4, 2)
    W_in[:2, :K], W_in[one, :K], W_in[one, K] = E[:, :2].T, -(2 - gap / (2 * N)), 1.0
    W_out[:K, said], W_out[K, said], W_U[said, 1] = 4 * N / gap, -1.0, 1.0  # 2 - 1 at the first token, else -1
    design = Design(E, mixed, W_in, W_out, W_U)
    return decoder(design, pe=pe, bos=False, layernorm=layernorm, positions=positions, dtype=dtype)


def beside_bos(
    *, K: int, pe: str = "nope", layernorm: bool = True, positions: int = 128, dtype: DType = "float64"
) -> ModelArrays:
    """A decoder with BOS and without an MLP that says whether its token is the first, at every length.

    BOS's share under equal weights is 1/2 at the first token and at most 1/3 later: 6 (share) - 5/2 has its sign.
    Claim: C-T12 (ours).

    >>> import torch
    >>> beside_bos(K=2).module(torch.tensor([[1, 1, 0, 1]])).argmax(-1).tolist()
    [[1, 0, 0, 0]]
    """
    one, bos = 0, 1
    E, mixed, W_U = zeros(K + 1, 2), zeros(2, 2), zeros(2, 2)
    E[:K, one], E[K, bos], mixed[bos, bos] = 1.0, 1.0, 1.0
    W_U[one, 1], W_U[bos, 1] = -2.5, 6.0
    design = Design(E, mixed, zeros(2, 0), zeros(0, 2), W_U)
    return decoder(design, pe=pe, bos=True, layernorm=layernorm, positions=positions, dtype=dtype)


def alike(model: ModelArrays, K: int) -> ModelArrays:
    """The decoder of one token with K tokens in its place, all with its embedding: it answers every string alike.

    >>> from constructions.inductive.positional import ape
    >>> model = alike(ape(task="first-homogeneous", N=5, positions=9), 3)
    >>> import torch
    >>> model.module(torch.tensor([[2, 2, 0, 1]]), shift=4).argmax(-1).tolist()
    [[1, 0, 0, 0]]
    """
    if not np.isfinite(model.W_E).all():
        raise BadInput("weights: W_E has an infinite or NaN entry; nothing can be proved about it")
    weights = dict(model.weights) | {"W_E": np.concatenate([model.W_E[:1]] * K + [model.W_E[1:]])}
    return replace(model, weights=weights, arguments={**model.arguments, "vocabulary": K})
