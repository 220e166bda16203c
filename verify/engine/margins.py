"""Margins of enclosed logits: (logit of the right class) - (largest other logit), bounded from both sides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.arithmetic.margins import own_and_rival
from verify.arithmetic.slack import U
from verify.engine.balls import Ball


@dataclass(frozen=True)
class Question:
    """Which logits are compared: at `positions` (None: the output has none), among the columns `classes`."""

    positions: tuple[int, ...] | None
    classes: tuple[int, ...] | None

    def logits(self, output: Ball) -> Ball:
        """The logits (positions, classes) of one output (1, n, all) or (1, all)."""
        return Ball(self.chosen(output.mid), self.chosen(output.radius))

    def chosen(self, output: Tensor) -> Tensor:
        """The same of plain numbers."""
        rows = output[0]
        if self.positions is None or rows.ndim == 1:
            rows = rows.reshape(1, -1)
        else:
            rows = rows[torch.tensor(self.positions, device=rows.device)]
        if self.classes is not None:
            rows = rows[:, torch.tensor(self.classes, device=rows.device)]
        return rows

    def __call__(self, output: Ball, tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on the margin, the least over the positions; `answers` are columns, (positions,)."""
        low, high = margins(self.logits(output), answers)
        return low.amin(), high.amin()


def margins(logits: Ball, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds on each row's margin: shape (rows,); NaN where a logit is not bounded by numbers."""
    low, high = logits.ends
    (own_low, rival_low), (own_high, rival_high) = (own_and_rival(end, answers) for end in (low, high))
    least, most = own_low - rival_high, own_high - rival_low
    return least - 2 * U * least.abs(), most + 2 * U * most.abs()
