"""Counting by sinusoidal positions: the slowest sines are lines, and no others are needed to know the distance.

sin(w p)/w is p up to (w p)^2 p/6, and the slowest w of d dimensions is 10000^(2/d - 1). Two sines whose frequencies
differ by a factor of about 2 or more, in the proportion that takes the cubes out, say p up to 1720 at d = 64.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.decoder_positions import BASE, waves
from constructions.errors import BadInput, NotKnown
from constructions.inductive.lanes import LOUD, zeros
from constructions.inductive.positional import BLANK, DOWN, HEAD, LANE, STEEP, UP, readout, sawtooth
from constructions.model_arrays import Array, ModelArrays

LEAST = 8  # dimensions: four cosines are lanes, two sines are read
SLACK = 0.125  # of what is read as p, half as much as the lines and the teeth leave
HELD = 2.0**12  # what the position of the first token is divided by 1/P of, so that a lane's own cosine is lost in it


def sine(
    *,
    task: str,
    N: int,
    m: int | None = None,
    d: int = 64,
    layernorm: bool = True,
    positions: int = 128,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder with sinusoidal positions: the n-th token says n, n mod m, or n = 1, from every shift.

    A reading of the stream says the position id p. The head's scores are -STEEP p, so that it brings y, the reading of
    the first token, which is written loudly into the lane of a slow cosine. D = p - y is n - 1; the sawtooth of fewest
    neurons takes it modulo m. With LayerNorm two lanes hold LOUD and -LOUD: it divides by nearly one number, and what
    reads the stream has the sum 0, so that the mean is not seen.
    Claim: C-T6 (ours).
    Raises: BadInput for d odd or below 8, NotKnown where the slowest sines are no line on 1..positions.

    >>> import torch
    >>> sine(task="modular", N=8, m=3, d=16).module(torch.zeros(1, 8, dtype=int), shift=5).argmax(-1).tolist()
    [[0, 1, 2, 0, 1, 2, 0, 1]]
    """
    if d % 2 or d < LEAST:
        raise BadInput(f"d={d}: must be even and at least {LEAST}, as four cosines are lanes of the stream")
    kinks, slopes = sawtooth(N, m)
    classes = {"vanilla": N + 1, "modular": m or 0}.get(task, 2)
    model = blank(
        vocabulary=1, d=d, d_head=HEAD, d_mlp=len(kinks), classes=classes, positions=positions, pe="sine",
        activation="relu", layernorm=layernorm, dtype=dtype,
    )  # fmt: skip
    ident, unit = position_reading(d, positions, is_balanced=layernorm), positions / HELD
    c = LOUD * math.sqrt(2 / d) if layernorm else 1.0  # what LayerNorm divides by
    E = zeros(1, d)
    E[0, UP], E[0, DOWN] = LOUD, -LOUD
    W_K, W_V, W_O = zeros(d, HEAD), zeros(d, HEAD), zeros(HEAD, d)
    W_K[:, 0], W_V[:, 0], W_O[0, LANE] = -STEEP * math.sqrt(HEAD) * c * ident, c / unit * ident, 1.0
    one, distance = zeros(d), ident.copy()
    one[UP], one[DOWN] = 1 / (2 * LOUD), -1 / (2 * LOUD)
    distance[LANE], distance[BLANK] = -unit, unit
    W_out = zeros(len(kinks), d)
    W_out[:, LANE] = -np.array(slopes) / unit
    b_Q = zeros(HEAD)
    b_Q[0] = 1.0
    return filled(
        model,
        {
            "W_E": E, "b_Q": b_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "b_in": -np.array(kinks),
            "W_in": np.broadcast_to(c * distance[:, None], (d, len(kinks))), "W_out": W_out,
            "W_U": c * readout(task, classes, one, distance),
        },
    )  # fmt: skip


def position_reading(d: int, positions: int, *, is_balanced: bool) -> Array:
    """What reads the id p = 1..positions from sinusoidal positions of d dimensions, with the sum 0 if balanced.

    Raises: NotKnown where it is off by more than SLACK.

    >>> reading = position_reading(64, 128, is_balanced=False)
    >>> [round(float(x), 6) for x in (waves(128, 64) @ reading)[[0, 63, 127]]]
    [1.0, 64.0, 128.0]
    """
    pairs = d // 2
    step = max(1, int(math.log(2) * d / (2 * math.log(BASE))))
    chosen = [pairs - 1 - step * i for i in range(3 if is_balanced else 2)]
    w = BASE ** (-2 * np.array(chosen) / d)
    rows, due = [w / w[0], (w / w[0]) ** 3], [1 / w[0], 0.0]
    if is_balanced:
        rows, due = [*rows, np.ones(3)], [*due, 0.0]
    reading = zeros(d)
    reading[[2 * i for i in chosen]] = np.linalg.solve(np.array(rows), np.array(due))
    ids = np.arange(1, positions + 1)
    if float(np.abs(waves(positions, d) @ reading - ids).max()) > SLACK:
        raise NotKnown(
            f"positions={positions}: the slowest sines of d={d} dimensions are no line so far; give fewer positions or "
            "a larger d"
        )
    return reading
