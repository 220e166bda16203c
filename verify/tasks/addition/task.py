"""The task: on every pair of n-digit numbers, each answer's digit has strictly the largest logit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from constructions.adder.arrays import MADE_BY
from constructions.adder.digits import Digits
from constructions.errors import BadInput
from constructions.model_arrays import name_of
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation, rounded_model
from verify.arithmetic.margins import margins_of
from verify.arithmetic.outward import finite, float_at_most
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import SAMPLES, Effort, Failure, Finding, Item, is_wrong_exactly
from verify.frame.unmade import check_judged
from verify.tasks.addition import exact, induction, window
from verify.tasks.addition.pairs import Pair, PairsAdded, how
from verify.tasks.addition.proof import ColumnCell, ColumnCells, Overflows, Unfit
from verify.tasks.addition.rounded import logits
from verify.tasks.addition.shares import check_normal

if TYPE_CHECKING:
    from flint import fmpq

    from verify.tasks.addition.model import Adder

ARGUMENT = "columns one after another, with carries as states"
MODEL = (
    "x = E[token] + position; in each layer x += sum of heads' softmax(q k) v W_O, causal, "
    "then x += ReLU(x W_1 + b_1) W_2; "
)
SEARCHED = 70_000  # pairs that are all run by torch when no proof closes; of more, SAMPLES are
CONFIRMED = 10  # of the hardest pairs are evaluated exactly
CANDIDATES = 64  # pairs that a search in a dtype runs in each order


@dataclass
class DigitAddition(PairsAdded):
    """A model that is to add two numbers digit by digit, and the facts that its certificate names."""

    model: Adder
    sums: Digits
    claim: str | None = None
    named: dict[str, object] = field(default_factory=dict)
    counts_answers: bool = False
    runs_for_ever: bool = False
    task: str = "addition"

    def __post_init__(self) -> None:
        check_judged(self.model, MADE_BY)
        for name, own, due in (
            ("tokens", self.model.E.shape[0], self.sums.tokens),
            ("positions", self.model.length, self.sums.length),
            ("classes", self.model.classes, self.sums.B),
        ):
            if own != due:
                raise BadInput(
                    f"weights: {own} {name}, but {self.sums.n} digits in base {self.sums.B} ask {due}; "
                    "name the --digits and --base that they were made for"
                )

    def parameters(self, reading: Reading) -> dict[str, object]:
        dtype = name_of(self.model.dtype)
        return {"digits": self.sums.n, "base": self.sums.B, **self.named, **self.model.sizes(), "dtype": dtype}

    def size(self) -> int:
        return int(self.sums.B ** (2 * self.sums.n))

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            raise BadInput("precision=sN: addition has no constant-bit reading; use real, a float format, or pN")
        return (
            f"{MODEL}logits = x W_out + b_out; {how(reading)}",
            "an answer is right if each of its n + 1 digits has strictly the largest logit, the digits before it given",
        )

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Rounded):
            return self._prove_rounded(reading, effort)
        try:
            cells = ColumnCells.of(self.model, self.sums)
        except Unfit as reason:
            try:
                found = self._prove_layers(reason, effort.deadline())
            except TimeIsUp:
                return Finding.open(ARGUMENT, f"the {effort.limit} ended before every column was decided")
        else:
            found = self._prove_real(cells)
        if found.failure is None and found.reason is not None:
            pair = self._search(effort)
            return found if pair is None else Finding.refuted(ARGUMENT, self.replay(pair, 0, reading))
        return found

    def _prove_layers(self, reason: Unfit, until: Deadline) -> Finding:
        """Two layers, by the induction over columns; open where it does not apply or a cell stays undecided.

        Raises: TimeIsUp.
        """
        how = f"{reason}; --method exhaustive runs every pair"
        if len(self.model.blocks) < 2:
            return Finding.open(ARGUMENT, f"no proof for this model: {how}")
        try:
            found = induction.margins(self.model, self.sums, until=until)
        except (Unfit, Overflows) as error:
            return Finding.open(ARGUMENT, f"no proof for this model: {error}; --method exhaustive runs every pair")
        cell = min(found, key=lambda cell: found[cell])
        where = {"sum": cell.s, "carry": cell.carry, "margin": float_at_most(found[cell])}
        if not found[cell] > 0:
            return Finding.open(ARGUMENT, f"sum {cell.s}, carry {cell.carry}: intervals do not decide it")
        return Finding.proved(ARGUMENT, float_at_most(found[cell]), tightest=where)

    def _prove_real(self, cells: ColumnCells) -> Finding:
        margin, tightest = None, None
        for cell in cells.all():
            found = cells.margin(cell)
            if found is None:
                continue
            if found <= 0:
                for pair in cells.ends(cell):
                    if self._is_wrong(pair):
                        return self._refuted(cells, pair)
                return Finding.open(
                    ARGUMENT, f"column {cell.column}, sum {cell.s}, carry {cell.carry}: bounds do not decide it"
                )
            if margin is None or found < margin:
                margin, tightest = found, cell
        assert margin is not None and tightest is not None
        pair = next(cells.ends(tightest))
        where = {
            "input": self.name(pair),
            "column": tightest.column,
            "sum": tightest.s,
            "carry": tightest.carry,
            "margin": float_at_most(margin),
        }
        return Finding.proved(ARGUMENT, float_at_most(margin), tightest=where, telling=((pair, 0),))

    def _search(self, effort: Effort) -> Pair | None:
        """A pair that is wrong in real arithmetic, among those that torch finds hardest; None where none is found."""
        if self.size() <= SEARCHED:
            pairs = list(self.inputs())
        else:
            rng = random.Random(effort.seed)
            pairs = [self.draw(rng) for _ in range(SAMPLES)]
        margins = np.nan_to_num(self.run(pairs).min(1), nan=-np.inf)
        hardest = np.argsort(margins, kind="stable")[:CONFIRMED]
        return next((pairs[i] for i in hardest if self._is_wrong(pairs[i])), None)

    def _refuted(self, cells: ColumnCells, pair: Pair) -> Finding:
        """By the smallest wrong pair, with the exact number of them, where few columns decide a digit."""
        windows = window.find(cells)
        if windows is None:
            return Finding.refuted(ARGUMENT, self.replay(pair, 0, Real()))
        free = [range(self.sums.B)] * self.sums.n
        wrong = windows.wrong(free, free)
        smallest = windows.smallest()
        assert smallest is not None
        extra = {"counts": {"right": str(self.size() - wrong), "wrong": str(wrong)}}
        failure = self.replay(smallest, 0, Real())
        failure.counterexample["is_smallest"] = True
        return Finding.refuted(ARGUMENT, failure, extra=extra)

    def _prove_rounded(self, reading: Rounded, effort: Effort) -> Finding:
        arithmetic = RoundedArithmetic.of(reading.format, reading.accumulate)
        stored = rounded_model(self.model, reading.format)
        if len(stored.blocks) == 2:
            return self._prove_rounded_layers(stored, arithmetic, reading, effort)
        candidates: list[Pair] = []
        reason = None
        try:
            check_normal(stored, arithmetic)
            cells = ColumnCells.of(stored, self.sums, arithmetic)
            margins: list[tuple[fmpq, ColumnCell]] = []
            for cell in cells.all():
                found = cells.margin(cell)
                if found is not None and not found > 0:
                    candidates += cells.ends(cell)
                    reason = reason or f"column {cell.column}, sum {cell.s}, carry {cell.carry}: rounding may decide it"
                elif found is not None:
                    margins.append((found, cell))
            if reason is None:
                least, cell = min(margins, key=itemgetter(0))
                pair = next(cells.ends(cell))
                where = {"input": self.name(pair), "margin": float_at_most(least)}
                return Finding.proved(ARGUMENT, float_at_most(least), tightest=where, telling=((pair, 0),))
        except (Unfit, Overflows) as error:
            reason = f"no proof for this model: {error}"
        return self._search_orders(candidates, reason, reading, effort)

    def _prove_rounded_layers(
        self, stored: Adder, arithmetic: RoundedArithmetic, reading: Rounded, effort: Effort
    ) -> Finding:
        """The induction over columns with what any order computes."""
        try:
            check_normal(stored, arithmetic)
            found = induction.margins(stored, self.sums, arithmetic, effort.deadline())
        except TimeIsUp:
            return Finding.open(ARGUMENT, f"the {effort.limit} ended before every column was decided")
        except (Unfit, Overflows) as error:
            return self._search_orders([], f"no proof for this model: {error}", reading, effort)
        cell = min(found, key=lambda cell: found[cell])
        if found[cell] > 0:
            where = {"sum": cell.s, "carry": cell.carry, "margin": float_at_most(found[cell])}
            return Finding.proved(ARGUMENT, float_at_most(found[cell]), tightest=where)
        reason = f"sum {cell.s}, carry {cell.carry}: rounding may decide it"
        return self._search_orders([], reason, reading, effort)

    def _search_orders(self, candidates: list[Pair], reason: str, reading: Rounded, effort: Effort) -> Finding:
        """A pair that is wrong in one of the orders tried, these candidates and drawn ones; else open."""
        rng = random.Random(effort.seed)
        candidates = list(dict.fromkeys(candidates))
        rng.shuffle(candidates)
        candidates = [*candidates[:CANDIDATES], *(self.draw(rng) for _ in range(CANDIDATES // 4))]
        failure = self.wrong_in_an_order(candidates, reading)
        return Finding.open(ARGUMENT, reason) if failure is None else Finding.refuted(ARGUMENT, failure)

    def rounded_margins(self, pairs: list[Pair], at: Evaluation) -> np.ndarray:
        tokens, right = self._written(pairs)
        values = logits(self.model, tokens, at)[:, 2 * self.sums.n + 1 :]
        return np.asarray(margins_of(values, right).min(1))

    def rounded_failure(self, pair: Pair, at: Evaluation, order: str) -> Failure:
        tokens, right = self._written([pair])
        said = logits(self.model, tokens, at)[0, 2 * self.sums.n + 1 :].argmax(-1)
        margin = float(self.rounded_margins([pair], at)[0])
        return Failure({**self._described(pair, [int(c) for c in said]), "order": order, "run_as": at.named()}, margin)

    def at_most(self, pair: Pair) -> float:
        return min(answer.at_most for answer in self._exactly(pair))

    def inputs(self) -> Iterator[Pair]:
        largest = self.sums.B**self.sums.n
        return ((a, b) for a in range(largest) for b in range(largest))

    def draw(self, rng: random.Random) -> Pair:
        """A pair whose sums of digits are B - 1 in a long run half of the time: where carries are hard."""
        B, n = self.sums.B, self.sums.n
        a, b = rng.randrange(B**n), rng.randrange(B**n)
        if rng.random() < 0.5:
            low, run = rng.randrange(n), rng.randrange(n + 1)
            for j in range(low, min(n, low + run)):
                d = a // B**j % B
                b += (B - 1 - d - b // B**j % B) * B**j
        return a, b

    def run(self, inputs: list[Pair]) -> np.ndarray:
        tokens, right = self._written(inputs)
        values = self.run_by_torch(tokens)[:, 2 * self.sums.n + 1 :]
        return np.asarray(margins_of(values, right))

    def length_of(self, item: Item) -> int:
        return self.sums.length

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        return is_wrong_exactly(self, item, answer)

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        """The wrong answer in the reading's arithmetic, and what torch generates."""
        wrong = item[0], item[1]
        tokens, right = self._written([wrong])
        if isinstance(reading, Kernel):
            values = self.run_by_torch(tokens)[0, 2 * self.sums.n + 1 :]
            said: list[int | None] = [int(c) for c in values.argmax(-1)]
            return Failure(self._described(wrong, said), float(self.run([wrong]).min()))
        found = self._exactly(wrong)
        return Failure(self._described(wrong, [a.predicted for a in found]), finite(min(a.margin for a in found)))

    def _is_wrong(self, pair: Pair) -> bool:
        return any(answer.is_right is False for answer in self._exactly(pair))

    def _exactly(self, pair: Pair) -> list[exact.Answer]:
        tokens, right = self._written([pair])
        queries = range(2 * self.sums.n + 1, self.sums.length)
        return exact.answers(self.model, tokens[0].tolist(), queries, right[0].tolist())

    def _written(self, pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
        """Tokens with all right digits but the last, and the right digits."""
        right = np.array([self.sums.answer(a, b) for a, b in pairs])
        prompts = np.array([self.sums.prompt(a, b) for a, b in pairs])
        return np.concatenate([prompts, right[:, :-1]], axis=1), right

    def _described(self, pair: Pair, said: list[int | None]) -> dict[str, object]:
        import torch

        with torch.no_grad():
            prompt = torch.tensor([self.sums.prompt(*pair)])
            generated = self.model.generate(prompt, self.sums.n + 1)[0].tolist()
        return {
            "input": self.name(pair),
            "expected": self.text(self.sums.answer(*pair)),
            "predicted": self.text(said),
            "generated": self.text(generated),
        }

    def name(self, pair: Pair) -> str:
        """A prompt as it is typed.

        >>> from constructions.addition import one_head
        >>> DigitAddition(one_head(n=5), Digits(5)).name((1, 999))
        '00001+00999='
        """
        a, b = (self.text(self.sums.written(number, self.sums.n)) for number in pair)
        return f"{a}+{b}="

    def text(self, digits: list[int] | list[int | None]) -> str:
        """Digits as text: one character each up to base 36, numbers with points between from there on."""
        if self.sums.B <= 36:
            return "".join("?" if d is None else "0123456789abcdefghijklmnopqrstuvwxyz"[d] for d in digits)
        return ".".join("?" if d is None else str(d) for d in digits)


def parse(text: str, sums: Digits) -> Pair:
    """A pair of numbers from a prompt such as "00995+00005=".

    Raises: BadInput for anything but two numbers of n digits each.
    """
    a, plus, rest = text.replace(" ", "").partition("+")
    b, equals, after = rest.partition("=")
    numbers = [_number(part, sums.B) for part in (a, b)]
    if not plus or not equals or after or None in numbers or len(a) != sums.n or len(b) != sums.n:
        example = "0" * (sums.n - 1) + "1"
        raise BadInput(
            f"--input {text!r}: must be two numbers of {sums.n} digits in base {sums.B}, as in {example}+{example}="
        )
    return numbers[0], numbers[1]  # type: ignore[return-value]


def _number(text: str, B: int) -> int | None:
    if B > 36:
        raise BadInput(f"--input: digits in base {B} are not single characters; use a base of at most 36")
    try:
        return int(text, B) if text.isalnum() and text.isascii() else None
    except ValueError:
        return None
