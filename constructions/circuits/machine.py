"""The circuit transformer's stored weights, run in constant-bit arithmetic operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from constructions.circuits.between import Between, goes_on
from constructions.constant_bits.arithmetic import Affine, FixedPoint, Ints
from constructions.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from constructions.circuit_simulation import CircuitTransformer
    from constructions.model_arrays import ModelArrays

PASS_TOKENS = 2**19  # of one pass over right tokens: tens of MiB
PASS_QUERIES, PASS_SURVIVORS = 64, 2**20  # queries at a time, so that their scores stay in the cache
LANE_FORMS = 1 << 12  # pairs of different values of one lane
UNDEFINED = -1  # the token of a step in which a softmax is 0/0, and of every later step
Tokens = np.ndarray[Any, np.dtype[np.int8]]


class MachineLayer:
    """One layer's weights as integers: what is projected, and how the retrieved value changes the stream."""

    def __init__(self, bits: FixedPoint, weights: Callable[[str], Ints]) -> None:
        self.bits = bits
        self.queries = Affine(bits, weights("W_Q"))
        self.keys = Affine(bits, weights("W_K"))
        self.values = Affine(bits, weights("W_V"))
        self.output = Affine(bits, weights("W_O"))
        self.hidden = Affine(bits, weights("W_1"), weights("b_1"))
        self.result = Affine(bits, weights("W_2"), weights("b_2"))

    def after_attention(self, stream: Ints, mixed: Ints) -> Ints:
        """The residual connection of the head, then the feed-forward layer with its own."""
        stream = self.output.added_to(stream, mixed)
        hidden = np.maximum(self.hidden(stream), 0)
        return self.result.added_to(stream, hidden)


