"""Whole blocks of S4, Mamba and RWKV on a task: their step, captured, is followed along strings of tokens.

What one repeated token leads to is a point, followed in balls of growing precision. Lines that begin with a number word
are followed together, in boxes of float64; where a margin stays open in its box, that line is followed in balls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from constructions.recurrent.residual import ResidualModel, State
from verify.arithmetic.readings import Real
from verify.counting.tasks import Task
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


def finding(model: AnyModel, which: Task, length: int | None, effort: Effort) -> Finding:
    """What is known of all strings over the task's tokens of up to so many, or of every length (None)."""
    assert is_residual(model)
    given = Recurrence(model.start, expected(which), which.vocabulary)
    found = RecurrentProblem(OneStep(model), given, length).prove(Real(), effort)
    found = replace(found, telling=tuple((item, len(item) - 1) for item, _ in found.telling))
    if found.failure is None:
        return found
    case = dict(found.failure.counterexample)
    answers = {name: case[name] for name in ("expected", "predicted")}
    case |= {name: which.said(answer) for name, answer in answers.items() if isinstance(answer, int)}
    case.pop("module_answers", None)
    return replace(found, failure=replace(found.failure, counterexample=case))


def of_lines(
    model: AnyModel, lines: Sequence[tuple[followed.Tokens, Sequence[int | None]]], effort: Effort
) -> followed.Known:
    """What is known of these lines, each with the right class after every token: as the network reads them."""
    assert is_residual(model)
    graph = StepGraph(OneStep(model), Recurrence(model.start, NOT_JUDGED, [lines[0][0][0]]))
    return followed.given_lines(graph, lines, effort.deadline())


def is_wrong(model: AnyModel, tokens: Sequence[int], right: int) -> bool:
    """Whether the answer after these tokens is wrong in real arithmetic."""
    assert is_residual(model)
    graph = StepGraph(OneStep(model), Recurrence(model.start, NOT_JUDGED, [tokens[0]]))
    return followed.precisely(graph, tokens, right).high <= 0
