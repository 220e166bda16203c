"""ROC AUC, exactly: the probability that a triple with n1 > n0 scores above one without, ties counting one half."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import ctx
from numpy.typing import NDArray

from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.slack import Array
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.tables import BITS, Differences
from verify.tasks.count01.task import FIVE, FOUR, Triple, answer

IntArray = NDArray[np.int64]


class Auc:
    """D's metric: the larger of two AUCs, of the logit of 4 and of the logit of 5, each for its own class."""

    def __init__(self, model: ModelNumbers, law: Law, labels: str) -> None:
        more = answer(0, 1, labels)
        self.law = law
        self.of_more = Differences(model, law.counts, more, None)
        self.of_rest = Differences(model, law.counts, FOUR + FIVE - more, None)

    def of(self, heads: Sequence[int]) -> Fraction | None:
        """The exact AUC of a subset; None where a class is empty.

        Raises: Undecided where two scores of different classes are too close to compare.
        """
        due = self.law.has_more_ones
        if due.all() or not due.any():
            return None
        return max(exact_auc(self.of_more, heads, self.law, due), exact_auc(self.of_rest, heads, self.law, ~due))


def exact_auc(differences: Differences, heads: Sequence[int], law: Law, positive: NDArray[np.bool_]) -> Fraction:
    """The AUC of a subset's score for the class `positive`."""
    score, radius = differences.score(heads, is_centred=True)
    if law.weights is None:
        found = auc_by_floats(score[positive], score[~positive], radius)
        if found is not None:
            return found
    rank = ranks(differences, heads, law, score, radius, positive)
    high, low = rank[positive], rank[~positive]
    if law.weights is None:
        low = np.sort(low)
        below = np.searchsorted(low, high, "left").sum(dtype=np.int64)
        up_to = np.searchsorted(low, high, "right").sum(dtype=np.int64)
        return Fraction(int(below) + int(up_to), 2 * len(high) * len(low))
    order = np.argsort(low)
    cumulative = [0]
    for w in law.weights[~positive][order].tolist():
        cumulative.append(cumulative[-1] + w)
    low, twice = low[order], 0
    below, up_to = np.searchsorted(low, high, "left"), np.searchsorted(low, high, "right")
    for w, i, j in zip(law.weights[positive].tolist(), below.tolist(), up_to.tolist(), strict=True):
        twice += w * (cumulative[i] + cumulative[j])
    return Fraction(twice, 2 * law.weight_of(positive) * law.weight_of(~positive))


def auc_by_floats(high: Array, low: Array, radius: float) -> Fraction | None:
    """The AUC where no two scores of different classes are within twice the radius; else None."""
    high, low = np.sort(high), np.sort(low)
    if not np.isfinite(radius) or np.isnan(high[-1]) or np.isnan(low[-1]):  # NaN is sorted last
        return None
    below = np.searchsorted(low, high)
    fenced = np.concatenate([[-np.inf], low, [np.inf]])
    if (high - fenced[below] <= 2 * radius).any() or (fenced[below + 1] - high <= 2 * radius).any():
        return None
    return Fraction(int(below.sum(dtype=np.int64)), len(high) * len(low))


def ranks(
    differences: Differences, heads: Sequence[int], law: Law, score: Array, radius: float, positive: NDArray[np.bool_]
) -> IntArray:
    """Integers that order all scores as the exact ones are ordered, wherever two classes meet.

    Scores within twice the radius of a neighbour form a cluster; those that hold both classes are sorted by digits.
    """
    if np.isnan(score).any():  # where floats do not reach, all is sorted by digits
        score, radius = np.zeros(len(score)), np.inf
    order = np.argsort(score)
    starts = np.concatenate([[True], np.diff(score[order]) > 2 * radius])
    cluster = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    of_class = positive[order].astype(np.int64)
    counted = np.add.reduceat(of_class, first)
    lengths = np.diff(np.append(first, len(order)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = first[cluster]
    for k in np.flatnonzero((counted > 0) & (counted < lengths)).tolist():
        members = order[first[k] : first[k] + lengths[k]]
        rank[members] = first[k] + exact_order(differences, heads, [law.triples[i].tolist() for i in members])
    return rank


def exact_order(differences: Differences, heads: Sequence[int], triples: Sequence[Sequence[int]]) -> IntArray:
    """The places 0, 1, ... of triples by their exact scores; equal scores share a place.

    Raises: Undecided where two scores agree to 2^13 bits and are not shown to be equal.
    """
    points: list[Triple] = [(a, b, c) for a, b, c in triples]
    for bits in BITS:
        with ctx.workprec(bits):
            balls = [differences.ball(heads, n, bits) for n in points]
            order = sorted(range(len(points)), key=lambda i: balls[i].mid())
            places, place, is_shown = np.zeros(len(points), dtype=np.int64), 0, True
            for position, (i, j) in enumerate(zip(order, order[1:], strict=False), 1):
                if balls[j] > balls[i]:
                    place = position
                elif not _are_equal(differences, heads, points[i], points[j]):
                    is_shown = False
                    break
                places[j] = place
        if is_shown:
            return places
    raise Undecided(f"heads {list(heads)}: two scores agree to {BITS[-1]} bits")


def _are_equal(differences: Differences, heads: Sequence[int], n: Triple, m: Triple) -> bool:
    """Whether two scores are equal, shown exactly; only heads that matter are compared."""
    if n == m:
        return True
    acting = differences.acting(heads)
    if not acting:
        return True
    if len(acting) > 1 or not differences.model.heads[acting[0]].is_rational:
        return False
    (N, D), (M, C) = differences.fraction(acting[0], n), differences.fraction(acting[0], m)
    return (N * C - M * D).is_zero
