"""Every input decided by the error models in turn: balls, vectors in the l2 norm, then higher precision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from verify.arithmetic.readings import Real, Rounded
from verify.engine import exact
from verify.engine.balls import Arithmetic
from verify.engine.capture import Graph
from verify.engine.margins import Question
from verify.engine.run import enclose

MODELS = ("balls", "l2", "mean_value", "exact")
LISTED = 1000
EXACT_BITS = (128, 512, 2048)


def arithmetic(reading: Real | Rounded, has_norms: bool = False) -> Arithmetic:
    """The arithmetic of a reading."""
    if isinstance(reading, Real):
        return Arithmetic(has_norms=has_norms)
    return Arithmetic(reading.format, reading.accumulate, has_norms)


@dataclass
class Tally:
    """What is known about the inputs seen so far."""

    right: int = 0
    wrong: int = 0
    undecided: int = 0
    by: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODELS, 0))
    margin: float = float("inf")
    tightest: list[int] | None = None
    wrong_inputs: list[list[int]] = field(default_factory=list)
    open_inputs: list[list[int]] = field(default_factory=list)

    @property
    def seen(self) -> int:
        return self.right + self.wrong + self.undecided

    def add(self, tokens: Tensor, low: Tensor, high: Tensor) -> None:
        """Counts a batch by its margins' bounds."""
        is_right, is_wrong = low > 0, high <= 0
        self.right += int(is_right.sum())
        self.wrong += int(is_wrong.sum())
        is_open = ~(is_right | is_wrong)
        self.undecided += int(is_open.sum())
        if bool(is_right.any()):
            least = torch.where(is_right, low, torch.full_like(low, float("inf")))
            i = int(least.argmin())
            if float(least[i]) < self.margin:
                self.margin, self.tightest = float(least[i]), tokens[i].tolist()
        for mask, rows in ((is_wrong, self.wrong_inputs), (is_open, self.open_inputs)):
            rows.extend(tokens[mask][: LISTED - len(rows)].tolist())


class Judge:
    """Bounds on the margins of inputs of one length, as sharp as they must be to decide."""

    def __init__(self, graph: Graph, question: Question, reading: Real | Rounded, device: str = "cpu") -> None:
        self.graph, self.reading, self.device = graph, reading, device
        self.question = question
        self.models = {
            name: enclose(graph, arithmetic(reading, has_norms), question, device)
            for name, has_norms in (("balls", False), ("l2", True))
        }

    def bounds(self, tokens: Tensor, answers: Tensor, by: dict[str, int], deadline: float) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on each margin; `by` counts the inputs that each model decided."""
        low = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
        high = -low
        for name, model in self.models.items():
            rows = undecided(low, high).nonzero().squeeze(1)
            if not len(rows):
                return low, high
            new_low, new_high = (x.cpu() for x in model(tokens[rows].to(self.device), answers[rows].to(self.device)))
            low[rows] = torch.fmax(low[rows], new_low)
            high[rows] = torch.fmin(high[rows], new_high)
            by[name] += len(rows) - int(undecided(low[rows], high[rows]).sum())
        if isinstance(self.reading, Real):
            self._exactly(tokens, answers, low, high, by, deadline)
        return low, high

    def _exactly(
        self, tokens: Tensor, answers: Tensor, low: Tensor, high: Tensor, by: dict[str, int], deadline: float
    ) -> None:
        """Decides what is left input by input, with more and more bits."""
        if not exact.is_covered(self.graph):
            return
        for row in undecided(low, high).nonzero().squeeze(1).tolist():
            for bits in EXACT_BITS:
                if time.perf_counter() > deadline:
                    return
                low[row], high[row] = exact.margin(self.graph, self.question, tokens[row], answers[row], bits)
                if not bool(undecided(low[row], high[row])):
                    by["exact"] += 1
                    break


def undecided(low: Tensor, high: Tensor) -> Tensor:
    """Where neither right nor wrong is proved; NaN proves nothing."""
    return ~((low > 0) | (high <= 0))


Progress = Callable[[float], None]


def climb(
    margin: Callable[[Tensor], Tensor], start: Tensor, sets: tuple[tuple[int, ...], ...], keep: Any, deadline: float
) -> Tensor | None:
    """An input whose float margin is not positive, reached by changing one token at a time; None if none is found."""
    tokens = start
    best = float(margin(tokens.unsqueeze(0))[0])
    while best > 0 and time.perf_counter() < deadline:
        rows = [tokens]
        for i, allowed in enumerate(sets):
            for token in allowed:
                if token != int(tokens[i]):
                    changed = tokens.clone()
                    changed[i] = token
                    rows.append(changed)
        neighbours = keep(torch.stack(rows))
        values = margin(neighbours)
        i = int(values.argmin())
        if not float(values[i]) < best:
            return None
        tokens, best = neighbours[i], float(values[i])
    return tokens if best <= 0 else None
