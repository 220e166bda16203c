"""`verify contextual`: builds or loads a contextual counting model, decides it on all strings, or lets it count one."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput
from verify.commands.options import check_alone, check_least

if TYPE_CHECKING:
    from constructions.contextual.transformer import ContextualCountingTransformer
    from verify.certificate import Certificate
    from verify.contextual.task import Domain

HELP = "prove a causal transformer without positions counts the ones of each region"
BIASES = ("BOS", "]", "0")
KEYS = ("onehot", "convex")
DTYPES = ("float64", "float32", "bfloat16", "float16")
# The claims by their ids, and by the numbers of the document's propositions.
IMPOSSIBLE = {
    "B-2.3": "B-2.3", "B-2.4": "B-2.4", "B-2.5": "B-2.5", "W-11": "W-11",
    "2.3": "B-2.3", "2.4": "B-2.4", "2.5": "B-2.5", "2.1+2.2": "W-11",
}  # fmt: skip
MOST_CELLS = 20_000_000
LONGEST_RANK = 256
BUILDING = ("bias", "keys", "calibrated_zeros", "dtype")
ALONE = {
    "impossible": ("weights", "save", "string", "figure5", "precision", "zeros", "exactly", "method", "regions",
                   "on_length", "on_regions", *BUILDING),
    "figure5": ("weights", "save", "string", "precision", "zeros", "exactly", "method", "on_length", "on_regions",
                "bias", "calibrated_zeros"),
    "string": ("precision", "zeros", "exactly", "method", "on_length", "on_regions"),
    "weights": ("length", "regions", *BUILDING),
}  # fmt: skip
DEFAULTS = {"precision": "real", "method": "certified", "exactly": False, "figure5": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--length", type=int, metavar="N", help="longest string the model is built for (default 512)")
    add("--regions", type=int, metavar="R", help="regions it counts (default 4)")
    add("--bias", choices=BIASES, help="the bias token (default BOS)")
    add("--keys", choices=KEYS, help="a lane per region, or a convex polygon in two lanes (default onehot)")
    add("--calibrated-zeros", type=int, metavar="Z", help="0 tokens bias 0 is built for (default half the digits)")
    add("--dtype", choices=DTYPES, help="dtype of the stored weights (default float32)")
    add("--precision", metavar="D", default="real",
        help="real (default), or every operation rounded: float64, float32, float16, ... or pN for N bits")  # fmt: skip
    add("--on-length", type=int, metavar="N", help="judge strings of up to N tokens (default --length)")
    add("--on-regions", type=int, metavar="R", help="judge strings of up to R regions (default --regions)")
    add("--exactly", action="store_true", help="judge strings with exactly that many regions")
    add("--zeros", type=int, metavar="Z", help="judge strings with exactly Z tokens 0")
    add("--method", choices=("certified", "exhaustive"), default="certified",
        help="proof, or a run of the module on every string (short ones)")  # fmt: skip
    add("--weights", metavar="FILE", help="judge a state dict (.safetensors or .pt) instead")
    add("--save", metavar="FILE", help="write the weights as safetensors")
    add("--string", metavar="S", help='count one string, as in --string "[0][101]0[1]1[]0"')
    add("--figure5", action="store_true", help="the three bias tokens on other lengths and numbers of regions")
    add("--impossible", choices=tuple(IMPOSSIBLE), metavar="ID",
        help="the argument and its checks: B-2.3, B-2.4, B-2.5, W-11")  # fmt: skip
    add("--seed", type=int, default=0, help="of the random models of --impossible")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    check(args)
    if args.impossible:
        return argue(args)
    if args.figure5:
        from verify.report.contextual import figure5

        return figure5(args)
    module, claim = build(args)
    if args.string is not None:
        save_if_asked(module, args)
        return count(module, args)
    certificate = certificate_of(module, claim, args)
    save_if_asked(module, args)
    show(certificate, module, args)
    return certificate.verdict.exit_code


def argue(args: argparse.Namespace) -> int:
    """Prints an argument of impossibility and its checks; B-2.4 at the length that is asked."""
    from verify.contextual.impossible import ARGUMENTS, causal_rank
    from verify.report.impossibility import print_argument

    claim = IMPOSSIBLE[args.impossible]
    if args.length is not None:
        if claim != "B-2.4" or args.length > LONGEST_RANK:
            raise BadInput(f"--length {args.length}: goes with --impossible B-2.4, up to {LONGEST_RANK}; drop it")
        return print_argument(causal_rank(args.length, args.seed), is_json=args.json)
    return print_argument(ARGUMENTS[claim](args.seed), is_json=args.json)


def check(args: argparse.Namespace) -> None:
    """Raises BadInput for options that do not go together, and for sizes beyond a few minutes."""
    check_alone(args, ALONE, DEFAULTS)
    check_least(args, 1, "length", "regions", "on_length", "calibrated_zeros")
    check_least(args, 0, "zeros", "seed")
    N, R = args.length or 512, args.regions or 4
    if N * R > MOST_CELLS:
        raise BadInput(f"--length {N} --regions {R}: {N * R} cells are more than {MOST_CELLS}; choose smaller ones")
    if args.precision != "real":
        from verify.arithmetic.formats import format_named

        format_named(args.precision)
    if args.method == "exhaustive" and args.precision != "real":
        raise BadInput("--precision: --method exhaustive runs the module in its own dtype; use --dtype")
    if args.save is not None:
        from constructions.files import check_target

        check_target(args.save)


def build(args: argparse.Namespace) -> tuple[ContextualCountingTransformer, str | None]:
    """The model that the options ask for, and its claim."""
    from constructions import contextual_counting
    from constructions.contextual import transformer as contextual_transformer

    if args.weights is not None:
        return contextual_transformer.load(args.weights), None
    bias, u = args.bias or "BOS", None
    if args.precision != "real":
        from verify.arithmetic.formats import format_named

        u = format_named(args.precision).u
    module = contextual_counting.build(
        args.length or 512,
        args.regions or 4,
        bias=bias,
        keys=args.keys or "onehot",
        zeros=args.calibrated_zeros,
        dtype=contextual_transformer.DTYPES[args.dtype or default_dtype(args.precision)],
        u=u,
    )
    return module, "B-2.1+2.2" if bias == "BOS" else "B-3.4"


def default_dtype(precision: str) -> str:
    """Weights are stored in the dtype that computes, where torch has it."""
    return precision if precision in DTYPES else "float64" if precision.startswith("p") else "float32"


def save_if_asked(module: ContextualCountingTransformer, args: argparse.Namespace) -> None:
    if args.save is not None:
        from constructions.contextual.transformer import save

        save(module, args.save)
        if args.json or args.string is not None:  # else a line of the report
            from verify.report.console import say_written

            say_written(args.save)


def certificate_of(module: ContextualCountingTransformer, claim: str | None, args: argparse.Namespace) -> Certificate:
    """The verdict in the reading that the options ask for."""
    from verify.contextual.verdict import certify, domain_of, exhaustive

    domain: Domain = domain_of(
        module,
        args.on_length or args.length or (512 if args.weights is None else len(module.b_out) - 1),
        regions=args.on_regions,
        exactly=args.exactly,
        zeros=args.zeros,
    )
    named: dict[str, Any] = {"construction": "file"}
    if args.weights is None:
        named = {"construction": args.keys or "onehot", "bias": args.bias or "BOS"}
    if args.method == "exhaustive":
        return exhaustive(module, domain, claim=claim, **named)
    if args.precision != "real":
        from verify.arithmetic.formats import format_named
        from verify.contextual.dtype import certify_in, round_weights

        fmt = format_named(args.precision)
        if args.precision not in DTYPES and args.weights is None:
            module = round_weights(module, fmt)
        return certify_in(module, domain, fmt, claim=claim, **named)
    return certify(module, domain, claim=claim, **named)


def count(module: ContextualCountingTransformer, args: argparse.Namespace) -> int:
    """Prints the module's counts of one string; exit code 1 where one is wrong."""
    import torch

    from verify.contextual.runs import regions
    from verify.contextual.task import answers, parse

    tokens = parse(args.string)
    if not tokens and not module.has_bos:
        raise BadInput("string='': is empty, and without BOS there is nothing to attend to; give a token")
    if len(tokens) > 8192:
        raise BadInput(f"string: has {len(tokens)} tokens; a run is for up to 8192 of them")
    with torch.no_grad():
        said = module(torch.tensor(tokens, dtype=torch.long)).argmax(dim=-1).tolist()
    right = answers(tokens, module.R)
    if args.json:
        print(json.dumps({"regions": regions(tokens), "counts": said, "right": right, "is_right": said == right}))
    else:
        for r, (a, b) in enumerate(zip(said, right, strict=True)):
            from verify.report.contextual import shortened

            region = shortened((regions(tokens) + ["not there"] * module.R)[r])
            print(f"region {r + 1}  {region}  counted {a}{'' if a == b else f', which is wrong: {b}'}")
    return 0 if said == right else 1


def show(certificate: Certificate, module: ContextualCountingTransformer, args: argparse.Namespace) -> None:
    """Prints the certificate, as one JSON object or for people."""
    if args.json:
        print(certificate.to_json())
        return
    from verify.report.contextual import print_certificate

    print_certificate(certificate, module, args.save)
