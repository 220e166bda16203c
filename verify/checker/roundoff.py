"""How far computed logits are from those in real arithmetic, on all inputs at once and in any order of the sums.

Every operation is followed on sizes and errors alone (docs/checker.md). So whatever margin real arithmetic is shown to
have, less what comes out here, is one that every evaluation in the format has.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.formats import ULPS, BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require

FLUSHED = 32  # smallest normal numbers that a share of a softmax may lose at most


class Reach(NamedTuple):
    """Rows of numbers: exact or computed, they are at most `size`, and the computed ones within `error` of the exact.

    Where none of them is rounded, they are multiples of 2^unit. Sizes of 0 are exact. Stored numbers are known. Those
    that are factors are read as they are.
    """

    size: arb_mat
    error: arb_mat
    unit: int | None = None
    stored: fmpq_mat | None = None
    is_factor: bool = False


class Roundoff:
    """The operations of a forward pass in one format. Raises: Refusal where a number may overflow.

    Of a mean of rows it keeps one row that bounds them all, or `by_rows` the rows, and what is said of them holds of
    their means.
    """

    def __init__(self, fmt: BinaryFormat, by_rows: bool = False) -> None:
        self.fmt, self.by_rows = fmt, by_rows

    def rounded(self, W: fmpq_mat) -> fmpq_mat:
        """Weights as they are rounded once."""
        rows = self.fmt.of_weights([[int(x.p) / int(x.q) for x in row] for row in W.tolist()])
        return fmpq_mat(W.nrows(), W.ncols(), [fmpq(*x.as_integer_ratio()) for row in rows for x in row])

    def total(self, parts: Sequence[tuple[Reach, fmpq_mat]], others: Sequence[Reach], terms: int = 0) -> Reach:
        """One sum, in any order, of all x W and the others, with `terms` more that the others are sums of."""
        products = [self._product(x, exact(W)) for x, W in parts]
        return self._summed(products, others, terms)

    def product(self, x: Reach, y: Reach) -> Reach:
        """The matrix product x y."""
        return self._summed([self._product(x, y)], [])

    def read(self, x: Reach) -> Reach:
        """Numbers as a matrix product's factors: in tf32 rounded to 11 bits, if they may have more, or not at all.

        What is rounded to fewer bits is still a multiple of the unit.
        """
        bits = self.fmt.factors
        if bits is None or x.is_factor or (x.unit is not None and bool(largest(x.size) <= arb(2) ** (x.unit + bits))):
            return x
        require(bool(largest(x.size) < arb(2) ** self.fmt.most), "a factor may overflow in the format", NOT_CHECKABLE)
        off = self._half_steps(x.size, bits) if x.stored is None else self._rest(x.stored)
        return Reach(x.size + off, x.error + off, x.unit)

    def _half_steps(self, sizes: arb_mat, bits: int) -> arb_mat:
        """By how much numbers of these sizes differ from the nearest of so many bits: 2^(e - bits) below 2^(e + 1)."""
        steps = [arb(0) if x == 0 else arb(2) ** (math.frexp(float(x.upper().max(self.fmt.tiny)))[1] - 1 - bits)
                 for x in sizes.entries()]  # fmt: skip
        return arb_mat(sizes.nrows(), sizes.ncols(), steps)

    def centred(self, W: fmpq_mat) -> tuple[fmpq_mat, Reach]:
        """Stored numbers as factors: each in the middle of itself and what it is rounded to, and half of that off."""
        few = [fmpq(*self.fmt.factor(int(x.p) / int(x.q)).as_integer_ratio()) for x in W.entries()]
        middle = (W + fmpq_mat(W.nrows(), W.ncols(), few)) / 2
        off = arb_mat(W.nrows(), W.ncols(), [arb(abs(x)) for x in (W - middle).entries()])
        x = exact(middle)
        return middle, Reach(x.size + off, off, exact(W).unit, middle if largest(off) == 0 else None, True)

    def _rest(self, W: fmpq_mat) -> arb_mat:
        """By how much stored numbers differ from what they are as factors."""
        rows = [[(x, self.fmt.factor(int(x.p) / int(x.q))) for x in row] for row in W.tolist()]
        return arb_mat([[abs(arb(x) - arb(y)) for x, y in row] for row in rows])

    def _product(self, x: Reach, y: Reach) -> "Product":
        x, y = self.read(x), self.read(y)
        return Product(x, y, self._there(x.size) * is_there(y.size))

    def _there(self, size: arb_mat) -> arb_mat:
        """1 where a number may be other than 0: of a mean of rows where it may be in any of them."""
        return _repeated(is_there(rows_hull(size)), size.nrows()) if self.by_rows else is_there(size)

    def _summed(self, products: Sequence["Product"], others: Sequence[Reach], more: int = 0) -> Reach:
        """Each of n terms other than 0 is rounded as a product and in n - 1 sums, and once more as a factor.

        If all terms are multiples of a unit, and their sizes together no more than 2^p of it, nothing is rounded.
        """
        sized = [(x.size, x.error, x.terms, x.unit) for x in products]
        sized += [(x.size, x.error, self._there(x.size), x.unit) for x in others]
        rows = max(size.nrows() for size, *_ in sized)
        size, error, terms = (added([_repeated(x, rows) for x in column]) for column in [*zip(*sized, strict=True)][:3])
        units = [part[3] for part in sized]
        if None not in units:
            unit = min(x for x in units if x is not None)
            if unit >= self.fmt.least and bool(largest(size) <= arb(2) ** (unit + self.fmt.p)):
                return Reach(size, error, unit)
        off = arb_mat([[self._off(x, int(n.unique_fmpz() or 0) + more) for x, n in zip(*row, strict=True)]
                       for row in zip(size.tolist(), terms.tolist(), strict=True)])  # fmt: skip
        found = Reach(size + off, error + off)
        require(self.fmt.holds(largest(found.size)), "a sum may overflow in the format", NOT_CHECKABLE)
        return found

    def _off(self, size: arb, terms: int) -> arb:
        return self.fmt.of_sum(size, terms + 1, terms + 2) if terms else arb(0)

    def scores(self, q: Reach, k: Reach, root: arb | None = None) -> Reach:
        """All q k, divided by a root, or times its reciprocal: both rounded, the product, and it as a factor."""
        stored = None if k.stored is None else k.stored.transpose()
        turned = Reach(k.size.transpose(), k.error.transpose(), k.unit, stored, k.is_factor)
        found = self.product(q, turned)
        if root is None:
            return found
        size, grown = found.size * (1 / root), self.fmt.growth(4)
        off = arb_mat([[x * grown + 8 * self.fmt.tiny * (1 + y) for x, y in zip(*rows, strict=True)]
                       for rows in zip(size.tolist(), found.size.tolist(), strict=True)])  # fmt: skip
        return Reach(size + off, found.error * (1 / root) + off)

    def softmax(self, scores: Reach, values: Reach, slots: int) -> Reach:
        """A mean of any rows of the values at up to so many slots, weighed by e^score.

        Weights w (1 + a_j), |a_j| <= a, move a mean by sum of w a_j (v - mean) over sum of w (1 + a_j), at most
        a / (1 - a) times the largest |v|.
        """
        a = self.tilt(scores)
        return self.mean(values, slots, a / (1 - a), bool(largest(scores.size) == 0))

    def tilt(self, scores: Reach) -> arb:
        """By which share of itself an exponential is off at most."""
        a = _most([x for row in self.tilts(scores) for x in row])
        require(bool(a < 0.5), "a softmax is too far off in the format", NOT_CHECKABLE)
        return a

    def tilts(self, scores: Reach, apart: Sequence[Sequence[arb]] = ()) -> list[list[arb]]:
        """By which share a of itself each exponential is off: less the largest computed score, which changes no mean.

        This difference is not rounded where the scores are multiples of a unit, be they off as factors were or not;
        else it is at most what the scores are apart, as given, or by their sizes.
        The third rounding has 1 / (1 + a) below what is computed, too: (1 - 4 u) (1 - u)^2 (1 + 4 u) (1 + u)^3 > 1.
        """
        fmt, unit, top = self.fmt, scores.unit, largest(scores.size)
        if top == 0:  # each is 1
            return [[arb(0)] * scores.size.ncols()] * scores.size.nrows()
        is_exact = unit is not None and unit >= fmt.least and bool(2 * top <= arb(2) ** (unit + fmt.p))
        share, lost = (arb(0), arb(0)) if is_exact else (fmt.growth(2), 4 * fmt.tiny)
        grown = (1 + ULPS * fmt.u) * (1 + fmt.growth(3))
        rows = zip(scores.error.tolist(), apart or [[2 * top] * scores.size.ncols()] * scores.size.nrows(), strict=True)
        return [[(x + share * far + lost).exp() * grown - 1 for x, far in zip(*row, strict=True)] for row in rows]

    def mean(self, values: Reach, slots: int, moved: arb, is_plain: bool = False) -> Reach:
        """The computed mean of values: `moved` by a share of the largest one, and what its sums and quotients do.

        Sums and quotients are off by a share d, divided before or after. In a plain one all weights are 1.
        """
        values, fmt, tiny, g = self.read(values), self.fmt, self.fmt.tiny, self.fmt.growth(slots + 1)
        g = arb(0) if is_plain and slots <= 2**fmt.p else g
        require(bool(g < 0.5), "a softmax is too far off in the format", NOT_CHECKABLE)
        d = (1 + g / (1 - g)) * (1 + fmt.growth(3)) * (1 + (arb(2) ** -fmt.factors if fmt.factors else 0)) - 1
        lost = FLUSHED * slots * tiny
        most = rows_hull(values.size), rows_hull(values.error)
        require(fmt.holds(4 * slots * (1 + largest(most[0]))), "a softmax may overflow in the format", NOT_CHECKABLE)
        size, off = (values.size, values.error) if self.by_rows else most
        error = arb_mat([[(moved + d) * v + (1 + d) * x + lost * (V + X) + 4 * tiny
                          + 2 * self._off((1 + d) * v + lost * V, slots) * (1 + fmt.growth(3))
                          for v, x, V, X in zip(*rows, *(x.entries() for x in most), strict=True)]
                         for rows in zip(size.tolist(), off.tolist(), strict=True)])  # fmt: skip
        return Reach(size + error, error)

    def weighed(self, weights: Reach, values: Reach, slots: int) -> Reach:
        """The sum of any weight times any row of the values over so many slots."""
        weights, values = self.read(weights), self.read(values)
        unit = None if weights.unit is None or values.unit is None else weights.unit + values.unit
        size, off = rows_hull(values.size), rows_hull(values.error)
        w, x = largest(weights.size), largest(weights.error)
        return self._summed([], [Reach(slots * w * size, slots * (w * off + x * size), unit)], slots)


class Product:
    """The terms of x y: their size together, how far off they are, how many are not 0, and the unit of all."""

    def __init__(self, x: Reach, y: Reach, terms: arb_mat) -> None:
        self.size, self.error, self.terms = x.size * y.size, x.error * y.size + x.size * y.error, terms
        self.unit = None if x.unit is None or y.unit is None else x.unit + y.unit


def slack(logits: Reach) -> float:
    """By how much a difference of two computed logits may be less than the exact one: by both errors in one row."""
    found = arb(0)
    for row in logits.error.tolist():
        first = second = arb(0)
        for x in row:
            first, second = first.max(x), second.max(first.min(x))
        found = found.max(first + second)
    return math.nextafter(float((found * (1 + arb(2) ** -40)).upper()), math.inf)


def exact(W: fmpq_mat) -> Reach:
    """Stored numbers, which are what they are: each a whole number over a power of two."""
    sizes = arb_mat(W.nrows(), W.ncols(), [arb(abs(x)) for x in W.entries()])
    unit = 1 - max([int(x.q).bit_length() for x in W.entries()], default=1)
    return Reach(sizes, arb_mat(W.nrows(), W.ncols()), unit, W)


def is_there(sizes: arb_mat) -> arb_mat:
    """1 where a number may be other than 0."""
    return arb_mat([[int(x != 0) if x.is_exact() else 1 for x in row] for row in sizes.tolist()])


def added(parts: Sequence[arb_mat]) -> arb_mat:
    return sum(parts[1:], parts[0])


def _repeated(x: arb_mat, rows: int) -> arb_mat:
    """The rows, or one row for each of them."""
    return x if x.nrows() == rows else arb_mat(x.tolist() * rows)


def rows_hull(x: arb_mat) -> arb_mat:
    """Of each column the largest number."""
    return arb_mat([[_most(column) for column in zip(*x.tolist(), strict=True)]])


def largest(x: arb_mat) -> arb:
    return _most(x.entries())


def _most(numbers: Sequence[arb]) -> arb:
    found = arb(0)
    for x in numbers:
        found = found.max(x)
    return found
