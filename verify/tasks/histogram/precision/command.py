"""`verify precision`: how many bits a histogram model needs, for one model, all of them, or over d."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from constructions.errors import BadInput, NotKnown
from verify.commands import request, workers
from verify.commands.ranges import integers
from verify.commands.resumed import KeptResults
from verify.commands.vocabulary import JUDGED, MODEL, group, option, options, renamed, table_options
from verify.frame.certificate import Verdict, rounded_margin
from verify.frame.clock import NOT_REACHED
from verify.report.console import say_written
from verify.report.tables import render
from verify.tasks.histogram import catalogue
from verify.tasks.histogram.catalogue import CONSTRUCTIONS, MODELS

if TYPE_CHECKING:
    from verify.arithmetic.formats import Format
    from verify.frame.certificate import Certificate
    from verify.frame.clock import Deadline
    from verify.frame.decide import Effort
    from verify.report.progress import Advance
    from verify.tasks.histogram.precision.search import Construction


STEPS, SECONDS = 16, 10.0  # of a search that is told neither; the seconds plan its shares
RENAMED = renamed(figure="out")
COLUMNS = ("precision", "verdict", "margin", "input that fails", "how it fails")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task", choices=("histogram",), help="the task")
    add = group(parser, MODEL).add_argument
    add("--model", choices=MODELS, metavar="M", help=f"one of {', '.join(MODELS)}")
    option(parser, "T", required=True)
    option(parser, "L", required=True)
    options(parser, "d", "p")
    known = sorted({construction for _, construction in CONSTRUCTIONS})
    add("--construction", choices=known, metavar="HOW", help=f"how it counts: {', '.join(known)}")
    add = group(parser, JUDGED).add_argument
    add("--table", action="store_true", help="all constructions, each at its own d, by all named formats")
    add("--sweep", metavar="d=FIRST:LAST", help="one model over d and bits")
    add("--bits", type=integers, help="of --sweep (default: 2:24)")
    option(parser, "accumulate", help="sum matrix products in float32 (default: in the format)")
    option(parser, "budget", default=None, help="time limit of all searches together, instead of --effort")
    option(parser, "effort", help=f"end each search after N steps, the same on every machine (default: {STEPS})")
    workers.add_argument(parser)
    option(parser, "resume")
    option(parser, "out", help="also draw --sweep to a .svg or .png file (needs matplotlib)")
    option(parser, "report")
    table_options(parser)


@dataclass(frozen=True)
class PrecisionWish:
    """The models that a command line asks about, one of them or with `model` None all, and how each is judged."""

    model: str | None
    T: int
    L: int
    d: int | None
    p: int | None
    construction: str | None
    accumulate: Format | None
    budget: float | None
    steps: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> PrecisionWish:
        """Raises: BadInput for a missing model, for what --table has no use for, and for sizes that no model has."""
        from constructions.histogram_sizes import check_memory, check_sizes
        from verify.arithmetic.formats import FORMATS

        if args.budget is not None and args.effort is not None:
            raise BadInput(
                f"--budget {args.budget:g} with --effort {args.effort}: each ends a search. Leave one of them out."
            )
        steps = STEPS if args.effort is None else args.effort
        request.check_budget(SECONDS if args.budget is None else args.budget)
        request.budget_of(SECONDS, steps)
        if args.table:
            for name in ("model", "d", "p", "construction", "sweep", "out"):
                value = getattr(args, name)
                if value is not None:
                    raise BadInput(f"{name}={value}: --table shows every construction. Leave --{name} out.")
            check_sizes("lin", T=args.T, L=args.L, d=1, p=1)
            check_memory(args.T**2 + args.L**2)
        elif args.model is None:
            raise BadInput("model: missing. Add --model, or ask for --table.")
        else:
            d, p = (1 if size is None else size for size in (args.d, args.p))
            check_sizes(args.model, T=args.T, L=args.L, d=d, p=p)
        accumulate = None if args.accumulate is None else FORMATS[args.accumulate]
        return cls(args.model, args.T, args.L, args.d, args.p, args.construction, accumulate, args.budget, steps)

    def effort(self) -> Effort:
        """The seconds of all searches together, or the steps of each."""
        from verify.frame.decide import Effort

        if self.budget is None:
            return Effort(request.budget_of(SECONDS, self.steps))
        import torch  # noqa: F401 (refutations and codes need it: loaded before the clock is started)

        return Effort(self.budget)

    def if_final(self, verdicts: list[str | None]) -> list[str | None] | None:
        """A row's verdicts, None where more seconds could change one."""
        open_ones = {NOT_REACHED} if self.budget is None else {NOT_REACHED, Verdict.UNKNOWN.value}
        return None if open_ones & {*verdicts} else verdicts

    def chosen(self, d: int | None) -> Construction:
        """The construction of the one model that is asked about, with embeddings of size d."""
        from verify.tasks.histogram.precision.search import Construction

        assert self.model is not None
        sizes = catalogue.SizesAsked(self.model, self.T, self.L, d, self.p)
        return Construction(self.model, catalogue.chosen(sizes, self.construction), self.T, self.L, d, self.p)

    def judge(self, construction: Construction, fmt: Format, effort: Effort, until: Deadline) -> Certificate:
        """Builds a construction and decides it in a format.

        Raises: TimeIsUp where it is over before there are weights.
        """
        from verify.tasks.histogram.precision.search import judge

        return judge(construction, fmt, self.accumulate, effort.limit, until)


