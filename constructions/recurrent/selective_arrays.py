"""Recurrent networks that count each of K types in one string, at every length: their weights as arrays, and why.

The units of type i stand together, those of type 0 first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays
from constructions.recurrent.arrays import of_cells

if TYPE_CHECKING:
    import torch

BETA = 8.0
LARGEST_UNITS = 4096


def thermometer(*, types: int, max_count: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds 2KC + 1 tanh units that hold the count of each type up to C as signs, and read that of the last token.

    Claim: C-R8 (ours). u_ic says that type i was read c times or more, v_ic that the last token is the c-th of type i,
    s that there was a token. With x_i = 1 at a token of type i, u_i0 = 1, and g = 2 for c = 1, else 4,
    u_ic' = tanh 8(2 u_ic + u_i(c-1) + 2 x_i - g(1 - s)), v_ic' = tanh 8(u_i(c-1) - u_ic + 2 x_i - 3 + [c = 1](1 - s)),
    s' = tanh 8: signs always have an argument of at least 8. Class c adds the v_ic of all types.

    >>> import torch
    >>> thermometer(types=2, max_count=3).module(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    K, C = types, max_count
    check(K, 2 * K * C + 1)
    model = of_cells("rnn", hidden=2 * K * C + 1, classes=C + 1, inputs=K, dtype=dtype)
    s, W, W_x, b = 2 * K * C, *(model.weights[f"cell.{name}_l0"] for name in ("weight_hh", "weight_ih", "bias_hh"))
    for i in range(K):
        for c in range(1, C + 1):
            u = 2 * C * i + c - 1
            v, g = u + C, 2 if c == 1 else 4
            W[u, u], W[v, u], W[u, s], b[u], b[v] = 2, -1, g, -g, -3
            W_x[[u, v], i] = 2
            if c > 1:
                W[[u, v], u - 1] = 1
            else:  # u_i0 = 1
                b[u] += 1
                b[v] += 2
                W[v, s] = -1
            model.weights["readout.weight"][c, v] = 1
    b[s] = 1
    for x in (W, W_x, b):
        x *= BETA
    model.weights["readout.bias"][0] = -K
    return model.rounded()


def rings(*, types: int, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds 2m - 1 ReLU units a type, all of them 0 or 1, that count each type modulo m.

    Claim: C-R9 (ours). p_c (c = 1..m-1) holds the count c, q_c (c = 1..m, where m stands for 0) says that the last
    token is of this type and brought the count to c. With u_c = p_c + q_c, p_c' = ReLU(u_c - x) and
    q_c' = ReLU(u_(c-1) + x - 1), and u_0 = 1 - u_1 - ... - u_(m-1), so that counting starts from the state 0. Class j
    adds the q_(j+1) of all types.

    >>> import torch
    >>> rings(types=2, m=3).module(torch.tensor([[0, 1, 0, 0, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 0]]
    """
    if m < 2:
        raise BadInput(f"modulus={m}: must be at least 2")
    b = 2 * m - 1
    check(types, types * b)
    model = of_cells("rnn", hidden=types * b, classes=m, inputs=types, activation="relu", dtype=dtype)
    W, W_x, bias = (model.weights[f"cell.{name}_l0"] for name in ("weight_hh", "weight_ih", "bias_hh"))
    for i in range(types):
        p, q = b * i - 1, b * i + m - 2  # p + c and q + c are the places of p_c and q_c
        for c in range(1, m):
            held = [p + c, q + c]
            W[p + c, held] = 1
            W[q + c + 1, held] = 1
            W[q + 1, held] = -1
            W_x[p + c, i] = -1
            bias[q + c + 1] = -1
        for c in range(1, m + 1):
            W_x[q + c, i] = 1
            model.weights["readout.weight"][c - 1, q + c] = 1
    return model.rounded()


def adders(*, types: int, max_count: int, length: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds 2K ReLU units that count each type in all strings of up to `length` tokens.

    Claim: C-R18 (ours). h_i' = ReLU(h_i + x_i) holds the count, and z_i' = ReLU(h_i + 1 - N(1 - x_i)) shows it at the
    tokens of its type, and 0 at others as long as h_i < N, N being the length. Class j reads 2 j z - j^2, z being the
    sum of all z_i. Beyond N, N + 1 tokens of one type show themselves at another's.

    >>> import torch
    >>> adders(types=2, max_count=3, length=5).module(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    check(types, 2 * types)
    model = of_cells("rnn", hidden=2 * types, classes=max_count + 1, inputs=types, activation="relu", dtype=dtype)
    W, W_x, bias = (model.weights[f"cell.{name}_l0"] for name in ("weight_hh", "weight_ih", "bias_hh"))
    j = np.arange(max_count + 1.0)
    for i in range(types):
        h, z = 2 * i, 2 * i + 1
        W[[h, z], h] = 1
        W_x[h, i] = 1
        W_x[z, i] = length
        bias[z] = 1 - length
        model.weights["readout.weight"][:, z] = 2 * j
    model.weights["readout.bias"][:] = -(j**2)
    return model.rounded()


def check(types: int, units: int) -> None:
    """Raises: BadInput for one type, which has no one-hot tokens, or more units than are built.

    >>> check(1, 4)
    Traceback (most recent call last):
    constructions.errors.BadInput: types=1: a selective network is built for at least 2; one type is --task modular
    """
    if types < 2:
        raise BadInput(f"types={types}: a selective network is built for at least 2; one type is --task modular")
    if units > LARGEST_UNITS:
        raise BadInput(f"types={types}: the construction takes {units} units, and at most {LARGEST_UNITS} are built")
