"""LSTMs that count by adding and holding: their weights, and why they are right for ever in floats and not in reals."""

from __future__ import annotations

import torch

from constructions.errors import BadInput
from constructions.recurrent.counters import zeroed
from constructions.recurrent.model import RecurrentModel
from constructions.recurrent.selective import check

HOLDS = {torch.bfloat16: 8.0, torch.float16: 10.0, torch.float32: 20.0, torch.float64: 40.0}
SHARP = 1.0  # the least margin, about
MOST_CLASSES = 4096


def counter(*, N: int, dtype: torch.dtype = torch.float64) -> RecurrentModel:
    """Builds one LSTM unit that counts a single token up to N.

    Claim: C-R11 (ours). c' = sigma(B) c + sigma(B) tanh(1/N), h = sigma(B) tanh c; a class reads the nearest of the
    places tanh(j/N).

    >>> counter(N=20)(torch.zeros(1, 20, dtype=torch.long)).argmax(-1)[0, [0, 9, 19]].tolist()
    [1, 10, 20]
    """
    if isinstance(N, bool) or not isinstance(N, int) or not 1 <= N <= MOST_CLASSES:
        raise BadInput(f"vocabulary={N!r}: must be a whole number from 1 to {MOST_CLASSES}")
    return _built(1, N, dtype)


def counters(*, types: int, max_count: int, dtype: torch.dtype = torch.float64) -> RecurrentModel:
    """Builds K LSTM units, each of which adds at tokens of its type, holds at others, and shows itself only at its own.

    Claim: C-R10 (ours). With all recurrent weights 0, c_i' = sigma(B) c_i + sigma(B) tanh(x_i / C) and
    h_i = sigma(B (2 x_i - 1)) tanh c_i. In floats sigma(B) rounds to 1, so that holding loses nothing, for ever; in
    real arithmetic each token of another type takes away the share 1 - sigma(B), about e^-B.

    >>> counters(types=2, max_count=3)(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    check(types, types)
    return _built(types, max_count, dtype)


def _built(K: int, C: int, dtype: torch.dtype) -> RecurrentModel:
    model = RecurrentModel("lstm", hidden=K, classes=C + 1, inputs=K, dtype=dtype)
    cell, B, eye = zeroed(model), HOLDS[dtype], torch.eye(K, dtype=dtype)
    places = torch.tanh(torch.arange(C + 1, dtype=torch.float64) / C)
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    with torch.no_grad():
        cell["bias_ih_l0"][: 2 * K] = B
        cell["weight_ih_l0"][2 * K : 3 * K] = eye / C
        cell["bias_ih_l0"][3 * K :] = -B if K > 1 else 0
        cell["weight_ih_l0"][3 * K :] = 2 * B * eye if K > 1 else B * eye
        model.readout.weight.copy_((sharp * places)[:, None].expand(-1, K))
        model.readout.bias.copy_(-sharp * places**2 / 2)
    return model