@dataclass(frozen=True)
class PrecisionRow(workers.TimedJob):
    """One row of a table: a construction, or the one at this d, in several formats that share its seconds."""

    wish: PrecisionWish
    construction: Construction | int
    formats: tuple[Format, ...]

    def run(self) -> list[str | None]:
        """The verdict in each format, None where the construction does not exist at these sizes."""
        from verify.frame.decide import Effort

        effort = self.wish.effort() if self.seconds is None else Effort(self.seconds)
        until, cells = effort.end(), zip(self.formats, effort.shares(len(self.formats)), strict=True)
        return [self._verdict(fmt, of, until) for fmt, of in cells]

    def _verdict(self, fmt: Format, effort: Effort, until: Deadline) -> str | None:
        from verify.frame.clock import TimeIsUp

        is_swept = isinstance(self.construction, int)
        try:
            made = self.wish.chosen(self.construction) if isinstance(self.construction, int) else self.construction
            return self.wish.judge(made, fmt, effort, until).verdict.value
        except TimeIsUp:
            return NOT_REACHED
        except NotKnown:
            return None
        except BadInput:
            if is_swept:
                raise
            return None


def _verdicts(
    rows: list[PrecisionRow], helpers: workers.Workers, folder: str | None, progress: Advance
) -> Iterator[list[str | None]]:
    """The verdicts of every row."""
    kept = KeptResults.of(folder, lambda row: repr(replace(row, seconds=None)), rows[0].wish.if_final, _verdicts_read)
    found: dict[Construction | int, list[str | None]] = {}
    progress(0.0)
    for row, verdicts in workers.results_within(rows[0].wish.effort(), PrecisionRow.run, rows, helpers, kept):
        found[row.construction] = verdicts
        progress(len(found) / len(rows))
    return (found.get(row.construction, [NOT_REACHED] * len(row.formats)) for row in rows)


def _verdicts_read(row: PrecisionRow, said: object) -> list[str | None]:
    """Raises: ValueError where they are not as many as the row's formats."""
    if not isinstance(said, list) or len(said) != len(row.formats):
        raise ValueError("not a verdict for each format")
    return said


