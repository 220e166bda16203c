"""The task: on every pair (a, b) of numbers below P, read at "=", the class (a + b) mod P has the largest logit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from constructions.adder.arrays import MADE_BY
from constructions.errors import BadInput
from constructions.model_arrays import name_of
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation, rounded_model
from verify.arithmetic.margins import margins_of
from verify.arithmetic.outward import finite
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.clock import TimeIsUp
from verify.frame.decide import Effort, Failure, Finding, Item, is_wrong_exactly, no_reading
from verify.frame.unmade import check_judged
from verify.tasks.addition import exact
from verify.tasks.addition.modular.proof import DecidedPairs, by_sums, pair_by_pair
from verify.tasks.addition.modular.rounding import UnfitFormat, margins
from verify.tasks.addition.pairs import Pair, PairsAdded, how
from verify.tasks.addition.rounded import logits

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder

ARGUMENT = "every pair, or every sum, from the stored numbers"
CHUNK = 1 << 12
SIMULATED = 2000  # pairs that a search in a dtype runs in each order, those with the least bounds first


@dataclass
class ModularAddition(PairsAdded):
    """A model that is to add modulo P, and the facts that its certificate names."""

    model: Adder
    P: int
    claim: str | None = None
    named: dict[str, object] = field(default_factory=dict)
    counts_answers: bool = False
    runs_for_ever: bool = False
    task: str = "modular"

    def __post_init__(self) -> None:
        check_judged(self.model, MADE_BY)
        if self.model.E.shape[0] != self.P + 1 or self.model.classes != self.P or self.model.length != 3:
            raise BadInput(
                f"weights: {self.model.E.shape[0]} tokens, {self.model.length} positions and {self.model.classes} "
                f"classes, but P={self.P} asks {self.P + 1}, 3 and {self.P}; name the --P that they were made for"
            )

    def parameters(self, reading: Reading) -> dict[str, object]:
        sizes = self.model.sizes()
        dtype = name_of(self.model.dtype)
        return {"P": self.P, **self.named, **sizes, "neurons": sizes["p"], "dtype": dtype}

    def size(self) -> int:
        return self.P**2

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            raise no_reading(reading, self.task, "real, a float format, or pN")
        skip = "x + " if self.model.has_skip else ""
        return (
            f"tokens a b =, read at =: x = E[token] + position; x = {skip}sum of heads' softmax(q k) v W_O; "
            f"x = {skip}ReLU(x W_1 + b_1) W_2; logits = x W_out + b_out; {how(reading)}",
            "right means: the class (a + b) mod P has strictly the largest logit",
        )

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Rounded):
            return self._prove_rounded(reading, effort)
        if len(self.model.blocks) != 1:
            raise BadInput("weights: several layers; verify modular decides models of one layer")
        decided = by_sums(self.model, self.P) or pair_by_pair(self.model, self.P, effort.deadline(), effort.progress)
        return self._finding(decided, effort)

    def _finding(self, decided: DecidedPairs, effort: Effort) -> Finding:
        counts: dict[str, object] = {}
        is_all_known = decided.is_whole and not decided.undecided
        if is_all_known:
            counts["counts"] = {"right": str(decided.right), "wrong": str(decided.wrong_count)}
        if decided.wrong:
            wrong = sorted(decided.wrong)
            counts["wrong_inputs"] = [list(pair) for pair in wrong]
            failure = self.replay(wrong[0], 0, Real())
            failure.counterexample["is_smallest"] = is_all_known
            return Finding.refuted(ARGUMENT, failure, extra=counts)
        if not decided.is_whole:
            seen = f"{decided.right} of {self.size()} pairs were right by then"
            return Finding.open(ARGUMENT, f"the {effort.limit} ended before every pair was decided; {seen}")
        if decided.undecided:
            pair = decided.undecided[0]
            return Finding.open(
                ARGUMENT, f"{len(decided.undecided)} pairs are closer to a tie than 8192 bits, first {pair}"
            )
        if decided.tightest is None:
            return Finding.proved(ARGUMENT, decided.margin, extra=counts)
        tightest, telling = {"input": list(decided.tightest), "margin": decided.margin}, ((decided.tightest, 0),)
        return Finding.proved(ARGUMENT, decided.margin, tightest=tightest, telling=telling, extra=counts)

    def _prove_rounded(self, reading: Rounded, effort: Effort) -> Finding:
        stored, until = rounded_model(self.model, reading.format), effort.deadline()
        try:
            found = margins(stored, self.P, RoundedArithmetic.of(reading.format, reading.accumulate), until)
        except UnfitFormat as reason:
            return Finding.open(ARGUMENT, f"no proof for this model: {reason}")
        except TimeIsUp:
            return Finding.open(ARGUMENT, f"the {effort.limit} ended before every pair was bounded")
        if found.worst > 0:
            place = int(found.least.argmin())
            margin = float(np.nextafter(found.worst, -np.inf))
            a, b = (int(x) for x in found.pairs.reshape(-1, 2)[place])
            tightest = {"input": [a, b], "margin": margin}
            return Finding.proved(ARGUMENT, margin, tightest=tightest, telling=(((a, b), 0),))
        values = np.where(np.isnan(found.least), -np.inf, found.least).flatten()
        pairs = found.pairs.reshape(-1, 2)
        order_of = np.argsort(values, kind="stable")[:SIMULATED]
        candidates = [(int(a), int(b)) for a, b in pairs[order_of[values[order_of] <= 0]]]
        failure = self.wrong_in_an_order(candidates, reading)
        if failure is not None:
            return Finding.refuted(ARGUMENT, failure)
        number = int((values <= 0).sum())
        return Finding.open(ARGUMENT, f"rounding may decide {number} of {self.size()} pairs, and no order tried fails")

    def rounded_margins(self, pairs: list[Pair], at: Evaluation) -> np.ndarray:
        parts = []
        for i in range(0, len(pairs), 64):
            tokens, right = self._written(pairs[i : i + 64])
            parts.append(margins_of(logits(self.model, tokens, at)[:, -1], right))
        return np.concatenate(parts)

    def rounded_failure(self, pair: Pair, at: Evaluation, order: str) -> Failure:
        tokens, right = self._written([pair])
        said = logits(self.model, tokens, at)[0, -1]
        margin = float(margins_of(said[None], right)[0])
        predicted = None if np.isnan(said).any() else int(said.argmax())
        return Failure({**self._described(pair, predicted), "order": order, "run_as": at.named()}, margin)

    def at_most(self, pair: Pair) -> float:
        return self._exactly(pair).at_most

    def inputs(self) -> Iterator[Pair]:
        return ((a, b) for a in range(self.P) for b in range(self.P))

    def draw(self, rng: random.Random) -> Pair:
        return rng.randrange(self.P), rng.randrange(self.P)

    def run(self, inputs: list[Pair]) -> np.ndarray:
        parts = []
        step = max(1, (CHUNK << 8) // self.P)
        for i in range(0, len(inputs), step):
            tokens, right = self._written(inputs[i : i + step])
            parts.append(margins_of(self.run_by_torch(tokens)[:, -1], right))
        return np.concatenate(parts)[:, None]

    def length_of(self, item: Item) -> int:
        return 3

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        return is_wrong_exactly(self, item, answer)

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        wrong = item[0], item[1]
        if isinstance(reading, Kernel):
            tokens, _ = self._written([wrong])
            predicted = int(self.run_by_torch(tokens)[0, -1].argmax())
            return Failure(self._described(wrong, predicted), float(self.run([wrong])[0, 0]))
        found = self._exactly(wrong)
        return Failure(self._described(wrong, found.predicted), finite(found.margin))

    def _exactly(self, pair: Pair) -> exact.Answer:
        return exact.answers(self.model, [*pair, self.P], [2], [sum(pair) % self.P])[0]

    def _written(self, pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.array([[a, b, self.P] for a, b in pairs])
        return tokens, tokens[:, :2].sum(1) % self.P

    def _described(self, pair: Pair, predicted: int | None) -> dict[str, object]:
        tokens, _ = self._written([pair])
        torch_says = int(self.run_by_torch(tokens)[0, -1].argmax())
        return {
            "input": list(pair), "expected": sum(pair) % self.P, "predicted": predicted, "torch": torch_says,
        }  # fmt: skip
