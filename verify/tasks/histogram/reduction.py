"""From T^L sequences to linear forms in counts: the reduction that all complete proofs here rest on.

Counts. What a position outputs depends only on its own token t and on which tokens fill its slots, that is,
the other L - 1 positions. Slots with equal mixing weight are interchangeable, so only the counts per group
of slots matter. In dot-product mixing there is one group; in lin a group for each distinct entry of the row.

Homogenisation. A hidden neuron's pre-activation is a sum over slots of one term per slot. With softmax that
holds after multiplying by the normalisation D > 0, which is itself such a sum; ReLU is positively
homogeneous, so the logits are multiplied by D as well and the argmax stays. Softmax costs no relaxation.

So for each row (position class) and token t there is a table: `base` (residual, bias, BOS and the position
itself), `own` (a slot holding t) and `others[s]` (a slot holding s), each with p coordinates for the
pre-activations and one last coordinate for D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from verify.arithmetic import softmax
from verify.arithmetic.balls import Ball, joined, point, reciprocal_sqrt
from verify.tasks.histogram.slot_terms import Attended, GivenTerms, Terms
from verify.tasks.histogram.stored import Array, StoredModel


@dataclass(frozen=True)
class Spread:
    """How the weights of a merged row differ.

    Shapes: low and high (G,) hold all midpoints of a group's weights; sums (positions, G) of their differences to the
    row's `weight`; weights (L, L) the mixing weights themselves.
    """

    low: Array
    high: Array
    sums: Array
    weights: Ball


@dataclass(frozen=True)
class Row:
    """Positions that mix alike up to a permutation of their slots, exactly or (with a `spread`) almost.

    `slots` are the other positions of each of these positions in groups by weight; `weight` (G,) is their weight,
    `own_weight` the weight of the position itself (with a spread, of each of them), `D` the normalisation of the row.
    """

    positions: tuple[int, ...]
    slots: tuple[tuple[tuple[int, ...], ...], ...]
    weight: Ball
    own_weight: Ball
    D: Ball
    spread: Spread | None = None

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of slots of the first position."""
        return self.slots[0]

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(group) for group in self.groups], dtype=np.int64)


@dataclass(frozen=True)
class ReductionTables:
    """The linear forms of the tokens start..stop-1, and what each slot that holds another token adds to them."""

    start: int
    stop: int
    base: Ball
    own: Ball
    terms: Terms

    @property
    def tokens(self) -> np.ndarray:
        return np.arange(self.start, self.stop)

    @property
    def others(self) -> Ball:
        """The terms as numbers, with one leading row where they are the same for all tokens."""
        return self.terms.ball

    def of_token(self, t: int) -> tuple[Ball, Ball, Ball]:
        """base (r,), own (r,) and others (T, r) of one token."""
        i, others = t - self.start, self.others
        return self.base[i], self.own[i], others[i if len(others.mid) > 1 else 0]


class Reduces(Protocol):
    """The interface that the proofs ask of a reduction, whether its numbers are exact or all that can be computed."""

    @property
    def stored(self) -> StoredModel:
        """The model."""

    @property
    def features(self) -> Ball:
        """<e_s, W_1> (T or T + 1, p); the last row belongs to BOS where there is one."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The position classes, which cover every position once."""

    def tables(self, row: Row, start: int, stop: int) -> ReductionTables:
        """The linear forms of the query tokens start..stop-1."""


