"""What a decoder knows of positions before any weight: the kinds of embedding, and the tables of sines and cosines."""

from __future__ import annotations

import numpy as np

from constructions.model_arrays import Array

POSITIONAL = ("nope", "sine", "ape", "rope", "spe")
BASE = 10_000.0  # of the wavelengths of sine and rope
EPS = 1e-5  # of LayerNorm, where nothing else is said


def angles(positions: int, d: int) -> Array:
    """Position id times frequency, ids 1..positions and frequencies BASE^(-2i/d): shape (positions, d // 2).

    >>> angles(2, 2).tolist()
    [[1.0], [2.0]]
    """
    frequencies = BASE ** (-np.arange(0, d - d % 2, 2, dtype=np.float64) / d)
    found: Array = np.arange(1, positions + 1, dtype=np.float64)[:, None] * frequencies
    return found


def waves(positions: int, d: int) -> Array:
    """The sinusoidal table (positions, d): sines in the even columns, cosines in the odd ones.

    >>> waves(1, 2).round(4).tolist()
    [[0.8415, 0.5403]]
    """
    table, out = angles(positions, d), np.zeros((positions, d))
    out[:, 0 : d - d % 2 : 2], out[:, 1::2] = np.sin(table), np.cos(table)
    return out
