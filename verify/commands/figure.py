"""`verify figure`: exact figures of models, proofs and circuits as SVG, PDF or PNG; each task draws its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from verify.commands.vocabulary import OUTPUT, group, option, renamed
from verify.frame import registry
from verify.report.console import say_written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Draw = Callable[[argparse.Namespace], Figure]


RENAMED = renamed(output="out", string="input", sequence="input", pair="input")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(
        dest="kind", required=True, metavar="KIND", help="what is drawn; its own --help says more"
    )
    for part in registry.parts("figures"):
        part.add_kinds(partial(_add_kind, kinds, part.draw))


def _add_kind(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], draw: Draw, name: str, help: str
) -> argparse.ArgumentParser:
    """The parser of one kind, with the options that all kinds have."""
    kind: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help, allow_abbrev=False)
    option(kind, "out", required=True, help="FILE.svg, FILE.pdf or FILE.png")
    add = group(kind, OUTPUT).add_argument
    add("--size", metavar="WxH", help="on paper: 3.25x2.4in, 8x6cm, 80x60mm (default: as it fits)")
    add("--dpi", type=int, metavar="N", help="pixels per inch of a PNG (default: 150)")
    add("--no-title", action="store_true", help="leave the title to the caption of the paper")
    kind.set_defaults(draw=draw)
    return kind


def run(args: argparse.Namespace) -> int:
    from constructions.written_files import check_target
    from verify.report.style import Look, format_of, load, save, style

    check_target(args.out, "out")
    format_of(args.out)
    look = Look.of(args.size, args.dpi, args.no_title)
    with style():
        load()
        save(draw(args), args.out, look=look)
    say_written(args.out)
    return 0


def draw(args: argparse.Namespace) -> Figure:
    """The figure that the arguments ask for, drawn by the task whose kind it is."""
    figure: Figure = args.draw(args)
    return figure
