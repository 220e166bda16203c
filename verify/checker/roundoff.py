"""How far computed logits are from those in real arithmetic, on all inputs at once and in any order of the sums.

Every operation is followed on sizes and errors alone (docs/checker.md). So whatever margin real arithmetic is shown to
have, less what comes out here, is one that every evaluation in the format has.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.formats import ULPS, BinaryFormat, format_of, in_words
from verify.checker.reading import NOT_CHECKABLE, as_text, require
from verify.checker.statement import compare, header, verdict_of
from verify.checker.table import IN_DTYPE, TABLES, walk

READING = "dtype, any order"
HALF = "half of the margin"  # what is not shown of it where `still_due` is asked step by step
FLUSHED = 32  # smallest normal numbers that a share of a softmax may lose at most
HIGHEST = "float32 matrix products are float32: torch.set_float32_matmul_precision is at 'highest'"


class Reach(NamedTuple):
    """Rows of numbers: exact or computed, they are at most `size`, and the computed ones within `error` of the exact.

    Where none of them is rounded, they are multiples of 2^unit. Sizes of 0 are exact.
    """

    size: arb_mat
    error: arb_mat
    unit: int | None = None


class Roundoff:
    """The operations of a forward pass in one format. Raises: Refusal where a number may overflow."""

    def __init__(self, fmt: BinaryFormat) -> None:
        self.fmt = fmt

    def rounded(self, W: fmpq_mat) -> fmpq_mat:
        """Weights as they are rounded once."""
        rows = self.fmt.of_weights([[int(x.p) / int(x.q) for x in row] for row in W.tolist()])
        return fmpq_mat(W.nrows(), W.ncols(), [fmpq(*x.as_integer_ratio()) for row in rows for x in row])

    def total(self, parts: Sequence[tuple[Reach, fmpq_mat]], others: Sequence[Reach], terms: int = 0) -> Reach:
        """One sum, in any order, of all x W and the others, with `terms` more that the others are sums of."""
        products = [Product(x.size, x.error, x.unit, exact(W)) for x, W in parts]
        return self._summed(products, others, terms)

    def _summed(self, products: Sequence["Product"], others: Sequence[Reach], more: int = 0) -> Reach:
        """Each of n terms other than 0 is rounded as a product and in n - 1 sums, and once more as a factor.

        If all terms are multiples of a unit, and their sizes together no more than 2^p of it, nothing is rounded.
        """
        sized = [(x.size, x.error, x.terms, x.unit) for x in products]
        sized += [(x.size, x.error, is_there(x.size), x.unit) for x in others]
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
        turned = Reach(k.size.transpose(), k.error.transpose(), k.unit)
        found = self._summed([Product(q.size, q.error, q.unit, turned)], [])
        if root is None:
            return found
        size, grown = found.size * (1 / root), self.fmt.growth(4)
        off = arb_mat([[x * grown + 8 * self.fmt.tiny * (1 + y) for x, y in zip(*rows, strict=True)]
                       for rows in zip(size.tolist(), found.size.tolist(), strict=True)])  # fmt: skip
        return Reach(size + off, found.error * (1 / root) + off)

    def softmax(self, scores: Reach, values: Reach, slots: int) -> Reach:
        """A mean of any rows of the values at up to so many slots, weighed by e^score: one row, which bounds them all.

        Weights w (1 + a_j), |a_j| <= a, move a mean by sum of w a_j (v - mean) over sum of w (1 + a_j), at most
        a / (1 - a) times the largest |v|.
        """
        a = self.tilt(scores)
        return self.mean(values, slots, a / (1 - a), bool(largest(scores.size) == 0))

    def tilt(self, scores: Reach) -> arb:
        """By which share of itself an exponential is off: less the largest computed score m, which changes no mean."""
        fmt, unit, top = self.fmt, scores.unit, largest(scores.size)
        is_exact = unit is not None and unit >= fmt.least and bool(2 * top <= arb(2) ** (unit + fmt.p))
        e = arb(0) if is_exact else largest(scores.error) + fmt.growth(2) * 2 * top + 4 * fmt.tiny
        a = arb(0) if top == 0 else e.exp() * (1 + ULPS * fmt.u) * (1 + fmt.growth(2)) - 1  # each is 1 where all are 0
        require(bool(a < 0.5), "a softmax is too far off in the format", NOT_CHECKABLE)
        return a

    def mean(self, values: Reach, slots: int, moved: arb, is_plain: bool = False) -> Reach:
        """The computed mean of values: `moved` by a share of the largest one, and what its sums and quotients do.

        Sums and quotients are off by a share d, divided before or after. In a plain one all weights are 1.
        """
        fmt, tiny, g = self.fmt, self.fmt.tiny, self.fmt.growth(slots + 1)
        g = arb(0) if is_plain and slots <= 2**fmt.p else g
        require(bool(g < 0.5), "a softmax is too far off in the format", NOT_CHECKABLE)
        d = (1 + g / (1 - g)) * (1 + fmt.growth(3)) - 1
        lost = FLUSHED * slots * tiny
        error, V = list[arb](), rows_hull(values.size)
        require(fmt.holds(4 * slots * (1 + largest(V))), "a softmax may overflow in the format", NOT_CHECKABLE)
        for v, x in zip(V.entries(), rows_hull(values.error).entries(), strict=True):
            of_sum = 2 * self._off((1 + d + lost) * v, slots) * (1 + fmt.growth(3))
            error.append((moved + d + lost) * v + (1 + d + lost) * x + of_sum + 4 * tiny)
        return Reach(V + arb_mat([error]), arb_mat([error]))

    def weighed(self, weights: Reach, values: Reach, slots: int) -> Reach:
        """The sum of any weight times any row of the values over so many slots: one row."""
        top, off, V = largest(weights.size), largest(weights.error), rows_hull(values.size)
        error = V * (off * slots) + rows_hull(values.error) * (top * slots)
        unit = None if weights.unit is None or values.unit is None else weights.unit + values.unit
        found = Reach(V * (top * slots), error, unit)
        return self._summed([], [found], slots)


class Product:
    """The terms of x y: their size together, how far off they are, how many are not 0, and the unit of all."""

    def __init__(self, size: arb_mat, error: arb_mat, unit: int | None, y: Reach) -> None:
        self.size, self.error = size * y.size, error * y.size + size * y.error
        self.terms = is_there(size) * is_there(y.size)
        self.unit = None if unit is None or y.unit is None else unit + y.unit


def slack(logits: Reach) -> float:
    """By how much a difference of two computed logits may be less than the exact one."""
    return math.nextafter(float((2 * largest(logits.error) * (1 + arb(2) ** -40)).upper()), math.inf)


def still_due(margin: float, off: float, is_stepwise: bool = False) -> float:
    """What real arithmetic must show: the margin, up to what the roundings may do, and no less than that.

    Where other steps' roundings are in what it shows already, half of the margin: the other half is on trust (HALF).

    Raises: Refusal where this leaves less than half of the margin: then nothing is decided.
    """
    require(2 * off <= margin, f"roundings are bounded by {off:.3g}, more than half of the margin", NOT_CHECKABLE)
    return max(off, margin / 2 if is_stepwise else margin - off)


def exact(W: fmpq_mat) -> Reach:
    """Stored numbers, which are what they are: each a whole number over a power of two."""
    sizes = arb_mat(W.nrows(), W.ncols(), [arb(abs(x)) for x in W.entries()])
    unit = 1 - max([int(x.q).bit_length() for x in W.entries()], default=1)
    return Reach(sizes, arb_mat(W.nrows(), W.ncols()), unit)


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


# ---- the statement


def opened(task: str, c: dict[str, Any]) -> tuple[str, BinaryFormat | None, list[str]]:
    """The verdict, the format of one in a dtype, and the fields taken on trust. Raises: Refusal."""
    verdict, fmt = reading_of(c)
    kind = f"{task}, {verdict.lower()}{IN_DTYPE * (fmt is not None)}"
    require(kind in TABLES, "wrong inputs in a dtype are not checked", NOT_CHECKABLE)
    if fmt is not None and verdict == "REFUTED":
        case = c.get("counterexample")
        is_named = isinstance(case, dict) and "run_as" in case or "counterexample.run_as" not in TABLES[kind]
        require(is_named, "a wrong input whose evaluation is not named is not run again", NOT_CHECKABLE)
        compare(c, {"inputs_covered": "1"})
    return verdict, fmt, walk(c, kind)


def reading_of(c: dict[str, Any]) -> tuple[str, BinaryFormat | None]:
    """The verdict, and the format of one in a dtype; None in real arithmetic."""
    if as_text(c.get("reading")) != as_text(READING):
        return header(c), None
    require(as_text(c.get("method")) == '"certified"', "method: is not checked in a dtype", NOT_CHECKABLE)
    verdict, p = verdict_of(c), c.get("parameters")
    said = [p.get("precision"), p.get("accumulate")] if isinstance(p, dict) else [None] * 2
    fmt, inner = format_of(said[0]), format_of(said[0] if said[1] is None else said[1])
    known = fmt is not None and inner is not None
    require(known, "parameters: the precision or accumulate is not checked", NOT_CHECKABLE)
    assert fmt is not None and inner is not None
    is_wider = inner.p >= fmt.p and inner.least <= fmt.least and inner.most >= fmt.most
    require(is_wider, "parameters: sums in a narrower format are not checked", NOT_CHECKABLE)
    return verdict, fmt


def contract(
    p: dict[str, Any], sums: str = "", more: Sequence[str] = (), softmax: str = "", small: str = ""
) -> list[str]:
    """What a certificate in a dtype must say of its evaluations."""
    name, inner = (in_words(x) for x in (p["precision"], p.get("accumulate") or p["precision"]))
    inside = f"every operation in {name}"
    if inner != name:
        inside = f"what is inside a matrix product or a softmax in {inner}, stored in {name}"
    of_exp = f"exp is within 2 units in the last place of its value, and exp(0) = 1{small}"
    return [
        f"weights rounded once to {name}; {inside}, to nearest or keeping more bits",
        *[HIGHEST] * (name == "float32"),
        f"sums in any order, fused or not; subnormals kept or flushed{sums}",
        *more,
        f"softmax subtracts the maximum{softmax}; {of_exp}",
    ]
