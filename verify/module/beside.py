"""Inputs of decided cells that are run through the module: a run that contradicts a cell is a bug."""

from __future__ import annotations

import torch

from verify.engine.guard import Guard
from verify.module.cells import Decided

OF_EACH = 4  # inputs of what is decided at once
AT_ONCE = 256


class Beside:
    """Collects inputs with their bounds, and runs them many at a time."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.kept = guard, list[Decided]()
        self.rng = torch.Generator().manual_seed(0)

    def add(self, found: Decided) -> None:
        """Draws some of what was decided; runs what was drawn once it is enough.

        Raises: Disagreement.
        """
        self.kept.append(found.only(torch.randperm(len(found.tokens), generator=self.rng)[:OF_EACH]))
        if len(self.kept) * OF_EACH >= AT_ONCE:
            self.check()

    def check(self) -> None:
        """Runs what was drawn.

        Raises: Disagreement.
        """
        if self.kept:
            tokens, answers, low, high = (
                torch.cat([getattr(found, name) for found in self.kept])
                for name in ("tokens", "answers", "low", "high")
            )
            self.guard.check(tokens, answers.unsqueeze(1), low, high)
        self.kept = []
