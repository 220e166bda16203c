"""Counters made of positive decays, as in one layer of Mamba, RWKV-v6 and S4: their weights as arrays, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.model_arrays import Array, ModelArrays, name_of, rounded_to
from constructions.recurrent import diagonal_arrays as diagonal
from constructions.recurrent.arrays import TABLES, of_gated, softplus, tables
from constructions.recurrent.counters_arrays import ADDED
from constructions.recurrent.selective_arrays import check

if TYPE_CHECKING:
    import torch

HOLDS = {"bfloat16": -8.0, "float16": -12.0, "float32": -24.0, "float64": -44.0}  # keep rounds to 1
RATE = 1 / 64  # about how much of its state a unit loses at a token that it counts, in counters
SHARP = 1.0  # the least margin, about
MOST = 4096  # number words
LOST = 1 / 16  # of a count, about: what a state forgets at most, where neurons read it
EDGE = 1 / 4  # how far from a count the sawtooth of the neurons bends


def cell(kind: str, keep: Array, add: Array, read: Array, dtype: str) -> dict[str, Array]:
    """A cell whose tokens keep, add and read about this much (K, d) each, rounded; a keep of 1 is as HOLDS says.

    S4 keeps and reads what its first token does: one decay serves all tokens.

    >>> one = np.ones((1, 2))
    >>> sorted(cell("s4", one / 2, one, one, "float64"))
    ['a', 'c', 'u']
    """

    def of(*parts: Array) -> dict[str, Array]:
        return {name: rounded_to(dtype, x) for name, x in zip(TABLES[kind], parts, strict=True)}

    if kind == "s4":
        return of(keep[0], add, read[0])
    with np.errstate(divide="ignore"):
        w = np.where(keep == 1, HOLDS[dtype], np.log(-np.log(keep)))
    if kind == "rwkv":
        return of(w, add, np.ones_like(add), read)
    delta = np.where(w > HOLDS[dtype] + 1, np.log(np.expm1(np.exp(w))), HOLDS[dtype])
    return of(np.zeros(keep.shape[1]), delta, add / softplus(rounded_to(dtype, delta), dtype), read)


def decays(*, kind: str, m: int, s: int, N: int, types: int = 1, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds s states a type that count it modulo m to N, with the rates of `diagonal.decays`.

    Claim: C-R16, and C-R25 for more than one type (ours). On one token the decay is a constant, so C-R2 bounds both
    kinds. At tokens of other types a state is held, as in `counters`, and not read.
    Raises: BadInput and NotKnown, as `diagonal.decays`.

    >>> import torch
    >>> decays(kind="mamba", m=4, s=3, N=8).module(torch.zeros(1, 8, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 0, 1, 2, 3]]
    >>> decays(kind="rwkv", m=3, s=2, N=4, types=2).module(torch.tensor([[0, 1, 0, 0, 1, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 1, 0]]
    """
    rates = np.tile(diagonal.rates_of(m, s, N), (types, types))
    own = np.kron(np.eye(types), np.ones(s)).astype(np.float64)
    made = cell(kind, np.where(own > 0, rates, 1.0), own * (1 - rates), own, name_of(dtype))
    keep, add, _ = (table[0, :s] for table in tables(kind, made, name_of(dtype)))
    h = add * (1 - keep ** np.arange(1, N + 1)[:, None]) / (1 - keep)
    V = diagonal.readout(np.concatenate([np.ones((N, 1)), h], axis=1), m)
    return of_gated(kind, made, np.tile(V[:, 1:], types), V[:, 0], dtype)


