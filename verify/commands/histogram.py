"""`verify histogram`: builds or loads a model and decides it on all T^L sequences."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown
from verify.commands.options import check_alone, flag
from verify.commands.parsing import add_weights
from verify.histogram.catalogue import CONSTRUCTIONS, DTYPES, MODELS, Sizes, check_known, chosen, storage
from verify.report.progress import progress_bar

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from verify.certificate import Certificate
    from verify.histogram.task import Progress


LAWS = ("uniform", "partitions")
SAVED = ("weights.safetensors", "certificate.json")
IMPOSSIBLE = ("A-neg", "W-5", "W-6", "W-7", "W-16", "W-17", "W-18", "W-24")
DEFAULTS = {"basis": "standard", "as_printed": False, "method": "certified", "budget": 30.0}
ALONE = {
    "impossible": ("model", "T", "L", "d", "p", "construction", "dtype", "weights", "precision", "accumulate", "save",
                   "law", *DEFAULTS)
}  # fmt: skip


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What chooses the weights: built for a size, or read from a file."""
    add = parser.add_argument
    add("--model", choices=MODELS, metavar="M", help=f"one of {', '.join(MODELS)}")
    add("--T", type=int, help="alphabet size")
    add("--L", type=int, help="sequence length")
    add("--d", type=int, help="embedding size (default: T)")
    add("--p", type=int, help="hidden neurons (default: the fewest that the construction needs)")
    add(
        "--construction",
        choices=sorted({construction for _, construction in CONSTRUCTIONS}),
        help="how it counts (default: relation where the model can and p < T, else inventory; for d < T code, "
        "simplex, sphere or plane)",
    )
    add("--basis", choices=("standard", "random"), default="standard", help="orthonormal token directions")
    add("--dtype", choices=DTYPES, help="the dtype that stores the weights (default: float32)")
    add_weights(parser, "judge these weights (.safetensors or .pt state dict) instead")
    add("--as-printed", action="store_true", help="the document's own numbers, misprints included")
    add("--seed", type=int, default=0, help="for --basis random and --method sampled (default: 0)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add = parser.add_argument
    add(
        "--precision",
        metavar="D",
        help="round every operation to float64, float32, tf32, bfloat16, float16, e4m3, e5m2 or pN (N bits), in any "
        "order, or to sN: constant-bit arithmetic of N bits either side of the point, left to right; "
        "builds and judges weights in that format (default: real arithmetic on the stored numbers)",
    )
    add("--accumulate", choices=("float32",), help="with --precision: sum matrix products in float32")
    add(
        "--method",
        choices=("certified", "exhaustive", "sampled"),
        default="certified",
        help="proof, or running the torch module on every or on sampled sequences",
    )
    add("--law", choices=LAWS, help="also the exact accuracy and confusion matrix when sequences are drawn by this law")
    add("--save", metavar="DIR", help="also write weights and certificate; a FILE.safetensors gets the weights alone")
    add("--budget", type=float, default=30.0, metavar="SECONDS", help="time limit of a search (default: 30)")
    add("--impossible", choices=IMPOSSIBLE, metavar="ID", help=f"the argument and its checks: {', '.join(IMPOSSIBLE)}")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    check_alone(args, ALONE, DEFAULTS)
    if args.impossible is not None:
        from verify.histogram.impossible import ARGUMENTS
        from verify.report.impossibility import print_argument

        return print_argument(ARGUMENTS[args.impossible](args.seed), is_json=args.json)
    _check(args)
    if args.precision is not None and args.dtype is None and args.weights is None:
        args.dtype = storage(args.precision)
    if _needs_no_torch(args):
        return _run_arrays(args)
    try:
        module, claim = chosen_model(args, quiet=args.json)
    except NotKnown as error:
        return _print_unknown(args, str(error))
    with progress_bar("deciding", quiet=args.json) as progress:
        certificate = _decide(args, module, claim, progress)
        if args.law is not None:
            certificate = _with_shares(args, module, certificate, progress)
    if args.save is not None:
        certificate = _save(args, module, claim, certificate)
    if args.json:
        print(certificate.to_json())
        if args.save is not None:
            from verify.report.console import say_written

            say_written(*_files(args.save))
    else:
        from verify.report.certificate import weights_fact
        from verify.report.histogram import print_certificate

        written = None if args.save is None else ", ".join(_files(args.save))
        print_certificate(certificate, weights_fact(module), written)
    return certificate.verdict.exit_code


def _needs_no_torch(args: argparse.Namespace) -> bool:
    """Whether the weights can be built as arrays, and are to be proved in real arithmetic and not saved."""
    if args.weights is not None or args.precision is not None or args.method != "certified" or args.save is not None:
        return False
    if args.law is not None:
        return False
    if args.model not in ("dot", "bos") or args.basis != "standard" or args.as_printed or args.seed:
        return False
    from constructions.histogram_sizes import check_sizes

    check_sizes(args.model, T=args.T, L=args.L, d=1 if args.d is None else args.d, p=1 if args.p is None else args.p)
    sizes = Sizes(args.model, args.T, args.L, args.d, args.p)
    is_built = args.dtype != "bfloat16" and (args.d is None or args.d >= args.T)
    return is_built and chosen(sizes, args.construction) == "relation"


def _run_arrays(args: argparse.Namespace) -> int:
    from constructions.histogram_arrays import relation
    from verify.decide import Effort, certify
    from verify.histogram.array_problem import ArrayHistogram

    arrays = relation(model=args.model, T=args.T, L=args.L, d=args.d, p=args.p, dtype=args.dtype or "float32")
    _, claim = CONSTRUCTIONS[args.model, "relation"]
    with progress_bar("deciding", quiet=args.json) as progress:
        certificate = certify(ArrayHistogram.of(arrays, claim), effort=Effort(args.budget, progress=progress))
    if args.json:
        print(certificate.to_json())
    else:
        from verify.report.certificate import shapes_fact
        from verify.report.histogram import print_certificate

        print_certificate(certificate, shapes_fact((name, w.shape) for name, w in arrays.weights.items()))
    return certificate.verdict.exit_code


def _is_weights_file(save: str) -> bool:
    return save == "" or save.endswith(".safetensors")


def _files(save: str) -> list[str]:
    """What --save writes."""
    return [save] if _is_weights_file(save) else [str(Path(save) / name) for name in SAVED]


def _save(
    args: argparse.Namespace, module: HistogramTransformer, claim: str | None, certificate: Certificate
) -> Certificate:
    """Writes the weights, and into a folder the certificate beside them; returns it with the weights' digest."""
    from constructions import checkpoint, files

    weights = checkpoint.as_bytes(module, claim=claim, construction=args.construction or "default")
    certificate = certificate.about(weights)
    if _is_weights_file(args.save):
        files.write_whole(args.save, weights)
    else:
        text = certificate.to_json() + "\n"
        files.write_whole_folder(args.save, dict(zip(SAVED, (weights, text.encode()), strict=True)))
    return certificate


def _check(args: argparse.Namespace) -> None:
    if not args.budget >= 0:
        raise BadInput(f"budget={args.budget}: must be a number of seconds, zero or more")
    check_model_arguments(args)
    if args.save is not None:
        from constructions.files import check_target, check_target_folder

        if _is_weights_file(args.save):
            check_target(args.save)
        else:
            check_target_folder(args.save, SAVED)
    _check_precision(args)
    if args.law is not None and (args.precision is not None or args.method != "certified"):
        raise BadInput(f"law={args.law}: shares are exact in real arithmetic. Leave --precision and --method out.")


def chosen_model(args: argparse.Namespace, *, quiet: bool) -> tuple[HistogramTransformer, str | None]:
    """The model that the arguments ask for, and its claim."""
    with progress_bar("searching a code", quiet=quiet) as progress:
        return _load(args) if args.weights is not None else _build(args, progress)


def check_model_arguments(args: argparse.Namespace) -> None:
    """Raises: BadInput for what is missing, and for what has no effect."""
    if args.weights is not None:
        for name in ("T", "d", "p", "construction", "dtype"):
            if getattr(args, name) is not None:
                raise BadInput(f"{name}={getattr(args, name)}: read from the file. Leave --{name} out with --weights.")
        if args.as_printed or args.basis != "standard":
            raise BadInput("as-printed and basis choose how weights are built. Leave them out with --weights.")
        return
    for name in ("model", "T", "L"):
        if getattr(args, name) is None:
            raise BadInput(f"{name}: missing. Add --{name}, or judge a file with --weights.")


def _check_precision(args: argparse.Namespace) -> None:
    from verify.arithmetic.any_order import Arithmetic
    from verify.arithmetic.readings import Rounded, reading_of
    from verify.certificate import CERTIFIED
    from verify.decide import running

    reading = reading_of(args.precision, args.accumulate)
    if isinstance(reading, Rounded):
        Arithmetic.of(reading.format, reading.accumulate)  # refuses an accumulation with fewer bits than the format
    if args.method != CERTIFIED:
        running(reading, args.method)


def _load(args: argparse.Namespace) -> tuple[HistogramTransformer, None]:
    from constructions.checkpoint import load

    return load(args.weights, model=args.model, L=args.L), None


def _print_unknown(args: argparse.Namespace, reason: str) -> int:
    """No construction is known for these sizes, which is neither bad input nor impossible."""
    from verify.certificate import READING_BIT_EXACT, READING_DTYPE, READING_REAL, Certificate, Verdict

    parameters = {name: getattr(args, name) for name in ("model", "T", "L", "d", "p", "dtype")}
    rounded = READING_BIT_EXACT if (args.precision or "").startswith("s") else READING_DTYPE
    reading = READING_REAL if args.precision is None else rounded
    certificate = Certificate(
        Verdict.UNKNOWN, None, "histogram", parameters, reading, args.method, inputs_covered=0, reason=reason
    )
    print(certificate.to_json() if args.json else f"UNKNOWN: {reason}")
    return certificate.verdict.exit_code


def _build(args: argparse.Namespace, progress: Progress) -> tuple[HistogramTransformer, str]:
    from importlib import import_module
    from inspect import signature

    from constructions.histogram import DTYPES as TORCH_DTYPES
    from constructions.histogram import check_sizes

    check_sizes(args.model, T=args.T, L=args.L, d=1 if args.d is None else args.d, p=1 if args.p is None else args.p)
    sizes = Sizes(args.model, args.T, args.L, args.d, args.p)
    construction = chosen(sizes, args.construction)
    check_known(sizes, construction)
    builder, claim = CONSTRUCTIONS[args.model, construction]
    module_name, function = builder.split(".")
    build = getattr(import_module(f"constructions.{module_name}"), function)
    args.construction = construction
    asked = {"basis": args.basis, "seed": args.seed, "as_printed": args.as_printed}
    fixed = {"model": args.model, "progress": progress}
    dtype = TORCH_DTYPES[args.dtype or "float32"]
    takes = signature(build).parameters
    for name, plain in (("basis", "standard"), ("as_printed", False)):
        if name not in takes and asked[name] != plain:
            raise BadInput(f"{flag(name)}: construction {construction} has no such choice. Leave {flag(name)} out.")
    options = {name: value for name, value in (asked | fixed).items() if name in takes}
    return build(T=args.T, L=args.L, d=args.d, p=args.p, dtype=dtype, **options), claim


def _decide(
    args: argparse.Namespace, module: HistogramTransformer, claim: str | None, progress: Progress
) -> Certificate:
    from verify.arithmetic.readings import reading_of
    from verify.decide import Effort, decide
    from verify.histogram.every_reading import problem

    effort = Effort(args.budget, args.seed, progress)
    return decide(
        problem(module, L=args.L, claim=claim), reading_of(args.precision, args.accumulate), args.method, effort
    )


def _with_shares(
    args: argparse.Namespace, module: HistogramTransformer, certificate: Certificate, progress: Progress
) -> Certificate:
    """The certificate with the exact accuracy and confusion matrix under the asked law."""
    from dataclasses import replace

    from verify.decide import Effort
    from verify.histogram.confusion import confusion
    from verify.histogram.stored import StoredModel

    found = confusion(StoredModel.of(module, args.L), args.law, Effort(args.budget, progress=progress))
    return replace(certificate, extra=certificate.extra | found.to_dict())
