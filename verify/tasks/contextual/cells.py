"""Reading "real": all strings of a domain as cells (prompt r, number of regions, count k), each decided at once.

In a cell the bias tokens, the delimiters and the k target ones are fixed, and up to f other digits are free. The
decoder's output is a weighted mean: fixed part F/G, and free digits whose total weight is at most phi. So it is off
F/G by at most phi/(G + phi) times the distance to the free digits' values. A cell whose interval lies on line k is
right for all of its strings; a cell whose interval lies on another line is wrong for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from constructions.contextual_counting_arrays import BOS, ONE, ZERO
from verify.arithmetic.balls import TINY, Ball
from verify.arithmetic.slack import LEAST, Array, U
from verify.arithmetic.softmax import exponentials_between
from verify.frame.clock import Deadline
from verify.tasks.contextual.readout import MOST_PAIRS, LineReadout
from verify.tasks.contextual.stream import (
    Encoded,
    Kinds,
    Positions,
    StoredContextual,
    StreamReader,
    encode,
    pieces,
    see,
)
from verify.tasks.contextual.task import StringDomain


@dataclass(frozen=True)
class PromptCells:
    """Counts k = 0, 1, ... of prompt r (from 1) in strings with `fewest`..`most` regions, decided.

    Shapes: margin, wrong (counts,): a lower bound on the margin where it is positive, and whether every string is
        wrong.
    """

    r: int
    fewest: int
    most: int
    margin: Array
    wrong: np.ndarray


@dataclass(frozen=True)
class Weighed:
    """Weights and weighted values of one prompt's positions.

    Shapes: weights (K,), values and products (K, g); is_one (K,): which weights are known to be 1 exactly.
    """

    weights: Ball
    values: Ball
    products: Ball
    is_one: np.ndarray


class PromptProof(ABC):
    """The cells of one model on one domain; how weights and outputs are bounded is up to the reading."""

    def __init__(
        self, stored: StoredContextual, domain: StringDomain, readout: LineReadout, until: Deadline | None = None
    ) -> None:
        self.stored, self.domain, self.readout = stored, domain, readout
        self.until = until or Deadline.never()
        self.kinds = Kinds.of(domain.N, domain.most, stored.has_bos)
        self.is_digit = (self.kinds.tokens == ZERO) | (self.kinds.tokens == ONE)

    @cached_property
    def reader(self) -> StreamReader:
        """Raises: TimeIsUp."""
        return StreamReader.of(self.stored, self.until)

    @cached_property
    def seen(self) -> Positions:
        """All kinds, some at a time.

        Raises: TimeIsUp.
        """
        of = pieces(self.stored, self.kinds, self.until)
        return Positions.joined([self.see(kinds, encode(self.stored, kinds)) for kinds in of])

    @abstractmethod
    def see(self, kinds: Kinds, encoded: Encoded) -> Positions:
        """What the decoder sees of some kinds."""

    def decide(self) -> Iterator[PromptCells]:
        """All cells, several numbers of regions together where that suffices, until too many lines are compared.

        Raises: TimeIsUp.
        """
        pairs = MOST_PAIRS
        for r in range(1, self.stored.R + 1):
            self.until.check()
            weighed = self.weigh(r - 1)
            for low, high in ((self.domain.fewest, r - 1), (max(r, self.domain.fewest), self.domain.most)):
                high = min(high, self.domain.most)
                if low > high:
                    continue
                together = self.cells(weighed, r, low, high, pairs)
                pairs -= self.readout.pairs(len(together.margin))
                if low == high or (together.margin > 0).all():
                    yield together
                    continue
                for M in range(low, high + 1):
                    self.until.check()
                    alone = self.cells(weighed, r, M, M, pairs)
                    pairs -= self.readout.pairs(len(alone.margin))
                    yield alone

    @abstractmethod
    def weigh(self, prompt: int) -> Weighed:
        """Weights exp(score - largest score) of one prompt."""

    @abstractmethod
    def outputs(self, weighed: Weighed, r: int, fewest: int, most: int, k: np.ndarray) -> tuple[Array, Array]:
        """Bounds (counts, g) on the decoder's output in each cell."""

    def cells(self, weighed: Weighed, r: int, fewest: int, most: int, pairs: int = MOST_PAIRS) -> PromptCells:
        """The cells of prompt r in strings with fewest..most regions, either all below r or none.

        At most so many pairs of the readout's lines are compared.
        """
        digits = self.domain.N - 2 * fewest
        fixed_zeros = self.domain.zeros or 0
        k = np.arange(digits - fixed_zeros + 1 if r <= fewest else 1)
        low, high = self.outputs(weighed, r, fewest, most, k)
        compared = self.readout.compare(low, high, k, pairs, self.until)
        return PromptCells(r, fewest, most, compared.margin, compared.wrong)

    def digits_of(self, r: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Which kinds are the ones of region r, and which are the other digits of strings with `most` regions."""
        is_target = (self.kinds.tokens == ONE) & (self.kinds.m == 2 * r - 1)
        return is_target, self.is_digit & (self.kinds.m <= 2 * most) & ~is_target

    def mean(self, weighed: Weighed, r: int, fewest: int, most: int, k: np.ndarray) -> tuple[Array, Array]:
        """Bounds (counts, g) on the weighted mean of the values in each cell, for exact sums and products."""
        tokens, m = self.kinds.tokens, self.kinds.m
        is_target, is_free = self.digits_of(r, most)
        G, F = self.delimiters(weighed, fewest, most)
        if self.domain.zeros is not None:
            zeros = is_free & (tokens == ZERO)
            number = Ball.exact(float(self.domain.zeros))
            if self.domain.zeros:
                G, F = G + number * weighed.weights[zeros].hull(0), F + number * weighed.products[zeros].hull(0)
            is_free &= tokens != ZERO
        count = Ball.exact(k.astype(np.float64))
        if is_target.any():
            G, F = count * weighed.weights[is_target] + G, count[:, None] * weighed.products[is_target] + F
        else:
            G, F = count * Ball.exact(0.0) + G, count[:, None] * Ball.exact(0.0) + F
        room = self.domain.N - 2 * fewest - (self.domain.zeros or 0) - k
        low, high = spread(F / G[:, None], G, room, weighed, is_free)
        # whatever the weights are, the output is a mean of the values of positions that can be there
        values = weighed.values[((m <= 2 * most) | (tokens == BOS)) & ~((tokens == ZERO) & (self.domain.zeros == 0))]
        return np.fmax(low, values.lower.min(axis=0)), np.fmin(high, values.upper.max(axis=0))

    def delimiters(self, weighed: Weighed, fewest: int, most: int) -> tuple[Ball, Ball]:
        """Sums of the weights () and products (g,) of BOS and the delimiters, around fewest..most regions."""
        tokens, m = self.kinds.tokens, self.kinds.m
        fixed = ~self.is_digit
        regions = np.arange(fewest, most + 1)[:, None]
        chosen = Ball.exact((fixed & ((m <= 2 * regions) | (tokens == BOS))).astype(np.float64))
        return (chosen @ weighed.weights).hull(0), (chosen @ weighed.products).hull(0)


class CellProof(PromptProof):
    """The cells in real arithmetic."""

    def __init__(self, stored: StoredContextual, domain: StringDomain, until: Deadline | None = None) -> None:
        super().__init__(stored, domain, LineReadout(stored.W["W_out"], stored.W["b_out"]), until)

    def see(self, kinds: Kinds, encoded: Encoded) -> Positions:
        return see(self.stored, encoded, self.reader)

    def weigh(self, prompt: int) -> Weighed:
        return weighed(self.seen.scores[:, prompt], self.seen.values)

    def outputs(self, weighed: Weighed, r: int, fewest: int, most: int, k: np.ndarray) -> tuple[Array, Array]:
        return self.mean(weighed, r, fewest, most, k)


def weighed(scores: Ball, values: Ball) -> Weighed:
    """The weights (K,) of scores (K,), up to one factor, and the weighted values."""
    shifted = scores - Ball.exact(np.where(np.isfinite(scores.rad), scores.mid, -np.inf).max())
    low, high = exponentials_between(shifted.lower, shifted.upper)
    weights = Ball.between(np.maximum(low, 0.0), high)
    return Weighed(weights, values, weights[:, None] * values, np.zeros(len(weights.mid), dtype=bool))


def spread(mean: Ball, G: Ball, room: np.ndarray, weighed: Weighed, is_free: np.ndarray) -> tuple[Array, Array]:
    """The mean of the fixed part, moved towards the values of up to `room` free digits.

    (1 - x) mean + x value lies between mean and value, at most the largest x away from the mean.
    """
    low, high = mean.lower, mean.upper
    if not is_free.any():
        return low, high
    values, heaviest = weighed.values[is_free], float(weighed.weights[is_free].upper.max())
    phi = Ball.exact(room.astype(np.float64) * heaviest).upper
    share = (phi / (np.maximum(G.lower, TINY) + phi) * (1 + 8 * U) + LEAST)[:, None]
    share = np.where(G.lower[:, None] > TINY, share, np.nan)
    down = np.maximum(low - values.lower.min(axis=0), 0) * share * (1 + 8 * U) + LEAST
    up = np.maximum(values.upper.max(axis=0) - high, 0) * share * (1 + 8 * U) + LEAST
    return np.nextafter(low - down, -np.inf), np.nextafter(high + up, np.inf)
