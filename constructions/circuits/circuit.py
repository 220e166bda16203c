"""Boolean circuits: an immutable type, its evaluation, and its decomposition into AND and NOT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_, xor
from typing import NamedTuple

from constructions.circuits.between import AT_ONCE, Between, goes_on, watched
from constructions.errors import BadInput

MAX_FAN_IN = 16  # so that a gate's decomposition can be checked on every input of the gate
MAX_NODES = 5_000_000  # about 2 GiB of Python objects

# kind -> (operation folded over the inputs, whether the result is negated)
FOLDS: dict[str, tuple[Callable[[int, int], int], bool]] = {
    "and": (and_, False),
    "nand": (and_, True),
    "or": (or_, False),
    "nor": (or_, True),
    "xor": (xor, False),
    "xnor": (xor, True),
    "buf": (and_, False),
    "not": (and_, True),
}
UNFOLDED = {"nand": "and", "nor": "or", "xnor": "xor"}
CONSTANTS = ("zero", "one")


class Gate(NamedTuple):
    """One gate: its kind, the nodes it reads (inputs 0..n-1, then the gates in order), and its name."""

    kind: str
    fan_in: tuple[int, ...]
    name: str


@dataclass(frozen=True)
class Circuit:
    """A combinational circuit; gate j is node n + j and reads earlier nodes only.

    Claim: E, Def. 3.1, with every usual gate in place of AND, OR and NOT.
    Raises: BadInput when a gate reads itself, a later node or too many nodes, or nothing is output.

    >>> circuit = Circuit("half adder", ("x", "y"), (Gate("xor", (0, 1), "s"), Gate("and", (0, 1), "c")),
    ...                   (("s", 2), ("c", 3)))
    >>> circuit.outputs_of([1, 1])
    (0, 1)
    """

    name: str
    inputs: tuple[str, ...]
    gates: tuple[Gate, ...]
    outputs: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if self.nodes > MAX_NODES:
            raise BadInput(f"{self.name}: {self.nodes} inputs and gates, more than the {MAX_NODES} that fit")
        if not self.outputs:
            raise BadInput(f"{self.name}: no outputs, so there is nothing to compute; declare at least one")
        check_distinct(self.name, "input", self.inputs)
        check_distinct(self.name, "output", [name for name, _ in self.outputs])
        for node, gate in enumerate(self.gates, start=len(self.inputs)):
            check_gate(self.name, node, gate)
        for name, node in self.outputs:
            if not 0 <= node < self.nodes:
                raise BadInput(f"{self.name}: output {name} is node {node}, of {self.nodes}")

    @property
    def nodes(self) -> int:
        return len(self.inputs) + len(self.gates)

    def name_of(self, node: int) -> str:
        n = len(self.inputs)
        return self.inputs[node] if node < n else self.gates[node - n].name

    def _repr_html_(self) -> str:
        """The gates as a table, for notebooks."""
        from constructions.drawing import table

        outputs = ", ".join(f"{name} = {self.name_of(node)}" for name, node in self.outputs)
        rows = [(gate.name, gate.kind.upper(), ", ".join(map(self.name_of, gate.fan_in))) for gate in self.gates]
        return table(self.name, f"inputs {', '.join(self.inputs)}; outputs {outputs}", ("gate", "kind", "reads"), rows)

    def evaluate(self, words: Sequence[int], mask: int = 1, between: Between = goes_on) -> list[int]:
        """The value of every node; bit t of each word belongs to the t-th input vector.

        `between` is called between pieces of the work, and may end it.
        Shapes: words has one integer per input, within `mask`, the word of all ones.

        >>> circuit = Circuit("nor", ("x", "y"), (Gate("nor", (0, 1), "z"),), (("z", 2),))
        >>> circuit.evaluate([0b0011, 0b0101], 0b1111)
        [3, 5, 8]
        """
        values = list(words)
        for kind, fan_in, _ in watched(self.gates, between, AT_ONCE << 4):
            values.append(apply_gate(kind, [values[node] for node in fan_in], mask))
        return values

    def outputs_of(self, bits: Sequence[int]) -> tuple[int, ...]:
        """The outputs on one input vector."""
        if len(bits) != len(self.inputs):
            raise BadInput(f"input of {len(bits)} bits: {self.name} has {len(self.inputs)} inputs")
        values = self.evaluate(bits)
        return tuple(values[node] for _, node in self.outputs)

    def statistics(self) -> dict[str, int]:
        """Inputs, outputs, gates of every kind, depth and largest fan-in."""
        depth = [0] * len(self.inputs)
        for gate in self.gates:
            depth.append(1 + max((depth[node] for node in gate.fan_in), default=0))
        return {
            "inputs": len(self.inputs),
            "outputs": len(self.outputs),
            "gates": len(self.gates),
            "depth": max(depth, default=0),
            "largest fan-in": max((len(gate.fan_in) for gate in self.gates), default=0),
            **{kind: count for kind, count in sorted(Counter(gate.kind for gate in self.gates).items())},
        }


def apply_gate(kind: str, values: Sequence[int], mask: int) -> int:
    """One gate on words of bits.

    >>> bin(apply_gate("nor", [0b0011, 0b0101], 0b1111))
    '0b1000'
    """
    if kind in CONSTANTS:
        return mask if kind == "one" else 0
    fold, is_negated = FOLDS[kind]
    value = reduce(fold, values)
    return value ^ mask if is_negated else value


def check_gate(circuit: str, node: int, gate: Gate) -> None:
    """Raises BadInput unless the gate's kind, fan-in and order make sense.

    >>> check_gate("latch", 2, Gate("and", (0, 2), "q"))
    Traceback (most recent call last):
    constructions.errors.BadInput: latch: gate q is node 2 and reads node 2, which is not earlier
    """
    kind, fan_in, name = gate
    if kind not in FOLDS and kind not in CONSTANTS:
        raise BadInput(f"{circuit}: gate {name} is of the unknown kind {kind!r}")
    least, most = (0, 0) if kind in CONSTANTS else (1, 1) if kind in ("not", "buf") else (1, MAX_FAN_IN)
    if not least <= len(fan_in) <= most:
        raise BadInput(f"{circuit}: gate {name} ({kind}) has {len(fan_in)} inputs, allowed are {least}..{most}")
    for other in fan_in:
        if not 0 <= other < node:
            raise BadInput(f"{circuit}: gate {name} is node {node} and reads node {other}, which is not earlier")


def check_distinct(circuit: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(f"{circuit}: {what} {name} is declared twice; each needs a name of its own")
        seen.add(name)


class Part(NamedTuple):
    """A signal that a reader adds to those of a file, such as the negation of one; `shown` says how it is written.

    Names in files are strings, so that none of them equals a part, whatever characters it has.

    >>> str(Part("x", "~{}")), Part("x", "~{}") == "~x"
    ('~x', False)
    """

    of: Signal
    shown: str

    def __str__(self) -> str:
        return self.shown.format(self.of)


Signal = str | Part
Definitions = Mapping[Signal, tuple[str, Sequence[Signal]]]


def from_signals(
    name: str,
    inputs: Sequence[str],
    definitions: Definitions,
    outputs: Sequence[str],
    between: Between = goes_on,
) -> Circuit:
    """The circuit of named signals, each defined by a kind and the signals it reads, in any order.

    Gates wider than 16 inputs become chains; gates already in topological order keep it. `between` is called between
    pieces of the work, and may end it.
    Raises: BadInput for an undefined signal, a cycle, or a signal defined twice as input and gate.

    >>> from_signals("t", ["x"], {"z": ("not", ["y"]), "y": ("buf", ["x"])}, ["z"]).gates
    (Gate(kind='buf', fan_in=(0,), name='y'), Gate(kind='not', fan_in=(1,), name='z'))
    """
    definitions = _without_wide_gates(definitions)
    for given in inputs:
        if given in definitions:
            raise BadInput(f"{name}: input {given} is also the output of a gate")
    node_of: dict[Signal, int] = {signal: node for node, signal in enumerate(inputs)}
    gates: list[Gate] = []
    for signal in watched(topological(name, node_of, definitions, between), between):
        kind, fan_in = definitions[signal]
        node_of[signal] = len(inputs) + len(gates)
        gates.append(Gate(kind, tuple(node_of[other] for other in fan_in), str(signal)))
    for output in outputs:
        if output not in node_of:
            raise BadInput(f"{name}: output {output} is defined nowhere (is the file truncated?)")
    return Circuit(name, tuple(inputs), tuple(gates), tuple((output, node_of[output]) for output in outputs))


def _without_wide_gates(definitions: Definitions) -> Definitions:
    narrow: dict[Signal, tuple[str, Sequence[Signal]]] = {}
    for signal, (kind, fan_in) in definitions.items():
        links = 0
        while len(fan_in) > MAX_FAN_IN:
            link, links = Part(signal, f"{{}}#{links}"), links + 1
            narrow[link] = (UNFOLDED.get(kind, kind), fan_in[:MAX_FAN_IN])
            fan_in = [link, *fan_in[MAX_FAN_IN:]]
        narrow[signal] = (kind, fan_in)
    return narrow


def topological(
    name: str, known: Collection[Signal], definitions: Definitions, between: Between = goes_on
) -> list[Signal]:
    """The defined signals, each after those that it reads.

    Depth first, without recursion: circuits are deeper than Python's stack.
    Raises: BadInput for a cycle, or a signal that is read and neither known nor defined.

    >>> topological("t", ["x"], {"z": ("not", ["y"]), "y": ("buf", ["x"])})
    ['y', 'z']
    """
    order: list[Signal] = []
    done = set(known)
    for root in watched(definitions, between):
        path = [] if root in done else [root]
        on_path = set(path)
        while path:
            signal = path[-1]
            missing = next((other for other in definitions[signal][1] if other not in done), None)
            if missing is None:
                done.add(signal)
                order.append(path.pop())
                on_path.discard(signal)
            elif missing in on_path:
                raise BadInput(f"{name}: cycle through {missing} and {signal}; only combinational circuits")
            elif missing not in definitions:
                raise BadInput(f"{name}: signal {missing}, read by {signal}, is defined nowhere")
            else:
                path.append(missing)
                on_path.add(missing)
    return order


@dataclass(frozen=True)
class Decomposition:
    """A circuit of AND and NOT gates only, and where every node of the original lives in it."""

    original: Circuit
    circuit: Circuit
    node_of: tuple[int, ...]


def decompose(original: Circuit, between: Between = goes_on) -> Decomposition:
    """The same circuit from AND and NOT gates; every signal is negated at most once.

    Claim: E, Thm. 3.4, "we can assume that it only contains AND and NOT gates". A circuit without inputs
    gets one, `start`, whose two values bring the same outputs: a chain of thought needs a first token. `between` is
    called between pieces of the work, and may end it.

    >>> circuit = Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),))
    >>> [gate[:2] for gate in decompose(circuit).circuit.gates]
    [('not', (0,)), ('not', (1,)), ('and', (2, 3)), ('not', (4,))]
    """
    build = _AndNot(original.inputs or ("start",))
    node_of = list(range(len(original.inputs)))
    for kind, fan_in, name in watched(original.gates, between):
        node_of.append(build.gate(kind, [node_of[node] for node in fan_in], name))
    outputs = tuple((name, node_of[node]) for name, node in original.outputs)
    circuit = Circuit(original.name, build.inputs, tuple(build.gates), outputs)
    return Decomposition(original, circuit, tuple(node_of))


class _AndNot:
    """Collects AND and NOT gates; intermediate ones are named after the gate that they serve."""

    def __init__(self, inputs: tuple[str, ...]) -> None:
        self.inputs = inputs
        self.gates: list[Gate] = []
        self.negation: dict[int, int] = {}
        self.zero: int | None = None

    def name_of(self, node: int) -> str:
        n = len(self.inputs)
        return self.inputs[node] if node < n else self.gates[node - n].name

    def append(self, kind: str, fan_in: tuple[int, ...], name: str) -> int:
        self.gates.append(Gate(kind, fan_in, name))
        return len(self.inputs) + len(self.gates) - 1

    def negate(self, x: int, name: str | None = None) -> int:
        if x not in self.negation:
            self.negation[x] = self.append("not", (x,), name or f"~{self.name_of(x)}")
            self.negation[self.negation[x]] = x
        return self.negation[x]

    def conjunction(self, nodes: Sequence[int], name: str) -> int:
        """x_1 AND ... AND x_m as a chain; x AND x is x."""
        nodes = list(dict.fromkeys(nodes))
        total = nodes[0]
        for j, x in enumerate(nodes[1:], start=1):
            total = self.append("and", (total, x), name if j == len(nodes) - 1 else f"{name}&{j}")
        return total

    def exclusive(self, x: int, y: int, name: str) -> int:
        """x XOR y = (x NAND y) AND (x OR y)."""
        both = self.conjunction([x, y], f"{name}&")
        neither = self.conjunction([self.negate(x), self.negate(y)], f"{name}|")
        return self.conjunction([self.negate(both), self.negate(neither)], name)

    def constant_zero(self, name: str) -> int:
        if self.zero is None:
            self.zero = self.conjunction([0, self.negate(0)], name)
        return self.zero

    def gate(self, kind: str, x: list[int], name: str) -> int:
        """The node that computes the gate."""
        match kind:
            case "and" | "buf":
                return self.conjunction(x, name)
            case "nand" | "not":
                return self.negate(self.conjunction(x, f"~{name}"), name)
            case "nor":
                return self.conjunction([self.negate(y) for y in x], name)
            case "or":
                return self.negate(self.conjunction([self.negate(y) for y in x], f"~{name}"), name)
            case "xor" | "xnor":
                total = x[0]
                for j, y in enumerate(x[1:], start=1):
                    total = self.exclusive(total, y, name if kind == "xor" and j == len(x) - 1 else f"{name}^{j}")
                return self.negate(total, name) if kind == "xnor" else total
            case "zero":
                return self.constant_zero(name)
            case _:
                return self.negate(self.constant_zero(f"~{name}"), name)
