"""`verify heads`: what each attention head of a Count01 model knows, on all inputs of a law."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request as shared
from verify.commands.options import fractions, parsed_heads
from verify.commands.parsing import add_map
from verify.commands.vocabulary import option
from verify.frame.schema import as_json
from verify.report.console import say_written

if TYPE_CHECKING:
    from constructions.model_arrays import ModelArrays
    from verify.tasks.count01.heads.dissect import HeadsQuestion, Progress
    from verify.tasks.count01.layer_norm.laws import Law
    from verify.tasks.count01.model import Count01Model

CONSTRUCTIONS = ("documents", "uniform", "counting-pair", "interval-pair")
PAIRS = {"counting-pair": "H-4", "interval-pair": "H-6"}  # the claim that both heads together are a case of
INTERVAL = 8  # 2s in each head's interval
LAWS = "d-test, d-val, d-train, e-lengths, box:LO:HI:M or unbounded"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", nargs="?", help="a state_dict (.safetensors or .pt)")
    add("--construction", choices=CONSTRUCTIONS, metavar="MODEL", help=f"{', '.join(CONSTRUCTIONS)}: "
        "a built model instead of FILE (documents: N = 10; "
        "interval-pair: 8 2s each)")  # fmt: skip
    add("--ratios", metavar="W01,W02", help="a one-dimensional head with these attention ratios instead of FILE; W02 "
        "may be inf, BOS and = get no attention; needs --values")  # fmt: skip
    add("--values", metavar="V0,V1,V2", help="with --ratios: its values of 0, 1 and 2, as fractions; without, a head "
        "of uniform attention: its vectors of 0, 1, 2, BOS and =, as -1,0:1,0:0,1:-1/2,0:0,0")  # fmt: skip
    add("--law", required=True, metavar="LAW", help=f"the inputs and how likely they are: {LAWS}")
    add_map(parser, "file")
    option(parser, "labels")
    option(parser, "subset", action="append", default=[], help="also these heads together, such as 2,4; again for more")
    add("--no-pairs", action="store_true", help="leave out the pairs of heads")
    add("--all-subsets", action="store_true",
        help="all 2^a subsets of at most 16 heads: accuracies, Shapley values, halving (minutes)")  # fmt: skip
    add("--svc", action="store_true", help="also bracket the separation accuracy by SVC (seconds per head)")
    add(
        "--extract",
        metavar="HEADS",
        help="build a smaller model from these heads with a readout that separates, and prove it",
    )
    shared.add_arguments(parser, without=("precision", "accumulate", "method", "budget", "effort", "seed"))
    parser.epilog = "Exit codes: 0 complete, 2 bad usage or input, 3 something stayed open; with --extract the proof's."


@dataclass(frozen=True)
class HeadsRequest:
    """The question that a command line asks about heads, and where the answer goes."""

    question: HeadsQuestion
    extracted: tuple[int, ...] | None
    save: str | None
    is_json: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> HeadsRequest:
        from constructions.written_files import check_target_folder
        from verify.tasks.count01.heads.dissect import HeadsQuestion
        from verify.tasks.count01.layer_norm.laws import law_named

        if args.save is not None:
            check_target_folder(args.save, shared.SAVED)
        law = law_named(args.law)
        if law.is_unbounded:
            for option, is_given in (("--svc", args.svc), ("--all-subsets", args.all_subsets)):
                if is_given:
                    raise BadInput(f"{option}: has no effect with --law unbounded, which has no shares; drop one")
        question = HeadsQuestion(
            law,
            args.labels,
            tuple(parsed_heads("--subset", text) for text in args.subset),
            not args.no_pairs,
            args.all_subsets,
            args.svc,
        )
        extracted = None if args.extract is None else parsed_heads("--extract", args.extract)
        return cls(question, extracted, args.save, args.json)


@dataclass(frozen=True)
class Source:
    """Which model: the one in FILE, or a built one."""

    file: str | None
    construction: str | None
    labels: str

    @classmethod
    def of(cls, args: argparse.Namespace) -> Source:
        """Raises: BadInput for both, or neither."""
        if (args.file is None) == (args.construction is None):
            raise BadInput("FILE: name a weights file, or choose a model with --construction, one of the two")
        return cls(args.file, args.construction, args.labels)

    def model(self) -> Count01Model:
        """The model, read or built."""
        if self.file is not None:
            from constructions import count01

            return count01.load(self.file)
        from constructions import count01_arrays

        if self.construction in PAIRS:
            return pair(self.construction)
        if self.construction == "uniform":
            return count01_arrays.uniform(labels=self.labels)
        return count01_arrays.documents(10, labels=self.labels)


def pair(construction: str, dtype: str = "float64") -> ModelArrays:
    """The two heads that need each other, by name: of H-4, or of H-6 for INTERVAL."""
    from constructions import count01_heads_arrays as arrays

    if construction == "counting-pair":
        return arrays.counting_pair(dtype=dtype)
    return arrays.interval_pair(M=INTERVAL, dtype=dtype)


@dataclass(frozen=True)
class Ratios:
    """A one-dimensional head by its attention ratios (w02 None: infinite) and its values, and a box of inputs."""

    w01: Fraction
    w02: Fraction | None
    values: list[Fraction]
    law: Law

    @classmethod
    def of(cls, args: argparse.Namespace) -> Ratios:
        """Raises: BadInput for options that do not go together, no box, and ratios that are not positive."""
        from verify.tasks.count01.layer_norm.laws import law_named

        if args.values is None or args.file or args.construction:
            raise BadInput("--ratios W01,W02: goes with --values V0,V1,V2, and without FILE and --construction")
        law = law_named(args.law)
        if not law.is_uniform or law.low == law.high:
            raise BadInput(f"--law {args.law}: --ratios takes a box with LO < HI, such as box:0:200:200")
        is_infinite = args.ratios.endswith(",inf")
        w01, *rest = fractions("--ratios", args.ratios.removesuffix(",inf"), 1 if is_infinite else 2)
        if w01 <= 0 or any(w <= 0 for w in rest):
            raise BadInput(f"--ratios {args.ratios}: attention ratios are positive")
        return cls(w01, rest[0] if rest else None, fractions("--values", args.values, 3), law)

    def by_formula(self) -> bool:
        """Whether a threshold separates, by the closed form."""
        from bounds.count01_heads import separates

        v0, v1, v2 = self.values
        if self.w02 is None:
            return v0 != v1
        return separates((self.w01, self.w02), (v0, v1, v2), (self.law.low, self.law.high, self.law.noise))


def check_no_model(args: argparse.Namespace) -> None:
    """Raises: BadInput for an option that is about a model's heads, or what is written of them."""
    alone = "--values" if args.ratios is None else "--ratios"
    for name in ("save", "report", "subset", "extract", "svc", "all_subsets", "no_pairs"):
        if getattr(args, name) not in (None, False, []):
            raise BadInput(
                f"--{name.replace('_', '-')}: has no effect with {alone}, which is a head by itself; drop one"
            )


