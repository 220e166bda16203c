"""`verify frontier`: the smallest embedding size that is proved for a model, by search and proof."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from constructions.errors import BadInput
from verify.commands import workers
from verify.commands.ranges import integers
from verify.commands.request import check_budget, check_report, write_table_page
from verify.commands.vocabulary import HOW, MODEL, group, option, table_options
from verify.frame.certificate import Verdict, rounded_margin
from verify.frame.clock import NOT_REACHED
from verify.report.console import say_written
from verify.report.tables import render
from verify.tasks.histogram.catalogue import MODELS

COLUMNS = ("model", "T", "L", "p", "d", "margin", "lower bound on d", "of what", "tried")
ROWS = "frontier.json"  # in the folder of --save: what was searched, so that the next run goes on from there

TableRow = dict[str, Any]
Key = tuple[int, int, str]  # T, L, model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", choices=("histogram",), help="the task")
    add = group(parser, MODEL).add_argument
    add("--model", choices=(*MODELS, "all"), default="all", help="one model, or all six (default)")
    option(parser, "T", type=integers, required=True, help="alphabet size: 32, 16,32 or 8:64:8")
    option(parser, "L", type=integers, required=True, help="sequence length: 10, 5,10 or 5:30:5")
    option(parser, "seed", help="of the search (default: 0)")
    option(parser, "budget", default=None, help="time limit of all searches together (default: none)")
    group(parser, HOW).add_argument("--steps", type=int, default=3000, help="steps of each search (default: 3000)")
    workers.add_argument(parser)
    option(parser, "save", help="write weights and certificate of every hit; what is there is not searched again")
    option(parser, "report")
    table_options(parser)


@dataclass(frozen=True)
class FrontierSearch(workers.TimedJob):
    """The models of one size that share a searched code, and how it is searched."""

    T: int
    L: int
    models: tuple[str, ...]
    seed: int
    steps: int

    def run(self) -> list[tuple[TableRow, dict[str, bytes]]]:
        """A line of the table for each model of which some d was proved in time, and its files by name."""
        from constructions import checkpoint
        from verify.frame.clock import TimeIsUp
        from verify.frame.decide import Effort
        from verify.tasks.histogram.frontier.search import smallest_d

        found: list[tuple[TableRow, dict[str, bytes]]] = []
        until = None if self.seconds is None else Effort(self.seconds).end()
        for model in self.models:
            left = None if until is None else max(0.0, until.left())
            try:
                hit = smallest_d(model, self.T, self.L, seed=self.seed, steps=self.steps, report=_say, budget=left)
            except TimeIsUp:
                continue
            tried = ", ".join(f"{d}: {outcome}" for d, outcome in sorted(hit.tried.items()))
            size, bound = (model, hit.T, hit.L, hit.p, hit.d), (hit.lower_bound, hit.lower_bound_scope)
            row = dict(zip(COLUMNS, (*size, rounded_margin(hit.certificate), *bound, tried or None), strict=True))
            weights = checkpoint.as_bytes(hit.module, claim=None, construction="code")
            certificate = hit.certificate.about(weights).to_json() + "\n"
            name = _name(row)
            found.append((row, {f"{name}.safetensors": weights, f"{name}.json": certificate.encode()}))
        return found


def run(args: argparse.Namespace) -> int:
    if args.steps < 1:
        raise BadInput(f"steps={args.steps}: must be at least 1")
    if args.budget is not None:
        check_budget(args.budget)
    check_report(args.report)
    helpers = workers.Workers.of(args)
    from constructions.histogram_sizes import check_memory, check_sizes
    from constructions.written_files import made_folder, write_whole

    models = MODELS if args.model == "all" else (args.model,)
    for T, L in product(args.T, args.L):  # before any hit is written
        check_sizes("lin", T=T, L=L, d=1, p=1)
        check_memory(T * (T + L) + L * L)
    wanted = list(product(args.T, args.L, models))
    folder = None if args.save is None else made_folder(args.save)
    rows = {} if folder is None else _kept(folder, args.seed, args.steps, set(wanted))
    written: set[str] = set()
    try:
        searches = _searches([key for key in wanted if key not in rows], args.seed, args.steps, helpers)
        for _, found in _run(searches, args.budget, helpers):
            for row, contents in found:
                rows[row["T"], row["L"], row["model"]] = row
                if folder is None:
                    continue
                searched = {"seed": args.seed, "steps": args.steps, "rows": list(rows.values())}
                contents |= {ROWS: (json.dumps(searched, indent=1) + "\n").encode()}
                for name, data in contents.items():
                    write_whole(folder / name, data)
                written |= set(contents)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{len(written)} files written to {folder}" if written else "") from None
    table = [[rows.get(key, _unreached(key))[column] for column in COLUMNS] for key in wanted]
    sys.stdout.write(render(COLUMNS, table, args.format))
    said = f"Every d was PROVED; smaller ones were tried by {args.steps} steps of search, seed {args.seed}."
    write_table_page(args.report, "histogram: the smallest d that was proved", [said], COLUMNS, table)
    if folder is not None:
        say_written(f"{len(written)} files to {folder}")
    return Verdict.UNKNOWN.exit_code if any(_is_cut(rows.get(key, _unreached(key))) for key in wanted) else 0


def _run(
    searches: list[FrontierSearch], budget: float | None, helpers: workers.Workers
) -> Iterator[tuple[FrontierSearch, list[tuple[TableRow, dict[str, bytes]]]]]:
    """What each search found, of those that began in time."""
    if budget is None:
        return workers.results(FrontierSearch.run, searches, helpers)
    from verify.frame.decide import Effort

    return workers.results_within(Effort(budget), FrontierSearch.run, searches, helpers)


def _unreached(key: Key) -> TableRow:
    """The line of a model of which no d was proved in time."""
    T, L, model = key
    return dict.fromkeys(COLUMNS) | {"model": model, "T": T, "L": L, "tried": NOT_REACHED}


def _is_cut(row: TableRow) -> bool:
    """Whether the time was up before the search of a line ended."""
    return NOT_REACHED in (row["tried"] or "")


def _searches(
    wanted: list[tuple[int, int, str]], seed: int, steps: int, helpers: workers.Workers
) -> list[FrontierSearch]:
    """The searches that are to be made: by one process model by model, by several those of one code together.

    Several begin with the longest ones, so that none is left to a single process at the end.
    """
    from constructions.histogram_sizes import CARRIER

    together: dict[tuple[int, int, str], list[str]] = {}
    for T, L, model in wanted:
        code = CARRIER.get(model, model) if helpers.share_codes else model
        together.setdefault((T, L, code), []).append(model)
    searches = [FrontierSearch(None, T, L, tuple(models), seed, steps) for (T, L, _), models in together.items()]
    return sorted(searches, key=lambda x: -x.T * x.T * x.L) if helpers.share_codes else searches


def _name(row: TableRow) -> str:
    return f"{row['model']}_T{row['T']}_L{row['L']}_d{row['d']}"


def _kept(folder: Path, seed: int, steps: int, wanted: set[Key]) -> dict[Key, TableRow]:
    """Reads the lines of an earlier run of the same search. Wanted ones are proved again from their weights."""
    searched: object = None
    with suppress(OSError, ValueError):
        searched = json.loads((folder / ROWS).read_text(encoding="utf-8"))
    if not isinstance(searched, dict) or (searched.get("seed"), searched.get("steps")) != (seed, steps):
        return {}
    found = {}
    for row in searched.get("rows", []):
        if not isinstance(row, dict) or set(row) != set(COLUMNS):
            continue
        key = (row["T"], row["L"], row["model"])
        if key not in wanted or (not _is_cut(row) and _is_proved(folder, row)):
            found[key] = row
    return found


def _is_proved(folder: Path, row: TableRow) -> bool:
    """Whether the weights of a line are there, have its sizes, and are PROVED once more."""
    from constructions import checkpoint
    from verify.tasks.histogram.proof import certify

    name = _name(row)
    try:
        module = checkpoint.load(str(folder / f"{name}.safetensors"))
    except BadInput:
        return False
    if (module.model, module.T, module.L, module.d, module.p) != tuple(row[x] for x in ("model", "T", "L", "d", "p")):
        return False
    is_proved = certify(module).verdict is Verdict.PROVED and (folder / f"{name}.json").exists()
    if is_proved:
        _say(f"{row['model']} T={row['T']} L={row['L']} d={row['d']}: kept, PROVED again")
    return is_proved


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
