"""One layer's attention where no score depends on a digit: shares by position, and the terms of the stream's sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import arb, ctx, fmpq

from constructions.adder.digits import Digits
from verify.arithmetic.any_order import RoundedArithmetic, is_power_of_two
from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.exact_reals import rational
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import INFLATION, Array
from verify.arithmetic.softmax import Arguments, computed_ends, total_error
from verify.arithmetic.stored import matrix, numbers
from verify.tasks.addition.columns import DigitQuery, Range, Terms

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder, AdderLayer

Ratio = tuple[int, int]  # numerator and denominator


class Unfit(Exception):
    """A model that this reduction does not speak of; the message says why."""


@dataclass(frozen=True)
class Direction:
    """One direction of the stream at one answer's column: the attention's part of it, and how far it is computed off.

    The computed number is off by at most `relative` times the sum of absolute terms (`size`), plus `absolute`, plus a
    rounding of the result itself.
    """

    attended: DigitQuery
    size: DigitQuery | None = None
    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Stream:
    """The stream before the neurons: per column, the embeddings of the tokens that may stand there, and `lanes`.

    Lanes are the directions that attention writes; `directions[i]` has one entry for each.
    """

    sums: Digits
    bits: int
    lanes: tuple[int, ...]
    embedded: list[dict[int, list[fmpq]]]
    directions: list[list[Direction]]


def exactly(x: float) -> fmpq:
    """The number itself.

    Raises: Unfit for what is none, where numbers of float64 became too large.
    """
    if not math.isfinite(x):
        raise Unfit("numbers beyond the range of float64")
    return rational(x)


def stream_of(model: Adder, sums: Digits, arithmetic: RoundedArithmetic | None = None) -> Stream:
    """The stream in exact terms; with an arithmetic, in computed ones.

    Raises: Unfit where scores depend on digits, or where rounding touches more than scores, softmax and sums.
    """
    check_reads_no_digit(model, sums)
    layer = model.blocks[0]
    W_O = numbers(layer.W_O)
    lanes = tuple(int(lane) for lane in np.nonzero((W_O != 0).any((0, 1)))[0])
    bits = 96 + int(np.ceil(sums.n * np.log2(sums.B)))
    tokens = tokens_at(sums)
    coefficients = _coefficients(model, tokens, lanes, arithmetic)
    directions = []
    for i in range(sums.n + 1):
        heads = [_shares(model, sums, h, i, bits, arithmetic) for h in range(len(W_O))]
        directions.append(
            [
                _direction(sums, i, [c[lane] for c in coefficients], heads, W_O[:, :, lane], bits, arithmetic)
                for lane in lanes
            ]
        )
    E, P = numbers(model.E), numbers(model.positions)
    embedded = [
        {t: [exactly(e) + exactly(x) for e, x in zip(E[t], P[q], strict=True)] for t in tokens[q]}
        for q in map(sums.query, range(sums.n + 1))
    ]
    return Stream(sums, bits, lanes, embedded, directions)


def check_normal(model: Adder, arithmetic: RoundedArithmetic) -> None:
    """Raises Unfit for a stored number that overflows, or is subnormal: it may be flushed to zero where it is read."""
    for W in model.parameters():
        size = np.abs(numbers(W))
        if not np.isfinite(size).all():
            raise Unfit("a stored number overflows in this format")
        if ((size > 0) & (size < arithmetic.stored.tiny)).any():
            raise Unfit("a stored number is subnormal in this format")


def tokens_at(sums: Digits) -> list[list[int]]:
    """The tokens that may stand at each position."""
    fixed = {sums.n: sums.plus, 2 * sums.n + 1: sums.equals}
    return [[fixed[pos]] if pos in fixed else list(range(sums.B)) for pos in range(sums.length)]


def check_reads_no_digit(model: Adder, sums: Digits) -> None:
    """Raises Unfit unless queries and keys have weight zero in every direction in which digits are embedded."""
    if len(model.blocks) != 1:
        raise Unfit("the model has several layers")
    if not model.has_skip:
        raise Unfit("the model has no skip connection")
    layer = model.blocks[0]
    digits = (numbers(model.E)[: sums.B] != 0).any(0)
    reads = (numbers(layer.W_Q) != 0).any((0, 2)) | (numbers(layer.W_K) != 0).any((0, 2))
    if (digits & reads).any():
        raise Unfit("scores depend on digits")


def _coefficients(
    model: Adder, tokens: list[list[int]], lanes: tuple[int, ...], arithmetic: RoundedArithmetic | None
) -> list[dict[int, list[list[Ratio]]]]:
    """By head, lane, position and token: (x W_V) W_O, what a share of one would add to the lane."""
    layer = model.blocks[0]
    E, P = numbers(model.E), numbers(model.positions)
    rows = [(pos, t) for pos, here in enumerate(tokens) for t in here]
    if arithmetic is not None:
        _check_values_are_exact(layer, np.array([E[t] + P[pos] for pos, t in rows]), arithmetic)
    x = matrix(E[[t for _, t in rows]]) + matrix(P[[pos for pos, _ in rows]])
    out = []
    for W_V, W_O in zip(numbers(layer.W_V), numbers(layer.W_O), strict=True):
        table = x * matrix(W_V) * matrix(W_O[:, list(lanes)])
        by_lane: dict[int, list[list[Ratio]]] = {}
        for column, lane in enumerate(lanes):
            by_lane[lane] = [[] for _ in tokens]
            for r, (pos, _) in enumerate(rows):
                entry = table[r, column]
                by_lane[lane][pos].append((int(entry.p), int(entry.q)))
        out.append(by_lane)
    return out


def _check_values_are_exact(layer: AdderLayer, x: Array, arithmetic: RoundedArithmetic) -> None:
    if (rounded(x, arithmetic.stored) != x).any():
        raise Unfit("the sum of embedding and position is rounded")
    if arithmetic.flush_loss(x).any():
        raise Unfit("the sum of embedding and position is subnormal in this format")
    for W_V in numbers(layer.W_V):
        if arithmetic.product(Ball.exact(x), Ball.exact(W_V)).rad.any():
            raise Unfit("values are rounded")


@dataclass(frozen=True)
class Shares:
    """One head's shares at one query, by position, in units of 2^-bits; and the errors that follow in its sum.

    `relative` bounds the error of the sum of shares times values, and `small` holds the mass of the shares that are
    so small that adding them costs at most twice themselves.
    """

    ranges: list[Range]
    relative: float = 0.0
    small: float = 0.0


def _shares(model: Adder, sums: Digits, head: int, i: int, bits: int, arithmetic: RoundedArithmetic | None) -> Shares:
    q = sums.query(i)
    weights = _weights(model, sums, head, q, bits, arithmetic)
    low, high = sum(w for w, _ in weights), sum(w for _, w in weights)
    one = 1 << bits
    if not low:
        raise Unfit("an exponential is not known well enough")
    if arithmetic is None:
        return Shares([(a * one // (high - b + a), -(-b * one // (low - a + b))) for a, b in weights])
    # A sum of k large terms and small ones that add up to r: each addition of large parts errs by u, each of a small
    # part to a large one by at most that part (rounding to nearest), and twice that covers sums of small parts.
    is_large = [b > (high >> (arithmetic.inner.p + 8)) for _, b in weights]
    small = sum(b for (_, b), large in zip(weights, is_large, strict=True) if not large) / low * INFLATION
    k = sum(is_large)
    division = 2 * float(arithmetic.growth(1))
    total = float(total_error(arithmetic, k, stored=1)) + 4 * small + division
    low, high = _scaled(low, 1 - total)[0], _scaled(high, 1 + total)[1]
    if low <= 0:
        raise Unfit("the sum of exponentials is rounded too much")
    ranges = [(a * one // high, -(-b * one // low)) for a, b in weights]
    return Shares(ranges, float(arithmetic.growth_of_products(k + 1)), small)


def _scaled(x: int, factor: float) -> Range:
    p, q = Fraction(factor).as_integer_ratio()
    return x * p // q, -(-x * p // q)


def _weights(
    model: Adder, sums: Digits, head: int, q: int, bits: int, arithmetic: RoundedArithmetic | None
) -> list[Range]:
    """exp(score - largest score) of the keys up to position q, in units of 2^-bits."""
    layer, P = model.blocks[0], numbers(model.positions)
    x = P[: q + 1].copy()
    E = numbers(model.E)
    x[sums.n] += E[sums.plus]
    if q > 2 * sums.n:
        x[2 * sums.n + 1] += E[sums.equals]
    W_Q, W_K = numbers(layer.W_Q[head]), numbers(layer.W_K[head])
    reads = np.nonzero((W_Q != 0).any(1) | (W_K != 0).any(1))[0]
    if arithmetic is None:
        rows = _exact_rows(model, sums, q)[:, reads]
        scores = (matrix(rows[q:]) * matrix(W_Q[reads])) * (matrix(rows) * matrix(W_K[reads])).transpose()
        return _exponentials([scores[0, j] for j in range(q + 1)], bits)
    if (rounded(x, arithmetic.stored) != x).any():
        raise Unfit("the sum of embedding and position is rounded")
    keys = arithmetic.product(Ball.exact(x), Ball.exact(W_K))
    query_ball = arithmetic.product(Ball.exact(x[q:]), Ball.exact(W_Q))
    return _computed_exponentials(arithmetic.product(query_ball, keys.T), bits, arithmetic)


def _exact_rows(model: Adder, sums: Digits, q: int) -> Array:
    """Position and fixed token's embedding where they do not meet in a direction, else Unfit."""
    x = numbers(model.positions)[: q + 1].copy()
    for pos, token in ((sums.n, sums.plus), (2 * sums.n + 1, sums.equals)):
        if pos <= q:
            added = numbers(model.E)[token]
            total = x[pos] + added
            if any(Fraction(a) + Fraction(b) != Fraction(c) for a, b, c in zip(x[pos], added, total, strict=True)):
                raise Unfit("embedding and position of a sign do not add up in float64")
            x[pos] = total
    return x


