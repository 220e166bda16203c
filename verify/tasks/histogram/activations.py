"""What every hidden neuron reads over all inputs: exact ranges per token and count, and the readout's thresholds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from constructions.histogram import HistogramTransformer
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import Array, StoredModel
from verify.tasks.histogram.vertices import chunks, form_ranges


def activation_ranges(module: HistogramTransformer, L: int | None = None) -> tuple[Array, Array]:
    """The least and the greatest value of each neuron after ReLU, over all inputs with token t and count k.

    Claim: the ranges that A, App. B.4 and C sketch from samples; attained, up to the rounding of float64.
    Shapes: two arrays (T, L, p); count k is at index k - 1.

    >>> from constructions import relation_counting
    >>> low, high = activation_ranges(relation_counting.dot(T=4, L=3))
    >>> low[0, :, 0].round(6).tolist(), high[0, :, 0].round(6).tolist()
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    """
    stored = StoredModel.of(module, L)
    if stored.is_softmax and not stored.is_linear:
        ranges = [_at_vertices(stored, t) for t in range(stored.T)]
        return np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])
    low = np.full((stored.T, stored.L, stored.p), np.inf)
    high = np.full_like(low, -np.inf)
    reduction = Reduction(stored)
    for row in reduction.rows:
        for tables in chunks(reduction, row):
            part = slice(tables.start, tables.stop)
            lower, upper = form_ranges(stored, row, tables)
            D_low, D_high = lower[..., stored.p :], upper[..., stored.p :]  # the same for all inputs
            low[part] = np.minimum(low[part], np.maximum(lower[..., : stored.p], 0) / D_high)
            high[part] = np.maximum(high[part], np.maximum(upper[..., : stored.p], 0) / D_low)
    return low, high


def _at_vertices(stored: StoredModel, t: int) -> tuple[Array, Array]:
    """Token t under softmax: a ratio of sums is extreme where all slots that do not hold t hold the same token."""
    assert stored.W_Q is not None and stored.W_K is not None
    tokens = stored.E if stored.e_BOS is None else np.vstack([stored.E, stored.e_BOS])
    V, score = tokens @ stored.W_1, (tokens @ stored.W_K) @ (stored.E[t] @ stored.W_Q) / np.sqrt(stored.d)
    others = [s for s in range(stored.T) if s != t]
    low, high = np.empty((stored.L, stored.p)), np.empty((stored.L, stored.p))
    for k in range(1, stored.L + 1):
        counts = np.zeros((len(others), len(tokens)))
        counts[:, t], counts[:, stored.T :] = k, 1
        counts[np.arange(len(others)), others] = stored.L - k
        present = np.where(counts > 0, score, -np.inf)
        weight = counts * np.exp(present - present.max(1, keepdims=True))
        values = np.maximum(V[t] + stored.b_1 + weight @ V / weight.sum(1, keepdims=True), 0)
        low[k - 1], high[k - 1] = values.min(0), values.max(0)
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
