"""Two layers, decided by an induction over columns: the nearest column that decides has nearly all the weight.

Layer 1 attends by position. So the stream at a column's second digit, and where the column's answer is due, is a
function of the column's sum up to what leaks from other columns, an interval. In layer 2 scores and values of a column
depend on its class: K stops a carry, P passes it on, G makes one. The head's output is built up column by column, as
an interval for each carry: adding a key of score t and value v to a sum of weights D moves the output o to
o + p (v - o), p = 1 / (1 + D e^-t), which is monotone in o, v and p; log D is kept instead of D.

In a dtype all is what any order computes. A computed softmax is the exact one of scores that are off by what its
argument and its exponential round, times factors near 1 for each key (`_blurred`, `off_average`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flint import arb, fmpq

from constructions.adder.digits import Digits
from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, joined, relu, stacked
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.slack import INFLATION, LOST, OF_FEW, Array, U
from verify.arithmetic.softmax import Arguments, exponential_error
from verify.arithmetic.stored import numbers
from verify.frame.clock import Deadline
from verify.tasks.addition.columns import CLASSES, sums_of
from verify.tasks.addition.proof import ColumnCell
from verify.tasks.addition.readout import Box, Overflows, Readout, slack
from verify.tasks.addition.shares import Unfit, exactly

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder, AdderLayer

REAL = RoundedArithmetic.real()
Interval = tuple[float, float]
FAR = 40.5  # a difference of scores that floats subtract, off by less than a half


@dataclass(frozen=True)
class Mix:
    """A weighted average so far: its output and the logarithm of its weights' sum, as intervals."""

    output: Interval
    log_weight: Interval

    def plus(self, score: Interval, value: Interval) -> Mix:
        """Adds one more key, whose score and value are known as intervals."""
        least = _share(self.log_weight[1], score[0], 0)
        most = _share(self.log_weight[0], score[1], 1)
        low = min(_moved(self.output[0], value[0], p)[0] for p in (least, most))
        high = max(_moved(self.output[1], value[1], p)[1] for p in (least, most))
        log_low, log_high = (
            _log_sum(*ends)[side] for side, ends in enumerate(zip(self.log_weight, score, strict=True))
        )
        return Mix((low, high), (log_low, log_high))

    def hull(self, other: Mix | None) -> Mix:
        """An interval that holds both."""
        if other is None:
            return self
        (a, b), (c, d) = self.output, other.output
        (e, f), (g, h) = self.log_weight, other.log_weight
        return Mix((min(a, c), max(b, d)), (min(e, g), max(f, h)))


def _ends(x: arb) -> Interval:
    return float_below(x), float_above(x)


def _share(log_weight: float, score: float, side: int) -> float:
    """1 / (1 + e^(log weight - score)), rounded down (side 0) or up."""
    if log_weight - score > FAR:  # e^-40 is below 2^-57
        return 0.0 if side == 0 else 2.0**-57
    if score - log_weight > FAR:
        return 1 - 2.0**-53 if side == 0 else 1.0
    p = _ends(1 / (1 + (arb(log_weight) - arb(score)).exp()))[side]
    return max(0.0, p) if side == 0 else min(1.0, p)


def _moved(output: float, value: float, p: float) -> Interval:
    moved = output + p * (value - output)  # three roundings, of numbers of at most |output| + |value|
    if not math.isfinite(moved):
        return -math.inf, math.inf
    error = OF_FEW * (abs(output) + abs(value)) + LOST
    return moved - error, moved + error


def _log_sum(x: float, y: float) -> Interval:
    top, rest = max(x, y), min(x, y)
    if top - rest > FAR:
        return top, math.nextafter(top + OF_FEW, math.inf)
    return _ends(arb(top) + (1 + (arb(rest) - arb(top)).exp()).log())


