"""torch's own run of one line, one token at a time, until its state comes again: then it is the same for ever."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from constructions.recurrent.gated import GatedModel
from constructions.recurrent.linear import LinearModel, RotationModel
from constructions.recurrent.model import RecurrentModel
from constructions.recurrent.residual import ResidualModel
from verify.arithmetic.margins import margins_of
from verify.frame.clock import Budget
from verify.tasks.recurrent.proof import OrbitQuestion

MOST_STEPS = 2_000_000
MOST_SAVED = 100_000  # numbers of states that a certificate holds
MOST_KEPT = 1 << 16  # states to compare with; later ones are kept at powers of two alone (Brent)


@dataclass(frozen=True)
class Repeated:
    """Right for so many `steps`, or first wrong at `wrong_at`; `repeats` are two numbers of tokens with one state.

    `states` are those of a recurrent network after 1, 2, ... tokens, each layer's h and for an LSTM c, where they are
    few enough to be saved.
    """

    steps: int
    margin: float
    wrong_at: int | None = None
    predicted: int | None = None
    repeats: tuple[int, int] | None = None
    states: list[list[float]] | None = None


def run_for_ever(
    model: RecurrentModel | LinearModel | RotationModel | GatedModel | ResidualModel,
    line: OrbitQuestion,
    budget: float | Budget,
    steps: int | None = None,
) -> Repeated:
    """Runs until the state, bit by bit, and what is due come again, so many steps are done, or time is up."""
    until, least = Budget.of(budget).deadline(), float("inf")
    seen: dict[tuple[bytes, int], int] = {}
    states: list[list[float]] = []
    state: Tensor | tuple[Tensor, ...] | None = None
    with torch.no_grad():
        for t in range(1, (MOST_STEPS if steps is None else steps) + 1):
            token = torch.tensor([[line.at(t - 1)]])
            if isinstance(model, ResidualModel):
                parts = model.start if state is None else state
                assert isinstance(parts, tuple)
                state, output = model.step(parts, token[0])
                output = output[None]
            elif isinstance(model, GatedModel):
                before = torch.zeros(1, model.hidden, dtype=model.dtype) if state is None else state
                assert isinstance(before, Tensor)
                state, output = model.step(before, token[0])
                output = output[None]
            else:
                output, state = model.cell(model.embed(token), state)
            output = output if isinstance(model, ResidualModel) else model.readout(output)
            logits = output[0, -1].double()
            right = line.expected(t)
            margin = float(margins_of(logits, torch.tensor(right)))
            if not margin > 0:
                predicted = None if bool(logits.isnan().any()) else int(logits.argmax())
                return Repeated(t - 1, margin, t, predicted)
            least = min(least, margin)
            if isinstance(model, RecurrentModel) and t * model.hidden * model.layers < MOST_SAVED:
                states.append(_numbers(state))
            if steps is None and t > line.settled and t > len(line.leading):
                key = (_bits(state), t % line.period)
                if key in seen:
                    return Repeated(t, least, repeats=(seen[key], t), states=states if len(states) == t else None)
                if len(seen) < MOST_KEPT or t & (t - 1) == 0:
                    seen[key] = t
            if until.is_up():
                break
    return Repeated(t, least)


def _bits(state: Tensor | tuple[Tensor, ...] | None) -> bytes:
    parts = state if isinstance(state, tuple) else (state,)
    return b"".join(part.contiguous().view(torch.uint8).numpy().tobytes() for part in parts if part is not None)


def _numbers(state: Tensor | tuple[Tensor, ...] | None) -> list[float]:
    """The numbers of each layer's h, and of its c."""
    parts = [part[:, 0] for part in (state if isinstance(state, tuple) else (state,)) if part is not None]
    return torch.stack(parts, dim=1).double().flatten().tolist()
