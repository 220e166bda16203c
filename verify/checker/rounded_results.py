"""What an operation of a captured graph reads and leaves in a format of floats, in any evaluation of the contract."""

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce

from flint import arb

from verify.checker.arrays import FLOAT, Array, each
from verify.checker.formats import NAMED, TF32, BinaryFormat, scaled
from verify.checker.graphs import TracedGraph, base_of
from verify.checker.layer_norm import ULPS
from verify.checker.moved import ZERO, Errors, MovedArray, OfArrays, around
from verify.checker.moves import CREATING
from verify.checker.operations import ADDED, MINUS_INFINITY, OPERATIONS, TIMES, logistic, matmul
from verify.checker.reading import NOT_CHECKABLE, require

NO_NUMBER = arb("nan")
Function = tuple[Callable[[arb], arb], Callable[[arb], arb]]


def _function(name: str, slope: Callable[[arb], arb]) -> Function:
    """An operation of the table on a single ball, and its slope."""
    of_arrays: OfArrays = OPERATIONS[name]
    return lambda v: of_arrays(Array(FLOAT, (), [[v]])).balls[0][0], slope


def _slope_of_gelu(x: arb) -> arb:
    return (1 + (x / arb(2).sqrt()).erf()) / 2 + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


SLOPES: dict[str, Callable[[arb], arb]] = {
    "exp": arb.exp, "expm1": arb.exp, "log": lambda x: 1 / x, "log1p": lambda x: 1 / (1 + x),
    "sqrt": lambda x: 1 / (2 * x.sqrt()), "rsqrt": lambda x: -1 / (2 * x * x.sqrt()),
    "reciprocal": lambda x: -1 / (x * x), "tanh": lambda x: 1 - x.tanh() * x.tanh(), "sin": arb.cos,
    "cos": lambda x: -x.sin(),
    "erf": lambda x: 2 * (-x * x).exp() / arb.pi().sqrt(), "sigmoid": lambda x: logistic(x) * logistic(-x),
    "silu": lambda x: logistic(x) * (1 + x * logistic(-x)), "gelu": _slope_of_gelu,
}  # fmt: skip
FUNCTIONS = {name: _function(name, slope) for name, slope in SLOPES.items()}
BEYOND = arb(20)  # torch's softplus of more is its argument
OF_ARGUMENT, OF_ONE = ("gelu", "silu"), ("sin", "cos")  # which are within ULPS u of |x|, and of 1