def off_average(at: RoundedArithmetic, keys: int, large: int, small: float, size: float) -> float:
    """How far a computed softmax average of values of at most a size is off that of the exact softmax of `_blurred`
    scores, `small` being the share of all keys but the large ones; 0 in real arithmetic.

    Proof. In the sum of the weights of k large keys and others k - 1 additions round, and a small one costs at most 8
    times itself (`small_sum`). So do the products, which are each divided, multiplied and added. Together that is a
    factor of `growth` for each key and 24 times the small ones' share, of the largest value's size; and 2 tiny for each
    key over a total of at least 1, where its exponential is subnormal.

    Raises: Overflows where that is no number of the format.
    """
    if not at.rounds:
        return 0.0
    growth = float(at.growth_of_products(2 * large + 10, 8))
    if not (growth <= 0.25 and small <= 2.0**-8 and 4 * size * keys <= at.stored.largest):
        raise Overflows("a softmax is rounded too much, or its sums may overflow")
    lost = 16 * keys * at.stored.tiny + float(at.underflow(4 * keys))
    return ((growth + 24 * small) * size + 2 * lost * (1 + size)) * INFLATION


def margins(
    model: Adder, sums: Digits, at: RoundedArithmetic = REAL, until: Deadline | None = None
) -> dict[ColumnCell, fmpq]:
    """A lower bound on the margin of every cell of a model of two layers, cells of all columns but the last in one.

    Raises: Unfit where layer 1 does not attend by position, or later weights read digits; Overflows; TimeIsUp.
    """
    if len(model.blocks) != 2 or not model.has_skip:
        raise Unfit("the induction over columns is for two layers with a skip connection")
    first, second = model.blocks
    if len(second.W_Q) != 1 or second.W_V.shape[2] != 1:
        raise Unfit("layer 2 has more than one head of one value")
    _check_digits_are_read_once(model, sums)
    if at.rounds:
        _check_embeddings_are_exact(model, sums)
    until = until or Deadline.never()
    streams = _after_layer_1(model, sums, at, until)
    mixes = _outputs(model, sums, streams, at, until)
    return _decided(model, sums, streams, mixes, at, until)


def _check_embeddings_are_exact(model: Adder, sums: Digits) -> None:
    """Raises Unfit where an embedding and a position meet, or layer 1 has more than one head of one value."""
    E, X = numbers(model.E), numbers(model.positions)
    is_digit = np.ones(sums.length, dtype=bool)
    is_digit[[sums.n, 2 * sums.n + 1]] = False
    meets = (E[: sums.B] != 0).any(0) & (X[is_digit] != 0).any(0)
    for position, token in ((sums.n, sums.plus), (2 * sums.n + 1, sums.equals)):
        meets |= (E[token] != 0) & (X[position] != 0)
    if meets.any():
        raise Unfit("an embedding and a position meet in a direction, and their sum is rounded")
    if model.blocks[0].W_V.shape[0] != 1 or model.blocks[0].W_V.shape[2] != 1:
        raise Unfit("layer 1 has more than one head of one value, which is not decided in a dtype")


def _check_digits_are_read_once(model: Adder, sums: Digits) -> None:
    digits = (numbers(model.E)[: sums.B] != 0).any(0)
    read = (numbers(model.W_out) != 0).any(1)
    blocks: tuple[AdderLayer, ...] = model.blocks
    for k, layer in enumerate(blocks):
        read = read | (numbers(layer.W_1) != 0).any(1) | (numbers(layer.W_O) != 0).any((0, 1))
        read = read | (numbers(layer.W_Q) != 0).any((0, 2)) | (numbers(layer.W_K) != 0).any((0, 2))
        read = read | (numbers(layer.W_2) != 0).any(0)
        if k:
            read = read | (numbers(layer.W_V) != 0).any((0, 2))
    if (digits & read).any():
        raise Unfit("directions of digits are read by more than the values of layer 1")


@dataclass(frozen=True)
class Streams:
    """The stream after layer 1: at second digits (n, sums, d), at queries (n + 1, sums, d), anywhere (L, d)."""

    second: Ball
    query: Ball
    anywhere: Ball