def run(args: argparse.Namespace) -> int:
    if args.values is not None or args.ratios is not None:
        check_no_model(args)
    if args.ratios is None and args.values is not None:
        from verify.tasks.count01.heads import vectors

        if args.file or args.construction:
            raise BadInput("--values: is a head by itself; leave FILE and --construction out")
        return vectors.decide(vectors.Vectors.parsed(args.values, args.law), is_json=args.json)
    if args.ratios is not None:
        return decide_ratios(Ratios.of(args), is_json=args.json)
    request, source = HeadsRequest.of(args), Source.of(args)
    model = source.model()
    if request.extracted is not None:
        single = "H-5" if len(request.extracted) == 1 else None
        claim = PAIRS.get(source.construction or "") if len(request.extracted) == 2 else single
        return extract(request, model, request.extracted, claim)
    return show(request, model)


def decide_ratios(asked: Ratios, *, is_json: bool) -> int:
    """Whether a one-dimensional head with given ratios separates: by the closed form, and by the linear programme."""
    from verify.tasks.count01.heads.phase import decided

    law, w02 = asked.law, "inf" if asked.w02 is None else str(asked.w02)
    found = decided(asked.w01, asked.w02, asked.values, law)
    if found != asked.by_formula():
        raise AssertionError(f"{asked}: the closed form and the programme differ")
    said = "a threshold separates n1 > n0 from the rest" if found else "no threshold separates n1 > n0 from the rest"
    claim = "H-3" if asked.w02 is None else "H-2"
    data: dict[str, object] = {
        "task": "heads, ratios",
        "claim": claim,
        "verdict": "PROVED" if found else "REFUTED",
        "law": law.name,
        "law_text": str(law),
        "w01": str(asked.w01),
        "w02": w02,
        "values": [str(v) for v in asked.values],
    }
    print(as_json(data) if is_json else f"law       {law.name}: {law}\n{data['verdict']}  {said} ({claim})")
    return 0 if found else 1


