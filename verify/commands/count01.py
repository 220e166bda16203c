"""`verify count01`: builds or loads a Count01 model, decides it for all counts, or lets it speak."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput
from verify.commands.options import check_alone, check_least, flag, is_given, parsed_heads

if TYPE_CHECKING:
    from constructions.count01 import Count01Transformer
    from verify.certificate import Certificate

HELP = "prove a one-dimensional transformer compares zeros with ones, whatever the length"
LARGEST_N = 500
BOUNDS = ("max_digits", "max_noise", "max_length", "min_digits", "min_noise")
DOMAIN = (*BOUNDS, "semantic_only", "heads")
# Options that do another job than deciding, and what they would ignore.
IMPOSSIBLE = ("W-9",)
ALONE = {
    "impossible": ("say", "table", "weights", "save", "method", "strings", "N", "labels", "construction", "no_skip",
                   "as_printed", "eps", "dtype", "precision", "accumulate", *DOMAIN),
    "say": ("method", "strings", *BOUNDS, "semantic_only"),
    "table": ("say", "weights", "save", "method", "strings", "construction", "no_skip", "as_printed", "eps", *DOMAIN),
}  # fmt: skip
DEFAULTS = {"eps": 0.0, "table": False, "method": "certified", "construction": "documents", "no_skip": False,
            "labels": "majority-ones", "precision": "real", "semantic_only": False}  # fmt: skip
DTYPES = ("float64", "float32", "bfloat16", "float16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--N", type=int, default=None, help="the documents' large number (default 10)")
    add("--construction", choices=("documents", "uniform"), default="documents")
    add("--labels", choices=("majority-ones", "thesis"), default="majority-ones",
        help="4 iff n1 > n0, or 4 iff n0 >= n1")  # fmt: skip
    add("--no-skip", action="store_true", help="without the skip connection")
    add("--as-printed", nargs="?", const="literal", choices=("literal", "aligned"),
        help="the printed readout: its nine entries, or without the surplus zero")  # fmt: skip
    add("--eps", type=float, default=0.0, help="D's epsilon in the bias of 5 (default 0)")
    add("--weights", metavar="FILE", help="decide a state_dict (.safetensors or .pt) instead")
    add("--save", metavar="FILE", help="write the weights as safetensors")
    add("--dtype", choices=DTYPES, help="dtype of the stored weights (default float64)")
    add("--precision", metavar="D", default="real",
        help="every operation rounded: float64, float32, tf32, bfloat16, float16, e4m3, e5m2, pN for N bits, or sN for "
        "constant-bit arithmetic (default: real arithmetic on the stored numbers)")  # fmt: skip
    add("--accumulate", choices=("float32",), help="with --precision: sums of matrix products and softmax in float32")
    add("--max-digits", type=int, metavar="A", help="n0 and n1 up to A each (default: find the limit)")
    add("--max-noise", type=int, metavar="B", help="n2 up to B (default: find the limit)")
    add("--max-length", type=int, metavar="L", help="n0 + n1 + n2 up to L")
    add("--min-digits", type=int, metavar="A", help="n0 and n1 at least A each (default 0); with upper bounds")
    add("--min-noise", type=int, metavar="B", help="n2 at least B (default 0); with upper bounds")
    add("--semantic-only", action="store_true", help="only the answer after =, not EOS after 4 and 5")
    add("--heads", metavar="HEADS", help="these heads of --weights alone, such as 2,4, the others zeroed")
    add("--method", choices=("certified", "exhaustive"), default="certified")
    add("--strings", type=int, metavar="L", help="exhaustive: also every string of up to L digits")
    add("--say", metavar="PROMPT", help='continue a prompt, as in --say "0 1 1 2 ="')
    add("--table", action="store_true", help="tabulate N x precision: largest proven length (a minute)")
    add("--impossible", choices=IMPOSSIBLE, metavar="ID", help="the argument and its checks: W-9, no skip connection")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    check(args)
    if args.impossible is not None:
        from verify.count01.impossible import ARGUMENTS
        from verify.report.impossibility import print_argument

        return print_argument(ARGUMENTS[args.impossible](0), is_json=args.json)
    if args.table:
        return show_table(args)
    model, claim = build(args)
    if args.say is not None:
        save_if_asked(model, args)
        return say(model, args)
    certificate = certificate_of(model, claim, args)
    save_if_asked(model, args)
    show(certificate, model, args)
    return certificate.verdict.exit_code


def save_if_asked(model: Count01Transformer, args: argparse.Namespace) -> None:
    """Writes the weights of --save; after deciding, as an interrupted run says that nothing was written."""
    if args.save is not None:
        from constructions.count01 import save

        save(model, args.save)
        if args.json or args.say is not None:  # else a line of the report
            from verify.report.console import say_written

            say_written(args.save)


def check(args: argparse.Namespace) -> None:
    """Raises BadInput for options that do not go together."""
    check_least(args, 0, *BOUNDS, "strings")
    if args.N is not None and args.N > LARGEST_N:
        raise BadInput(f"--N {args.N}: must be at most {LARGEST_N}, where the limit on n2 has 218 digits")
    if args.eps != args.eps or abs(args.eps) > 1:
        raise BadInput(f"--eps {args.eps}: must be a number between -1 and 1 (the documents ask it small)")
    made = [flag(name) for name in ("N", "eps", "as_printed") if is_given(args, name, DEFAULTS)]
    if args.weights is not None and (made or args.construction != "documents"):
        raise BadInput("--weights: the file holds the numbers; drop --N, --construction, --as-printed, --eps")
    if args.construction == "uniform" and made:
        raise BadInput(f"{made[0]}: the uniform construction has no such parameter; drop it")
    if args.as_printed and args.no_skip:
        raise BadInput("--as-printed: the documents print no table without the skip connection; drop --no-skip")
    if args.precision != "real":
        from verify.arithmetic.formats import Format, precision_named

        if not isinstance(precision_named(args.precision), Format):
            for name in ("accumulate", "say"):
                if getattr(args, name) is not None:
                    raise BadInput(f"--{name}: has no effect with --precision {args.precision}; drop one of the two")
            if args.method != "certified":
                raise BadInput(f"--method {args.method}: runs torch. With --precision {args.precision} leave it out.")
        if args.dtype not in (None, args.precision):
            raise BadInput(f"--dtype {args.dtype}: differs from --precision {args.precision}; give only one")
    elif args.accumulate is not None:
        raise BadInput("--accumulate float32: only with --precision, which says what is rounded")
    check_alone(args, ALONE, DEFAULTS)
    if args.save is not None:
        from constructions.files import check_target

        check_target(args.save)
    if args.heads is not None and args.weights is None:
        raise BadInput("--heads: chooses among the heads of a file; add --weights FILE")
    if args.strings is not None and args.method != "exhaustive":
        raise BadInput("--strings: only with --method exhaustive")


def build(args: argparse.Namespace) -> tuple[Count01Transformer, str | None]:
    """The model that the options ask for, and the claim it belongs to."""
    from constructions import count01

    name = args.dtype if args.precision == "real" or args.precision not in DTYPES else args.precision
    dtype = count01.DTYPES[name or "float64"]
    if args.weights is not None:
        model = count01.load(args.weights, skip=False if args.no_skip else None)
        model = count01.with_heads(model, parsed_heads("--heads", args.heads)) if args.heads is not None else model
        model = model if name is None else model.to(dtype)
        if not all(bool(W.double().isfinite().all()) for W in model.parameters()):
            raise BadInput(f"--weights {args.weights}: a weight overflows {name}; choose a wider dtype")
        return model, None
    if args.construction == "uniform":
        return count01.uniform(labels=args.labels, skip=not args.no_skip, dtype=dtype), "W-10"
    N = 10 if args.N is None else args.N
    claim = "D-1" if args.labels == "majority-ones" else "E-5"
    if args.as_printed:
        aligned = args.as_printed == "aligned"
        return count01.as_printed(N, eps=args.eps, aligned=aligned, dtype=dtype), claim
    return count01.documents(N, labels=args.labels, skip=not args.no_skip, eps=args.eps, dtype=dtype), claim


def certificate_of(model: Count01Transformer, claim: str | None, args: argparse.Namespace) -> Certificate:
    """The verdict in the reading that the options ask for."""
    from verify.arithmetic.formats import Format, format_named, precision_named
    from verify.count01 import bits as count01_bits
    from verify.count01.runs import rounded_model
    from verify.count01.task import Region
    from verify.count01.verdict import certify, exhaustive

    least = (args.min_digits or 0, args.min_noise or 0)
    region = Region(args.max_digits, args.max_noise, args.max_length, *least, is_semantic=args.semantic_only)
    parameters: dict[str, Any] = {
        "construction": "file" if args.weights is not None else args.construction,
        "dtype": str(model.dtype).removeprefix("torch."),
        "heads": model.heads,
        "d": model.E.shape[1],
        "skip": model.has_skip,
    }
    if args.weights is None and args.construction == "documents":
        parameters |= {"N": 10 if args.N is None else args.N, "eps": args.eps, "as_printed": args.as_printed}
    if args.method == "exhaustive":
        return exhaustive(model, args.labels, region, strings=args.strings, claim=claim, parameters=parameters)
    fmt = None if args.precision == "real" else precision_named(args.precision)
    if fmt is not None and not isinstance(fmt, Format):
        return count01_bits.certify(model, args.labels, region, fmt.s, claim=claim, parameters=parameters)
    accumulate = None if args.accumulate is None else format_named(args.accumulate)
    if fmt is not None:
        parameters |= {"precision": args.precision, "accumulate": args.accumulate}
        model = model if args.precision in DTYPES else rounded_model(model, fmt)
    certificate = certify(
        model, args.labels, region, fmt=fmt, accumulate=accumulate, claim=claim, parameters=parameters
    )
    if fmt is None and parameters.get("N") and not args.as_printed and not args.eps:
        certificate.extra["exact_weights"] = exact_weights(parameters["N"], args.labels, model.has_skip)
    return certificate


def exact_weights(N: int, labels: str, skip: bool) -> dict[str, Any]:
    """What holds for the weights as formulas, with e not rounded."""
    from verify.count01.real import largest_noise
    from verify.count01.symbolic import symbolic_model

    symbolic = symbolic_model(N, labels, skip)
    noise = largest_noise(symbolic, labels, None)
    if noise != -1:
        return {"digits": "unbounded", "max_noise": noise}
    return {"digits": 1000, "max_noise": largest_noise(symbolic, labels, 1000)}


def show(certificate: Certificate, model: Count01Transformer, args: argparse.Namespace) -> None:
    """Prints the certificate, as one JSON object or for people."""
    if args.json:
        print(certificate.to_json())
        return
    from verify.report.count01 import print_certificate

    print_certificate(certificate, model, args.labels, args.save)


def say(model: Count01Transformer, args: argparse.Namespace) -> int:
    """Prints the continuation of a prompt with its logits; exit code 1 where it is wrong."""
    from constructions.count01 import EOS, TOKENS
    from verify.count01.runs import fails
    from verify.count01.runs import name as token_name
    from verify.count01.task import answer

    prompt = parse_prompt(args.say)
    right = [answer(prompt.count(1), prompt.count(2), args.labels), EOS]
    said = model.generate(prompt, limit=2)
    is_right = len(said) == 2 and all(
        token == r and not fails(logits, r) for (token, logits), r in zip(said, right, strict=True)
    )
    steps = [
        {"token": token_name(token), "logits": dict(zip(names(len(logits)), finite(logits), strict=True))}
        for token, logits in said
    ]
    if args.json:
        prompt_tokens = [TOKENS[t] for t in prompt]
        print(json.dumps({"prompt": prompt_tokens, "said": steps, "is_right": is_right}))
        return 0 if is_right else 1
    from verify.report.tables import render

    rows = [[token, *(f"{logits[j]:.9g}" for _, logits in said)] for j, token in enumerate(names(len(said[0][1])))]
    print(" ".join(TOKENS[t] for t in prompt), "->", " ".join(str(step["token"]) for step in steps))
    print(render(("", *(f"says {step['token']}" for step in steps)), rows, "rich"), end="")
    if not is_right:
        print("wrong: due is", " ".join(TOKENS[t] for t in right))
    return 0 if is_right else 1


def names(classes: int) -> list[str]:
    from verify.count01.runs import name

    return [name(j) for j in range(classes)]


def finite(logits: list[float]) -> list[float | None]:
    return [x if x == x and abs(x) != float("inf") else None for x in logits]


def parse_prompt(text: str) -> list[int]:
    """A prompt of digits 0, 1, 2 with "=" at the end, spaces or not; BOS is put in front."""
    from constructions.count01 import BOS, TOKENS

    symbols = text.replace("BOS", "").replace(" ", "")
    if not symbols.endswith("=") or set(symbols[:-1]) - set("012"):
        raise BadInput(f'--say {text!r}: must be digits 0, 1, 2 and then one =, as in "0 1 1 2 ="')
    return [BOS, *(TOKENS.index(symbol) for symbol in symbols)]


def show_table(args: argparse.Namespace) -> int:
    """Prints N x precision: the largest length proved in the reading "dtype, any order"."""
    from constructions.count01 import documents, uniform
    from verify.count01.table import smallest_bits, table

    sizes = (5, 8, 10, 12, 15) if args.N is None else (args.N,)
    rows = table(sizes)
    models = {f"N={N}, eps={eps:g}": documents(N, eps=eps) for N in sizes for eps in (0.0, 2.0**-10)}
    bits = {name: smallest_bits(model) for name, model in {**models, "uniform": uniform()}.items()}
    if args.json:
        print(json.dumps({"length": {row.construction: row.lengths for row in rows}, "bits_for_200": bits}))
        return 0
    from verify.report.tables import render

    lengths = [[row.construction, *("none" if n < 0 else n for n in row.lengths.values())] for row in rows]
    print("largest proven length")
    print(render(("model", *rows[0].lengths), lengths, "rich"), end="")
    print("significand proved enough for n0, n1, n2 <= 200")
    print(render(("model", "bits"), [[name, "none" if p is None else p] for name, p in bits.items()], "rich"), end="")
    return 0
