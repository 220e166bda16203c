"""Selective counting without BOS in two layers: the first finds the first token, which is the second's BOS.

A flag that is 1 at the first token and 0 at all others is what BOS's one-hot is: over n positions its share is 1/n.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.errors import BadInput
from constructions.inductive.lanes import LOUD, zeros
from constructions.inductive.positional import LANE, STEEP, with_layernorm
from constructions.inductive.proportions import read_counts
from constructions.inductive.sinusoidal import HELD, position_reading
from constructions.model_arrays import Array, ModelArrays

WAVES = 64  # dimensions of sines at least; the slower half is left to them
SHARE = 0.25  # of a gate's closing: a share, LayerNorm's factor included, is less than 1


def unmarked(
    *,
    K: int,
    C: int,
    m: int | None = None,
    pe: str = "ape",
    N: int | None = None,
    layernorm: bool = False,
    positions: int = 128,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder of two layers without BOS that knows its token's count, modulo m where m is given.

    With APE and SPE the stream holds the position id p. Layer 1 scores keys by -STEEP times their id, and takes the
    mean y of the ids away: D = p - y is 0 at the first token, where it is the only key, and nearly 1 or more at all
    later ones, so that ReLU(1 - 2 D) is 1 there and 0 here. SinePE's slowest sines say p up to 1/8 (C-T6), so that
    ReLU(2 - 4 D) - ReLU(1 - 4 D) is; tokens are LOUD there, as positions enter all lanes. What reads p has the sum 0
    under LayerNorm, so that a loud mean is not seen.
    With NoPE and RoPE layer 1 has equal weights: the share s of the token's own type is 1 at the first token, and at
    most 1 - 1/N at all later ones of strings of up to N tokens whose first two differ, so that ReLU(A (s - 1) + 1) with
    A >= 2 N is 1 there and 0 here. Layer 2 brings the shares of all types and of the flag, and tells k from k/n and 1/n
    as `selective` does.
    Claim: C-T7 (ours; C trains two layers and more on this task without BOS).
    Raises: BadInput for NoPE and RoPE without N, NotKnown for sine with more positions than the sines tell.

    >>> import torch
    >>> unmarked(K=2, C=3, pe="spe").module(torch.tensor([[0, 0, 1, 0, 1]]), shift=7).argmax(-1).tolist()
    [[1, 2, 1, 3, 2]]
    >>> unmarked(K=2, C=3, pe="nope", N=5).module(torch.tensor([[1, 0, 1, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 2, 3]]
    """
    if pe in ("nope", "rope") and N is None:
        raise BadInput(f"N=None: with pe={pe!r} the weights hold the largest length. Give N.")
    types, gates = range(K), range(K, 2 * K)
    w, x, kx, flag, one = range(2 * K, 2 * K + 5)
    rest = one + 1  # the lane of ids, or the first of the lanes of shares, or the first that holds sines alone
    d = {"ape": rest + 1, "spe": rest + 1, "sine": max(WAVES, 2 * rest)}.get(pe, rest + K)
    W_in, W_out, W_U = read_counts(d, gates, w, x, kx, C, m)
    p, d_head = W_in.shape[1], 4 ** math.ceil(math.log(K + 1, 4))  # a size whose root is exact
    loud = LOUD if pe == "sine" else 1.0
    E = zeros(K, d)
    E[types, types], E[:, one] = 1.0, 1.0
    E[:, K : 2 * K] = np.eye(K) - 1
    model = blank(
        vocabulary=K, d=d, n_layers=2, d_head=d_head, d_mlp=p, classes=W_U.shape[1], positions=positions, pe=pe,
        activation="relu", layernorm=False, dtype=dtype,
    )  # fmt: skip
    filled(model, {"W_E": loud * E[:, : d - (pe == "spe")], "W_U": W_U})
    if pe == "sine":
        first, marks = by_waves(d, d_head, p, positions, is_balanced=layernorm), [LOUD, -LOUD]
    elif pe in ("ape", "spe"):
        first, marks = by_id(d, d_head, p, one, rest), [1.0]
    else:
        first, marks = by_share(d, d_head, p, gates, range(rest, d), int(N or 0)), [1.0] * K
    first["W_out"][: len(marks), flag] = marks
    filled(model, first, 0)
    if pe == "ape":
        table = zeros(positions, d)
        table[:, rest] = np.arange(1, positions + 1)
        filled(model, {"W_pos": table})
    W_V, W_O = zeros(d, d_head), zeros(d_head, d)
    W_V[types, types], W_O[types, gates] = 1.0, SHARE
    W_V[flag, K], W_O[K, w] = 1.0, SHARE
    filled(model, {"W_V": W_V, "W_O": W_O, "W_in": W_in, "W_out": W_out}, 1)
    return with_layernorm(model) if layernorm else model


