"""Count01 in a dtype, any order: how far a computed logit can be from the exact one.

Every elementary operation is taken to return its exact result with a relative error of at most u (rounded to
nearest, or kept in a wider format) and an absolute error of at most the smallest normal number where it
underflows: subnormals are kept, or flushed to zero. A sum of k terms then has a relative error of at most
(1 + u)^(k - 1) - 1 with respect to the sum of absolute values, whatever the association order; sums whose partial
sums are all representable have none. With a wider accumulation the k - 1 roundings are its own, and one more stores
the result: `Arithmetic.growth`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic, times
from verify.arithmetic.balls import Ball, point
from verify.arithmetic.contract import Contract
from verify.arithmetic.formats import Format
from verify.arithmetic.outward import finite, float_at_least, float_at_most
from verify.arithmetic.slack import ENLARGE, INFLATION, LEAST, Array
from verify.arithmetic.softmax import exponential_errors, quotient_error, total_error
from verify.arithmetic.stored import numbers
from verify.tasks.count01.task import kinds

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

CONTRACT = Contract(normalised="normalises, then weighs the values")
ALIKE = "the same product of two numbers is computed alike at every position"


NORMED = "LayerNorm in one pass, two or by running means, its weight and bias folded into one product and sum or not"


def assumptions(fmt: Format, accumulate: Format | None, *, has_norm: bool = False) -> tuple[str, ...]:
    """Lists the assumptions of the reading "dtype, any order"."""
    return (*CONTRACT.text(fmt, accumulate), *([NORMED] if has_norm else []), ALIKE)


INFINITE = Fraction(2) ** 1000  # a bound near the end of float64, which decides nothing


@dataclass(frozen=True)
class ComputedNumber:
    """A computed number: the exact value it stands for, and a bound on its error."""

    value: Fraction
    radius: Fraction


def seen(model: Count01Model, at: RoundedArithmetic) -> Ball:
    """What the attention reads of each token: balls (8, d) that hold what is computed.

    Without LayerNorm these are the tokens. Behind it the proof is about the model whose attention reads the midpoints
    and no other, so that it needs no root; what computed ones are off them is an error like any other.
    The radius is infinite where a computed one may be no number.
    """
    E = numbers(model.E)
    if not model.has_norm:
        return point(E)
    import torch

    from verify.engine import balls
    from verify.engine.rules.normalisation import layer_norm

    engine = balls.Arithmetic(at.stored, None if at.inner is at.stored else at.inner)
    x, weight, bias = (balls.Ball(torch.from_numpy(numbers(W))) for W in (model.E, model.norm_weight, model.norm_bias))
    found, *_ = layer_norm(engine, x, [E.shape[1]], weight, bias, float(model.norm_eps))
    is_known = torch.isfinite(found.mid) & torch.isfinite(found.radius)
    near, off = torch.where(is_known, found.mid, 0.0), torch.where(is_known, found.radius, torch.inf)
    return Ball(near.numpy(), off.numpy())


def in_fractions(x: Ball) -> list[ComputedNumber]:
    """One token; where nothing bounds what is computed, itself."""
    off = np.where(np.isfinite(x.rad), x.rad, 0.0)
    return [ComputedNumber(Fraction(m), Fraction(r)) for m, r in zip(x.mid.tolist(), off.tolist(), strict=True)]


def rounded_dot(
    x: list[ComputedNumber], y: list[ComputedNumber], at: RoundedArithmetic
) -> tuple[ComputedNumber, Fraction]:
    """A computed sum of products x_i y_i, in any order, exact where it provably is; and the sum of its terms' sizes."""
    factors = [(a, b) for a, b in zip(x, y, strict=True) if (a.value or a.radius) and (b.value or b.radius)]
    terms = [a.value * b.value for a, b in factors]
    off = ((a, b) for a, b in factors if a.radius or b.radius)
    inherited = sum((abs(a.value) * b.radius + (abs(b.value) + b.radius) * a.radius for a, b in off), Fraction(0))
    size = sum(map(abs, terms), inherited)
    return ComputedNumber(sum(terms, Fraction(0)), inherited + rounding_error(terms, inherited, size, at)), size


def rounding_error(terms: list[Fraction], inherited: Fraction, size: Fraction, at: RoundedArithmetic) -> Fraction:
    """Bounds the error that rounding adds to a sum of products. Zero where all is exact."""
    if not inherited and is_exact(terms, at.operand):  # the factors are then numbers of that format, too
        return Fraction(0)
    grown = float(at.growth_of_products(len(terms)))
    return Fraction(grown) * size + 2 * (len(terms) + 1) * Fraction(at.stored.tiny) if grown < np.inf else INFINITE


def is_exact(terms: list[Fraction], fmt: Format) -> bool:
    """Whether every partial sum of dyadic terms is representable: all are multiples of one unit, and few."""
    units = [Fraction(t.numerator & -t.numerator, t.denominator) for t in terms if t]
    if not units:
        return True
    unit = min(units)
    return unit >= Fraction(fmt.tiny) and sum(abs(t) for t in terms) <= 2**fmt.p * unit


