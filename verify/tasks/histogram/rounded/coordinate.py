"""A sharper error bound for neurons that read one coordinate: every partial sum by its own size.

With n terms, of any order the i-th smallest partial sum is at most that of the i + 1 largest terms. A rounding is off
by at most u times the power of two at or below its result. So the errors of a sum add up to at most that, over the
partial sums taken from the largest term on, where the general bound charges each of them with the whole sum.
"""

from __future__ import annotations

import numpy as np

from verify.arithmetic.any_order import is_power_of_two, power_at_or_below
from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import INFLATION, Array, quotient_above, quotient_below
from verify.tasks.histogram.reduction import ReductionTables, Row
from verify.tasks.histogram.rounded.copies import ends_of_copies
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.vertices import form_ranges, ratio_at_vertices


def unrounded_tables(reduction: RoundedReduction, row: Row, start: int, stop: int) -> ReductionTables:
    """The tables of computed weights whose sums are exact from there on."""
    stored, at = reduction.stored, reduction.at
    W_1 = reduction.operand(stored.W_1)
    tokens, bias = (Ball(W, at.flush_loss(W)) for W in (stored.E, stored.b_1))
    features = reduction.operand(reduction.embeddings) @ W_1
    return reduction.tables_of(features, tokens @ W_1 + bias, row, start, stop)


def sharper_ends(
    reduction: RoundedReduction,
    row: Row,
    start: int,
    stop: int,
    cells: tuple[np.ndarray, np.ndarray, np.ndarray],
    ends: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Narrows the range of a lone neuron that may be on in cells (token, k - 1, neuron), if it reads one coordinate."""
    stored, at = reduction.stored, reduction.at
    t, k, neuron = cells
    if at.operand is not at.stored:
        return ends
    tables = unrounded_tables(reduction, row, start, stop)
    lower, upper = form_ranges(stored, row, tables)
    D = lower[t, k, stored.p]
    bottom, top = np.maximum(lower[t, k, neuron], 0), np.maximum(upper[t, k, neuron], 0)
    exact = quotient_below(bottom, upper[t, k, stored.p]) / INFLATION, quotient_above(top, D) * INFLATION
    exact = ratio_at_vertices(stored, tables, t, k, neuron, *exact)
    error = _error(reduction, row, tables, t, k, neuron, D)
    ends = np.fmax(ends[0], np.maximum(exact[0] - error, 0)), np.fmin(ends[1], np.maximum(exact[1] + error, 0))
    copies = ends_of_copies(reduction, row, tables, cells, (D, upper[t, k, stored.p]))
    return np.fmax(ends[0], copies[0]), np.fmin(ends[1], np.maximum(copies[1], 0))


def _error(
    reduction: RoundedReduction,
    row: Row,
    tables: ReductionTables,
    t: np.ndarray,
    k: np.ndarray,
    neuron: np.ndarray,
    D: Array,
) -> Array:
    """Bounds the error of a computed pre-activation. Infinite where it reads several coordinates."""
    stored, at, reader = reduction.stored, reduction.at, reduction.reader
    is_read = (reduction.mixed.largest > 0)[:, None] & (stored.W_1 != 0)
    coordinate = is_read.argmax(0)[neuron]
    W = np.abs(stored.W_1[coordinate, neuron])
    token = tables.start + t
    E = np.abs(reduction.embeddings)
    if stored.is_linear:
        weight = np.asarray(max(row.own_weight.magnitude, row.weight.magnitude.max(initial=0.0)))
    else:
        weight = reduction.attention.magnitude[token]
    sizes = weight * E[:, coordinate].T * INFLATION / D[:, None]
    own = np.take_along_axis(sizes, token[:, None], 1)
    is_other = np.arange(stored.T)[None, :] != token[:, None]
    other = np.where(is_other, sizes[:, : stored.T], 0.0).max(1, keepdims=True)
    slot = np.arange(stored.L)[None, :]
    slots = np.where(slot <= k[:, None], own, other)  # k counts from 0
    terms = np.concatenate([slots, sizes[:, stored.T :], E[token, coordinate][:, None]], axis=1)
    terms = -np.sort(-terms, axis=1)
    n = terms.shape[1]
    partial = np.cumsum(terms, axis=1) * (1 + at.growth(n + 1, 2)) * INFLATION
    total = partial[:, -1]
    below = np.where(terms > 0, power_at_or_below(partial), 0.0)[:, 1:].sum(1)
    hard = ~is_power_of_two(E[:, coordinate]).all(0)
    error = at.inner.u * (below + hard * total)
    if at.inner is not at.stored:
        error = error + 2 * at.stored.u * total
    error = error * (1 + at.growth(n + 1, 2)) + reduction.mixed.lost[coordinate]
    error = error * W * (1 + reader.growth[neuron]) + reader.growth[neuron] * total * W + reader.lost[neuron]
    return np.where(is_read.sum(0)[neuron] == 1, error * INFLATION, np.inf)
