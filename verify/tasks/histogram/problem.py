"""The histogram problem: one model on all T^L sequences, as verify.frame.decide asks for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from constructions.partition_sampler import sample
from verify.arithmetic.contract import STORED, constant_bits
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.decide import Batch, Effort, Failure, Finding, Item, Ran, Run, is_wrong_exactly
from verify.frame.judged import check_judged
from verify.tasks.histogram import runs
from verify.tasks.histogram.agreement import look
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import RIGHT, assumptions_in, formula, parameters

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
Proof = Callable[["Histogram", Any, Effort], Finding]


@dataclass(frozen=True)
class Histogram:
    """One model at one length: a `Decidable` whose proof is passed in, as each reading has its own."""

    module: HistogramTransformer
    stored: StoredModel
    claim: str | None
    proof: Proof
    task = "histogram"
    counts_answers = False
    runs_for_ever = False

    @classmethod
    def of(cls, module: HistogramTransformer, L: int | None, claim: str | None, proof: Proof) -> Histogram:
        """Raises: BadInput for a module that is not judged, weights that are not finite, or another length."""
        readable = module
        if getattr(getattr(module, "E", None), "dtype", None) in FLOAT8:
            check_judged(module, HistogramTransformer, anywhere=True)
            readable = deepcopy(module).float()
        return cls(module, StoredModel.of(readable, L), claim, proof)

    def parameters(self, reading: Reading) -> dict[str, object]:
        return parameters(self.stored, self.module.dtype, reading)

    def size(self) -> int:
        return int(self.stored.T**self.stored.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, Rounded):
            return assumptions_in(reading)
        if self.module.E.dtype in FLOAT8:
            raise BadInput(f"E: dtype {self.module.E.dtype} is not run by torch. Use --precision e4m3 or e5m2.")
        if isinstance(reading, Real):
            return (formula(self.stored), STORED, RIGHT)
        if isinstance(reading, ConstantBits):
            return (constant_bits(reading.s), RIGHT)
        dtype = str(self.module.dtype).removeprefix("torch.")
        kernel = (
            f"torch {torch.__version__} on {self.module.E.device.type.upper()}, {dtype}, batches of up to {runs.BATCH}"
        )
        return (f"{kernel}: another kernel, batch shape or device may round differently", RIGHT)

    def predict(self, tokens: Sequence[int], position: int) -> int:
        """The count that the module itself answers at a position."""
        with torch.no_grad():
            return int(self.module.predict(torch.tensor([list(tokens)], device=self.module.E.device))[0, position])

    def facts(self) -> dict[str, object]:
        return {}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        return self.proof(self, reading, effort)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        return look(self.module, self.stored, list(item), answer, reading)

    def batches(self) -> Iterator[Tensor]:
        return runs.all_sequences(self.stored.T, self.stored.L)

    def draw(self, rng: random.Random) -> Item:
        """By recursive partitions, so that all counts are about equally frequent."""
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        return tuple(sample(self.stored.T, self.stored.L, 1, generator)[0].tolist())

    def smaller(self, item: Item) -> Iterator[Item]:
        """One token becomes another everywhere, a smaller one comes first, or one place holds a smaller one."""
        tokens = sorted(set(item))
        for old in reversed(tokens):
            for new in range(old):
                yield tuple(new if token == old else token for token in item)
        if tuple(sorted(item)) != item:
            yield tuple(sorted(item))
        for place, token in enumerate(item):
            for new in range(token):
                yield (*item[:place], new, *item[place + 1 :])

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        run = runs.runner(self.module, reading.s if isinstance(reading, ConstantBits) else None)
        first_count = self.stored.first_count
        return lambda batch: Ran.strictly(runs.run_margins(run, torch.as_tensor(batch), first_count).numpy())

    def first(self, batch: Batch, is_wrong: np.ndarray) -> tuple[object, Item, int]:
        return runs.smallest_wrong(torch.as_tensor(batch), is_wrong)

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype

    def length_of(self, item: Item) -> int:
        return len(item)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        return is_wrong_exactly(self, item, answer)

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        run = runs.runner(self.module, reading.s if isinstance(reading, ConstantBits) else None)
        margin = float(runs.run_margins(run, torch.tensor([item]), self.stored.first_count)[0, answer])
        found = runs.counterexample(run, self.stored, list(item), answer, False)
        if isinstance(reading, Real):  # a run rounds
            margin = ExactForward(self.stored).judge(item, answer).margin[1]
        return Failure(found, margin if margin == margin else None)
