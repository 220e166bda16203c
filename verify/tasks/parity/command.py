"""`verify parity`: does every position know whether its token occurs an even number of times?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import options

if TYPE_CHECKING:
    from verify.tasks.parity.task import Parity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options(parser, "T", "L")
    add_weights(parser)
    request.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    asked = request.Request.of(args)
    if args.weights is not None and args.T is not None:
        raise BadInput(f"--T {args.T}: is read from the file. Leave it out with --weights.")
    if args.weights is None and (args.T is None or args.L is None):
        raise BadInput("--T and --L: missing. Give both, or judge a file with --weights.")
    from verify.tasks.parity.task import Parity

    if args.weights is None:
        from constructions.parity_arrays import sawtooth

        problem = Parity(sawtooth(T=args.T, L=args.L), "W-12")
    else:
        from constructions.parity import load

        problem = Parity(load(args.weights, L=args.L))
    return request.publish(asked, request.decided(asked, problem), lambda: weights_of(problem))


def weights_of(problem: Parity) -> bytes:
    """The file of the model's module."""
    from constructions.model_arrays import module_of
    from constructions.parity import as_bytes

    return as_bytes(module_of(problem.module))
