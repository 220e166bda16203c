"""The figure of a circuit's chain of thought that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    tape = add_kind("tape", "the chain of thought of a small circuit on one input")
    tape.add_argument("file", metavar="FILE", help="AIGER, .bench or .blif, combinational")
    option(tape, "input", required=True, metavar="BITS", help="such as 011")


def draw(args: argparse.Namespace) -> Figure:
    """The chain of thought of a circuit on one input."""
    return _tape(args.file, args.input)


def _tape(file: str, bits: str) -> Figure:
    from constructions.circuits.files import read_circuit
    from verify.tasks.circuit.command import input_bits
    from verify.tasks.circuit.drawing import tape

    circuit = read_circuit(file)
    return tape(circuit, input_bits(bits, circuit.inputs))
