"""Count01: one model on the prompts of a domain, as verify.frame.decide asks for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from constructions.count01_arrays import check_labels
from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays, module_of
from verify.arithmetic.contract import constant_bits
from verify.arithmetic.exact_reals import float_above
from verify.arithmetic.margins import OneRun, margins_of
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded, precision_of
from verify.arithmetic.slack import LEAST
from verify.frame import decide
from verify.frame.certificate import CERTIFIED, EXHAUSTIVE, Certificate
from verify.frame.decide import LONGEST_BESIDE, Effort, Failure, Finding, Item, Ran, Run, is_wrong_in_its_ball
from verify.tasks.count01 import bits, dtype, proof
from verify.tasks.count01.boxes import LARGEST_COUNT
from verify.tasks.count01.judged import judged
from verify.tasks.count01.layer_norm.one_prompt import least_lead
from verify.tasks.count01.real import check_plain, exact_model, margin_at
from verify.tasks.count01.rounding import assumptions
from verify.tasks.count01.runs import chunks, failed, margin_of
from verify.tasks.count01.task import BOS, DIGITS, EOS, EQUALS, Prompt, PromptDomain, Triple, answer, by_length, string

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Forward = Callable[[Tensor], Tensor]

    from verify.tasks.count01.model import Count01Model

LONGEST_STRINGS = 40  # far beyond what can be run; 3^strings is still a short number
LONGEST_CAUSAL = 64  # tokens whose whole causal pass is run; beyond, the last position's alone
LONGEST_DRAWN = 200  # digits


class Inputs(StrEnum):
    """What one input of a certificate is: it counts them, and exhaustive runs go through them."""

    COUNTS = "triples (n0, n1, n2) times the last tokens =, 4, 5; each triple stands for every order of its digits"
    SEMANTIC = "triples (n0, n1, n2) after =; each triple stands for every order of its digits"
    RUNS = "runs of the module"
    STRINGS = "strings of digits, each read after =, 4 and 5"
    SEMANTIC_STRINGS = "strings of digits, each read after ="


EVERY_ORDER = (Inputs.STRINGS, Inputs.SEMANTIC_STRINGS)  # where the order of the digits matters


@dataclass(frozen=True)
class Count01:
    """One model on the prompts of a domain: a `Decidable`. An item is a string of digits, read after each last token.

    `inputs` says what is counted; with RUNS they are one string per triple, and every string of up to `strings` digits.
    `named` are further parameters for the certificate.
    """

    module: Count01Model
    labels: str
    domain: PromptDomain
    inputs: Inputs
    strings: int | None = None
    claim: str | None = None
    named: dict[str, object] = field(default_factory=dict)
    task = "count01"
    runs_for_ever = False

    @classmethod
    def of(
        cls,
        module: Count01Model,
        labels: str,
        domain: PromptDomain,
        *,
        method: str = CERTIFIED,
        reading: Reading | None = None,
        strings: int | None = None,
        claim: str | None = None,
        named: dict[str, object] | None = None,
    ) -> Count01:
        """The problem as a method and a reading ask for it.

        Raises: BadInput for unknown labels, a module that is not judged, or bounds that go with no prompt.
        """
        check_labels(labels)
        check_least_digits(domain)
        if strings is not None and not 0 <= strings <= LONGEST_STRINGS:
            raise BadInput(f"strings={strings}: must be from 0 to {LONGEST_STRINGS}, as there are 3^strings to run")
        inputs = Inputs.SEMANTIC if domain.is_semantic else Inputs.COUNTS
        if isinstance(reading, ConstantBits):
            inputs = Inputs.SEMANTIC_STRINGS if domain.is_semantic else Inputs.STRINGS
        elif method != CERTIFIED:
            inputs = Inputs.RUNS
        problem = cls(judged(module), labels, domain, inputs, strings, claim, named or {})
        if method == EXHAUSTIVE and problem.size() is None:
            raise BadInput("method=exhaustive: give --max-digits and --max-noise, or --strings")
        return problem

    @property
    def counts_answers(self) -> bool:
        return self.inputs not in EVERY_ORDER

    def parameters(self, reading: Reading) -> dict[str, object]:
        domain = self.domain
        least = {"min_digits": domain.min_digits, "min_noise": domain.min_noise} if any(domain.origin) else {}
        semantic = {"semantic_only": True} if domain.is_semantic else {}
        found = {
            **self.named,
            "labels": self.labels,
            **least,
            **semantic,
            "max_digits": domain.max_digits,
            "max_noise": domain.max_noise,
            "max_length": domain.max_length,
        }
        if isinstance(reading, Rounded):
            wider = None if reading.accumulate is None else reading.accumulate.name
            found |= {"precision": precision_of(reading), "accumulate": wider}
        return found | ({"precision": f"s{reading.s}"} if isinstance(reading, ConstantBits) else {})

    def size(self) -> int | None:
        """Triples times last tokens; for runs also all strings; for constant-bit arithmetic the strings alone."""
        domain, every = self.domain, len(self.domain.lasts)
        if self.inputs in EVERY_ORDER:
            found = bits.strings_of(domain)
            return None if found == float("inf") else int(found)
        if self.strings is not None:
            strings: int = (3 ** (self.strings + 1) - 1) // 2
            return every * ((domain.size() if domain.is_bounded else 0) + strings)
        return every * domain.size() if domain.is_bounded else None

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            return (constant_bits(reading.s), "right means: the right token has strictly the largest logit")
        if isinstance(reading, Kernel):
            return ("this torch kernel, at the batch shapes used, with digits in the order run",)
        if not isinstance(reading, Rounded):
            return ()
        return assumptions(reading.format, reading.accumulate, has_norm=self.module.has_norm)

    def on(self, domain: PromptDomain) -> Count01:
        return replace(self, domain=domain)

    def facts(self) -> dict[str, object]:
        found: dict[str, object] = {"region": str(self.domain), "inputs_are": self.inputs.value}
        return found if self.strings is None else found | {"strings": self.strings}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        """Raises: BadInput for a bound beyond what the proof takes."""
        if isinstance(reading, ConstantBits):
            return bits.prove(self, reading)
        domain = self.domain
        for bound in (domain.max_digits, domain.max_noise, domain.max_length):
            is_exact = isinstance(reading, Real) and self.module.heads == 1 and domain.max_length is None
            if bound is not None and (bound < 0 or (bound > LARGEST_COUNT and not is_exact)):
                raise BadInput(f"bound={bound}: must be between 0 and {LARGEST_COUNT} (more: one head, reading real)")
        return dtype.prove(self, reading) if isinstance(reading, Rounded) else proof.prove(self)

    def telling(self, tightest: Sequence[Prompt]) -> tuple[tuple[Item, int], ...]:
        """The tightest prompts where they can be run, and the shortest ones with a tie and with one more 1."""
        low, _, noise = self.domain.origin
        prompts = [*tightest, ((low, low, noise), EQUALS), ((low, low + 1, noise), EQUALS)]
        lasts = self.domain.lasts
        can_run = ((n, last) for n, last in prompts if n in self.domain and sum(n) <= LONGEST_BESIDE and last in lasts)
        return tuple((digits_of(n), lasts.index(last)) for n, last in can_run)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """The exact margin of arrays, of which no module is run: behind LayerNorm in balls."""
        if not (isinstance(self.module, ModelArrays) and isinstance(reading, Real)):
            return OneRun()
        last = self.domain.lasts[answer]
        due = self._due(item, last)
        if self.module.has_norm:
            margin = least_lead(self.module, prompt(item, last), due)
        else:
            margin = margin_at(exact_model(self.module), counts_of(item), last, due)[2]
        most = float_above(margin)
        return OneRun(most, low=LEAST, at_most=most)  # above 0 also where all counts are proved, with no least margin

    def batches(self) -> Iterator[list[Item]]:
        """The strings of digits, the shortest first: one per triple and all short ones, or all of the domain."""
        if self.inputs in EVERY_ORDER:
            yield from bits.all_strings(self.domain, None)
            return
        if self.domain.is_bounded:
            for length, group in itertools.groupby(by_length(self.domain), key=sum):
                yield from chunks([digits_of(n) for n in group], length)
        for length in range(-1 if self.strings is None else self.strings + 1):
            yield from chunks(list(itertools.product(DIGITS, repeat=length)), length)

    def draw(self, rng: random.Random) -> Item:
        """Up to 200 digits beyond the fewest, half of the time nearly as many 0 as 1, in random order."""
        digits, _, noise = self.domain.origin
        shortest = 2 * digits + noise
        for _ in range(100):
            spare = int((LONGEST_DRAWN + 1) ** rng.random()) - 1
            n2 = rng.randint(0, spare)
            n1 = (spare - n2 + rng.randint(-1, 1)) // 2 if rng.random() < 0.5 else rng.randint(0, spare - n2)
            n = (digits + spare - n2 - n1, digits + n1, noise + n2)
            if min(n) >= 0 and n in self.domain:
                break
        else:
            n = (digits, digits, noise)
        assert sum(n) <= shortest + LONGEST_DRAWN
        drawn = list(digits_of(n))
        rng.shuffle(drawn)
        return tuple(drawn)

    def smaller(self, item: Item) -> Iterator[Item]:
        """Half of the string, or one digit, or one 0 and one 1, less."""
        half = len(item) // 2
        shorter = [item[:half], item[half:]] if half else []
        for digit in DIGITS:
            shorter += [without(item, digit)] if digit in item else []
        if DIGITS[0] in item and DIGITS[1] in item:
            shorter.append(without(without(item, DIGITS[0]), DIGITS[1]))
        yield from (found for found in shorter if counts_of(found) in self.domain)

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        forward = self._forward(reading)

        def run(batch: Sequence[Item]) -> Ran:
            logits = self._logits(batch, forward)
            due = {last: np.array([self._due(w, last) for w in batch]) for last in logits}
            found = [margins_of(rows.double().numpy(), due[last]) for last, rows in logits.items()]
            return Ran.strictly(np.stack(found, axis=1))

        return run

    def first(self, batch: Sequence[Item], is_wrong: np.ndarray) -> tuple[tuple[int, int], Item, int]:
        """The first wrong string after the first of the last tokens after which one is wrong."""
        answer = int(is_wrong.any(0).argmax())
        item = tuple(batch[int(is_wrong[:, answer].argmax())])
        return (len(item), answer), item, answer

    @property
    def dtype(self) -> torch.dtype | str:
        """The name of it where nothing but arrays is judged, of which no module is run."""
        return self.module.dtype

    def length_of(self, item: Item) -> int:
        return len(item)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        last = self.domain.lasts[answer]
        return is_wrong_in_its_ball(module_of(self.module), tuple(prompt(item, last)), self._due(item, last))

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        last = self.domain.lasts[answer]
        assert isinstance(reading, Kernel | ConstantBits)
        row = self._logits([item], self._forward(reading))[last][0].tolist()
        found = failed(self.module, prompt(item, last), self._due(item, last), row)
        if isinstance(reading, ConstantBits):
            found |= {"replayed": f"constant-bit arithmetic, s={reading.s}"}
        return Failure(found, margin_of(found))

    def _due(self, item: Item, last: int) -> int:
        n0, n1, _ = counts_of(item)
        return answer(n0, n1, self.labels) if last == EQUALS else EOS

    def _forward(self, reading: Kernel | ConstantBits) -> Forward:
        """The logits after the last of some tokens: by the whole causal pass where they are few."""
        module = module_of(self.module)
        if isinstance(reading, ConstantBits):
            check_plain(self.module)
            run = reading.forward(module)
            return lambda tokens: run(tokens)[:, -1]
        return lambda tokens: module(tokens)[:, -1] if tokens.shape[1] <= LONGEST_CAUSAL else module.next_logits(tokens)

    def _logits(self, batch: Sequence[Item], forward: Forward) -> dict[int, Tensor]:
        """For each last token the logits (batch, classes) after it."""
        import torch

        lasts = self.domain.lasts
        return {last: forward(torch.tensor([prompt(item, last) for item in batch])).double() for last in lasts}


def check_least_digits(domain: PromptDomain) -> None:
    """Raises BadInput for least counts without largest ones, or above them."""
    if any(domain.origin) and not domain.is_bounded:
        raise BadInput("--min-digits, --min-noise: go with --max-digits and --max-noise; give both")
    if min(domain.origin) < 0 or not domain.is_possible:
        raise BadInput(f"{domain}: no counts are so; raise the upper bounds or lower the lower ones")


def digits_of(n: Triple) -> Item:
    """The string with these counts, its digits sorted."""
    return tuple(string(n, EQUALS)[1:-1])


def counts_of(item: Item) -> Triple:
    """(n0, n1, n2) of a string of digits."""
    n0, n1, n2 = (item.count(digit) for digit in DIGITS)
    return n0, n1, n2


def prompt(item: Item, last: int) -> list[int]:
    """The tokens up to and including `last`."""
    return [BOS, *item, EQUALS, *([] if last == EQUALS else [last])]


def without(item: Item, digit: int) -> Item:
    """The string less the last one of a digit."""
    i = len(item) - 1 - item[::-1].index(digit)
    return item[:i] + item[i + 1 :]


def certify(
    model: Count01Model, labels: str, domain: PromptDomain, *, reading: Reading | None = None, claim: str | None = None
) -> Certificate:
    """Decides a model on every prompt of a domain, and on 4 and 5 after it; without limits it finds them.

    Claim: D, E-5, W-10. In a dtype the model's numbers are to be in the format already. Constant-bit arithmetic runs
        all strings of the domain, where they are no more than 100,000; larger domains are searched.
    Raises: BadInput for unknown labels, too narrow an accumulation, or several heads in the reading real without
        bounds on the counts.

    >>> from constructions.count01 import uniform
    >>> certify(uniform(), "majority-ones", PromptDomain()).verdict.value
    'PROVED'
    """
    problem = Count01.of(model, labels, domain, reading=reading, claim=claim)
    return decide.certify(problem, reading)
