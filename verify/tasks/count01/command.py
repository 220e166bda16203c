"""`verify count01`: builds or loads a Count01 model, decides it for all counts, or lets it speak."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.options import check_alone, check_least, flag, is_given, parsed_heads
from verify.commands.parsing import add_weights
from verify.commands.ranges import LARGEST_N
from verify.commands.request import Request, publish, save_weights
from verify.commands.vocabulary import DTYPES, JUDGED, MODEL, group, option, renamed
from verify.frame.schema import as_json
from verify.tasks.count01.heads.command import PAIRS, pair

if TYPE_CHECKING:
    from verify.arithmetic.readings import Reading
    from verify.tasks.count01.model import Count01Model
    from verify.tasks.count01.task import PromptDomain

BOUNDS = ("max_digits", "max_noise", "length", "min_digits", "min_noise")
DOMAIN = (*BOUNDS, "semantic_only", "subset")
PROVING = ("method", "strings", "budget", "seed")
# Options that do another job than deciding, and what they would ignore.
IMPOSSIBLE = ("W-9",)
ALONE = {
    "impossible": ("input", "table", "weights", "save", *PROVING, "N", "labels", "construction", "no_skip",
                   "as_printed", "eps", "dtype", "precision", "accumulate", *DOMAIN),
    "input": (*PROVING, *BOUNDS, "semantic_only", "accumulate"),
    "table": ("input", "weights", "save", *PROVING, "precision", "accumulate", "construction", "no_skip", "as_printed",
              "eps", "labels", *DOMAIN),
}  # fmt: skip
DEFAULTS = {"eps": 0.0, "table": False, "method": "certified", "construction": "documents", "no_skip": False,
            "labels": "majority-ones", "semantic_only": False, "budget": 30.0, "seed": 0}  # fmt: skip
RENAMED = renamed(heads="subset", say="input", max_length="length")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = group(parser, MODEL).add_argument
    add("--N", type=int, metavar="N", help="attention scale N (default: 10)")
    kinds = ("documents", "uniform", "layer-norm", *PAIRS)
    add("--construction", choices=kinds, default="documents", metavar="NAME",
        help=f"{', '.join(kinds)} (default: documents)")  # fmt: skip
    add("--no-skip", action="store_true", help="without the skip connection")
    option(
        parser,
        "as-printed",
        action="store",
        nargs="?",
        const="literal",
        choices=("literal", "aligned"),
        help="the printed readout: literal has its 9 entries, aligned 8 (without the surplus zero)",
    )
    add("--eps", type=float, default=0.0, help="D's epsilon in the bias of 5 (default: 0)")
    option(parser, "dtype")
    add_weights(parser)
    option(parser, "subset", help="these heads of --weights alone, such as 2,4, the others zeroed")
    option(parser, "labels")
    option(parser, "length", metavar="L", help="n0 + n1 + n2 up to L")
    add = group(parser, JUDGED).add_argument
    add("--max-digits", type=int, metavar="A", help="n0 and n1 up to A each (default: find the limit)")
    add("--max-noise", type=int, metavar="B", help="n2 up to B (default: find the limit)")
    add("--min-digits", type=int, metavar="A", help="n0 and n1 at least A each (default: 0); with upper bounds")
    add("--min-noise", type=int, metavar="B", help="n2 at least B (default: 0); with upper bounds")
    add("--semantic-only", action="store_true", help="only the answer after =, not EOS after 4 and 5")
    add("--strings", type=int, metavar="L", help="exhaustive: also every order of up to L digits")
    option(parser, "input", metavar="PROMPT", help='continue a prompt instead, as in --input "0 1 1 2 ="')
    add("--table", action="store_true", help="tabulate N x precision: largest proven length (a minute)")
    option(parser, "impossible", choices=IMPOSSIBLE, help="the argument and its checks: W-9, no skip connection")
    request.add_arguments(parser)


@dataclass(frozen=True)
class Count01Wish:
    """The model that is asked for: built for a size, or read from a file."""

    construction: str
    labels: str
    N: int
    eps: float
    as_printed: str | None
    has_skip: bool
    dtype: str | None
    weights: str | None
    subset: str | None

    @classmethod
    def of(cls, args: argparse.Namespace, precision: str | None) -> Count01Wish:
        """Raises: BadInput for options that do not go together, and for sizes that no output holds."""
        if args.N is not None and args.N > LARGEST_N:
            raise BadInput(f"--N {args.N}: must be at most {LARGEST_N}, where the limit on n2 has 218 digits")
        if args.eps != args.eps or abs(args.eps) > 1:
            raise BadInput(f"--eps {args.eps}: must be a number between -1 and 1 (the documents ask it small)")
        made = [flag(name) for name in ("N", "eps", "as_printed") if is_given(args, name, DEFAULTS)]
        if args.weights is not None and (made or args.construction != "documents"):
            raise BadInput("--weights: the file holds the numbers; drop --N, --construction, --as-printed, --eps")
        if args.construction != "documents" and made:
            raise BadInput(f"{made[0]}: the {args.construction} construction has no such parameter; drop it")
        if args.construction == "layer-norm" and args.no_skip:
            raise BadInput(
                "--no-skip: the layer-norm construction reads EOS from the skip connection; drop one of both"
            )
        if args.construction in PAIRS and (args.no_skip or args.labels != "majority-ones"):
            raise BadInput(f"--construction {args.construction}: has a skip connection and says 4 for n1 > n0 only")
        if args.as_printed and args.no_skip:
            raise BadInput("--as-printed: the documents print no table without the skip connection; drop --no-skip")
        if args.subset is not None and args.weights is None:
            raise BadInput("--subset: chooses among the heads of a file; add --weights FILE")
        if precision is not None and args.dtype not in (None, precision):
            raise BadInput(f"--dtype {args.dtype}: differs from --precision {precision}; give only one")
        dtype = precision if precision in DTYPES else args.dtype
        N, has_skip = 10 if args.N is None else args.N, not args.no_skip
        return cls(
            args.construction, args.labels, N, args.eps, args.as_printed, has_skip, dtype, args.weights, args.subset
        )

    def model(self) -> tuple[Count01Model, str | None]:
        """The module or its arrays, and the claim it belongs to."""
        if self.weights is not None:
            from constructions import count01

            model = count01.load(self.weights, skip=None if self.has_skip else False)
            if self.subset is not None:
                model = count01.with_heads(model, parsed_heads("--subset", self.subset))
            model = model if self.dtype is None else model.to(count01.DTYPES[self.dtype])
            if not all(bool(W.double().isfinite().all()) for W in model.parameters()):
                raise BadInput(f"--weights {self.weights}: a weight overflows {self.dtype}; choose a wider dtype")
            return model, None
        dtype = self.dtype or "float64"
        if self.construction in PAIRS:
            return pair(self.construction, dtype), PAIRS[self.construction]
        from constructions import count01_arrays as arrays

        if self.construction == "layer-norm":
            return arrays.normed(labels=self.labels, dtype=dtype), "D-2"
        if self.construction == "uniform":
            return arrays.uniform(labels=self.labels, skip=self.has_skip, dtype=dtype), "W-10"
        claim = "D-1" if self.labels == "majority-ones" else "E-5"
        if self.as_printed:
            aligned = self.as_printed == "aligned"
            return arrays.as_printed(self.N, eps=self.eps, aligned=aligned, dtype=dtype), claim
        built = arrays.documents(self.N, labels=self.labels, skip=self.has_skip, eps=self.eps, dtype=dtype)
        return built, claim

    def named(self, model: Count01Model) -> dict[str, object]:
        """Returns the fields with which a certificate names the construction."""
        from constructions.model_arrays import name_of

        found: dict[str, object] = {
            "construction": "file" if self.weights is not None else self.construction,
            "dtype": name_of(model.dtype),
            "heads": model.heads,
            "d": model.E.shape[1],
            "skip": model.has_skip,
        }
        if self.weights is None and self.construction == "documents":
            found |= {"N": self.N, "eps": self.eps, "as_printed": self.as_printed}
        return found

    @property
    def is_formula(self) -> bool:
        """Whether the documents' formulas, with e not rounded, say what the weights are."""
        return self.weights is None and self.construction == "documents" and not self.as_printed and not self.eps


