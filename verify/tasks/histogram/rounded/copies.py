"""The ends of computed pre-activations where the other tokens are 0 in the one coordinate that a neuron reads.

All terms but BOS's and the residual are then copies of the own one. Rounding is monotone, so the least and the greatest
sum of n terms, in any order and grouping, come from the least and the greatest sums of fewer: no error bound is needed.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.slack import Array, U
from verify.tasks.histogram.reduction import ReductionTables, Row
from verify.tasks.histogram.rounded.reduction import RoundedReduction

MOST_BITS = 24  # float64 rounds such numbers far below their last bit
MOST_COPIES = 32
Ends = tuple[Array, Array]


def ends_of_copies(
    reduction: RoundedReduction, row: Row, tables: ReductionTables, cells: tuple[np.ndarray, ...], normaliser: Ends
) -> Ends:
    """Bounds on the pre-activations of cells (token, k - 1, neuron), infinite where other tokens take part."""
    stored, at = reduction.stored, reduction.at
    t, k, neuron = cells
    low, high = np.full(len(t), -np.inf), np.full(len(t), np.inf)
    if at.inner is not at.stored or at.operand is not at.stored or at.stored.p > MOST_BITS or stored.L > MOST_COPIES:
        return low, high
    is_read = (reduction.mixed.largest > 0)[:, None] & (stored.W_1 != 0)
    coordinate, token = is_read.argmax(0)[neuron], tables.start + t
    i, x = np.arange(len(t)), reduction.embeddings[:, coordinate].T
    own = x[i, token]
    is_alone = (is_read.sum(0)[neuron] == 1) & (own != 0) & ((x[:, : stored.T] != 0).sum(1) == 1)
    i = i[is_alone]
    if not len(i):
        return low, high
    token, neuron, own, x = token[i], neuron[i], own[i], x[i]
    D = normaliser[0][i], normaliser[1][i]
    if stored.is_linear:
        weights = [_hull(row, len(i))]
    else:
        attended = [token] + [np.full(len(i), stored.T)] * (stored.e_BOS is not None)
        weights = [ends(reduction.attention[token, key]) for key in attended]
    terms = [_term(reduction, w, D, value) for w, value in zip(weights, (own, x[:, -1]), strict=False)]
    loss = at.flush_loss(own)
    extras = [(own - loss, own + loss), *terms[1:]]
    sums = _ends_of_sums(reduction, terms[0], extras, int(k[i].max()) + 1)
    count, column = k[i] + 1, np.arange(len(i))
    mixed = sums[0][count, column], sums[1][count, column]
    W, b = stored.W_1[coordinate[i], neuron], stored.b_1[neuron]
    read = at.result(Ball.between(*at.factors(*mixed)) * reduction.operand(W)) + Ball(b, at.flush_loss(b))
    low[i], high[i] = ends(read)
    return low, high


def _hull(row: Row, n: int) -> Ends:
    """The ends of all computed weights of a row of lin."""
    (own_low, own_high), (low, high) = ends(row.own_weight), ends(row.weight)
    return np.full(n, np.append(low, own_low).min()), np.full(n, np.append(high, own_high).max())


def _term(reduction: RoundedReduction, weight: Ends, D: Ends, value: Array) -> Ends:
    """The ends of a computed weight, over its normalisation, times the stored value as it is read."""
    corners = [w / d * v for w, d, v in product(weight, D, ends(reduction.operand(value)))]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    wider = 8 * U
    exact = Ball.between(low - wider * np.abs(low), high + wider * np.abs(high))
    return ends(reduction.at.result(exact * reduction.operand(np.ones(1))))


def _ends_of_sums(reduction: RoundedReduction, copy: Ends, extras: list[Ends], most: int) -> Ends:
    """The ends of the sum of 0..most copies and all extras (most + 1, n), rounded after every addition or kept."""
    n, everything = len(copy[0]), 2 ** len(extras) - 1
    low, high = (np.zeros((everything + 1, most + 1, n)) for _ in range(2))
    for chosen, copies in product(range(everything + 1), range(most + 1)):
        if chosen.bit_count() + copies <= 1:  # a single term, or none
            single = copy if copies else extras[chosen.bit_length() - 1] if chosen else (np.zeros(n), np.zeros(n))
            low[chosen, copies], high[chosen, copies] = single
            continue
        parts = [
            (a, c)
            for a, c in product(range(chosen + 1), range(copies + 1))
            if a & ~chosen == 0 and 0 < a.bit_count() + c < chosen.bit_count() + copies
        ]
        lows, highs = (np.array([x[a, c] + x[chosen ^ a, copies - c] for a, c in parts]) for x in (low, high))
        least, greatest = np.nextafter(lows.min(0), -np.inf), np.nextafter(highs.max(0), np.inf)  # float64 rounds too
        low[chosen, copies], high[chosen, copies] = ends(reduction.at.result(Ball.between(least, greatest)))
    return low[everything], high[everything]