def by_id(d: int, d_head: int, p: int, one: int, ident: int) -> dict[str, Array]:
    """The layer that takes the first token's id from the lane of ids, and one neuron that is 1 where 0 is left.

    >>> w = by_id(d=4, d_head=1, p=1, one=0, ident=1)
    >>> w["W_in"][:, 0].tolist(), w["b_in"].tolist()
    ([0.0, -2.0, 0.0, 0.0], [1.0])
    """
    W_Q, W_K, W_V, W_O = zeros(d, d_head), zeros(d, d_head), zeros(d, d_head), zeros(d_head, d)
    W_Q[one, 0], W_K[ident, 0] = 1.0, -STEEP * math.sqrt(d_head)
    W_V[ident, 0], W_O[0, ident] = 1.0, -1.0
    W_in, b_in = zeros(d, p), zeros(p)
    W_in[ident, 0], b_in[0] = -2.0, 1.0
    return {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "W_in": W_in, "b_in": b_in, "W_out": zeros(p, d)}


def by_waves(d: int, d_head: int, p: int, positions: int, *, is_balanced: bool) -> dict[str, Array]:
    """The layer that brings what the sines say of the first token's id into the lane of a slow cosine, where that is
    lost in it, and two neurons whose difference is 1 where less than 1/4 is left.

    >>> w = by_waves(16, 1, 2, 64, is_balanced=True)
    >>> w["b_in"].tolist(), [tuple(w[name].shape) for name in ("W_V", "W_in")]
    ([2.0, 1.0], [(16, 1), (16, 2)])
    """
    ident, unit = position_reading(d, positions, is_balanced=is_balanced), positions / HELD
    W_K, W_V, W_O = zeros(d, d_head), zeros(d, d_head), zeros(d_head, d)
    W_K[:, 0], W_V[:, 0], W_O[0, LANE] = -STEEP * math.sqrt(d_head) * ident, ident / unit, 1.0
    distance, W_in, b_Q, b_in = ident.copy(), zeros(d, p), zeros(d_head), zeros(p)
    distance[LANE] = -unit
    b_Q[0], b_in[0], b_in[1] = 1.0, 2.0, 1.0
    W_in[:, 0] = W_in[:, 1] = -4 * distance
    return {"b_Q": b_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "W_in": W_in, "b_in": b_in, "W_out": zeros(p, d)}


def by_share(d: int, d_head: int, p: int, gates: range, shares: range, N: int) -> dict[str, Array]:
    """The layer of equal weights, and a neuron for each type that is 1 where the token and all before are of it.

    >>> w = by_share(d=5, d_head=2, p=2, gates=range(0, 2), shares=range(2, 4), N=3)
    >>> w["W_in"][:, 0].tolist(), w["b_in"].tolist()
    ([8.0, 0.0, 8.0, 0.0, 0.0], [-7.0, -7.0])
    """
    K = len(shares)
    steep = 2.0 ** (2 * N - 1).bit_length()  # a power of two, 2 N or more
    W_V, W_O, W_in, b_in = zeros(d, d_head), zeros(d_head, d), zeros(d, p), zeros(p)
    W_V[range(K), range(K)], W_O[range(K), shares] = 1.0, 1.0
    W_in[shares, range(K)], W_in[gates, range(K)], b_in[:K] = steep, steep, 1.0 - steep
    return {"W_V": W_V, "W_O": W_O, "W_in": W_in, "b_in": b_in, "W_out": zeros(p, d)}
