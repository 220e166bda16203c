"""`verify bidirectional`: contextual counting without a causal mask, by absolute positions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.options import check_least
from verify.commands.parsing import add_weights

if TYPE_CHECKING:
    from verify.contextual.bidirectional.task import Bidirectional

DTYPES = ("float64", "float32", "bfloat16", "float16")
LENGTH, REGIONS = 64, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--length", type=int, metavar="N", help=f"longest string the model is built for (default {LENGTH})")
    add("--regions", type=int, metavar="R", help=f"regions it counts (default {REGIONS})")
    add("--coordinates", type=int, metavar="D", help="position coordinates of a score (default: the fewest possible)")
    add("--dtype", choices=DTYPES, help="dtype of the stored weights (default: that of --precision, else float64)")
    add_weights(parser, "judge these weights (.safetensors or .pt state dict) instead")
    add("--on-length", type=int, metavar="N", help="judge strings of up to N tokens (default --length)")
    add("--on-regions", type=int, metavar="R", help="judge strings of up to R regions (default --regions)")
    request.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    asked = request.Request.of(args)
    check_least(args, 1, "length", "regions", "coordinates", "on_length")
    check_least(args, 0, "on_regions")
    if args.weights is not None:
        for name in ("length", "regions", "coordinates", "dtype"):
            if getattr(args, name) is not None:
                raise BadInput(f"--{name} {getattr(args, name)}: is read from the file. Leave it out with --weights.")
    from constructions.contextual.bidirectional import as_bytes
    from verify.decide import decide

    problem = _problem(args, asked)
    certificate = decide(problem, asked.reading, asked.method, asked.effort())
    return request.publish(asked, certificate, as_bytes(problem.module))


def _problem(args: argparse.Namespace, asked: request.Request) -> Bidirectional:
    from constructions import contextual_positions
    from constructions.contextual import bidirectional
    from constructions.contextual.transformer import DTYPES as TORCH_DTYPES
    from verify.arithmetic.readings import Rounded
    from verify.contextual.bidirectional.task import LONGEST, Bidirectional

    if args.weights is not None:
        return Bidirectional.of(bidirectional.load(args.weights), length=args.on_length, regions=args.on_regions)
    N, R = args.length or LENGTH, args.regions or REGIONS
    if N > LONGEST:
        raise BadInput(f"--length {N}: at most {LONGEST} are judged. Use a smaller one.")
    fmt = asked.reading.format if isinstance(asked.reading, Rounded) else None
    stored = args.dtype or (fmt.name if fmt is not None and fmt.name in TORCH_DTYPES else "float64")
    coordinates = args.coordinates
    if coordinates is None and fmt is not None and fmt.smallest_exponent > -1000:  # pN and others: fewer exponents
        narrow = TORCH_DTYPES["float16" if fmt.smallest_exponent > -100 else "float32"]
        coordinates = -(-(N + 1) // contextual_positions.block_length(narrow))
    module = contextual_positions.build(
        N, R, coordinates=coordinates, dtype=TORCH_DTYPES[stored], u=None if fmt is None else fmt.u
    )
    return Bidirectional.of(module, length=args.on_length, regions=args.on_regions, claim="W-19")
