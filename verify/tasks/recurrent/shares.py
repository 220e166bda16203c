"""How many answers are right at each length, beside what is decided (`--by-length`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.arithmetic.readings import Reading, Real
from verify.counting.lengths import Counts, as_json, counted
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.clock import Deadline
from verify.frame.decide import Finding

if TYPE_CHECKING:
    from verify.module.recurrence import StepGraph


def check(length: int | None, reading: Reading) -> None:
    """Raises: BadInput where lengths have no end, or a format leaves open which evaluation is counted."""
    if length is None or not isinstance(reading, Real):
        raise BadInput("--by-length: networks are followed to a length in real arithmetic; drop --precision")


def of_strings(which: Task, length: int, found: Finding, known: Sequence[Counts]) -> dict[str, object]:
    """The counts of each length: all strings are right up to what is proved, and `known` says it of longer ones."""
    right_to = length if found.verdict is Verdict.PROVED else int(str(found.extra.get("right_to", 0)))
    case = None if found.failure is None else found.failure.counterexample["length"]
    counts = list[Counts]()
    for n in range(1, length + 1):
        total, wrong = which.number_judged(n), int(n == case)
        own = known[n - 1] if n <= len(known) else (0, wrong, total - wrong)
        counts.append((total, 0, 0) if n <= right_to else own)
    return as_json(counts)


def of_a_cell(which: Task, length: int, graph: StepGraph, found: Finding, until: Deadline) -> dict[str, object]:
    """The counts of a captured step, after every token of the only line or on all strings."""
    from verify.module import followed  # loads torch's tracer

    if not which.is_homogeneous:  # over one type, too, answers beyond C are not judged
        return of_strings(which, length, found, followed.counts(graph, length, followed.MOST_STRINGS, until))
    line = (0,) * length
    return as_json(counted(followed.answers(graph, [(line, which.answers(line))], until)))
