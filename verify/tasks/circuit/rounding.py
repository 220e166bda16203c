"""What every step of a circuit transformer computes in a floating point format, in any order of evaluation.

As in `verify.tasks.circuit.steps` each step is a function of the tokens that it retrieves, here with balls that hold
every computed number: what leaks from the other positions, whatever their tokens, and what rounding does to it.

A sum of one large term and small ones is off by few times the small ones: `verify.arithmetic.softmax.small_sum`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from constructions.circuit_simulation_arrays import Lanes
from constructions.circuits.circuit import Circuit
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, ends, joined, point
from verify.arithmetic.outward import above, below
from verify.arithmetic.rounding import two_sum
from verify.arithmetic.slack import INFLATION, OF_FEW, Array
from verify.arithmetic.softmax import FORMATS_OF_A_SUM, small_sum
from verify.tasks.circuit.attention import Attention, UnboundedSteps, attention
from verify.tasks.circuit.retrieval import Indices, PlacedVectors
from verify.tasks.circuit.steps import NONE, Bits, Due, Fault, Progress, assignments, blocks, cases, gate_arrays


@dataclass(frozen=True)
class ComputedWeights:
    """One head at each position: what it retrieves, and its computed weights as factors of the mixing.

    Shapes: (N,) each. `own` is the weight of the retrieved position, `others` the sum of all others, `total` the sum
    of all; `terms` counts them.
    """

    clear: Indices
    own: tuple[Array, Array]
    others: Array
    total: tuple[Array, Array]
    terms: Array


@dataclass(frozen=True)
class Head:
    """One head at all positions: its weights, its values (variants, N), and their least and largest so far (N,)."""

    weights: ComputedWeights
    values: Ball
    least: Array
    most: Array


def weights(at: RoundedArithmetic, found: Attention) -> ComputedWeights:
    """The computed softmax from the leak of its exponentials."""
    N = np.arange(1.0, len(found.clear) + 1)
    leak = np.where(found.clear == NONE, N, found.leak)
    once, tiny, many = float(at.growth(1, 1)), at.stored.tiny, 2.0**FORMATS_OF_A_SUM
    top = (1 + many * small_sum(at, leak, N)) * INFLATION
    share = np.where(leak > 0, 1 / top * (1 - 2.0 ** -(2 * at.stored.p + 2)), 1.0)
    own = at.factors(np.where(leak > 0, share / INFLATION, 1.0), np.ones_like(share))
    # the computed total, relative to the exact sum of the computed exponentials
    total = np.minimum(at.growth(N - 1, 1) + 2 * (N + 2) * tiny, np.maximum(top - 1, leak))
    total = np.where(leak > 0, np.minimum(total, 0.5), 0.0)
    is_bounded = (total < 0.5) | (leak == 0)
    factor = (1 + once) ** 3 * (1 + at.operand.u) - 1  # a reciprocal, its product, and that as a factor
    below = 4 * np.minimum(leak, 4 * N * tiny)  # a result below the normal numbers may double, twice, or vanish
    exact = np.minimum(leak, np.where(is_bounded, leak / (1 + leak) / (1 - total), leak))
    others = (exact * (1 + factor) + below) * INFLATION
    low = np.where(is_bounded, (1 - factor) / (1 + total) / INFLATION - below, -np.inf)
    high = np.where(is_bounded, (1 + factor) / (1 - total) * INFLATION + below, np.inf)
    return ComputedWeights(found.clear, own, others, (low, high), N)


def mixed(at: RoundedArithmetic, whole_head: Head, p: Indices, v: Ball) -> Ball:
    """The computed mixture at positions p that retrieve v (..., B)."""
    head, least, most = whole_head.weights, whole_head.least[p], whole_head.most[p]
    (v_low, v_high), (own_low, own_high) = ends(v), (end[p] for end in head.own)
    others, N = head.others[p], head.terms[p]
    largest = np.maximum(np.abs(least), np.abs(most))
    own = [v_low * own_low, v_low * own_high, v_high * own_low, v_high * own_high]
    low = np.minimum.reduce(own) + others * np.minimum(least, 0)
    high = np.maximum.reduce(own) + others * np.maximum(most, 0)
    # the same weights together: v (their sum) + (others) (other value - v)
    whole = [v_low * head.total[0][p], v_low * head.total[1][p], v_high * head.total[0][p], v_high * head.total[1][p]]
    low = np.fmax(low, np.minimum.reduce(whole) + others * np.minimum(least - v_high, 0))
    high = np.fmin(high, np.maximum.reduce(whole) + others * np.maximum(most - v_low, 0))
    small = small_sum(at, 2 * others * largest, N)
    is_itself = (own_low == 1) | ((v_low == 0) & (v_high == 0))  # then it is a number of the format
    rounding = at.stored.u + at.inner.u + OF_FEW
    off = np.where(is_itself, 0.0, rounding * v.magnitude * own_high + at.stored.tiny)
    by_size = 2.0**FORMATS_OF_A_SUM * (small + off) + small
    least_own = np.where((v_low > 0) | (v_high < 0), np.minimum(np.abs(v_low), np.abs(v_high)) * own_low, 0.0)
    may_flush = ((v_low != 0) | (v_high != 0)) & ~(least_own > at.inner.tiny + 2 * by_size)
    by_size = by_size + np.where(may_flush, at.inner.tiny, 0.0)
    size = own_high * v.magnitude + others * largest
    any_order = at.growth(N, 1) * size + at.underflow(2 * N) * (1 + at.growth(N, 1)) + OF_FEW * size
    error = np.where(N > 1, np.fmin(by_size, any_order), np.where(is_itself, 0.0, off)) * INFLATION
    is_clear = head.clear[p] != NONE
    if not is_clear.all():  # a mean of all values, whichever has the largest weight
        mean_low, mean_high, mean_size = mean(at, N, least, most, head.total[0][p], head.total[1][p])
        low, high = np.where(is_clear, low, mean_low), np.where(is_clear, high, mean_high)
        size, error = np.where(is_clear, size, mean_size), np.where(is_clear, error, 0.0)
    low, high, size = low - error, high + error, size + error
    nudge = (N > 1) | (low != high)
    low, high = np.where(nudge, np.nextafter(low, -np.inf), low), np.where(nudge, np.nextafter(high, np.inf), high)
    out = at.result(Ball.between(low, high))
    return Ball(out.mid, np.where(size + out.rad <= at.stored.largest, out.rad, np.inf))


def mean(
    at: RoundedArithmetic, N: Array, least: Array, most: Array, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """The ends and the size of a computed mixture of N values with any weights, whose sum lies between two ends.

    Where no ends are known, each weight is still at most 4.
    """
    is_known = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(is_known, low, 0.0), np.where(is_known, high, 4 * N)
    size = high * np.maximum(np.abs(least), np.abs(most))
    below, above = np.minimum(least * low, least * high), np.maximum(most * low, most * high)
    error = (at.growth(N, 1) * size + at.underflow(2 * N) * (1 + at.growth(N, 1)) + OF_FEW * size) * INFLATION
    return below - error, above + error, size + error


class RoundedLayer:
    """One layer's rounded weights; rows and columns that are zero cost nothing and change nothing."""

    def __init__(self, at: RoundedArithmetic, W: Mapping[str, Array], layer: int) -> None:
        self.at = at
        self.W = {
            name: W[f"layers.{layer}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2")
        }

    def projected(self, x: Ball, name: str) -> Ball:
        """x W for streams (..., d)."""
        return self._linear(x, self.W[name])

    def after_attention(self, stream: Ball, mixture: Ball, columns: slice = slice(None)) -> Ball:
        """Both residual connections and the feed-forward layer; of its result only some columns."""
        y = self._added_to(stream, mixture, self.W["W_O"])
        h = self._linear(y, self.W["W_1"], stored(self.at, self.W["b_1"]))
        low, high = ends(h)
        h = Ball.between(np.maximum(low, 0), np.maximum(high, 0))
        b_2 = self.W["b_2"][columns]
        return self._added_to(y[..., columns], h, self.W["W_2"][:, columns], b_2)

    def _linear(self, x: Ball, W: Array, *added: Ball) -> Ball:
        check_finite(x)
        used = np.flatnonzero(W.any(1)) if W.any() else np.zeros(1, np.int64)
        rows = Ball(x.mid[..., used].reshape(-1, len(used)), x.rad[..., used].reshape(-1, len(used)))
        terms = (Ball(*(np.broadcast_to(a, (*x.mid.shape[:-1], W.shape[1])) for a in (t.mid, t.rad))) for t in added)
        flat = (Ball(t.mid.reshape(-1, W.shape[1]), t.rad.reshape(-1, W.shape[1])) for t in terms)
        out = self.at.product_and(rows, Ball.exact(W[used]), *flat)
        shape = (*x.mid.shape[:-1], W.shape[1])
        return Ball(out.mid.reshape(shape), out.rad.reshape(shape))

    def _added_to(self, stream: Ball, x: Ball, W: Array, b: Array | None = None) -> Ball:
        b = np.zeros(W.shape[1]) if b is None else b
        columns = np.flatnonzero(W.any(0) | (b != 0))
        mid, rad = stream.mid.copy(), stream.rad.copy()
        if len(columns):
            terms = [stream[..., columns]] + ([stored(self.at, b[columns])] if b.any() else [])
            out = self._linear(x, W[:, columns], *terms)
            mid[..., columns], rad[..., columns] = out.mid, out.rad
        out = Ball(mid, rad)
        check_finite(out)
        return out


