"""The figures of attention heads that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import AddKind, fractions
from verify.commands.parsing import add_map
from verify.commands.vocabulary import option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_kinds(add_kind: AddKind) -> None:
    heads = add_kind("heads", "the heads of a Count01 model: pairs, attention ratios, outputs with a separating line")
    heads.add_argument("file", metavar="FILE", help="a state_dict (.safetensors or .pt)")
    add_map(heads, "file")
    heads.add_argument("--law", default="d-test", help="see verify heads (default: d-test)")
    option(heads, "labels")
    heads.add_argument("--head", type=int, default=0, help="whose outputs (default: 0)")
    heads.add_argument("--svc", action="store_true", help="colour ratios by the SVC's accuracy (seconds per head)")
    ratios = add_kind("ratios", "which attention ratios (w01, w02) separate, and the best threshold's accuracy")
    ratios.add_argument("--values", required=True, metavar="V0,V1,V2", help="the head's values of 0, 1 and 2")
    ratios.add_argument("--law", default="d-test", help="a box, see verify heads (default: d-test)")


def draw(args: argparse.Namespace) -> Figure:
    """The heads of a model, or the attention ratios that separate."""
    if args.kind == "heads":
        return _heads(args.file, args.law, args.labels, args.head, svc=args.svc)
    from verify.tasks.count01.heads.ratios import ratios
    from verify.tasks.count01.layer_norm.laws import law_named

    return ratios(fractions("--values", args.values, 3), law_named(args.law))


def _heads(file: str, named: str, labels: str, head: int, *, svc: bool) -> Figure:
    from constructions.count01 import load
    from verify.tasks.count01.heads.dissect import check_subset
    from verify.tasks.count01.heads.drawing import heads
    from verify.tasks.count01.layer_norm.laws import law_named

    model, law = load(file), law_named(named)
    check_subset("--head", [head], model.heads)
    if law.is_unbounded:
        raise BadInput("--law unbounded: has no shares to draw; take a box, such as box:0:200:200")
    return heads(model, law, labels, head, svc=svc)
