"""How `verify.certify` decides a circuit transformer, and the command that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from constructions.circuit_simulation import CircuitTransformer
from constructions.circuits.circuit import Circuit, Decomposition, decompose
from constructions.circuits.weights import save_weights
from constructions.errors import BadInput
from verify.arithmetic.readings import ConstantBits, Reading, options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import Effort, Finding, How
from verify.tasks.circuit import dtype, proof
from verify.tasks.circuit.task import CircuitProblem


def posed(
    module: CircuitTransformer, how: How, *, circuit: Circuit | Decomposition | None = None
) -> tuple[CircuitProblem, How]:
    """The model on all inputs of its circuit, by default in constant-bit arithmetic of its own bits."""
    if not isinstance(circuit, Circuit | Decomposition):
        raise BadInput(f"circuit={circuit!r}: must be the Circuit that the model is to compute, or its Decomposition.")
    decomposition = decompose(circuit) if isinstance(circuit, Circuit) else circuit
    found = CircuitProblem.of(module, decomposition, prove)
    return found, how if how.reading is not None else How(ConstantBits(found.model.s), how.method)


def prove(problem: CircuitProblem, reading: Reading, effort: Effort) -> Finding:
    """By the proof that the reading has."""
    if isinstance(reading, ConstantBits):
        return proof.prove(problem, reading, effort)
    return dtype.prove(problem, reading, effort)  # type: ignore[arg-type]


def command(module: CircuitTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    """Writes the weights, and returns the command line that decides them again; nodes are n0, n1, ..."""
    path = f"{folder}/weights.safetensors"
    save_weights(module, path)
    given = options.pop("circuit")
    original = given.original if isinstance(given, Decomposition) else given
    file = f"{folder}/circuit.bench"
    Path(file).write_text(bench(original), encoding="utf-8")
    return ["verify", "circuit", file, "--weights", path, *options_of(options)]


def bench(circuit: Circuit) -> str:
    """The circuit as a .bench file, its nodes named by their numbers.

    >>> from constructions.circuits.circuit import Gate
    >>> print(bench(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),))), end="")
    INPUT(n0)
    INPUT(n1)
    OUTPUT(n2)
    n2 = NAND(n0, n1)
    """
    n = len(circuit.inputs)
    kinds = {"buf": "BUFF", "zero": "gnd", "one": "vdd"}
    lines = [f"INPUT(n{i})" for i in range(n)] + [f"OUTPUT(n{node})" for _, node in circuit.outputs]
    for node, gate in enumerate(circuit.gates, start=n):
        kind = kinds.get(gate.kind, gate.kind.upper())
        lines.append(f"n{node} = {kind}({', '.join(f'n{i}' for i in gate.fan_in)})")
    return "\n".join(lines) + "\n"
