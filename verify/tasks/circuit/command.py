"""`verify circuit`: a circuit file becomes transformer weights, proved on all 2^n inputs."""

from __future__ import annotations

import argparse

from constructions.errors import BadInput
from verify.commands.request import Request
from verify.tasks.circuit import chains
from verify.tasks.circuit.chains import RENAMED as RENAMED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="AIGER, .bench or .blif, combinational")
    chains.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from constructions.circuits.circuit import decompose
    from constructions.circuits.files import read_circuit

    asked = Request.of(args).begun()
    wish = chains.ChainWish.of(args, asked)
    circuit = read_circuit(args.file)
    bits = None if args.input is None else input_bits(args.input, circuit.inputs)
    decomposition = decompose(circuit)
    judged = chains.judge(wish, asked, decomposition)
    return chains.publish(wish, asked, decomposition, judged, bits)


def input_bits(text: str, inputs: tuple[str, ...]) -> list[int]:
    """The bits of --input, the first for the first declared input.

    Raises: BadInput for anything but one digit 0 or 1 per input.
    """
    if set(text) - {"0", "1"} or len(text) != len(inputs):
        raise BadInput(f"--input {text[:40]!r}: must be {len(inputs)} digits 0 or 1, one per input in the file's order")
    return [int(digit) for digit in text] or [0]
