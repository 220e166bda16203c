"""Tensors whose numbers errors move, each by so much: what linear maps, products, functions and softmax make of them.

A number is one of the ball at its place, plus the sum of g eps over errors, each |eps| at most 1 and the same for all
tensors of one evaluation. What is not linear adds an error of its own. Nothing here knows of formats: docs/checker.md.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from flint import arb

from verify.checker.arrays import FLOAT, Array, each, lines, permuted
from verify.checker.ball_rows import most_of
from verify.checker.operations import MINUS_INFINITY, total, weights_of

ZERO, HALF = arb(0), arb(1) / 2
Rows = Mapping[int, Sequence[arb]]
OfArrays = Callable[..., Array]


@dataclass(frozen=True)
class MovedArray:
    """Balls, and a row of numbers g for each error; `is_stored` says that they are numbers of the format."""

    mid: Array
    moved: Rows
    is_stored: bool = False

    @cached_property
    def reach(self) -> Array:
        """How far errors move each number from its ball."""
        sums = [total([*map(abs, column)]).upper() for column in zip(*self.moved.values(), strict=True)]
        return Array(FLOAT, self.mid.shape, [sums or [ZERO] * self.mid.size])

    @cached_property
    def hull(self) -> Array:
        """A ball for each number."""
        return each(around, self.mid, self.reach) if self.moved else self.mid

    @cached_property
    def size(self) -> Array:
        """What no absolute value exceeds."""
        return each(lambda v: abs(v).upper(), self.hull)


def around(middle: arb, off: arb) -> arb:
    """All numbers no further off than that."""
    return middle if off == 0 else middle + off.union(-off)  # what is no number equals nothing


class Errors:
    """The errors of one evaluation of one input, or without `are_kept` of many at once, whose balls take them all."""

    def __init__(self, are_kept: bool) -> None:
        self.are_kept, self.numbers = are_kept, count()

    def widened(self, x: MovedArray, off: Array) -> MovedArray:
        """Each number moved further, by an error of its own."""
        if not self.are_kept:
            return MovedArray(each(around, x.mid, off), x.moved)
        middle = each(lambda m, e: m if e.is_finite() else arb("nan"), x.mid, off)
        added = {i: e.upper() for i, e in enumerate(off.balls[0]) if e.upper() != 0 and e.is_finite()}
        zeros = [ZERO] * off.size
        rows = {next(self.numbers): [*zeros[:i], e, *zeros[i + 1 :]] for i, e in added.items()}
        return MovedArray(middle, {**x.moved, **rows})

    def of_balls(self, x: Array) -> MovedArray:
        """Balls, each moved by itself."""
        if not self.are_kept or all(v.is_exact() for v in x.balls[0]):
            return MovedArray(x, {})
        return self.widened(MovedArray(each(lambda v: v.mid(), x), {}), each(lambda v: v.rad().upper(), x))

    def linear(self, op: OfArrays, *given: MovedArray) -> MovedArray:
        """What is linear in all that is given: the same of every row."""
        names = [*dict.fromkeys(i for x in given for i in x.moved)]
        parts = [Array(FLOAT, x.mid.shape, [x.moved.get(i, [ZERO] * x.mid.size) for i in names]) for x in given]
        rows = op(*parts).balls if names else []
        return MovedArray(
            op(*(x.mid for x in given)), dict(zip(names, rows, strict=True)), all(x.is_stored for x in given)
        )

    def product(self, op: OfArrays, x: MovedArray, y: MovedArray) -> MovedArray:
        """What is linear in each of two: the product of both distances is an error of its own."""
        by_x = self.linear(lambda a: op(a, y.mid), x)
        by_y = self.linear(lambda b: op(x.mid, b), y).moved
        rows = dict(by_x.moved)
        for i, row in by_y.items():
            rows[i] = [*map(operator.add, rows[i], row)] if i in rows else row
        found = MovedArray(by_x.mid, rows)
        return self.widened(found, op(x.reach, y.reach)) if x.moved and y.moved else found

    def function(self, f: Callable[[arb], arb], slope: Callable[[arb], arb], x: MovedArray) -> MovedArray:
        """f(x + d) = f(x) + f'(between) d: one slope is followed, and what the others differ by is an error."""
        middle = each(f, x.mid)
        if not x.moved:
            return MovedArray(middle, {})
        between = each(slope, x.hull)
        steep = each(lambda s: s.mid(), between)
        found = self.linear(lambda a: each(operator.mul, a, steep), MovedArray(x.mid, x.moved))
        off = each(lambda s, m, r: (abs(s - m) * r).upper(), between, steep, x.reach)
        return self.widened(MovedArray(middle, found.moved), off)

    def relu(self, x: MovedArray) -> MovedArray:
        """max(x, 0) is slope x, and between 0 and the larger of -slope low and (1 - slope) high above it."""
        if not x.moved:
            return MovedArray(each(lambda v: v.max(ZERO), x.mid), {}, x.is_stored)
        steep = each(_share_above, x.hull)
        gap = each(lambda s, v: _gap(s, v.lower(), v.upper()), steep, x.hull)
        found = self.linear(lambda a: each(operator.mul, a, steep), x)
        raised = each(lambda v, g: v + HALF * g, found.mid, gap)
        return self.widened(MovedArray(raised, found.moved), each(lambda g: (HALF * g).upper(), gap))

    def softmax(self, x: MovedArray, dim: int, off: Callable[[arb], arb], empty: arb) -> MovedArray:
        """Softmax along an axis, each exponential off by a share of at most off(distance from the largest score).

        Let the scores move by d from s, p be the weights at s, and t = d - sum of p d, |t| <= rho. Then p' is
        p e^t / (sum of p e^t), a sum from 1 to 1 + S with S = sum of p phi(rho), phi(r) = e^r - 1 - r, so that
        |p' - p (1 + t)| <= p max(phi(rho), S e^rho). A share a_j of each exponential moves p' <= p e^rho by at most
        p' (a_j + a) / (1 - a), with a = sum of p' a_j, or the largest. Scores of exactly -inf have the weight 0.
        """
        sides = lines(x.mid, dim)
        names, along = [*x.moved], lines(Array(FLOAT, x.mid.shape, [*x.moved.values()] or [[ZERO] * x.mid.size]), dim)
        n, out, errors = sides.shape[-1], list[list[arb]](), list[list[arb]]()
        rows = {i: list[arb]() for i in names}
        for line in sides.balls:
            mids, offs = list[arb](), list[arb]()
            for start in range(0, len(line), n):
                scores, moves = line[start : start + n], [row[start : start + n] for row in along.balls if names]
                weights, turned, off_by = _weights(scores, moves, off, empty)
                mids, offs = [*mids, *weights], [*offs, *off_by]
                for i, moved in zip(names, turned, strict=True):
                    rows[i] += moved
            out.append(mids)
            errors.append(offs)
        back = _back(len(x.mid.shape), dim)
        found = MovedArray(Array(FLOAT, sides.shape, out), rows)
        return self.linear(lambda a: permuted(a, back), self.widened(found, Array(FLOAT, sides.shape, errors)))


