"""Whether the AND and NOT gates that a circuit was decomposed into compute its gates, on every input of each gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from constructions.circuits.circuit import Circuit, Decomposition, Gate, apply_gate
from verify.tasks.circuit.refutation import exhaustive_words
from verify.tasks.circuit.retrieval import Indices
from verify.tasks.circuit.steps import gate_arrays

MOST_LEAVES = 4  # of a gate, for its table of 2^4 cases to be one number
DEEPEST = 8  # AND and NOT gates from a gate to what it reads, for all gates of a kind to be traced together
FAN_IN = {"and": 2, "not": 1}
Mask = NDArray[np.bool_]


def wrong_decomposition(decomposition: Decomposition) -> str | None:
    """The first gate whose AND and NOT gates do not compute it on some input of the gate, or input or output astray.

    A node and its negation count as one variable, so that only possible cases are compared.
    """
    original, circuit, node_of = decomposition.original, decomposition.circuit, decomposition.node_of
    n = len(original.inputs)
    if node_of[:n] != tuple(range(n)) or circuit.inputs != (original.inputs or ("start",)):
        return "input"
    if circuit.outputs != tuple((name, node_of[node]) for name, node in original.outputs):
        return "output"
    other = next((gate for gate in circuit.gates if FAN_IN.get(gate.kind) != len(gate.fan_in)), None)
    if other is not None:
        return other.name
    is_right, is_traced = np.zeros((2, len(original.gates)), bool)
    for which, tables, due in _tables(decomposition):
        is_traced[which] = tables >= 0
        is_right[which] = tables == due
    wrong = np.flatnonzero(is_traced & ~is_right)
    last = int(wrong[0]) if len(wrong) else len(original.gates)
    found = first_by_shape(decomposition, np.flatnonzero(~is_traced[:last]).tolist())
    if found is None and len(wrong):
        found = last
    return None if found is None else original.gates[found].name


def _tables(decomposition: Decomposition) -> Iterator[tuple[Indices, Indices, Indices]]:
    """For the gates of each kind and small fan-in: which they are, what is computed in each case, and what is due.

    A table has one bit for each case of the variables that the gate reads; it is -1 where the gates were not traced.
    """
    original, node_of = decomposition.original, np.array(decomposition.node_of, np.int64)
    n, arrays = len(original.inputs), gate_arrays(decomposition.circuit)
    first = len(decomposition.circuit.inputs)
    groups: dict[tuple[str, int], list[int]] = {}
    for j, gate in enumerate(original.gates):
        groups.setdefault((gate.kind, len(gate.fan_in)), []).append(j)
    for (kind, fan_in), gates in groups.items():
        if not 1 <= fan_in <= MOST_LEAVES:
            continue
        which = np.array(gates, np.int64)
        leaves = node_of[np.array([original.gates[j].fan_in for j in gates], np.int64)].T  # (fan_in, gates)
        words, mask = exhaustive_words(fan_in)
        tracer = _Tracer(first, arrays, leaves, np.array(words, np.int64), mask)
        due = np.asarray(apply_gate(kind, list(tracer.of_leaves), mask))
        yield which, tracer.table(node_of[n + which], np.arange(len(which)), DEEPEST), due


class _Tracer:
    """The tables of many gates of one fan-in at once, in the variables of their leaves.

    Shapes: leaves (m, gates), words (m,), the table of each variable.
    """

    def __init__(
        self, first: int, arrays: tuple[Indices, Indices, Indices], leaves: Indices, words: Indices, mask: int
    ) -> None:
        self.first, self.mask = first, mask
        self.is_and, self.a, self.b = (np.append(array, 0) for array in arrays)  # there may be no gates
        is_negated = self._is_gate(leaves) & (self._at(self.is_and, leaves) == 0)
        self.variables = np.where(is_negated, self._at(self.a, leaves), leaves)
        self.words = np.empty_like(leaves)  # leaves of one variable share its table
        for i in range(len(leaves) - 1, -1, -1):
            for j in range(i, len(leaves)):
                self.words[j] = np.where(self.variables[j] == self.variables[i], words[i], self.words[j])
        self.of_leaves = self.words ^ np.where(is_negated, mask, 0)

    def _is_gate(self, nodes: Indices) -> Mask:
        return np.asarray(nodes >= self.first)

    def _at(self, of_gates: Indices, nodes: Indices) -> Indices:
        return of_gates[np.maximum(nodes - self.first, 0)]

    def table(self, nodes: Indices, at: Indices, depth: int) -> Indices:
        """The tables of nodes in the variables of the gates `at`, -1 where more than `depth` gates lie between."""
        found = np.full(len(nodes), -1, np.int64)
        for variable, word in zip(self.variables[:, at], self.words[:, at], strict=True):
            found = np.where(nodes == variable, word, found)
        for kind in (0, 1):
            rest = np.flatnonzero((found < 0) & self._is_gate(nodes))
            rest = rest[self._at(self.is_and, nodes[rest]) == kind]
            if not depth or not len(rest):
                continue
            values = self.table(self._at(self.a, nodes[rest]), at[rest], depth - 1)
            if kind:
                others = self.table(self._at(self.b, nodes[rest]), at[rest], depth - 1)
                found[rest] = np.where((values < 0) | (others < 0), -1, values & others)
            else:
                found[rest] = np.where(values < 0, -1, values ^ self.mask)
        return found


def first_by_shape(decomposition: Decomposition, which: Iterable[int]) -> int | None:
    """The first of these gates that is computed wrongly, one gate at a time, and each shape of its gates once."""
    original, circuit, node_of = decomposition.original, decomposition.circuit, decomposition.node_of
    known: dict[object, bool] = {}
    for j in which:
        gate = original.gates[j]
        shape = _shape(circuit, node_of[len(original.inputs) + j], [node_of[node] for node in gate.fan_in] or [0])
        if shape is None:
            return j
        key = (gate.kind, len(gate.fan_in), shape)
        if key not in known:
            known[key] = _computes(*key)
        if not known[key]:
            return j
    return None


Shape = tuple[tuple[tuple[int, bool], ...], tuple[tuple[str, tuple[int, ...]], ...]]


def _shape(circuit: Circuit, root: int, leaves: list[int]) -> Shape | None:
    """How a node is computed from its gate's leaves, whatever their numbers: None where it reads anything else.

    First the leaves, each by its variable (a node and its negation are one) and whether it is negated; then the gates
    in order, each with what it reads: variables by their numbers -1, -2, ..., and gates by 0, 1, ...
    """
    n, gates = len(circuit.inputs), circuit.gates
    number: dict[int, int] = {}  # of a variable or a gate that is done
    signs = []
    for leaf in leaves:
        is_negated = leaf >= n and gates[leaf - n].kind == "not"
        variable = gates[leaf - n].fan_in[0] if is_negated else leaf
        signs.append((number.setdefault(variable, -1 - len(number)), is_negated))
    steps: list[tuple[str, tuple[int, ...]]] = []
    todo = [root]
    while todo:
        node = todo[-1]
        if node in number:
            todo.pop()
            continue
        if node < n:
            return None
        kind, fan_in, _ = gates[node - n]
        missing = [source for source in fan_in if source not in number]
        if missing:
            todo += missing
            continue
        number[node] = len(steps)
        steps.append((kind, tuple([number[source] for source in fan_in])))
    return tuple(signs), (*steps, ("is", (number[root],)))


def _computes(kind: str, fan_in: int, shape: Shape) -> bool:
    """Whether AND and NOT gates of this shape compute the gate, on every input of it."""
    leaves, steps = shape
    words, mask = exhaustive_words(-min(number for number, _ in leaves))
    values: list[int] = []
    for step, sources in steps:
        read = [values[source] if source >= 0 else words[-1 - source] for source in sources]
        values.append(read[0] if step == "is" else read[0] ^ mask if step == "not" else read[0] & read[1])
    gate = Gate(kind, tuple(range(fan_in)), "")
    one_gate = Circuit("", tuple(map(str, range(max(fan_in, 1)))), (gate,), (("", max(fan_in, 1)),))
    inputs = [words[-1 - number] ^ (mask if is_negated else 0) for number, is_negated in leaves]
    return values[-1] == one_gate.evaluate(inputs, mask)[-1]
