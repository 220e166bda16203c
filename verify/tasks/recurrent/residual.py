"""Whole blocks of S4, Mamba and RWKV on a task: their step, captured, is followed along strings of tokens.

What one repeated token leads to is a point, followed in balls of growing precision. Lines that begin with a number word
are followed together, in boxes of float64; where a margin stays open in its box, that line is followed in balls.

In a format all lines and strings are followed in boxes that hold what every order of evaluation computes. Where these
leave a margin open, one evaluation is followed: every result kept exactly, and factors of matrix products rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from constructions.recurrent.residual import ResidualModel, State
from verify.arithmetic.readings import Real, Rounded
from verify.counting.tasks import Task
from verify.frame.clock import Deadline
from verify.frame.decide import Effort, Finding
from verify.module import followed
from verify.module.automaton import Automaton
from verify.module.recurrence import Recurrence, StepGraph
from verify.module.recurrent import RecurrentProblem
from verify.tasks.recurrent.automata import expected
from verify.tasks.recurrent.kinds import is_residual

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

ARGUMENT_LINES = "boxes round the states of all lines, token by token"
NOT_JUDGED = Automaton(None, lambda state, token: None, lambda state: None)  # lines bring their own answers


class OneStep(nn.Module):
    """A model's step as a cell: (state, token) -> (state, logits)."""

    def __init__(self, model: ResidualModel) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, state: State, token: Tensor) -> tuple[State, Tensor]:
        return self.model.step(state, token)


def captured(model: AnyModel, which: Task) -> StepGraph:
    """The model's step on the task's tokens, which takes longer to capture than many are to follow."""
    assert is_residual(model)
    return StepGraph(OneStep(model), Recurrence(model.start, NOT_JUDGED, which.vocabulary))


def finding(step: StepGraph, which: Task, length: int | None, effort: Effort) -> Finding:
    """What is known of all strings over the task's tokens of up to so many, or of every length (None)."""
    found = RecurrentProblem(step.cell, _all_strings(step, which), length, captured=step).prove(Real(), effort)
    found = replace(found, telling=tuple((item, len(item) - 1) for item, _ in found.telling))
    if found.failure is None:
        return found
    case = dict(found.failure.counterexample)
    answers = {name: case[name] for name in ("expected", "predicted")}
    case |= {name: which.said(answer) for name, answer in answers.items() if isinstance(answer, int)}
    case.pop("module_answers", None)
    return replace(found, failure=replace(found.failure, counterexample=case))


def of_lines(
    step: StepGraph, lines: Sequence[followed.Line], reading: Real | Rounded, effort: Effort
) -> followed.Known:
    """What is known of these lines, each with the right class after every token: as the network reads them."""
    return followed.given_lines(step.read_in(reading), lines, effort.deadline())


def of_strings(step: StepGraph, which: Task, length: int | None, reading: Rounded, effort: Effort) -> followed.Known:
    """What is known in a format of all strings over the task's tokens of up to so many, or of every length (None)."""
    return followed.in_format(step.read_in(reading, _all_strings(step, which)), length, effort.deadline())


def counts(step: StepGraph, which: Task, length: int, until: Deadline) -> list[tuple[int, int, int]]:
    """Of strings of each length whose last answer is judged, how many are right, wrong and undecided."""
    return followed.counts(step.read_in(Real(), _all_strings(step, which)), length, followed.MOST_STRINGS, until)


def is_wrong(step: StepGraph, tokens: Sequence[int], right: int) -> bool:
    """Whether the answer after these tokens is wrong in real arithmetic."""
    return followed.precisely(step, tokens, right).high <= 0


def _all_strings(step: StepGraph, which: Task) -> Recurrence:
    return Recurrence(step.task.start, expected(which), which.vocabulary)