class RoundedResults:
    """Numbers of a format, whose sums are in an inner one; with the errors kept, of one input at a time.

    Raises: Refusal for what is no number of the format.
    """

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat, are_kept: bool) -> None:
        self.fmt, self.inner, self.errors = fmt, inner, Errors(are_kept)
        self.u, self.v = _once(fmt), _once(inner)
        self.kept = arb(2) ** (3 - 2 * fmt.p - 2)  # of a number that is kept with 2p + 2 bits, some times over

    def stored(self, x: Array) -> MovedArray:
        """Stored numbers, rounded once, in tf32 perhaps again; what is subnormal then may be flushed."""
        once = TF32 if self.fmt.factors else self.fmt

        def near(v: arb) -> arb:
            if not v.is_finite():
                return v
            found = once.as_factor(once.closest(*scaled(float(v))))
            require(all(map(math.isfinite, found)), "a weight overflows in the format", NOT_CHECKABLE)
            is_normal = all(y == 0 or abs(y) >= 2.0**once.least for y in found)
            return reduce(arb.union, map(arb, found if is_normal else [*found, 0.0]))

        return MovedArray(each(near, x), {}, is_stored=True)

    def number(self, x: object) -> MovedArray:
        """A number of Python's, made numbers, whole ones or truth values: of the format, or rounded to it or kept."""

        def near(v: arb) -> arb:
            is_there = v.is_exact() and (
                v == 0 or not v.is_finite() or self._is_normal(float(v)) and arb(float(v)) == v
            )
            return v if is_there else around(v, self.off(v, abs(v).upper()))

        return MovedArray(each(near, x), {}, is_stored=True)

    def _is_normal(self, x: float) -> bool:
        return abs(x) >= 2.0**self.fmt.least and self.fmt.closest(*scaled(x)) == x

    def off(self, middle: arb, size: arb) -> arb:
        """How far a number of at most this size is off that is rounded, or kept with 2p + 2 bits and rounded later.

        Below 2^(e + 1) the numbers of the format are 2^(e + 1 - p) apart or less.
        """
        if middle == MINUS_INFINITY or size == 0:
            return ZERO
        if not size.is_finite():
            return NO_NUMBER
        bits, e = size.upper().man_exp()
        half = arb(2) ** (int(bits).bit_length() + int(e) - 1 - self.fmt.p)
        off = half + size * self.kept + self.fmt.tiny
        return off.upper() if size + off <= self.fmt.largest else NO_NUMBER

    def read(self, x: object) -> MovedArray:
        """Numbers as an operation reads them, which no other one need read alike."""
        if not isinstance(x, MovedArray):
            return self.number(x)
        return x if x.is_stored else self.errors.widened(x, each(self.off, x.mid, x.size))

    def left(self, x: MovedArray, size: Array, roundings: object, stored: int = 0, lost: object = 0) -> MovedArray:
        """What terms that add up to `size` leave: off by so many roundings in a sum, and so many that are stored."""
        top = self.fmt.largest

        @cache
        def share_and_least(n: int) -> tuple[arb, arb]:
            share = (1 + self.v) ** n * (1 + self.u) ** stored - 1
            return share, 2 * n * self.inner.tiny + 2 * stored * self.fmt.tiny

        def off(middle: arb, most: arb, more: arb, n: arb) -> arb:
            if middle == MINUS_INFINITY or most == 0 and more.is_finite():
                return ZERO
            share, least = share_and_least(int(float(n)))
            found = share * most + (least + more) * (1 + share)
            return found.upper() if most + found <= top else NO_NUMBER

        return self.errors.widened(x, each(off, x.mid, size, lost, roundings))

    def terms(self, op: OfArrays, x: MovedArray, y: MovedArray) -> Array:
        """How many terms of each sum of products may be other than 0."""
        return op(*(each(lambda v: arb(int(not v == 0)), side.size) for side in (x, y)))  # noqa: SIM201

    def within(self, x: MovedArray, sizes: Array, roundings: int) -> MovedArray:
        """No number where terms of other sums on the way, rounded so often, may add up to more than the largest one."""
        top = self.fmt.largest / ((1 + self.v) ** roundings * (1 + self.u))
        return self.errors.widened(x, each(lambda s: ZERO if s <= top else NO_NUMBER, sizes))

    def finite(self, x: MovedArray, sizes: Array) -> MovedArray:
        """No number where a term is infinite: others may add up to infinity the other way, in some order."""
        return self.errors.widened(x, each(lambda s: ZERO if s.is_finite() else NO_NUMBER, sizes))

    # ---- sums, products and functions of what is read

    def plus(self, x: MovedArray, y: MovedArray, roundings: int = 1, stored: int = 0) -> MovedArray:
        return self.left(self.errors.linear(ADDED, x, y), ADDED(x.size, y.size), roundings, stored)

    def times(
        self, op: OfArrays, x: MovedArray, y: MovedArray, roundings: object = 1, stored: int = 0, lost: object = 0
    ) -> MovedArray:
        return self.left(self.errors.product(op, x, y), op(x.size, y.size), roundings, stored, lost)

    def matrices(
        self, x: object, y: object, op: OfArrays = matmul, more: int = 0, stored: int = 0, bias: object = None
    ) -> MovedArray:
        """Sums of k products in any order, each rounded as a product and in k - 1 sums, and one more with a bias."""
        x, y = self.read(x), self.read(y)
        terms = x.mid.shape[-1]
        size = op(x.size, y.size)
        found = self.finite(self.times(op, x, y, ADDED(self.terms(op, x, y), 1 + more), stored), size)
        return found if bias is None else self.with_bias(found, bias, size, terms)

    def with_bias(self, x: MovedArray, bias: object, size: Array, terms: int) -> MovedArray:
        """A bias is added to a sum that may have been stored, or is its first term, of which all roundings are."""
        bias = self.read(bias)
        found = self.left(self.plus(self.read(x), bias), bias.size, terms + 1)
        return self.within(found, ADDED(size, bias.size), terms + 1)

    def function(self, name: str, x: MovedArray, more: int = 0) -> MovedArray:
        """A function within ULPS u of its value; `more` roundings besides."""
        found = self.errors.function(*FUNCTIONS[name], x)
        size = x.size if name in OF_ARGUMENT else each(lambda v: 1 + 0 * v, x.size) if name in OF_ONE else found.size
        share = self.of_function(self.fmt.u, self.u, more)

        def off(most: arb) -> arb:
            return (share * most + self.fmt.tiny).upper() if 2 * most <= self.fmt.largest else NO_NUMBER

        return self.errors.widened(found, each(off, size))

    def softplus(self, x: MovedArray) -> MovedArray:
        """log(1 + y) of a computed y = e^x, and x itself above BEYOND, where it is e^-x below that at most.

        As y / (1 + y) <= log(1 + y), a share e of y moves the logarithm by e / (1 - e) of it at most.
        """
        found = self.errors.function(lambda v: v.exp().log1p(), logistic, x)
        once = self.of_function(self.fmt.u, self.u, 1)
        share = (1 + once / (1 - once)) * (1 + once) - 1 if once < 1 else NO_NUMBER

        def off(most: arb, hull: arb) -> arb:
            if not 2 * hull.upper().min(BEYOND).exp() <= self.fmt.largest or not 2 * most <= self.fmt.largest:
                return NO_NUMBER
            kept = ZERO if hull <= BEYOND else (-hull.lower().max(BEYOND)).exp()
            return (share * most + 2 * self.fmt.tiny * (1 + share) + kept).upper()

        return self.errors.widened(found, each(off, found.size, x.hull))

    def of_function(self, u: arb, once: arb, more: int) -> arb:
        """By which share a function, or its inverse after so many operations, is off: at most 1 / (1 - ULPS u) - 1."""
        return (1 + once) ** more / (1 - ULPS * u) - 1 if ULPS * u < 1 else NO_NUMBER

    def quotient(self, x: MovedArray, y: MovedArray) -> MovedArray:
        """x / y, rounded once, or x times the rounded 1 / y."""
        inverse = self.errors.function(*FUNCTIONS["reciprocal"], y)
        found, top = self.errors.product(TIMES, x, inverse), self.fmt.largest
        is_there = each(lambda v: ZERO if v * (1 + self.u) <= top else NO_NUMBER, inverse.size)
        lost = ADDED(each(lambda v: 2 * self.fmt.tiny * (1 + v), x.size), is_there)
        return self.left(found, TIMES(x.size, inverse.size), 3, 3, lost)


