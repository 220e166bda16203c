"""The task: a bidirectional model, the strings it is judged on, and what is right; the proof is in proof.py."""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from constructions.contextual_counting_arrays import CLOSE, ONE, OPEN
from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays, module_of, name_of
from verify.arithmetic.contract import STORED
from verify.arithmetic.exact_reals import float_above
from verify.arithmetic.formats import Format, format_of
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import check_finite, numbers
from verify.frame.arguments import check_whole_number
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import Effort, Failure, Finding
from verify.frame.unmade import check_judged
from verify.tasks.contextual import exact
from verify.tasks.contextual.bidirectional import MODEL
from verify.tasks.contextual.bidirectional.proof import PromptCell, Proof, StringProof
from verify.tasks.contextual.rounding import CONTRACT
from verify.tasks.contextual.runs import margins
from verify.tasks.contextual.task import MOST_PLACED, StringDomain, answers, written
from verify.tasks.contextual.valid_strings import OnValidStrings

if TYPE_CHECKING:
    from flint import arb
    from torch import nn

Tokens = tuple[int, ...]
ARGUMENT = "ranges over all strings of what each kind of position computes"
RUNS, LONGEST_RUN, BATCH, MOST_TELLING = 200, 8, 512, 16


@dataclass(frozen=True)
class OnStrings(OnValidStrings):
    """One model whose positions differ, on all valid strings of up to N tokens and R regions, and every prompt."""

    task = "contextual counting, position by position"
    computes: ClassVar[str]
    is_causal: ClassVar[bool]
    judges: ClassVar[str]

    @abstractmethod
    def proof(self, fmt: Format | None, until: Deadline) -> StringProof:
        """The proof of its strings, in real arithmetic or in a format, while there is time."""

    @abstractmethod
    def positions(self) -> dict[str, object]:
        """What a certificate says of its positions."""

    def exact(self, tokens: Tokens) -> list[arb]:
        """The margins of one string as balls of 400 bits."""
        return exact.margins(self.weights, list(tokens), answers(list(tokens), self.module.R), is_causal=self.is_causal)

    @classmethod
    def of(
        cls,
        module: nn.Module | ModelArrays,
        *,
        length: int | None = None,
        regions: int | None = None,
        claim: str | None = None,
        named: Mapping[str, object] | None = None,
    ) -> Self:
        """The problem at a length and number of regions, the model's own by default.

        Raises: BadInput for a module that is not judged, or strings that it has no positions or classes for.
        """
        check_judged(module, cls.judges)
        own: Any = module
        N, R = own.longest if length is None else length, own.R if regions is None else regions
        check_whole_number("length", N)
        check_whole_number("regions", R)
        most = min(own.longest, MOST_PLACED, len(own.b_out) + 1)
        if not 1 <= N <= most:
            raise BadInput(
                f"length={N}: must be from 1 to {most}: the model has {own.longest} positions after BOS and counts "
                f"up to {len(own.b_out) - 1}, and {MOST_PLACED} are judged. Use --length {most}."
            )
        return cls(module, StringDomain(N, R), claim, dict(named or {}))

    @property
    def weights(self) -> dict[str, Array]:
        return {name: numbers(W) for name, W in self.module.named_parameters()}

    def parameters(self, reading: Reading) -> dict[str, object]:
        return {
            "length": self.domain.N,
            "regions": self.domain.R,
            "prompts": self.module.R,
            **self.positions(),
            "dtype": name_of(self.module.dtype),
            **self.named,
        }

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        model = self.computes
        right = "right means: the right class has strictly the largest logit; a region that is not there counts 0"
        if isinstance(reading, ConstantBits):
            raise BadInput(f"precision={reading.name}: has no constant-bit arithmetic here. Use real, or a dtype.")
        if isinstance(reading, Kernel):
            return ("this torch kernel", right)
        if isinstance(reading, Rounded):
            if reading.accumulate is not None or reading.format.name == "tf32":
                raise BadInput(
                    f"precision={reading.format.name}: sums keep to one format here. Leave --accumulate out, and use "
                    "another format than tf32."
                )
            return (model, *CONTRACT.text(reading.format), right)
        return model, STORED, right

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if not isinstance(reading, Real | Rounded):
            raise BadInput("method=certified: is for real arithmetic and dtypes. Use --method exhaustive or sampled.")
        check_finite(self.module.named_parameters())
        fmt = reading.format if isinstance(reading, Rounded) else None
        until, cells = effort.deadline(), []
        proof = self.proof(fmt, until)
        try:
            for r in range(1, self.module.R + 1):
                cells.append(proof.cells(r))
                effort.progress(r / self.module.R)
        except TimeIsUp:
            return Finding.open(
                ARGUMENT, f"the {effort.limit} ended with {len(cells)} of {self.module.R} prompts decided; raise it"
            )
        worst = min(cells, key=lambda c: float(c.margin.min()))
        if all((c.margin > 0).all() for c in cells):
            where = {"prompt": worst.r, "count": int(worst.margin.argmin())}
            telling = tuple(self._telling(cells))
            return Finding.proved(ARGUMENT, float(worst.margin.min()), tightest=where, telling=telling)
        reason = f"undecided at prompt {worst.r}, count {int(worst.margin.argmin())}, and no failing string found"
        try:
            failure = self._failure(reading, effort.seed, until)
        except TimeIsUp:
            return Finding.open(ARGUMENT, f"{reason} before the {effort.limit} ended; raise it")
        return Finding.open(ARGUMENT, reason) if failure is None else Finding.refuted(ARGUMENT, failure)

    def _failure(self, reading: Reading, seed: int, until: Deadline) -> Failure | None:
        """A string that is wrong: in balls, or where the module computes in the format, in a run of it.

        Raises: TimeIsUp.
        """
        fmt = reading.format if isinstance(reading, Rounded) else None
        if fmt is not None and format_of(self.module.dtype) != fmt:
            return None
        rng = random.Random(seed)
        for tokens in itertools.chain(self._few(), (self.draw(rng) for _ in range(RUNS))):
            until.check()
            for prompt in np.nonzero(~(margins(self.module, [tokens])[0] > 0))[0]:
                if fmt is not None or bool(self.exact(tokens)[prompt] <= 0):
                    return self.replay(tokens, int(prompt), reading)
        return None

    def _few(self) -> Iterator[Tokens]:
        """Telling strings, the simplest first: nothing but m delimiters and ones in one of the gaps."""
        for M in range(self.domain.most + 1):
            for place in range(2 * M + 1):
                for n in {0, 1, self.domain.N - 2 * M}:
                    gaps = [[ONE] * n if m == place else [] for m in range(2 * M + 1)]
                    tokens = gaps[0] + [t for m, gap in enumerate(gaps[1:]) for t in (CLOSE if m % 2 else OPEN, *gap)]
                    if self.domain.has(tokens):
                        yield tuple(tokens)

    def look(self, item: Tokens, answer: int, reading: Reading) -> OneRun:
        return OneRun(at_most=float_above(self.exact(item)[answer])) if isinstance(reading, Real) else OneRun()

    def _telling(self, cells: Sequence[PromptCell]) -> Iterator[tuple[Tokens, int]]:
        """For each prompt the plainest string of its tightest cell."""
        for c in cells[:MOST_TELLING]:
            k = int(c.margin.argmin())
            tokens = [OPEN, CLOSE] * (c.r - 1) + ([OPEN, *[ONE] * k, CLOSE] if k else [])
            if self.domain.has(tokens):
                yield tuple(tokens), c.r - 1

    def batches(self) -> Iterator[list[Tokens]]:
        if self.domain.N > LONGEST_RUN:
            raise BadInput(
                f"method=exhaustive: runs strings of up to {LONGEST_RUN} tokens. Use --method certified, or a smaller "
                "--length."
            )
        for _, group in itertools.groupby(self.domain.enumerate(), len):
            while part := [tuple(tokens) for tokens in itertools.islice(group, BATCH)]:
                yield part

    def replay(self, wrong: Tokens, answer: int, reading: Reading) -> Failure:
        import torch

        tokens, expected = list(wrong), answers(list(wrong), self.module.R)
        with torch.no_grad():
            said = module_of(self.module)(torch.tensor(tokens, dtype=torch.long)).argmax(-1).tolist()
        found = {
            "input": written(tokens),
            "string": written(tokens),
            "length": len(tokens),
            "prompt": answer + 1,
            "expected": expected[answer],
            "predicted": said[answer] if said[answer] != expected[answer] else None,
            "all_expected": expected,
            "all_module_answers": said,
        }
        is_real = isinstance(reading, Real)
        margin = float_above(self.exact(wrong)[answer]) if is_real else float(margins(self.module, [wrong])[0, answer])
        return Failure(found, margin if margin <= 0 else None)


@dataclass(frozen=True)
class Bidirectional(OnStrings):
    """One bidirectional model with absolute positions: a `Decidable`.

    >>> from constructions.contextual_positions_arrays import build
    >>> from verify.frame.decide import certify
    >>> certify(Bidirectional.of(build(16, 2))).verdict.value
    'PROVED'
    """

    task = "contextual counting, bidirectional"
    judges = MODEL
    is_causal = False
    computes = (
        "x = E + positions; x' = x + softmax(x W_Q (x W_K)^T) x W_V W_O, attending before and after; "
        "x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; logits = softmax(P U_Q (x'' U_K)^T) x'' U_V W_out + b_out"
    )

    def proof(self, fmt: Format | None, until: Deadline) -> Proof:
        return Proof(self.weights, self.domain.N, self.domain.R, fmt, until)

    def positions(self) -> dict[str, object]:
        return {"coordinates": self.module.W_Q.shape[1] - 1}
