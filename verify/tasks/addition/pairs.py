"""What both tasks say alike of pairs of numbers: their order, what is simpler, and how they are run."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from constructions.model_arrays import module_of
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.decide import Batch, Failure, Item, Ran, Run, first_in_order
from verify.tasks.addition.rounded import ORDERS

if TYPE_CHECKING:
    import torch

    from verify.tasks.addition.model import Adder

Pair = tuple[int, int]
BATCH = 4096


class PairsAdded(ABC):
    """A model that is to add pairs of numbers, all of which can be listed."""

    model: Adder

    @abstractmethod
    def inputs(self) -> Iterator[Pair]:
        """Every pair, the simplest first."""

    @abstractmethod
    def run(self, inputs: list[Pair]) -> np.ndarray:
        """The margins (pairs, answers) that torch computes."""

    @abstractmethod
    def rounded_margins(self, pairs: list[Pair], at: Evaluation) -> np.ndarray:
        """The least margin of each pair, with every operation rounded."""

    @abstractmethod
    def at_most(self, pair: Pair) -> float:
        """An upper bound on the least margin of a pair, in real arithmetic."""

    @abstractmethod
    def rounded_failure(self, pair: Pair, at: Evaluation, order: str) -> Failure:
        """What is said of a pair whose computed answer is wrong."""

    def wrong_in_an_order(self, pairs: list[Pair], reading: Rounded) -> Failure | None:
        """The first of the pairs that is wrong in one of the orders of evaluation that are tried."""
        for order in ORDERS:
            at = Evaluation(reading.format, reading.accumulate, order)
            is_wrong = ~(self.rounded_margins(pairs, at) > 0)
            if is_wrong.any():
                return self.rounded_failure(pairs[int(is_wrong.argmax())], at, order)
        return None

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """The pair evaluated alone: exactly, or with every operation rounded in one order."""
        pair = item[0], item[1]
        if isinstance(reading, Rounded):
            at = Evaluation(reading.format, reading.accumulate)
            return OneRun(at_most=float(self.rounded_margins([pair], at)[0]))
        return OneRun(at_most=self.at_most(pair))

    def facts(self) -> dict[str, object]:
        return {}

    def batches(self) -> Iterator[list[Item]]:
        items = self.inputs()
        while batch := list(itertools.islice(items, BATCH)):
            yield list(batch)

    def smaller(self, item: Item) -> Iterator[Item]:
        a, b = item
        return (pair for pair in ((a // 2, b), (a, b // 2), (a - 1, b), (a, b - 1)) if min(pair) >= 0 and pair != item)

    def first(self, batch: Batch, is_wrong: np.ndarray) -> tuple[int, Item, int]:
        return first_in_order(batch, is_wrong)

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(self.run([(int(a), int(b)) for a, b in batch]))

    @property
    def dtype(self) -> torch.dtype | str:
        return self.model.dtype

    def run_by_torch(self, tokens: np.ndarray) -> np.ndarray:
        """The logits (N, n, classes) that torch computes of tokens (N, n)."""
        import torch

        with torch.no_grad():
            found: np.ndarray = module_of(self.model)(torch.from_numpy(tokens)).double().numpy()
        return found


def how(reading: Reading) -> str:
    """How a reading evaluates, in the words of an assumption."""
    words = {Real: "evaluated in real arithmetic", Kernel: "run by torch on this machine"}
    return words.get(type(reading), "every operation rounded, sums in any order")
