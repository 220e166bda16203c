"""What every hidden neuron reads over all inputs: exact ranges per token and count, and the readout's thresholds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from constructions.histogram import HistogramTransformer
from verify.reduction import Reduction, Row, Tables
from verify.stored import Array, StoredModel
from verify.vertices import CHUNK, form_ranges, ratio_at_vertices


def activation_ranges(module: HistogramTransformer, L: int | None = None) -> tuple[Array, Array]:
    """The least and the greatest value of each neuron after ReLU, over all inputs with token t and count k.

    Claim: the ranges that A, App. B.4 and C sketch from samples; attained, up to the rounding of float64, outward.
    Shapes: two arrays (T, L, p); count k is at index k - 1.

    >>> from constructions import relation_counting
    >>> low, high = activation_ranges(relation_counting.dot(T=4, L=3))
    >>> low[0, :, 0].round(6).tolist(), high[0, :, 0].round(6).tolist()
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    """
    stored = StoredModel.of(module, L)
    low = np.full((stored.T, stored.L, stored.p), np.inf)
    high = np.full_like(low, -np.inf)
    reduction = Reduction(stored)
    per_token = (stored.p + 1) * max(stored.T, stored.L)
    step = max(1, CHUNK // per_token)
    for row in reduction.rows:
        for start in range(0, stored.T, step):
            tables = reduction.tables(row, start, min(stored.T, start + step))
            part = slice(tables.start, tables.stop)
            least, most = _ranges(stored, row, tables)
            low[part], high[part] = np.minimum(low[part], least), np.maximum(high[part], most)
    return low, high


def _ranges(stored: StoredModel, row: Row, tables: Tables) -> tuple[Array, Array]:
    lower, upper = form_ranges(stored, row, tables)
    p = stored.p
    low = np.maximum(lower[..., :p], 0) / upper[..., p:]
    high = np.maximum(upper[..., :p], 0) / lower[..., p:]
    if stored.is_softmax and not stored.is_linear:  # the normalisation varies with the other tokens
        t, k = (index.ravel() for index in np.indices(low.shape[:2]))
        for i in range(p):
            only = np.zeros(low.shape, dtype=bool)
            only[..., i] = True
            least, most = ratio_at_vertices(stored, tables, t, k, only, low[..., i].ravel(), high[..., i].ravel())
            low[..., i], high[..., i] = least.reshape(low.shape[:2]), most.reshape(low.shape[:2])
    return low, high


def thresholds(slopes: Array, intercepts: Array) -> tuple[list[int], list[float]]:
    """The classes that win as one neuron's value grows from 0, and the values at which the next one takes over.

    Claim: A-B.4: logit c is slopes[c] x + intercepts[c], so the winner follows the upper envelope of lines.

    >>> thresholds(np.array([1.0, 2.0, 3.0]), np.array([0.0, -1.5, -4.0]))
    ([0, 1, 2], [1.5, 2.5])
    """
    lines = [(Fraction(a), Fraction(b)) for a, b in zip(slopes.tolist(), intercepts.tolist(), strict=True)]
    x, winner = Fraction(0), max(range(len(lines)), key=lambda c: (lines[c][1], lines[c][0]))
    winners, crossings = [winner], list[float]()
    while True:
        a, b = lines[winner]
        later = [((b - lines[c][1]) / (lines[c][0] - a), -lines[c][0], c) for c in range(len(lines)) if lines[c][0] > a]
        if not later:
            return winners, crossings
        x, _, winner = min(later)
        winners.append(winner)
        crossings.append(float(x))