class QueryErrors:
    """Error bounds for the query at one last token.

    Shapes: scores (heads, kinds) as ComputedNumber; values (heads, kinds, d_h) as float arrays.
    """

    def __init__(self, model: Count01Model, last: int, at: RoundedArithmetic) -> None:
        self.model, self.last, self.at = model, last, at
        self.tokens = kinds(last)
        read = seen(model, at)
        stored = {t: in_fractions(read[t]) for t in self.tokens}
        self.scores: list[list[ComputedNumber]] = []
        values, radii = [], []
        self.obstacle: str | None = None
        if not np.isfinite(read.rad[list(self.tokens)]).all():
            self.obstacle = f"the LayerNorm of a token is not known well enough in {at.stored.name}"
        for h in range(model.heads):
            W_Q, W_K, W_V = (
                [in_fractions(point(w)) for w in numbers(W[h]).T] for W in (model.W_Q, model.W_K, model.W_V)
            )
            q = [rounded_dot(stored[last], w, at)[0] for w in W_Q]
            k = [[rounded_dot(stored[t], w, at)[0] for w in W_K] for t in self.tokens]
            self.scores.append([self.score(q, key) for key in k])
            v = [[rounded_dot(stored[t], w, at)[0] for w in W_V] for t in self.tokens]
            values.append([[finite(float_at_least(x.value)) for x in row] for row in v])
            radii.append([[float_at_least(x.radius) for x in row] for row in v])
        self.V, self.V_radius = np.array(values), np.array(radii)
        self.tables = [self.weight_errors(h) for h in range(model.heads)]
        self.is_uniform = [all(s.value == row[0].value and not s.radius for s in row) for row in self.scores]
        self.E_last = np.abs(numbers(model.E)[last])
        self.W_O = np.abs(numbers(model.W_O))
        self.W_out = np.abs(numbers(model.W_out))
        self.b_out = np.abs(numbers(model.b_out))
        self.check_range()

    def score(self, q: list[ComputedNumber], k: list[ComputedNumber]) -> ComputedNumber:
        """A computed inner product of a query and a key."""
        found, size = rounded_dot(q, k, self.at)
        if size >= Fraction(self.at.stored.largest) / 2:
            self.obstacle = f"an intermediate can overflow {self.at.operand.name}"
        return found

    def check_range(self) -> None:
        """Marks the query as never provable where some intermediate could overflow, or a weight be flushed."""
        half = self.at.stored.largest / 2
        weights = [np.abs(numbers(W)) for W in self.model.parameters()]
        if any(bool(((W > 0) & (self.at.stored.tiny > W)).any()) for W in weights):
            self.obstacle = f"a weight is subnormal in {self.at.operand.name}, and may be flushed to zero"
        V = np.abs(self.V).max(axis=1) + self.V_radius.max(axis=1)
        attended = np.einsum("he,hed->d", V, self.W_O)
        stream = self.E_last + attended
        largest = max(float(V.max()), float(stream.max()), float((stream @ self.W_out + self.b_out).max()) * 2)
        if not largest < half:
            self.obstacle = f"an intermediate can overflow {self.at.operand.name}"

    def weight_errors(self, h: int) -> tuple[Array, Array]:
        """For each kind m as the maximum: relative and absolute errors of each kind's exponential (m, t).

        The absolute ones are in units of the largest possible weight, as the float weights are. The softmax may be four
        operations, so that the distance to the maximum and the exponential are stored each.
        """
        row, at = self.scores[h], self.at
        size = len(row)
        relative, absolute = np.zeros((size, size)), np.zeros((size, size))
        top = max(s.value for s in row)
        for m in range(size):
            for t in range(size):
                distance = row[t].value - row[m].value
                radius = row[t].radius + row[m].radius
                if t == m and (not radius or self.is_one_number(t)):
                    continue  # exp(0) = 1
                if radius or not is_exact([distance], at.stored):
                    radius += Fraction(at.once) * (abs(distance) + radius) + Fraction(at.stored.tiny)
                if distance == 0 and not radius:
                    continue
                relative[m, t], absolute[m, t] = exponential_errors(distance, radius, row[m].value - top, at)
        return relative, absolute

    def is_one_number(self, t: int) -> bool:
        """Whether all occurrences of a kind have one computed score: one occurrence, or no sum."""
        return t not in (1, 2, 3) or (self.model.W_Q.shape[1:] == (1, 1) and not self.model.has_norm)

    def weight_error(self, h: int, low: Array, high: Array, D_low: Array) -> Array:
        """A bound on sum n_t |error of weight t| / sum n_t weight_t per box (K,)."""
        relative, absolute = self.tables[h]
        row = self.scores[h]
        possible, sure = high > 0, low > 0
        upper = np.array([float_at_least(s.value + s.radius) for s in row])
        lower = np.array([float_at_most(s.value - s.radius) for s in row])
        floor = np.where(sure, lower, -np.inf).max(axis=1, keepdims=True)
        candidate = possible & (upper >= floor)
        worst = np.zeros(len(low))
        for m in range(len(row)):
            small = relative[m] <= 2.0**-4
            by_ratio = np.where(possible & small, relative[m], 0).max(axis=1)
            sizes = np.where(possible, high * absolute[m], 0)
            large = np.where(small, 0, sizes)
            of_all, of_large = (x.sum(axis=1) / D_low + np.where(x.any(axis=1), LEAST, 0.0) for x in (sizes, large))
            found = np.minimum(by_ratio + of_large, of_all)
            worst = np.where(candidate[:, m], np.maximum(worst, found), worst)
        return worst * ENLARGE

    def logit_errors(
        self, low: Array, high: Array, D: Array, mean: Array, mean_size: Array, largest_logit: Array
    ) -> Array:
        """Bounds (K, classes) on |computed - exact| logit for boxes of counts low..high (K, kinds).

        D (K, corners, heads) are the normalisers, mean and mean_size (K, heads, d_h) the largest absolute
        weighted mean of the values and of their sizes, largest_logit (K, classes) the largest |logit|.
        """
        at, heads = self.at, self.model.heads
        if self.obstacle:
            return np.full((len(low), len(self.b_out)), np.inf)
        n = high.sum(axis=1)
        mixed = np.zeros_like(mean)
        for h in range(heads):
            V, radius = self.V[h], self.V_radius[h]
            ratio = self.weight_error(h, low, high, D[:, :, h].min(axis=1))
            ratio = quotient_error(ratio)[:, None]
            kappa = quotient_error(total_error(at, n, n, 0.0, self.is_uniform[h], stored=1))[:, None]
            terms = high @ ((V != 0) | (radius > 0)).astype(float)
            largest = (np.abs(V) + radius).max(axis=0)
            moved = times(ratio, (V.max(axis=0) - V.min(axis=0))) + radius.max(axis=0)
            size = mean_size[:, h] + times(ratio, largest) + radius.max(axis=0)
            mixed[:, h] = (
                moved
                + times(kappa, mean[:, h] + moved)
                + times(at.growth_of_products(terms + 1, 2) * (1 + kappa), size)
                + self.lost(h, n[:, None], terms) * (1 + largest)
            )
        mixed = np.where(n[:, None, None] < at.stored.largest / 2, mixed, np.inf)
        return self.readout_errors(mixed, np.abs(self.V).max(axis=1)[None] + mixed, largest_logit) * INFLATION

    def lost(self, h: int, n: Array, terms: Array) -> Array:
        """What underflow takes from shares, products and partial sums; equal shares n^-1 and products are normal."""
        tiny = self.at.stored.tiny
        sizes = np.abs(self.V[h][self.V[h] != 0])
        smallest = min([1.0, *sizes.tolist()])
        is_normal = self.is_uniform[h] and not self.V_radius[h].any()
        is_normal = is_normal & (smallest >= 4 * tiny * n)
        return np.where(is_normal, 2.0, 4.0) * terms * tiny

    def readout_errors(self, mixed: Array, size: Array, largest_logit: Array) -> Array:
        """The error of the logits from that of the heads' outputs, and the rounding of the linear layers."""
        at = self.at
        heads, d_h, d = self.W_O.shape
        flat, W_O = mixed.reshape(-1, heads * d_h), self.W_O.reshape(heads * d_h, d)
        attended = product(flat, W_O) + sum_error(product(size.reshape(flat.shape), W_O), None, W_O, False, at)
        stream, stream_size = attended, product(size.reshape(flat.shape), W_O) + attended
        if self.model.has_skip:
            stream_size = stream_size + self.E_last
            stream = stream + np.where(self.E_last != 0, at.once * stream_size + 2 * at.stored.tiny, 0)
        weighted = product(stream_size, self.W_out) + self.b_out
        inherited = product(stream, self.W_out)
        return inherited + sum_error(weighted, largest_logit + inherited, self.W_out, self.b_out != 0, at)