def _exponentials(scores: list[fmpq], bits: int) -> list[Range]:
    largest = max(scores)
    with ctx.workprec(bits + 32):
        known = {score: _integers(arb(score - largest).exp(), bits) for score in set(scores)}
    return [known[score] for score in scores]


def _computed_exponentials(scores: Ball, bits: int, arithmetic: RoundedArithmetic) -> list[Range]:
    """Computed exponentials over exp(largest end of a score - m), m being the maximum that is subtracted.

    Each is what is computed of that of its argument, which is at most 0.
    """
    if not np.isfinite(scores.rad).all():
        raise Unfit("a score overflows")
    found, top = Arguments.of(scores, arithmetic, is_always=True), arb(float(ends(scores)[1].max()))
    tiny = arb(arithmetic.stored.tiny)
    out = []
    with ctx.workprec(bits + 32):
        for mid, off, is_top in zip(scores.mid[0], found.off[0], found.is_top[0], strict=True):
            apart = arb(float(mid)) - top
            low, high = (apart - arb(float(off))).exp(), (apart + arb(float(off))).min(arb(0)).exp()
            least, most = (low, high) if is_top else computed_ends(low, high, arithmetic.stored, tiny, tiny)
            out.append((max(0, _integers(least, bits)[0]), _integers(most, bits)[1]))
    return out


