"""Rows of balls: their sums and means, and whole numbers below them (docs/checker.md)."""

from collections.abc import Iterable, Sequence
from functools import reduce

from flint import arb, arb_mat

from verify.checker.reading import NOT_CHECKABLE, require

BITS, PRECISION, MOST_BITS = 256, 384, 1 << 13
Ends = tuple[int, int]  # whole numbers over 2^BITS, or a weight's over its own power of two


def mean(scores: Sequence[arb], values: arb_mat, numbers: Sequence[int] | None = None) -> list[arb]:
    """The rows of values, each so many times, weighed by e^score."""
    weights, total = _weights(scores, numbers or [1] * len(scores))
    return [x / total for x in (arb_mat([weights]) * values).table()[0]]


def shares(scores: Sequence[arb]) -> list[arb]:
    """e^score over the sum of all."""
    weights, total = _weights(scores, [1] * len(scores))
    return [w / total for w in weights]


def _weights(scores: Sequence[arb], numbers: Sequence[int]) -> tuple[list[arb], arb]:
    """e^(score - the middle of the largest), each so many times, and their sum."""
    top = most_of(x.mid() for x in scores).mid()
    found = [(x - top).exp() * n for x, n in zip(scores, numbers, strict=True)]
    return found, sum(found, arb(0))


def least_of(found: Iterable[arb]) -> arb:
    """The least of balls, and no number where one of them is none: Python's min and max drop what is none."""
    return reduce(arb.min, found)


def most_of(found: Iterable[arb]) -> arb:
    return reduce(arb.max, found)


def plus(x: arb_mat, row: arb_mat) -> arb_mat:
    return x + repeated(row, x.nrows())


def repeated(row: arb_mat, times: int) -> arb_mat:
    return arb_mat(row.table() * times)


def relu(x: arb_mat) -> arb_mat:
    return arb_mat([[y.max(arb(0)) for y in row] for row in x.table()])


def below(x: arb, bits: int = BITS) -> int:
    """The largest whole number over 2^bits that is at most x."""
    found = (x * arb(2) ** bits).lower().floor().unique_fmpz()
    require(found is not None, "a number is too large to be compared", NOT_CHECKABLE)
    return int(found or 0)


def e_to(whole: int) -> arb:
    return (arb(whole) / arb(2) ** BITS).exp()
