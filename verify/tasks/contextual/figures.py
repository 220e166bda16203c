"""The figure of contextual counting that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verify.commands.options import AddKind
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    contextual = add_kind("contextual", "contextual positions and attention of contextual counting on one string")
    option(contextual, "input", required=True, metavar="STRING", help='such as "[0][101]0[1]1[]0"')
    contextual.add_argument("--regions", type=int, metavar="R", help="regions it counts (default: those of the string)")
    contextual.add_argument("--bias", choices=("BOS", "]", "0"), default="BOS", help="the bias token (default: BOS)")
    contextual.add_argument("--keys", choices=("onehot", "convex"), default="onehot", help="(default: onehot)")


def draw(args: argparse.Namespace) -> Figure:
    """Contextual positions and attention on one string."""
    return _contextual(args.input, args.regions, args.bias, args.keys)


def _contextual(string: str, regions: int | None, bias: str, keys: str) -> Figure:
    from constructions.contextual_counting import build
    from verify.tasks.contextual.drawing import contextual
    from verify.tasks.contextual.task import parse

    tokens = parse(string)
    regions = max(1, string.count("[")) if regions is None else regions
    zeros = max(1, string.count("0")) if bias == "0" else None
    return contextual(build(max(1, len(tokens)), regions, bias=bias, keys=keys, zeros=zeros), tokens)
