"""A recurrent network with its task, on lines or on all strings: what a certificate names, and how it is run."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from constructions.model_arrays import ModelArrays, name_of
from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real
from verify.counting.tasks import Task
from verify.frame.decide import Batch, Effort, Failure, Finding, Item, Ran, Run
from verify.tasks.recurrent import gated
from verify.tasks.recurrent.judged import check_recurrent
from verify.tasks.recurrent.kinds import module_of, named
from verify.tasks.recurrent.looked import DRAWN, with_drawn

if TYPE_CHECKING:
    import torch

    from verify.module.recurrence import StepGraph
    from verify.tasks.recurrent.kinds import AnyModel


@dataclass
class RecurrentTask(ABC):
    """A network on a task up to a length, or at every length (None); `by_length` asks for the share of each length."""

    model: AnyModel
    which: Task
    length: int | None
    claim: str | None = None
    task: str = "inductive"
    by_length: bool = False
    runs_for_ever = True

    def __post_init__(self) -> None:
        check_recurrent(self.model)
        self.check_sizes()

    @abstractmethod
    def check_sizes(self) -> None:
        """Raises: BadInput for a network of other tokens or classes than the task has, or a length out of range."""

    @abstractmethod
    def found(self, reading: Reading, effort: Effort) -> Finding:
        """The verdict on all inputs."""

    @abstractmethod
    def draw(self, rng: random.Random) -> Item:
        """One item at random."""

    @abstractmethod
    def due(self, item: Item) -> Sequence[int | None]:
        """The right class after each token of an item, None where it is not judged."""

    @abstractmethod
    def case(self, tokens: Item, predicted: int | None) -> dict[str, object]:
        """What a certificate says of a string whose last answer is wrong; None where a logit is no number."""

    @cached_property
    def longest(self) -> int | None:
        """The largest n, None for all lengths."""
        return self.which.longest(self.length)

    @cached_property
    def step(self) -> StepGraph:
        """The step of whole blocks, captured."""
        from verify.tasks.recurrent import residual  # loads torch's tracer

        return residual.captured(self.model, self.which)

    def parameters(self, reading: Reading) -> dict[str, object]:
        model = self.model
        return {
            "task": self.which.name,
            **self.which.parameters(),
            "model": named(model),
            "units": model.hidden,
            "layers": model.layers,
            **gated.neurons(model),
            **({"activation": model.activation} if model.kind == "rnn" else {}),
            **self.facts(),
            "dtype": name_of(model.dtype),
        }

    def facts(self) -> dict[str, object]:
        return {"length": "all" if self.longest is None else self.longest}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        found = self.found(reading, effort)
        is_looked_at = isinstance(self.model, ModelArrays) and isinstance(reading, Real)
        return with_drawn(found, self._drawn()) if is_looked_at else found

    def _drawn(self) -> Iterator[tuple[Item, int]]:
        """Items with the last answer that is judged."""
        rng = random.Random(0)
        for item in (self.draw(rng) for _ in range(DRAWN)):
            yield item, max(i for i, right in enumerate(self.due(item)) if right is not None)

    def read(self, tokens: Item) -> Item:
        """The tokens as the network reads them: where it has one input, all are the same."""
        return tokens if self.model.vocabulary > 1 else (0,) * len(tokens)

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        def run(batch: Batch) -> Ran:
            logits, due = self.logits(batch), [self.due(tuple(item)) for item in batch]
            is_judged = np.array([[right is not None for right in row] for row in due])
            right = np.array([[right or 0 for right in row] for row in due])
            return Ran.strictly(np.where(is_judged, margins_of(logits, right), np.inf))

        return run

    def logits(self, batch: Batch) -> np.ndarray:
        """What torch computes after each token of items of one length, as float64."""
        import torch

        with torch.no_grad():
            said = module_of(self.model)(torch.tensor([self.read(tuple(item)) for item in batch]))
        found: np.ndarray = said.double().numpy()
        return found

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        tokens = item[: answer + 1]
        said, right = self.logits([tokens])[0, -1], self.due(tokens)[-1]
        assert right is not None
        margin = float(margins_of(said, right))
        found = self.case(tokens, None if np.isnan(said).any() else int(said.argmax()))
        return Failure(found, margin if np.isfinite(margin) else None)

    @property
    def dtype(self) -> torch.dtype | str:
        return self.model.dtype

    def length_of(self, item: Item) -> int:
        return len(item)