@dataclass(frozen=True)
class Sweep:
    """Embedding sizes and significand bits to try, and the file that the phase diagram is drawn to."""

    dimensions: list[int]
    bits: list[int]
    figure: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Sweep | None:
        """None where --sweep is not given.

        Raises: BadInput for options that go with --sweep alone, and for what --sweep does not read.
        """
        if args.sweep is None:
            if args.out is not None:
                raise BadInput(f"--out {args.out}: draws --sweep. Add --sweep d=FIRST:LAST.")
            if args.bits is not None:
                raise BadInput("bits: are those of --sweep. Add --sweep d=FIRST:LAST, or leave --bits out.")
            return None
        if args.out is not None:
            _check_figure(args.out)
        if args.d is not None:
            raise BadInput(f"d={args.d}: --sweep gives d. Leave --d out.")
        for bits in args.bits or ():
            if not 2 <= bits <= 53:
                raise BadInput(f"bits={bits}: must be between 2 and 53, the hidden bit counted")
        return cls(_dimensions(args.sweep), sorted(set(args.bits or range(2, 25))), args.out)


def _check_figure(path: str) -> None:
    """Raises: BadInput for a file that cannot be drawn to."""
    from constructions.written_files import check_target
    from verify.report.style import format_of, style

    check_target(path, "out")
    format_of(path, "out")
    style()


def _dimensions(text: str) -> list[int]:
    """The embedding sizes that d=FIRST:LAST names."""
    name, _, values = text.partition("=")
    if name != "d" or not values:
        raise BadInput(f"sweep={text!r}: must be d=FIRST:LAST, d=4,8 or d=3:33:2")
    try:
        return sorted(set(integers(values)))
    except argparse.ArgumentTypeError as error:
        raise BadInput(f"sweep={text!r}: {error}") from None


def run(args: argparse.Namespace) -> int:
    wish, sweep, form, helpers = PrecisionWish.of(args), Sweep.of(args), args.format, workers.Workers.of(args)
    if wish.model is not None and sweep is None and helpers != workers.Workers():
        raise BadInput("workers: one model is decided by one process. Add --table or --sweep, or leave it out.")
    if wish.model is not None and sweep is None and args.resume is not None:
        raise BadInput("--resume: keeps the cells of a table. Add --table or --sweep, or leave it out.")
    request.check_report(args.report)
    from verify.report.progress import progress_bar

    with progress_bar("deciding", quiet=form == "json") as progress:
        if wish.model is None:
            found = _table(wish, helpers, args.resume, progress)
        elif sweep is not None:
            found = _swept(wish, sweep, helpers, args.resume, progress)
        else:
            found = _frontier(wish, progress)
    sums = "" if wish.accumulate is None else f", matrix products summed in {args.accumulate}"
    said = f"Every operation is rounded to the format, in any order{sums}; p17 is a float of 17 significant bits."
    title = f"histogram: precisions of {wish.model or 'all constructions'}, T = {wish.T}, L = {wish.L}"
    request.write_table_page(args.report, title, [said], found.columns, found.rows)
    exit_code = found.exit_code
    if form == "rich":
        found = found.in_letters()
    sys.stdout.write(render(found.columns, found.rows, form))
    return exit_code


Cell = str | int | float | None


