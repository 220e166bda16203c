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

    from verify.tasks.count01.layer_norm.laws import Law


def add_kinds(add_kind: AddKind) -> None:
    heads = add_kind("heads", "the heads of a Count01 model: pairs, attention ratios, outputs with a separating line")
    heads.add_argument("file", metavar="FILE", help="a state_dict (.safetensors or .pt)")
    add_map(heads, "file")
    heads.add_argument("--law", default="d-test", help="see verify heads (default: d-test)")
    option(heads, "labels")
    heads.add_argument("--head", type=int, default=0, help="whose outputs (default: 0)")
    heads.add_argument("--svc", action="store_true", help="colour ratios by the SVC's accuracy (seconds per head)")
    added = add_kind("contributions", "what each head of a Count01 model adds to the logits of 4, 5 and EOS")
    groups = add_kind("subsets", "learned accuracy, AUC and separability of all groups of heads, by size")
    for kind in (added, groups):
        kind.add_argument("file", metavar="FILE", help="a state_dict (.safetensors or .pt)")
        add_map(kind, "file")
        kind.add_argument("--law", default="d-test", help="see verify heads (default: d-test)")
    option(groups, "labels")
    option(groups, "seed")
    ratios = add_kind("ratios", "which attention ratios (w01, w02) separate, and the best threshold's accuracy")
    ratios.add_argument("--values", required=True, metavar="V0,V1,V2", help="the head's values of 0, 1 and 2")
    ratios.add_argument("--law", default="d-test", help="a box, see verify heads (default: d-test)")


def draw(args: argparse.Namespace) -> Figure:
    """The heads of a model, or the attention ratios that separate."""
    if args.kind == "heads":
        return _heads(args.file, args.law, args.labels, args.head, svc=args.svc)
    if args.kind == "contributions":
        return _contributions(args.file, args.law)
    if args.kind == "subsets":
        return _subsets(args.file, args.law, args.labels, args.seed)
    from verify.tasks.count01.heads.ratios import ratios
    from verify.tasks.count01.layer_norm.laws import law_named

    return ratios(fractions("--values", args.values, 3), law_named(args.law))


def _contributions(file: str, named: str) -> Figure:
    from constructions.count01 import load
    from verify.tasks.count01.heads.distributions import contributions
    from verify.tasks.count01.layer_norm.laws import law_named

    return contributions(load(file), bounded(law_named(named)))


def _subsets(file: str, named: str, labels: str, seed: int) -> Figure:
    from constructions.count01 import load
    from verify.tasks.count01.heads.distributions import subsets
    from verify.tasks.count01.layer_norm.laws import law_named

    return subsets(load(file), bounded(law_named(named)), labels, seed)


def bounded(law: Law) -> Law:
    """The law. Raises: BadInput for one without shares."""
    if law.is_unbounded:
        raise BadInput("--law unbounded: has no shares to draw; take a box, such as box:0:200:200")
    return law


def _heads(file: str, named: str, labels: str, head: int, *, svc: bool) -> Figure:
    from constructions.count01 import load
    from verify.tasks.count01.heads.dissect import check_subset
    from verify.tasks.count01.heads.drawing import heads
    from verify.tasks.count01.layer_norm.laws import law_named

    model, law = load(file), bounded(law_named(named))
    check_subset("--head", [head], model.heads)
    return heads(model, law, labels, head, svc=svc)
