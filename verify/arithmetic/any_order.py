"""What any order of evaluation can make of a sum: every computed value as a ball, exact where all partial sums are.

A sum is exact in every order where all terms are multiples of a unit and their absolute values sum to at most 2^p
units: then every partial sum is representable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.balls import Ball, ends, hull, point
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import INFLATION, LEAST, NORMAL, Array, lost_in_a_product

REAL = Format("real", 1024, -1022, float(np.finfo(float).max))  # rounds less than any number that is computed here
WIDE = 16  # radii of more than one such part of the number are followed from both ends
PRODUCTS, STORED = 2, 4  # matrix products in one sum with two biases, and how often a term of it is then stored
NO_UNIT = 1 << 20  # log2 of the unit of zero, which is a multiple of everything


@dataclass(frozen=True)
class _Terms:
    """What is known of the terms of sums: the sum of their absolute values, and how many are not zero.

    All known ones are multiples of 2^unit; `hard` says where a product among them is rounded, `is_known` where none of
    them has a radius. At most `stored` partial results with any one term are stored before the sum is.
    """

    size: Array
    number: Array
    unit: np.ndarray
    hard: np.ndarray
    is_known: np.ndarray
    stored: Array | float = 0.0


@dataclass(frozen=True)
class RoundedArithmetic:
    """The formats of one reading: of stored tensors, of partial sums, and of the factors of matrix products.

    Where it `keeps` factors, they may also be what they are in real arithmetic, so that balls hold exact numbers, too.

    >>> RoundedArithmetic.of(FORMATS["tf32"]).operand.p, RoundedArithmetic.of(FORMATS["tf32"]).stored.p
    (11, 24)
    """

    stored: Format
    inner: Format
    operand: Format
    rounds: bool = True
    keeps: bool = False

    @classmethod
    def real(cls) -> RoundedArithmetic:
        """Real arithmetic: no result or factor is rounded, and what a sum's bound adds is less than any number here."""
        return cls(REAL, REAL, REAL, rounds=False)

    @classmethod
    def of(cls, fmt: Format, accumulate: Format | None = None) -> RoundedArithmetic:
        """tf32 has factors of 11 bits, and float32 otherwise; elsewhere there is only the accumulation to choose.

        Raises: BadInput for an accumulation with fewer bits than the format.
        """
        stored = FORMATS["float32"] if fmt.name == "tf32" else fmt
        inner = stored if accumulate is None else accumulate
        if inner.p < stored.p or inner.largest < stored.largest or inner.tiny > stored.tiny:
            raise BadInput(f"accumulate={inner.name}: holds less than {stored.name}. Leave --accumulate out.")
        return cls(stored, inner, fmt if fmt.name == "tf32" else stored)

    def growth(self, inner: float | np.number | np.ndarray, stored: float | np.number | np.ndarray = 1) -> Array:
        """(1 + u)^n - 1 for n roundings of partial results, and of `stored` results that are then stored.

        The relative error of a product of factors 1 + delta; a result that needs no wider partial sum is stored as is.
        """
        u, v = self.inner.u, self.stored.u
        log = np.asarray(inner, dtype=float) * np.log1p(u)
        if self.inner is not self.stored:
            log = log + np.asarray(stored, dtype=float) * np.log1p(v)
        with np.errstate(over="ignore"):
            result: Array = np.expm1(log) * INFLATION
            return result

    @property
    def rounds_factors(self) -> bool:
        """Whether factors of matrix products are rounded to fewer bits than what is stored: tf32."""
        return self.operand is not self.stored

    @property
    def once(self) -> float:
        """The relative error of one operation whose result is stored: rounded once, or in the wider format before."""
        return self.stored.u if self.inner is self.stored else float(self.growth(1, 1))

    def growth_of_products(
        self, inner: float | np.number | np.ndarray, stored: float | np.number | np.ndarray = 1
    ) -> Array:
        """Bounds the relative error of a sum of products, whose factors may be rounded first. As `growth` where they
        are not.

        (1 + delta) (1 + delta') of two factors is off by at most 2 v + v^2, v their unit round-off.
        """
        growth = self.growth(inner, stored)
        if not self.rounds_factors:
            return growth
        v = self.operand.u
        return growth + (2 * v + v * v) * (1 + growth) * INFLATION

    def underflow(self, operations: float | np.number | np.ndarray, stored: float | np.ndarray = 2) -> Array:
        """Bounds the error from flush-to-zero in a sum with so many `operations`. Each inner result is flushed at most
        once, and so many results that are `stored`: of one matrix product itself, and of its sum with what is added.

        A result that is written as zero has nothing left to lose where it is read, so it is lost once. A sum of n
        products has at most 2 n results, a bias or the residual included: n products and n sums. Later
        roundings scale what is lost as they scale the terms: times 1 + growth.
        """
        n = np.asarray(operations, dtype=float)
        wider = 0.0 if self.inner is self.stored else stored * self.stored.tiny
        return np.where(n > 0, (n * self.inner.tiny + wider) * INFLATION, 0.0)

    def result(self, x: Ball) -> Ball:
        """Encloses a result as it is stored: x rounded to nearest, or kept with 2p + 2 bits or more.

        Rounding is monotone, so its values at the ends bound it.
        """
        if not self.rounds:
            return x
        low, high = ends(x)
        wider = 2.0 ** -(2 * self.stored.p + 2) + (0.0 if self.inner is self.stored else self.inner.u)
        is_kept = (x.rad == 0) & (rounded(x.mid, self.stored) == x.mid) & ~self._may_flush(x.mid)
        low, high = low - wider * np.abs(low), high + wider * np.abs(high)
        low, high = np.minimum(low, rounded(low, self.stored)), np.maximum(high, rounded(high, self.stored))
        low, high = self._with_flushed(low, high)
        return Ball.between(np.where(is_kept, x.mid, low), np.where(is_kept, x.mid, high))

    def factors(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The ends of what numbers between two ends are as factors of a matrix product.

        They are then numbers of the stored format, subnormal ones possibly flushed; in tf32 they are rounded to the
        nearest of 11 bits, half-way cases either way, or not at all.
        """
        if not self.rounds:
            return low, high
        exact, wider = (low, high), 0.0 if self.inner is self.stored else self.inner.u
        low, high = rounded(low - wider * np.abs(low), self.stored), rounded(high + wider * np.abs(high), self.stored)
        low, high = self._with_flushed(low, high)
        if self.operand is not self.stored:
            low = np.minimum(low, rounded(low, self.operand, rest=-1.0))
            high = np.maximum(high, rounded(high, self.operand, rest=1.0))
        if self.keeps:
            low, high = np.minimum(low, exact[0]), np.maximum(high, exact[1])
        return low, high

    def as_operand(self, x: Ball) -> Ball:
        """A computed matrix as a factor of a matrix product."""
        if not self.rounds:
            return x
        is_fit = (x.rad == 0) & (rounded(x.mid, self.operand) == x.mid) & (self.flush_loss(x.mid) == 0)
        if is_fit.all():
            return x
        low, high = ends(x)
        changed = Ball.between(*self.factors(low, high))
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
        return self._computed(real, _Terms(size, terms, unit, hard, is_known))

    def rows(self, W: Array, x: Ball, *added: Array) -> Ball:
        """Every computed value of W x + a + b + .., each row (R, k) of W a sum of its own, of stored numbers W, a, b.

        A product with a weight 0 is no term of a row, whatever its other factor is, if that is finite. Weights are read
        as they are stored. W x may be two matrix products. Where sums have a wider format, all terms are one sum, or
        either product is stored, and then added to the rest: of n such parts, biases among them, each is stored in at
        most n - 1 sums, and first itself, which is exact for what is of the format: a bias, and a number times a power
        of two.
        """
        assert not self.rounds_factors, "weights of one format"
        x = self.as_operand(x)
        real = (point(W) @ x[:, None])[:, 0]
        size = absolute_product(np.abs(W), x.magnitude[:, None])[:, 0]
        is_term = (W != 0) & (x.magnitude > 0)
        hard = (is_term & ~is_power_of_two(W) & (~is_power_of_two(x.mid) | (x.rad > 0))).any(1)
        unit = np.where(is_term, unit_exponent(W) + unit_exponent(x.mid), NO_UNIT).min(1)
        products = is_term.sum(1)
        terms, parts, is_known = products.astype(float), np.minimum(products, PRODUCTS), ~(is_term & (x.rad > 0)).any(1)
        for a in added:
            real, size = real + point(a), (size + np.abs(a)) * INFLATION
            unit, terms, parts = np.minimum(unit, unit_exponent(a)), terms + (a != 0), parts + (a != 0)
        stored = np.maximum(parts - 2 + (hard | (products > 1)), 0)  # the last is that of the result
        of = _Terms(size, terms, unit, hard, is_known, 0.0 if self.inner is self.stored else stored)
        whole = self._computed(real, of)
        is_wide = (x.rad > np.abs(x.mid) / WIDE).any() and np.isfinite(x.rad).all()
        return self._between_corners(whole, of, W, x, *added) if is_wide else whole

    def _between_corners(self, whole: Ball, of: _Terms, W: Array, x: Ball, *added: Array) -> Ball:
        """Every computed value of W x + a + .., which `whole` holds, between those of the least and greatest products.

        Computed from products and terms p, a sum is within sum p -+ (g sum |p| + c), c for underflow. As long as g < 1,
        p - g |p| and p + g |p| increase with p: so both bounds are least or greatest where all p are. That a sum is
        exact at a corner says nothing of the others, and is used only where all factors are known.
        """
        (low, high), bounds = ends(x), []
        for is_least in (True, False):
            corner = np.where((W > 0) == is_least, low, high)
            product = (point(W)[:, None, :] @ point(corner)[:, :, None])[:, 0, 0]
            sizes = (point(np.abs(W))[:, None, :] @ point(np.abs(corner))[:, :, None])[:, 0, 0]
            size = sizes.magnitude * INFLATION
            for a in added:
                product, size = product + point(a), (size + np.abs(a)) * INFLATION
            bounds.append(self._computed(product, replace(of, size=size)))
        (least, _), (_, most), (lowest, highest) = *map(ends, bounds), ends(whole)
        between = Ball.between(np.maximum(least, lowest), np.minimum(most, highest))
        is_narrower = ~of.is_known & np.isfinite(whole.rad) & (self.growth(of.number + 1, of.stored) < 1 / 2)
        is_narrower &= between.rad < whole.rad
        return Ball(np.where(is_narrower, between.mid, whole.mid), np.where(is_narrower, between.rad, whole.rad))

    def one(self, x: Ball) -> Ball:
        """Every computed value of one operation, whose exact result is in x."""
        out = self.result(x)
        return Ball(out.mid, np.where(out.magnitude <= self.stored.largest, out.rad, np.inf))

    def _computed(self, real: Ball, of: _Terms) -> Ball:
        """Every computed value of sums whose real values are given."""
        size, terms = of.size, of.number
        roundings = np.maximum(terms - 1, 0) + of.hard - (self.inner is self.stored)  # the last is that of the result
        growth, is_stored = self.growth(np.maximum(roundings, 0), of.stored), np.asarray(of.stored) > 0
        lost = self.underflow(2 * terms, np.where(is_stored, STORED, 2))
        error = growth * size + np.where(terms > 1, lost * (1 + growth), 0.0)
        is_exact = np.where(is_stored, self.is_representable(size, of.unit), self.is_exact_sum(size, of.unit))
        is_sum_exact = (is_exact & of.is_known) | (terms <= 1)  # the unit is that of known factors
        # a single product of numbers with at most 26 bits is exact in float64 as well, unless it underflows
        is_single = (terms <= 1) & (~of.hard | (self.stored.p <= 26))
        is_mid_exact = is_exact | (is_single & ((terms == 0) | (np.abs(real.mid) >= NORMAL)))
        rad = np.where(is_sum_exact, np.where(of.is_known & is_mid_exact, 0.0, real.rad), real.rad + error * INFLATION)
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
        sizes = a.magnitude, b.magnitude
        size, terms = (sizes[0] + sizes[1]) * INFLATION, (sizes[0] > 0).astype(float) + (sizes[1] > 0)
        unit, is_hard = np.minimum(unit_exponent(a.mid), unit_exponent(b.mid)), np.zeros(size.shape, dtype=bool)
        return self._computed(a + b, _Terms(size, terms, unit, is_hard, (a.rad == 0) & (b.rad == 0)))

    def _may_flush(self, x: Array) -> np.ndarray:
        result: np.ndarray = (x != 0) & (np.abs(x) < self.stored.tiny)
        return result

    def _with_flushed(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The ends, or zero where flushing one moves it outwards."""
        low = np.where(self._may_flush(low), np.minimum(low, 0.0), low)
        return low, np.where(self._may_flush(high), np.maximum(high, 0.0), high)

    def flush_loss(self, W: Array) -> Array:
        """Bounds the error of reading stored numbers: a subnormal one may be read as zero."""
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
        result: np.ndarray = size <= np.ldexp(1.0, np.minimum(unit, 512) + min(self.operand.p, 52))
        return result


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
    result: np.ndarray = (x == 0) | (np.abs(np.frexp(x)[0]) == 0.5)
    return result


def power_at_or_below(x: Array) -> Array:
    """The largest power of two that is at most x, which is not negative; 0 and infinity are their own.

    >>> power_at_or_below(np.array([0.0, 0.75, 8.0, np.inf])).tolist()
    [0.0, 0.5, 8.0, inf]
    """
    return np.where((x > 0) & (x < np.inf), np.ldexp(0.5, np.frexp(x)[1]), x)


def times(a: Array, b: Array) -> Array:
    """a b of non-negative numbers, off by a factor of at most 1 + U, and not below it where it underflows.

    Infinity times zero is zero: an exact zero has no error.
    """
    with np.errstate(invalid="ignore"):
        return np.where((a == 0) | (b == 0), 0.0, a * b + LEAST)


def absolute_product(x: Array, W: Array) -> Array:
    """An upper bound on x W for non-negative matrices, 0 only where all products are 0."""
    found: Array = (x @ W) * INFLATION
    lost = lost_in_a_product(x, W)
    if not lost:
        return found
    return found + np.where((x > 0).astype(float) @ (W > 0) > 0, lost, 0.0)