def _once(fmt: BinaryFormat) -> arb:
    """What rounding a number does that was kept with 2p + 2 bits, some times over."""
    return (1 + fmt.u) * (1 + arb(2) ** -(2 * fmt.p + 2)) ** 8 - 1


def check_widths(graph: TracedGraph, uses: Sequence[Sequence[int]], fmt: BinaryFormat) -> None:
    """No floats may have fewer bits or a smaller range than those they come from and what they are followed in.

    That is so by whatever dtype an operation is asked for. A tensor without axes widens no other one.
    """
    widths = list[tuple[int, int]]()
    for node, used in zip(graph.nodes, uses, strict=True):
        read = [widths[j] for j in used if graph.nodes[j]["shape"] != [] or node["shape"] == []]
        p, most = (max(sizes, default=0) for sizes in ([q for q, _ in read], [top for _, top in read]))
        own = (NAMED[node["dtype"]][0], NAMED[node["dtype"]][2]) if node["dtype"] in NAMED else (0, 0)
        is_wide = own[0] >= min(fmt.p, p) and own[1] >= min(fmt.most, most)
        is_wide = is_wide or node["dtype"] not in NAMED or base_of(node) in CREATING
        require(is_wide, "program: a cast to fewer bits than the precision has", NOT_CHECKABLE)
        widths.append(own if node["dtype"] is not None else (p, most))
