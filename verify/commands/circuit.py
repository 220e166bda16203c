"""`verify circuit`: a circuit file becomes transformer weights, proved on all 2^n inputs."""

from __future__ import annotations

import argparse

from verify.commands.parsing import add_map
from verify.report.circuit import add_shared_arguments, finish, judge, reading_asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="AIGER, .bench or .blif, combinational")
    add_shared_arguments(parser)
    add_map(parser)


def run(args: argparse.Namespace) -> int:
    from constructions.circuits.circuit import decompose
    from constructions.circuits.files import read_circuit

    reading = reading_asked(args)
    circuit = read_circuit(args.file)
    bits = None if args.input is None else input_bits(args.input, circuit.inputs)
    decomposition = decompose(circuit)
    model, certificate = judge(args, decomposition, reading)
    return finish(args, model, decomposition, certificate, bits, reading)


def input_bits(text: str, inputs: tuple[str, ...]) -> list[int]:
    """The bits of --run, the first for the first declared input."""
    from constructions.errors import BadInput

    if set(text) - {"0", "1"} or len(text) != len(inputs):
        raise BadInput(f"--run {text[:40]!r}: must be {len(inputs)} digits 0 or 1, one per input in the file's order")
    return [int(digit) for digit in text] or [0]
