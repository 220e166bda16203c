"""Vanilla counting and succession in one decoder: positions count, and a number word says its successor more loudly."""

from __future__ import annotations

import math

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.errors import BadInput
from constructions.inductive.lanes import zeros
from constructions.inductive.positional import BLANK, HEAD, LANE, STEEP, readout, with_layernorm
from constructions.inductive.sinusoidal import HELD, LEAST, position_reading
from constructions.model_arrays import Array, ModelArrays

ONE = -9  # of sinusoids, a slow cosine that is no lane of another kind


def succession(
    *,
    M: int,
    pe: str = "ape",
    d: int | None = None,
    layernorm: bool = True,
    positions: int = 128,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder of one layer without BOS and MLP: a^n is answered n, and the number word j is answered j + 1.

    The head brings the first id y, so that D = p - y is n - 1, and lines through a 1 and D say n (C-T4, C-T6). A number
    word holds the 1 and its own j, both at least 4 P times as loudly for P positions: |D| is less than P wherever the
    head looks, and moves no line past another. So a number word is answered alike wherever it stands.
    Claim: C-T9 (ours; C, Table 2, has 0 out of distribution for every embedding).
    Raises: BadInput for another embedding, or sinusoids of too few dimensions, NotKnown where they are no line on
        1..positions.

    >>> model = succession(M=9, pe="spe")
    >>> import torch
    >>> model.module(torch.tensor([[10, 10, 10], [1, 2, 3]]), shift=5).argmax(-1).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """
    if pe not in ("ape", "spe", "sine"):
        raise BadInput(f"pe={pe!r}: positions are counted; must be ape, spe or sine")
    loud = 2.0 ** math.ceil(math.log2(4 * positions))
    said, word, first = (ONE, LANE, LANE) if pe == "sine" else (0, 2, 1)
    one, ident, distance = readings(pe, d, positions, is_balanced=layernorm)
    E = zeros(M + 2, len(one))
    E[:, said] = 1 / one[said]
    E[: M + 1, word] = np.arange(M + 1) / distance[word]
    E[: M + 1] *= loud
    model = blank(
        vocabulary=M + 2, d=len(one), d_head=HEAD, d_mlp=0, classes=M + 1, positions=positions, pe=pe,
        layernorm=False, dtype=dtype,
    )  # fmt: skip
    W_K, W_V, W_O, b_Q = zeros(len(one), HEAD), zeros(len(one), HEAD), zeros(HEAD, len(one)), zeros(HEAD)
    b_Q[0], W_K[:, 0] = 1.0, -STEEP * math.sqrt(HEAD) * ident
    W_V[:, 0], W_O[0, first] = -ident / distance[first], 1.0
    W_U = readout("vanilla", M + 1, one, distance)
    filled(model, {"W_E": E[:, : len(one) - (pe == "spe")], "W_U": W_U, "b_Q": b_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O})
    if pe == "ape":
        table = zeros(positions, len(one))
        table[:, 3] = np.arange(1, positions + 1)
        filled(model, {"W_pos": table})
    return with_layernorm(model) if layernorm else model


def readings(pe: str, d: int | None, positions: int, *, is_balanced: bool) -> tuple[Array, Array, Array]:
    """What reads from the stream a 1, the id p, and p less the first id, more what a word says: (d,) each.

    >>> [r.tolist() for r in readings("ape", None, 128, is_balanced=True)]
    [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, -1.0, 1.0, 1.0]]
    """
    if pe != "sine":
        one, first, word, ident = np.eye(4)
        return one, ident, ident - first + word
    d = 64 if d is None else d
    if d % 2 or d < LEAST + 2:
        raise BadInput(f"d={d}: must be even and at least {LEAST + 2}, as five cosines are lanes of the stream")
    ident, one = position_reading(d, positions, is_balanced=is_balanced), zeros(d)
    distance, one[ONE] = ident.copy(), 1 / HELD
    distance[LANE], distance[BLANK] = -positions / HELD, positions / HELD
    return one, ident, distance
