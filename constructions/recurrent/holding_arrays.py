"""LSTMs that count by adding and holding, as arrays, and why they are right for ever in floats and not in reals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from flint import arb

from constructions.errors import BadInput
from constructions.model_arrays import Array, ModelArrays, name_of
from constructions.recurrent.arrays import nearest, of_cells
from constructions.recurrent.selective_arrays import check

if TYPE_CHECKING:
    import torch

HOLDS = {"bfloat16": 8.0, "float16": 10.0, "float32": 20.0, "float64": 40.0}
STARTED = ("shifted", "helper", "helper-shifted")
STEEP = 16.0
SHARP = 1.0  # the least margin, about
MOST_CLASSES = 4096


def counter(*, N: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one LSTM unit that counts a single token up to N.

    Claim: C-R11 (ours). c' = sigma(B) c + sigma(B) tanh(1/N), h = sigma(B) tanh c; a class reads the nearest of the
    places tanh(j/N).

    >>> import torch
    >>> counter(N=20).module(torch.zeros(1, 20, dtype=torch.long)).argmax(-1)[0, [0, 9, 19]].tolist()
    [1, 10, 20]
    """
    if isinstance(N, bool) or not isinstance(N, int) or not 1 <= N <= MOST_CLASSES:
        raise BadInput(f"vocabulary={N!r}: must be a whole number from 1 to {MOST_CLASSES}")
    return _built(1, N, dtype)


def starting(task: str, *, M: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one LSTM unit that counts on from a number word, up to M.

    Claim: C-R19 (ours). The number word k adds sigma(B) k tanh(1/M), every other token sigma(B) tanh(1/M).
    Raises: BadInput for another task.

    >>> import torch
    >>> starting("shifted", M=9).module(torch.tensor([[3, 10, 10]])).argmax(-1).tolist()
    [[3, 4, 5]]
    """
    if task not in STARTED:
        raise BadInput(f"task={task}: must be one of {', '.join(STARTED)}")
    model = counter(N=M, dtype=dtype)
    step, words = math.tanh(1 / M), np.arange(M + 1.0)
    adds = [*nearest(arb.atanh, words * step), *[1 / M] * (1 + task.startswith("helper"))]
    found = of_cells("lstm", hidden=1, classes=M + 1, inputs=len(adds), dtype=dtype)
    found.weights["cell.bias_ih_l0"][:] = model.weights["cell.bias_ih_l0"]
    found.weights["cell.bias_ih_l0"][3] = HOLDS[name_of(dtype)]
    found.weights["cell.weight_ih_l0"][2] = adds
    _read_places(found, nearest(arb.tanh, words * step))
    return found.rounded()


def counters(*, types: int, max_count: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds K LSTM units, each of which adds at tokens of its type, holds at others, and shows itself only at its own.

    Claim: C-R10 (ours). With all recurrent weights 0, c_i' = sigma(B) c_i + sigma(B) tanh(x_i / C) and
    h_i = sigma(B (2 x_i - 1)) tanh c_i. In floats sigma(B) rounds to 1, so that holding loses nothing, for ever; in
    real arithmetic each token of another type takes away the share 1 - sigma(B), about e^-B.

    >>> import torch
    >>> counters(types=2, max_count=3).module(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    check(types, types)
    return _built(types, max_count, dtype)


def rings(*, types: int, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds 2m LSTM units a type and one more, all about 3/4 or -3/4, that count each type modulo m.

    Claim: C-R20 (ours). Forgetting all of c, h' = tanh(tanh(W h + W_x x + b)) keeps signs. p_c (c = 0..m-1) says that
    the count is c and the last token of another type, q_c (c = 1..m) that the last token brought it to c; s that there
    was a token. With x = 1 at a token of this type, u_c = p_c + q_c (q_m for c = 0) is about 0 where one of both is on,
    and -3/2 else: p_c' has the sign of u_c + 3/4 - 3/2 x, and q_c' that of u_(c-1) - 3/4 + 3/2 x. Before the first
    token, s = 0 keeps all off but p_0 and q_1. Class j adds the q_(j+1) of all types.

    >>> import torch
    >>> rings(types=2, m=3).module(torch.tensor([[0, 1, 0, 0, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 0]]
    """
    if m < 2:
        raise BadInput(f"modulus={m}: must be at least 2")
    H = 2 * m * types + 1
    check(max(types, 2), H)  # one type is modular counting, whose only token is a constant input
    model, B = of_cells("lstm", hidden=H, classes=m, inputs=types, dtype=dtype), HOLDS[name_of(dtype)]
    on, s = math.tanh(1), H - 1
    W, W_x, b = (model.weights[f"cell.{name}_l0"][2 * H : 3 * H] for name in ("weight_hh", "weight_ih", "bias_ih"))
    for i in range(types):
        p = 2 * m * i
        q = p + m - 1  # q + c is the place of q_c
        for c in range(m):
            held, next_one = [p + c, q + (c or m)], q + c + 1
            W[p + c, held], W_x[p + c, i], b[p + c] = 1, -1.5, 0.75
            W[next_one, held], W_x[next_one, i], b[next_one] = 1, 1.5, -0.75
            for unit in (p + c,) * (c > 0) + (next_one,) * (c > 0):
                W[unit, s] = 2 / on
                b[unit] -= 2
            model.weights["readout.weight"][c, next_one] = 1
    b[s] = 1
    for x in (W, W_x, b):
        x *= STEEP
    gates = model.weights["cell.bias_ih_l0"]
    gates[:H] = gates[3 * H :] = B
    gates[H : 2 * H] = -B
    return model.rounded()


def _built(K: int, C: int, dtype: torch.dtype | str) -> ModelArrays:
    model, B = of_cells("lstm", hidden=K, classes=C + 1, inputs=K, dtype=dtype), HOLDS[name_of(dtype)]
    W_x, b_x = model.weights["cell.weight_ih_l0"], model.weights["cell.bias_ih_l0"]
    b_x[: 2 * K] = B
    W_x[2 * K : 3 * K] = np.eye(K) / C
    b_x[3 * K :] = -B if K > 1 else 0
    W_x[3 * K :] = np.eye(K) * (2 * B if K > 1 else B)
    _read_places(model, nearest(arb.tanh, np.arange(C + 1) / C))
    return model.rounded()


def _read_places(model: ModelArrays, places: Array) -> None:
    """Makes each class read the nearest place, by lines with a margin of about SHARP."""
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    model.weights["readout.weight"][:] = (sharp * places)[:, None]
    model.weights["readout.bias"][:] = -sharp * places**2 / 2