def product(x: Array, W: Array) -> Array:
    """x W of non-negative matrices, where infinity times zero is zero."""
    return np.stack([times(x, column).sum(axis=-1) for column in W.T], axis=-1)


def sum_error(size: Array, result: Array | None, W: Array, extra: np.ndarray | bool, at: RoundedArithmetic) -> Array:
    """The rounding error of x W (+ one more term where `extra`): size is the sum of absolute terms.

    Products with 0 and powers of two >= 1 are exact, unless factors are rounded; one term needs no addition; two
    terms round once, relative to their result.
    """
    is_hard = (W != 0) & ((np.frexp(W)[0] != 0.5) | (W < 1) | at.rounds_factors)
    inexact, tiny = is_hard.sum(axis=0), at.stored.tiny
    k = (W != 0).sum(axis=0) + np.asarray(extra, dtype=int)
    products = np.where(inexact > 0, at.growth_of_products(1) * size + 2 * inexact * tiny, 0)
    # 2^-10 of the sizes is far more than float64 took from the result
    single = at.once * ((size if result is None else result) + 2.0**-10 * size + products)
    many = times(at.growth(np.maximum(k - 1.0, 0), 2), size + products)
    return products + np.where(k <= 1, 0, np.where(k == 2, single, many) + 2 * k * tiny)
