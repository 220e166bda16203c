"""`verify quantise`: a model with fewer bits, decided as it is then stored, and the fewest bits that stay proved."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from constructions.errors import BadInput
from verify.commands import changed
from verify.commands.batch import FirstTask, Job, job_of, tasks_of_files
from verify.commands.changed import ChangeAsked
from verify.commands.parsing import REST
from verify.commands.request import SAVED
from verify.report.progress import progress_bar

if TYPE_CHECKING:
    from torch import nn

    from verify.changes.changeable import Changeable
    from verify.changes.quantise import FewestBits, Quantised, Roundable, Rounded
    from verify.frame.certificate import Certificate
    from verify.frame.decide import Effort

M = TypeVar("M")
RECORD = "quantised.json"
TASK_FILE = ".py"
PASSED_ON = ("model", "L", "precision", "accumulate")
SCALED = ("per-tensor", "per-channel")
SCHEMES = (*SCALED, "fp8", "e4m3", "e5m2", "bf16", "fp16")
DEFAULT_BITS = 8
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    changed.add_file(parser)
    names = tasks_of_files()
    add = parser.add_argument
    help = f"what they are to know: {', '.join(names)} (default: {names[0]}); a second --task is its own"
    add("--task", action=FirstTask, default=names[0], metavar="T", help=help)
    changed.add_options(parser)
    parser.set_defaults(**{REST: []})
    help = f"scales, or a format: {', '.join(SCHEMES)} (default: {SCHEMES[0]})"
    add("--scheme", choices=SCHEMES, default=SCHEMES[0], metavar="S", help=help)
    add("--bits", type=int, help=f"2 to 16 bits of each whole number, its sign included (default: {DEFAULT_BITS})")
    add("--tensors", metavar="A,B", help="only these tensors are rounded (default: all)")
    add(
        "--fewest",
        action="store_true",
        help="try 2, 3, ... bits until the model is PROVED, each decided; they share --budget",
    )
    add("--by-tensor", action="store_true", help="with --fewest: also for each tensor alone, the others as they are")
    parser.epilog = (
        "The model computes with scale times whole number in its own dtype, and these products are what is decided, by "
        "the task's own command: its options come after FILE, as in --task count01 --max-digits 20. Exit codes: those "
        f"of the verdict. --save DIR also writes {RECORD}, with the scales; --save FILE.safetensors, of up to 8 bits, "
        "whole numbers and scales, which verify reads."
    )


@dataclass(frozen=True)
class RoundingWish:
    """The grid that a command line asks for, and the tensors on it, None for all; `bits` None where it is a format."""

    scheme: str
    bits: int | None
    tensors: tuple[str, ...] | None
    fewest: bool
    by_tensor: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> RoundingWish:
        """Raises: BadInput for options that do not go together."""
        _check(args)
        bits = DEFAULT_BITS if args.bits is None and args.scheme in SCALED else args.bits
        return cls(args.scheme, bits, changed.tensors_in(args.tensors), args.fewest, args.by_tensor)


def run(args: argparse.Namespace) -> int:
    wish, job = RoundingWish.of(args), job_of(args)
    asked = ChangeAsked.of(args, RECORD)
    with progress_bar("rounding", quiet=asked.is_json) as progress:
        effort = asked.effort(progress)
        if args.file.endswith(TASK_FILE) and args.task in changed.tasks():
            changeable = asked.changeable()
            return decided(wish, asked, effort, *of_module(changeable, asked))
        with tempfile.TemporaryDirectory() as folder:
            return decided(wish, asked, effort, FileToRound.of(args, job, folder).roundable(), task_file)


def decided(
    wish: RoundingWish, asked: ChangeAsked, effort: Effort, model: Roundable[M], file: Callable[[M], bytes]
) -> int:
    """Rounds a model, publishes the result, and returns the exit code of its verdict."""
    from verify.changes.quantise import NumberGrid, quantise

    if wish.fewest:
        return _fewest(wish, asked, effort, model, file)
    found = quantise(model, NumberGrid(wish.scheme, wish.bits), effort, tensors=wish.tensors)
    _published(asked, found.to_dict(), lines(found), found, file)
    return found.certificate.verdict.exit_code


def _published(
    asked: ChangeAsked,
    record: dict[str, object],
    said: list[str],
    found: Quantised[M] | None,
    file: Callable[[M], bytes],
) -> None:
    """Writes and prints what was found; alone, weights are written as they are deployed."""
    from constructions.whole_numbers import file_with

    if found is None:
        asked.published(record, said, None, None)
        return
    weights = file(found.module)
    alone = found.module.file if isinstance(found.module, RoundedFile) else file_with(weights, found.rounded)
    asked.published(record, said, weights, found.certificate, alone)


def of_module(changeable: Changeable, asked: ChangeAsked) -> tuple[Roundable[nn.Module], Callable[[nn.Module], bytes]]:
    """A module of a task file, and how it is written."""
    from verify.changes.quantise import Roundable

    reading = asked.reading
    return Roundable.of(changeable.module, lambda m, effort: changeable.decide(m, reading, effort)), changeable.file


@dataclass(frozen=True)
class RoundedFile:
    """A file that was decided, and the weights that the task's command saved of it."""

    file: bytes
    weights: bytes


def task_file(rounded: RoundedFile) -> bytes:
    """The weights in the layout of their task."""
    return rounded.weights


