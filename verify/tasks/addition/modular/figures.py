"""The figure of modular addition that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind, whole_numbers
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    modular = add_kind("modular", "addition modulo P: the circle, the logits of one pair, margins against K")
    option(modular, "modulus", "--P", dest="P", default=113, help="odd (default: 113)")
    option(modular, "input", default="30,95", metavar="A,B", help="whose logits (default: 30,95)")
    modular.add_argument("--K", type=int, default=3, help="frequencies, at most 4 (default: 3)")


def draw(args: argparse.Namespace) -> Figure:
    """The circle, the logits of one pair, and margins against the number of frequencies."""
    from verify.tasks.addition.modular.drawing import modular

    a, b = whole_numbers("input", args.input, 2)
    return modular(args.P, (a, b), args.K)
