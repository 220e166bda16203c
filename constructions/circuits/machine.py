"""The circuit transformer's stored weights, run in constant-bit arithmetic operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from constructions.circuit_simulation import CircuitTransformer
from constructions.constant_bits.arithmetic import Affine, FixedPoint, Ints
from constructions.errors import BadInput

PASS_TOKENS = 2**19  # of one pass over right tokens: tens of MiB
PASS_QUERIES, PASS_SURVIVORS = 64, 2**20  # queries at a time, so that their scores stay in the cache
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

    def __init__(self, model: CircuitTransformer, s: int | None = None) -> None:
        self.n, self.T, self.lanes = model.n, model.T, model.lanes
        self.bits = bits = FixedPoint(model.s if s is None else s)
        stored = {name: _finite(name, tensor) for name, tensor in model.state_dict().items()}
        self.E, self.P = bits.encode(stored["E"]), bits.encode(stored["P"])

        def weights(layer: int) -> Callable[[str], Ints]:
            return lambda name: bits.encode(stored[f"layers.{layer}.{name}"])

        self.layers = [MachineLayer(bits, weights(layer)) for layer in range(len(model.layers))]

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

    def after_right(self, right: np.ndarray[Any, Any]) -> tuple[Tokens, np.ndarray[Any, Any]] | None:
        """The token that each step computes after the right ones (batch, n+T), and its g: one pass for all steps.

        Up to its first wrong token a chain of thought is right, so that far this is `generate_with_g`. None where
        queries or keys depend on tokens, or too many exponentials survive: then only that will do.
        Shapes: (batch, T) each.
        """
        N = self.positions
        if not N:
            return None
        of_batch = max(1, PASS_TOKENS // N)
        passed = [self._pass(right[start : start + of_batch, :N]) for start in range(0, len(right), of_batch)]
        parts = [part for part in passed if part is not None]
        if len(parts) < len(passed):
            return None
        tokens, g = (np.concatenate(each) for each in zip(*parts, strict=True))
        return tokens, g

    def _pass(self, tokens: np.ndarray[Any, Any]) -> tuple[Tokens, np.ndarray[Any, Any]] | None:
        n, N, last = self.n, self.positions, len(self.layers) - 1
        position = np.repeat(np.arange(N), 2)  # of each different stream: here two for each position
        streams, which = self.embed(np.arange(2 * N) % 2, position), 2 * np.arange(N) + tokens
        is_undefined = np.zeros(N, bool)
        for depth, layer in enumerate(self.layers):
            start = np.searchsorted(position, np.arange(N))
            queries, keys = layer.queries(streams), layer.keys(streams)
            if (queries != queries[start[position]]).any() or (keys != keys[start[position]]).any():
                return None
            found = survivors(self.bits, queries[start], keys[start])
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


def _finite(name: str, tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not bool(torch.isfinite(tensor).all()):
        raise BadInput(f"{name}: holds a weight that is not a finite number")
    return tensor.detach().to(torch.float64).cpu().numpy()


class Survivors(NamedTuple):
    """The exponentials that are not zero, by query and then by key: whose they are, and their share of the sum.

    `total` is the sum of each query's.
    """

    query: Ints
    key: Ints
    share: Ints
    total: Ints


def survivors(bits: FixedPoint, queries: Ints, keys: Ints) -> Survivors | None:
    """Every exponential of each position's query (N, 2k) and a key at or before it; None if they are too many."""
    N, found, listed = len(keys), list[tuple[Ints, Ints, Ints]](), 0
    for start in range(0, N, PASS_QUERIES):
        q = queries[start : start + PASS_QUERIES]
        stop = start + len(q)
        scores = np.zeros((len(q), stop), np.int32)  # a sum of two values is below 2^26
        for j in range(q.shape[1]):
            values, which = np.unique(q[:, j], return_inverse=True)
            scores += bits.multiply(values[:, None], keys[None, :stop, j]).astype(np.int32)[which]
            bits.saturate(scores)
        is_alive = (scores > bits.vanishing) & (np.arange(stop) <= np.arange(start, stop)[:, None])
        query, key = np.nonzero(is_alive)
        found.append((query + start, key, bits.exp(scores[is_alive].astype(bits.dtype)).astype(np.int64)))
        listed += len(query)
        if listed > PASS_SURVIVORS:
            return None
    query, key, exponentials = (np.concatenate(each) for each in zip(*found, strict=True))
    total = np.minimum(np.bincount(query, exponentials, N).astype(np.int64), bits.largest)  # exact: below 2^53
    return Survivors(query, key, bits.divide(exponentials, np.maximum(total, 1)[query]), total)


def mixture(bits: FixedPoint, found: Survivors, values: Ints) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
    """What each query mixes of values (batch, N), each sum from left to right, and which queries are 0/0 (N,)."""
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