def show(request: HeadsRequest, model: Count01Model) -> int:
    """Dissects, saves and prints; exit code 0 when everything was decided."""
    from verify.tasks.count01.heads.dissect import dissect

    started = time.perf_counter()
    answer = dissect(model, request.question, progress_line())
    seconds = time.perf_counter() - started
    data = {**identity(request, model), **answer.data, "seconds": seconds}
    save(request, model, data)
    if request.is_json:
        print(as_json(data))
    else:
        from verify.tasks.count01.heads.report import print_heads

        print_heads(answer.data, seconds)
    return 0 if answer.is_complete else 3


def identity(request: HeadsRequest, model: Count01Model) -> dict[str, object]:
    """Returns the fields that identify the model."""
    import hashlib

    from verify.tasks.count01.model import bytes_of

    return {
        "task": "heads",
        "reading": "real",
        "parameters": {
            "heads": model.heads,
            "d": model.E.shape[1],
            "d_h": model.W_Q.shape[2],
            "skip": model.has_skip,
            "norm": model.has_norm,
            "dtype": str(model.dtype).removeprefix("torch."),
        },
        "weights_sha256": hashlib.sha256(bytes_of(model)).hexdigest(),
    }


def save(request: HeadsRequest, model: Count01Model, data: dict[str, object]) -> None:
    """Writes the folder that --save asks for."""
    if request.save is None:
        return
    from constructions.written_files import write_whole_folder
    from verify.tasks.count01.model import bytes_of

    contents = (bytes_of(model), (as_json(data) + "\n").encode())
    write_whole_folder(request.save, dict(zip(shared.SAVED, contents, strict=True)))
    say_written(*(Path(request.save) / name for name in shared.SAVED))


def progress_line() -> Progress:
    """A line on stderr that says what is being computed, where stderr is a terminal and it takes over two seconds."""
    started = time.perf_counter()

    def shown(stage: str, share: float) -> None:
        if sys.stderr.isatty() and time.perf_counter() - started > 2:
            end = "\n" if share >= 1 else ""
            print(f"\r{stage}: {100 * share:3.0f} %", end=end, file=sys.stderr, flush=True)

    return shown


def extract(request: HeadsRequest, model: Count01Model, heads: tuple[int, ...], claim: str | None) -> int:
    """Builds the smaller model, decides it on the law, saves and prints it with the claim that it is a case of.

    Returns 0 when proved, 1 when refuted.
    """
    from verify.tasks.count01.heads.dissect import check_subset
    from verify.tasks.count01.heads.extract import extract as extracted
    from verify.tasks.count01.heads.separability import separability
    from verify.tasks.count01.layer_norm.numbers import model_numbers

    started = time.perf_counter()
    check_subset("--extract", heads, model.heads)
    law = request.question.law
    found = extracted(model, heads, law, request.question.labels)
    right = found.inputs - found.wrong
    numbers = model_numbers(model)
    alone = {h: separability(numbers.heads[h], law).is_separable for h in heads} if len(heads) > 1 else {}
    data = identity(request, found.model) | {
        "task": "heads, extracted",
        "claim": claim,
        "verdict": "PROVED" if found.is_proved else "REFUTED",
        "extracted": list(heads),
        "separable_alone": [alone[h] for h in heads if alone],
        "law": law.name,
        "law_text": str(law),
        "labels": request.question.labels,
        "inputs_covered": str(found.inputs),
        "counts": {"right": str(right), "wrong": str(found.wrong)},
        "wrong_after_the_answer": str(found.wrong_syntax),
        "seconds": time.perf_counter() - started,
    }
    save(request, found.model, data)
    if request.is_json:
        print(as_json(data))
    else:
        shown = "" if claim is None else f" ({claim})"
        ended = "" if found.wrong_syntax == 0 else f", EOS missed after {found.wrong_syntax} answers"
        print(f"model     {found.model.extra_repr()}, from heads {','.join(map(str, heads))}")
        print(f"law       {law.name}: {law}")
        if alone:
            said = {True: "separates", False: "does not separate", None: "is not decided"}
            print("alone     " + ", ".join(f"head {h} {said[alone[h]]}" for h in heads))
        print(f"{data['verdict']}  {found.wrong} of {found.inputs} triples answered wrongly after ={ended}{shown}")
    return 0 if found.is_proved else 1
