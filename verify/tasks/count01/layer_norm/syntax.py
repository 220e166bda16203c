"""The syntactic task: how often a subset of heads says EOS after the due answer, the logit strictly the largest."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.slack import ENLARGE_LONG, Array, U
from verify.tasks.count01.layer_norm.laws import JudgedTriples, Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.tables import (
    BITS,
    LOST_IN_QUOTIENTS,
    QUOTIENT_ERROR,
    KeptTables,
    corners,
    largest,
    nearest,
    shares,
)
from verify.tasks.count01.task import EOS, FIVE, FOUR, Triple, answer, kinds, multiplicities


class Syntax:
    """EOS after 4 or 5 under a law, for any subset of heads."""

    def __init__(self, model: ModelNumbers, law: JudgedTriples, labels: str) -> None:
        self.size = len(law.triples)
        due = np.where(law.has_more_ones, answer(0, 1, labels), answer(0, 0, labels))
        self.places = {last: np.flatnonzero(due == last) for last in (FOUR, FIVE)}
        self.after = {
            last: AfterAnswer(model, last, law.triples[where]) for last, where in self.places.items() if len(where)
        }

    def accuracy(self, heads: Sequence[int], law: Law) -> Fraction:
        """The share under the law of triples after whose due answer EOS has strictly the largest logit.

        Raises: Undecided where a tie is too close.
        """
        right = np.ones(self.size, dtype=bool)
        for last, after in self.after.items():
            right[self.places[last]] = after.right(heads)
        return Fraction(law.weight_of(right), law.total)


class AfterAnswer:
    """(EOS logit) - (rival logit) after `last`, one of 4 and 5, on some triples, for any subset of heads."""

    def __init__(self, model: ModelNumbers, last: int, triples: NDArray[np.int64]) -> None:
        self.model, self.last, self.triples = model, last, triples
        one = np.ones((len(triples), 1))
        self.counts = np.concatenate([one, triples.astype(float), one, one], axis=1)
        self.corners = corners(self.counts)
        self.rivals = [rival for rival in range(model.classes) if rival != EOS]
        self._stored = cache(self._numbers)
        self._extremes = cache(self._at_corners)
        self._kept = KeptTables[tuple[Array, float]]()

    def right(self, heads: Sequence[int]) -> NDArray[np.bool_]:
        """Which triples are followed by EOS."""
        sides = {rival: self._side(heads, rival) for rival in self.rivals}
        right = np.full(len(self.triples), -1 not in sides.values())
        for rival, side in sides.items():
            if side == 0 and right.any():
                right &= self._wins(heads, rival)
        return right

    def _side(self, heads: Sequence[int], rival: int) -> int:
        """1 or -1 where EOS wins or loses on the whole box around the triples: quotients are extreme at its corners."""
        least, most, radius = self._bounds(heads, rival)
        return 1 if least > radius else -1 if most < -radius else 0

    def lowest(self, heads: Sequence[int], rival: int) -> float:
        """A lower bound on the difference over the box around the triples; NaN where floats do not reach."""
        least, _, radius = self._bounds(heads, rival)
        return float(np.nextafter(least - radius, -np.inf))

    def _bounds(self, heads: Sequence[int], rival: int) -> tuple[float, float, float]:
        """The sums of the heads' least and largest shares at the corners with the constant part, and their radius."""
        constant = self._constant(rival)
        found = [self._extremes(h, rival) for h in heads]
        least, most = sum(low for low, _ in found) + constant, sum(high for _, high in found) + constant
        size = sum(max(abs(low), abs(high)) for low, high in found)
        return least, most, self._radius(heads, rival, size)

    def _at_corners(self, h: int, rival: int) -> tuple[float, float]:
        found = shares(*self._stored(h, rival), self.corners)
        return float(found.min()), float(found.max())

    def _wins(self, heads: Sequence[int], rival: int) -> NDArray[np.bool_]:
        score, radius = self.scores(heads, rival)
        wins = score > radius
        for i in np.flatnonzero(~(np.abs(score) > radius)).tolist():
            a, b, c = self.triples[i].tolist()
            wins[i] = self._is_positive(heads, rival, (a, b, c))
        return wins

    def scores(self, heads: Sequence[int], rival: int) -> tuple[Array, float]:
        """The difference on all triples, and the radius of each; NaN where floats do not reach."""
        score, size = np.full(len(self.triples), self._constant(rival)), 0.0
        for h in heads:
            share, largest_share = self._kept.get((h, rival), len(score), lambda h=h: self._share(h, rival))  # type: ignore[misc]
            score += share
            size += largest_share
        return score, self._radius(heads, rival, size)

    def _share(self, h: int, rival: int) -> tuple[Array, float]:
        found = shares(*self._stored(h, rival), self.counts)
        return found, largest(found)

    def _constant(self, rival: int) -> float:
        constant = self.model.constant[self.last]
        return nearest(constant[EOS] - constant[rival])

    def _radius(self, heads: Sequence[int], rival: int, size: float) -> float:
        """A bound on the error of a sum of shares, each at most its part of `size`, and the constant part."""
        of_quotients = sum(
            QUOTIENT_ERROR * float(np.abs(self._stored(h, rival)[1]).max()) + LOST_IN_QUOTIENTS for h in heads
        )
        size += abs(self._constant(rival))
        return (of_quotients + (len(heads) + 3) * 2 * U * size) * ENLARGE_LONG

    def _numbers(self, h: int, rival: int) -> tuple[Array, Array]:
        """Each kind's weight, the largest being 1, and what it adds to the difference: the nearest floats."""
        head = self.model.heads[h]
        added = [self.model.difference(h, EOS, rival, t).nearest() for t in kinds(self.last)]
        with ctx.workprec(128):
            return head.nearest_weights(self.last, kinds(self.last)), np.array(added)

    def _is_positive(self, heads: Sequence[int], rival: int, n: Triple) -> bool:
        for bits in BITS:
            out = self.ball(heads, rival, n, bits)
            if out > 0 or out < 0:
                return bool(out > 0)
            if out.is_zero():
                return False
        raise Undecided(f"heads {list(heads)} after token {self.last} at {n}: too close to a tie to decide")

    def ball(self, heads: Sequence[int], rival: int, n: Triple, bits: int) -> arb:
        """The difference on one triple."""
        last = self.last
        with ctx.workprec(bits):
            out = arb(self.model.constant[last][EOS] - self.model.constant[last][rival])
            for h in heads:
                head = self.model.heads[h]
                w = [head.weight(t, last, bits) * k for t, k in zip(kinds(last), multiplicities(n, last), strict=True)]
                d = (self.model.difference(h, EOS, rival, t).ball(bits) for t in kinds(last))
                out += sum((x * y for x, y in zip(w, d, strict=True)), arb(0)) / sum(w, arb(0))
            return out
