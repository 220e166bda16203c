"""Diagonal state spaces that count modulo m as far as their width can, as arrays: positive decays, and one rotation."""

from __future__ import annotations

import json
from fractions import Fraction
from math import pi
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput, NotKnown
from constructions.maximin import largest_least
from constructions.model_arrays import Array, ModelArrays, name_of, rounded_to
from constructions.recurrent.arrays import LINEAR, ROTATION, of_one_token
from constructions.recurrent.counters_arrays import check

if TYPE_CHECKING:
    import torch

STORED = Path(__file__).with_name("decays.json")
PARTS = 256  # rates are multiples of 1/256
PI = Fraction(pi) + Fraction(1.2246467991473532e-16)  # within 1e-32, as a float64 next to 2 pi/m asks for
EARLY = 0.9375  # how much of its sector a state starts before the middle, of half of it


def stored_rates() -> dict[tuple[int, int], list[float]]:
    """The rates for a modulus and a width, found by search.

    >>> len(stored_rates()[4, 3])
    3
    """
    found = json.loads(STORED.read_text(encoding="utf-8"))
    return {(int(m), int(s)): [k / PARTS for k in rates] for key, rates in found.items() for m, s in [key.split()]}


def decays(*, m: int, s: int, N: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds s states h_i' = a_i h_i + 1 - a_i with positive rates, and a readout that counts modulo m to N.

    Claim: C-R13 (ours). The readout solves a linear program: the largest least margin at lengths 1..N, of which
    `bounds.recurrent.decays` is the most.
    Raises: BadInput for lengths that do not determine a readout of s states; NotKnown for sizes that are not stored.

    >>> import torch
    >>> decays(m=4, s=3, N=8).module(torch.zeros(1, 8, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 0, 1, 2, 3]]
    """
    rates = rates_of(m, s, N)
    V = readout(np.concatenate([np.ones((N, 1)), 1 - rates ** np.arange(1, N + 1)[:, None]], axis=1), m)
    return of_one_token(LINEAR, "decay", {"A": np.diag(rates), "B": 1 - rates}, V[:, 1:], V[:, 0], dtype)


def rates_of(m: int, s: int, N: int) -> Array:
    """The stored rates of s states that count modulo m to N.

    Raises: BadInput for lengths that do not determine a readout of s states; NotKnown for sizes that are not stored.

    >>> rates_of(4, 3, 8).shape
    (3,)
    """
    check(m)
    if s >= N:
        raise BadInput(f"N={N}: must be at least s + 1 = {s + 1}, as many lengths as a logit has coefficients")
    stored = stored_rates()
    if (m, s) not in stored:
        known = sorted({width for modulus, width in stored if modulus == m})
        moduli = sorted({modulus for modulus, _ in stored})
        only = f"of {', '.join(map(str, known))}" if known else f"for moduli {moduli[0]} to {moduli[-1]}"
        raise NotKnown(f"no rates of {s} states are known for modulus={m}, only {only}")
    return np.array(stored[m, s])


def readout(features: np.ndarray, m: int) -> np.ndarray:
    """The logits' coefficients (m, k), for which class (t - 1) mod m wins by the most at all rows t of (N, k).

    >>> times = np.array([[1.0, 0.5**t] for t in range(3)])
    >>> (times @ readout(times, 3).T).argmax(1).tolist()
    [0, 1, 2]
    """
    N, k = features.shape
    Q, R = np.linalg.qr(features)
    pairs = [(t, j) for t in range(N) for j in range(m) if j != t % m]
    wins = np.zeros((len(pairs), m, k))
    for row, (t, j) in enumerate(pairs):
        wins[row, t % m], wins[row, j] = Q[t], -Q[t]
    best = largest_least(wins.reshape(len(pairs), m * k))
    coefficients: np.ndarray = np.linalg.solve(R, best.reshape(m, k).T).T
    return coefficients


def rotation(*, m: int, dtype: torch.dtype | str = "float64") -> ModelArrays:
    """Builds one complex state h' = e^(i omega) h + 1 with the stored omega nearest to 2 pi/m.

    Claim: C-R14 (ours). The state runs on a circle; a class reads the arc of 2 pi/m in which its states start early, so
    that the error of omega drives them through most of it before they leave.

    >>> import torch
    >>> rotation(m=10).module(torch.zeros(1, 12, dtype=torch.long)).argmax(-1).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]]
    """
    check(m)
    exact = float(rounded_to(name_of(dtype), 2 * pi / m))
    centre = 1 / (1 - np.exp(1j * exact))
    drift = 1 if m * Fraction(exact) > 2 * PI else -1
    turned = np.exp(1j * (2 * pi / m * np.arange(1, m + 1) + drift * EARLY * pi / m))
    p = -centre * turned  # the middle of each class's arc, from the centre
    V = np.stack([p.real, p.imag], axis=1)
    b = -(V @ [centre.real, centre.imag])
    return of_one_token(ROTATION, "s4", {"omega": np.array([exact])}, V, b, dtype)
