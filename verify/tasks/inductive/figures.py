"""The figure of inductive counting by positions that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    inductive = add_kind("inductive", "modular counting beyond document C's lengths, and sinusoidal readouts")
    inductive.add_argument("--d-head", type=int, default=128, help="RoPE's head size (default: 128, as C's)")
    option(inductive, "d", default=64, help="size of the sinusoidal table (default: 64)")


def draw(args: argparse.Namespace) -> Figure:
    """Counting beyond document C's lengths, and sinusoidal readouts."""
    from verify.tasks.inductive.drawing import inductive

    return inductive(args.d_head, args.d)