@dataclass(frozen=True)
class FileToRound:
    """The tensors of a file that a task's own command decides, and a folder for files in between."""

    path: str
    file: bytes
    job: Job
    folder: str

    @classmethod
    def of(cls, args: argparse.Namespace, job: Job, folder: str) -> FileToRound:
        """Raises: BadInput for a file that cannot be read, and options that do another job than a verdict on it."""
        from constructions.formats.safetensors_files import rewritten

        if args.weights is not None:
            raise BadInput(f"--weights {args.weights}: goes with a TASK.py. Name the weights as FILE.")
        named = {name: getattr(args, name) for name in PASSED_ON if getattr(args, name) is not None}
        job = replace(job, options=(*job.options, *(f"--{name}={value}" for name, value in named.items())))
        job.check()
        return cls(args.file, rewritten(args.file), job, folder)

    def roundable(self) -> Roundable[RoundedFile]:
        """All tensors of floating-point numbers with an axis; a number alone is its own scale, and stays."""
        from safetensors.torch import load

        from verify.changes.quantise import Roundable

        floats = {n: w for n, w in sorted(load(self.file).items()) if w.is_floating_point() and w.ndim}
        for name, w in floats.items():
            if not bool(w.isfinite().all()):
                raise BadInput(
                    f"FILE {self.path}: {name} holds NaN or infinity, and is not rounded. Check the training."
                )
        return Roundable(floats, self._decided)

    def _decided(self, rounded: Rounded, effort: Effort) -> tuple[RoundedFile, Certificate]:
        """The file with these tensors, decided as it is stored."""
        from constructions.whole_numbers import file_with
        from verify.frame.certificate import Certificate

        data, (place, saved) = file_with(self.file, rounded), (Path(self.folder, n) for n in ("m.safetensors", "saved"))
        place.write_bytes(data)
        steps, limit = effort.limit.steps, [f"--budget={effort.seconds}"]
        limit += [] if steps is None else [f"--effort={steps}"]
        job = replace(self.job, options=(*self.job.options, *limit, f"--save={saved}"))
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
                job.run(str(place))
        except BadInput as error:
            raise BadInput(str(error).replace(str(place), self.path)) from None
        told = [line for line in said.getvalue().splitlines(True) if not line.startswith("wrote ")]
        print(*told, sep="", end="", file=sys.stderr)
        certificate = Certificate.from_json((saved / SAVED[1]).read_text(encoding="utf-8"))
        return RoundedFile(data, (saved / SAVED[0]).read_bytes()), certificate


def _check(args: argparse.Namespace) -> None:
    """Raises: BadInput for options that do not go together."""
    if args.fewest and args.bits is not None:
        raise BadInput("--bits: has no effect with --fewest; drop one of the two")
    if args.fewest and args.scheme not in SCALED:
        raise BadInput(f"--scheme {args.scheme}: has its own number of bits. Drop it, or --fewest.")
    if args.by_tensor and not args.fewest:
        raise BadInput("--by-tensor: needs --fewest. Name the tensors with --tensors to round some of them.")
    if args.by_tensor and args.tensors is not None:
        raise BadInput("--by-tensor: looks at each tensor alone. Leave --tensors out.")


def _fewest(
    wish: RoundingWish, asked: ChangeAsked, effort: Effort, model: Roundable[M], file: Callable[[M], bytes]
) -> int:
    from verify.changes.quantise import fewest_bits

    every, all_of = list(model.tensors) if wish.by_tensor else [], wish.tensors
    rows = {ALL if all_of is None else ",".join(all_of): all_of} | {name: (name,) for name in every}
    shares = zip(rows.items(), effort.shares(len(rows)), strict=True)
    found = {row: fewest_bits(model, wish.scheme, one, tensors=names) for (row, names), one in shares}
    whole, best = found[next(iter(rows))], found[next(iter(rows))].found
    by_tensor = {row: of.to_dict() for row, of in list(found.items())[1:]}
    record = whole.to_dict() | {"scheme": wish.scheme, "by_tensor": by_tensor}
    _published(asked, record, fewest_lines(found), best, file)
    return whole.verdict.exit_code


def lines(found: Quantised[M]) -> list[str]:
    """The result for people, the verdict last."""
    return [f"{', '.join(found.tensors)} rounded to {found.grid}", str(found.certificate)]


def fewest_lines(found: dict[str, FewestBits[M]]) -> list[str]:
    """The table for people, and the verdict on the fewest bits last."""
    from verify.frame.certificate import Verdict
    from verify.frame.clock import NOT_REACHED
    from verify.report.tables import render

    def cells(row: str, of: FewestBits[M]) -> list[str | None]:
        tried = ", ".join(f"{q.grid.bits} {q.certificate.verdict}" for q in of.tried)
        most = "" if of.verdict is Verdict.PROVED else "at most "
        return [row, None if of.found is None else f"{most}{of.found.grid.bits}", tried or NOT_REACHED]

    said = render(("tensors", "fewest bits", "tried"), [cells(*item) for item in found.items()], "rich").splitlines()
    whole = next(iter(found.values()))
    said += [f"{last.grid}: {last.certificate}" for last in whole.tried[-1:]]
    return [*said, f"UNKNOWN: {undecided(whole)}"] if whole.undecided else said


def undecided(found: FewestBits[M]) -> str:
    """What is known of the fewest bits where some numbers of them are not decided."""
    most = "" if found.found is None else f"at most {found.found.grid.bits} bits; "
    return f"{most}{', '.join(map(str, found.undecided))} bits are not decided"
