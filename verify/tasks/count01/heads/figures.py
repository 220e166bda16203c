"""The figures of attention heads that `verify figure` draws."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import AddKind, check_least, fractions
from verify.commands.parsing import add_map
from verify.commands.vocabulary import JUDGED, MODEL, group, option

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verify.tasks.count01.layer_norm.laws import Law


def add_kinds(add_kind: AddKind) -> None:
    heads = add_kind("heads", "the heads of a Count01 model: pairs, attention ratios, outputs with a separating line")
    _add_one(heads)
    option(heads, "labels")
    heads.add_argument("--head", type=int, default=0, help="whose outputs (default: 0)")
    heads.add_argument("--svc", action="store_true", help="colour ratios by the SVC's accuracy (seconds per head)")
    added = add_kind("contributions", "what each head of a Count01 model adds to the logits of 4, 5 and EOS")
    groups = add_kind("subsets", "learned accuracy, AUC and separability of all groups of heads, by size")
    _add_one(added)
    _add_one(groups)
    option(groups, "labels")
    option(groups, "seed")
    several = add_kind(
        "checkpoints", "several Count01 models: their heads' separation accuracies, and their own accuracy"
    )
    several.add_argument("files", metavar="FILE", nargs="+", help="state_dicts (.safetensors or .pt), in their order")
    several.add_argument("--law", default="d-test", help="a box, see verify heads (default: d-test)")
    option(several, "labels")
    option(several, "seed")
    _add_random(add_kind("random-heads", "the separation accuracy of heads whose weights are drawn at random"))
    ratios = add_kind("ratios", "which attention ratios (w01, w02) separate, and the best threshold's accuracy")
    ratios.add_argument("--values", required=True, metavar="V0,V1,V2", help="the head's values of 0, 1 and 2")
    ratios.add_argument("--law", default="d-test", help="a box, see verify heads (default: d-test)")


def _add_one(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("file", metavar="FILE", help="a state_dict (.safetensors or .pt)")
    add_map(kind, "file")
    kind.add_argument("--law", default="d-test", help="see verify heads (default: d-test)")


def _add_random(kind: argparse.ArgumentParser) -> None:
    add = group(kind, MODEL).add_argument
    add("--init", default="torch", metavar="NAME", help="torch, thesis (E, Sec. 2.7) or gpt2 (default: torch)")
    add("--norm", action="store_true", help="with LayerNorm before the attention")
    option(kind, "d", default=32, help="embedding size (default: 32)")
    option(kind, "heads", default=16, help="attention heads of each model (default: 16)")
    add = group(kind, JUDGED).add_argument
    add("--count", type=int, default=10_000, metavar="N", help="heads that are drawn (default: 10000)")
    add("--law", default="d-test", help="a box, see verify heads (default: d-test)")
    add(
        "--strength", type=float, default=1000.0, metavar="C", help="of the classifier's hinge loss (default: D's 1000)"
    )
    option(kind, "seed")


def draw(args: argparse.Namespace) -> Figure:
    """The heads of a model or of several, heads drawn at random, or the attention ratios that separate."""
    if args.kind == "random-heads":
        from verify.tasks.count01.heads.random_heads import Initialisation, random_heads

        check_least(args, 0, "seed")
        how = Initialisation(args.init, args.d, args.heads, args.norm)
        return random_heads(how, args.count, args.law, args.seed, args.strength)
    from verify.tasks.count01.layer_norm.laws import law_named

    if args.kind == "ratios":
        from verify.tasks.count01.heads.ratios import ratios

        return ratios(fractions("--values", args.values, 3), law_named(args.law))
    from constructions.count01 import load

    if args.kind == "checkpoints":
        from verify.tasks.count01.heads.checkpoints import checkpoints

        return checkpoints([load(file) for file in args.files], args.law, args.labels, args.seed)
    from verify.tasks.count01.heads.dissect import check_subset
    from verify.tasks.count01.heads.distributions import contributions, subsets
    from verify.tasks.count01.heads.drawing import heads

    model, law = load(args.file), bounded(law_named(args.law))
    if args.kind == "contributions":
        return contributions(model, law)
    if args.kind == "subsets":
        return subsets(model, law, args.labels, args.seed)
    check_subset("--head", [args.head], model.heads)
    return heads(model, law, args.labels, args.head, svc=args.svc)


def bounded(law: Law) -> Law:
    """The law. Raises: BadInput for one without shares."""
    if law.is_unbounded:
        raise BadInput("--law unbounded: has no shares to draw; take a box, such as box:0:200:200")
    return law
