"""The tables of a model whose every operation is rounded: what any order of evaluation can make of them.

The rounding error of everything up to the pre-activations is bounded by sums over slots, as the pre-activations
themselves are sums over slots. So it fits into the radii of the same tables: a weight's error goes to the ball of
that weight, and the error of summing and reading goes to the balls of the features <e_s, W_1>. What the exact
tables prove by their vertices, these prove for every computed number, cell by cell.

The second way to a proof is exactness: where all terms of a sum are multiples of a unit and their absolute values
sum to at most 2^p units, every partial sum is representable, and there is no error in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic import softmax
from verify.arithmetic.any_order import (
    NO_UNIT,
    RoundedArithmetic,
    absolute_product,
    is_power_of_two,
    times,
    unit_exponent,
)
from verify.arithmetic.balls import Ball, ends, joined, point, reciprocal_sqrt
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import FAINT, INFLATION, OF_FEW, Array, U
from verify.arithmetic.softmax import partial_sums
from verify.tasks.histogram.reduction import (
    ReductionTables,
    Row,
    attending_row,
    attending_tables,
    linear_tables,
    mixing_weights,
    position_classes,
    row_of,
    tables_of_terms,
    terms_of_features,
)
from verify.tasks.histogram.stored import StoredModel


def divided_by_root(at: RoundedArithmetic, scores: Ball, d: int) -> Ball:
    """scores / sqrt(d), as a division by the rounded root or a product with a rounded reciprocal."""
    scale = reciprocal_sqrt(d)
    if not scale.rad:  # a power of two
        scaled = scores.times_power_of_two(float(scale.mid))
    else:
        root = np.sqrt(np.array([float(d)]))
        factors = [1 / root, 1 / rounded(root, at.inner)]
        factors += [rounded(factor, at.inner) for factor in factors]
        wider = 2.0 ** -(2 * at.stored.p + 1) + OF_FEW  # kept wider, or computed in float64 here
        low, high = np.min(factors) * (1 - wider), np.max(factors) * (1 + wider)
        scaled = scores * Ball.between(low, high)
        scaled = Ball(scaled.mid, np.where((scores.mid == 0) & (scores.rad == 0), 0.0, scaled.rad))
    return at.result(scaled)


class RoundedReduction:
    """The tables with radii that cover every computed number, whatever the order of evaluation.

    The exact values around which they lie are those of the computed scores' midpoints.
    """

    def __init__(self, stored: StoredModel, arithmetic: RoundedArithmetic) -> None:
        self.stored = stored
        self.at = arithmetic

    def operand(self, W: Array) -> Ball:
        """A stored matrix as a factor of a matrix product."""
        return self.at.as_operand(Ball.exact(W))

    def weights_as_factors(self, x: Ball) -> Ball:
        """Weights times their normalisation: no numbers of the format, so that only relative errors carry over.

        Where there is no error, all are one power of two. What flushing takes is in the radius already.
        """
        u = 0.0 if self.at.operand is self.at.stored else self.at.operand.u
        return Ball(x.mid, np.where(x.rad == 0, 0.0, (x.rad + times(np.asarray(u), x.magnitude)) * INFLATION))

    @cached_property
    def scores(self) -> Ball:
        """Every computed score of a query and a key (T, T or T + 1)."""
        stored = self.stored
        assert stored.W_Q is not None and stored.W_K is not None
        E = self.operand(self.embeddings)
        queries = self.at.product(E[: stored.T], self.operand(stored.W_Q))
        keys = self.at.product(E, self.operand(stored.W_K))
        return divided_by_root(self.at, self.at.product(queries, keys.T), stored.d)

    @property
    def embeddings(self) -> Array:
        stored = self.stored
        return stored.E if stored.e_BOS is None else np.vstack([stored.E, stored.e_BOS])

    @cached_property
    def normaliser(self) -> Ball:
        """The exact exponentials of the midpoints of the computed scores, over the largest of their row."""
        return softmax.weights(point(self.scores.mid))

    @cached_property
    def attention(self) -> Ball:
        """Every computed weight as a factor; with softmax times the exact normalisation, as `normaliser` has it."""
        if not self.stored.is_softmax:
            return self.at.as_operand(self.scores)
        N = self.stored.L + (self.stored.e_BOS is not None)
        own = np.arange(self.stored.T)
        return self.weights_as_factors(self._softmax(self.scores, self.normaliser, own, N))

    def _softmax(self, scores: Ball, exponentials: Ball, own: np.ndarray, N: int) -> Ball:
        """Adds to exact exponentials of scores (n, keys) the error of a computed softmax over N of the keys.

        The maximum is one number for the whole row, so what it is cancels. `own` (n,) is a key that always takes part.
        """
        at, tiny, once = self.at, self.at.stored.tiny, self.at.growth(1, 1)
        rank = np.arange(len(own))
        found = softmax.Arguments.of(scores, at, is_always=np.arange(scores.mid.shape[1]) == own[:, None])
        is_top, is_own_largest = found.is_top, found.is_top[rank, own][:, None]
        with np.errstate(over="ignore"):
            relative = softmax.errors_by_units(found, scores, exponentials, own, at.stored)
        size = exponentials.magnitude
        wrong = times(relative, size)
        always = exponentials.lower[rank, own][:, None]
        by_own = relative[rank, own][:, None] + (N - 1) * wrong.max(1, keepdims=True) / always
        worst = np.fmin(relative.max(1, keepdims=True), np.where(always > 0, by_own, np.inf))
        is_bounded = worst <= 0.5  # then the normalisation is at least 2/3, where the largest exponential is 1
        worst = np.where(is_bounded, worst, 0.5)
        least = (exponentials.lower - wrong).min(1, keepdims=True) / (exponentials.upper + wrong).max(1, keepdims=True)
        summing = at.growth(0, 1) + at.inner.u * partial_sums(np.where(least > 2 * tiny, least, 0.0), N)
        others = (N - 1) * np.where(is_top, 0.0, size + wrong).max(1, keepdims=True) * INFLATION
        any_order = softmax.total_error(at, N, 1.0, others, is_own_largest, stored=1)
        summing = np.fmin(summing * (1 + at.growth(N, 1)), any_order)
        total = np.expm1(np.log1p(worst) + np.log1p(summing) + np.log1p(2 * (N + 2) * tiny)) * INFLATION
        is_uniform = is_top.all(1, keepdims=True) & (2**at.stored.p >= N) & (N * tiny <= 1)
        total = np.where(is_uniform, 0.0, total)
        is_bounded &= total <= 0.5
        quotient = np.where(is_uniform, self._uniform_error(N), once)
        common = np.expm1(np.log1p(quotient) - np.log1p(-np.minimum(total, 0.5)))
        error = np.where(is_bounded, wrong * (1 + common) + common * size, np.inf)
        # Flushing to zero loses a number itself at most: the exponential and the quotient. Where they are kept, the
        # exponential gains 2 units, at most doubled by the normalisation, and the quotient one in all, times N at most.
        # Nothing is lost where neither can be so small: a sum of N exponentials is below 2 N.
        kept = 6 * at.operand.eta * N
        is_normal = is_bounded & (exponentials.lower - wrong >= 4 * N * tiny)
        lost = np.where(is_uniform | is_normal, 0.0, np.minimum(6 * tiny * N, 3 * (size + wrong) + kept))
        return Ball(exponentials.mid, (exponentials.rad + error + lost) * INFLATION)

    def _uniform_error(self, N: int) -> float:
        """The relative error of the quotient 1 / N, none for a power of two."""
        if N & (N - 1) == 0:
            return 0.0
        found = self.at.result(Ball(np.array(1 / N), np.array(2 * U / N)))
        return float(np.abs(np.array(ends(found)) * N - 1).max() + OF_FEW) * INFLATION

    @cached_property
    def mixing(self) -> Ball:
        """lin: every computed entry of A, or of its softmax times the exact normalisation of the row."""
        A = self.stored.A
        assert A is not None
        if not self.stored.is_softmax:
            return self.operand(A)
        exact, own = Ball.exact(A), np.arange(self.stored.L)
        scores = Ball(exact.mid, exact.rad + self.at.flush_loss(A))
        return self.weights_as_factors(self._softmax(scores, softmax.weights(exact), own, self.stored.L))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The position classes, with computed weights; D is the exact normalisation."""
        if self.stored.A is None:
            return (attending_row(self.stored.L),)
        exact = mixing_weights(self.stored)
        return tuple(self._row(row_of(self.stored, found, exact)) for found in position_classes(self.stored.A))

    def _row(self, row: Row) -> Row:
        firsts, position = [group[0] for group in row.groups], row.positions[0]
        computed = self.mixing[position]
        return Row(row.positions, row.slots, computed[firsts], computed[position], row.D)

    @cached_property
    def slot_weights(self) -> tuple[Array, np.ndarray]:
        """For each key the largest computed weight that any query or position gives it, and the unit of exact ones.

        With softmax, the largest sum of the computed weights.
        """
        stored = self.stored
        weights = self.mixing if stored.is_linear else self.attention
        if stored.is_softmax:
            N, keys = stored.L + (stored.e_BOS is not None), stored.T + (stored.e_BOS is not None)
            scores = self.operand(stored.A) if stored.A is not None else self.scores
            # A weight is exact only where all of the row's are equal and their number is a power of two.
            is_uniform = not scores.rad.any() and bool((scores.mid == scores.mid[:, :1]).all()) and N & (N - 1) == 0
            is_uniform &= self.at.stored.p >= N.bit_length() and self.at.stored.tiny * N <= 1
            # The computed weights sum to 1, their errors to at most 11/4, and flushing loses at most 3 (1 + 1/2).
            largest = 1.0 if is_uniform else 9.0 if np.isfinite(weights.rad).all() else np.inf
            return np.full(keys, largest), np.full(keys, 1 - N.bit_length() if is_uniform else -NO_UNIT)
        units = np.where(weights.rad == 0, unit_exponent(weights.mid), -NO_UNIT)
        if stored.is_linear:
            return np.full(stored.T, weights.magnitude.max()), np.full(stored.T, units.min())
        return weights.magnitude.max(0), units.min(0)

    def largest_sum(self, sizes: Array) -> Array:
        """The largest sum of the token's own size and of weight times size over all that it attends to.

        Shapes: sizes (keys, n), not negative; returns (n,).
        """
        stored, (weight, _) = self.stored, self.slot_weights
        terms = times(weight[:, None], sizes)
        slots = terms[: stored.T].max(0) * (1 if stored.is_softmax else stored.L)
        result: Array = (sizes[: stored.T].max(0) + slots + terms[stored.T :].sum(0)) * INFLATION
        return result

    @cached_property
    def mixed(self) -> Mixed:
        """Bounds the effect of mixing tokens on each coordinate of the residual stream."""
        return Mixed.of(self)

    @cached_property
    def reader(self) -> Reader:
        """Bounds the effect of reading the mixed token on each pre-activation."""
        return Reader.of(self)

    @cached_property
    def is_finite(self) -> bool:
        """Whether nothing before the logits can overflow, be it read by a later weight or not."""
        is_scored = self.stored.is_linear or bool(np.isfinite(self.scores.rad).all())
        largest = np.concatenate([self.mixed.largest, self.reader.largest])
        return is_scored and bool((largest <= self.at.stored.largest).all())

    @cached_property
    def features(self) -> Ball:
        """<e_s, W_1> with the error that a slot holding s brings into each pre-activation, per unit of weight."""
        E, W_1 = self.operand(self.embeddings), self.operand(self.stored.W_1)
        exact = E @ W_1
        inherited = absolute_product(E.magnitude * self.mixed.slot_error, W_1.magnitude)
        size = absolute_product(E.magnitude, W_1.magnitude)
        rad = exact.rad + (inherited + size) * self.reader.growth + inherited + np.where(size == 0, 0.0, FAINT)
        return Ball(exact.mid, np.where(self.reader.is_exact, exact.rad, rad * INFLATION))

    @cached_property
    def residual(self) -> Ball:
        """<e_t, W_1> + b_1 with the errors that do not depend on the slots."""
        stored, mixed, reader = self.stored, self.mixed, self.reader
        W_1, b_1 = self.operand(stored.W_1), Ball.exact(stored.b_1)
        exact = Ball.exact(stored.E) @ W_1 + b_1
        size = absolute_product(np.abs(stored.E), W_1.magnitude)
        inherited = absolute_product(np.abs(stored.E) * mixed.residual_error, W_1.magnitude)
        own = reader.growth * size + reader.bias_growth * b_1.magnitude
        lost = absolute_product(mixed.lost[None, :], W_1.magnitude)[0] * (1 + reader.growth) + reader.lost
        flushed = absolute_product(self.at.flush_loss(stored.E), W_1.magnitude) + self.at.flush_loss(stored.b_1)
        rad = exact.rad + inherited * (1 + reader.growth) + own + lost + flushed * (1 + reader.growth)
        rad = rad + np.where((size == 0) & (b_1.magnitude == 0), 0.0, FAINT)
        return Ball(exact.mid, np.where(reader.is_exact, exact.rad, rad * INFLATION))

    def tables(self, row: Row, start: int, stop: int) -> ReductionTables:
        """The linear forms of the query tokens start..stop-1."""
        return self.tables_of(self.features, self.residual, row, start, stop)

    def tables_of(self, features: Ball, residual: Ball, row: Row, start: int, stop: int) -> ReductionTables:
        """Returns the linear forms for given features and residual."""
        if self.stored.is_linear:
            return linear_tables(row, terms_of_features(features), residual, start, stop)
        if not self.stored.is_softmax:
            return attending_tables(self.stored, self.attention, features, residual, start, stop)
        T = self.stored.T
        computed = self.attention[start:stop][..., None]
        D = self.normaliser[start:stop][..., None]
        terms = joined(computed * features[None] + D * residual[start:stop, None], D)
        zeros = np.zeros((stop - start, terms.mid.shape[-1]))
        base = Ball(zeros, zeros) if self.stored.e_BOS is None else terms[:, T]
        return tables_of_terms(base, terms[:, :T], start, stop)


