"""`verify reproduce`: trains the models of a document's figure or table again, and decides each of them exactly."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import workers
from verify.commands.options import check_least
from verify.commands.request import check_report
from verify.commands.vocabulary import HOW, group, option, table_options
from verify.frame import registry
from verify.frame.schema import as_json
from verify.report.console import say_written

if TYPE_CHECKING:
    from verify.frame.experiment import DecidedModel, Experiment, GridSize, Result, Trial

PART = "experiments"  # of a task's folder: what it contributes
LIST = "list"
GRIDS = ("laptop", "paper")
SEEDS = {"laptop": 1, "paper": 5}
OUT = "experiments"
ESTIMATED = ("experiment", "reproduces", "models", "about, on one core")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", metavar="ID", nargs="*", help="experiments, such as A-Fig-1; without any they are listed"
    )
    add = group(parser, HOW).add_argument
    add("--grid", choices=GRIDS, default=GRIDS[0], help="sizes for a laptop (default), or all that the document has")
    add("--seeds", type=int, metavar="N", help="models of each kind (default: 1, or 5 with --grid paper)")
    workers.add_argument(parser)
    option(parser, "out", metavar="DIR", help=f"the folder of checkpoints and tables (default: {OUT})")
    option(parser, "resume", nargs="?", const=True, help="go on in the folder of a run that was cut; it must exist")
    option(parser, "report")
    table_options(parser)
    parser.epilog = (
        "Each model is kept as soon as it is decided, and is not trained again by the same command. Exit codes: 0 "
        "complete, 2 bad usage or input."
    )


@dataclass(frozen=True)
class Reproduction:
    """What a command line asks for."""

    experiments: tuple[Experiment, ...]
    grid: GridSize
    seeds: int
    out: str
    helpers: workers.Workers
    form: str
    report: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Reproduction:
        """Raises: BadInput for an experiment that is not known, or a folder that is not there."""
        from verify.frame.experiment import GridSize

        check_least(args, 1, "seeds")
        check_report(args.report)
        known = {name: experiment for experiment in every() for name in (experiment.id, *experiment.also)}
        for name in args.ids:
            if name not in known and name.lower() != LIST:
                raise BadInput(f"{name}: no experiment has this name. Name some of {', '.join(known)}.")
        chosen = {known[name].id: known[name] for name in args.ids if name in known}
        if args.report is not None and len(chosen) != 1:
            raise BadInput(f"--report {args.report}: is the page of one experiment; {len(chosen)} are named.")
        seeds = args.seeds or SEEDS[args.grid]
        return cls(
            tuple(chosen.values()),
            GridSize(args.grid),
            seeds,
            _folder(args.out, args.resume),
            workers.Workers.of(args),
            args.format,
            args.report,
        )

    def trials(self, experiment: Experiment) -> Sequence[Trial]:
        return experiment.trials(self.grid, self.seeds)

    def seconds(self, experiment: Experiment, trials: int) -> float:
        """What so many trials take on one core of the machine on which the experiment was timed."""
        return experiment.seconds[self.grid] * trials


def _folder(out: str | None, resume: str | bool | None) -> str:
    """Where results go: the folder that --resume names, which must be there, or --out."""
    if isinstance(resume, str) and out is not None:
        raise BadInput(f"--resume {resume}: --out {out} names a folder, too. Drop one of the two.")
    folder = resume if isinstance(resume, str) else out or OUT
    if resume is not None and not Path(folder).is_dir():
        raise BadInput(f"--resume {folder}: there is no such folder. Leave --resume out to begin.")
    return folder


def every() -> list[Experiment]:
    """The experiments of all tasks, by document."""
    found = [experiment for part in registry.parts(PART) for experiment in part.experiments()]
    return sorted(found, key=lambda experiment: experiment.id)


def run(args: argparse.Namespace) -> int:
    asked = Reproduction.of(args)
    if not asked.experiments:
        sys.stdout.write(_listed(asked))
        return 0
    found = [(experiment, reproduced(asked, experiment)) for experiment in asked.experiments]
    if asked.report is not None:
        _write_page(asked.report, *found[0], asked.grid)
    if asked.form == "json":
        print(as_json({"grid": asked.grid.value, "experiments": [_record(*pair) for pair in found]}))
        return 0
    for experiment, results in found:
        sys.stdout.write(_said(asked, experiment, results))
    return 0


def reproduced(asked: Reproduction, experiment: Experiment) -> list[Result]:
    """The result of every trial, kept or new, in the order of the trials; tables and figure are written."""
    from verify.commands.kept_results import folder_of, keep, kept
    from verify.report.progress import progress_bar

    place, trials = folder_of(asked.out, f"{experiment.id}-{asked.grid}"), asked.trials(experiment)
    found = {trial.name: result for trial in trials if (result := kept(place, trial)) is not None}
    left = [trial for trial in trials if trial.name not in found]
    _say_before(asked, experiment, len(left), len(found))
    is_watched = sys.stderr.isatty()  # a bar there, and lines where they are kept
    try:
        with progress_bar(experiment.id, quiet=not is_watched) as progress:
            for trial, trained in workers.results(trial_run, left, asked.helpers, says_left=not is_watched):
                keep(place, trial, trained)
                found[trial.name] = trained.result
                progress(len(found) / len(trials), f"{experiment.id}, {len(found)} of {len(trials)}")
    except KeyboardInterrupt:
        said = f"{len(found)} of {len(trials)} models kept in {place}; the same command goes on"
        raise KeyboardInterrupt(said) from None
    results = [found[trial.name] for trial in trials]
    _write_tables(place, experiment, results)
    return results


def trial_run(trial: Trial) -> DecidedModel:
    """Trains and decides one model in one thread, so that its numbers do not depend on how many work."""
    from constructions.threads import one_thread

    with one_thread():
        started = time.process_time()
        return replace(trial.run(), seconds=time.process_time() - started)


def _say_before(asked: Reproduction, experiment: Experiment, left: int, kept: int) -> None:
    from verify.frame.decide import readable_time

    if left:
        about = readable_time(asked.seconds(experiment, left) / asked.helpers.number)
        print(f"{experiment.id}: {left} models to train, {kept} kept; about {about}", file=sys.stderr, flush=True)


def _write_tables(place: Path, experiment: Experiment, results: Sequence[Result]) -> None:
    from constructions.written_files import write_whole
    from verify.report.experiment_table import columns, rows
    from verify.report.tables import render

    files = {"table.json": as_json(_record(experiment, results)) + "\n"}
    for ending, form in (("md", "markdown"), ("csv", "csv")):
        files[f"table.{ending}"] = render(columns(experiment, results), rows(experiment, results), form)
        if experiment.summary is not None:
            of = experiment.summary(results)
            files[f"summary.{ending}"] = render(of.columns, of.rows, form)
    for name, text in files.items():
        write_whole(place / name, text.encode(), "out")
    written = list(files)
    if (drawn := _drawn(experiment, results)) is not None:
        write_whole(place / "figure.svg", drawn, "out")
        written.append("figure.svg")
    say_written(f"{', '.join(written)} in {place}")


def _write_page(path: str, experiment: Experiment, results: Sequence[Result], grid: GridSize) -> None:
    from constructions.written_files import write_whole
    from verify.report.experiment_table import columns, news, rows
    from verify.report.page import table_page

    said = [f"Reproduces {experiment.source}. Printed: {experiment.printed}", f"Trained by {experiment.recipes[grid]}."]
    said += [f"Shares are in per cent. Sampled: {experiment.sampling}.", *news(experiment, results)]
    title = f"{experiment.id}: {experiment.question}"
    page = table_page(title, said, columns(experiment, results), rows(experiment, results), _drawn(experiment, results))
    write_whole(path, page, "report")
    say_written(path)


def _drawn(experiment: Experiment, results: Sequence[Result]) -> bytes | None:
    """The figure, None without matplotlib."""
    if experiment.draw is None:
        return None
    try:
        figure = experiment.draw(results)
    except BadInput as missing:
        print(f"{experiment.id}: no figure is drawn: {missing}", file=sys.stderr)
        return None
    from verify.report.style import rendered

    return rendered(figure, "svg")


def _record(experiment: Experiment, results: Sequence[Result]) -> dict[str, object]:
    from verify.report.experiment_table import news

    return {
        "experiment": experiment.id,
        "source": experiment.source,
        "question": experiment.question,
        "printed": experiment.printed,
        "sampling": experiment.sampling,
        "laws": dict(experiment.laws),
        "results": [result.to_dict() for result in results],
        "news": news(experiment, results),
    }


def _said(asked: Reproduction, experiment: Experiment, results: Sequence[Result]) -> str:
    from verify.report.experiment_table import columns, news, rows
    from verify.report.tables import render

    table = render(columns(experiment, results), rows(experiment, results), asked.form)
    if asked.form != "rich":
        return table
    said = [
        f"{experiment.id}: {experiment.question}",
        f"trained by {experiment.recipes[asked.grid]}",
        table.rstrip("\n"),
    ]
    if experiment.summary is not None:
        of = experiment.summary(results)
        said.append(render(of.columns, of.rows, asked.form).rstrip("\n"))
    said += [f"printed: {experiment.printed}", "What sampling did not see:", *news(experiment, results)]
    return "\n".join(said) + "\n"


def _listed(asked: Reproduction) -> str:
    from verify.frame.decide import readable_time
    from verify.report.tables import render

    lines = []
    for experiment in every():
        trials = len(asked.trials(experiment))
        time = readable_time(asked.seconds(experiment, trials))
        lines.append([experiment.id, experiment.source, trials, time])
    return render(ESTIMATED, lines, asked.form)
