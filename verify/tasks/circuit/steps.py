"""What every step of a circuit transformer computes from earlier tokens, by its stored weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from constructions.circuits.circuit import Circuit
from constructions.circuits.machine import UNDEFINED, ConstantBitMachine, MachineLayer, attend
from constructions.constant_bits.arithmetic import Ints
from verify.tasks.circuit.retrieval import Indices, PlacedVectors, surviving_pairs

BLOCK = 2048  # positions at a time: 16 variants of 60 lanes stay in the cache
MAX_SUPPORT = 12  # tokens that one step may read for its table of 2^12 cases to be written out
NONE = -1
Progress = Callable[[int, int], None]
Bits = NDArray[np.int64]


class Opaque(Exception):
    """Some step reads too many tokens for its table to be written out."""


@dataclass(frozen=True)
class Retrieval:
    """One head's exact reach: every (position, retrieved position) whose exponential can survive.

    `clear[p]` is the one position that p retrieves with weight exactly 1 whatever the tokens are, else NONE.
    """

    position: Indices
    retrieved: Indices
    clear: Indices

    def reach(self, p: int) -> list[int]:
        start, stop = np.searchsorted(self.position, [p, p + 1])
        return [int(r) for r in self.retrieved[start:stop]]


@dataclass(frozen=True)
class Fault:
    """A step that is wrong whenever the tokens of `nodes` take one of the `assignments`."""

    gate: int
    nodes: tuple[int, ...]
    assignments: Bits
    why: str


class StepBlock(NamedTuple):
    """Some steps: the least distance of g to 1/2, None where it is not known of all, and those that are wrong."""

    least: float | None
    faults: Iterator[Fault]


def blocks(N: int, progress: Progress, start: int = 0) -> Iterator[Indices]:
    """The positions from `start` on, so many at a time."""
    for begin in range(start, N, BLOCK):
        progress(begin, N)
        yield np.arange(begin, min(begin + BLOCK, N))


def retrieve(
    machine: ConstantBitMachine, queries: PlacedVectors[Ints], keys: PlacedVectors[Ints], positions: int
) -> Retrieval:
    """The reach of every position from the surviving pairs of rows."""
    return reach_of(*surviving_pairs(machine.bits, queries, keys), queries.position, keys.position, positions)


def reach_of(query: Indices, key: Indices, query_position: Indices, key_position: Indices, positions: int) -> Retrieval:
    """The reach of every position from pairs (query row, key row), given the position of each row.

    A position is clear when every variant of its query finds every variant of one single position's key:
    the softmax is then [e / e]_s = 1 there, and nothing else is added.
    """
    pairs, count = np.unique(query_position[query] * positions + key_position[key], return_counts=True)
    position, retrieved = np.divmod(pairs, max(positions, 1))
    variants_q = np.bincount(query_position, minlength=positions)
    variants_k = np.bincount(key_position, minlength=positions)
    is_full = count == variants_q[position] * variants_k[retrieved]
    is_single = np.bincount(position, minlength=positions)[position] == 1
    clear = np.full(positions, NONE, np.int64)
    chosen = is_full & is_single
    clear[position[chosen]] = retrieved[chosen]
    return Retrieval(position, retrieved, clear)


class Steps:
    """The exact function of every step, for tokens that are any bits at all.

    Position p (from 0) carries the token of node p and computes node p + 1. Its stream after the first layer
    depends on its own token and those in the first head's reach; its output also on those in the second
    head's reach and their reaches. Where both heads are clear that is at most four tokens, and all
    positions are tabulated at once; elsewhere one position at a time.
    Raises: Opaque or TooManyPairs when the weights have no such structure.
    """

    def __init__(self, machine: ConstantBitMachine, progress: Progress = lambda done, total: None) -> None:
        self.machine, self.progress = machine, progress
        self.N, self.n = machine.positions, machine.n
        self.first, self.values_1 = self._first_head()
        self.second, self.values_2 = self._second_head()

    def _first_head(self) -> tuple[Retrieval, Ints]:
        """Tabulates the first head: what it retrieves, and its value of each token at each position."""
        layer = self.machine.layers[0]
        queries, keys, values = _Variants(), _Variants(), []
        for p in blocks(self.N, self.progress):
            streams = self.machine.embed(np.arange(2)[:, None], p)
            queries.add(p, layer.queries(streams))
            keys.add(p, layer.keys(streams))
            values.append(layer.values(streams)[..., 0])
        found = retrieve(self.machine, queries.rows(), keys.rows(), self.N)
        return found, np.concatenate(values or [np.zeros((2, 0), self.machine.bits.dtype)], axis=1)

    def stream(self, p: Indices, x_p: Bits, x_a: Bits) -> Ints:
        """The stream after the first layer at clear positions: (..., B, d) for tokens (..., B)."""
        retrieved = self.values_1[x_a, np.maximum(self.first.clear[p], 0)]
        return self.machine.layers[0].after_attention(self.machine.embed(x_p, p), retrieved[..., None])

    def _second_head(self) -> tuple[Retrieval, Ints]:
        """Tabulates the second head: what it retrieves, and its value of both tokens that each position may see."""
        layer = self.machine.layers[1]
        queries, keys, values = _Variants(), _Variants(), []
        x_p, x_a = (np.array(bits)[:, None] for bits in zip(*product((0, 1), repeat=2), strict=True))
        for p in blocks(self.N, self.progress):
            a = self.first.clear[p]
            streams = self.stream(p, x_p, np.where(a == p, x_p, x_a))
            is_clear = a != NONE
            queries.add(p[is_clear], layer.queries(streams[:, is_clear]))
            keys.add(p[is_clear], layer.keys(streams[:, is_clear]))
            values.append(layer.values(streams)[..., 0])
        for one in np.flatnonzero(self.first.clear == NONE).tolist():
            support = sorted({one, *self.first.reach(one)})
            streams, _ = self.local_stream(one, support, assignments(support))
            queries.add(np.array([one]), np.unique(layer.queries(streams), axis=0)[:, None])
            keys.add(np.array([one]), np.unique(layer.keys(streams), axis=0)[:, None])
        found = retrieve(self.machine, queries.rows(first=self.n - 1), keys.rows(), self.N)
        return found, np.concatenate(values or [np.zeros((4, 0), self.machine.bits.dtype)], axis=1)

    def local_stream(self, p: int, nodes: list[int], tokens: Bits) -> tuple[Ints, NDArray[np.bool_]]:
        """The stream after layer 1 at one position for each row of tokens of `nodes`, and where 0/0."""
        machine, layer = self.machine, self.machine.layers[0]
        x = machine.embed(tokens[:, nodes.index(p)], p)
        sources = [machine.embed(tokens[:, nodes.index(r)], r) for r in self.first.reach(p)]
        mixed, is_undefined = _attend(machine, layer, x, sources)
        return layer.after_attention(x, mixed[:, None]), is_undefined

    def local_tokens(self, p: int, nodes: list[int], tokens: Bits) -> Bits:
        """The token that position p computes for each row of tokens of `nodes`; UNDEFINED where 0/0."""
        machine, layer = self.machine, self.machine.layers[1]
        x, is_undefined = self.local_stream(p, nodes, tokens)
        sources = [self.local_stream(r, nodes, tokens)[0] for r in self.second.reach(p)]
        mixed, is_zero_over_zero = _attend(machine, layer, x, sources)
        token = machine.read(layer.after_attention(x, mixed[:, None]))
        return np.where(is_undefined | is_zero_over_zero, UNDEFINED, token).astype(np.int64)

    def support(self, p: int) -> set[int]:
        """Every node whose token the output of position p can depend on."""
        nodes = {p, *self.first.reach(p)}
        for r in self.second.reach(p):
            nodes |= {r, *self.first.reach(r)}
        return nodes

    def faults(self, circuit: Circuit) -> Iterator[Fault]:
        """Every step that is not the circuit's gate for some bits before it, in the order of the steps."""
        for block in self.blocks(circuit):
            yield from block.faults

    def blocks(self, circuit: Circuit) -> Iterator[StepBlock]:
        """The steps in order, some thousand at a time: how far g is from 1/2, and the faults."""
        self._check_shape(circuit)
        if not circuit.gates:
            return
        yield StepBlock(np.inf, self._prompt_faults())
        arrays = gate_arrays(circuit)
        for p in blocks(self.N, self.progress, self.n - 1):
            distance = self._distance(p, *(array[p + 1 - self.n] for array in arrays))
            suspects = p[distance < 0]
            least = None if len(suspects) else float(distance.min(initial=np.inf)) / self.machine.bits.one
            faults = (fault for q in suspects for fault in self._fault(circuit, int(q)))
            yield StepBlock(least, faults)

    def _check_shape(self, circuit: Circuit) -> None:
        if (self.n, self.N) != (len(circuit.inputs), circuit.nodes - 1):
            raise ValueError("the transformer and the circuit have different numbers of inputs or steps")

    def _prompt_faults(self) -> Iterator[Fault]:
        """0/0 in the first layer at a prompt position: its key is undefined, hence the first step too."""
        for p in np.flatnonzero(self.first.clear[: self.n - 1] == NONE):
            support = sorted({int(p), *self.first.reach(int(p))})
            tokens = assignments(support)
            _, is_undefined = self.local_stream(int(p), support, tokens)
            if is_undefined.any():
                why = f"the softmax of head 1 is 0/0 at input position {p + 1}"
                yield Fault(self.n, tuple(support), tokens[is_undefined], why)

    def _fault(self, circuit: Circuit, p: int) -> Iterator[Fault]:
        gate = circuit.gates[p + 1 - self.n]
        nodes = sorted(self.support(p) | set(gate.fan_in))
        tokens = assignments(nodes)
        computed = self.local_tokens(p, nodes, tokens)
        read = [tokens[:, nodes.index(node)] for node in gate.fan_in]
        is_wrong = computed != (1 - read[0] if gate.kind == "not" else read[0] & read[1])
        if is_wrong.any():
            yield Fault(p + 1, tuple(nodes), tokens[is_wrong], self._why(circuit, p, computed))

    def _why(self, circuit: Circuit, p: int, computed: Bits) -> str:
        gate = circuit.gates[p + 1 - self.n]
        for head, retrieval, node in ((1, self.first, gate.fan_in[0]), (2, self.second, gate.fan_in[-1])):
            reach = retrieval.reach(p)
            if not reach:
                return f"head {head} finds no position, the softmax is 0/0"
            if reach != [node]:
                found = ", ".join(circuit.name_of(r) for r in reach[:3]) + (", ..." if len(reach) > 3 else "")
                return f"head {head} retrieves {found} instead of {circuit.name_of(node)}"
        if (computed == UNDEFINED).any():
            return "a softmax is 0/0"
        return f"the feed-forward layer is not {gate.kind.upper()}"

    def _distance(self, p: Indices, is_and: Indices, a_wanted: Indices, b_wanted: Indices) -> NDArray[np.float64]:
        """The least distance of g to 1/2, times 2^s, over all cases of the (up to four) tokens of these positions.

        Negative where a case is not the gate's, or the heads are not clear.
        """
        a, b = self.first.clear[p], self.second.clear[p]
        a_of_b = self.first.clear[np.maximum(b, 0)]
        is_right = (a != NONE) & (b != NONE) & (a_of_b != NONE)
        distance, gates = np.full(len(p), np.inf), Due.of((p, a, b, a_of_b), is_and, a_wanted, b_wanted)
        layer, half = self.machine.layers[1], self.machine.bits.one / 2
        for number, tokens in enumerate(cases(p, a, b, a_of_b)):
            x_p, x_a, x_b, x_ab = tokens
            found = self.values_2[2 * x_b + x_ab, np.maximum(b, 0)]
            if number % 4 == 0:  # the cases of x_b and x_ab come last, and the stream before does not depend on them
                before, retrieved = self.stream(p, x_p, x_a), None
            if retrieved is None or not np.array_equal(found, retrieved):  # the value at b mostly shows x_b alone
                retrieved, stream = found, layer.after_attention(before, found[:, None])
                distance = np.minimum(distance, np.abs(stream[..., self.machine.lanes.g] - half))
                token = self.machine.read(stream)
            is_right &= token == gates.value(tokens)  # no token is NONE
        return np.where(is_right, distance, -1.0)