@dataclass(frozen=True)
class Mixed:
    """Each coordinate of x' = x + (weights) x: size and unit of what it can hold, and relative errors.

    Shapes: (d,) each. `slot_error` is relative to a slot's |weight x|, `residual_error` to |x|, `lost` absolute.
    """

    largest: Array
    unit: np.ndarray
    is_exact: np.ndarray
    slot_error: Array
    residual_error: Array
    lost: Array

    @classmethod
    def of(cls, reduction: RoundedReduction) -> Mixed:
        stored, at = reduction.stored, reduction.at
        E = np.abs(reduction.embeddings)
        x = E[: stored.T]
        weight, unit = reduction.slot_weights
        is_mixed = (E > 0) & (weight > 0)[:, None]
        N = is_mixed[: stored.T].any(0) * stored.L + is_mixed[stored.T :].any(0)
        units = np.where(is_mixed, unit[:, None] + unit_exponent(E), NO_UNIT).min(0)
        units = np.minimum(units, unit_exponent(x).min(0))
        is_known = ~(is_mixed & (unit == -NO_UNIT)[:, None]).any(0)  # all computed weights are the exact ones
        largest = reduction.largest_sum(E)
        operands = (reduction.operand(reduction.embeddings).rad == 0).all(0)
        is_kept = (at.flush_loss(x) == 0).all(0)  # the token itself is read as it is, mixed or not
        is_exact = is_kept & ((N == 0) | (is_known & operands & at.is_representable(largest, units)))
        adds = (x > 0).any(0)
        hard = (~is_power_of_two(E)).any(0)
        is_moved = (N <= 1) & ~hard & ~adds  # a weight times a power of two: the number of the format that it is
        slot_error = at.growth(np.maximum(N - 1, 0) + adds + hard, np.where(is_moved, 0, 1 + adds))
        residual_error = at.growth(N, 1)
        lost = at.underflow(2 * N) * (1 + slot_error)
        is_exact &= largest <= at.stored.largest
        slot_error, residual_error, lost = (np.where(is_exact, 0.0, e) for e in (slot_error, residual_error, lost))
        if at.operand is not at.stored:
            u = np.where(is_exact & at.fits_operand(largest, units), 0.0, at.operand.u)
            is_exact = is_exact & (u == 0)
            slot_error, residual_error = (e + u * (1 + e) for e in (slot_error, residual_error))
        largest = largest * (1 + slot_error + residual_error) + lost
        return cls(largest, units, is_exact, slot_error * INFLATION, residual_error * INFLATION, lost)


