"""Stored numbers as matrices of balls of any number of bits (python-flint's arb), and what a layer does to them.

All of it is computed with the precision of the context, and a ball holds every value that its terms allow.
"""

from __future__ import annotations

import numpy as np
from flint import arb, arb_mat

from verify.arithmetic.slack import Array
from verify.arithmetic.softmax import precise_weights


def stored(x: Array) -> arb_mat:
    """The numbers of a matrix, or of a vector as one row, exactly."""
    x = np.atleast_2d(x)
    return arb_mat(x.shape[0], x.shape[1], [arb(value) for value in x.ravel().tolist()])


def plus_row(x: arb_mat, row: Array) -> arb_mat:
    """Adds a stored vector to each row."""
    return x + arb_mat(x.nrows(), x.ncols(), stored(row).entries() * x.nrows())


def relu(x: arb_mat) -> arb_mat:
    """The larger of each number and 0: exactly 0 where it is not above."""
    return arb_mat(x.nrows(), x.ncols(), [z if z >= 0 else z.max(arb(0)) for z in x.entries()])


def attended(queries: arb_mat, keys: arb_mat, values: arb_mat, *, is_causal: bool) -> arb_mat:
    """The softmax of all scores times the values; where it is causal, row i sees the keys up to i."""
    scores = queries * keys.transpose()
    shares = arb_mat(scores.nrows(), scores.ncols())
    for i in range(scores.nrows()):
        seen = range(i + 1 if is_causal else scores.ncols())
        weights = precise_weights([scores[i, j] for j in seen])
        total = sum(weights, arb(0))
        for j, weight in zip(seen, weights, strict=True):
            shares[i, j] = weight / total
    return shares * values


def leads(x: arb_mat, row: int, right: int) -> list[arb]:
    """(right logit) - (each other logit) of a row."""
    return [x[row, right] - x[row, c] for c in range(x.ncols()) if c != right]
