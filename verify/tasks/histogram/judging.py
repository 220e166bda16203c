"""Right, wrong or open: a batch of sets of inputs judged by lower bounds on their logit differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verify.arithmetic.slack import ENLARGE, LEAST, U, gamma, quotient_below
from verify.tasks.histogram.relaxation import LogitPairs, Relaxation
from verify.tasks.histogram.stored import Array, StoredModel

UNDERFLOW = 2.0**-900  # more than all products of a logit can lose, where none of them is infinite
Least = Callable[[np.ndarray, LogitPairs], tuple[Array, Array]]


@dataclass(frozen=True)
class JudgedSets:
    """A batch of B sets: those that are right throughout, wrong throughout, or open.

    Shapes: bounds (B, C) on each difference, infinite where it is not asked for; right and wrong (B,); spread (B, Q)
    and dW (B, p) those of the worst difference.
    """

    k: np.ndarray
    bounds: Array
    right: np.ndarray
    wrong: np.ndarray
    spread: Array
    dW: Array

    @property
    def is_open(self) -> np.ndarray:
        result: np.ndarray = ~(self.right | self.wrong)
        return result

    def margins(self, D_upper: Array) -> dict[int, float]:
        """The smallest margin of each count of which some set is right."""
        smallest = quotient_below(self.bounds.min(1, initial=np.inf), D_upper)  # asked for what is right only
        counts = np.unique(self.k[self.right])
        return {int(count): float(smallest[self.right & (self.k == count)].min()) for count in counts}

    def rivals(self, margins: dict[int, float], D_upper: Array) -> np.ndarray:
        """The classes (B, C) that do not lose by more than the smallest margin so far; no part has a smaller one."""
        smallest = np.array([margins.get(int(count), np.inf) for count in self.k])[:, None]
        with np.errstate(invalid="ignore"):
            is_far = (self.bounds > 0) & (quotient_below(self.bounds, D_upper[:, None]) >= smallest)
        return ~is_far


def smaller(margins: dict[int, float], others: dict[int, float]) -> dict[int, float]:
    """The smaller margin of each count that either has."""
    return margins | {k: min(margin, margins.get(k, np.inf)) for k, margin in others.items()}


def of_ranges(stored: StoredModel, k: np.ndarray, lower: Array, upper: Array) -> tuple[np.ndarray, np.ndarray, Array]:
    """Right and wrong throughout (B,), and the least margin (B,), by the ranges of every linear form alone (B, r)."""
    low, high = np.maximum(lower[:, :-1], 0), np.maximum(upper[:, :-1], 0)
    # three halves may underflow: two of the middle and one of the reach
    middle, reach = low / 2 + high / 2, (high - low) / 2 * ENLARGE + np.where(high > 0, 2 * LEAST, 0.0)
    D, D_reach = lower[:, -1] / 2 + upper[:, -1] / 2, (upper[:, -1] - lower[:, -1]) / 2 * ENLARGE + 2 * LEAST
    right, wrong, margin = np.zeros(len(k), dtype=bool), np.zeros(len(k), dtype=bool), np.full(len(k), np.inf)
    for count in np.unique(k):
        chosen, c = np.flatnonzero(k == count), stored.class_of(int(count))
        dW, db = stored.W_2[:, [c]] - stored.W_2, stored.b_2[c] - stored.b_2
        size = np.abs(dW)
        difference = middle[chosen] @ dW + D[chosen, None] * db
        terms = middle[chosen] @ size + np.abs(D[chosen, None]) * np.abs(db)
        error = (reach[chosen] @ size + D_reach[chosen, None] * np.abs(db)) * (1 + gamma(stored.p + 9))
        error = error + gamma(2 * stored.p + 20) * terms + UNDERFLOW
        difference[:, c], error[:, c] = np.inf, 0.0
        least = (difference - error) * (1 - 4 * U)
        right[chosen] = (least > 0).all(1)
        margin[chosen] = quotient_below(least.min(1), upper[chosen, -1])
        difference[:, c] = np.inf
        wrong[chosen] = (difference + error <= 0).any(1)
    return right, wrong, margin


def judge(relaxation: Relaxation, k: np.ndarray, rivals: np.ndarray, least: Least) -> JudgedSets:
    """Judges sets with own counts k (B,) against their rivals (B, C).

    `least` gives lower bounds (P,), without rounding errors, and spreads (P, Q) for pairs of a set and a difference.
    """
    errors = relaxation.errors(k)
    i, j = np.nonzero(rivals)
    of = relaxation.differences(k[i], j)
    found, spreads = least(i, of)
    bounds = np.full(rivals.shape, np.inf)
    bounds[i, j] = found - errors[i, j]
    every = np.arange(len(k))
    worst = bounds.argmin(1)  # NaN counts as the minimum
    right = bounds[every, worst] > 0
    pair = np.zeros(rivals.shape, dtype=np.intp)
    pair[i, j] = np.arange(len(i))
    left = np.flatnonzero(~right)
    pairs = pair[left, worst[left]]
    highest, _ = least(left, -of[pairs])
    wrong = np.zeros(len(k), dtype=bool)
    wrong[left] = -highest + errors[left, worst[left]] <= 0
    spread, dW = np.zeros((len(k), spreads.shape[1])), np.zeros((len(k), of.dW.shape[1]))
    spread[left], dW[left] = spreads[pairs], of.dW[pairs]
    return JudgedSets(k, bounds, right, wrong, spread, dW)