@dataclass(frozen=True)
class Reader:
    """Each pre-activation <x', W_1> + b_1: how large it and its partial sums are, and how all but its last step rounds.

    The last step's rounding is that of the result, whose range is known only later.
    Shapes: (p,) each.
    """

    largest: Array
    unit: np.ndarray
    is_exact: np.ndarray
    growth: Array
    bias_growth: Array
    lost: Array

    @classmethod
    def of(cls, reduction: RoundedReduction) -> Reader:
        stored, mixed, at = reduction.stored, reduction.mixed, reduction.at
        W, b = np.abs(stored.W_1), np.abs(stored.b_1)
        is_read = (mixed.largest > 0)[:, None] & (W > 0)
        terms, has_bias = is_read.sum(0), b > 0
        hard = (is_read & ~is_power_of_two(W)).any(0)
        wrong = (1 + mixed.slot_error + mixed.residual_error)[:, None]
        largest = reduction.largest_sum(absolute_product(np.abs(reduction.embeddings), W * wrong))
        largest = (largest + absolute_product(mixed.lost[None, :], W)[0] + b) * INFLATION
        unit = np.where(is_read, mixed.unit[:, None] + unit_exponent(W), NO_UNIT).min(0)
        unit = np.minimum(unit, unit_exponent(b))
        is_exact = (mixed.is_exact[:, None] | ~is_read).all(0) & at.is_representable(largest, unit)
        is_exact &= ((reduction.operand(W).rad == 0) | ~is_read).all(0) & (at.flush_loss(b) == 0)
        last = at.inner is at.stored
        steps = np.maximum(terms - 1 + has_bias - last, 0) + hard
        growth = at.growth(steps, has_bias & ((terms > 1) | hard))
        return cls(
            largest * (1 + growth),
            unit,
            is_exact,
            np.where(is_exact, 0.0, growth),
            at.growth(np.maximum(terms - last, 0), 0),
            np.where(is_exact, 0.0, at.underflow(2 * terms + has_bias) * (1 + growth)),
        )