def _after_layer_1(model: Adder, sums: Digits, at: RoundedArithmetic, until: Deadline) -> Streams:
    layer, E, X = model.blocks[0], numbers(model.E), numbers(model.positions)
    L, B, n = sums.length, sums.B, sums.n
    own = Ball.exact(X)
    for position, token in ((n, sums.plus), (2 * n + 1, sums.equals)):
        embedded = Ball.exact(X[position]) + Ball.exact(E[token])
        own.mid[position], own.rad[position] = embedded.mid, embedded.rad
    digits = Ball.exact(np.where((E[:B] != 0).any(0), E[:B], 0.0))
    low, high = np.zeros((L, L, B)), np.zeros((L, L, B))  # by query, key and digit, for each written direction below
    written = np.nonzero((numbers(layer.W_O) != 0).any((0, 1)))[0]
    if len(written) != 1:
        raise Unfit("layer 1 writes several directions")
    seen = np.tril(np.ones((L, L), dtype=bool))
    off = np.zeros(L)  # of what a query reads, by rounding
    is_digit = np.ones(L, dtype=bool)
    is_digit[[n, 2 * n + 1]] = False
    for W_Q, W_K, W_V, W_O in zip(*map(numbers, (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)), strict=True):
        scores = at.product(at.product(own, Ball.exact(W_Q)), at.product(own, Ball.exact(W_K)).T)
        weights = softmax.weights(_blurred(scores, at, seen), seen)
        total = weights @ Ball.exact(np.ones((L, 1)))
        shares = weights / total
        if at.rounds:
            x, rad = (own_part[:, None] + is_digit[:, None, None] * part  # (L, B, d), exact: they never meet
                      for own_part, part in ((own.mid, digits.mid), (own.rad, digits.rad)))  # fmt: skip
            found = at.product(Ball(x.reshape(L * B, -1), rad.reshape(L * B, -1)), Ball.exact(W_V))
            each = Ball(found.mid.reshape(L, B), found.rad.reshape(L, B))
        else:
            each = _values(own, digits, Ball.exact(W_V) @ Ball.exact(W_O[:, written]), is_digit)
        terms = shares[:, :, None] * each[None]
        low, high = low + terms.lower, high + terms.upper
        if at.rounds:
            off += _off_averages(shares, each, seen, at)
    loose = off + 4 * L * U * np.maximum(np.abs(low), np.abs(high)).max(2).sum(1)  # of the float64 sums below
    base_low, base_high = low.min(2), high.max(2)

    def alone(q: int) -> tuple[Array, Array]:
        """By the own token, where it is a digit: all other tokens may be anything."""
        rest = np.arange(L) != q
        return (low[q, q] + base_low[q, rest].sum() - loose[q], high[q, q] + base_high[q, rest].sum() + loose[q])

    def attended(q: int, column: int | None) -> tuple[Array, Array]:
        rest = np.ones(L, dtype=bool)
        if column is None:
            return np.full(2 * B - 1, base_low[q].sum() - loose[q]), np.full(2 * B - 1, base_high[q].sum() + loose[q])
        places = [sums.first(column), sums.second(column)]
        rest[places] = False
        pair_low = low[q, places[0]][:, None] + low[q, places[1]][None, :]
        pair_high = high[q, places[0]][:, None] + high[q, places[1]][None, :]
        total = np.add.outer(np.arange(B), np.arange(B))
        ends = [(pair_low[total == s].min(), pair_high[total == s].max()) for s in range(2 * B - 1)]
        lows, highs = np.array(ends).T
        return lows + base_low[q, rest].sum() - loose[q], highs + base_high[q, rest].sum() + loose[q]

    def stream(q: int, read_ends: tuple[Array, Array]) -> Ball:
        until.check()
        read = Ball.between(*read_ends)
        if at.rounds:
            read = at.product(read[:, None], Ball.exact(numbers(layer.W_O)[0][:, written]))[:, 0]
        x = Ball(np.repeat(own.mid[q : q + 1], len(read.mid), 0), np.repeat(own.rad[q : q + 1], len(read.mid), 0))
        lane = int(written[0])
        added = at.sum_of(x[:, [lane]], read[:, None])[:, 0] if at.rounds else x[:, lane] + read
        x.mid[:, lane], x.rad[:, lane] = added.mid, added.rad
        return _after_neurons(x, layer, at)

    at_second = [stream(sums.second(j), attended(sums.second(j), j)) for j in range(n)]
    at_query = [stream(sums.query(i), attended(sums.query(i), i if i < n else None)) for i in range(n + 1)]
    anywhere = {sums.second(j): x for j, x in enumerate(at_second)}
    anywhere |= {sums.query(i): x for i, x in enumerate(at_query)}
    everywhere = [(anywhere[q] if q in anywhere else stream(q, alone(q))).hull(0) for q in range(L)]
    return Streams(stacked(*at_second), stacked(*at_query), stacked(*everywhere))


