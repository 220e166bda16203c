"""`verify precision`: how many bits a histogram model needs, for one model, all of them, or over d."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput, NotKnown
from verify.certificate import rounded_margin
from verify.commands.ranges import integers
from verify.histogram.catalogue import CONSTRUCTIONS, MODELS, Sizes, chosen
from verify.report.console import say_written
from verify.report.tables import FORMS, render

if TYPE_CHECKING:
    from verify.arithmetic.formats import Format
    from verify.certificate import Certificate
    from verify.histogram.precision import Construction
    from verify.report.progress import Advance


COLUMNS = ("precision", "verdict", "margin", "input that fails", "how it fails")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task", choices=("histogram",), help="the task")
    add("--model", choices=MODELS, metavar="M", help=f"one of {', '.join(MODELS)}")
    add("--T", type=int, required=True, help="alphabet size")
    add("--L", type=int, required=True, help="sequence length")
    add("--d", type=int, help="embedding size (default: T)")
    add("--p", type=int, help="hidden neurons (default: the fewest that the construction needs)")
    add("--construction", choices=sorted({construction for _, construction in CONSTRUCTIONS}), help="how it counts")
    add("--table", action="store_true", help="all constructions, each at its own d, by all named formats")
    add("--sweep", metavar="d=FIRST:LAST", help="one model over d and bits")
    add("--bits", type=integers, help="of --sweep (default: 2:24)")
    add("--figure", metavar="FILE", help="also draw --sweep to a .svg or .png file (needs matplotlib)")
    add("--accumulate", choices=("float32",), help="sum matrix products in float32 (default: in the format)")
    add(
        "--budget", type=float, default=10.0, metavar="SECONDS", help="limit of each search for a failure (default: 10)"
    )
    add("--format", choices=FORMS, default="rich", help="default: rich")
    add("--json", action="store_const", dest="format", const="json", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    _check(args)
    from verify.report.progress import progress_bar

    with progress_bar("deciding", quiet=args.format == "json") as progress:
        if args.table:
            columns, rows = _table(args, progress)
        elif args.sweep is not None:
            columns, rows = _sweep(args, progress)
        else:
            columns, rows = _frontier(args, progress)
    sys.stdout.write(render(columns, rows, args.format))
    return 0


def _check(args: argparse.Namespace) -> None:
    if not args.budget >= 0:
        raise BadInput(f"budget={args.budget}: must be a number of seconds, zero or more")
    from constructions.histogram import check_memory, check_sizes

    if args.table:
        for name in ("model", "d", "p", "construction", "sweep", "figure"):
            if getattr(args, name) is not None:
                raise BadInput(f"{name}={getattr(args, name)}: --table shows every construction. Leave --{name} out.")
        check_sizes("lin", T=args.T, L=args.L, d=1, p=1)
        check_memory(args.T**2 + args.L**2)
    elif args.model is None:
        raise BadInput("model: missing. Add --model, or ask for --table.")
    else:
        d, p = (1 if size is None else size for size in (args.d, args.p))
        check_sizes(args.model, T=args.T, L=args.L, d=d, p=p)
    if args.figure is not None:
        if args.sweep is None:
            raise BadInput(f"figure={args.figure!r}: draws --sweep. Add --sweep d=FIRST:LAST.")
        from constructions.files import check_target
        from verify.figures.style import format_of, style

        check_target(args.figure, "figure")
        format_of(args.figure, "figure")
        style()
    if args.sweep is not None and args.d is not None:
        raise BadInput(f"d={args.d}: --sweep gives d. Leave --d out.")
    if args.bits is not None and args.sweep is None:
        raise BadInput("bits: are those of --sweep. Add --sweep d=FIRST:LAST, or leave --bits out.")
    for bits in args.bits or ():
        if not 2 <= bits <= 53:
            raise BadInput(f"bits={bits}: must be between 2 and 53, the hidden bit counted")


def _accumulate(args: argparse.Namespace) -> Format | None:
    from verify.arithmetic.formats import FORMATS

    return None if args.accumulate is None else FORMATS[args.accumulate]


def _construction(args: argparse.Namespace, d: int | None) -> Construction:
    from verify.histogram.precision import Construction

    name = chosen(Sizes(args.model, args.T, args.L, d, args.p), args.construction)
    return Construction(args.model, name, args.T, args.L, d, args.p)


def _frontier(args: argparse.Namespace, progress: Advance) -> tuple[tuple[str, ...], list[list[Any]]]:
    """The named formats, then every number of bits that was tried, most first."""
    from verify.arithmetic.formats import FORMATS
    from verify.histogram.precision import frontier, judge

    construction, accumulate = _construction(args, args.d), _accumulate(args)
    rows = []
    for i, (name, fmt) in enumerate(FORMATS.items()):
        progress(i / (len(FORMATS) + 5))
        rows.append([name, *_outcome(judge(construction, fmt, accumulate, args.budget))])
    found = frontier(construction, accumulate, args.budget)
    note = {found.enough: ", the smallest from which on all are enough", found.too_small: ", the largest too small"}
    for bits in sorted(found.by_bits, reverse=True):
        rows.append([f"p{bits}{note.get(bits, '')}", *_outcome(found.by_bits[bits])])
    return COLUMNS, rows


def _outcome(certificate: Certificate) -> list[Any]:
    found = certificate.counterexample
    margin = rounded_margin(certificate)
    if found is None:
        return [certificate.verdict.value, margin, None, certificate.reason]
    tokens = " ".join(map(str, found["tokens"]))
    at = f"{tokens} at position {found['position']}"
    predicted = "NaN" if found["predicted"] is None else found["predicted"]
    how = f"{predicted} for {found['expected']} in {found['fails_in']}: {found['order']}"
    return [certificate.verdict.value, margin, at, how]


def _table(args: argparse.Namespace, progress: Advance) -> tuple[tuple[str, ...], list[list[Any]]]:
    from verify.arithmetic.formats import FORMATS
    from verify.histogram.precision import constructions, judge

    todo, rows = list(constructions(args.T, args.L)), []
    for i, construction in enumerate(todo):
        cells: list[Any] = []
        for j, fmt in enumerate(FORMATS.values()):
            progress((i + j / len(FORMATS)) / len(todo))
            try:
                cells.append(judge(construction, fmt, _accumulate(args), args.budget).verdict.value)
            except (NotKnown, BadInput):  # the construction does not exist at these T and L
                cells.append(None)
        rows.append([construction.model, construction.construction, construction.d, *cells])
    columns = ("model", "construction", "d", *FORMATS)
    return _in_letters(columns, rows, 3, " ".join(FORMATS)) if args.format == "rich" else (columns, rows)


def _in_letters(
    columns: tuple[str, ...], rows: list[list[Any]], first: int, what: str
) -> tuple[tuple[str, ...], list[list[Any]]]:
    """A letter a cell from column `first` on, so that a terminal holds all of them."""
    title = f"{what}: P proved, R refuted, U unknown, - no weights known"
    letters = ["".join("-" if cell is None else str(cell)[0] for cell in row[first:]) for row in rows]
    return (*columns[:first], title), [[*row[:first], line] for row, line in zip(rows, letters, strict=True)]


def _sweep(args: argparse.Namespace, progress: Advance) -> tuple[tuple[str, ...], list[list[Any]]]:
    from verify.arithmetic.formats import format_of_bits
    from verify.histogram.precision import judge

    name, _, values = args.sweep.partition("=")
    if name != "d" or not values:
        raise BadInput(f"sweep={args.sweep!r}: must be d=FIRST:LAST, d=4,8 or d=3:33:2")
    try:
        dimensions, all_bits = sorted(set(integers(values))), sorted(set(args.bits or range(2, 25)))
    except argparse.ArgumentTypeError as error:
        raise BadInput(f"sweep={args.sweep!r}: {error}") from None
    rows = []
    for i, d in enumerate(dimensions):
        cells: list[str | None] = []
        for j, bits in enumerate(all_bits):
            progress((i + j / len(all_bits)) / len(dimensions))
            try:
                cells.append(
                    judge(_construction(args, d), format_of_bits(bits), _accumulate(args), args.budget).verdict.value
                )
            except NotKnown:
                cells.append(None)
        rows.append([d, *cells])
    if args.figure is not None:
        _draw(args, all_bits, rows)
        say_written(args.figure)
    columns = ("d", *(f"p{bits}" for bits in all_bits))
    is_range = len(all_bits) == all_bits[-1] - all_bits[0] + 1 > 2
    what = f"{all_bits[0]} to {all_bits[-1]}" if is_range else ", ".join(map(str, all_bits))
    return _in_letters(columns, rows, 1, f"bits {what}") if args.format == "rich" else (columns, rows)


def _draw(args: argparse.Namespace, bits: list[int], rows: list[list[Any]]) -> None:
    """The phase diagram: d across, bits upwards."""
    from verify.figures.precision import precision
    from verify.figures.style import save

    title = f"{args.model}, T = {args.T}, L = {args.L}: every operation rounded, any order"
    save(precision(title, [row[0] for row in rows], bits, [row[1:] for row in rows]), args.figure, "figure")
