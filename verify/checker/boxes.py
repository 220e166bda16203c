"""Sums of quotients of forms in three counts, shown to be above zero on a box: each is extreme at a box's corners."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from flint import arb, ctx, fmpq

from verify.checker.ball_rows import least_of
from verify.checker.exponentials import BITS, Sum, ball
from verify.checker.reading import NOT_CHECKABLE, require

MOST_BOXES = 400_000

Row = tuple[int, ...]
Quotient = tuple[Sequence[Sum], Sequence[Sum]]  # coefficients of 1, n0, n1, n2 above and below


class Box(NamedTuple):
    """n0 and n1 from lo to hi, n2 from m to M, and of all three at most `total`."""

    lo: int
    hi: int
    m: int
    M: int
    total: int | None = None


def all_positive(quotients: Sequence[Quotient], constant: fmpq, box: Box, is_more: bool) -> bool:
    """Whether constant + sum of quotients is above zero on all triples with n1 > n0, or on all others.

    Single ones are decided by digits. Raises: Refusal where these do not tell.
    """
    with_balls = {bits: [([ball(x, bits) for x in N], [ball(x, bits) for x in D]) for N, D in quotients]
                  for bits in BITS}  # fmt: skip

    def shown(low: Row, high: Row) -> bool:
        bits = BITS if low == high else BITS[:1]
        if any(bool(_bound(with_balls[k], constant, low, high, is_more, k) > 0) for k in bits):
            return True
        turned = [([-x for x in N], D) for N, D in with_balls[BITS[-1]]]
        is_less = low != high or bool(_bound(turned, -constant, low, high, is_more, BITS[-1]) > 0)
        require(is_less, f"the sign at {low} does not show", NOT_CHECKABLE)
        return False

    return all_shown(box, is_more, shown)


def all_shown(box: Box, is_more: bool, shown: Callable[[Row, Row], bool]) -> bool:
    """Whether all triples with n1 > n0, or all others, are in boxes that are shown.

    They are (smaller count, difference, n2) in a box that is cut until a bound decides, down to single ones.
    """
    lo, hi, m, M, total = box
    least, done = (1 if is_more else 0), 0
    boxes: list[tuple[Row, Row]] = [((lo, least, m), (hi - least, hi - lo, M))]
    while boxes:
        low, (k, difference, n2) = boxes.pop()
        spare = 2 * (hi - lo) + M if total is None else total - 2 * low[0] - low[1] - low[2]
        high = (
            min(k, hi - low[1], low[0] + spare // 2),
            min(difference, hi - low[0], low[1] + spare),
            min(n2, low[2] + spare),
        )
        done += 1
        require(done <= MOST_BOXES, f"more than {MOST_BOXES} boxes are not decided again", NOT_CHECKABLE)
        if any(x > y for x, y in zip(low, high, strict=True)) or shown(low, high):
            continue
        if low == high:
            return False
        boxes += _halves(low, high)
    return True


def _bound(
    quotients: Sequence[tuple[Sequence[arb], Sequence[arb]]],
    constant: fmpq,
    low: Row,
    high: Row,
    is_more: bool,
    bits: int,
) -> arb:
    """A lower bound over a box of (smaller count, difference, n2)."""
    with ctx.workprec(bits):
        out = arb(constant)
        for N, D in quotients:
            values = []
            for k, difference, n2 in product(*({x, y} for x, y in zip(low, high, strict=True))):
                n0, n1 = (k, k + difference) if is_more else (k + difference, k)
                top, bottom = (v[0] + n0 * v[1] + n1 * v[2] + n2 * v[3] for v in (N, D))
                values.append((top / bottom).lower())
            out = out + least_of(values)
        return arb(out.lower())


def _halves(low: Row, high: Row) -> Iterator[tuple[Row, Row]]:
    """The box cut in two where it is longest, relative to the counts."""
    axis = max(range(3), key=lambda i: (high[i] - low[i]) / (low[i] + 1))
    middle = (low[axis] + high[axis]) // 2 if low[axis] else math.isqrt(high[axis])
    middle = min(max(middle, low[axis]), high[axis] - 1)
    yield low, tuple(middle if i == axis else x for i, x in enumerate(high))
    yield tuple(middle + 1 if i == axis else x for i, x in enumerate(low)), high


def ends(
    is_more: bool, domain: tuple[int, int | None, int, int | None, int | None]
) -> Iterator[tuple[int, int, int, int]]:
    """The vertices (1, n0, n1, n2) of one side, and the rays (0, ...) along which it goes on: linear forms that are not
    negative there are not negative on it."""
    lo, hi, m, M, _ = domain
    step = int(is_more)
    if hi is not None and hi - lo < step:
        return
    first = (lo, lo + 1) if is_more else (lo, lo)
    found = [first] if hi is None else [first, (lo, hi) if is_more else (hi, lo), (hi - step, hi)]
    for n0, n1 in found:
        for n2 in (m,) if M is None else (m, M):
            yield 1, n0, n1, n2
    if hi is None:
        yield from ((0, 1, 1, 0), (0, 0, 1, 0) if is_more else (0, 1, 0, 0))
    if M is None:
        yield 0, 0, 0, 1
