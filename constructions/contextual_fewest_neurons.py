"""Contextual counting with the fewest ReLU neurons: none for two regions, p for 2p + 2.

The encoder's head has two values. y = (open - closed) / (BOS + open + closed) is 1/(2r) in region r and 0 outside, and
x = (open - closed - BOS) / (BOS + open + closed) is 0 in every region and at most -1/(2j+1) outside after j regions.
A score may fall off with x as steeply as it likes, so only the regions compete, and they lie on a line. With p kinks
the line becomes a convex polygon of p + 1 edges, and each edge has two ends: two regions per edge are vertices, and a
third one, between them, would not be (W-11).
"""

from __future__ import annotations

import torch

from constructions.contextual.transformer import BOS, CLOSE, ONE, OPEN, ContextualCountingTransformer
from constructions.contextual_counting_arrays import check, line, readout, real_temperature, temperature
from constructions.model_arrays import name_of

Y, X, HEIGHT = 5, 6, 7  # lanes of the stream after the five token lanes


def build(N: int, R: int, *, dtype: torch.dtype = torch.float64) -> ContextualCountingTransformer:
    """The transformer that counts R regions with ceil(R/2) - 1 neurons, in strings of up to N tokens.

    Claim: W-11 (ours), with BOS as the bias token. For R <= 2 its one neuron has zero weights: attention alone.
    Shapes: d = 8, d_h = 2, e = 5.
    Raises: BadInput for N < 1 or R < 1.

    >>> build(16, 4)(torch.tensor([[2, 1, 0, 1, 3, 1, 2, 3, 2, 1, 3, 1, 2, 1, 3]])).argmax(-1).tolist()
    [[2, 0, 1, 1]]
    """
    check(N, R, "BOS", "convex", None)
    p = neurons(R)
    model = ContextualCountingTransformer(d=8, p=max(p, 1), R=R, classes=N + 1, d_h=2, e=5, dtype=dtype)
    u = torch.finfo(dtype).eps / 2
    tangents = [tangent(r, R) for r in range(1, R + 1)]
    steepness = (2 * R + 1) * (1 + max(abs(c) for _, c in tangents))  # outside, x <= -1/(2R+1)
    kappa = 3 * real_temperature(N)  # the smallest gap is 1/3, at region 3
    with torch.no_grad():
        model.E[:, :5] = torch.eye(5, dtype=dtype)
        model.W_Q[:5, 0] = 1
        model.W_K[[OPEN, CLOSE, BOS], 0] = temperature(N, u)
        model.W_V[OPEN], model.W_V[CLOSE] = torch.tensor([1, 1], dtype=dtype), torch.tensor([-1, -1], dtype=dtype)
        model.W_V[BOS, 1] = -1
        model.W_O[0, Y] = model.W_O[1, X] = 1
        for i in range(p):
            A, c = line(2 * i + 2, True)  # the kink between regions 2i + 2 and 2i + 3
            model.W_1[Y, i], model.b_1[i], model.W_2[i, HEIGHT] = A, -c, 1
        for r, (slope, level) in enumerate(tangents):
            model.P[r, Y], model.P[r, ONE] = slope, level
        model.P[:, X] = model.P[:, HEIGHT] = model.P[:, BOS] = 1
        for i, lane in enumerate((Y, X, HEIGHT, ONE, BOS)):
            model.U_Q[lane, i] = 1
        model.U_K[Y, 0], model.U_K[[X, BOS], 1], model.U_K[HEIGHT, 2] = kappa, kappa * steepness, -kappa
        model.U_K[:BOS, 3] = -kappa  # minus the tangent's level, except for BOS
        model.U_K[[0, OPEN, CLOSE], 4] = -kappa * (steepness + 1)  # above what a slope can make up for
        model.U_V[BOS, 0] = 1
        model.W_out[0], model.b_out[:] = map(torch.from_numpy, readout(N, 1, name_of(dtype), u))
    return model


def neurons(R: int) -> int:
    """How many ReLU neurons R regions need: the smallest p with R <= 2p + 2.

    >>> [neurons(R) for R in (1, 2, 3, 4, 5, 32)]
    [0, 0, 1, 1, 2, 15]
    """
    return max(0, (R - 1) // 2)


def tangent(r: int, R: int) -> tuple[float, float]:
    """Slope m and level c with m y - height(y) = c at region r and less at all others.

    The slope lies between those of the chords to both neighbours, where the two gaps are equal; at an end of the
    polygon it makes the one gap 1.

    >>> m, c = tangent(2, 4)
    >>> [round(m / (2 * r) - height(1 / (2 * r), 4) - c, 3) for r in (1, 2, 3, 4)]
    [-0.75, 0.0, -0.75, -1.625]
    """
    here = 1 / (2 * r)
    above = 1 / (2 * (r - 1)) - here if r > 1 else 0.0
    below = here - 1 / (2 * (r + 1)) if r < R else 0.0
    rise = height(here + above, R) - height(here, R) if r > 1 else 1.0
    fall = height(here, R) - height(here - below, R) if r < R else -1.0
    slope = (rise + fall) / (above + below) if R > 1 else 0.0
    return slope, slope * here - height(here, R)


def height(y: float, R: int) -> float:
    """The polygon: the sum of the neurons.

    >>> [round(height(1 / (2 * r), 4), 3) for r in (1, 2, 3, 4)]
    [7.0, 1.0, 0.0, 0.0]
    """
    return sum(max(0.0, A * y - c) for A, c in (line(2 * i + 2, True) for i in range(neurons(R))))
