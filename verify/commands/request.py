"""Options that commands share, with one meaning: the reading, the method, the effort, and where a result goes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from constructions.errors import BadInput
from verify.commands.vocabulary import option
from verify.frame.certificate import METHODS
from verify.frame.schema import as_json
from verify.report.console import say_written

if TYPE_CHECKING:
    from verify.arithmetic.readings import Reading
    from verify.frame.certificate import Certificate
    from verify.frame.clock import Budget
    from verify.frame.decide import Decidable, Effort
    from verify.frame.over_time import Bracket
    from verify.report.page import LookAt

SAVED = ("weights.safetensors", "certificate.json")
IMPOSSIBLE = "IMPOSSIBLE"
SECONDS = 30.0  # of a search that is told neither seconds nor steps
SHARED = ("precision", "accumulate", "method", "budget", "effort", "seed", "save", "report", "json", "quiet", "verbose")


@dataclass(frozen=True)
class Wanted:
    """The reading, the seconds, the target and how much is printed, as a command line asks for them."""

    precision: str | None
    accumulate: str | None
    budget: float | Budget
    save: str | None
    is_json: bool
    is_quiet: bool

    def check(self, *files: str) -> None:
        """Refuses a target that cannot be written, and seconds that are none, before anything is computed."""
        if self.save is not None:
            from constructions.written_files import check_target, check_target_folder

            if self.is_weights_file:
                check_target(self.save)
            else:
                check_target_folder(self.save, (*SAVED, *files))

    @property
    def reading(self) -> Reading:
        from verify.arithmetic.readings import reading_of

        return reading_of(self.precision, self.accumulate)

    @property
    def is_weights_file(self) -> bool:
        return self.save is not None and (self.save == "" or self.save.endswith(".safetensors"))

    def begun(self) -> Self:
        """The same request, whose seconds count from now: what is built or traced next is a part of the search."""
        from verify.frame.clock import Budget

        return replace(self, budget=Budget.of(self.budget).begun())


@dataclass(frozen=True)
class Request(Wanted):
    """The reading, method, effort and output that a command line asks for, whatever its task.

    `whole_numbers` are the tensors that a file of weights stores as whole numbers with scales.
    """

    method: str
    seed: int
    is_verbose: bool = False
    report: str | None = None
    whole_numbers: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: argparse.Namespace) -> Request:
        """Parses the shared options, and refuses a target that cannot be written before anything is computed."""
        check_printed(args)
        quiet, verbose = getattr(args, "quiet", False), getattr(args, "verbose", False)
        wanted = args.precision, args.accumulate, budget_of(args.budget, args.effort), args.save, args.json, quiet
        whole = names_of_whole_numbers(getattr(args, "weights", None))
        request = cls(*wanted, args.method, args.seed, verbose, getattr(args, "report", None), whole)
        check_report(request.report)
        request.check()
        return request

    def effort(self, progress: object = None) -> Effort:
        from verify.frame.decide import Effort, silent

        return Effort(self.budget, self.seed, progress or silent)  # type: ignore[arg-type]


def add_arguments(
    parser: argparse.ArgumentParser, *, methods: tuple[str, ...] = METHODS, without: tuple[str, ...] = ()
) -> None:
    """Adds the options that commands share, from --precision to --verbose, but for those in `without`."""
    for name in SHARED:
        if name not in without:
            option(parser, name, **({"choices": methods, "default": methods[0]} if name == "method" else {}))


def check_printed(args: argparse.Namespace) -> None:
    """Raises: BadInput where more than one of --json, --quiet and --verbose is given."""
    given = [f"--{name}" for name in ("json", "quiet", "verbose") if getattr(args, name, False)]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)}: each says how much is printed. Keep one.")


def check_report(path: str | None) -> None:
    """Raises: BadInput for a page that is no .html file, or cannot be written."""
    if path is None:
        return
    from constructions.written_files import check_target

    if not path.endswith(".html"):
        raise BadInput(f"--report {path}: is a page. Name a FILE.html.")
    check_target(path, "report")


def write_table_page(
    path: str | None, title: str, said: Iterable[str], columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Writes a command's table as the page that --report asks for, if it does."""
    if path is None:
        return
    from constructions.written_files import write_whole
    from verify.report.page import table_page

    write_whole(path, table_page(title, said, columns, rows, None), "report")
    say_written(path)


def budget_of(seconds: float | None, effort: int | None) -> float | Budget:
    """The seconds of --budget, SECONDS where None are given, or the steps of --effort, planned with these seconds.

    Raises: BadInput for a time limit that is no number, or negative, and for an effort below 1.
    """
    seconds = SECONDS if seconds is None else seconds
    check_budget(seconds)
    if effort is None:
        return seconds
    from verify.frame.clock import Budget

    return Budget.counting(effort, seconds)


