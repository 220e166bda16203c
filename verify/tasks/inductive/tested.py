"""A trained decoder at document C's two lengths: which share of its inputs is right, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constructions.decoder import Decoder
from verify.arithmetic.readings import Real
from verify.counting.tasks import FIRST, STARTED, Line, Tokens
from verify.frame.certificate import Verdict
from verify.frame.decide import Item
from verify.tasks.inductive import engine_runs
from verify.tasks.inductive.document_c import FIRST_TOKEN, as_drawn
from verify.tasks.inductive.share import InputRange, Share
from verify.tasks.inductive.task import Counting
from verify.tasks.inductive.trained import Course


def parts(model: Decoder, course: Course) -> dict[str, InputRange]:
    """The lengths that are trained and those beyond, at every shift and as they are drawn; the first token's answer
    alone where a task is about it."""
    of = dict(zip(course.ranges.items(), (course.trained, course.tested), strict=True))
    if course.task.name in FIRST:
        of[FIRST_TOKEN, range(1, 2)] = course.trained
    tokens = int(course.task.name in STARTED)
    of_full = {as_drawn(name): InputRange(part, course.room(model, end + tokens)) for (name, part), end in of.items()}
    return {name: InputRange(part) for name, part in of} | of_full


def taught(model: Decoder, course: Course) -> Counting:
    """Counting whose shares are of lines of the token that a course teaches to count, at its lengths."""

    def is_counted(line: Line) -> bool:
        return line.tokens[-1] == course.main  # no helper and no number words

    return Counting(model, course.task, course.tested, shared=lambda: Share(parts(model, course), is_counted))


def number_of_inputs(problem: Counting, part: InputRange) -> int:
    """How many inputs of a part a share is of: every line and shift.

    >>> from verify.counting.tasks import Task
    >>> model = Decoder(vocabulary=1, d=2, classes=10, positions=5, pe="ape")
    >>> problem = taught(model, Course(Task.of("modular"), 2, 4, 5))
    >>> number_of_inputs(problem, InputRange(range(3, 5))), number_of_inputs(problem, InputRange(range(3, 5), end=2))
    (5, 4)
    """
    found, is_counted, of = 0, problem.share().is_counted, part.lengths
    for shift in part.within(problem.runs.shifts):
        lengths = (len(each.tokens) - each.leading for each in problem.runs.lines(shift) if is_counted(each))
        found += sum(len(range(of.start, min(of.stop, length + 1))) for length in lengths)
    return found


@dataclass(frozen=True)
class EveryString:
    """What is known of the answers at each place, over all strings and shifts, and the first one that is wrong."""

    right: list[int]
    wrong: list[int]
    total: list[int]
    counterexample: dict[str, object] | None

    @property
    def verdict(self) -> Verdict:
        if self.counterexample is not None:
            return Verdict.REFUTED
        return Verdict.PROVED if self.right == self.total else Verdict.UNKNOWN


def every_string(model: Decoder, course: Course) -> EveryString:
    """Runs every string of the length of the test at every shift at which it fits, in balls.

    A decoder is causal, so that each answer is that of all strings that begin alike; the counterexample is the shortest
    beginning, at its least shift. It is the smallest one where nothing is left open.
    """
    problem, N = Counting(model, course.task, course.tested), course.tested
    strings = list(course.task.strings(N))
    right, wrong, total = ([0] * N for _ in range(3))
    first: tuple[int, int, Tokens] | None = None  # length, shift, string
    room = N if problem.room is None else problem.room - model.has_bos
    for shift in range(room - N + 1):
        low, high = engine_runs.of_strings(problem.runs, strings, shift, Real())
        is_judged, is_wrong = np.isfinite(low) | np.isnan(low), high <= 0
        for counts, known in ((right, is_judged & (low > 0)), (wrong, is_wrong), (total, is_judged)):
            counts[:] = [a + b for a, b in zip(counts, known.sum(0).tolist(), strict=True)]
        for row, place in np.argwhere(is_wrong).tolist():
            case = place + 1, shift, strings[row][: place + 1]
            first = case if first is None else min(first, case)
    if first is None:
        return EveryString(right, wrong, total, None)
    length, shift, string = first
    item: Item = (shift, *string)
    return EveryString(right, wrong, total, problem.replay(item, length - 1, Real()).counterexample)
