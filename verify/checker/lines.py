"""Lines below and above a function between two ends, in whole numbers of units of 2^-K, rounded outwards."""

from collections.abc import Callable
from typing import NamedTuple

from flint import arb, ctx

from verify.checker.reading import NOT_CHECKABLE, require

K, BITS, PIECES = 48, 128, 4
UNIT = 1 << K
Ends = tuple[int, int]
Pair = tuple[int, int]  # a place and its token


class NoBound(Exception):
    """A function has no bound between the ends given."""


def ends(x: arb, bits: int) -> tuple[int, int]:
    """Whole numbers over 2^bits between which a ball lies."""
    require(x.is_finite(), "a number on a cell has no bound", NOT_CHECKABLE)
    low, high = (x * arb(2) ** bits).lower().floor(), (x * arb(2) ** bits).upper().ceil()
    least, greatest = low.unique_fmpz(), high.unique_fmpz()
    require(least is not None and greatest is not None, "a number on a cell has no bound", NOT_CHECKABLE)
    return int(least), int(greatest)  # type: ignore[arg-type]


def near(x: arb, bits: int = K, size: int = 0) -> int:
    """A whole number over 2^bits that a ball is no further from than two units and 2^-256 of a size."""
    low, high = ends(x, bits)
    require(high - low <= 2 + (size >> 256), "a number depends on the tokens at other places", NOT_CHECKABLE)
    return low


class BoundingLines(NamedTuple):
    """For each end, lower and upper: a slope for each argument, and what is added; and the ends of the results."""

    slopes: tuple[tuple[int, ...], tuple[int, ...]]
    added: Ends
    results: Ends

    @property
    def is_exact(self) -> bool:
        return self.slopes[0] == self.slopes[1] and self.added[0] == self.added[1]


def logistic(z: arb) -> arb:
    return 1 / (1 + (-z).exp())


def normal(z: arb) -> arb:
    return (1 + (z / arb(2).sqrt()).erf()) / 2


def density(z: arb) -> arb:
    return (-z * z / 2).exp() / (2 * arb.pi()).sqrt()


def inner(z: arb) -> arb:
    """What the tanh of GELU's approximation is taken of."""
    return (2 / arb.pi()).sqrt() * (z + arb("0.044715") * z * z * z)


def gelu_slope(z: arb) -> arb:
    t = inner(z).tanh()
    return (1 + t) / 2 + z / 2 * (1 - t * t) * (2 / arb.pi()).sqrt() * (1 + 3 * arb("0.044715") * z * z)


Function = Callable[[arb], arb]
SMOOTH: dict[str, tuple[Function, Function]] = {  # each with its derivative
    "gelu": (lambda z: z * normal(z), lambda z: normal(z) + z * density(z)),
    "gelu tanh": (lambda z: z / 2 * (1 + inner(z).tanh()), gelu_slope),
    "silu": (lambda z: z * logistic(z), lambda z: logistic(z) * (1 + z * logistic(-z))),
    "sigmoid": (logistic, lambda z: logistic(z) * logistic(-z)),
    "tanh": (arb.tanh, lambda z: 1 - z.tanh() * z.tanh()),
    "exp": (arb.exp, arb.exp),
    "cube": (lambda z: z * z * z, lambda z: 3 * z * z),
    "sqrt": (arb.sqrt, lambda z: 1 / (2 * z.sqrt())),
    "rsqrt": (lambda z: 1 / z.sqrt(), lambda z: -1 / (2 * z * z.sqrt())),
    "reciprocal": (lambda z: 1 / z, lambda z: -1 / (z * z)),
}
POSITIVE = ("sqrt", "rsqrt", "reciprocal")  # whose arguments must be
CONVEX = ("exp", "rsqrt", "reciprocal")
SHARES = ("gelu", "gelu tanh", "silu")
BOUNDED = {"tanh": (-UNIT, UNIT), "sigmoid": (0, UNIT)}
WIDE, LARGEST = 8 * UNIT, arb(2) ** 64


