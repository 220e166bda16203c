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
from typing import Any

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.balls import ENLARGE, Ball, reciprocal_sqrt, stack_last
from verify.arithmetic.formats import FORMATS, INFLATION, Array, Format
from verify.arithmetic.rounding import rounded
from verify.histogram.reduction import Reduction, Row, Tables
from verify.histogram.stored import StoredModel

NO_UNIT = 1 << 20  # log2 of the unit of zero, which is a multiple of everything


@dataclass(frozen=True)
class Arithmetic:
    """The formats of one reading: of stored tensors, of partial sums, and of the factors of matrix products.

    >>> Arithmetic.of(FORMATS["tf32"]).operand.p, Arithmetic.of(FORMATS["tf32"]).stored.p
    (11, 24)
    """

    stored: Format
    inner: Format
    operand: Format

    @classmethod
    def of(cls, fmt: Format, accumulate: Format | None = None) -> Arithmetic:
        """tf32 has factors of 11 bits, and float32 otherwise; elsewhere there is only the accumulation to choose.

        Raises: BadInput for an accumulation with fewer bits than the format.
        """
        stored = FORMATS["float32"] if fmt.name == "tf32" else fmt
        inner = stored if accumulate is None else accumulate
        if inner.p < stored.p or inner.largest < stored.largest or inner.tiny > stored.tiny:
            raise BadInput(f"accumulate={inner.name}: holds less than {stored.name}. Leave --accumulate out.")
        return cls(stored, inner, fmt if fmt.name == "tf32" else stored)

    def growth(self, inner: Any, stored: Any = 1) -> Array:
        """(1 + u)^n - 1 for n roundings of partial results, and of `stored` results that are then stored.

        The relative error of a product of factors 1 + delta; a result that needs no wider partial sum is stored as is.
        """
        u, v = self.inner.u, self.stored.u
        log = np.asarray(inner, dtype=float) * np.log1p(u)
        if self.inner is not self.stored:
            log = log + np.asarray(stored, dtype=float) * np.log1p(v)
        with np.errstate(over="ignore"):
            return np.expm1(log) * INFLATION

    def underflow(self, operations: Any) -> Array:
        """What flushing to zero can take away: each result once, and twice what is stored (a product and a sum).

        A result that is written as zero has nothing left to lose where it is read, so it is lost once. A sum of n
        products has at most 2 n results, a bias or the residual included: n products and n sums. Later
        roundings scale what is lost as they scale the terms: times 1 + growth.
        """
        n = np.asarray(operations, dtype=float)
        wider = 0.0 if self.inner is self.stored else 2 * self.stored.tiny
        return np.where(n > 0, (n * self.inner.tiny + wider) * INFLATION, 0.0)

    def result(self, x: Ball) -> Ball:
        """What becomes of a result in x: rounded to nearest as it is stored, or kept with 2p + 2 bits or more.

        Rounding is monotone, so its values at the ends bound it.
        """
        low, high = ends(x)
        wider = 2.0 ** -(2 * self.stored.p + 2) + (0.0 if self.inner is self.stored else self.inner.u)
        is_kept = (x.rad == 0) & (rounded(x.mid, self.stored) == x.mid) & ~self._may_flush(x.mid)
        low, high = low - wider * np.abs(low), high + wider * np.abs(high)
        low, high = np.minimum(low, rounded(low, self.stored)), np.maximum(high, rounded(high, self.stored))
        low = np.where(self._may_flush(low), np.minimum(low, 0.0), low)
        high = np.where(self._may_flush(high), np.maximum(high, 0.0), high)
        return between(np.where(is_kept, x.mid, low), np.where(is_kept, x.mid, high))

    def factors(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The ends of what numbers between two ends are as factors of a matrix product.

        They are then numbers of the stored format, subnormal ones possibly flushed; in tf32 they are rounded to the
        nearest of 11 bits, half-way cases either way, or not at all.
        """
        wider = 0.0 if self.inner is self.stored else self.inner.u
        low, high = rounded(low - wider * np.abs(low), self.stored), rounded(high + wider * np.abs(high), self.stored)
        low = np.where(self._may_flush(low), np.minimum(low, 0.0), low)
        high = np.where(self._may_flush(high), np.maximum(high, 0.0), high)
        if self.operand is not self.stored:
            low = np.minimum(low, rounded(low, self.operand, rest=-1.0))
            high = np.maximum(high, rounded(high, self.operand, rest=1.0))
        return low, high

    def as_operand(self, x: Ball) -> Ball:
        """A computed matrix as a factor of a matrix product."""
        is_fit = (x.rad == 0) & (rounded(x.mid, self.operand) == x.mid) & (self.flush_loss(x.mid) == 0)
        low, high = ends(x)
        changed = between(*self.factors(low, high))
        return Ball(np.where(is_fit, x.mid, changed.mid), np.where(is_fit, 0.0, changed.rad))

    def product(self, x: Ball, W: Ball, *added: Ball) -> Ball:
        """Every computed value of the matrix product x W, radius zero where there is only one.

        What is added to it is one more term of the sum.
        """
        x, W = self.as_operand(x), self.as_operand(W)
        real = x @ W
        size = absolute_product(x.magnitude, W.magnitude)
        terms = (x.magnitude > 0).astype(float) @ (W.magnitude > 0).astype(float)
        hard_x, hard_W = (~is_power_of_two(b.mid) | (b.rad > 0) for b in (x, W))
        hard = (hard_x.astype(float) @ hard_W.astype(float)) > 0
        unit = unit_exponent(x.mid).min(1)[:, None] + unit_exponent(W.mid).min(0)[None, :]
        is_known = (x.rad == 0).all(1)[:, None] & (W.rad == 0).all(0)[None, :]
        for term in added:
            real = real + term
            size, terms = (size + term.magnitude) * INFLATION, terms + (term.magnitude > 0)
            unit, is_known = np.minimum(unit, unit_exponent(term.mid)), is_known & (term.rad == 0)
        roundings = np.maximum(terms - 1, 0) + hard - (self.inner is self.stored)  # the last one is that of the result
        growth = self.growth(np.maximum(roundings, 0), 0)
        error = growth * size + np.where(terms > 1, self.underflow(2 * terms) * (1 + growth), 0.0)
        is_sum_exact = (self.is_exact_sum(size, unit) & is_known) | (terms <= 1)  # the unit is that of known factors
        # a single product of numbers with at most 26 bits is exact in float64 as well
        is_mid_exact = self.is_exact_sum(size, unit) | ((terms <= 1) & (~hard | (self.stored.p <= 26)))
        rad = np.where(is_sum_exact, np.where(is_known & is_mid_exact, 0.0, real.rad), real.rad + error * INFLATION)
        out = self.result(Ball(real.mid, rad))
        return Ball(out.mid, np.where(size + error + out.rad <= self.stored.largest, out.rad, np.inf))

    def product_and(self, x: Ball, W: Ball, *added: Ball) -> Ball:
        """Every computed value of x W + a or x W + a + b: added terms of the sum, or added after it is stored."""
        in_one = self.product(x, W, *added)
        if self.inner is self.stored or not added:
            return in_one
        stored, a = self.product(x, W), added[0]
        if len(added) == 1:
            return hull(in_one, self.sum_of(stored, a))
        b = added[1]
        pairs = ((self.sum_of(stored, a), b), (self.sum_of(stored, b), a), (self.sum_of(a, b), stored))
        together = ((self.product(x, W, a), b), (self.product(x, W, b), a))
        return hull(in_one, *(self.sum_of(*pair) for pair in (*pairs, *together)))

    def sum_of(self, a: Ball, b: Ball) -> Ball:
        """Every computed value of a + b (R, m)."""
        nothing = Ball(np.zeros((len(a.mid), 1)), np.zeros((len(a.mid), 1)))
        return self.product(nothing, Ball(np.zeros((1, a.mid.shape[1])), np.zeros((1, a.mid.shape[1]))), a, b)

    def _may_flush(self, x: Array) -> np.ndarray:
        return (x != 0) & (np.abs(x) < self.stored.tiny)

    def flush_loss(self, W: Array) -> Array:
        """What reading stored numbers can lose: a subnormal one may be flushed to zero."""
        size = np.abs(W)
        return np.where(size < self.stored.tiny, size, 0.0)

    def is_exact_sum(self, size: Array, unit: Array) -> np.ndarray:
        """Whether multiples of 2^unit whose absolute values sum to `size` have only exact partial sums."""
        step = np.ldexp(1.0, np.minimum(unit, 512))
        return (size <= step * 2.0 ** min(self.inner.p, 52)) & (step >= self.stored.tiny)

    def is_representable(self, size: Array, unit: Array) -> np.ndarray:
        """Whether the sum is then stored as it is, too."""
        step = np.ldexp(1.0, np.minimum(unit, 512))
        return self.is_exact_sum(size, unit) & (size <= step * 2.0 ** min(self.stored.p, 52))

    def fits_operand(self, size: Array, unit: Array) -> np.ndarray:
        """Whether numbers that are such multiples stay themselves as factors of a matrix product."""
        return size <= np.ldexp(1.0, np.minimum(unit, 512) + min(self.operand.p, 52))


def ends(x: Ball) -> tuple[Array, Array]:
    """The ends of balls; the number itself where there is no radius."""
    return np.where(x.rad == 0, x.mid, x.lower), np.where(x.rad == 0, x.mid, x.upper)


def hull(*balls: Ball) -> Ball:
    """Balls that hold what any of the balls holds."""
    lows, highs = zip(*(ends(x) for x in balls), strict=True)
    return between(np.minimum.reduce(lows), np.maximum.reduce(highs))


def between(low: Array, high: Array) -> Ball:
    """Balls that hold all numbers between two ends."""
    with np.errstate(invalid="ignore", over="ignore"):
        mid = np.where(low == high, low, low / 2 + high / 2)
        rad = np.where(low == high, 0.0, np.maximum(high - mid, mid - low) * ENLARGE)
    is_finite = np.isfinite(low) & np.isfinite(high)
    return Ball(np.where(is_finite, mid, 0.0), np.where(is_finite, rad, np.inf))


def unit_exponent(x: Array) -> np.ndarray:
    """The largest e such that x is a multiple of 2^e.

    >>> unit_exponent(np.array([1.0, 0.75, 12.0])).tolist()
    [0, -2, 2]
    """
    mantissa, exponent = np.frexp(x)
    integer = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.frexp((integer & -integer).astype(float))[1] - 1
    return np.where(x == 0, NO_UNIT, exponent - 53 + lowest)


def is_power_of_two(x: Array) -> np.ndarray:
    """Whether a product with x is exact: x is zero or a power of two, of either sign."""
    return (x == 0) | (np.abs(np.frexp(x)[0]) == 0.5)


def times(a: Array, b: Array) -> Array:
    """a b of non-negative numbers, where infinity times zero is zero: an exact zero has no error."""
    with np.errstate(invalid="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b)


def partial_sums(least: Array, N: int) -> Array:
    """The largest sum of partial sums, over the sum, of N numbers between `least` and 1 in any order (shape of least).

    It is largest when the largest come first, and linear-fractional in the numbers, so some are 1 and the rest `least`.
    """
    place = np.arange(1, N + 1)
    largest = np.zeros_like(least)
    for ones in range(1, N + 1):
        sums = np.minimum(place, ones) + np.maximum(place - ones, 0) * least[..., None]
        largest = np.maximum(largest, sums[..., 1:].sum(-1) / sums[..., -1])
    return largest * INFLATION


def absolute_product(x: Array, W: Array) -> Array:
    """An upper bound on x W for non-negative matrices."""
    return (x @ W) * INFLATION


class RoundedReduction(Reduction):
    """The tables with radii that cover every computed number, whatever the order of evaluation.

    The exact values around which they lie are those of the computed scores' midpoints.
    """

    def __init__(self, stored: StoredModel, arithmetic: Arithmetic) -> None:
        super().__init__(stored)
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
        E = self.operand(self._embeddings)
        queries = self.at.product(E[: stored.T], self.operand(stored.W_Q))
        keys = self.at.product(E, self.operand(stored.W_K))
        return self._divided_by_root(self.at.product(queries, keys.T))

    @property
    def _embeddings(self) -> Array:
        stored = self.stored
        return stored.E if stored.e_BOS is None else np.vstack([stored.E, stored.e_BOS])

    def _divided_by_root(self, scores: Ball) -> Ball:
        """scores / sqrt(d), as a division by the rounded root or a product with a rounded reciprocal."""
        scale = reciprocal_sqrt(self.stored.d)
        if not scale.rad:  # a power of two
            scaled = scores.times_power_of_two(float(scale.mid))
        else:
            root = np.sqrt(np.array([float(self.stored.d)]))
            factors = [1 / root, 1 / rounded(root, self.at.inner)]
            factors += [rounded(factor, self.at.inner) for factor in factors]
            wider = 2.0 ** -(2 * self.at.stored.p + 1) + 2.0**-50  # kept wider, or computed in float64 here
            low, high = np.min(factors) * (1 - wider), np.max(factors) * (1 + wider)
            scaled = scores * between(low, high)
            scaled = Ball(scaled.mid, np.where((scores.mid == 0) & (scores.rad == 0), 0.0, scaled.rad))
        return self.at.result(scaled)

    @cached_property
    def normaliser(self) -> Ball:
        """The exact exponentials of the midpoints of the computed scores, over the largest of their row."""
        return self._exponentials(Ball(self.scores.mid, np.zeros_like(self.scores.mid)))

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
        at, u, tiny, once = self.at, self.at.stored.u, self.at.stored.tiny, self.at.growth(1, 1)
        distance = (scores.upper.max(1, keepdims=True) - scores.lower) * INFLATION
        is_exact_row = (scores.rad == 0).all(1, keepdims=True)
        unit = unit_exponent(scores.mid).min(1, keepdims=True)
        subtracted = np.where(is_exact_row & at.is_representable(distance, unit), 0.0, once * distance + tiny)
        # The maximum less itself is 0, and exp(0) = 1: in an exact row, or where the own score is known and largest.
        rank = np.arange(len(own))
        own_score = scores.mid[rank, own][:, None]
        is_own_largest = (scores.rad[rank, own][:, None] == 0) & (ends(scores)[1] <= own_score).all(1, keepdims=True)
        is_top = is_exact_row & (scores.mid == scores.mid.max(1, keepdims=True))
        is_top |= is_own_largest & (scores.rad == 0) & (scores.mid == own_score)
        with np.errstate(over="ignore"):
            shift = scores.rad + subtracted
            units = 4 * u * self._exponential_unit(scores, exponentials, own, shift)  # 2 units in the last place
            relative = np.where(is_top, 0.0, np.expm1(units + shift) * INFLATION)
        size = exponentials.magnitude
        wrong = times(relative, size)
        always = exponentials.lower[np.arange(len(own)), own][:, None]
        by_own = relative[np.arange(len(own)), own][:, None] + (N - 1) * wrong.max(1, keepdims=True) / always
        worst = np.fmin(relative.max(1, keepdims=True), np.where(always > 0, by_own, np.inf))
        is_bounded = worst <= 0.5  # then the normalisation is at least 2/3, where the largest exponential is 1
        worst = np.where(is_bounded, worst, 0.5)
        least = (exponentials.lower - wrong).min(1, keepdims=True) / (exponentials.upper + wrong).max(1, keepdims=True)
        summing = at.growth(0, 1) + at.inner.u * partial_sums(np.where(least > 2 * tiny, least, 0.0), N)
        summing = np.minimum(summing * (1 + at.growth(N, 1)), at.growth(N - 1))
        summing = np.fmin(summing, self._sum_of_ones(is_own_largest, np.where(is_top, 0.0, size + wrong), N))
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

    def _sum_of_ones(self, is_own_largest: np.ndarray, rest: Array, N: int) -> Array:
        """The relative error of a sum of N exponentials that are 1, at least one of them, or at most `rest` (n, keys).

        A partial sum of m ones and of others that sum to s is between m and m + s, plus its errors. If m is a number
        of the format, rounding to nearest leaves it at m or more and at most doubles what it is above m. A sum has at
        most N - 1 additions and is then stored; flushing loses nothing of m, and no more than s.
        """
        largest = rest.max(1, keepdims=True)
        is_held = is_own_largest & (2**self.at.stored.p >= N)
        with np.errstate(over="ignore"):  # 2^N of a long sequence: infinite, and of no use
            return np.where(is_held, np.ldexp(largest, N) * (N - 1) * INFLATION, np.inf)

    def _uniform_error(self, N: int) -> float:
        """The relative error of the quotient 1 / N, none for a power of two."""
        if N & (N - 1) == 0:
            return 0.0
        found = self.at.result(Ball(np.array(1 / N), np.array(2.0**-52 / N)))
        return float(np.abs(np.array(ends(found)) * N - 1).max() + 2.0**-50) * INFLATION

    def _exponential_unit(self, scores: Ball, exponentials: Ball, own: np.ndarray, shift: Array) -> Array:
        """The power of two at or below each exponential, relative to it: at most 1.

        It is known where the own key has the largest score, as the exponentials are then near those of the row.
        """
        top = scores.mid.max(1, keepdims=True)
        is_own_top = scores.mid[np.arange(len(own)), own][:, None] == top
        moved = shift + scores.rad[np.arange(len(own)), own][:, None] + (scores.upper.max(1, keepdims=True) - top)
        low, high = exponentials.lower * np.exp(-moved), exponentials.upper * np.exp(moved)
        high = np.minimum(high, 1 - 2.0**-53)  # exp(0) is exact, and below the maximum it is below 1
        unit = np.ldexp(0.5, np.frexp(high)[1]) / low * INFLATION
        return np.where(is_own_top & (low > 0) & (unit < 1), unit, 1.0)

    @cached_property
    def mixing(self) -> Ball:
        """lin: every computed entry of A, or of its softmax times the exact normalisation of the row."""
        A = self.stored.A
        assert A is not None
        if not self.stored.is_softmax:
            return self.operand(A)
        exact, own = Ball.exact(A), np.arange(self.stored.L)
        scores = Ball(exact.mid, exact.rad + self.at.flush_loss(A))
        return self.weights_as_factors(self._softmax(scores, self._exponentials(exact), own, self.stored.L))

    def _row(self, positions: tuple[int, ...], weights: Ball) -> Row:
        row = super()._row(positions, weights)
        firsts = [group[0] for group in row.groups]
        computed = self.mixing[positions[0]]
        return Row(positions, row.groups, computed[firsts], computed[positions[0]], row.D)

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
        return (sizes[: stored.T].max(0) + slots + terms[stored.T :].sum(0)) * INFLATION

    @cached_property
    def mixed(self) -> Mixed:
        """What the mixing of tokens does to each coordinate of the residual stream."""
        return Mixed.of(self)

    @cached_property
    def reader(self) -> Reader:
        """What reading the mixed token does to each pre-activation."""
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
        E, W_1 = self.operand(self._embeddings), self.operand(self.stored.W_1)
        exact = E @ W_1
        inherited = absolute_product(E.magnitude * self.mixed.slot_error, W_1.magnitude)
        size = absolute_product(E.magnitude, W_1.magnitude)
        rad = exact.rad + (inherited + size) * self.reader.growth + inherited
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
        return Ball(exact.mid, np.where(reader.is_exact, exact.rad, rad * INFLATION))

    def _attending(self, start: int, stop: int) -> Tables:
        if not self.stored.is_softmax:
            return super()._attending(start, stop)
        T = self.stored.T
        computed = self.attention[start:stop][..., None]
        D = self.normaliser[start:stop][..., None]
        terms = stack_last(computed * self.features[None] + D * self.residual[start:stop, None], D)
        zeros = np.zeros((stop - start, terms.mid.shape[-1]))
        base = Ball(zeros, zeros) if self.stored.e_BOS is None else terms[:, T]
        own = terms[np.arange(stop - start), np.arange(start, stop)]
        return Tables(start, stop, base + own, own, terms[:, :T])


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
        E = np.abs(reduction._embeddings)
        x = E[: stored.T]
        weight, unit = reduction.slot_weights
        is_mixed = (E > 0) & (weight > 0)[:, None]
        N = is_mixed[: stored.T].any(0) * stored.L + is_mixed[stored.T :].any(0)
        units = np.where(is_mixed, unit[:, None] + unit_exponent(E), NO_UNIT).min(0)
        units = np.minimum(units, unit_exponent(x).min(0))
        is_known = ~(is_mixed & (unit == -NO_UNIT)[:, None]).any(0)  # all computed weights are the exact ones
        largest = reduction.largest_sum(E)
        operands = (reduction.operand(reduction._embeddings).rad == 0).all(0)
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
        largest = reduction.largest_sum(absolute_product(np.abs(reduction._embeddings), W * wrong))
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
