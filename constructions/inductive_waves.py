"""Modular counting by RoPE and BOS alone: one head without an MLP, whose score for BOS is a sum of waves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from constructions.decoder import Decoder
from constructions.decoder_model import Block
from constructions.decoder_positions import BASE
from constructions.errors import BadInput, NotKnown

Array = np.ndarray[Any, np.dtype[np.float64]]
FARTHEST = 2.0  # ends of intervals lie in (-2, 2), where equal steps of the score are similar steps of the share


def ranks(m: int) -> list[int]:
    """The order of the m answers on a line such that one after the other is at most two places away.

    >>> ranks(10)
    [0, 2, 4, 6, 8, 9, 7, 5, 3, 1]
    """
    up = [2 * j for j in range((m + 1) // 2)]
    down = [j for j in range(m - 1, 0, -1) if j % 2]
    return up + down


def build(
    N: int, *, m: int = 10, d_head: int = 128, largest: float = 10.0, positions: int = 128,
    dtype: torch.dtype = torch.float64,
) -> Decoder:  # fmt: skip
    """A decoder with RoPE and BOS, one layer, one head and no MLP that counts modulo m up to N, if there is one.

    At length n BOS has the share 1 / (1 + n e^-g), g = sum of a_i cos(theta_i n) + b_i sin(theta_i n) over the
    frequencies of RoPE: so g - ln n is to lie in the interval of n mod m, one of m on a line. A linear program chooses
    coefficients of size at most `largest` and the intervals' ends, as far from all of them as it can.
    Claim: C-T6 (ours).
    Raises: BadInput for sizes without a meaning, NotKnown where the program finds no coefficients.

    >>> model = build(20, d_head=32)
    >>> right = [n % 10 for n in range(20)]
    >>> model(torch.zeros(20, dtype=torch.long)).argmax(-1).tolist() == right
    True
    """
    _check(N, m, d_head, largest, positions)
    waves, ends = _chosen(N, m, d_head, largest)
    model = Decoder(
        vocabulary=1, d=3, d_head=d_head, d_mlp=0, classes=m, positions=positions, pe="rope", bos=True,
        layernorm=False, attention_bias=False, dtype=dtype,
    )  # fmt: skip
    shares = 1 / (1 + np.exp(-ends))
    lines = np.concatenate([[0.0], -np.cumsum(shares)])
    order = ranks(m)
    block = model.blocks[0]
    assert isinstance(block, Block)
    attention = block.attention
    half = d_head // 2
    with torch.no_grad():
        model.W_E.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))  # a is the constant, BOS its own flag
        attention.W_Q[0, :half] = torch.from_numpy(waves[:half]) * math.sqrt(d_head)
        attention.W_Q[0, half:] = torch.from_numpy(-waves[half:]) * math.sqrt(d_head)
        attention.W_K[1, :half] = 1.0
        attention.W_V[1, 0] = 1.0
        attention.W_O[0, 2] = 1.0
        model.W_U[2] = torch.tensor(order, dtype=torch.float64)
        model.W_U[0] = torch.tensor([lines[rank] for rank in order], dtype=torch.float64)
    return model.eval()


def _check(N: int, m: int, d_head: int, largest: float, positions: int) -> None:
    if m < 2 or N < 1:
        raise BadInput(f"N={N}, m={m}: must be at least 1 and 2")
    if d_head < 2 or d_head % 2:
        raise BadInput(f"d_head={d_head}: must be even and at least 2")
    if not 0 < largest < math.inf:
        raise BadInput(f"largest={largest}: must be positive and finite")
    if positions <= N:
        raise BadInput(f"positions={positions}: BOS and N={N} tokens need {N + 1}")


def _chosen(N: int, m: int, d_head: int, largest: float) -> tuple[Array, Array]:
    """Coefficients (d_head,) of cos, then of sin, and the m - 1 ends of the intervals, from a linear program."""
    from scipy.optimize import linprog

    frequencies = BASE ** (-np.arange(0, d_head, 2) / d_head)
    n = np.arange(1, N + 1)
    angles = n[:, None] * frequencies
    waves, drift = np.concatenate([np.cos(angles), np.sin(angles)], axis=1), np.log(n)
    rank = np.array(ranks(m))[(n - 1) % m]
    rows, limits = [], []
    for side in (-1, 1):  # the end below g - ln n, and the one above it
        for i in range(N):
            end = rank[i] - (side < 0)
            if 0 <= end < m - 1:
                rows.append(np.concatenate([side * waves[i], -side * np.eye(m - 1)[end], [1.0]]))
                limits.append(side * drift[i])
    for j in range(m - 2):
        rows.append(np.concatenate([np.zeros(d_head), np.eye(m - 1)[j] - np.eye(m - 1)[j + 1], [2.0]]))
        limits.append(0.0)
    bounds = [(-largest, largest)] * d_head + [(-FARTHEST, FARTHEST)] * (m - 1) + [(None, None)]
    cost = np.r_[np.zeros(d_head + m - 1), -1.0]
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds, method="highs")
    if found.x is None or not found.x[-1] > 0:
        raise NotKnown(f"N={N}: no coefficients up to {largest:g} were found for d_head={d_head}; raise one of the two")
    return found.x[:d_head], found.x[d_head:-1]
