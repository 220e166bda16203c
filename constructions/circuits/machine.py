"""The circuit transformer's stored weights, run in constant-bit arithmetic operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.circuit_simulation import CircuitTransformer
from constructions.constant_bits.arithmetic import Affine, FixedPoint, Ints
from constructions.errors import BadInput

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


def _finite(name: str, tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not bool(torch.isfinite(tensor).all()):
        raise BadInput(f"{name}: holds a weight that is not a finite number")
    return tensor.detach().to(torch.float64).cpu().numpy()


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
