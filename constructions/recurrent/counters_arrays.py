"""Recurrent networks that count modulo m at every length: their weights as arrays, and why they are right."""

from __future__ import annotations

import json
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpz_poly

from constructions.errors import BadInput, NotKnown
from constructions.model_arrays import ModelArrays, name_of, rounded_to
from constructions.recurrent.arrays import LINEAR, of_cells, of_one_token

if TYPE_CHECKING:
    import torch

STORED = Path(__file__).with_name("cycles.json")
GAIN = 4.0
LARGEST = 10_000
ADDED = ("vanilla", "shifted", "helper", "helper-shifted")  # tasks that one adding unit counts in


def stored_cycles() -> dict[int, dict[str, list[list[float]]]]:
    """Two tanh units each (one for m = 2): W (2, 2), c (2,), readout V (m, 2) and b (m,), found by search.

    >>> len(stored_cycles()[3]["W"])
    2
    """
    return {int(m): entry for m, entry in json.loads(STORED.read_text(encoding="utf-8")).items()}


def cycle(*, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds a tanh network whose state runs into a cycle of m states and stays there: two units, one for m = 2.

    Claim: C-R3 (ours). h' = tanh(W h + c) turns the state by about one m-th of a circle; saturation locks the turn to
    exactly that, so that the cycle attracts. All numbers are multiples of 1/32.
    Raises: NotKnown for an m that is not stored.

    >>> import torch
    >>> cycle(m=10).module(torch.zeros(1, 12, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]]
    """
    return chinese(m=m, factors=(m,), dtype=dtype)


def chinese(*, m: int, factors: tuple[int, ...] | None = None, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds a tanh network of one cycle for each of some coprime factors of m, whose logits are added.

    Claim: C-R4 (ours). Class j gets the logits of j mod each factor, so that it beats every other class by at least the
    least margin of a cycle (Chinese remainders).
    Raises: NotKnown where m is no product of coprime factors with stored cycles; BadInput for other factors.

    >>> chinese(m=110).hidden
    4
    """
    cycles = stored_cycles()
    chosen = coprime_factors(m, tuple(cycles)) if factors is None else factors
    if chosen is None or any(f not in cycles for f in chosen):
        raise NotKnown(f"modulus={m}: no product of coprime factors from {', '.join(map(str, sorted(cycles)))}")
    units = [len(cycles[f]["c"]) for f in chosen]
    model = of_cells("rnn", hidden=sum(units), classes=m, dtype=dtype)
    w, start, name = model.weights, 0, name_of(dtype)
    for f, n in zip(chosen, units, strict=True):
        here, of = slice(start, start + n), np.arange(m) % f
        w["cell.weight_hh_l0"][here, here] = cycles[f]["W"]
        w["cell.bias_hh_l0"][here] = cycles[f]["c"]
        w["readout.weight"][:, here] = np.array(cycles[f]["V"])[of]
        w["readout.bias"][:] = rounded_to(name, w["readout.bias"] + rounded_to(name, np.array(cycles[f]["b"]))[of])
        start += n
    return model.rounded()


def coprime_factors(m: int, known: tuple[int, ...]) -> tuple[int, ...] | None:
    """Coprime numbers with product m, as few as there are, all of them known.

    >>> coprime_factors(110, (10, 11)), coprime_factors(49, (7,))
    ((11, 10), None)
    """
    if m == 1:
        return ()
    best: tuple[int, ...] | None = None
    for f in sorted(known, reverse=True):
        if m % f == 0 and gcd(f, m // f) == 1:
            rest = coprime_factors(m // f, known)
            if rest is not None and (best is None or len(rest) + 1 < len(best)):
                best = (f, *rest)
    return best


def ring(*, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds m ReLU units of which one is 1 and the others 0, the next one at every step.

    Claim: C-R5 (ours). u_1' = ReLU(u_m + 1 - sum of u) starts the ring where all units are 0; u_c' = ReLU(u_(c-1)). All
    numbers are integers, so every state is exact.

    >>> import torch
    >>> ring(m=3).module(torch.zeros(1, 4, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 0]]
    """
    check(m)
    model = of_cells("rnn", hidden=m, classes=m, activation="relu", dtype=dtype)
    W = model.weights["cell.weight_hh_l0"]
    W[0, : m - 1] = -1
    W[1:, :-1] += np.eye(m - 1)
    model.weights["cell.bias_hh_l0"][0] = 1
    model.weights["readout.weight"][:] = np.eye(m)
    return model.rounded()


def adder(task: str, *, M: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one ReLU unit that adds what each token stands for: a number word its number, all others 1.

    Claim: C-R12 (ours). h' = ReLU(h + x) is exact; class j reads j h - j^2/2, which is largest for the nearest j, by at
    least 1/2. Vanilla counting has one token; tasks that count on from a number word have the words 0..M before it.
    Raises: BadInput for another task.

    >>> import torch
    >>> adder("shifted", M=9).module(torch.tensor([[3, 10, 10]])).argmax(-1).tolist()
    [[3, 4, 5]]
    """
    if task not in ADDED:
        raise BadInput(f"task={task}: must be one of {', '.join(ADDED)}")
    if isinstance(M, bool) or not isinstance(M, int) or not 1 <= M <= LARGEST:
        raise BadInput(f"vocabulary={M!r}: must be a whole number from 1 to {LARGEST}")
    words = [] if task == "vanilla" else list(range(M + 1))
    adds = words + [1] * (1 + task.startswith("helper"))
    model = of_cells("rnn", hidden=1, classes=M + 1, inputs=len(adds), activation="relu", dtype=dtype)
    j = np.arange(M + 1.0)
    model.weights["cell.weight_ih_l0"][0] = adds
    model.weights["cell.weight_hh_l0"][0, 0] = 1
    model.weights["readout.weight"][:, 0] = j
    model.weights["readout.bias"][:] = -(j**2) / 2
    return model.rounded()


def johnson(*, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds a Johnson counter of m/2 tanh units and one that says that it has started; m is even.

    Claim: C-R6 (ours). h_1' = tanh(-4 h_k + 4 (1 - s)), h_j' = tanh(4 h_(j-1) - 4 (1 - s)), s' = tanh 4: the first step
    gives (1, -1, ..., -1), and each later one shifts the signs by one place, the first one inverted. A class reads the
    signs that it expects; all others disagree in at least one place.

    >>> import torch
    >>> johnson(m=4).module(torch.zeros(1, 6, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 0, 1]]
    """
    check(m)
    if m % 2 or m < 4:
        raise BadInput(f"modulus={m}: a Johnson counter has an even one, at least 4")
    k = m // 2
    model = of_cells("rnn", hidden=k + 1, classes=m, dtype=dtype)
    W, c = model.weights["cell.weight_hh_l0"], model.weights["cell.bias_hh_l0"]
    W[0, k - 1], W[0, k], c[0] = -GAIN, -GAIN, GAIN
    for j in range(1, k):
        W[j, j - 1], W[j, k], c[j] = GAIN, GAIN, -GAIN
    c[k] = GAIN
    signs = -np.ones(k)
    for j in range(m):
        signs = np.concatenate([-signs[-1:], signs[:-1]])
        model.weights["readout.weight"][j, :k] = signs
    return model.rounded()


def cyclotomic(*, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds a dense integer state space of width phi(m): the companion matrix of the m-th cyclotomic polynomial.

    Claim: C-R7 (ours). A^m = I, and 1 is no eigenvalue, so h' = A h + e_1 has the exact period m from 0 on. Class j
    reads P_j . h - |P_j|^2 / 2, which is largest for the nearest state, and the states P_j are different vectors.

    >>> cyclotomic(m=10).hidden
    4
    """
    check(m)
    coefficients = [int(a) for a in fmpz_poly.cyclotomic(m)]  # of 1, x, ...
    d = len(coefficients) - 1
    A, B, h = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    A[1:, :-1] += np.eye(d - 1)
    A[:, -1] = -np.array(coefficients[:-1], float)
    B[0] = 1
    P = np.array([h := A @ h + B for _ in range(m)])
    return of_one_token(LINEAR, "ssm", {"A": A, "B": B}, P, -(P**2).sum(1) / 2, dtype)


def check(m: int) -> None:
    """Raises: BadInput for a modulus that is no whole number from 2 to LARGEST.

    >>> check(1)
    Traceback (most recent call last):
    constructions.errors.BadInput: modulus=1: must be a whole number from 2 to 10000
    """
    if not isinstance(m, int) or isinstance(m, bool) or not 2 <= m <= LARGEST:
        raise BadInput(f"modulus={m!r}: must be a whole number from 2 to {LARGEST}")