def run(args: argparse.Namespace) -> int:
    check_least(args, 0, *BOUNDS, "strings")
    check_alone(args, ALONE, DEFAULTS)
    if args.strings is not None and args.method != "exhaustive":
        raise BadInput("--strings: only with --method exhaustive")
    asked = Request.of(args)
    reading = asked.reading
    precision = None if asked.precision == "real" else asked.precision
    wish = Count01Wish.of(args, precision)
    if args.impossible is not None:
        from verify.report.impossibility import print_argument
        from verify.tasks.count01.impossible import ARGUMENTS

        return print_argument(ARGUMENTS[args.impossible](0), is_json=args.json)
    if args.table:
        return show_table(args.N, is_json=args.json)
    model, claim = wish.model()
    if args.input is not None:
        check_said(reading)
        from verify.tasks.count01.model import bytes_of

        save_weights(asked, "--input", bytes_of(model))
        return say(model, args.input, args.labels, is_json=args.json)
    from verify.tasks.count01.task import PromptDomain

    least = (args.min_digits or 0, args.min_noise or 0)
    domain = PromptDomain(args.max_digits, args.max_noise, args.length, *least, is_semantic=args.semantic_only)
    return decided(model, claim, wish, domain, args.strings, asked)


def decided(
    model: Count01Model, claim: str | None, wish: Count01Wish, domain: PromptDomain, strings: int | None, asked: Request
) -> int:
    """Prints the verdict on a domain in the reading and by the method that are asked for."""
    from constructions.model_arrays import module_of
    from verify.arithmetic.evaluation import rounded_model
    from verify.arithmetic.readings import Real, Rounded
    from verify.frame.decide import decide
    from verify.tasks.count01.model import bytes_of
    from verify.tasks.count01.report import facts, report
    from verify.tasks.count01.verdict import Count01

    reading, method, named = asked.reading, asked.method, wish.named(model)
    is_plain = isinstance(reading, Real) and method == "certified"
    judged = model = model if is_plain else module_of(model)
    if isinstance(reading, Rounded) and asked.precision not in DTYPES:
        judged = rounded_model(model, reading.format)
    problem = Count01.of(
        judged, wish.labels, domain, method=method, reading=reading, strings=strings, claim=claim, named=named
    )
    certificate = decide(problem, reading, method, asked.effort())
    if wish.is_formula and isinstance(reading, Real) and method == "certified":
        certificate.extra["exact_weights"] = exact_weights(wish.N, wish.labels, model.has_skip)
    return publish(asked, certificate, lambda: bytes_of(model), facts(certificate, model, wish.labels), report)