def _share_above(v: arb) -> arb:
    """The slope of the line from (low, 0) to (high, high) that ReLU lies below."""
    if v <= 0 or v >= 0:
        return arb(int(not v <= 0))
    return (v.upper() / (v.upper() - v.lower())).mid()


def _gap(slope: arb, low: arb, high: arb) -> arb:
    return ZERO if slope in (0, 1) and (low >= 0 or high <= 0) else (-slope * low).max((1 - slope) * high).upper()


def _is_masked(score: arb, moves: Sequence[arb]) -> bool:
    """Whether a score is exactly -inf; what is no number is not, though it does not compare as another one."""
    return bool(score == MINUS_INFINITY) and all(d.is_finite() for d in moves)


def _weights(
    scores: Sequence[arb], moves: Sequence[Sequence[arb]], off: Callable[[arb], arb], empty: arb
) -> tuple[list[arb], list[list[arb]], list[arb]]:
    """The weights at the scores' middles, how each error moves them, and how far they are off besides."""
    n, there = len(scores), [j for j, s in enumerate(scores) if not _is_masked(s, [d[j] for d in moves])]
    if not there:
        return [empty] * n, [[ZERO] * n for _ in moves], [ZERO] * n
    p = dict(zip(there, weights_of([scores[j].mid() for j in there]), strict=True))
    loose = {j: scores[j].rad().upper() for j in there}
    turned, apart = list[list[arb]](), total([p[k] * loose[k] for k in there])
    extra = {j: loose[j] + apart - 2 * p[j] * loose[j] for j in there}
    rho = {**extra}
    reach = {j: total([loose[j], *(abs(d[j]) for d in moves)]) for j in there}
    for d in moves:
        middle = total([p[k] * d[k] for k in there])
        row = {j: d[j] - middle for j in there}
        rho = {j: rho[j] + abs(row[j]) for j in there}
        turned.append([p[j] * row[j] if j in row else ZERO for j in range(n)])
    grown = {j: rho[j].upper().exp() for j in there}
    phi = {j: grown[j] - 1 - rho[j] for j in there}
    spread = total([p[k] * phi[k] for k in there])
    top = most_of([scores[j].mid() + reach[j] for j in there])
    share = {j: off((top - scores[j].mid() + reach[j]).upper()) for j in there}
    mean = total([p[k] * grown[k] * share[k] for k in there]).min(most_of(share.values()))
    errors = list[arb]()
    for j in range(n):
        if j not in p:
            errors.append(ZERO)
            continue
        own = grown[j] * (share[j] + mean) / (1 - mean) if mean < HALF else arb("nan")
        errors.append((p[j] * (extra[j] + phi[j].max(spread * grown[j]) + own)).upper())
    return [p.get(j, ZERO) for j in range(n)], turned, errors


def _back(rank: int, dim: int) -> list[int]:
    """The axes in their order again, of which one was put last."""
    axis = dim % max(rank, 1)
    return [*range(axis), rank - 1, *range(axis, rank - 1)] if rank else []
