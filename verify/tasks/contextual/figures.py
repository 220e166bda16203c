"""The figures of contextual counting that `verify figure` draws."""

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
    lines = add_kind("lines", "the output of contextual counting as two lines in the number of ones, and its width")
    _sizes(lines)
    lines.add_argument("--bias", choices=("BOS", "]"), default="BOS", help="the bias token (default: BOS)")
    encoder = add_kind("encoder", "scores and keys of contextual counting, and RoPE's scores by rotation")
    _sizes(encoder)
    encoder.add_argument("--keys", choices=("onehot", "convex"), default="onehot", help="(default: onehot)")
    encoder.add_argument("--pe", choices=("nope", "rope"), default="nope", help="with rope, its rotations too")


def _sizes(kind: argparse.ArgumentParser) -> None:
    option(kind, "length", help="longest string the model is built for (default: 64)")
    kind.add_argument("--regions", type=int, default=4, metavar="R", help="regions it counts (default: 4)")


def draw(args: argparse.Namespace) -> Figure:
    """The figure of contextual counting that is asked for."""
    if args.kind == "contextual":
        return _contextual(args.input, args.regions, args.bias, args.keys)
    N = 64 if args.length is None else args.length
    if args.kind == "lines":
        return _lines(N, args.regions, args.bias)
    return _encoder(N, args.regions, args.keys, args.pe == "rope")


def _lines(N: int, R: int, bias: str) -> Figure:
    from constructions.contextual_counting import build
    from verify.tasks.contextual.circuits import lines

    return lines(build(N, R, bias=bias), bias)


def _encoder(N: int, R: int, keys: str, is_rotating: bool) -> Figure:
    from constructions.contextual_counting import build
    from constructions.contextual_with_positions import build as with_positions
    from verify.tasks.contextual.circuits import encoder

    return encoder(build(N, R, keys=keys), with_positions(N, R, "rope") if is_rotating else None)


def _contextual(string: str, regions: int | None, bias: str, keys: str) -> Figure:
    from constructions.contextual_counting import build
    from verify.tasks.contextual.drawing import contextual
    from verify.tasks.contextual.task import parse

    tokens = parse(string)
    regions = max(1, string.count("[")) if regions is None else regions
    zeros = max(1, string.count("0")) if bias == "0" else None
    return contextual(build(max(1, len(tokens)), regions, bias=bias, keys=keys, zeros=zeros), tokens)