def relu(low: int, high: int) -> BoundingLines:
    results = max(low, 0), max(high, 0)
    if low >= 0 or high <= 0:
        slope = (UNIT if low >= 0 else 0,)
        return BoundingLines((slope, slope), (0, 0), results)
    chord = -((-high << K) // (high - low))
    above = max(-(chord * low >> K), high - (chord * high >> K))
    return BoundingLines(((UNIT if high > -low else 0,), (chord,)), (0, above), results)


def square(low: int, high: int) -> BoundingLines:
    """Above the tangent at the middle, below the chord, whose slopes are the same."""
    slope, ends = (low + high,), (low * low, high * high)
    least = 0 if low <= 0 <= high else min(ends) >> K
    return BoundingLines(
        (slope, slope), (-((low + high) ** 2) // 4 >> K, -(low * high >> K)), (least, -(-max(ends) >> K))
    )


def product(low: int, high: int, least: int, most: int) -> BoundingLines:
    """x y = b x + a y - a b + (x - a) (y - b), a and b in the middle."""
    a, b = (low + high) // 2, (least + most) // 2
    error = max(high - a, a - low) * max(most - b, b - least)
    every = [x * y for x in (low, high) for y in (least, most)]
    added = -(a * b + error) >> K, -(a * b - error >> K)
    return BoundingLines(((b, a), (b, a)), added, (min(every) >> K, -(-max(every) >> K)))


def wide(name: str, low: int, high: int) -> BoundingLines:
    """Between ends far apart: z times a share is up to 3/8 below ReLU, as |z| e^-|z| is; or constants."""
    if name in BOUNDED:
        return BoundingLines(((0,), (0,)), BOUNDED[name], BOUNDED[name])
    slopes, (_, above), (least, most) = relu(low, high)
    return BoundingLines(slopes, (-3 * UNIT // 8, above), (least - 3 * UNIT // 8, most))


def smooth(name: str, low: int, high: int) -> BoundingLines:
    """Along the chord; of a convex function above the tangent at the middle, else what is left, in pieces.

    On a piece a function is its value in the middle, and at most its derivative times the distance from there.
    """
    f, slope_of = SMOOTH[name]
    if name in POSITIVE and low <= 0:
        raise NoBound
    with ctx.workprec(BITS):
        ends_, middle = (_of(low), _of(high)), _of((low + high) // 2)
        chord = (f(ends_[1]) - f(ends_[0])) / (ends_[1] - ends_[0]) if high > low else slope_of(middle)
        p = _floor(chord)
        if name in CONVEX:
            tangent, value = slope_of(middle), f(middle)
            q = _floor(tangent)
            under = [value + tangent * (z - middle) - _of(q) * z for z in ends_]
            over = [f(z) - _of(p) * z for z in ends_]
        else:
            q, marks = p, [low + (high - low) * i // PIECES for i in range(PIECES + 1)]
            under = over = [_on_piece(f, slope_of, _of(p), *pair) for pair in zip(marks, marks[1:], strict=False)]
        least, most = min(map(_floor, under)), max(-_floor(-x) for x in over)
    results = min(q * x >> K for x in (low, high)) + least, max(-(-p * x >> K) for x in (low, high)) + most
    return BoundingLines(((q,), (p,)), (least, most), results)


def _of(x: int) -> arb:
    return arb(x) * arb(2) ** -K


def _on_piece(f: Function, slope_of: Function, p: arb, low: int, high: int) -> arb:
    """All values of f(z) - p z between two ends."""
    middle = _of((low + high) // 2)
    piece = _of(low).union(_of(high)).union(middle)
    return f(middle) - p * middle + (slope_of(piece) - p) * (piece - middle)


def _floor(x: arb) -> int:
    """The whole number of units at or below the lower end of a ball."""
    found = (x.lower() * UNIT).floor().unique_fmpz() if x.is_finite() and abs(x) < LARGEST else None
    if found is None:
        raise NoBound
    return int(found)


def lines(function: str, *ends_: int) -> BoundingLines:
    """Lines of a function of one number or two between the ends of each."""
    exact: dict[str, Callable[..., BoundingLines]] = {"relu": relu, "square": square, "product": product}
    if function in exact:
        return exact[function](*ends_)
    low, high = ends_
    is_wide = function in (*BOUNDED, *SHARES) and high - low > WIDE
    return wide(function, low, high) if is_wide else smooth(function, low, high)


FUNCTIONS = {"relu", "square", *SMOOTH}
