"""The parity task: a model, the sequences it is judged on, and what is right; the proof is in proof.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from constructions.model_arrays import module_of, name_of
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.contract import STORED, Contract, constant_bits
from verify.arithmetic.evaluation import ORDERS, rounded_model
from verify.arithmetic.margins import OneRun
from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.clock import Deadline
from verify.frame.decide import Batch, Effort, Failure, Finding, Ran, Run, first_in_order, no_reading
from verify.frame.unmade import check_judged
from verify.tasks.parity import MODEL, proof, rounded

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verify.tasks.parity.proof import Model

Tokens = tuple[int, ...]
BATCH = 4096
MOST_BAGS = 1024  # of open cells, each decided in rational arithmetic
MOST_RUNS = 64  # inputs of open cells, each run in several orders, in search of a wrong one
ARGUMENT = "cells of token and own count, in balls"
ROUNDED_ARGUMENT = "cells of token and own count, in balls of what any order computes"


@dataclass(frozen=True)
class Parity:
    """One model on all T^L sequences: a `Decidable`.

    >>> from constructions.parity import sawtooth
    >>> from verify.frame.decide import certify
    >>> certify(Parity(sawtooth(T=32, L=10))).verdict.value
    'PROVED'
    """

    module: Model
    claim: str | None = None
    task = "parity"
    counts_answers = False
    runs_for_ever = False

    def __post_init__(self) -> None:
        check_judged(self.module, MODEL)

    def parameters(self, reading: Reading) -> dict[str, object]:
        m = self.module
        return {"T": m.T, "L": m.L, "d": m.d, "p": m.p, "dtype": name_of(m.dtype)}

    def size(self) -> int:
        return int(self.module.T**self.module.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        right = "right means: the logit of the count's parity is strictly the larger one"
        if isinstance(reading, Rounded):
            return *Contract().text(reading.format, reading.accumulate), right
        if isinstance(reading, ConstantBits):
            return constant_bits(reading.s), right
        if isinstance(reading, Kernel):
            import torch

            return f"torch {torch.__version__} on CPU, one kernel and batch shape", right
        model = "x' = x + x W_Q W_K^T x^T x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, in real arithmetic"
        return model, STORED, right

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Rounded):
            return self._prove_rounded(reading, effort)
        if not isinstance(reading, Real):
            raise no_reading(reading, self.task, "real, or a float format; sN goes with --method exhaustive")
        T, L = self.module.T, self.module.L
        until = effort.limit.building()
        margins = proof.margins(proof.Stored.of(self.module), L, until=until)
        if len(margins) < T:
            return self._cut(ARGUMENT, margins, effort)
        open_ = [(t, k + 1) for t, k in np.argwhere(~(margins > 0)).tolist()]
        are_few = sum(proof.number_of_bags(T, L, k) for _, k in open_) <= MOST_BAGS
        for t, k in open_:
            least, wrong = self._least(proof.bags(T, L, t, k) if are_few else proof.vertices(T, L, t, k), until)
            if wrong is not None:
                return Finding.refuted(ARGUMENT, self.replay(wrong, 0, reading))
            if least is None:
                return self._cut(ARGUMENT, margins, effort)
            if are_few:
                margins[t, k - 1] = float_at_most(least)
        if (margins > 0).all():
            return self._proved(ARGUMENT, margins)
        return Finding.open(ARGUMENT, f"{len(open_)} of {margins.size} pairs of a token and its count stay open")

    def _cut(self, argument: str, margins: np.ndarray, effort: Effort) -> Finding:
        """Open, as the time ended with these margins of the first tokens."""
        cells = f"{int((margins > 0).sum())} of {self.module.T * self.module.L} pairs of a token and its count"
        return Finding.open(argument, f"the {effort.limit} ended with {cells} proved; raise it")

    def _proved(self, argument: str, margins: np.ndarray) -> Finding:
        t, k = (int(i) for i in np.unravel_index(int(margins.argmin()), margins.shape))
        telling = next(proof.vertices(self.module.T, self.module.L, t, k + 1)), 0
        tightest = {"token": t, "count": k + 1}
        return Finding.proved(argument, float(margins.min()), tightest=tightest, telling=(telling,))

    def _prove_rounded(self, reading: Rounded, effort: Effort) -> Finding:
        """The same cells, with all that any order computes; open ones are run, those of the least counts first."""
        T, L, at = self.module.T, self.module.L, RoundedArithmetic.of(reading.format, reading.accumulate)
        model = rounded_model(self.module, reading.format)
        if reason := proof.unfit(model, at):
            return Finding.open(ROUNDED_ARGUMENT, reason)
        margins = proof.margins(proof.Stored.of(model), L, at, effort.limit.building())
        if len(margins) < T:
            return self._cut(ROUNDED_ARGUMENT, margins, effort)
        open_ = sorted((k + 1, t) for t, k in np.argwhere(~(margins > 0)).tolist())
        if not open_:
            return self._proved(ROUNDED_ARGUMENT, margins)
        deadline = effort.deadline()
        inputs = (tokens for k, t in open_ for tokens in proof.vertices(T, L, t, k))
        for tokens in itertools.islice(inputs, MOST_RUNS):
            if deadline.is_up():
                break
            failure = self._rounded_failure(tokens, 0, reading)
            if failure is not None:
                return Finding.refuted(ROUNDED_ARGUMENT, failure)
        k, t = open_[0]
        cells = f"{len(open_)} of {margins.size} pairs of a token and its count"
        reason = f"{cells}: rounding may decide them, from token {t} at count {k} on; no order tried is wrong"
        return Finding.open(ROUNDED_ARGUMENT, reason)

    def _rounded_failure(self, tokens: Tokens, position: int, reading: Rounded) -> Failure | None:
        for run in rounded.runs(self.module, tokens, position, reading):
            if not run.margin > 0:
                found = self._found(tokens, position, run.margin)
                found |= {"order": run.order, "run_as": run.evaluation}
                return Failure(found, run.margin if run.margin == run.margin else None)
        return None

    def _least(self, inputs: Iterator[Tokens], until: Deadline) -> tuple[Fraction | None, Tokens | None]:
        """The least exact margin at the first position, or an input that is wrong there; neither once time is up."""
        found = []
        for tokens in inputs:
            if until.is_up():
                return None, None
            found.append(proof.exact_margin(self.module, tokens, 0))
            if found[-1] <= 0:
                return found[-1], tokens
        return min(found), None

    def look(self, item: Tokens, answer: int, reading: Reading) -> OneRun:
        if isinstance(reading, Rounded):
            return OneRun(at_most=next(rounded.runs(self.module, item, answer, reading, ORDERS[:1])).margin)
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
        return lambda batch: Ran.strictly(self._margins(batch, reading))

    def first(self, batch: list[Tokens], is_wrong: np.ndarray) -> tuple[int, Tokens, int]:
        return first_in_order(batch, is_wrong)

    @property
    def dtype(self) -> torch.dtype | str:
        return self.module.dtype

    def length_of(self, item: Tokens) -> int:
        return len(item)

    def is_surely_wrong(self, item: Tokens, answer: int) -> bool:
        return proof.exact_margin(self.module, item, answer) <= 0

    def replay(self, wrong: Tokens, answer: int, reading: Reading) -> Failure:
        exact = isinstance(reading, Real)
        margins: Sequence[Fraction | float] = (
            [proof.exact_margin(self.module, wrong, i) for i in range(len(wrong))]
            if exact
            else self._margins([wrong], reading)[0].tolist()
        )
        position = answer if not margins[answer] > 0 else next(i for i, margin in enumerate(margins) if not margin > 0)
        margin, found = margins[position], self._found(wrong, position, margins[position])
        at_least = float_at_least(margin) if isinstance(margin, Fraction) else margin if margin == margin else None
        return Failure(found, at_least, str(margin) if exact else None)

    def _found(self, wrong: Tokens, position: int, margin: float | Fraction) -> dict[str, object]:
        expected = wrong.count(wrong[position]) % 2
        return {
            "input": list(wrong),
            "position": position,
            "expected": expected,
            "predicted": 1 - expected if margin == margin else None,
            "is_tie": margin == 0,
        }

    def _margins(self, batch: Batch, reading: Reading) -> np.ndarray:
        import torch

        tokens = torch.as_tensor(batch)
        run: Callable[[Tensor], Tensor] = module_of(self.module)
        if isinstance(reading, ConstantBits):
            run = reading.forward(module_of(self.module))
        with torch.no_grad():
            logits = run(tokens).double().numpy()
        odd = (tokens[:, :, None] == tokens[:, None, :]).sum(-1).numpy() % 2 == 1
        difference = logits[..., 1] - logits[..., 0]
        result: np.ndarray = np.where(odd, difference, -difference)
        return result
