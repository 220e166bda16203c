"""`verify quantise`: a model with fewer bits, decided as it is then stored, and the fewest bits that stay proved."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import changed
from verify.commands.changed import ChangeAsked
from verify.report.progress import progress_bar

if TYPE_CHECKING:
    from verify.changes.changeable import Changeable
    from verify.changes.quantise import FewestBits, Quantised
    from verify.report.progress import Advance

RECORD = "quantised.json"
SCALED = ("per-tensor", "per-channel")
SCHEMES = (*SCALED, "fp8", "e4m3", "e5m2", "bf16", "fp16")
DEFAULT_BITS = 8
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    changed.add_arguments(parser)
    add = parser.add_argument
    help = f"scales, or a format: {', '.join(SCHEMES)} (default: {SCHEMES[0]})"
    add("--scheme", choices=SCHEMES, default=SCHEMES[0], metavar="S", help=help)
    add("--bits", type=int, help=f"2 to 16 bits of each whole number, its sign included (default: {DEFAULT_BITS})")
    add("--tensors", metavar="A,B", help="only these tensors are rounded (default: all)")
    add("--fewest", action="store_true", help="try 2, 3, ... bits until the model is PROVED; every number is decided")
    add("--by-tensor", action="store_true", help="with --fewest: also for each tensor alone, the others as they are")
    parser.epilog = (
        "The model computes with scale times whole number in its own dtype, and these products are what is decided. "
        f"Exit codes: those of the verdict. --save also writes {RECORD}, with the scales."
    )


def run(args: argparse.Namespace) -> int:
    _check(args)
    asked = ChangeAsked.of(args, RECORD)
    changeable = asked.changeable()
    tensors = changed.tensors_in(args.tensors)
    with progress_bar("rounding", quiet=asked.is_json) as progress:
        if args.fewest:
            return _fewest(asked, changeable, args.scheme, tensors, args.by_tensor, progress)
        from verify.changes.quantise import NumberGrid, quantise

        bits = DEFAULT_BITS if args.bits is None and args.scheme in SCALED else args.bits
        found = quantise(
            changeable, NumberGrid(args.scheme, bits), asked.reading, asked.effort(progress), tensors=tensors
        )
    asked.published(found.to_dict(), lines(found), changeable.file(found.module), found.certificate)
    return found.certificate.verdict.exit_code


def _check(args: argparse.Namespace) -> None:
    """Raises: BadInput for options that do not go together."""
    if args.fewest and args.bits is not None:
        raise BadInput("--bits: has no effect with --fewest; drop one of the two")
    if args.fewest and args.scheme not in SCALED:
        raise BadInput(f"--scheme {args.scheme}: has its own number of bits. Drop it, or --fewest.")
    if args.by_tensor and not args.fewest:
        raise BadInput("--by-tensor: needs --fewest. Name the tensors with --tensors to round some of them.")
    if args.by_tensor and args.tensors is not None:
        raise BadInput("--by-tensor: looks at each tensor alone. Leave --tensors out.")


def _fewest(
    asked: ChangeAsked,
    changeable: Changeable,
    scheme: str,
    tensors: tuple[str, ...] | None,
    is_by_tensor: bool,
    progress: Advance,
) -> int:
    from verify.changes.quantise import fewest_bits

    every = [name for name, _ in changeable.module.named_parameters()] if is_by_tensor else []
    rows = {ALL if tensors is None else ",".join(tensors): tensors} | {name: (name,) for name in every}
    found = {
        row: fewest_bits(changeable, scheme, asked.reading, asked.effort(progress), tensors=names)
        for row, names in rows.items()
    }
    whole, best = found[next(iter(rows))], found[next(iter(rows))].found
    by_tensor = {row: of.to_dict() for row, of in list(found.items())[1:]}
    record = whole.to_dict() | {"scheme": scheme, "by_tensor": by_tensor}
    file = None if best is None else changeable.file(best.module)
    asked.published(record, fewest_lines(found), file, None if best is None else best.certificate)
    return whole.verdict.exit_code


def lines(found: Quantised) -> list[str]:
    """The result for people, the verdict last."""
    return [f"{', '.join(found.tensors)} rounded to {found.grid}", str(found.certificate)]


def fewest_lines(found: dict[str, FewestBits]) -> list[str]:
    """The table for people, and the verdict on the fewest bits last."""
    from verify.report.tables import render

    def cells(row: str, of: FewestBits) -> list[str | None]:
        tried = ", ".join(f"{q.grid.bits} {q.certificate.verdict}" for q in of.tried)
        return [row, None if of.found is None else str(of.found.grid.bits), tried]

    said = render(("tensors", "fewest bits", "tried"), [cells(*item) for item in found.items()], "rich").splitlines()
    whole = next(iter(found.values()))
    last = whole.tried[-1]
    return [*said, f"{last.grid}: {last.certificate}"]