def check_budget(seconds: float) -> None:
    """Raises: BadInput for a time limit that is no number, or negative."""
    if not seconds >= 0:
        raise BadInput(f"--budget {seconds}: must be a number of seconds, zero or more")


def names_of_whole_numbers(path: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """Which tensors a file stores as whole numbers with scales; none where there is no file."""
    if path is None or not os.path.isfile(path):
        return ()
    from constructions.formats.safetensors_files import names_of_whole_numbers

    return names_of_whole_numbers(Path(path))


def naming_whole_numbers(request: Request, certificate: Certificate) -> Certificate:
    """The certificate with how a file's whole numbers are read, where it has some."""
    if not request.whole_numbers:
        return certificate
    from constructions.whole_numbers import READING

    said = f"the file stores {', '.join(request.whole_numbers)} as whole numbers with scales: {READING}"
    return replace(certificate, assumptions=(*certificate.assumptions, said))


def save_weights(request: Request, option: str, weights: bytes) -> None:
    """Writes the weights alone, where `option` asks for a run and nothing is certified.

    Raises: BadInput where a folder is named, as there is no certificate to write into it.
    """
    if request.save is None:
        return
    if not request.is_weights_file:
        raise BadInput(f"--save {request.save}: {option} gives no certificate to save. Name a FILE.safetensors.")
    from constructions.written_files import write_whole

    write_whole(request.save, weights)
    say_written(request.save)


def decided(request: Request, problem: Decidable) -> Certificate:
    """The verdict that is asked for, with a bar that says how far it is."""
    from verify.frame.decide import decide
    from verify.report.progress import progress_bar

    with progress_bar("deciding", quiet=request.is_json) as progress:
        return decide(problem, request.reading, request.method, request.effort(progress))


Fact = tuple[str, str]


def publish(
    request: Request,
    certificate: Certificate,
    weights: bytes | Callable[[], bytes],
    facts: Iterable[Fact] = (),
    report: Callable[[Certificate, list[Fact]], None] | None = None,
    look_at: LookAt | None = None,
    over_time: Sequence[Bracket] = (),
    only_saved: Callable[[], dict[str, object]] = dict,
) -> int:
    """Writes what was asked for, prints the certificate, and returns the exit code.

    `weights` are the bytes of a file, or make them where one is saved. `facts` are the task's own lines; `report`
    prints them with the certificate where the task has words of its own.
    `look_at` runs the input that the page of --report draws, `over_time` is how the accuracy's bracket became narrow.
    `only_saved` gives fields of the saved certificate that are not printed: what `verify check` needs and nobody reads.
    What is saved are the numbers that were judged, and the saved certificate speaks of them; what is printed also says
    how a file's whole numbers with scales were read.
    """
    written: list[str] = []
    if request.save is not None:
        from constructions import written_files

        weights = weights() if callable(weights) else weights
        certificate = certificate.about(weights)
        if request.is_weights_file:
            written_files.write_whole(request.save, weights)
            written = [request.save]
        else:
            text = replace(certificate, extra={**certificate.extra, **only_saved()}).to_json() + "\n"
            written_files.write_whole_folder(request.save, dict(zip(SAVED, (weights, text.encode()), strict=True)))
            written = [str(Path(request.save) / name) for name in SAVED]
    certificate = naming_whole_numbers(request, certificate)
    if request.report is not None:
        from constructions.written_files import write_whole
        from verify.report.page import certificate_page

        facts = list(facts)
        write_whole(request.report, certificate_page(certificate, facts, look_at, over_time), "report")
        written.append(request.report)
    if request.is_json:
        print(certificate.to_json())
        if written:
            say_written(*written)
    elif request.is_quiet:
        print(certificate)
        if written:
            say_written(*written)
    else:
        from verify.report.certificate import further, print_report

        wrote = [("wrote", ", ".join(written))] if written else []
        more = further(certificate) if request.is_verbose else []
        (report or print_report)(certificate, [*facts, *more, *wrote])
    return certificate.verdict.exit_code


def print_unknown(reason: str, is_json: bool) -> int:
    """UNKNOWN for what nobody has built, with its reason."""
    print(as_json({"verdict": "UNKNOWN", "reason": reason}) if is_json else f"UNKNOWN: {reason}")
    return 3


def print_impossible(claim: str, reason: str, *, is_json: bool) -> int:
    """One line for what no weights can do, with the claim that proves it; with --json one object on stdout."""
    import sys

    print(f"impossible ({claim}): {reason}", file=sys.stderr)
    if is_json:
        print(as_json({"verdict": IMPOSSIBLE, "claim": claim, "reason": reason}))
    return 2
