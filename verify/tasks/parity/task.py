"""The parity task: a model, the sequences it is judged on, and what is right; the proof is in proof.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.constant_bits.run import constant_bit
from constructions.errors import BadInput
from constructions.parity import ParityTransformer
from verify.arithmetic.contract import STORED, constant_bits
from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.decide import Effort, Failure, Finding, OneRun, Ran, Run, first_in_order, no_reading
from verify.frame.judged import check_judged
from verify.tasks.parity import proof

Tokens = tuple[int, ...]
BATCH = 4096
MOST_BAGS = 1024  # of open cells, each decided in rational arithmetic
ARGUMENT = "cells of token and own count, in balls"


@dataclass(frozen=True)
class Parity:
    """One model on all T^L sequences: a `Decidable`.

    >>> from constructions.parity import sawtooth
    >>> from verify.frame.decide import certify
    >>> certify(Parity(sawtooth(T=32, L=10))).verdict.value
    'PROVED'
    """

    module: ParityTransformer
    claim: str | None = None
    task = "parity"
    counts_answers = False
    runs_for_ever = False

    def __post_init__(self) -> None:
        check_judged(self.module, ParityTransformer)

    def parameters(self, reading: Reading) -> dict[str, object]:
        m = self.module
        return {"T": m.T, "L": m.L, "d": m.d, "p": m.p, "dtype": str(m.E.dtype).removeprefix("torch.")}

    def size(self) -> int:
        return int(self.module.T**self.module.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        right = "right means: the logit of the count's parity is strictly the larger one"
        if isinstance(reading, Rounded):
            raise no_reading(reading, self.task, "real, or sN")
        if isinstance(reading, ConstantBits):
            return constant_bits(reading.s), right
        if isinstance(reading, Kernel):
            return f"torch {torch.__version__} on CPU, one kernel and batch shape", right
        model = "x' = x + x W_Q W_K^T x^T x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, in real arithmetic"
        return model, STORED, right

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if not isinstance(reading, Real):
            raise BadInput("method=certified: parity is proved in real arithmetic. Use --method exhaustive or sampled.")
        T, L = self.module.T, self.module.L
        margins = proof.margins(proof.Stored.of(self.module), L)
        open_ = [(t, k + 1) for t, k in np.argwhere(~(margins > 0)).tolist()]
        are_few = sum(proof.number_of_bags(T, L, k) for _, k in open_) <= MOST_BAGS
        for t, k in open_:
            least, wrong = self._least(proof.bags(T, L, t, k) if are_few else proof.vertices(T, L, t, k))
            if wrong is not None:
                return Finding.refuted(ARGUMENT, self.replay(wrong, 0, reading))
            if are_few:
                margins[t, k - 1] = float_at_most(least)
        if (margins > 0).all():
            t, k = (int(i) for i in np.unravel_index(int(margins.argmin()), margins.shape))
            telling = next(proof.vertices(T, L, t, k + 1)), 0
            tightest = {"token": t, "count": k + 1}
            return Finding.proved(ARGUMENT, float(margins.min()), tightest=tightest, telling=(telling,))
        return Finding.open(ARGUMENT, f"{len(open_)} of {margins.size} pairs of a token and its count stay open")

    def _least(self, inputs: Iterator[Tokens]) -> tuple[Fraction, Tokens | None]:
        """The least exact margin at the first position, or an input that is wrong there."""
        found = []
        for tokens in inputs:
            found.append(proof.exact_margin(self.module, tokens, 0))
            if found[-1] <= 0:
                return found[-1], tokens
        return min(found), None

    def look(self, item: Tokens, answer: int, reading: Reading) -> OneRun:
        return OneRun(at_most=float_at_least(proof.exact_margin(self.module, item, answer)))

    def facts(self) -> dict[str, object]:
        return {}

    def batches(self) -> Iterator[list[Tokens]]:
        items = itertools.product(range(self.module.T), repeat=self.module.L)
        while batch := list(itertools.islice(items, BATCH)):
            yield batch

    def draw(self, rng: random.Random) -> Tokens:
        return tuple(rng.randrange(self.module.T) for _ in range(self.module.L))

    def smaller(self, item: Tokens) -> Iterator[Tokens]:
        """One place holds a smaller token."""
        for place, token in enumerate(item):
            for new in range(token):
                yield (*item[:place], new, *item[place + 1 :])

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(self._margins(torch.as_tensor(batch), reading))

    def first(self, batch: list[Tokens], is_wrong: np.ndarray) -> tuple[int, Tokens, int]:
        return first_in_order(batch, is_wrong)

    @property
    def dtype(self) -> torch.dtype:
        return self.module.E.dtype

    def length_of(self, item: Tokens) -> int:
        return len(item)

    def is_surely_wrong(self, item: Tokens, answer: int) -> bool:
        return proof.exact_margin(self.module, item, answer) <= 0

    def replay(self, wrong: Tokens, answer: int, reading: Reading) -> Failure:
        exact = isinstance(reading, Real)
        margins: list[Any] = (
            [proof.exact_margin(self.module, wrong, i) for i in range(len(wrong))]
            if exact
            else self._margins(torch.tensor([wrong]), reading)[0].tolist()
        )
        position = answer if not margins[answer] > 0 else next(i for i, margin in enumerate(margins) if not margin > 0)
        margin, expected = margins[position], wrong.count(wrong[position]) % 2
        found = {
            "input": list(wrong),
            "position": position,
            "expected": expected,
            "predicted": 1 - expected if margin == margin else None,
            "is_tie": margin == 0,
        }
        at_least = float_at_least(margin) if isinstance(margin, Fraction) else margin if margin == margin else None
        return Failure(found, at_least, str(margin) if exact else None)

    def _margins(self, tokens: Tensor, reading: Reading) -> np.ndarray:
        run: Callable[[Tensor], Tensor] = self.module
        if isinstance(reading, ConstantBits):
            run = constant_bit(self.module, reading.s)
        with torch.no_grad():
            logits = run(tokens).double().numpy()
        odd = (tokens[:, :, None] == tokens[:, None, :]).sum(-1).numpy() % 2 == 1
        difference = logits[..., 1] - logits[..., 0]
        result: np.ndarray = np.where(odd, difference, -difference)
        return result
