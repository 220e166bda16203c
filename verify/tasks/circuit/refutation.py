"""Inputs of a circuit that bring given bits to given nodes, or the proof that none does."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import Enum

from constructions.circuits.circuit import Circuit, apply_gate
from verify.tasks.circuit.steps import Fault

EXHAUSTIVE_INPUTS = 16  # 2^16 inputs are one word per node
SAMPLES = 4096
CONFLICTS = 200_000  # of the search for an input, before it gives up


class WhyNone(Enum):
    """Why there is no input: proved by enumeration, or only not found."""

    IMPOSSIBLE = "no input reaches it, by enumeration"
    UNSATISFIABLE = "a SAT solver says that no input reaches it, which is not checked here"
    UNDECIDED = f"no input was found within {CONFLICTS} conflicts"


class InputFinder:
    """Finds inputs of one circuit; random and exhaustive words are evaluated once, as far as asked, and kept.

    >>> from constructions.circuits.circuit import Gate
    >>> import numpy as np
    >>> circuit = Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),))
    >>> InputFinder(circuit).find(Fault(2, (1, 2), np.array([[0, 1], [1, 1]]), ""))
    [1, 1]
    """

    def __init__(self, circuit: Circuit, seed: int = 0) -> None:
        self.circuit = circuit
        self.is_exhaustive = len(circuit.inputs) <= EXHAUSTIVE_INPUTS
        if self.is_exhaustive:
            self.words, self.mask = exhaustive_words(len(circuit.inputs))
        else:
            self.words, self.mask = random_words(len(circuit.inputs), SAMPLES, seed)
        self._values = list(self.words)

    def _values_up_to(self, node: int) -> list[int]:
        n = len(self.circuit.inputs)
        for kind, fan_in, _ in self.circuit.gates[len(self._values) - n : max(node + 1 - n, 0)]:
            self._values.append(apply_gate(kind, [self._values[source] for source in fan_in], self.mask))
        return self._values

    def find(self, fault: Fault) -> list[int] | WhyNone:
        """An input on which the fault's nodes take one of its assignments."""
        found = _first_hit(fault, self._values_up_to(max(fault.nodes)), self.mask)
        if found is not None:
            return [word >> found & 1 for word in self.words]
        if self.is_exhaustive:
            return WhyNone.IMPOSSIBLE
        cone = cone_of(self.circuit, fault.nodes)
        inputs = [node for node in cone if node < len(self.circuit.inputs)]
        if len(inputs) <= EXHAUSTIVE_INPUTS:
            return self._enumerate_cone(fault, cone, inputs)
        return _search(self.circuit, fault, cone)

    def _enumerate_cone(self, fault: Fault, cone: list[int], inputs: list[int]) -> list[int] | WhyNone:
        words, mask = exhaustive_words(len(inputs))
        values = evaluate_cone(self.circuit, cone, dict(zip(inputs, words, strict=True)), mask)
        found = _first_hit(fault, values, mask)
        if found is None:
            return WhyNone.IMPOSSIBLE
        bits = [0] * len(self.circuit.inputs)
        for node, word in zip(inputs, words, strict=True):
            bits[node] = word >> found & 1
        return bits


def _first_hit(fault: Fault, values: Sequence[int] | dict[int, int], mask: int) -> int | None:
    """The first input of the words on which the nodes take one of the assignments."""
    for bits in fault.assignments.tolist():
        hit = mask
        for node, bit in zip(fault.nodes, bits, strict=True):
            hit &= values[node] if bit else values[node] ^ mask
        if hit:
            return (hit & -hit).bit_length() - 1
    return None


def exhaustive_words(n: int) -> tuple[list[int], int]:
    """One word per input whose bits run through all 2^n inputs, and the word of all ones.

    >>> exhaustive_words(2)
    ([10, 12], 15)
    """
    mask = (1 << 2**n) - 1
    return [mask // ((1 << 2**j) + 1) << 2**j for j in range(n)], mask


def random_words(n: int, samples: int, seed: int) -> tuple[list[int], int]:
    """One random word per input; its first two bits are the inputs all zero and all one."""
    rng = random.Random(seed)
    return [rng.getrandbits(samples) & ~1 | 2 for _ in range(n)], (1 << samples) - 1


def cone_of(circuit: Circuit, nodes: Iterable[int], leaves: Iterable[int] = ()) -> list[int]:
    """Every node that the given ones depend on, stopping at leaves, in topological order."""
    n, stop = len(circuit.inputs), set(leaves)
    cone, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node not in cone:
            cone.add(node)
            if node >= n and node not in stop:
                todo.extend(circuit.gates[node - n].fan_in)
    return sorted(cone)


def evaluate_cone(circuit: Circuit, cone: Iterable[int], known: dict[int, int], mask: int) -> dict[int, int]:
    """The values of AND and NOT gates in a cone from those of its leaves."""
    values = dict(known)
    for node in cone:
        if node not in values:
            kind, fan_in, _ = circuit.gates[node - len(circuit.inputs)]
            values[node] = values[fan_in[0]] ^ mask if kind == "not" else values[fan_in[0]] & values[fan_in[1]]
    return values


def _search(circuit: Circuit, fault: Fault, cone: list[int]) -> list[int] | WhyNone:
    """By a SAT solver; what it finds is run through the module afterwards, so that it need not be trusted."""
    from pysat.solvers import Glucose4

    variable = {node: j for j, node in enumerate(cone, start=1)}
    n, undecided = len(circuit.inputs), False
    with Glucose4() as solver:
        for node in cone:
            if node >= n:
                for clause in _clauses(circuit, node, variable):
                    solver.add_clause(clause)
        for bits in fault.assignments.tolist():
            solver.conf_budget(CONFLICTS)
            wanted = [variable[node] if bit else -variable[node] for node, bit in zip(fault.nodes, bits, strict=True)]
            answer = solver.solve_limited(assumptions=wanted)
            if answer:
                model = set(solver.get_model())
                return [int(node in variable and variable[node] in model) for node in range(n)]
            undecided |= answer is None
    return WhyNone.UNDECIDED if undecided else WhyNone.UNSATISFIABLE


def _clauses(circuit: Circuit, node: int, variable: dict[int, int]) -> list[list[int]]:
    kind, fan_in, _ = circuit.gates[node - len(circuit.inputs)]
    z, x, y = variable[node], variable[fan_in[0]], variable[fan_in[-1]]
    return [[z, x], [-z, -x]] if kind == "not" else [[-z, x], [-z, y], [z, -x, -y]]