def _values(own: Ball, digits: Ball, V: Ball, is_digit: np.ndarray) -> Ball:
    """What layer 1 reads of each position (L, B), with each digit where one stands."""
    of_token, values = digits @ V, own @ V  # (B, 1), (L, 1)
    each = Ball(values.mid + 0 * of_token.mid.T, values.rad + 0 * of_token.mid.T)
    more = each + Ball(of_token.mid.T, of_token.rad.T)
    return Ball(np.where(is_digit[:, None], more.mid, each.mid), np.where(is_digit[:, None], more.rad, each.rad))


def _blurred(scores: Ball, at: RoundedArithmetic, seen: np.ndarray) -> Ball:
    """Scores whose exact exponentials are the computed ones: a factor of 1 +- x, x <= 1/2, is within e^(2 x) of 1."""
    found = Arguments.of(scores, at, seen)
    off = 2 * exponential_error(np.zeros(1), at.stored) * at.rounds
    return Ball(scores.mid, found.off + np.where(found.is_top, 0.0, off * INFLATION))


def _off_averages(shares: Ball, values: Ball, seen: np.ndarray, at: RoundedArithmetic) -> Array:
    """How far each query's computed average of the largest values of the keys that it sees is off."""
    most, size = np.where(seen, shares.upper, 0.0), float(values.magnitude.max())
    is_large = most > 2.0 ** -(at.stored.p + 8)
    small = np.where(is_large, 0.0, most).sum(1) * INFLATION
    pairs = zip(is_large.sum(1).tolist(), small.tolist(), strict=True)
    return np.array([off_average(at, len(most), large, rest, size) for large, rest in pairs])


def _after_neurons(x: Ball, layer: AdderLayer, at: RoundedArithmetic) -> Ball:
    W_1, b_1, W_2 = (Ball.exact(numbers(W)) for W in (layer.W_1, layer.b_1, layer.W_2))
    if not at.rounds:
        return x + relu(x @ W_1 + b_1) @ W_2
    out = at.product_and(relu(at.product_and(x, W_1, b_1[None])), W_2, x)
    if not np.isfinite(out.rad).all():
        raise Overflows("a sum of layer 1 may overflow")
    return out


def _outputs(
    model: Adder, sums: Digits, streams: Streams, at: RoundedArithmetic, until: Deadline
) -> dict[tuple[int, int], Interval]:
    """The output of layer 2's head where the answer of a column is due, by column and carry into it."""
    layer = model.blocks[1]
    W_Q, W_K, W_V = (Ball.exact(numbers(W)[0]) for W in (layer.W_Q, layer.W_K, layer.W_V))
    queries = at.product(streams.query.hull(1), W_Q)
    kinds = [streams.second[:, sums_of(kind, sums.B)].hull(1) for kind in CLASSES]
    by_kind = [(at.product(queries, at.product(x, W_K).T), at.product(x, W_V)) for x in kinds]
    anywhere = (at.product(queries, at.product(streams.anywhere, W_K).T), at.product(streams.anywhere, W_V))
    if not all(np.isfinite(x.rad).all() for pair in (*by_kind, anywhere) for x in pair):
        raise Overflows("a score or a value of layer 2 may overflow")
    scores = joined(*(x for x, _ in (*by_kind, anywhere)))
    scores = _blurred(scores, at, np.ones(scores.mid.shape, dtype=bool))
    size = max(float(x.magnitude.max()) for _, x in (*by_kind, anywhere))
    off, n = off_average(at, sums.length, sums.length, 0.0, size), sums.n
    by_kind = [(scores[:, k * n : (k + 1) * n], v) for k, (_, v) in enumerate(by_kind)]
    anywhere = scores[:, len(by_kind) * n :], anywhere[1]
    out = {}
    for i in range(sums.n + 1):
        until.check()
        below = {sums.second(j) for j in range(i)}
        others = [q for q in range(sums.query(i) + 1) if q not in below]
        states: list[Mix | None] = [_start(anywhere[0][i, others], anywhere[1][others, 0]), None]
        for j in range(i):
            after: list[Mix | None] = [None, None]
            for (of_kind, values), kind in zip(by_kind, CLASSES, strict=True):
                if sums.B == 2 and not len(sums_of(kind, 2)):
                    continue
                key = _interval(of_kind, (i, j)), _interval(values, (j, 0))
                for carry, state in enumerate(states):
                    if state is not None:
                        carried = {"K": 0, "P": carry, "G": 1}[kind]
                        after[carried] = state.plus(*key).hull(after[carried])
            states = after
        for carry, state in enumerate(states):
            if state is not None:
                low, high = state.output
                out[i, carry] = (low - off, high + off) if off == 0 else _ends(arb(low).union(arb(high)) + arb(0, off))
    return out