def _integers(x: arb, bits: int) -> Range:
    scaled = x * arb(2) ** bits
    low, high = scaled.lower().floor().unique_fmpz(), scaled.upper().ceil().unique_fmpz()
    if low is None or high is None:
        raise Unfit("a score is too large for its exponential")
    return int(low), int(high)


def _direction(
    sums: Digits,
    i: int,
    coefficients: list[list[list[Ratio]]],
    heads: list[Shares],
    W_O: Array,
    bits: int,
    arithmetic: RoundedArithmetic | None,
) -> Direction:
    attended = _query(sums, i, _terms(sums, i, coefficients, heads))
    if arithmetic is None:
        return Direction(attended)
    positive = [[[(abs(p), r) for p, r in here] for here in head] for head in coefficients]
    size = _query(sums, i, _terms(sums, i, positive, heads))
    written = [h for h in range(len(heads)) if (W_O[h] != 0).any()]
    entries = int((W_O != 0).sum())
    roundings = max(0, entries - 1) + int(not is_power_of_two(W_O).all())
    relative = max(heads[h].relative for h in written)
    if roundings or arithmetic.rounds_factors:
        relative += float(arithmetic.growth_of_products(roundings, 2)) * (1 + relative)
    largest = max(abs(Fraction(p, r)) for head in coefficients for here in head for p, r in here)
    small = max(heads[h].small for h in written)
    losses = float(arithmetic.underflow(8 * sums.length)) * (1 + float(np.abs(W_O).sum())) * (1 + float(largest))
    return Direction(attended, size, relative * INFLATION, (4 * small * float(largest) + losses) * INFLATION)


def _terms(sums: Digits, i: int, coefficients: list[list[list[Ratio]]], heads: list[Shares]) -> list[Terms]:
    """By position up to the query, by token: the attention's terms in units of 2^-bits."""
    out: list[Terms] = []
    for pos in range(sums.query(i) + 1):
        here = [(0, 0)] * len(coefficients[0][pos])
        for by_position, shares in zip(coefficients, heads, strict=True):
            low, high = shares.ranges[pos]
            for t, (p, r) in enumerate(by_position[pos]):
                if p:
                    a, b = (low, high) if p > 0 else (high, low)
                    here[t] = (here[t][0] + a * p // r, here[t][1] - (-b * p // r))
        out.append(here)
    return out


def _query(sums: Digits, i: int, terms: list[Terms]) -> DigitQuery:
    columns = range(sums.n)
    first, second = [terms[sums.first(j)] for j in columns], [terms[sums.second(j)] for j in columns]
    answer = {j: terms[sums.query(j) + 1] for j in range(i + 1, sums.n + 1)}
    signs = [terms[sums.n][0], terms[2 * sums.n + 1][0]]
    return DigitQuery(sums, i, first, second, answer, (sum(x for x, _ in signs), sum(x for _, x in signs)))
