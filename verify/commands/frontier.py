"""`verify frontier`: the smallest embedding size that is proved for a model, by search and proof."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput
from verify.certificate import rounded_margin
from verify.commands.ranges import integers
from verify.histogram.catalogue import MODELS
from verify.report.console import say_written
from verify.report.tables import FORMATS, render

if TYPE_CHECKING:
    from verify.histogram.frontier import Frontier

COLUMNS = ("model", "T", "L", "p", "d", "margin", "lower bound on d", "of what", "tried")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task", choices=("histogram",), help="the task")
    add("--model", choices=(*MODELS, "all"), default="all", help="one model, or all six (default)")
    add("--T", type=integers, required=True, help="alphabet size: 32, 16,32 or 8:64:8")
    add("--L", type=integers, required=True, help="sequence length: 10, 5,10 or 5:30:5")
    add("--seed", type=int, default=0, help="of the search (default: 0)")
    add("--steps", type=int, default=3000, help="steps of each search (default: 3000)")
    add("--save", metavar="DIR", help="write weights and certificate of every hit")
    add("--format", choices=FORMATS, default="rich", help="default: rich")


def run(args: argparse.Namespace) -> int:
    if args.steps < 1:
        raise BadInput(f"steps={args.steps}: must be at least 1")
    from constructions import files
    from constructions.histogram import check_memory, check_sizes
    from verify.histogram.frontier import smallest_d

    models = MODELS if args.model == "all" else (args.model,)
    for T, L in product(args.T, args.L):  # before any hit is written
        check_sizes("lin", T=T, L=L, d=1, p=1)
        check_memory(T * (T + L) + L * L)
    folder = _folder(args.save)
    rows, written = [], 0
    try:
        for T, L, model in product(args.T, args.L, models):
            frontier = smallest_d(model, T, L, seed=args.seed, steps=args.steps, report=_say)
            for path, data in saved(frontier, folder):
                files.write_whole(path, data)
                written += 1
            rows.append(as_row(frontier))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{written} files written to {folder}" if written else "") from None
    sys.stdout.write(render(COLUMNS, rows, args.format))
    if folder is not None:
        say_written(f"{written} files to {folder}")
    return 0


def as_row(frontier: Frontier) -> list[Any]:
    """One line of the table."""
    tried = ", ".join(f"{d}: {outcome}" for d, outcome in sorted(frontier.tried.items()))
    return [
        frontier.model,
        frontier.T,
        frontier.L,
        frontier.p,
        frontier.d,
        rounded_margin(frontier.certificate),
        frontier.lower_bound,
        frontier.lower_bound_scope,
        tried or None,
    ]


def saved(frontier: Frontier, folder: Path | None) -> Iterator[tuple[Path, bytes]]:
    """The files NAME.safetensors and NAME.json of a hit; none without a folder."""
    if folder is None:
        return
    from constructions import checkpoint

    name = f"{frontier.model}_T{frontier.T}_L{frontier.L}_d{frontier.d}"
    weights = checkpoint.as_bytes(frontier.module, claim=None, construction="code")
    yield folder / f"{name}.safetensors", weights
    yield folder / f"{name}.json", (frontier.certificate.about(weights).to_json() + "\n").encode()


def _folder(save: str | None) -> Path | None:
    if save is None:
        return None
    folder = Path(save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"save={save!r}: cannot make this folder ({error.strerror}). Name another.") from None
    return folder


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