class Reduction:
    """The tables of a stored model, made from balls around its weights with a few matrix products."""

    def __init__(self, stored: StoredModel) -> None:
        self.stored = stored

    @cached_property
    def E(self) -> Ball:
        stored = self.stored
        return Ball.exact(stored.E if stored.e_BOS is None else np.vstack([stored.E, stored.e_BOS]))

    @cached_property
    def features(self) -> Ball:
        """<e_s, W_1> (T or T + 1, p); the last row belongs to BOS where there is one."""
        return self.E @ Ball.exact(self.stored.W_1)

    @cached_property
    def residual(self) -> Ball:
        """<e_t, W_1> + b_1 (T, p)."""
        return self.features[: self.stored.T] + Ball.exact(self.stored.b_1)

    @cached_property
    def linear_terms(self) -> GivenTerms:
        """What each token adds in a slot of lin."""
        return terms_of_features(self.features)

    @cached_property
    def attention(self) -> Ball:
        """Unnormalised attention (T, T or T + 1); exponentials are divided by the row's largest, which cancels."""
        stored = self.stored
        assert stored.W_Q is not None and stored.W_K is not None
        queries = self.E[: stored.T] @ Ball.exact(stored.W_Q)
        keys = self.E @ Ball.exact(stored.W_K)
        scores = (queries @ keys.T) * reciprocal_sqrt(stored.d)
        return softmax.weights(scores) if stored.is_softmax else scores

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The position classes, which cover every position once."""
        if self.stored.A is None:
            return (attending_row(self.stored.L),)
        weights = mixing_weights(self.stored)
        return tuple(row_of(self.stored, positions, weights) for positions in position_classes(self.stored.A))

    def tables(self, row: Row, start: int, stop: int) -> ReductionTables:
        """The linear forms of the query tokens start..stop-1."""
        if self.stored.is_linear:
            return linear_tables(row, self.linear_terms, self.residual, start, stop)
        if not self.stored.is_softmax:
            return attending_tables(self.stored, self.attention, self.features, self.residual, start, stop)
        terms = Attended(self.attention[start:stop], self.features, self.residual[start:stop])
        return tables_of_attended(self.stored, _zeros(stop - start, self.stored.p + 1), terms, start)


def attending_row(L: int) -> Row:
    """The one row of dot-product mixing: every position has the same slots, and no weight of its own."""
    slots = (tuple(range(1, L)),) if L > 1 else ()
    one = Ball.exact(1.0)
    return Row(tuple(range(L)), (slots,) * L, Ball.exact(np.ones(len(slots))), one, one)


def position_classes(A: Array) -> list[tuple[int, ...]]:
    """The positions whose rows of A have the same own weight and the same other weights in some order."""
    L, classes = len(A), dict[bytes, list[int]]()
    others = np.sort(A[~np.eye(L, dtype=bool)].reshape(L, L - 1), axis=1)
    for position, weights in enumerate(np.column_stack([A.diagonal(), others]) + 0.0):  # one zero, not two
        classes.setdefault(weights.tobytes(), []).append(position)
    return [tuple(positions) for positions in classes.values()]


def mixing_weights(stored: StoredModel) -> Ball:
    """lin: the entries of A, or with softmax their exponentials (L, L)."""
    assert stored.A is not None
    weights = Ball.exact(stored.A)
    return softmax.weights(weights) if stored.is_softmax else weights


def row_of(stored: StoredModel, positions: tuple[int, ...], weights: Ball) -> Row:
    """The row of one class of positions, its slots grouped by their stored weight."""
    position, slots = positions[0], slots_of(stored, positions)
    firsts = [group[0] for group in slots[0]]
    row = weights[position]
    D = Ball.exact(1.0)
    if stored.is_softmax:
        D = (row[None, :] @ Ball.exact(np.ones((stored.L, 1))))[0, 0]
    return Row(positions, slots, row[firsts], row[position], D)


def terms_of_features(V: Ball) -> GivenTerms:
    """lin: a slot's term is its token's features V, whatever the query, and adds nothing to D."""
    return GivenTerms(joined(V, _zeros(len(V.mid), 1))[None])


def linear_tables(row: Row, terms: GivenTerms, residual: Ball, start: int, stop: int) -> ReductionTables:
    """lin: the base is the residual and the position's own term, by the weight that it has for itself."""
    own = terms.ball[0, start:stop]
    D = Ball(np.full((stop - start, 1), row.D.mid), np.full((stop - start, 1), row.D.rad))
    is_one = row.D.mid == 1 and row.D.rad == 0
    base = (residual[start:stop] if is_one else residual[start:stop] * row.D) + own[:, :-1] * row.own_weight
    return ReductionTables(start, stop, joined(base, D), own, terms)


def attending_tables(
    stored: StoredModel, attention: Ball, features: Ball, residual: Ball, start: int, stop: int
) -> ReductionTables:
    """dot and bos without softmax: a slot's term is its token's features times the score, and D is 1."""
    base = joined(residual[start:stop], Ball.exact(np.ones((stop - start, 1))))
    return tables_of_attended(stored, base, Attended(attention[start:stop], features, None), start)


def tables_of_attended(stored: StoredModel, base: Ball, terms: Attended, start: int) -> ReductionTables:
    """The tables of terms by attention, over all keys; BOS and the position itself are slots that hold their tokens."""
    T, queries = stored.T, np.arange(len(base.mid))
    if stored.e_BOS is not None:
        base = base + terms.of_token(queries, np.full(len(queries), T))
    own = terms.of_token(queries, start + queries)
    return ReductionTables(start, start + len(queries), base + own, own, terms.first(T))


def forms_of_token(reduction: Reduces, row: Row, t: int) -> tuple[list[Ball], Ball, Ball]:
    """The forms of token t: one base for every weight that a position has for itself, its own and the others' terms."""
    each = [row.own_weight] if row.spread is None else [row.own_weight[i] for i in range(len(row.positions))]
    found = [reduction.tables(replace(row, own_weight=weight), t, t + 1).of_token(t) for weight in each]
    return [base for base, _, _ in found], found[0][1], found[0][2]


def tables_of_terms(base: Ball, terms: Ball, start: int, stop: int) -> ReductionTables:
    """The tables whose slots hold these terms (n, T, r); the position itself is one more slot that holds its token."""
    own = terms[np.arange(stop - start), np.arange(start, stop)]
    return ReductionTables(start, stop, base + own, own, GivenTerms(terms))


def slots_of(stored: StoredModel, positions: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The other positions of each of these, which have the same weights in some order: grouped by equal stored weight.

    The groups are in increasing order of weight, which all of them have without a mixing matrix.
    """
    own = np.array(positions)[:, None]
    others = np.nonzero(np.arange(stored.L) != own)[1].reshape(len(own), stored.L - 1)
    weights = np.zeros(stored.L - 1)
    if stored.A is not None:
        order = np.argsort(stored.A[own, others], axis=1, kind="stable")
        others = np.take_along_axis(others, order, 1)
        weights = stored.A[own[0], others[0]]
    starts = [0, *(1 + np.flatnonzero(weights[1:] != weights[:-1])).tolist(), stored.L - 1]
    groups = [slice(start, stop) for start, stop in pairwise(starts) if start < stop]
    return tuple(tuple(tuple(slots[group]) for group in groups) for slots in others.tolist())


def slot_groups(stored: StoredModel, position: int) -> tuple[tuple[int, ...], ...]:
    """The other positions, as `slots_of`, of one position."""
    return slots_of(stored, [position])[0]


def _zeros(*shape: int) -> Ball:
    return point(np.zeros(shape))