class Verdicts(NamedTuple):
    """A table; from column `first` on there are verdicts, and `what` names these columns in a line."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    first: int | None = None
    what: str = ""

    @property
    def exit_code(self) -> int:
        """That of an open verdict where one is open, or was not reached."""
        is_open = self._says(Verdict.UNKNOWN.value) or self._says(NOT_REACHED)
        return Verdict.UNKNOWN.exit_code if is_open else 0

    def _says(self, word: str) -> bool:
        return any(word in row for row in self.rows)

    def in_letters(self) -> Verdicts:
        """A letter a verdict, so that a terminal holds all of them."""
        if self.first is None:
            return self
        cut = f", {NOT_REACHED[0]} {NOT_REACHED}" if self._says(NOT_REACHED) else ""
        title = f"{self.what}: P proved, R refuted, U unknown, - no weights known{cut}"
        letters = ["".join("-" if cell is None else str(cell)[0] for cell in row[self.first :]) for row in self.rows]
        rows = [[*row[: self.first], line] for row, line in zip(self.rows, letters, strict=True)]
        return Verdicts((*self.columns[: self.first], title), rows)


def _frontier(wish: PrecisionWish, progress: Advance) -> Verdicts:
    """The named formats, then every number of bits that was tried, most first, and the one that was not reached."""
    from verify.arithmetic.formats import FORMATS
    from verify.frame.clock import TimeIsUp
    from verify.tasks.histogram.precision.search import MOST_SEARCHES, frontier

    construction, effort = wish.chosen(wish.d), wish.effort()
    until, efforts = effort.end(), effort.shares(len(FORMATS) + MOST_SEARCHES)
    rows, unreached = [], [NOT_REACHED, None, None, f"the {effort.limit} ended before"]
    for i, (name, fmt) in enumerate(FORMATS.items()):
        progress(i / (len(FORMATS) + 5))
        try:
            rows.append([name, *_outcome(wish.judge(construction, fmt, next(efforts), until))])
        except TimeIsUp:
            rows.append([name, *unreached])
    found = frontier(construction, wish.accumulate, lambda: next(efforts).limit, until)
    less = "the smallest from which on all are enough" if found.is_fewest else "from which on all are enough"
    note = {found.enough: f", {less}", found.too_small: ", the largest too small"}
    for bits in sorted(found.by_bits, reverse=True):
        rows.append([f"p{bits}{note.get(bits, '')}", *_outcome(found.by_bits[bits])])
    return Verdicts(COLUMNS, rows if found.next_bits is None else [*rows, [f"p{found.next_bits}", *unreached]])


def _outcome(certificate: Certificate) -> list[Cell]:
    found = certificate.counterexample
    margin = rounded_margin(certificate)
    if found is None:
        return [certificate.verdict.value, margin, None, certificate.reason]
    tokens = " ".join(map(str, found["tokens"]))
    at = f"{tokens} at position {found['position']}"
    predicted = "NaN" if found["predicted"] is None else found["predicted"]
    how = f"{predicted} for {found['expected']} in {found['fails_in']}: {found['order']}"
    return [certificate.verdict.value, margin, at, how]


def _table(wish: PrecisionWish, helpers: workers.Workers, folder: str | None, progress: Advance) -> Verdicts:
    """A line for every construction, with its verdict in every named format."""
    from verify.arithmetic.formats import FORMATS
    from verify.tasks.histogram.precision.search import constructions

    todo, formats = list(constructions(wish.T, wish.L)), tuple(FORMATS.values())
    found = _verdicts([PrecisionRow(None, wish, made, formats) for made in todo], helpers, folder, progress)
    rows: list[list[Cell]] = [
        [made.model, made.construction, made.d, *verdicts] for made, verdicts in zip(todo, found, strict=True)
    ]
    return Verdicts(("model", "construction", "d", *FORMATS), rows, 3, " ".join(FORMATS))


def _swept(
    wish: PrecisionWish, sweep: Sweep, helpers: workers.Workers, folder: str | None, progress: Advance
) -> Verdicts:
    """A line for every d, with the verdict at every number of bits; also drawn where a file is named."""
    from verify.arithmetic.formats import format_of_bits

    bits, formats = sweep.bits, tuple(format_of_bits(p) for p in sweep.bits)
    found = list(_verdicts([PrecisionRow(None, wish, d, formats) for d in sweep.dimensions], helpers, folder, progress))
    rows: list[list[Cell]] = [[d, *verdicts] for d, verdicts in zip(sweep.dimensions, found, strict=True)]
    if sweep.figure is not None:
        _draw(f"{wish.model}, T = {wish.T}, L = {wish.L}: every operation rounded, any order", sweep, found)
        say_written(sweep.figure)
    is_range = len(bits) == bits[-1] - bits[0] + 1 > 2
    what = f"{bits[0]} to {bits[-1]}" if is_range else ", ".join(map(str, bits))
    return Verdicts(("d", *(f"p{p}" for p in bits)), rows, 1, f"bits {what}")


def _draw(title: str, sweep: Sweep, verdicts: list[list[str | None]]) -> None:
    """The phase diagram: d across, bits upwards."""
    from verify.report.style import save
    from verify.tasks.histogram.precision.drawing import precision

    assert sweep.figure is not None
    save(precision(title, sweep.dimensions, sweep.bits, verdicts), sweep.figure, "figure")
