"""Selective counting without BOS in one layer: positions say the length, and neurons make its reciprocal of it."""

from __future__ import annotations

import math

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.errors import BadInput
from constructions.inductive.lanes import LOUD, zeros
from constructions.inductive.positional import LANE, with_layernorm
from constructions.inductive.proportions import lines
from constructions.inductive.sinusoidal import HELD, position_reading
from constructions.inductive.two_layers import SHARE, WAVES
from constructions.model_arrays import ModelArrays


def positioned(
    *,
    K: int,
    C: int,
    pe: str = "ape",
    layernorm: bool = True,
    positions: int = 128,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder of one layer without BOS that knows its token's count, with K + P neurons for P positions.

    The head has equal weights. The mean of the ids s + 1..s + n leaves D = (n - 1)/2 of the own one, whatever the shift
    s is. P neurons of D, with kinks at 0, 1/2, 1, .., make the broken line through 1/n at each n; the gates of C-T2
    bring c/n, and its lines tell the count c. SinePE reads ids as C-T6 does; tokens are LOUD there.
    Claim: C-T10 (ours; C trains one layer, and reports at most 68.8 % out of distribution).
    Raises: BadInput for another embedding, NotKnown for sine with more positions than the sines tell.

    >>> import torch
    >>> positioned(K=2, C=3, positions=16).module(torch.tensor([[0, 0, 1, 0, 1]]), shift=7).argmax(-1).tolist()
    [[1, 2, 1, 3, 2]]
    """
    if pe not in ("ape", "spe", "sine"):
        raise BadInput(f"pe={pe!r}: positions say the length; must be ape, spe or sine")
    types, gates, x, kx, centre = range(K), range(K, 2 * K), 2 * K, 2 * K + 1, C // 2
    is_sine, own = pe == "sine", 2 * K + 2  # own is the lane of ids, or the first that holds sines alone
    d, loud = (max(WAVES, 2 * own), LOUD) if is_sine else (own + 1, 1.0)
    p, d_head = K + positions, 4 ** math.ceil(math.log(K + 1, 4))
    E, ident = zeros(K, d), zeros(d)
    E[types, types], E[:, K : 2 * K] = loud, loud * (np.eye(K) - 1)
    W_V, W_O, W_in, W_out, W_U = zeros(d, d_head), zeros(d_head, d), zeros(d, p), zeros(p, d), zeros(d, C + 1)
    if is_sine:  # the mean of the ids is brought into the lane of a slow cosine, so loudly that the cosine is lost
        ident, place, loudly = position_reading(d, positions, is_balanced=layernorm), LANE, HELD / positions
        distance = ident.copy()
        distance[LANE] = -1 / loudly
    else:  # it is taken away from the lane of ids
        ident[own], place, loudly = 1.0, own, -1.0
        distance = ident
    W_V[types, types], W_O[types, gates] = 1.0, SHARE
    W_V[:, K], W_O[K, place] = loudly * ident, 1.0
    W_in[gates, types], W_in[:, K + 1 :], b_in = 1.0, distance[:, None], zeros(p)
    b_in[K], b_in[K + 1 :] = 1.0, -np.arange(positions - 1) / 2
    n = np.arange(1, positions + 1)
    slopes = np.concatenate([zeros(1), 2 / n[1:] - 2 / n[:-1]])  # of 1/n over D, before each n
    W_out[types, kx] = 1.0
    W_out[K, x], W_out[K + 1 :, x] = SHARE * loud, SHARE * loud * np.diff(slopes)
    W_out[K:, kx] = -centre * W_out[K:, x]
    W_U[[x, kx]] = lines(0, C + 1, centre)
    model = blank(
        vocabulary=K, d=d, d_head=d_head, d_mlp=p, classes=C + 1, positions=positions, pe=pe, activation="relu",
        layernorm=False, dtype=dtype,
    )  # fmt: skip
    filled(model, {"W_E": E[:, : d - (pe == "spe")], "W_U": W_U, "W_V": W_V, "W_O": W_O, "W_in": W_in, "b_in": b_in,
                   "W_out": W_out})  # fmt: skip
    if pe == "ape":
        table = zeros(positions, d)
        table[:, own] = np.arange(1, positions + 1)
        filled(model, {"W_pos": table})
    return with_layernorm(model) if layernorm else model
