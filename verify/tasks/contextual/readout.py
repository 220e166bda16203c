"""Which class the readout names over an interval of the decoder's output, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import Format
from verify.arithmetic.slack import INFLATION, Array, gamma
from verify.frame.clock import Deadline

CHUNK = 1 << 20  # pairs compared at once
MOST_PAIRS = 1 << 28  # pairs compared in all, about 20 s; cells beyond stay undecided


@dataclass(frozen=True)
class Comparison:
    """For cells with right class k: a lower bound on the margin over the cell, and whether the cell is surely wrong.

    `wrong` cells lose to, or tie with, one and the same class everywhere.
    """

    margin: Array
    wrong: np.ndarray


class LineReadout:
    """The stored lines W_out, b_out; neighbours decide where they form a staircase, all pairs otherwise.

    Own lines are what the right class has at least, rivals what the others have at most: in real arithmetic the same,
    in a dtype apart by the rounding of a logit, which is a line itself where the output is not negative.
    """

    def __init__(self, W_out: Array, b_out: Array, fmt: Format | None = None) -> None:
        W, b = Ball.exact(W_out), Ball.exact(b_out)
        self.is_real, self.is_finite = fmt is None, True
        self.W, self.b, self.rival_W, self.rival_b = W, b, W, b
        if fmt is not None:
            g = len(W_out)
            slack_W = Ball.exact((fmt.u + gamma(g, fmt.u) * (1 + fmt.u)) * np.abs(W_out) * INFLATION)
            slack_b = Ball.exact((gamma(g, fmt.u) * np.abs(b_out) + 2 * (g + 1) * fmt.tiny) * INFLATION)
            self.W, self.b, self.rival_W, self.rival_b = W - slack_W, b - slack_b, W + slack_W, b + slack_b
            self.largest = fmt.largest / 2 - np.abs(b_out).max()
            self.size = np.abs(W_out).max(axis=1)
        self.is_staircase = len(W_out) == 1 and is_staircase(self.rival_W[0], self.rival_b)

    def pairs(self, cells: int) -> int:
        """How many pairs of lines are compared for so many cells, none where neighbours decide."""
        return 0 if self.is_staircase else cells * len(self.b.mid)

    def compare(
        self, low: Array, high: Array, k: np.ndarray, most_pairs: int = MOST_PAIRS, until: Deadline | None = None
    ) -> Comparison:
        """Margins over boxes low..high (cells, g) of the output with right classes k (cells,).

        Nothing is said where more than `most_pairs` pairs of lines would have to be compared. On a staircase line k is
        above all others wherever it is above its neighbours: the steps beyond them only come later.
        Raises: TimeIsUp.
        """
        if self.is_staircase:
            classes = len(self.b.mid)
            rivals = np.stack([np.where(k > 0, k - 1, k + 1), np.where(k < classes - 1, k + 1, k - 1)], axis=1)
            return self.against(low, high, k, rivals) if classes > 1 else alone(k)
        classes = len(self.b.mid)
        if classes == 1:
            return alone(k)
        if self.pairs(len(k)) > most_pairs:
            return undecided(k)
        step = max(1, CHUNK // classes)
        parts = []
        for i in range(0, len(k), step):
            if until is not None:
                until.check()
            at = slice(i, i + step)
            others = np.arange(classes - 1)[None, :]
            rivals = others + (others >= k[at, None])
            parts.append(self.against(low[at], high[at], k[at], rivals))
        margin = np.concatenate([part.margin for part in parts])
        return Comparison(margin, np.concatenate([part.wrong for part in parts]))

    def against(self, low: Array, high: Array, k: np.ndarray, rivals: np.ndarray) -> Comparison:
        """Compares with given rivals (cells, n) only. Each difference of lines is extreme at the box's corners."""
        least = most = self.b[k][:, None] - self.rival_b[rivals]
        for i in range(len(self.W.mid)):
            slope = self.W[i][k][:, None] - self.rival_W[i][rivals]
            ends = [slope * Ball.exact(end[:, i])[:, None] for end in (low, high)]
            least = least + lesser(ends[0], ends[1])
            most = most - lesser(-ends[0], -ends[1])
        is_known = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
        if not self.is_real:
            is_known &= (low >= 0).all(axis=1) & (high @ self.size < self.largest)
        margin = np.where(is_known, least.lower.min(axis=1), -np.inf)
        is_lost = (most.upper < 0) | ((most.mid <= 0) & (most.rad == 0))  # a tie is lost too
        return Comparison(np.where(np.isnan(margin), -np.inf, margin), self.is_real & is_known & is_lost.any(axis=1))


def lesser(x: Ball, y: Ball) -> Ball:
    """A ball around the smaller of two numbers: the one with the smaller midpoint, as wide as both need."""
    mid = np.minimum(x.mid, y.mid)
    return Ball(mid, np.maximum(x.rad, y.rad))


def alone(k: np.ndarray) -> Comparison:
    """A single class is always named; there is nothing to compare with."""
    return Comparison(np.full(len(k), np.inf), np.zeros(len(k), dtype=bool))


def undecided(k: np.ndarray) -> Comparison:
    """Cells of which nothing is said."""
    return Comparison(np.full(len(k), -np.inf), np.zeros(len(k), dtype=bool))


def is_staircase(a: Ball, b: Ball) -> bool:
    """Whether each line a x + b is the highest somewhere, in order: slopes strictly monotone and breakpoints too.

    >>> slopes = Ball.exact(np.array([0.0, 1.0, 2.0]))
    >>> is_staircase(slopes, Ball.exact(np.array([0.0, -1.0, -3.0])))
    True
    >>> is_staircase(slopes, Ball.exact(np.array([0.0, -1.0, -2.0])))
    False
    """
    rise = a[1:] - a[:-1]
    if not (np.all(rise.lower > 0) or np.all(rise.upper < 0)):
        return False
    breaks = (b[:-1] - b[1:]) / rise
    later = breaks[1:] - breaks[:-1]
    return bool(np.all(later.lower > 0) if np.all(rise.lower > 0) else np.all(later.upper < 0))
