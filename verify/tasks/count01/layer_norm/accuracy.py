"""Learned accuracy: on how many triples the heads of a subset, all others zeroed, put the right answer first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.slack import Array
from verify.tasks.count01.layer_norm.laws import JudgedTriples, Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.tables import Differences, corners
from verify.tasks.count01.task import FIVE, FOUR, answer

BoolArray = NDArray[np.bool_]
ROUNDED = 1e-12  # of the sizes that go into a sum of one term a head and one more: more than gamma_4000


@dataclass(frozen=True)
class Answers:
    """Which triples are answered rightly; `open` are those that could not be decided."""

    right: BoolArray
    open: tuple[int, ...] = ()

    def certain(self) -> NDArray[np.bool_]:
        """Which triples are right, all decided.

        Raises: Undecided where one is open.
        """
        if self.open:
            raise Undecided(f"{len(self.open)} triples are too close to a tie of several heads to decide")
        return self.right

    def accuracy(self, law: Law) -> tuple[Fraction, Fraction]:
        """The share of right answers under the law: equal bounds where nothing is open."""
        low = law.weight_of(self.right)
        rest = np.zeros(len(self.right), dtype=bool)
        rest[list(self.open)] = True
        return Fraction(low, law.total), Fraction(low + law.weight_of(rest & ~self.right), law.total)


class Learned:
    """The documents' learned accuracy, 4 against 5 alone, for any subset of a model's heads; a tie is wrong."""

    def __init__(self, model: ModelNumbers, law: Law, labels: str) -> None:
        self.law, more = law, answer(0, 1, labels)
        self.differences = Differences(model, law.counts, more, FOUR + FIVE - more)

    def answers(self, heads: Sequence[int]) -> Answers:
        """The triples on which the due one of 4 and 5 has the larger logit."""
        return positive(self.differences, heads, self.law)


def positive(differences: Differences, heads: Sequence[int], law: JudgedTriples) -> Answers:
    """Tells where the sign of a subset's score is that of n1 - n0 - 1/2, by digits where floats do not show it."""
    sign, open_triples = signs(differences, heads, law.triples)
    return Answers(np.where(law.has_more_ones, sign > 0, sign < 0), tuple(open_triples))


def signs(differences: Differences, heads: Sequence[int], triples: NDArray[np.int64]) -> tuple[Array, list[int]]:
    """The sign of a subset's score on each triple, by digits where floats do not show it; 0 and listed where open."""
    score, radius = differences.score(heads)
    found, open_triples = np.where(score > radius, 1, np.where(score < -radius, -1, 0)), list[int]()
    for i in np.flatnonzero(found == 0).tolist():
        a, b, c = triples[i].tolist()
        try:
            found[i] = differences.sign(heads, (a, b, c))
        except Undecided:
            open_triples.append(i)
    return found, open_triples


def whole_model(model: ModelNumbers, law: JudgedTriples, labels: str) -> Answers:
    """Tells where the due answer has strictly the largest of all logits after "=", all heads together."""
    heads, around = range(len(model.heads)), corners(law.counts)
    right = np.ones(len(law.triples), dtype=bool)
    open_triples: set[int] = set()
    for expected in (FOUR, FIVE):
        due = law.has_more_ones == (answer(0, 1, labels) == expected)
        for rival in range(model.classes):
            if rival == expected or not due.any():
                continue
            if lowest(model, around, expected, rival) > 0:
                continue
            sign, unsettled = signs(Differences(model, law.counts[due], expected, rival), heads, law.triples[due])
            open_triples |= set(np.flatnonzero(due)[unsettled].tolist())
            right[due] &= sign > 0
    return Answers(right, tuple(sorted(open_triples)))


def lowest(model: ModelNumbers, around: Array, expected: int, rival: int) -> float:
    """A lower bound on a logit difference over the box with these corners, where quotients are extreme."""
    differences = Differences(model, around, expected, rival)
    heads = range(len(model.heads))
    columns = [differences.column(h) for h in heads]
    size, shift = sum(column.size for column in columns), differences.shift(heads)
    least = sum(float(column.values.min()) - column.radius for column in columns)  # NaN stays NaN
    return (least + shift) - ROUNDED * (size + abs(shift))