def stored(at: RoundedArithmetic, x: Array) -> Ball:
    """A stored tensor as it is read in a sum: a subnormal number may be flushed."""
    return at.result(Ball.exact(x))


def is_same(x: Ball, y: Ball) -> bool:
    """Whether balls have the same midpoints and radii."""
    return np.array_equal(x.mid, y.mid) and np.array_equal(x.rad, y.rad)


def check_finite(x: Ball) -> None:
    """Raises Undecided where a number may have overflowed."""
    if not (np.isfinite(x.mid).all() and np.isfinite(x.rad).all()):
        raise UnboundedSteps("a number may overflow, or become too large for its error to be bounded")


class RoundedSteps:
    """Every step of a transformer whose weights are already rounded, for tokens that are any bits at all.

    Position p (from 0) carries the token of node p and computes node p + 1, as in `verify.tasks.circuit.steps.Steps`.
    Its tokens are x_p, x_a (which head 1 retrieves), x_b (head 2) and x_ab (head 1 at b).
    Raises: Undecided where numbers may overflow.
    """

    def __init__(
        self,
        W: Mapping[str, Array],
        n: int,
        lanes: Lanes,
        at: RoundedArithmetic,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.n, self.N, self.lanes, self.at, self.progress = n, len(W["P"]), lanes, at, progress
        self.E, self.P = stored(at, W["E"]), stored(at, W["P"])
        self.layers = [RoundedLayer(at, W, 0), RoundedLayer(at, W, 1)]
        self.first = self._first_head()
        self.second = self._second_head()

    def embed(self, p: Indices) -> Ball:
        """Both tokens at positions p (B,) -> (2, B, d)."""
        tokens = np.repeat([[0], [1]], len(p), 1)
        e, at_p = self.E[tokens], self.P[np.broadcast_to(p, tokens.shape)]
        d = e.mid.shape[-1]
        out = self.at.sum_of(*(Ball(x.mid.reshape(-1, d), x.rad.reshape(-1, d)) for x in (e, at_p)))
        return Ball(out.mid.reshape(e.mid.shape), out.rad.reshape(e.mid.shape))

    def _first_head(self) -> Head:
        layer, collected = self.layers[0], _Collector(2)
        for p in blocks(self.N, self.progress):
            x = self.embed(p)
            collected.add(p, *(layer.projected(x, name) for name in ("W_Q", "W_K", "W_V")))
        return collected.head(self.at, self.N)

    def stream(self, p: Indices, embedded: Ball, x_a: Bits) -> Ball:
        """The stream after the first layer, for tokens x_a (..., B) and embeddings (..., B, d) of x_p: (..., B, d)."""
        v = self.first.values[x_a, np.maximum(self.first.weights.clear[p], 0)]
        mixture = mixed(self.at, self.first, p, v)
        return self.layers[0].after_attention(embedded, mixture[..., None])

    def _second_head(self) -> Head:
        layer, collected = self.layers[1], _Collector(4)
        for p in blocks(self.N, self.progress):
            x_p, x_a = (
                np.repeat(np.array(bits)[:, None], len(p), 1) for bits in zip(*product((0, 1), repeat=2), strict=True)
            )
            x = self.stream(p, self.embed(p)[x_p[:, 0]], np.where(self.first.weights.clear[p] == p, x_p, x_a))
            collected.add(p, *(layer.projected(x, name) for name in ("W_Q", "W_K", "W_V")))
        return collected.head(self.at, self.N, self.n - 1)

    def cases(self, p: Indices) -> Iterator[tuple[tuple[Bits, Bits, Bits, Bits], Array, Array]]:
        """For all values of the tokens x_p, x_a, x_b, x_ab of positions p: the ends of what g can be."""
        a, b, a_of_b = self.nodes(p)
        layer, g = self.layers[1], slice(self.lanes.g, self.lanes.g + 1)
        both, retrieved = self.embed(p), None
        for number, tokens in enumerate(cases(p, a, b, a_of_b)):
            _, x_a, x_b, x_ab = tokens
            v = self.second.values[2 * x_b + x_ab, np.maximum(b, 0)]
            if number % 4 == 0:  # the cases of x_b and x_ab come last, and the stream before does not depend on them
                stream, retrieved = self.stream(p, both[number // 8], x_a), None  # x_p comes first of all
            if retrieved is None or not is_same(v, retrieved):  # the value at b mostly shows x_b alone
                retrieved, mixture = v, mixed(self.at, self.second, p, v)
                low, high = (end[:, 0] for end in ends(layer.after_attention(stream, mixture[:, None], g)))
            yield tokens, low, high

    def nodes(self, p: Indices) -> tuple[Indices, Indices, Indices]:
        """Returns what both heads of positions p retrieve, a and b, and what head 1 does at b. NONE where unknown."""
        a, b = self.first.weights.clear[p], self.second.weights.clear[p]
        return a, b, np.where(b == NONE, NONE, self.first.weights.clear[np.maximum(b, 0)])

    def margins(self, circuit: Circuit) -> tuple[Array, Array]:
        """Bounds the distance of g from 1/2 for each step, on the right side, over all cases, and over all right ones.
        -inf if a gate reads others, inf if no case is right.

        The token 0 allows a distance of zero, which is then the smallest number instead.
        """
        is_and, first, second = gate_arrays(circuit)
        margin, of_right = (np.full(len(circuit.gates), np.inf) for _ in range(2))
        for p in blocks(self.N, self.progress, self.n - 1):
            step = p + 1 - self.n
            for _, wanted, low, high in self._compared(p, is_and[step], first[step], second[step]):
                found = distance(wanted, low, high)
                margin[step] = np.minimum(margin[step], found)
                of_right[step] = np.minimum(of_right[step], np.where(found > 0, found, np.inf))
        return margin, of_right

    def _compared(
        self, p: Indices, is_and: Indices, first: Indices, second: Indices
    ) -> Iterator[tuple[tuple[Bits, Bits, Bits, Bits], Bits, Array, Array]]:
        """Yields for each case its tokens, the token that is due (NONE where the gate reads other nodes), and the ends
        of g.
        """
        gates = Due.of((p, *self.nodes(p)), is_and, first, second)
        for tokens, low, high in self.cases(p):
            yield tokens, gates.value(tokens), low, high

    def fault(self, circuit: Circuit, step: int) -> Fault:
        """The cases of a step in which g may be on the wrong side; all of them where its gate reads other nodes."""
        p, gate = np.array([step + self.n - 1]), circuit.gates[step]
        a, b, a_of_b = (int(node[0]) for node in self.nodes(p))
        places = {node: i for i, node in enumerate((int(p[0]), a, b, a_of_b)) if node != NONE}
        for head, found, node in ((1, a, gate.fan_in[0]), (2, b, gate.fan_in[-1])):
            if node not in places:
                retrieves = "surely retrieves no position" if found == NONE else f"retrieves {circuit.name_of(found)}"
                nodes = sorted(set(gate.fan_in))
                why = f"head {head} {retrieves} instead of {circuit.name_of(node)}"
                return Fault(int(p[0]) + 1, tuple(nodes), assignments(nodes), why)
        arrays = (array[step : step + 1] for array in gate_arrays(circuit))
        wrong, worst = [], (0.5, 0.5)
        for tokens, wanted, low, high in self._compared(p, *arrays):
            if not distance(wanted, low, high)[0] > 0:
                wrong.append([int(x[0]) for x in tokens])
                worst = float(low[0]), float(high[0])
        nodes = sorted(places)
        rows = np.unique([[bits[places[node]] for node in nodes] for bits in wrong], axis=0)
        why = f"g may lie between {below(worst[0], 4)} and {above(worst[1], 4)}"
        return Fault(int(p[0]) + 1, tuple(nodes), rows.astype(np.int64), why)


def difference_below(x: Array, y: Array) -> Array:
    """The largest float64 at most x - y, but for differences beyond its range: two_sum gives what rounding left out."""
    found, rest = two_sum(x, -y)
    return np.where(rest < 0, np.nextafter(found, -np.inf), found)


def distance(wanted: Bits, low: Array, high: Array) -> Array:
    """How far g surely is on the right side of 1/2, above for the token 1, at or below for 0; a lower bound."""
    below = difference_below(np.asarray(0.5), high)
    to_zero = np.where(high <= 0.5, np.maximum(below, np.finfo(float).tiny), below)
    right = np.where(wanted == 1, difference_below(low, np.asarray(0.5)), to_zero)
    return np.where((wanted == NONE) | np.isnan(right), -np.inf, right)


class _Collector:
    """Gathers what one head computes from streams (V, B, ...), position by position: queries, keys, and values."""

    def __init__(self, variants: int) -> None:
        self.variants = variants
        self.queries: list[tuple[Indices, Ball]] = []
        self.keys: list[tuple[Indices, Ball]] = []
        self.values: list[Ball] = []

    def add(self, p: Indices, queries: Ball, keys: Ball, values: Ball) -> None:
        self.queries.append(_different(p, queries))
        self.keys.append(_different(p, keys))
        self.values.append(values[..., 0])

    def head(self, at: RoundedArithmetic, N: int, first: int = 0) -> Head:
        """The head of positions from `first` on, its values being factors of the mixture."""
        queries, keys = _rows(self.queries, first), _rows(self.keys, 0)
        values = at.as_operand(
            Ball(
                *(
                    np.concatenate([getattr(v, end) for v in self.values] or [np.zeros((self.variants, 0))], 1)
                    for end in ("mid", "rad")
                )
            )
        )
        check_finite(values)
        low, high = ends(values)
        least, most = np.minimum.accumulate(low.min(0)), np.maximum.accumulate(high.max(0))
        return Head(weights(at, attention(at, queries, keys, N)), values, least, most)


def _different(p: Indices, variants: Ball) -> tuple[Indices, Ball]:
    """Returns the different rows among the variants (V, B, m) of each position p (B,), ordered by position."""
    check_finite(variants)
    is_kept = ((variants.mid != variants.mid[0]) | (variants.rad != variants.rad[0])).any(-1)
    is_kept[0] = True
    position, variant = np.nonzero(is_kept.T)
    return p[position], variants[variant, position]


def _rows(parts: list[tuple[Indices, Ball]], first: int) -> PlacedVectors[Ball]:
    """All rows of positions from `first` on."""
    position = np.concatenate([p for p, _ in parts] or [np.zeros(0, np.int64)])
    rows = joined(*([ball for _, ball in parts] or [point(np.zeros((0, 2)))]), axis=0)
    return PlacedVectors(rows[position >= first], position[position >= first])