class ConstantBitMachine:
    """A circuit transformer in s-bit arithmetic: every sum left to right, rounded after every operation.

    The weights are the stored ones, rounded once to s bits. Positions later than the query are not summed
    over. A softmax whose exponentials are all zero is 0/0: its step has no token, nor has any later one.
    Claim: E, Sec. 3.3 and Thm. 3.4.
    Raises: BadInput for a weight that is not finite.

    >>> from constructions.circuits.circuit import Circuit, Gate
    >>> from constructions.circuit_simulation import build
    >>> nand = Circuit("nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z")), (("z", 3),))
    >>> ConstantBitMachine(build(nand, s=2)).generate(np.array([[0, 1], [1, 1]])).tolist()
    [[0, 1, 0, 1], [1, 1, 1, 0]]
    """

    def __init__(self, model: CircuitTransformer | ModelArrays, s: int | None = None) -> None:
        self.n, self.T, self.lanes = model.n, model.T, model.lanes
        self.bits = bits = FixedPoint(model.s if s is None else s)
        stored = {name: _finite(name, tensor) for name, tensor in model.named_parameters()}
        self.E, self.P = bits.encode(stored["E"]), bits.encode(stored["P"])

        def weights(layer: int) -> Callable[[str], Ints]:
            return lambda name: bits.encode(stored[f"layers.{layer}.{name}"])

        self.layers = [MachineLayer(bits, weights(layer)) for layer in range(2)]

    @property
    def positions(self) -> int:
        return len(self.P)

    def embed(self, tokens: Ints, position: Ints | int) -> Ints:
        return self.bits.add(self.E[tokens], self.P[position])

    def read(self, stream: Ints) -> Tokens:
        """The next token: 1 where coordinate g exceeds 1/2."""
        return (2 * stream[..., self.lanes.g].astype(np.int32) > self.bits.one).astype(np.int8)

    def generate(self, prompts: np.ndarray[Any, Any], watch: Callable[[int, Tokens], bool] | None = None) -> Tokens:
        """The chain of thought, (batch, n) -> (batch, n+T)."""
        return self.generate_with_g(prompts, watch)[0]

    def generate_with_g(
        self, prompts: np.ndarray[Any, Any], watch: Callable[[int, Tokens], bool] | None = None
    ) -> tuple[Tokens, np.ndarray[Any, Any]]:
        """The chain of thought and the coordinate g that each token is read from, with cached keys and values.

        Each step computes only the different streams of the batch: two tokens, then two retrieved values.
        `watch(m, tokens)` sees the tokens up to position m; generation stops when it returns True.
        """
        batch = len(prompts)
        tokens = np.full((batch, self.n + self.T), UNDEFINED, np.int8)
        tokens[:, : self.n] = prompts
        is_undefined = np.zeros(batch, bool)
        g = np.full((batch, self.n + self.T), np.nan, np.float32)  # a number of at most 24 bits is exact there
        caches = [_Cache(self.bits, self.positions) for _ in self.layers]
        for m in range(self.positions):
            streams, which = self.embed(np.arange(2), m), np.maximum(tokens[:, m], 0).astype(np.int64)
            for depth, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
                cache.append(m, layer.keys(streams), layer.values(streams), which)
                if depth == len(self.layers) - 1 and m + 1 < self.n:
                    break  # the last layer's output at a prompt position is never read
                mixed, is_zero_over_zero = cache.attend(m, layer.queries(streams), which)
                is_undefined |= is_zero_over_zero
                pairs, which = np.unique(
                    which * (2 * self.bits.largest + 1) + (mixed.astype(np.int64) + self.bits.largest),
                    return_inverse=True,
                )
                old, value = np.divmod(pairs, 2 * self.bits.largest + 1)
                retrieved = (value - self.bits.largest).astype(self.bits.dtype)
                streams = layer.after_attention(streams[old], retrieved[:, None])
            if m + 1 >= self.n:
                tokens[:, m + 1] = np.where(is_undefined, UNDEFINED, self.read(streams)[which])
                g[:, m + 1] = np.where(is_undefined, np.nan, self.bits.decode(streams[:, self.lanes.g])[which])
                if watch is not None and watch(m + 1, tokens):
                    break
        return tokens, g

    def after_right(
        self, right: np.ndarray[Any, Any], between: Between = goes_on
    ) -> tuple[Tokens, np.ndarray[Any, Any]] | None:
        """The token that each step computes after the right ones (batch, n+T), and its g: one pass for all steps.

        Up to its first wrong token a chain of thought is right, so that far this is `generate_with_g`. None where
        queries or keys depend on tokens, or too many exponentials survive: then only that will do.
        Shapes: (batch, T) each.
        """
        N = self.positions
        if not N:
            return None
        of_batch = max(1, PASS_TOKENS // N)
        passed = [self._pass(right[start : start + of_batch, :N], between) for start in range(0, len(right), of_batch)]
        parts = [part for part in passed if part is not None]
        if len(parts) < len(passed):
            return None
        tokens, g = (np.concatenate(each) for each in zip(*parts, strict=True))
        return tokens, g

    def _pass(self, tokens: np.ndarray[Any, Any], between: Between) -> tuple[Tokens, np.ndarray[Any, Any]] | None:
        n, N, last = self.n, self.positions, len(self.layers) - 1
        position = np.repeat(np.arange(N), 2)  # of each different stream: here two for each position
        streams, which = self.embed(np.arange(2 * N) % 2, position), 2 * np.arange(N) + tokens
        is_undefined = np.zeros(N, bool)
        for depth, layer in enumerate(self.layers):
            between()
            start = np.searchsorted(position, np.arange(N))
            queries, keys = layer.queries(streams), layer.keys(streams)
            if (queries != queries[start[position]]).any() or (keys != keys[start[position]]).any():
                return None
            found = survivors(self.bits, queries[start], keys[start], between)
            if found is None:
                return None
            mixed, is_zero_over_zero = mixture(self.bits, found, layer.values(streams)[:, 0][which])
            is_undefined |= is_zero_over_zero & (np.arange(N) >= (n - 1 if depth == last else 0))
            wide = 2 * self.bits.largest + 1
            pairs, which = np.unique(which * wide + (mixed.astype(np.int64) + self.bits.largest), return_inverse=True)
            old, value = np.divmod(pairs, wide)
            streams = layer.after_attention(streams[old], (value - self.bits.largest).astype(self.bits.dtype)[:, None])
            position = position[old]
        is_undefined = np.logical_or.accumulate(is_undefined)[n - 1 :]
        read, g = self.read(streams)[which][:, n - 1 :], self.bits.decode(streams[:, self.lanes.g])[which][:, n - 1 :]
        return np.where(is_undefined, UNDEFINED, read).astype(np.int8), np.where(is_undefined, np.nan, g)


def _finite(name: str, tensor: Tensor | np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = tensor if isinstance(tensor, np.ndarray) else tensor.detach().double().cpu().numpy()
    if not np.isfinite(values).all():
        raise BadInput(f"{name}: holds a weight that is not a finite number")
    return values


class Survivors(NamedTuple):
    """The exponentials that are not zero, by query and then by key: whose they are, and their share of the sum.

    `total` is the sum of each query's.
    """

    query: Ints
    key: Ints
    share: Ints
    total: Ints


def survivors(bits: FixedPoint, queries: Ints, keys: Ints, between: Between = goes_on) -> Survivors | None:
    """Every exponential of each position's query (N, 2k) and a key at or before it; None if they are too many.

    `between` is called between blocks of queries, where all pairs are looked at.

    >>> bits = FixedPoint(2)
    >>> queries, keys = (bits.encode(np.array([[x, x]] * 3)) for x in (1.0, 0.0))
    >>> found = survivors(bits, queries, keys)
    >>> found.query.tolist(), found.key.tolist(), bits.decode(found.share).tolist()
    ([0, 1, 1, 2, 2, 2], [0, 0, 1, 0, 1, 2], [1.0, 0.5, 0.5, 0.25, 0.25, 0.25])
    """
    pairs = alive_pairs(bits, queries, keys)
    if pairs is None:
        pairs = alive_by_blocks(bits, queries, keys, between)
    if pairs is None or len(pairs[0]) > most_survivors(len(keys)):
        return None
    query, key, scores = pairs
    exponentials = bits.exp(scores.astype(bits.dtype)).astype(np.int64)
    total = np.bincount(query, exponentials, len(keys)).astype(np.int64)  # exact: below 2^53
    total = np.minimum(total, bits.largest)
    return Survivors(query, key, bits.divide(exponentials, np.maximum(total, 1)[query]), total)


def most_survivors(N: int) -> int:
    """How many exponentials of N positions are followed at once: two for each, and as many as ever where N is small.

    >>> most_survivors(1000), most_survivors(1 << 20)
    (1048576, 2097152)
    """
    return max(PASS_SURVIVORS, 2 * N)


def alive_by_blocks(
    bits: FixedPoint, queries: Ints, keys: Ints, between: Between = goes_on
) -> tuple[Ints, Ints, Ints] | None:
    """Queries, keys at or before them and their scores, where exp is not 0, by all pairs; None if they are too many.

    >>> bits = FixedPoint(2)
    >>> queries, keys = bits.encode(np.array([[3.0, 3.0]] * 2)), bits.encode(np.array([[-3.0, 0.0], [0.0, 0.0]]))
    >>> [found.tolist() for found in alive_by_blocks(bits, queries, keys)]
    [[1], [1], [0]]
    """
    N, found, listed = len(keys), list[tuple[Ints, Ints, Ints]](), 0
    for start in range(0, N, PASS_QUERIES):
        between()
        q = queries[start : start + PASS_QUERIES]
        stop = start + len(q)
        scores = np.zeros((len(q), stop), np.int32)  # a sum of two values is below 2^26
        for j in range(q.shape[1]):
            values, which = np.unique(q[:, j], return_inverse=True)
            scores += bits.multiply(values[:, None], keys[None, :stop, j]).astype(np.int32)[which]
            bits.saturate(scores)
        is_alive = (scores > bits.vanishing) & (np.arange(stop) <= np.arange(start, stop)[:, None])
        query, key = np.nonzero(is_alive)
        found.append((query + start, key, scores[is_alive]))
        listed += len(query)
        if listed > most_survivors(N):
            return None
    query, key, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    return query, key, scores


def alive_pairs(bits: FixedPoint, queries: Ints, keys: Ints) -> tuple[Ints, Ints, Ints] | None:
    """As `alive_by_blocks`, lane by lane for groups of queries and keys that are alike so far; None where no gain.

    A lane is two coordinates, and takes the score h to [[h + q_1 k_1] + q_2 k_2], which grows with h. So what all later
    lanes can make of a score is at most what the best values of each of them make of it, and a pair of groups from
    which exp cannot become more than 0 is left out.

    >>> bits = FixedPoint(2)
    >>> queries, keys = bits.encode(np.full((98, 2), 3.0)), bits.encode(np.array([[-3.0, 0.0], [0.0, 0.0]] * 49))
    >>> found, every = alive_pairs(bits, queries, keys), alive_by_blocks(bits, queries, keys)
    >>> sorted(zip(*found, strict=True)) == sorted(zip(*every, strict=True))
    True
    """
    lanes = [(_packed(queries, j), _packed(keys, j)) for j in range(0, queries.shape[1], 2)]
    forms = [_Lane(bits, np.unique(q), np.unique(k)) for q, k in lanes]
    if any(lane.size > LANE_FORMS for lane in forms):
        return None
    group_q, group_k = np.zeros(len(queries), np.int64), np.zeros(len(keys), np.int64)
    a, b, score = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for depth, ((q, k), lane) in enumerate(zip(lanes, forms, strict=True)):
        group_q, parts_q, value_q = _split(group_q, np.searchsorted(lane.queries, q), len(lane.queries))
        group_k, parts_k, value_k = _split(group_k, np.searchsorted(lane.keys, k), len(lane.keys))
        pair, a, b = _children(parts_q, parts_k, a, b, most_survivors(len(keys)))
        if pair is None:
            return None
        score = lane.after(score[pair], value_q[a], value_k[b])
        different, which = np.unique(score, return_inverse=True)
        for later in forms[depth + 1 :]:
            different = later.best(different)
        is_alive = (different > bits.vanishing)[which]
        a, b, score = a[is_alive], b[is_alive], score[is_alive]
    return _members(group_q, group_k, a, b, score)


def _packed(rows: Ints, j: int) -> Ints:
    """Coordinates j and j + 1 of each row as one number; a last one alone is followed by 0."""
    second = rows[:, j + 1] if j + 1 < rows.shape[1] else np.zeros(len(rows), np.int64)
    return (rows[:, j].astype(np.int64) << 32) + second


class _Lane:
    """What one lane does to scores, for its different values of queries and keys, which are sorted."""

    def __init__(self, bits: FixedPoint, queries: Ints, keys: Ints) -> None:
        self.bits, self.queries, self.keys = bits, queries, keys
        self.size = len(queries) * len(keys)
        if self.size <= LANE_FORMS:
            first_q, first_k = ((x + (1 << 31)) >> 32 for x in (queries, keys))
            second_q, second_k = queries - (first_q << 32), keys - (first_k << 32)
            self.first = bits.multiply(first_q[:, None], first_k)
            self.second = bits.multiply(second_q[:, None], second_k)

    def after(self, h: Ints, query: Ints, key: Ints) -> Ints:
        """[[h + q_1 k_1] + q_2 k_2] of these values."""
        return self.bits.add(self.bits.add(h, self.first[query, key]), self.second[query, key])

    def best(self, h: Ints) -> Ints:
        """The most that any values make of each score."""
        found: Ints = self.bits.add(self.bits.add(h[:, None], self.first.ravel()), self.second.ravel()).max(1)
        return found


def _split(group: Ints, value: Ints, values: int) -> tuple[Ints, Ints, Ints]:
    """Groups by a further value: of each row, where the parts of each old group begin, and each new one's value."""
    both, split = np.unique(group * values + value, return_inverse=True)
    begins = np.searchsorted(both, np.arange(int(group.max(initial=-1)) + 2) * values)
    return split, begins, both % values


def _children(begins_q: Ints, begins_k: Ints, a: Ints, b: Ints, most: int) -> tuple[Ints | None, Ints, Ints]:
    """All pairs of parts of the groups of each pair: which pair they are of, and the parts; None if too many."""
    n_q, n_k = begins_q[a + 1] - begins_q[a], begins_k[b + 1] - begins_k[b]
    number = n_q * n_k
    if int(number.sum()) > most:
        return None, a, b
    pair = np.repeat(np.arange(len(a)), number)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
    i, j = np.divmod(place, n_k[pair])
    return pair, begins_q[a][pair] + i, begins_k[b][pair] + j


def _members(group_q: Ints, group_k: Ints, a: Ints, b: Ints, score: Ints) -> tuple[Ints, Ints, Ints] | None:
    """Queries and keys at or before them of pairs of groups, by query and then by key, and their scores."""
    order_q, order_k = np.argsort(group_q, kind="stable"), np.argsort(group_k, kind="stable")
    begins_q = np.searchsorted(group_q[order_q], np.arange(len(group_q) + 1))
    begins_k = np.searchsorted(group_k[order_k], np.arange(len(group_k) + 1))
    pair, i, j = _children(begins_q, begins_k, a, b, most_survivors(len(group_k)))
    if pair is None:
        return None
    query, key = order_q[i], order_k[j]
    is_before = key <= query
    query, key, score = query[is_before], key[is_before], score[pair[is_before]]
    order = np.lexsort((key, query))
    return query[order], key[order], score[order]


def mixture(bits: FixedPoint, found: Survivors, values: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
    """What each query mixes of values (batch, N), each sum from left to right, and which queries are 0/0 (N,).

    >>> bits = FixedPoint(2)
    >>> alike = bits.encode(np.zeros((2, 2)))
    >>> mixed, is_undefined = mixture(bits, survivors(bits, alike, alike), bits.encode(np.array([[1.0, 3.0]])))
    >>> bits.decode(mixed).tolist(), is_undefined.tolist()
    ([[1.0, 2.0]], [False, False])
    """
    mixed = np.zeros(values.shape, bits.dtype)
    number = np.arange(len(found.query)) - np.searchsorted(found.query, found.query)  # of a query's survivors so far
    for i in range(int(number.max(initial=-1)) + 1):
        of = np.flatnonzero(number == i)
        query, terms = found.query[of], bits.multiply(found.share[of], values[:, found.key[of]])
        mixed[:, query] = bits.add(mixed[:, query], terms)
    return mixed, np.asarray(found.total == 0)


class _Cache:
    """Keys (2k, 1 or batch, L) and values (batch, L); one row of keys as long as the batch agrees."""

    def __init__(self, bits: FixedPoint, length: int) -> None:
        self.bits, self.length = bits, length
        self.keys = self.values = np.empty(0, bits.dtype)

    def append(self, m: int, keys: Ints, values: Ints, which: Ints) -> None:
        """The keys and values of position m, given for the different streams of the batch."""
        if m == 0:
            self.keys = np.zeros((keys.shape[1], 1, self.length), self.bits.dtype)
            self.values = np.zeros((len(which), self.length), self.bits.dtype)
        if self.keys.shape[1] == 1 and len(which) > 1 and (keys != keys[:1]).any():
            self.keys = np.repeat(self.keys, len(which), axis=1)
        self.keys[:, :, m] = keys[which if self.keys.shape[1] > 1 else which[:1]].T
        self.values[:, m] = values[which, 0]

    def attend(self, m: int, queries: Ints, which: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
        """The mixed value of every batch member, and where the softmax is 0/0."""
        is_alike = self.keys.shape[1] == 1 and not (queries != queries[:1]).any()
        q = queries[:1] if is_alike else queries[which]
        return attend(self.bits, q, self.keys[:, :, : m + 1], self.values[:, : m + 1])


def attend(bits: FixedPoint, q: Ints, keys: Ints, values: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Softmax attention of queries to keys, every operation rounded, and where it is 0/0.

    Sums of exponentials are of numbers >= 0: left to right they reach min(sum, B_s). Positions whose
    exponential is zero add [0 v]_s = 0 and are skipped.
    Shapes: q (1 or batch, 2k); keys (2k, 1 or batch, L); values (batch, L) -> (batch,), (batch,).

    >>> bits = FixedPoint(2)
    >>> q, keys = bits.encode(np.zeros((1, 2))), bits.encode(np.zeros((2, 1, 2)))
    >>> mixed, is_undefined = attend(bits, q, keys, bits.encode(np.array([[1.0, 3.0]])))
    >>> bits.decode(mixed).tolist(), is_undefined.tolist()
    ([2.0], [False])
    """
    scores = np.zeros((max(len(q), keys.shape[1]), keys.shape[2]), bits.dtype)
    for term in bits.multiply(q.T[:, :, None], keys):
        scores += term
        bits.saturate(scores)
    is_alive = scores > bits.vanishing
    exponentials = np.zeros(scores.shape, np.int64)
    exponentials[is_alive] = bits.exp(scores[is_alive])
    total = np.minimum(exponentials.sum(axis=1), bits.largest)
    mixed = np.zeros(len(values), bits.dtype)
    for position in np.flatnonzero(is_alive.any(axis=0)):
        weight = bits.divide(exponentials[:, position], np.maximum(total, 1))
        mixed = bits.add(mixed, bits.multiply(weight, values[:, position]))
    return mixed, np.broadcast_to(total == 0, mixed.shape)
