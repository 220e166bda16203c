"""Decides every sequence of one position by itself: cheaper than its multisets where each slot has a weight of its own.

Then a multiset for each slot is a sequence, and one table of all fillings of the slots is made with one addition each.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from verify.tasks.histogram.blocks import CellMultisets
from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.reduction import Row
from verify.tasks.histogram.tabulating import CountReadout, Table, Tabulated

MOST_SEQUENCES = 1 << 20  # of all T tokens
MOST_NUMBERS = 1 << 21  # in a table of the forms of one token


class Fillings:
    """All sequences of L - 1 of T tokens in lexicographic order.

    Shapes: tokens (T^(L - 1), L - 1); of a query token t, `distinct` (T^(L - 1),) how many different tokens there are
    with it, and `of_count` which sequences have each own count.
    """

    def __init__(self, T: int, L: int) -> None:
        self.tokens = np.indices((T,) * (L - 1), dtype=np.int16).reshape(L - 1, -1).T
        ordered = np.sort(self.tokens, axis=1)
        different = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
        held = [(self.tokens == t).sum(1) for t in range(T)]
        self.distinct = [different + (number == 0) for number in held]
        self.of_count = [[np.flatnonzero(number == k - 1) for k in range(L + 1)] for number in held]


@lru_cache(maxsize=2)
def fillings_of(T: int, L: int) -> Fillings:
    """The fillings, made once."""
    return Fillings(T, L)


def is_by_sequence(row: Row, T: int, L: int, r: int) -> bool:
    """Whether the row is one position whose slots all have weights of their own, and few enough fillings."""
    fits = T**L <= MOST_SEQUENCES and T ** (L - 1) * r <= MOST_NUMBERS
    return row.spread is None and len(row.positions) == 1 and fits and L > 1 and all(n == 1 for n in row.sizes)


def decide(table: Table, counts: list[int], found: Tabulated, smallest: Smallest) -> None:
    """Decides all sequences with these own counts."""
    row, t, stored = table.row, table.t, table.stored
    fillings = fillings_of(stored.T, stored.L)
    group_of = {slots[0]: g for g, slots in enumerate(row.groups)}
    z = table.start[:, None]
    for slot in sorted(group_of):
        steps = np.insert(table.steps(group_of[slot]), t, 0.0, axis=1)  # (r, T)
        z = (z[:, :, None] + steps[:, None]).reshape(len(z), -1)
    np.maximum(z[:-1], 0.0, out=z[:-1])
    for k in counts:
        readout, chosen = CountReadout.of(table, k), fillings.of_count[t][k]
        on = z[:, chosen]
        difference = readout.d @ on
        least = (difference - readout.error).min(0, initial=np.inf)
        is_right = least > 0
        readout.record(least[is_right], on[-1, is_right] + table.form_error[-1], found)
        if is_right.all():
            continue
        is_wrong = np.asarray((difference + readout.error < 0).any(0))
        wrong = chosen[is_wrong]
        found.wrong_pairs += len(wrong)
        if len(wrong):
            distinct = fillings.distinct[t][wrong]
            first = int(wrong[int(distinct.argmin())])  # the first of the smallest, in lexicographic order
            others = fillings.tokens[first].tolist()
            position = row.positions[0]
            sequence = (*others[:position], t, *others[position:])
            smallest.add(Candidate(int(distinct.min()), sequence, position))
        left = chosen[~(is_right | is_wrong)]
        for points in _points(fillings.tokens[left], table, k) if len(left) else []:
            is_wrong = readout.settle(points, table.singly(points, readout), found)
            found.wrong_pairs += int(is_wrong.sum())
            if is_wrong.any():
                smallest.add(table.smallest_of(points[np.flatnonzero(is_wrong)]))


def _points(sequences: np.ndarray, table: Table, k: int) -> list[CellMultisets]:
    """Sequences by the groups of which a slot holds another token."""
    position, groups = table.row.positions[0], table.row.groups
    columns = [slots[0] - (slots[0] > position) for slots in groups]
    index = np.searchsorted(table.tokens, sequences[:, columns])
    is_other = sequences[:, columns] != table.t
    found = []
    for held in np.unique(is_other, axis=0):
        same = index[(is_other == held).all(1)]
        tokens = tuple(same[:, [g]] if held[g] else same[:, :0] for g in range(len(groups)))
        found.append(CellMultisets(k, len(same), tokens))
    return found
