"""Count01 in a dtype, any order: how far a computed logit can be from the exact one.

Every elementary operation is taken to return its exact result with a relative error of at most u (rounded to
nearest, or kept in a wider format) and an absolute error of at most the smallest subnormal where it
underflows. A sum of k terms then has a relative error of at most gamma(k - 1) with respect to the sum of
absolute values, whatever the association order; sums whose partial sums are all representable have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx

from constructions.count01 import Count01Transformer
from verify.count01_real import Matrix, exact
from verify.count01_task import kinds
from verify.exact_reals import float_above, rational
from verify.formats import INFLATION, Array, Format, gamma, gammas

ASSUMPTIONS = (
    "operations round to nearest in the dtype or keep more bits; subnormals are kept; no TF32",
    "the same product of two numbers is computed alike at every position",
    "exp is within 2 units in the last place, and exp(0) = 1",
    "softmax subtracts the maximum, normalises, then weighs the values; sums in any order, fused or not",
)


@dataclass(frozen=True)
class Rounded:
    """A computed number: the exact value it stands for, and a bound on its error."""

    value: Fraction
    radius: Fraction


def rounded_dot(x: list[Rounded], w: list[Fraction], fmt: Format) -> Rounded:
    """A computed sum of products x_i w_i with exact w_i, in any order; exact where it provably is."""
    terms = [(a, b) for a, b in zip(x, w, strict=True) if b and (a.value or a.radius)]
    value = sum((a.value * b for a, b in terms), Fraction(0))
    inherited = sum((a.radius * abs(b) for a, b in terms), Fraction(0))
    size = sum((abs(a.value * b) for a, b in terms), Fraction(0)) + inherited
    if not inherited and is_exact([a.value * b for a, b in terms], fmt):
        return Rounded(value, Fraction(0))
    k = len(terms)
    return Rounded(value, inherited + Fraction(gamma(k, fmt)) * size + 2 * k * Fraction(fmt.eta))


def is_exact(terms: list[Fraction], fmt: Format) -> bool:
    """Whether every partial sum of dyadic terms is representable: all are multiples of one unit, and few."""
    units = [Fraction(t.numerator & -t.numerator, t.denominator) for t in terms if t]
    if not units:
        return True
    unit = min(units)
    return unit >= Fraction(fmt.eta) and sum(abs(t) for t in terms) <= 2**fmt.p * unit


class QueryErrors:
    """Error bounds for the query at one last token.

    Shapes: scores (heads, kinds) as Rounded; values (heads, kinds, d_h) as float arrays.
    """

    def __init__(self, model: Count01Transformer, last: int, fmt: Format) -> None:
        self.model, self.last, self.fmt = model, last, fmt
        self.tokens = kinds(last)
        E = exact(model.E)
        stored = {t: [Rounded(x, Fraction(0)) for x in E[t]] for t in self.tokens}
        self.scores: list[list[Rounded]] = []
        values, radii = [], []
        self.is_finite = True
        for h in range(model.heads):
            W_Q, W_K, W_V = (columns(exact(W[h])) for W in (model.W_Q, model.W_K, model.W_V))
            q = [rounded_dot(stored[last], w, fmt) for w in W_Q]
            k = [[rounded_dot(stored[t], w, fmt) for w in W_K] for t in self.tokens]
            self.scores.append([self.score(q, key) for key in k])
            v = [[rounded_dot(stored[t], w, fmt) for w in W_V] for t in self.tokens]
            values.append([[float(x.value) for x in row] for row in v])
            radii.append([[float(x.radius) * INFLATION for x in row] for row in v])
        self.V, self.V_radius = np.array(values), np.array(radii)
        self.tables = [self.weight_errors(h) for h in range(model.heads)]
        self.is_uniform = [all(s.value == row[0].value and not s.radius for s in row) for row in self.scores]
        self.E_last = np.abs(model.E[last].double().numpy())
        self.W_O = np.abs(model.W_O.double().numpy())
        self.W_out = np.abs(model.W_out.double().numpy())
        self.b_out = np.abs(model.b_out.double().numpy())
        self.check_overflow()

    def score(self, q: list[Rounded], k: list[Rounded]) -> Rounded:
        """A computed inner product of a query and a key."""
        value = sum((a.value * b.value for a, b in zip(q, k, strict=True)), Fraction(0))
        inherited = sum(
            (
                abs(a.value) * b.radius + abs(b.value) * a.radius + a.radius * b.radius
                for a, b in zip(q, k, strict=True)
            ),
            Fraction(0),
        )
        size = sum((abs(a.value * b.value) for a, b in zip(q, k, strict=True)), Fraction(0)) + inherited
        if size >= Fraction(self.fmt.largest) / 2:
            self.is_finite = False
        terms = [a.value * b.value for a, b in zip(q, k, strict=True) if a.value and b.value]
        if not inherited and is_exact(terms, self.fmt):
            return Rounded(value, Fraction(0))
        slack = Fraction(gamma(len(q), self.fmt)) * size + 2 * len(q) * Fraction(self.fmt.eta)
        return Rounded(value, inherited + slack)

    def check_overflow(self) -> None:
        """Marks the query as never provable where some intermediate could overflow."""
        half = self.fmt.largest / 2
        V = np.abs(self.V).max(axis=1) + self.V_radius.max(axis=1)
        attended = np.einsum("he,hed->d", V, self.W_O)
        stream = self.E_last + attended
        largest = max(float(V.max()), float(stream.max()), float((stream @ self.W_out + self.b_out).max()) * 2)
        if not largest < half:
            self.is_finite = False

    def weight_errors(self, h: int) -> tuple[Array, Array]:
        """For each kind m as the maximum: relative and absolute errors of each kind's exponential (m, t).

        The absolute ones are in units of the largest possible weight, as the float weights are.
        """
        row, fmt = self.scores[h], self.fmt
        size = len(row)
        relative, absolute = np.zeros((size, size)), np.zeros((size, size))
        top = max(s.value for s in row)
        for m in range(size):
            for t in range(size):
                distance = row[t].value - row[m].value
                radius = row[t].radius + row[m].radius
                if t == m and (not radius or self.is_one_number(t)):
                    continue  # exp(0) = 1
                if radius or not is_exact([distance], fmt):
                    radius += Fraction(fmt.u) * (abs(distance) + radius)
                if distance == 0 and not radius:
                    continue
                relative[m, t], absolute[m, t] = exponential_error(distance, radius, row[m].value - top, fmt)
        return relative, absolute

    def is_one_number(self, t: int) -> bool:
        """Whether all occurrences of a kind have one computed score: one occurrence, or no sum."""
        return t not in (1, 2, 3) or self.model.W_Q.shape[1:] == (1, 1)

    def weight_error(self, h: int, low: Array, high: Array, D_low: Array) -> Array:
        """A bound on sum n_t |error of weight t| / sum n_t weight_t per box (K,)."""
        relative, absolute = self.tables[h]
        row = self.scores[h]
        possible, sure = high > 0, low > 0
        upper = np.array([float(s.value + s.radius) * (1 + 1e-12) + 1e-12 * abs(float(s.value)) for s in row])
        lower = np.array([float(s.value - s.radius) * (1 - 1e-12) - 1e-12 * abs(float(s.value)) for s in row])
        floor = np.where(sure, lower, -np.inf).max(axis=1, keepdims=True)
        candidate = possible & (upper >= floor)
        worst = np.zeros(len(low))
        for m in range(len(row)):
            small = relative[m] <= 2.0**-4
            by_ratio = np.where(possible & small, relative[m], 0).max(axis=1)
            by_size = np.where(possible & ~small, high * absolute[m], 0).sum(axis=1) / D_low
            worst = np.where(candidate[:, m], np.maximum(worst, by_ratio + by_size), worst)
        return worst * INFLATION

    def logit_errors(
        self, low: Array, high: Array, D: Array, mean: Array, mean_size: Array, largest_logit: Array
    ) -> Array:
        """Bounds (K, classes) on |computed - exact| logit for boxes of counts low..high (K, kinds).

        D (K, corners, heads) are the normalisers, mean and mean_size (K, heads, d_h) the largest absolute
        weighted mean of the values and of their sizes, largest_logit (K, classes) the largest |logit|.
        """
        fmt, heads = self.fmt, self.model.heads
        if not self.is_finite:
            return np.full((len(low), len(self.b_out)), np.inf)
        n = high.sum(axis=1)
        mixed = np.zeros_like(mean)
        for h in range(heads):
            V, radius = self.V[h], self.V_radius[h]
            ratio = self.weight_error(h, low, high, D[:, :, h].min(axis=1))
            ratio = np.where(ratio > 0.25, np.inf, ratio / (1 - np.minimum(ratio, 0.25)))[:, None]
            kappa = gammas(n - 1, fmt)[:, None]
            if self.is_uniform[h]:
                kappa = np.where(n[:, None] <= 2.0**fmt.p, 0.0, kappa)
            kappa = np.where(kappa > 0.25, np.inf, kappa / (1 - np.minimum(kappa, 0.25)))
            terms = high @ ((V != 0) | (radius > 0)).astype(float)
            largest = (np.abs(V) + radius).max(axis=0)
            moved = times(ratio, (V.max(axis=0) - V.min(axis=0))) + radius.max(axis=0)
            size = mean_size[:, h] + times(ratio, largest) + radius.max(axis=0)
            mixed[:, h] = (
                moved
                + times(kappa, mean[:, h] + moved)
                + times(gammas(terms + 1, fmt) * (1 + kappa), size)
                + 4 * terms * fmt.eta * (1 + largest)
            )
        mixed = np.where(n[:, None, None] < fmt.largest / 2, mixed, np.inf)
        return self.readout_errors(mixed, np.abs(self.V).max(axis=1)[None] + mixed, largest_logit) * INFLATION

    def readout_errors(self, mixed: Array, size: Array, largest_logit: Array) -> Array:
        """The error of the logits from that of the heads' outputs, and the rounding of the linear layers."""
        fmt = self.fmt
        heads, d_h, d = self.W_O.shape
        flat, W_O = mixed.reshape(-1, heads * d_h), self.W_O.reshape(heads * d_h, d)
        attended = product(flat, W_O) + sum_error(product(size.reshape(flat.shape), W_O), None, W_O, False, fmt)
        stream, stream_size = attended, product(size.reshape(flat.shape), W_O) + attended
        if self.model.has_skip:
            stream_size = stream_size + self.E_last
            stream = stream + np.where(self.E_last != 0, fmt.u * stream_size, 0)
        weighted = product(stream_size, self.W_out) + self.b_out
        inherited = product(stream, self.W_out)
        return inherited + sum_error(weighted, largest_logit + inherited, self.W_out, self.b_out != 0, fmt)


