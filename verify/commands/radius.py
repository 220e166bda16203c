"""`verify radius`: how far the stored numbers of a model may move, from both sides."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import changed
from verify.commands.changed import ChangeAsked
from verify.report.progress import progress_bar

if TYPE_CHECKING:
    from verify.changes.changeable import Changeable
    from verify.changes.radius import Radius

RECORD = "radius.json"
COLUMNS = ("tensors", "at least", "at most", "gap")
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    changed.add_arguments(parser, precision=False)
    add = parser.add_argument
    add("--tensors", metavar="A,B", help="only these tensors move, by their names with commas between (default: all)")
    add("--by-tensor", action="store_true", help="also a row for each tensor alone; the rows share the budget")
    add("--absolute", action="store_true", help="distance |w' - w|; by default it is relative, and a 0 stays 0")
    parser.epilog = (
        "Exit codes: 0 both bounds are shown, 1 the model itself is REFUTED, 2 bad usage or input, 3 UNKNOWN. --save "
        f"writes the wrong model, its certificate and {RECORD}."
    )


def run(args: argparse.Namespace) -> int:
    from verify.changes.radius import ModelWithVerdict, Radius

    asked = ChangeAsked.of(args, RECORD)
    changeable = asked.changeable()
    rows = _rows(changeable, changed.tensors_in(args.tensors), args.by_tensor)
    found, model = dict[str, Radius](), None
    with progress_bar("bounding", quiet=asked.is_json) as progress:
        for (row, tensors), effort in zip(rows.items(), asked.effort(progress).shares(len(rows)), strict=True):
            deadline = effort.deadline()
            model = model or ModelWithVerdict.of(changeable, effort)
            found[row] = model.radius(tensors, not args.absolute, effort, deadline)
    whole = next(iter(found.values()))
    weights = None if whole.wrong is None else changeable.file(whole.wrong)
    record = whole.to_dict() | {"by_tensor": {row: of.to_dict() for row, of in list(found.items())[1:]}}
    asked.published(record, lines(found), weights, whole.certificate)
    return whole.verdict.exit_code


def _rows(changeable: Changeable, names: tuple[str, ...] | None, is_by_tensor: bool) -> dict[str, tuple[str, ...]]:
    """The tensors that move in each row of the table by its name, the asked ones first."""
    every = changeable.chosen(None)
    if is_by_tensor and names is not None:
        raise BadInput("--by-tensor: looks at each tensor alone. Leave --tensors out.")
    rows = {ALL if names is None else ",".join(names): changeable.chosen(names)}
    return rows | ({name: (name,) for name in every} if is_by_tensor else {})


def lines(found: dict[str, Radius]) -> list[str]:
    """The result for people, the verdict on all last."""
    from verify.arithmetic.outward import above, below
    from verify.report.tables import render

    def cells(row: str, of: Radius) -> list[str | None]:
        low, high, gap = of.at_least, of.at_most, of.gap
        return [row, below(low) if low else None, above(high) if high else None, above(gap, 4) if gap else None]

    (name, whole), *_ = found.items()
    said = render(COLUMNS, [cells(row, of) for row, of in found.items()], "rich").splitlines()
    if whole.verdict.value != "PROVED":
        return [*said, f"{whole.verdict}: {whole.reason}"] + ([] if whole.at_least else [str(whole.certificate)])
    distance = "|w' - w| <= r |w|" if whole.is_relative else "|w' - w| <= r"
    return [
        *said,
        f"at r = {above(whole.at_most or 0)}: {whole.certificate}",
        f"PROVED for every model with {distance} in each stored number w of {name}, r = {below(whole.at_least or 0)}",
    ]
