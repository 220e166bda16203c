"""Exact confusion matrices: what a model answers at each true count, under a law of sequences.

Regions of multisets are divided until one class wins throughout each of them; a region that cannot be divided is one
input up to exact symmetry, and exact arithmetic answers for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from verify.arithmetic.slack import ENLARGE
from verify.frame.clock import Deadline
from verify.frame.decide import Effort
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.laws import CellLaw, law_named
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.regions import Regions, roots
from verify.tasks.histogram.relaxation import LogitLines, LogitPairs
from verify.tasks.histogram.stored import Array, StoredModel
from verify.tasks.histogram.vertices import decide_cells

Table = list[list[Fraction]]


@dataclass(frozen=True)
class Confusion:
    """Probabilities of (true count, answered class), of ties, and of what the time did not suffice for.

    Shapes: answered (L, classes), tied and undecided (L,); everything sums to 1.
    """

    law: str
    first_count: int
    answered: Table
    tied: list[Fraction]
    undecided: list[Fraction]

    @property
    def accuracy(self) -> tuple[Fraction, Fraction]:
        """The probability of a right answer: what it is at least and at most, equal where all is decided."""
        right = sum((row[k - self.first_count + 1] for k, row in enumerate(self.answered)), Fraction(0))
        return right, right + sum(self.undecided, Fraction(0))

    def to_dict(self) -> dict[str, object]:
        """Keys of a certificate, with exact fractions as strings."""
        found: dict[str, object] = {
            "law": self.law,
            "accuracy": [str(x) for x in self.accuracy],
            "confusion": [[str(x) for x in row] for row in self.answered],
            "ties": [str(x) for x in self.tied],
        }
        return found | ({"undecided": [str(x) for x in self.undecided]} if any(self.undecided) else {})


def confusion(stored: StoredModel, law: str = "uniform", effort: Effort | None = None) -> Confusion:
    """The exact confusion matrix of a model in real arithmetic, as far as the budget reaches.

    Claim: A, Fig. 5, from all inputs in place of samples.
    Units: probabilities of a (sequence, position) pair, the position uniform.
    Raises: BadInput for a law that has no closed form here.

    >>> from constructions.relation_counting import dot
    >>> confusion(StoredModel.of(dot(T=4, L=3), None), "partitions").accuracy
    (Fraction(1, 1), Fraction(1, 1))
    """
    effort = effort or Effort()
    reduction, exact = Reduction(stored), ExactForward(stored)
    weighing = law_named(law, stored, reduction.rows)
    zero = [Fraction(0)] * stored.L
    found = Confusion(law, stored.first_count, [[Fraction(0)] * stored.classes for _ in zero], zero[:], zero[:])
    deadline, cells = effort.deadline(), decide_cells(reduction)
    for index, row in enumerate(reduction.rows):
        for t in range(stored.T):
            open_counts = cells.open.get((index, t), [])
            for k in range(1, stored.L + 1):
                if k not in open_counts:
                    found.answered[k - 1][stored.class_of(k)] += weighing.of_cell(row, k)
            if open_counts:
                QueryAnswers(reduction, exact, row, t, open_counts, weighing, found).run(deadline)
            effort.progress((index + (t + 1) / stored.T) / len(reduction.rows))
    return found


@dataclass
class QueryAnswers:
    """The answers at one query token t in one row of positions, added up in `found`."""

    reduction: Reduction
    exact: ExactForward
    row: Row
    t: int
    counts: list[int]
    law: CellLaw
    found: Confusion
    pending: list[Regions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = RegionSearch(self.reduction, self.exact, self.row, self.t, self.counts)
        self.relaxation, self.stored = self.search.relaxation, self.search.stored

    def run(self, deadline: Deadline) -> None:
        """Divides regions, the newest first, until all are decided or the time is up."""
        self.pending = [roots(self.stored, self.counts, self.search.tree, self.search.G)]
        while self.pending:
            regions = self.pending.pop()
            for start in range(0, len(regions), self.search.batch_size):
                if deadline.is_up():
                    self._leave(regions[start : len(regions)])
                    break
                self._decide(regions[start : start + self.search.batch_size])

    def _leave(self, regions: Regions) -> None:
        """Counts regions as undecided."""
        for k, part in self._by_count(regions):
            self.found.undecided[k - 1] += self._probability(part)

    def _by_count(self, regions: Regions) -> Iterator[tuple[int, Regions]]:
        for k in np.unique(regions.k):
            yield int(k), regions[regions.k == k]

    def _probability(self, regions: Regions) -> Fraction:
        return self.law.of_regions(self.search.counting, regions)

    def _decide(self, regions: Regions) -> None:
        lower, upper = self.relaxation.form_ranges(regions)
        winner = self._guess(lower, upper)
        wins, score = self._wins(regions, winner, LogitLines.of(lower, upper))
        for c in np.unique(winner[wins]):
            for k, part in self._by_count(regions[wins & (winner == c)]):
                self.found.answered[k - 1][int(c)] += self._probability(part)
        if not wins.all():
            left = ~wins
            self.pending += self.search.divided(regions[left], score[left], ~self.search.uniform, self._answer_each)

    def _guess(self, lower: Array, upper: Array) -> np.ndarray:
        """The class that wins in the middle of each region; any guess is sound."""
        middle = np.maximum(lower, 0) / 2 + np.maximum(upper, 0) / 2
        logits = middle[:, :-1] @ self.stored.W_2 + middle[:, -1:] * self.stored.b_2
        result: np.ndarray = np.nan_to_num(logits, nan=-np.inf).argmax(1)
        return result

    def _wins(self, regions: Regions, winner: np.ndarray, lines: LogitLines) -> tuple[np.ndarray, Array]:
        """Whether the guessed class is strictly highest throughout each region (B,), and what splitting gains (B, Q).

        The error of a difference is linear in |dW| and |db|, so that of two classes is at most the sum of theirs from
        the right class, for which it is known.
        """
        B, C = len(regions), self.stored.classes
        i, j = np.nonzero(np.arange(C) != winner[:, None])
        readout, b_2, w = self.stored.W_2.T, self.stored.b_2, winner[i]
        of = LogitPairs(readout[w] - readout[j], b_2[w] - b_2[j])
        least, spread = self.relaxation.least_differences(regions, i, of, lines)
        errors = self.relaxation.errors(regions.k)
        bounds = np.full((B, C), np.inf)
        bounds[i, j] = least - (errors[i, j] + errors[i, w]) * ENLARGE
        wins = np.asarray((bounds > 0).all(1))
        score = np.zeros((B, spread.shape[1]))
        np.maximum.at(score, i, np.where(np.isfinite(spread) & (bounds[i, j] <= 0)[:, None], spread, 0.0))
        return wins, score

    def _answer_each(self, points: Regions) -> None:
        for i in range(len(points)):
            self._answer_exactly(points[i : i + 1])

    def _answer_exactly(self, point: Regions) -> None:
        candidate = self.search.first_input(point, 0)
        winners = self.exact.judge(candidate.tokens, candidate.position).winners
        k, probability = int(point.k[0]), self._probability(point)
        if len(winners) > 1:
            self.found.tied[k - 1] += probability
        else:
            self.found.answered[k - 1][winners[0] - self.stored.first_count] += probability
