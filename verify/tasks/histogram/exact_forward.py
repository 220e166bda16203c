"""The stored model evaluated exactly on one sequence: the judge of last resort, and of counterexamples.

Written as the plain forward pass, independent of the reductions. With softmax everything is multiplied by
the normalisation D > 0, which leaves the argmax unchanged (ReLU is positively homogeneous).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
from flint import ctx, fmpq, fmpz, fmpz_mat

from verify.arithmetic.exact_reals import (
    ONE,
    Basis,
    Combination,
    float_above,
    float_below,
    rational,
    square_root_terms,
    total,
)
from verify.arithmetic.margins import own_and_rival
from verify.tasks.histogram.stored import Array, StoredModel


@dataclass(frozen=True)
class DyadicMatrix:
    """integers * 2^-shift, exactly."""

    integers: fmpz_mat
    shift: int

    @classmethod
    def of(cls, x: Array) -> DyadicMatrix:
        """The exact value of a finite float64 matrix."""
        mantissas, exponents = np.frexp(x)
        integers = (mantissas * 2.0**53).astype(np.int64)
        exponents = exponents.astype(np.int64) - 53
        least = int(exponents[integers != 0].min(initial=0)) if integers.any() else 0
        rows, columns = x.shape
        lifts = np.where(integers != 0, exponents - least, 0)
        entries = [m << e for m, e in zip(integers.ravel().tolist(), lifts.ravel().tolist(), strict=True)]
        return cls(fmpz_mat(rows, columns, entries), -least)

    def __matmul__(self, other: DyadicMatrix) -> DyadicMatrix:
        return DyadicMatrix(self.integers * other.integers, self.shift + other.shift)

    @property
    def T(self) -> DyadicMatrix:
        return DyadicMatrix(self.integers.transpose(), self.shift)

    def entry(self, row: int, column: int) -> fmpq:
        value = self.integers[row, column]
        return fmpq(value, fmpz(1) << self.shift) if self.shift >= 0 else fmpq(value << -self.shift, 1)


@dataclass(frozen=True)
class Judgement:
    """Whether the right class wins strictly at one position, which counts have the largest logit, and by how much."""

    is_right: bool
    winners: tuple[int, ...]
    margin: tuple[float, float]
    margin_exact: str | None


class ExactForward:
    """Exact arithmetic on a stored model; the token products are made once and only when asked for."""

    def __init__(self, stored: StoredModel) -> None:
        self.stored = stored
        is_square = isqrt(stored.d) ** 2 == stored.d
        self.basis = Basis(stored.d, exponents_over_root=not stored.is_linear and not is_square)

    @cached_property
    def E(self) -> DyadicMatrix:
        """The embeddings; the BOS embedding is the last row where there is one."""
        stored = self.stored
        rows = stored.E if stored.e_BOS is None else np.vstack([stored.E, stored.e_BOS])
        return DyadicMatrix.of(rows)

    @cached_property
    def features(self) -> DyadicMatrix:
        """<e_s, W_1> for every token."""
        return self.E @ DyadicMatrix.of(self.stored.W_1)

    @cached_property
    def scores(self) -> DyadicMatrix:
        """e_t W_Q W_K^T e_s for every query and key, before the division by sqrt(d)."""
        assert self.stored.W_Q is not None and self.stored.W_K is not None
        queries = self.E @ DyadicMatrix.of(self.stored.W_Q)
        keys = self.E @ DyadicMatrix.of(self.stored.W_K)
        return queries @ keys.T

    @cached_property
    def mixing_matrix(self) -> DyadicMatrix:
        assert self.stored.A is not None
        return DyadicMatrix.of(self.stored.A)

    def mixing_weight(self, tokens: Sequence[int], position: int, m: int) -> Combination:
        """The (unnormalised) weight with which the position attends to the token at m."""
        if self.stored.is_linear:
            score, root = self.mixing_matrix.entry(position, m), 1
        else:
            score, root = self.scores.entry(tokens[position], tokens[m]), isqrt(self.stored.d)
        if self.stored.is_softmax:
            exponent = score if self.basis.exponents_over_root else score / root
            return Combination(self.basis, {exponent: fmpq(1)})
        if self.stored.is_linear:
            return Combination(self.basis, {ONE: score})
        return Combination(self.basis, square_root_terms(self.stored.d, score))

    def logits(self, tokens: Sequence[int], position: int) -> list[Combination]:
        """The logits at one position, times D where there is a softmax."""
        stored = self.stored
        context = list(tokens) + ([stored.T] if stored.e_BOS is not None else [])
        pooled: dict[int, Combination] = {}  # token -> its total weight
        for m, token in enumerate(context):
            weight = self.mixing_weight(context, position, m)
            pooled[token] = pooled[token] + weight if token in pooled else weight
        one = Combination(self.basis, {ONE: fmpq(1)})
        D = one
        if stored.is_softmax:
            D = total(pooled.values())
        hidden = []
        for i in range(stored.p):
            own = D.scaled(self.features.entry(tokens[position], i) + rational(stored.b_1[i]))
            z = total([own, *(weight.scaled(self.features.entry(token, i)) for token, weight in pooled.items())])
            if z.sign() > 0:
                hidden.append((i, z))
        logits = []
        for c in range(stored.classes):
            bias = D.scaled(rational(stored.b_2[c]))
            logits.append(total([bias, *(z.scaled(rational(stored.W_2[i, c])) for i, z in hidden)]))
        return logits

    def judge(self, tokens: Sequence[int], position: int) -> Judgement:
        """Decides one position of one sequence: right means strictly the largest logit."""
        stored = self.stored
        k = list(tokens).count(tokens[position])
        logits = self.logits(tokens, position)
        right = stored.class_of(k)
        winners: list[int] = []
        for c, logit in enumerate(logits):
            order = 1 if not winners else (logit - logits[winners[0]]).sign()
            if order > 0:
                winners = [c]
            elif order == 0:
                winners.append(c)
        margin = (float("inf"), float("inf"))
        exact = None
        if stored.classes > 1:
            own, rival = own_and_rival(logits, right)
            difference = own - rival
            if stored.is_softmax:
                margin = self._over_normalisation(difference, tokens, position)
                exact = "0" if difference.is_zero else None
            else:
                margin, exact = difference.enclosure(), str(difference)
            sign = difference.sign()
            if sign >= 0:
                margin = (max(margin[0], 0.0), margin[1])
            if sign <= 0:
                margin = (margin[0], min(margin[1], 0.0))
            if sign == 0:
                margin = (0.0, 0.0)
        counts = tuple(c + stored.first_count for c in winners)
        return Judgement(winners == [right], counts, margin, exact)

    def _over_normalisation(self, difference: Combination, tokens: Sequence[int], position: int) -> tuple[float, float]:
        context = list(tokens) + ([self.stored.T] if self.stored.e_BOS is not None else [])
        D = total(self.mixing_weight(context, position, m) for m in range(len(context)))
        precision = 256
        while True:
            with ctx.workprec(precision):
                ratio = difference.ball(precision) / D.ball(precision)
                if difference.is_zero or (ratio.is_finite() and ratio.rel_accuracy_bits() >= 60):
                    return float_below(ratio), float_above(ratio)
            precision *= 2