def check_said(reading: Reading) -> None:
    """Raises BadInput for constant-bit arithmetic, which --input does not run."""
    from verify.arithmetic.readings import ConstantBits, precision_of

    if isinstance(reading, ConstantBits):
        raise BadInput(f"--input: has no effect with --precision {precision_of(reading)}; drop one of the two")


def exact_weights(N: int, labels: str, skip: bool) -> dict[str, object]:
    """Returns the largest counts that hold for the weights as formulas, in which e is not rounded."""
    from verify.tasks.count01.real import largest_noise
    from verify.tasks.count01.symbolic import symbolic_model

    symbolic = symbolic_model(N, labels, skip)
    noise = largest_noise(symbolic, labels, None)
    if noise != -1:
        return {"digits": "unbounded", "max_noise": noise}
    return {"digits": 1000, "max_noise": largest_noise(symbolic, labels, 1000)}


def say(model: Count01Model, text: str, labels: str, *, is_json: bool) -> int:
    """Prints the continuation of a prompt with its logits; exit code 1 where it is wrong."""
    from constructions.count01 import EOS, TOKENS
    from verify.tasks.count01.runs import fails
    from verify.tasks.count01.runs import name as token_name
    from verify.tasks.count01.task import answer

    prompt = parse_prompt(text)
    right = [answer(prompt.count(1), prompt.count(2), labels), EOS]
    said = model.generate(prompt, limit=2)
    is_right = len(said) == 2 and all(
        token == r and not fails(logits, r) for (token, logits), r in zip(said, right, strict=True)
    )
    steps = [
        {"token": token_name(token), "logits": dict(zip(names(len(logits)), finite(logits), strict=True))}
        for token, logits in said
    ]
    if is_json:
        prompt_tokens = [TOKENS[t] for t in prompt]
        print(as_json({"prompt": prompt_tokens, "said": steps, "is_right": is_right}))
        return 0 if is_right else 1
    from verify.report.tables import render

    rows = [[token, *(f"{logits[j]:.9g}" for _, logits in said)] for j, token in enumerate(names(len(said[0][1])))]
    print(" ".join(TOKENS[t] for t in prompt), "->", " ".join(str(step["token"]) for step in steps))
    print(render(("", *(f"says {step['token']}" for step in steps)), rows, "rich"), end="")
    if not is_right:
        print("wrong: due is", " ".join(TOKENS[t] for t in right))
    return 0 if is_right else 1


def names(classes: int) -> list[str]:
    from verify.tasks.count01.runs import name

    return [name(j) for j in range(classes)]


def finite(logits: list[float]) -> list[float | None]:
    return [x if x == x and abs(x) != float("inf") else None for x in logits]


def parse_prompt(text: str) -> list[int]:
    """Parses digits 0, 1, 2 with "=" at the end, with or without spaces. BOS is put in front."""
    from constructions.count01 import BOS, TOKENS

    symbols = text.replace("BOS", "").replace(" ", "")
    if not symbols.endswith("=") or set(symbols[:-1]) - set("012"):
        raise BadInput(f'--input {text!r}: must be digits 0, 1, 2 and then one =, as in "0 1 1 2 ="')
    return [BOS, *(TOKENS.index(symbol) for symbol in symbols)]


def show_table(N: int | None, *, is_json: bool) -> int:
    """Prints N x precision: the largest length proved in the reading "dtype, any order"."""
    from constructions.count01 import documents, uniform
    from verify.tasks.count01.table import smallest_bits, table

    sizes = (5, 8, 10, 12, 15) if N is None else (N,)
    rows = table(sizes)
    models = {f"N={size}, eps={eps:g}": documents(size, eps=eps) for size in sizes for eps in (0.0, 2.0**-10)}
    bits = {name: smallest_bits(model) for name, model in {**models, "uniform": uniform()}.items()}
    if is_json:
        print(as_json({"length": {row.construction: row.lengths for row in rows}, "bits_for_200": bits}))
        return 0
    from verify.report.tables import render

    lengths = [[row.construction, *("none" if n < 0 else n for n in row.lengths.values())] for row in rows]
    print("largest proven length")
    print(render(("model", *rows[0].lengths), lengths, "rich"), end="")
    print("significand proved enough for n0, n1, n2 <= 200")
    print(render(("model", "bits"), [[name, "none" if p is None else p] for name, p in bits.items()], "rich"), end="")
    return 0
