"""What is right, and on which sequences: `verify.frame.decide` does the rest."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verify.tasks.twice import proof
from verify.tasks.twice.model import TwiceTransformer

from verify.arithmetic.contract import STORED
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real
from verify.frame.decide import Effort, Failure, Finding, Ran, Run, first_in_order, is_wrong_exactly, no_reading
from verify.frame.judged import check_judged

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Twice:
    """One model on all T^L sequences: a `Decidable`."""

    module: TwiceTransformer
    claim: str | None = None
    task = "twice"
    counts_answers = False
    runs_for_ever = False
    dtype = torch.float64

    def __post_init__(self) -> None:
        check_judged(self.module, TwiceTransformer)

    def parameters(self, reading: Reading) -> dict[str, Any]:
        return {"T": self.module.T, "L": self.module.L, "d": self.module.d}

    def size(self) -> int:
        return int(self.module.T**self.module.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if not isinstance(reading, Real | Kernel):
            raise no_reading(reading, self.task, "real")
        return STORED, "right means: the logit of the right class is strictly the larger one"

    def facts(self) -> dict[str, Any]:
        return {}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        least, tokens = min((proof.margin(self.module, x, 0), x) for x in proof.vertices(self.module.T, self.module.L))
        if least <= 0:
            return Finding.refuted("vertices", self.replay(tokens, 0, reading))
        tightest = {"input": list(tokens)}
        margin = float(least)
        return Finding.proved("vertices", margin, margin_exact=str(least), tightest=tightest, telling=((tokens, 0),))

    def look(self, item: Tokens, answer: int, reading: Reading) -> OneRun:
        return OneRun(at_most=float(proof.margin(self.module, item, answer)))

    def batches(self) -> Iterator[list[Tokens]]:
        yield from ([item] for item in itertools.product(range(self.module.T), repeat=self.module.L))

    def draw(self, rng: random.Random) -> Tokens:
        return tuple(rng.randrange(self.module.T) for _ in range(self.module.L))

    def smaller(self, item: Tokens) -> Iterator[Tokens]:
        return iter(())

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(self._margins(torch.as_tensor(batch)))

    def first(self, batch: list[Tokens], is_wrong: np.ndarray) -> tuple[int, Tokens, int]:
        return first_in_order(batch, is_wrong)

    def length_of(self, item: Tokens) -> int:
        return len(item)

    def is_surely_wrong(self, item: Tokens, answer: int) -> bool:
        return is_wrong_exactly(self, item, answer)

    def replay(self, item: Tokens, answer: int, reading: Reading) -> Failure:
        margin, expected = proof.margin(self.module, item, answer), int(item.count(item[answer]) >= 2)
        found = {"input": list(item), "position": answer, "expected": expected, "predicted": 1 - expected}
        return Failure(found, float(margin), str(margin))

    def _margins(self, tokens: torch.Tensor) -> np.ndarray:
        logits = self.module(tokens).detach().numpy()
        is_again = (tokens[:, :, None] == tokens[:, None, :]).sum(-1).numpy() >= 2
        margins: np.ndarray = (logits[..., 1] - logits[..., 0]) * np.where(is_again, 1, -1)
        return margins