def times(a: Array, b: Array) -> Array:
    """a b, with 0 times infinity taken as 0: a factor that is exactly zero carries no error."""
    with np.errstate(invalid="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b)


def product(x: Array, W: Array) -> Array:
    """x W of non-negative matrices, where infinity times zero is zero."""
    return np.stack([times(x, column).sum(axis=-1) for column in W.T], axis=-1)


def sum_error(size: Array, result: Array | None, W: Array, extra: Any, fmt: Format) -> Array:
    """The rounding error of x W (+ one more term where `extra`): size is the sum of absolute terms.

    Products with 0 and powers of two >= 1 are exact; one term needs no addition; two terms round once,
    relative to their result.
    """
    inexact = ((W != 0) & ((np.frexp(W)[0] != 0.5) | (W < 1))).sum(axis=0)
    k = (W != 0).sum(axis=0) + np.asarray(extra, dtype=int)
    products = np.where(inexact > 0, fmt.u * size + 2 * inexact * fmt.eta, 0)
    single = fmt.u * ((size if result is None else result) + 2.0**-10 * size + products)
    many = times(gammas(np.maximum(k - 1.0, 0), fmt), size + products)
    return products + np.where(k <= 1, 0, np.where(k == 2, single, many))


def columns(W: Matrix) -> list[list[Fraction]]:
    return [list(column) for column in zip(*W, strict=True)]


def exponential_error(distance: Fraction, radius: Fraction, offset: Fraction, fmt: Format) -> tuple[float, float]:
    """Relative error of the computed exp(distance), and absolute error times exp(offset)."""
    with ctx.workprec(96):
        grow = arb(rational(radius)).exp()
        relative = (grow - 1) + 4 * arb(fmt.u) * grow
        value = arb(rational(distance)).exp()
        absolute = value * relative + 2 * arb(fmt.eta)
        return float_above(absolute / value), float_above(absolute * arb(rational(offset)).exp())
