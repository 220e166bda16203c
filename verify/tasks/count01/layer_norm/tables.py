"""What each head adds to a logit difference, on every triple of a law: float64 tables with an error radius.

z(n) = sum over t of m_t w_t delta_t / sum of m_t w_t. Shares are taken around the delta of the heaviest digit, so
that a head that looks at one digit alone keeps its small differences. What the floats leave open is settled with
as many digits as it takes, or exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from flint import arb, ctx, fmpq

from verify.arithmetic.exact_reals import Combination, Undecided, exponentials, total
from verify.arithmetic.slack import ENLARGE_LONG, FAINT, Array, U
from verify.tasks.count01.layer_norm.numbers import SEEN, HeadNumbers, ModelNumbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.task import EQUALS, ONE, TWO, ZERO, Triple

# A quotient of two sums of five products: each weight, count product and difference within 3 U, each sum within 4 U,
# the quotient within U, so 20 U at most, of the sum of the terms' sizes.
QUOTIENT_ERROR = 32 * U
SMALLEST_NORMALISER = 1e-200  # below it, weights lost to underflow could matter
# What underflow takes from a quotient: five products of a weight, a term and a count below 2^50, 2^-1074 and the count
# each, over a normaliser above 1e-200 > 2^-665: less than 2^-1074 2^4 2^50 2^665.
LOST_IN_QUOTIENTS = 2.0**-350
BITS = (1 << 7, 1 << 9, 1 << 11, 1 << 13)  # that are tried one after the other
EXPANDED_HEADS = 4  # ties of more heads than these are not looked for: the expansion would be too long
MOST_KEPT = 1 << 26  # numbers that are kept between subsets of heads: half a gigabyte
T = TypeVar("T")


class KeptTables(Generic[T]):
    """Keeps what several subsets of heads need, as long as it does not fill the memory."""

    def __init__(self) -> None:
        self._found: dict[Hashable, T] = {}
        self._size = 0

    def get(self, key: Hashable, size: int, compute: Callable[[], T]) -> T:
        """Returns what was computed for the key, or computes it. `size` is how many numbers it has."""
        if key in self._found:
            return self._found[key]
        found = compute()
        if self._size + size <= MOST_KEPT:
            self._found[key] = found
            self._size += size
        return found


@dataclass(frozen=True)
class Column:
    """One head's share of a logit difference over a law: centre + values, each value within `radius`.

    `size` is at least every |value| that is a number.
    """

    centre: Surd
    values: Array
    radius: float
    size: float


def corners(counts: Array) -> Array:
    """The corners (at most 8) of the smallest box around counts (N, kinds), where quotients of forms are extreme.

    >>> corners(np.array([[1.0, 4, 7, 2], [1, 5, 7, 2]])).tolist()
    [[1.0, 4.0, 7.0, 2.0], [1.0, 5.0, 7.0, 2.0]]
    """
    if not len(counts):
        return counts
    ends = [sorted({float(line.min()), float(line.max())}) for line in counts.T]
    return np.array(list(product(*ends)))


def column(head: HeadNumbers, deltas: Sequence[Surd], counts: Array, around: Array | None = None) -> Column:
    """The shares of one head, where token t adds deltas[t] (t over SEEN); NaN where floats do not reach.

    `around` are the corners of the counts, where they are at hand.
    """
    with ctx.workprec(128):
        weights = head.nearest_weights(EQUALS, SEEN)
    heaviest = max((ZERO, ONE, TWO), key=lambda t: head.scores[EQUALS][t].nearest())
    centre = deltas[SEEN.index(heaviest)]
    off = np.array([(x - centre).nearest() for x in deltas])
    sizes = shares(weights, np.abs(off), corners(counts) if around is None else around)
    if np.isnan(sizes).any():
        sizes = shares(weights, np.abs(off), counts)
    values = shares(weights, off, counts)
    radius = QUOTIENT_ERROR * largest(sizes) * ENLARGE_LONG + (LOST_IN_QUOTIENTS if off.any() else 0.0)
    return Column(centre, values, radius, largest(values))


def nearest(x: fmpq) -> float:
    """The nearest float of a rational number, infinite beyond the largest."""
    with ctx.workprec(128):
        return float(arb(x).mid())


def shares(weights: Array, terms: Array, counts: Array) -> Array:
    """The means of the terms by multiplicity times weight; NaN where floats do not reach."""
    with np.errstate(all="ignore"):
        D = counts @ weights
        values = counts @ (weights * terms)
        values /= np.where(D > SMALLEST_NORMALISER, D, np.nan)
    values[np.isinf(values)] = np.nan
    return values


def largest(values: Array) -> float:
    """The largest absolute value of those that are numbers: what is NaN decides nothing and needs no radius."""
    if not values.size:
        return 0.0
    found = max(float(np.fmax.reduce(values)), -float(np.fmin.reduce(values)))
    return 0.0 if np.isnan(found) else min(found, float(np.finfo(float).max))


class Differences:
    """(expected logit) - (rival logit) of the heads of a model after "=", for any subset of heads.

    `expected` and `rival` are classes; the subset's score also has the part that no head changes.
    """

    def __init__(self, model: ModelNumbers, counts: Array, expected: int, rival: int | None) -> None:
        self.model, self.counts, self.expected, self.rival = model, counts, expected, rival
        self.deltas = [
            [model.difference(h, expected, rival, t) if rival is not None else head.logits[t][expected] for t in SEEN]
            for h, head in enumerate(model.heads)
        ]
        constant = model.constant[EQUALS]
        self.constant = constant[expected] - (constant[rival] if rival is not None else 0)
        self._lines: dict[tuple[int, int], tuple[list[arb], list[arb]]] = {}
        self._exact: dict[int, tuple[list[Combination], list[Combination]]] = {}
        self._corners, self._kept = corners(counts), KeptTables[Column]()

    def column(self, h: int) -> Column:
        """One head's share on all triples."""
        return self._kept.get(
            h, len(self.counts), lambda: column(self.model.heads[h], self.deltas[h], self.counts, self._corners)
        )

    def score(self, heads: Sequence[int], *, is_centred: bool = False) -> tuple[Array, float]:
        """The subset's scores and their radius; centred, constants that shift all scores alike are left out."""
        out, size, radius = np.zeros(len(self.counts)), 0.0, 0.0
        for h in heads:
            found = self.column(h)
            out += found.values
            size, radius = size + found.size, radius + found.radius
        if not is_centred:
            shift = self.shift(heads)
            out += shift
            size += abs(shift)
        # the shift and the differences of each head are nearest floats, which may have underflowed
        return out, (radius + (len(heads) + 3) * 2 * U * size) * ENLARGE_LONG + len(heads) * FAINT

    def shift(self, heads: Sequence[int]) -> float:
        """The constant and the heads' centres: the nearest float, from exact numbers."""
        exact = Surd.rational(self.constant)
        for h in heads:
            exact = exact + self.column(h).centre
        return exact.nearest()

    def ball(self, heads: Sequence[int], n: Triple, bits: int) -> arb:
        """The subset's score on one triple, without the constant."""
        with ctx.workprec(bits):
            out = arb(0)
            for h in heads:
                weights, numerators = self._at(h, bits)
                D, N = (v[0] + n[0] * v[1] + n[1] * v[2] + n[2] * v[3] for v in (weights, numerators))
                out += N / D
            return out

    def _at(self, h: int, bits: int) -> tuple[list[arb], list[arb]]:
        cache = self._lines
        if (h, bits) not in cache:
            head = self.model.heads[h]
            with ctx.workprec(bits + 64):
                w = [head.weight(t, EQUALS, bits + 64) for t in SEEN]
                terms = [x * delta.ball(bits + 64) for x, delta in zip(w, self.deltas[h], strict=True)]
                cache[h, bits] = ([w[0] + w[4], *w[1:4]], [terms[0] + terms[4], *terms[1:4]])
        return cache[h, bits]

    def sign(self, heads: Sequence[int], n: Triple) -> int:
        """The sign of the subset's score on one triple, constant included.

        Raises: Undecided where 2^13 bits do not show it and it is not shown to be a tie.
        """
        for bits in BITS:
            ball = self.ball(heads, n, bits)
            with ctx.workprec(bits):
                ball = ball + arb(self.constant)
            if ball > 0 or ball < 0:
                return 1 if ball > 0 else -1
            if bits == BITS[0] and self.is_tie(heads, n):
                return 0
        raise Undecided(f"heads {list(heads)} at (n0, n1, n2) = {n}: too close to a tie to decide")

    def is_tie(self, heads: Sequence[int], n: Triple) -> bool:
        """Whether the score is exactly zero, by expanding the heads' common denominator; False if not looked for."""
        acting = self.acting(heads)
        if len(acting) > EXPANDED_HEADS or not all(self.model.heads[h].is_rational for h in heads):
            return False
        flat = sum((self.deltas[h][0].value for h in heads if h not in acting), self.constant)
        numerator, denominator = exponentials({0: 1}) * flat, exponentials({0: 1})
        for h in acting:
            N, D = self.fraction(h, n)
            numerator, denominator = numerator * D + denominator * N, denominator * D
        return numerator.is_zero

    def acting(self, heads: Sequence[int]) -> list[int]:
        """The heads whose share depends on the triple: not all tokens add the same."""
        return [h for h in heads if not self._is_flat[h]]

    @cached_property
    def _is_flat(self) -> list[bool]:
        return [len({tuple(sorted(d.terms.items())) for d in deltas}) == 1 for deltas in self.deltas]

    def fraction(self, h: int, n: Triple) -> tuple[Combination, Combination]:
        """One head's numerator and normaliser on one triple, exactly."""
        if h not in self._exact:
            w = [self.model.heads[h].exact_weight(t, EQUALS) for t in SEEN]
            self._exact[h] = w, [x * d.value for x, d in zip(w, self.deltas[h], strict=True)]
        counts, (weights, terms) = (1, *n, 1), self._exact[h]
        numerator = total(x * k for x, k in zip(terms, counts, strict=True))
        return numerator, total(w * k for w, k in zip(weights, counts, strict=True))
