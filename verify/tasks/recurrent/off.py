"""How far a computed step, and computed logits, may be from the exact ones at any state of a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import Array
from verify.tasks.recurrent.enclosures import Roundings
from verify.tasks.recurrent.network import Network, nonzeros, step


@dataclass(frozen=True)
class StepErrors:
    """Bounds for the roundings of one reading, or of one evaluation; without any, arithmetic is real.

    An infinite bound says that a number may overflow. A state is the form that one of its readers reads (`held`).
    """

    net: Network
    on: Roundings | None = None
    least: float = 0.0  # what is far below any rounding: parts of a state that are smaller are not followed
    loose: float = 0.0  # by which numbers of the matrix, and of the state where one row reads it, may be off in a step
    keeps_steps: bool = False  # where logits alone are rounded

    def of_step(self, box: Sequence[arb], token: int) -> list[arb]:
        """|F(s) - f(s)| for every computed step F from a state s of the box, number by number."""
        if self.on is None:
            return [arb(0)] * len(box)
        if self.keeps_steps:
            return [arb(0)] * len(box)
        H = self.net.hidden
        parts = [self.on.held(Ball.around(box[i : i + H])) for i in range(0, len(box), H)]
        with np.errstate(all="ignore"):
            found = _as_balls(np.concatenate([x.error for x in step(self.net, parts, token, self.on)]))
        return found if self.loose == 0 else [(y + self._loosened(box)).upper() for y in found]

    def _loosened(self, box: Sequence[arb]) -> arb:
        """What products of matrix and state, both off, add to a row: `loose` (1 + |s|) for each number s of the state.

        Infinite where a product of them comes near the largest number.
        """
        assert self.on is not None
        size = sum((abs(x) for x in box), arb(len(box)))
        return (arb(self.loose) * size).upper() if size < self.on.largest / 4 else arb("inf")

    def of_logits(self, read: Sequence[arb]) -> list[arb]:
        """The same for the logits, from what the readout sees."""
        if self.on is None:
            return [arb(0)] * len(self.net.b)
        V, b = self.net.V, self.net.b
        with np.errstate(all="ignore"):
            return _as_balls(self.on.linear(V, self.on.held(Ball.around(read)), b, nonzeros(V, b)).error)


def _as_balls(error: Array) -> list[arb]:
    return [arb(x) if np.isfinite(x) else arb("inf") for x in error.tolist()]
