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

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic.balls import Ball, exponential, reciprocal_sqrt, stack_last
from verify.histogram.stored import StoredModel


@dataclass(frozen=True)
class Row:
    """Positions that mix alike up to a permutation of their slots.

    `groups` are the slots of the first of these positions by equal weight; `weight` (G,) is their weight,
    `own_weight` the weight of the position itself, `D` the normalisation of the row.
    """

    positions: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    weight: Ball
    own_weight: Ball
    D: Ball

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(group) for group in self.groups], dtype=np.int64)


@dataclass(frozen=True)
class Tables:
    """The linear forms of the tokens start..stop-1; `others` has one leading row when it is the same for all."""

    start: int
    stop: int
    base: Ball
    own: Ball
    others: Ball

    def of_token(self, t: int) -> tuple[Ball, Ball, Ball]:
        """base (r,), own (r,) and others (T, r) of one token."""
        i = t - self.start
        others = self.others[i] if self.others.mid.shape[0] > 1 or self.stop - self.start == 1 else self.others[0]
        return self.base[i], self.own[i], others


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
    def attention(self) -> Ball:
        """Unnormalised attention (T, T or T + 1); exponentials are divided by the row's largest, which cancels."""
        stored = self.stored
        assert stored.W_Q is not None and stored.W_K is not None
        queries = self.E[: stored.T] @ Ball.exact(stored.W_Q)
        keys = self.E @ Ball.exact(stored.W_K)
        scores = (queries @ keys.T) * reciprocal_sqrt(stored.d)
        return self._exponentials(scores) if stored.is_softmax else scores

    @staticmethod
    def _exponentials(scores: Ball) -> Ball:
        largest = scores.mid.max(axis=-1, keepdims=True)
        return exponential(scores - Ball(largest, np.zeros_like(largest)))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The position classes, which cover every position once."""
        stored = self.stored
        one = Ball.exact(1.0)
        if stored.A is None:
            slots = (tuple(range(1, stored.L)),) if stored.L > 1 else ()
            unit = Ball.exact(np.ones(len(slots)))
            return (Row(tuple(range(stored.L)), slots, unit, one, one),)
        classes: dict[tuple[float, ...], list[int]] = {}
        for position in range(stored.L):
            rest = np.delete(stored.A[position], position)
            classes.setdefault((stored.A[position, position], *np.sort(rest)), []).append(position)
        weights = Ball.exact(stored.A)
        if stored.is_softmax:
            weights = self._exponentials(weights)
        return tuple(self._row(tuple(positions), weights) for positions in classes.values())

    def _row(self, positions: tuple[int, ...], weights: Ball) -> Row:
        stored = self.stored
        assert stored.A is not None
        position = positions[0]
        groups = slot_groups(stored, position)
        firsts = [group[0] for group in groups]
        row = weights[position]
        D = Ball.exact(1.0)
        if stored.is_softmax:
            D = (row[None, :] @ Ball.exact(np.ones((stored.L, 1))))[0, 0]
        return Row(positions, groups, row[firsts], row[position], D)

    def tables(self, row: Row, start: int, stop: int) -> Tables:
        """The linear forms of the query tokens start..stop-1."""
        return self._linear(row, start, stop) if self.stored.is_linear else self._attending(start, stop)

    def _linear(self, row: Row, start: int, stop: int) -> Tables:
        T = self.stored.T
        V = self.features
        column, row_of_zeros = _zeros(T, 1), _zeros(stop - start, 1)
        D = Ball(np.full((stop - start, 1), row.D.mid), np.full((stop - start, 1), row.D.rad))
        base = self.residual[start:stop] * row.D + V[start:stop] * row.own_weight
        others = stack_last(V, column)
        return Tables(start, stop, stack_last(base, D), stack_last(V[start:stop], row_of_zeros), others[None])

    def _attending(self, start: int, stop: int) -> Tables:
        stored, T = self.stored, self.stored.T
        n = stop - start
        weight = self.attention[start:stop][..., None]  # (n, keys, 1)
        if stored.is_softmax:
            values = self.features[None] + self.residual[start:stop, None]
            terms = stack_last(weight * values, weight)
            base = _zeros(n, stored.p + 1)
        else:
            terms = stack_last(weight * self.features[None], _zeros(*weight.mid.shape))
            base = stack_last(self.residual[start:stop], Ball.exact(np.ones((n, 1))))
        if stored.e_BOS is not None:
            base = base + terms[:, T]
        others = terms[:, :T]
        own = others[np.arange(n), np.arange(start, stop)]
        return Tables(start, stop, base + own, own, others)


def slot_groups(stored: StoredModel, position: int) -> tuple[tuple[int, ...], ...]:
    """The other positions, grouped by equal stored mixing weight (in increasing order of weight)."""
    slots = [m for m in range(stored.L) if m != position]
    if stored.A is None:
        return (tuple(slots),) if slots else ()
    groups: dict[float, list[int]] = {}
    for m in slots:
        groups.setdefault(float(stored.A[position, m]), []).append(m)
    return tuple(tuple(groups[weight]) for weight in sorted(groups))


def _zeros(*shape: int) -> Ball:
    return Ball(np.zeros(shape), np.zeros(shape))