def cases(p: Indices, a: Indices, b: Indices, a_of_b: Indices) -> Iterator[tuple[Bits, Bits, Bits, Bits]]:
    """All values of the tokens of position p and of what its heads retrieve: x_p, x_a, x_b, and x_ab at b.

    Tokens of equal nodes are equal (x_a is x_p where a = p, and so on): every case is a possible one.
    """
    is_p = [node == p for node in (a, b, a_of_b)]
    is_a, is_a_of_b, is_b = b == a, a_of_b == a, a_of_b == b
    for bits in product((0, 1), repeat=4):
        x_p, other_a, other_b, other = (np.full(len(p), bit) for bit in bits)
        x_a = np.where(is_p[0], x_p, other_a)
        x_b = np.where(is_p[1], x_p, np.where(is_a, x_a, other_b))
        yield x_p, x_a, x_b, np.where(is_p[2], x_p, np.where(is_a_of_b, x_a, np.where(is_b, x_b, other)))


@dataclass(frozen=True)
class Due:
    """What the gates of some positions are, and where among the nodes whose tokens are known their inputs are."""

    is_and: Indices
    first: Indices
    second: Indices
    is_missing: NDArray[np.bool_]

    @classmethod
    def of(cls, nodes: tuple[Indices, ...], is_and: Indices, first: Indices, second: Indices) -> Due:
        places, is_missing = [], np.zeros(len(is_and), bool)
        for wanted in (first, second):
            is_there = np.stack([node == wanted for node in nodes])
            places.append(is_there.argmax(0))
            is_missing |= ~is_there.any(0)
        return cls(is_and, places[0], places[1], is_missing)

    def value(self, tokens: tuple[Bits, ...]) -> Bits:
        """The gate's value where `tokens` are those of the nodes, NONE where it reads others."""
        x, y = np.choose(self.first, tokens), np.choose(self.second, tokens)
        return np.where(self.is_missing, NONE, np.where(self.is_and == 1, x & y, 1 - x))


