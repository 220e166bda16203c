"""`verify bidirectional`: contextual counting without a causal mask, by absolute positions."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.options import check_least, flag
from verify.commands.parsing import add_weights
from verify.commands.vocabulary import DTYPES, JUDGED, MODEL, group, option

if TYPE_CHECKING:
    from verify.arithmetic.readings import Reading
    from verify.tasks.contextual.bidirectional.task import Bidirectional

LENGTH, REGIONS = 64, 3
RENAMED = {"--on-length": {"--length": "--built-for", "--on-length": "--length"}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "built-for", help=f"longest string the model is built for (default: --length, else {LENGTH})")
    add = group(parser, MODEL).add_argument
    add("--regions", type=int, metavar="R", help=f"regions it counts (default: {REGIONS})")
    add("--coordinates", type=int, metavar="D", help="position coordinates of a score (default: the fewest possible)")
    option(parser, "dtype")
    add_weights(parser)
    option(parser, "length", help="judge strings of up to N tokens (default: --built-for)")
    group(parser, JUDGED).add_argument(
        "--on-regions", type=int, metavar="R", help="judge strings of up to R regions (default: --regions)"
    )
    request.add_arguments(parser)


@dataclass(frozen=True)
class BidirectionalWish:
    """The model that a command line asks for, built or read from a file, and the strings that it is judged on."""

    built_for: int
    regions: int
    coordinates: int | None
    dtype: str | None
    weights: str | None
    length: int | None
    on_regions: int | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> BidirectionalWish:
        """Raises: BadInput for sizes out of range, and for those that a file has of its own."""
        from verify.tasks.contextual.task import MOST_PLACED

        check_least(args, 1, "built_for", "regions", "coordinates", "length")
        check_least(args, 0, "on_regions")
        if args.weights is not None:
            for name in ("built_for", "regions", "coordinates", "dtype"):
                value = getattr(args, name)
                if value is not None:
                    raise BadInput(f"{flag(name)} {value}: is read from the file. Leave it out with --weights.")
        N, R = args.built_for or args.length or LENGTH, args.regions or REGIONS
        if N > MOST_PLACED:
            name = "--built-for" if args.built_for else "--length"
            raise BadInput(f"{name} {N}: at most {MOST_PLACED} are judged. Use a smaller one.")
        return cls(N, R, args.coordinates, args.dtype, args.weights, args.length, args.on_regions)

    def problem(self, reading: Reading) -> Bidirectional:
        """The module or its arrays, with its strings; weights that are built suit the format of the reading."""
        from constructions import contextual_positions_arrays as arrays
        from verify.arithmetic.readings import Rounded
        from verify.tasks.contextual.bidirectional.task import Bidirectional

        if self.weights is not None:
            from constructions.contextual import bidirectional

            return Bidirectional.of(bidirectional.load(self.weights), length=self.length, regions=self.on_regions)
        fmt = reading.format if isinstance(reading, Rounded) else None
        stored = self.dtype or (fmt.name if fmt is not None and fmt.name in DTYPES else "float64")
        coordinates = self.coordinates
        if coordinates is None and fmt is not None and fmt.smallest_exponent > -1000:  # pN and others: fewer exponents
            narrow = "float16" if fmt.smallest_exponent > -100 else "float32"
            coordinates = -(-(self.built_for + 1) // arrays.block_length(narrow))
        module = arrays.build(
            self.built_for, self.regions, coordinates=coordinates, dtype=stored, u=None if fmt is None else fmt.u
        )
        return Bidirectional.of(module, length=self.length, regions=self.on_regions, claim="W-19")


def run(args: argparse.Namespace) -> int:
    asked, wish = request.Request.of(args), BidirectionalWish.of(args)
    from constructions.model_arrays import module_of

    problem = wish.problem(asked.reading)
    if asked.method != "certified":
        problem = replace(problem, module=module_of(problem.module))

    def weights() -> bytes:
        from constructions.contextual.bidirectional import as_bytes

        return as_bytes(module_of(problem.module))

    return request.publish(asked, request.decided(asked, problem), weights)
