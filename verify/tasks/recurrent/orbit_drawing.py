"""The orbit of a recurrent network that counts modulo m, in the plane, and its margin at each length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from constructions.errors import NotKnown
from constructions.recurrent.gated import GatedModel
from constructions.recurrent.linear import RotationModel
from constructions.recurrent.residual import ResidualModel
from verify.arithmetic.readings import Real
from verify.frame.clock import Budget
from verify.module import followed
from verify.module.recurrence import Recurrence, StepGraph
from verify.module.recurrent import RecurrentProblem
from verify.report.style import BLUE, GREY, VERMILLION, new_figure, style
from verify.tasks.recurrent.automata import expected
from verify.tasks.recurrent.drawing import plane
from verify.tasks.recurrent.kinds import module_of
from verify.tasks.recurrent.task import Homogeneous

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verify.tasks.recurrent.kinds import OneReadout

LARGEST = 1e100  # beyond it squares of differences may be no float


class ReadoutStep(nn.Module):
    """One step of a network with one readout: (state, token) -> (state, logits)."""

    def __init__(self, model: OneReadout) -> None:
        super().__init__()
        self.model = model
        self.eval()

    @property
    def start(self) -> Tensor | tuple[Tensor, Tensor]:
        """The state 0."""
        model = self.model
        if isinstance(model, GatedModel):
            return torch.zeros(1, model.hidden, dtype=model.dtype)
        if isinstance(model, RotationModel):
            return torch.zeros(1, 2, model.hidden, dtype=model.dtype)
        shape = (model.layers, 1, model.hidden) if model.kind in ("rnn", "gru", "lstm") else (1, model.hidden)
        zero = torch.zeros(shape, dtype=model.dtype)
        return (zero, zero.clone()) if model.kind == "lstm" else zero

    def forward(self, state: Tensor | tuple[Tensor, Tensor], token: Tensor) -> tuple[object, Tensor]:
        if isinstance(self.model, GatedModel):
            assert isinstance(state, Tensor)
            after, said = self.model.step(state, token)
            return after, self.model.readout(said)
        said, after = self.model.cell(self.model.embed(token[None]), state)
        return after, self.model.readout(said)[0]


def step_of(problem: Homogeneous | RecurrentProblem) -> StepGraph:
    """The network's step on one repeated token, captured."""
    if isinstance(problem, RecurrentProblem):
        return problem.graph
    model = module_of(problem.model)
    given = expected(problem.which)
    if isinstance(model, ResidualModel):
        return problem.step.read_in(Real(), Recurrence(model.start, given))
    cell = ReadoutStep(model)
    return StepGraph(cell, Recurrence(cell.start, given))


def orbit(problem: Homogeneous | RecurrentProblem, modulus: int, length: int, budget: float | Budget = 30.0) -> Figure:
    """Draws the states after 1, 2, .. tokens and the margins of the answers there, followed in balls.

    Left: the states, by their shadow in the plane in which they are widest, those of the last turn ringed. Right: a
    lower bound on the margin of each right answer, and an upper one on that of each wrong answer.
    Raises: NotKnown where no answer is decided, or a number is beyond what axes show.
    """
    known = followed.along(step_of(problem), length, Budget.of(budget).deadline())
    if not known:
        raise NotKnown("the first answer is open in balls of many bits, so no orbit is drawn. Take other weights")
    states = np.array([[float(x) for x in here.state] for here in known if here.state is not None])
    shown = np.array([here.low if here.low > 0 else here.high for here in known])
    if not max(np.abs(states).max(), np.abs(shown).max()) < LARGEST:
        raise NotKnown(f"a state or a margin is {LARGEST:g} or beyond, so no orbit is drawn. Draw fewer lengths")
    directions, middle = plane(states)
    points, is_right, lengths = (states - middle) @ directions.T, shown > 0, np.arange(1, len(known) + 1)
    with style():
        figure, (left, right) = new_figure(8.2, 3.9, ncols=2)
        left.plot(*points.T, color=GREY, linewidth=0.4)
        left.plot(*points[-modulus:].T, "o", fillstyle="none", color=GREY, markersize=8, label="the last turn")
        right.axhline(0, color=GREY, linewidth=0.8)
        for mask, color, said in ((is_right, BLUE, "right"), (~is_right, VERMILLION, "wrong")):
            for axes, x, y in ((left, *points[mask].T), (right, lengths[mask], shown[mask])):
                axes.plot(x, y, ".", color=color, markersize=4, label=said if mask.any() else None)
        is_plain = states.shape[1] <= 2
        left.set(xlabel="$h_1$" if is_plain else "first principal direction", ylabel="$h_2$" if is_plain else "second")
        left.set_title(f"the states after 1 to {len(known)} tokens, modulo {modulus}")
        right.set(xlabel="length", ylabel="margin")
        right.set_title(f"{int(is_right.sum())} of {len(known)} answers are right")
        left.legend(fontsize=7)
    return figure
