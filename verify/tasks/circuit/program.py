"""What a saved certificate says of its circuit, in plain JSON, so that it can be decided again without its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constructions.circuits.circuit import Decomposition
    from constructions.regular_language import Unrolling


def program(decomposition: Decomposition, unrolling: Unrolling | None = None) -> dict[str, object]:
    """The gates of the file, the steps of the chain of thought, and which step is which gate's.

    A step reads one token and negates it, or two and is their conjunction. A language comes with its automaton, and the
    node of each state after each symbol.

    >>> from constructions.circuits.circuit import Circuit, Gate, decompose
    >>> program(decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),))))
    {'inputs': 2, 'gates': [['nand', 0, 1]], 'outputs': [2], 'steps': [[0, 1], [2]], 'node_of': [0, 1, 3]}
    """
    original = decomposition.original
    found: dict[str, object] = {
        "inputs": len(original.inputs),
        "gates": [[gate.kind, *gate.fan_in] for gate in original.gates],
        "outputs": [node for _, node in original.outputs],
        "steps": [[*gate.fan_in] for gate in decomposition.circuit.gates],
        "node_of": [*decomposition.node_of],
    }
    if unrolling is None:
        return found
    automaton = unrolling.automaton
    slices = [[[state, node] for state, node in slice_.items()] for slice_ in unrolling.slices]
    language = {"step": [[*row] for row in automaton.step], "accepting": sorted(automaton.accepting), "slices": slices}
    return found | {"automaton": language}
