"""The syntactic task: how often a subset of heads says EOS after the due answer, the logit strictly the largest."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from verify.arithmetic.balls import Array
from verify.arithmetic.exact_reals import Undecided
from verify.count01.heads.accuracy import Judged
from verify.count01.heads.laws import Law
from verify.count01.heads.numbers import ModelNumbers
from verify.count01.heads.tables import MOST_BITS, QUOTIENT_ERROR, SMALLEST_NORMALISER, U, largest
from verify.count01.task import EOS, FIVE, FOUR, Triple, answer, kinds, multiplicities


class Syntax:
    """EOS after 4 or 5 under a law, for any subset of heads."""

    def __init__(self, model: ModelNumbers, law: Judged, labels: str) -> None:
        self.model, self.law = model, law
        self.due = np.where(law.has_more_ones, answer(0, 1, labels), answer(0, 0, labels))

    def accuracy(self, heads: Sequence[int], law: Law) -> Fraction:
        """The share under the law of triples after whose due answer EOS has strictly the largest logit.

        Raises: Undecided where a tie is too close.
        """
        right = np.ones(len(self.law.triples), dtype=bool)
        for last in (FOUR, FIVE):
            where = np.flatnonzero(self.due == last)
            right[where] = self.right_after(heads, last, where)
        return Fraction(law.weight_of(right), law.total)

    def right_after(self, heads: Sequence[int], last: int, where: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these triples are followed by EOS after `last`."""
        right = np.ones(len(where), dtype=bool)
        for rival in range(self.model.classes):
            if rival == EOS or not right.any():
                continue
            sides = self._sides(heads, last, rival)
            right &= sides > 0 if sides else self._wins(heads, last, rival, where)
        return right

    def _sides(self, heads: Sequence[int], last: int, rival: int) -> int:
        """1 or -1 where EOS wins or loses on the whole box around the law: quotients are extreme at its corners."""
        scores, radius, constant = self._at_corners(heads, last, rival)
        least = sum(float(s.min()) for s in scores) + constant
        most = sum(float(s.max()) for s in scores) + constant
        return 1 if least > radius else -1 if most < -radius else 0

    def lowest(self, heads: Sequence[int], last: int, rival: int) -> float:
        """A lower bound on (EOS logit) - (rival logit) over the box around the law; NaN where floats do not reach."""
        scores, radius, constant = self._at_corners(heads, last, rival)
        return float(np.nextafter(sum(float(s.min()) for s in scores) + constant - radius, -np.inf))

    def _at_corners(self, heads: Sequence[int], last: int, rival: int) -> tuple[list[Array], float, float]:
        low, high = self.law.triples.min(axis=0), self.law.triples.max(axis=0)
        return self.scores(heads, last, rival, np.array(list(product(*zip(low, high, strict=True)))))

    def _wins(self, heads: Sequence[int], last: int, rival: int, where: NDArray[np.int64]) -> NDArray[np.bool_]:
        triples = self.law.triples[where]
        scores, radius, constant = self.scores(heads, last, rival, triples)
        score = sum(scores, np.zeros(len(triples))) + constant
        wins = score > radius
        for i in np.flatnonzero(~(np.abs(score) > radius)).tolist():
            a, b, c = triples[i].tolist()
            wins[i] = self._is_positive(heads, last, rival, (a, b, c))
        return wins

    def scores(
        self, heads: Sequence[int], last: int, rival: int, triples: NDArray[np.int64]
    ) -> tuple[list[Array], float, float]:
        """Each head's share of (EOS logit) - (rival logit), the radius of their sum, and the constant part."""
        n = np.asarray(triples, dtype=float)
        one = np.ones((len(n), 1))
        counts = np.concatenate([one, n, one, one], axis=1)
        exact = self.model.constant[last][EOS] - self.model.constant[last][rival]
        constant, scores, radius = float(exact), [], 0.0
        for h in heads:
            with ctx.workprec(128):
                s = [self.model.heads[h].scores[last][t].ball(256) for t in kinds(last)]
                top = max(s, key=lambda x: float(x.mid()))
                w = np.array([float((x - top).exp().mid()) for x in s])
                d = np.array([float(self.model.difference(h, EOS, rival, t).ball(256).mid()) for t in kinds(last)])
            with np.errstate(all="ignore"):
                D = counts @ w
                D = np.where(D > SMALLEST_NORMALISER, D, np.nan)
                scores.append(counts @ (w * d) / D)
            radius += QUOTIENT_ERROR * float(np.abs(d).max())
        size = sum(largest(s) for s in scores) + abs(constant)
        return scores, (radius + (len(scores) + 3) * 2 * U * size) * (1 + 2.0**-40), constant

    def _is_positive(self, heads: Sequence[int], last: int, rival: int, n: Triple) -> bool:
        bits = 128
        while bits <= MOST_BITS:
            out = self.ball(heads, last, rival, n, bits)
            if out > 0 or out < 0:
                return bool(out > 0)
            if out.is_zero():
                return False
            bits *= 4
        raise Undecided(f"heads {list(heads)} after token {last} at {n}: too close to a tie to decide")

    def ball(self, heads: Sequence[int], last: int, rival: int, n: Triple, bits: int) -> arb:
        """(EOS logit) - (rival logit) of the heads on one triple."""
        with ctx.workprec(bits):
            out = arb(self.model.constant[last][EOS] - self.model.constant[last][rival])
            for h in heads:
                head = self.model.heads[h]
                w = [head.weight(t, last, bits) * k for t, k in zip(kinds(last), multiplicities(n, last), strict=True)]
                d = (self.model.difference(h, EOS, rival, t).ball(bits) for t in kinds(last))
                out += sum((x * y for x, y in zip(w, d, strict=True)), arb(0)) / sum(w, arb(0))
            return out