def _start(scores: Ball, values: Ball) -> Mix:
    """All keys that are in no column below, and whose order does not matter: the surest one, then the rest as one."""
    lows, highs = scores.lower, scores.upper
    first = int(lows.argmax())
    mix = Mix(_interval(values, (first,)), _interval(scores, (first,)))
    rest = np.arange(len(lows)) != first
    if not rest.any():
        return mix
    # together they weigh at least as much as one, and at most their number times the largest
    most = _ends(arb(float(highs[rest].max())) + arb(int(rest.sum())).log())[1]
    return mix.plus((float(lows[rest].max()), most), (float(values.lower[rest].min()), float(values.upper[rest].max())))


def _interval(x: Ball, index: tuple[int, ...]) -> Interval:
    one = x[index]
    return float(one.lower), float(one.upper)


def _decided(
    model: Adder,
    sums: Digits,
    streams: Streams,
    outputs: dict[tuple[int, int], Interval],
    at: RoundedArithmetic,
    until: Deadline,
) -> dict[ColumnCell, fmpq]:
    """The least margin by sum and carry, over all columns at once, and of the leading column."""
    layer, B = model.blocks[1], sums.B
    lane = np.nonzero((numbers(layer.W_O[0]) != 0).any(0))[0]
    if len(lane) != 1:
        raise Unfit("layer 2 writes several directions")
    gain = Ball.exact(numbers(layer.W_O[0])[:, lane])
    read = (numbers(layer.W_1) != 0).any(1) | (numbers(model.W_out) != 0).any(1)
    lanes = tuple(int(x) for x in np.nonzero(read)[0])
    readout = Readout.of(model, lanes, [fmpq(0)] * len(read), layer)
    unread = [exactly(x) for x in streams.query.magnitude.max((0, 1))]  # no weight reads them, and they may overflow
    found = {}
    for columns in (range(sums.n), range(sums.n, sums.n + 1)):
        for s in range(2 * B - 1) if columns[0] < sums.n else (0,):
            for carry in (0, 1):
                until.check()
                boxes = []
                for i in columns:
                    if (i, carry) in outputs:
                        x = streams.query[i, s]
                        written = at.product(Ball.between(*(np.array([[end]]) for end in outputs[i, carry])), gain)
                        total = at.sum_of(x[None][:, lane], written)[0]
                        mid, rad = x.mid.copy(), x.rad.copy()
                        mid[lane[0]], rad[lane[0]] = total.mid[0], total.rad[0]
                        boxes.append((Ball(mid, rad).lower, Ball(mid, rad).upper))
                if boxes:
                    lows, highs = (np.array(ends) for ends in zip(*boxes, strict=True))
                    box: Box = [(exactly(lows[:, k].min()), exactly(highs[:, k].max())) for k in lanes]
                    right = carry if columns[0] == sums.n else (s + carry) % B
                    loss = slack(model, readout, lanes, unread, box, right, at, layer) if at.rounds else None
                    found[ColumnCell(columns[-1], s, carry, sums.equals)] = readout.least_margin(box, right, loss)
    return found
