"""`verify repair`: the least change of a readout with which a model is proved, or why no readout is right."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from verify.commands import changed, vocabulary
from verify.commands.changed import ChangeAsked
from verify.report.progress import progress_bar

if TYPE_CHECKING:
    from verify.changes.repair import Repair

RECORD = "repair.json"
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    changed.add_arguments(parser)
    help = "tensors that change besides the readout, by their names with commas between, or all (default: the readout)"
    vocabulary.group(parser, vocabulary.MODEL).add_argument("--layers", metavar="A,B", help=help)
    parser.epilog = (
        "Without --layers only the last linear layer changes. Exit codes: 0 PROVED after the repair, 2 IMPOSSIBLE for "
        "every readout, or "
        f"bad usage or input, 3 UNKNOWN. --save DIR also writes {RECORD}: the change, its bound, or the inputs that "
        "show why there is none."
    )


def run(args: argparse.Namespace) -> int:
    from verify.changes.layers import repair_layers
    from verify.changes.repair import RepairOutcome
    from verify.frame.tracing import load_tracer

    asked = ChangeAsked.of(args, RECORD)
    load_tracer()
    asked = asked.begun()
    changeable = asked.changeable()
    with progress_bar("repairing", quiet=asked.is_json) as progress:
        layers = None if args.layers == ALL else changed.tensors_in(args.layers or None) or ()
        found = repair_layers(changeable, layers, asked.reading, asked.effort(progress))
    weights = None if found.module is None else changeable.file(found.module)
    asked.published(found.to_dict(), lines(found), weights, found.certificate)
    if found.outcome is RepairOutcome.IMPOSSIBLE:
        print(
            f"impossible (this model): no readout is right: {found.reason}. "
            "Change more: --layers NAMES, or --layers all.",
            file=sys.stderr,
        )
    return found.outcome.exit_code


def lines(found: Repair) -> list[str]:
    """The result for people, the verdict last."""
    from verify.arithmetic.outward import above

    which = "questions" if found.is_listed else "questions that were looked at"
    said = [f"{found.wrong} of {found.questions} {which} wrong before, by float64"]
    if found.change is not None and found.delta is not None:
        said.append(
            f"{found.norm}: {above(found.change)} (the largest number is {above(found.largest_number or 0)}); "
            f"{_bound(found)}"
        )
        said.append(
            f"delta {above(found.delta)}: what rounding may take from a margin; "
            f"{found.cuts} cuts in {found.rounds} rounds"
        )
    if found.certificate is not None:
        said += [*([found.reason] if found.reason else []), str(found.certificate)]
        return said
    return [*said, f"{found.outcome}: {found.reason}"]


def _bound(found: Repair) -> str:
    """What is known of every repair."""
    from verify.arithmetic.outward import below

    if found.at_least is None:
        return "found by descent, and no lower bound on such a change is known"
    bound = f"{below(found.at_least)}{_gap(found)}"
    return f"every readout that is right in real arithmetic changes one by at least {bound}"


def _gap(found: Repair) -> str:
    """How far a change is from the bound, where that is more than 1 %."""
    from verify.arithmetic.outward import above
    from verify.changes.repair import CLOSE

    return f" (gap {above(found.gap, 4)})" if found.gap is not None and found.gap > CLOSE else ""
