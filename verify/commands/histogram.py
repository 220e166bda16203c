"""`verify histogram`: builds or loads a model and decides it on all T^L sequences."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from verify.certificate import Certificate
    from verify.histogram import Progress

HELP = "prove that a one-layer transformer counts every token of every sequence"

MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
DTYPES = ("float64", "float32", "bfloat16", "float16")

# (model, construction) -> builder and claim; the first construction of a model is its default.
CONSTRUCTIONS = {
    ("lin", "inventory"): ("inventory_counting.lin", "A-4.3"),
    ("lin+sftm", "inventory"): ("inventory_counting.lin_sftm", "A-4.3"),
    ("dot", "relation"): ("relation_counting.dot", "A-4.2"),
    ("dot", "inventory"): ("inventory_counting.dot", "W-1"),
    ("dot+sftm", "inventory"): ("inventory_counting.dot_sftm", "A-B.1"),
    ("bos", "relation"): ("relation_counting.bos", "A-4.1"),
    ("bos", "zero-bos"): ("relation_counting.zero_bos", "A-4.1alt"),
    ("bos", "inventory"): ("inventory_counting.bos", "W-1"),
    ("bos+sftm", "relation"): ("relation_counting.bos_sftm", "A-4.1"),
    ("bos+sftm", "inventory"): ("inventory_counting.bos_sftm", "W-1"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", choices=MODELS, metavar="M", help=f"one of {', '.join(MODELS)}")
    add("--T", type=int, help="alphabet size")
    add("--L", type=int, help="sequence length")
    add("--d", type=int, help="embedding size (default: T)")
    add("--p", type=int, help="hidden neurons (default: the fewest that the construction needs)")
    add(
        "--construction",
        choices=sorted({construction for _, construction in CONSTRUCTIONS}),
        help="how it counts (default: relation where the model can and p < T, else inventory)",
    )
    add("--basis", choices=("standard", "random"), default="standard", help="orthonormal token directions")
    add("--dtype", choices=DTYPES, help="the dtype that stores the weights (default: float32)")
    add(
        "--method",
        choices=("certified", "exhaustive", "sampled"),
        default="certified",
        help="proof, or running the torch module on every or on sampled sequences",
    )
    add("--weights", metavar="FILE", help="judge these weights (.safetensors or .pt state dict) instead")
    add("--save", metavar="FILE", help="also write the weights as safetensors")
    add("--as-printed", action="store_true", help="the document's own numbers, misprints included")
    add("--seed", type=int, default=0, help="for --basis random and --method sampled (default: 0)")
    add("--budget", type=float, default=30.0, metavar="SECONDS", help="time limit of a search (default: 30)")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    _check(args)
    module, claim = _load(args) if args.weights else _build(args)
    from verify.render import print_certificate, progress_bar

    with progress_bar("deciding", quiet=args.json) as progress:
        certificate = _decide(args, module, claim, progress)
    if args.save:
        from constructions.checkpoint import save

        save(module, args.save, claim=claim, construction=args.construction or "default")
    if args.json:
        print(certificate.to_json())
    else:
        print_certificate(certificate, module)
    return certificate.verdict.exit_code


def _check(args: argparse.Namespace) -> None:
    if not args.budget >= 0:
        raise BadInput(f"budget={args.budget}: must be a number of seconds, zero or more")
    if args.weights:
        for name in ("T", "d", "p", "construction", "dtype"):
            if getattr(args, name) is not None:
                raise BadInput(f"{name}={getattr(args, name)}: read from the file. Leave --{name} out with --weights.")
        if args.as_printed or args.basis != "standard":
            raise BadInput("as-printed and basis choose how weights are built. Leave them out with --weights.")
        return
    for name in ("model", "T", "L"):
        if getattr(args, name) is None:
            raise BadInput(f"{name}: missing. Add --{name}, or judge a file with --weights.")


def _load(args: argparse.Namespace) -> tuple[HistogramTransformer, None]:
    from constructions.checkpoint import load

    return load(args.weights, model=args.model, L=args.L), None


def _build(args: argparse.Namespace) -> tuple[HistogramTransformer, str]:
    from importlib import import_module

    from constructions.histogram import DTYPES as TORCH_DTYPES
    from constructions.histogram import check_sizes

    check_sizes(args.model, T=args.T, L=args.L, d=1 if args.d is None else args.d, p=1 if args.p is None else args.p)
    construction = args.construction or _default_construction(args)
    if (args.model, construction) not in CONSTRUCTIONS:
        raise NotKnown(_why_not(args.model, construction))
    builder, claim = CONSTRUCTIONS[args.model, construction]
    module_name, function = builder.split(".")
    build = getattr(import_module(f"constructions.{module_name}"), function)
    args.construction = construction
    return (
        build(
            T=args.T,
            L=args.L,
            d=args.d,
            p=args.p,
            dtype=TORCH_DTYPES[args.dtype or "float32"],
            basis=args.basis,
            seed=args.seed,
            as_printed=args.as_printed,
        ),
        claim,
    )


def _default_construction(args: argparse.Namespace) -> str:
    known = [construction for model, construction in CONSTRUCTIONS if model == args.model]
    return "inventory" if "inventory" in known and args.p is not None and args.p >= args.T else known[0]


def _why_not(model: str, construction: str) -> str:
    known = ", ".join(c for m, c in CONSTRUCTIONS if m == model)
    reason = "no such construction is known"
    if (model, construction) == ("dot+sftm", "relation"):
        reason = "softmax weights sum to one, so a direction common to all tokens carries no count (A-neg)"
    return f"construction={construction}: {reason} for {model}. Use --construction {known}."


def _decide(
    args: argparse.Namespace, module: HistogramTransformer, claim: str | None, progress: Progress
) -> Certificate:
    from verify import runs
    from verify.histogram import certify

    if args.method == "sampled":
        return runs.sampled(module, L=args.L, claim=claim, seed=args.seed)
    decide = certify if args.method == "certified" else runs.exhaustive
    return decide(module, L=args.L, claim=claim, budget=args.budget, progress=progress)