def counters(*, kind: str, types: int, max_count: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one state a type that adds at its own tokens, holds at the others, and is read at its own alone.

    Claim: C-R17 (ours). At others' tokens the decay is exp(-e^w) with w = -44, or with Mamba's softplus(-44) for e^w: 1
    in float64, and a little less in real arithmetic, so that the same weights count for ever bit by bit, and forget in
    reals. One type is vanilla counting.

    >>> import torch
    >>> counters(kind="rwkv", types=2, max_count=3).module(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    if types != 1:
        check(types, types)
    own, rate = np.eye(types), math.exp(-RATE)
    made = cell(kind, np.where(own > 0, rate, 1.0), own, own, name_of(dtype))
    keep, add = (float(table[0, 0]) for table in tables(kind, made, name_of(dtype))[:2])
    places = np.array([sum(keep**k for k in range(n)) * add for n in range(max_count + 1)])
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    V = np.repeat((sharp * places)[:, None], types, axis=1)
    return of_gated(kind, made, V, -sharp * places**2 / 2, dtype)


def starting(*, kind: str, task: str, M: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one state that counts on from a number word, up to M.

    Claim: C-R21 (ours). One decay a < 1 for all tokens: the word k adds h_k = 1 + a + .. + a^(k-1), every other token
    adds 1, so that k tokens more take h_j to h_(j+k). A class reads the nearest of h_0..h_M, by lines.
    Raises: BadInput for another task, or M that is no whole number from 1 to MOST.

    >>> import torch
    >>> starting(kind="s4", task="shifted", M=9).module(torch.tensor([[3, 10, 10]])).argmax(-1).tolist()
    [[3, 4, 5]]
    """
    if task not in ADDED:
        raise BadInput(f"task={task}: must be one of {', '.join(ADDED)}")
    if isinstance(M, bool) or not isinstance(M, int) or not 1 <= M <= MOST:
        raise BadInput(f"vocabulary={M!r}: must be a whole number from 1 to {MOST}")
    fillers = 1 + task.startswith("helper")
    words = 0 if task == "vanilla" else M + 1
    tokens = np.ones((words + fillers, 1))
    name, slow = name_of(dtype), np.full_like(tokens, math.exp(-1 / M))
    keep, unit = (float(table[-1, 0]) for table in tables(kind, cell(kind, slow, tokens, tokens, name), name)[:2])
    places = unit * np.array([math.fsum(keep**i for i in range(k)) for k in range(M + 1)])
    made = cell(kind, slow, np.append(places[:words, None], tokens[words:], 0), tokens, name)
    sharp = 2 * SHARP / float((places[1:] - places[:-1]).min()) ** 2
    return of_gated(kind, made, sharp * places[:, None], -sharp * places**2 / 2, dtype)


def layered(
    *,
    kind: str,
    types: int,
    length: int,
    max_count: int,
    m: int | None = None,
    dtype: torch.dtype | str = "float64",
) -> ModelArrays:
    """Builds one state a type that is about its count, and neurons that say it, up to `max_count`.

    Claim: C-R22 (ours). Each token adds 1 to the state of its type, whose decay is so near to 1 that up to `length`
    tokens lose about 1/16 at most. One neuron holds this state s of the last token's type, and class j reads
    2 j s - j^2. Modulo m it reads a sawtooth in place of s: s - 1, less m for each multiple q m that s is beyond, as
    two neurons say, ReLU(s - q m - 1/4) and ReLU(s - q m - 3/4). Mamba and RWKV read no state of another type; S4 reads
    its states in the same way at every token, and has neurons for each type, which other tokens push below 0. One type
    is modular counting.
    Raises: BadInput for sizes beyond what is built.

    >>> import torch
    >>> model = layered(kind="s4", types=2, length=6, max_count=6, m=3).module
    >>> model(torch.tensor([[0, 1, 0, 0, 0, 0]])).argmax(-1).tolist()
    [[0, 0, 1, 2, 0, 1]]
    """
    most = min(length, max_count)
    starts = [] if m is None else [q * m for q in range(1, (most - 1) // m + 1)]
    kinks = np.array([0.0, *(start + edge for start in starts for edge in (EDGE, 1 - EDGE))])
    groups = types if kind == "s4" else 1
    check(max(types, 2), groups * len(kinks))
    own = np.eye(types)
    slow = math.exp(-LOST / (length * most))
    made = cell(kind, np.full_like(own, slow) if kind == "s4" else np.where(own > 0, slow, 1.0), own,
                np.ones_like(own) if kind == "s4" else own, name_of(dtype))  # fmt: skip
    W = np.repeat(np.eye(types) if groups > 1 else np.ones((1, types)), len(kinks), axis=0)
    U = np.tile(-kinks, (types, groups))
    U -= length * np.repeat(1 - own, len(kinks), axis=1) if groups > 1 else 0.0
    down = np.tile([-1.0, 1.0], len(starts)) * (m or 0) / (1 - 2 * EDGE)
    slopes, classes = np.tile(np.append(1.0, down), groups), np.arange(m or max_count + 1)
    middle = 0.0 if m is None else (m - 1) / 2  # the smallest numbers: the classes are counted from the middle
    j = classes - middle
    V, b = 2 * j[:, None] * slopes, -(j**2) - (0.0 if m is None else 2 * j * (1 + middle))
    return of_gated(kind, made, V, b, dtype, {"W": W, "U": U})