class _Variants:
    """Collects the rows of each position: the first variant, and those that differ from it."""

    def __init__(self) -> None:
        self.vectors: list[Ints] = []
        self.position: list[Indices] = []

    def add(self, p: Indices, variants: Ints) -> None:
        """variants (V, B, m) of the positions p (B,)."""
        self.vectors.append(variants[0])
        self.position.append(p)
        for vectors in variants[1:]:
            differs = (vectors != variants[0]).any(axis=-1)
            self.vectors.append(vectors[differs])
            self.position.append(p[differs])

    def rows(self, first: int = 0) -> PlacedVectors[Ints]:
        """All rows of positions from `first` on."""
        if not self.position:
            return PlacedVectors(np.zeros((0, 0), np.int64), np.zeros(0, np.int64))
        chosen = [position >= first for position in self.position]
        kept = [vectors if is_in.all() else vectors[is_in] for vectors, is_in in zip(self.vectors, chosen, strict=True)]
        position = np.concatenate(self.position)
        return PlacedVectors(np.concatenate(kept), position[position >= first])


def _attend(
    machine: ConstantBitMachine, layer: MachineLayer, x: Ints, sources: list[Ints]
) -> tuple[Ints, NDArray[np.bool_]]:
    """One head from the streams x (A, d) to the streams of its reach, in the order of their positions."""
    if not sources:
        return np.zeros(len(x), machine.bits.dtype), np.ones(len(x), bool)
    keys = np.stack([layer.keys(source) for source in sources], axis=-1)  # (A, 2k, P)
    values = np.stack([layer.values(source)[:, 0] for source in sources], axis=-1)
    return attend(machine.bits, layer.queries(x), keys.transpose(1, 0, 2), values)


def assignments(nodes: list[int]) -> Bits:
    """All bits of the nodes, one case per row.

    Raises: Opaque when there are more than 2^12 cases.
    """
    if len(nodes) > MAX_SUPPORT:
        raise Opaque(f"a step reads {len(nodes)} tokens")
    return np.array(list(product((0, 1), repeat=len(nodes))), np.int64)


def gate_arrays(circuit: Circuit) -> tuple[Indices, Indices, Indices]:
    """For every gate: whether it is AND, its first and its second input."""
    is_and = np.array([gate.kind == "and" for gate in circuit.gates], np.int64)
    first = np.array([gate.fan_in[0] for gate in circuit.gates], np.int64)
    second = np.array([gate.fan_in[-1] for gate in circuit.gates], np.int64)
    return is_and, first, second
