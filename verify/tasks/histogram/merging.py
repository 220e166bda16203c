"""Rows of `lin` whose weights are almost equal, as one row: what training leaves of a symmetry.

Slots whose weights are close form one group, and positions whose groups and own weights are close form one row. Such a
row says between which ends the weights of a group lie; what that leaves open, arrangements.py decides slot by slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verify.arithmetic.balls import Ball
from verify.tasks.histogram.reduction import Reduces, Reduction, Row, Spread, mixing_weights
from verify.tasks.histogram.stored import Array

CLOSE = 0.2  # of the largest weight: a gap between two weights of a row from which their slots are kept apart
CLOSE_POSITIONS = 0.02  # of the largest weight: how far positions' weights may differ


@dataclass(frozen=True)
class Merged:
    """A row, and the indices of the exact rows that it stands for."""

    row: Row
    members: tuple[int, ...]


def merged_rows(reduction: Reduction) -> list[Merged]:
    """The rows of a reduction, those of close weights as one; a row that is like no other stays as it is."""
    rows = reduction.rows
    if not reduction.stored.is_linear:
        return [Merged(row, (index,)) for index, row in enumerate(rows)]
    weights = normalised(reduction)
    merged = []
    for members in alike(rows, weights.mid, CLOSE_POSITIONS):
        positions = tuple(sorted(position for index in members for position in rows[index].positions))
        slots = tuple(close_slots(weights.mid[position], position) for position in positions)
        is_exact = len(members) == 1 and len(slots[0]) == len(rows[members[0]].groups)
        row = rows[members[0]] if is_exact else merged_row(positions, slots, weights)
        merged.append(Merged(row, members))
    return merged


def normalised(reduction: Reduces) -> Ball:
    """The mixing weights of all positions (L, L); with softmax they are divided by their sum."""
    weights = mixing_weights(reduction.stored)
    if not reduction.stored.is_softmax:
        return weights
    return weights / (weights @ Ball.exact(np.ones((reduction.stored.L, 1))))


def close_slots(weights: Array, position: int, closeness: float = CLOSE) -> tuple[tuple[int, ...], ...]:
    """The other positions by increasing weight, in groups between which the weights have a gap that is not small."""
    close = closeness * float(np.abs(np.delete(weights, position)).max(initial=0.0))
    order = [int(m) for m in np.argsort(weights, kind="stable") if m != position]
    groups: list[list[int]] = []
    for before, slot in zip([None, *order], order, strict=False):
        if before is None or weights[slot] - weights[before] > close:
            groups.append([])
        groups[-1].append(slot)
    return tuple(tuple(sorted(group)) for group in groups)


def merged_row(positions: tuple[int, ...], slots: tuple[tuple[tuple[int, ...], ...], ...], weights: Ball) -> Row:
    """One row of these positions, whose groups have one size each whatever the position."""
    groups = range(len(slots[0]))
    mids = [
        [weights.mid[position, list(own[g])] for g in groups] for position, own in zip(positions, slots, strict=True)
    ]
    low = np.array([min(own[g].min() for own in mids) for g in groups])
    high = np.array([max(own[g].max() for own in mids) for g in groups])
    centre = low / 2 + high / 2
    sums = np.array([[float((own[g] - centre[g]).sum()) for g in groups] for own in mids]).reshape(len(positions), -1)
    rad = np.full(len(low), float(weights.rad[list(positions)].max(initial=0.0)))
    chosen = list(positions)
    return Row(
        positions, slots, Ball(centre, rad), weights[chosen, chosen], Ball.exact(1.0), Spread(low, high, sums, weights)
    )


def alike(rows: tuple[Row, ...], weights: Array, closeness: float) -> Iterator[tuple[int, ...]]:
    """Indices of rows whose own weights and groups of slots are close to those of the first of them."""
    close = closeness * float(np.abs(weights).max(initial=0.0))
    classes: list[tuple[Array, tuple[int, ...], list[int]]] = []
    for index, row in enumerate(rows):
        position = row.positions[0]
        groups = close_slots(weights[position], position)
        means = [weights[position, position], *(float(weights[position, list(group)].mean()) for group in groups)]
        sizes = tuple(map(len, groups))
        for first, same_sizes, members in classes:
            if sizes == same_sizes and np.abs(first - means).max() < close:
                members.append(index)
                break
        else:
            classes.append((np.array(means), sizes, [index]))
    yield from (tuple(members) for _, _, members in classes)
