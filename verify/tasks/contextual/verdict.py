"""Contextual counting: one model on every valid string of a domain and every prompt, as `verify.frame.decide` asks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from constructions.model_arrays import name_of
from verify.arithmetic.contract import STORED
from verify.arithmetic.formats import Format
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.frame import decide
from verify.frame.arguments import check_whole_number
from verify.frame.certificate import Certificate
from verify.frame.decide import Effort, Failure, Finding, Item, check_not_accumulated, no_reading
from verify.frame.unmade import check_judged
from verify.tasks.contextual import MODEL, dtype, proof
from verify.tasks.contextual.rounding import CONTRACT
from verify.tasks.contextual.runs import counterexample, margin_at_most, margins
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.task import StringDomain
from verify.tasks.contextual.valid_strings import OnValidStrings

if TYPE_CHECKING:
    from verify.tasks.contextual.model import ContextualModel

FORMULA = (
    "encoder x' = x + softmax(x W_Q (x W_K)^T, causal) x W_V W_O, x'' = x' + ReLU(x' W_1 + b_1) W_2 + b_2; "
    "logits = softmax(P U_Q (x'' U_K)^T) x'' U_V W_out + b_out"
)
REGIONS = "the prompts are 1..R, and a region that is not there counts 0"
RIGHT = "right means: the right class has strictly the largest logit"


def domain_of(
    module: ContextualModel, N: int, *, regions: int | None = None, exactly: bool = False, zeros: int | None = None
) -> StringDomain:
    """Returns the strings to judge a model on. Without BOS the empty string is left out: there is nothing to attend to.

    Raises: BadInput for impossible sizes, or counts that the model has no class for.
    """
    check_judged(module, MODEL)
    check_whole_number("length", N)
    R = module.R if regions is None else regions
    check_whole_number("regions", R)
    domain = StringDomain(N, R, R if exactly else 0, 0 if module.has_bos else 1, zeros)
    classes = len(module.b_out)
    if R and classes <= N - 2:
        raise BadInput(f"length={N}: the model has classes 0 to {classes - 1}; use --length {classes + 1} or less")
    return domain


@dataclass(frozen=True)
class ContextualCounting(OnValidStrings):
    """One model without positions on the strings of a domain: a `Decidable`."""

    task = "contextual counting"

    def __post_init__(self) -> None:
        check_judged(self.module, MODEL)

    @cached_property
    def stored(self) -> StoredContextual:
        return StoredContextual.of(self.module)

    def parameters(self, reading: Reading) -> dict[str, object]:
        found = {
            "length": self.domain.N,
            "regions": self.domain.R,
            "exactly": self.domain.fewest == self.domain.R,
            "zeros": self.domain.zeros,
            "prompts": self.module.R,
            "dtype": name_of(self.module.dtype),
            **self.named,
        }
        return found | ({"precision": reading.format.name} if isinstance(reading, Rounded) else {})

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            raise no_reading(reading, self.task, "real, or a dtype")
        check_not_accumulated(reading, self.task)
        if isinstance(reading, Kernel):
            return ("this torch kernel, all strings of one length in one batch",)
        if isinstance(reading, Real):
            return FORMULA, f"{STORED}; {REGIONS}", RIGHT
        return FORMULA, REGIONS, RIGHT, *CONTRACT.text(reading.format)

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Rounded):
            return dtype.prove(self, reading.format, effort)
        return proof.prove(self, effort)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        return (
            OneRun(at_most=margin_at_most(self.stored, list(item), answer)) if isinstance(reading, Real) else OneRun()
        )

    def batches(self) -> Iterator[list[Item]]:
        """All strings of one length at a time."""
        if 4**self.domain.N > proof.LARGEST_RUN:
            raise BadInput(f"length={self.domain.N}: running every string is for lengths up to 10; use the proof")
        for _, strings in itertools.groupby(self.domain.enumerate(), key=len):
            yield [tuple(tokens) for tokens in strings]

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        """Runs the string through the module in its dtype."""
        margin = float(margins(self.module, [item])[0, answer])
        return Failure(counterexample(self.module, list(item), answer), margin if margin == margin else None)

    def wrong_in_real_arithmetic(self, tokens: list[int], prompt: int) -> Failure:
        """A failure of real arithmetic, with the module's own run beside it."""
        margin = min(0.0, margin_at_most(self.stored, tokens, prompt))
        return Failure(counterexample(self.module, tokens, prompt), margin)


def certify(
    module: ContextualModel,
    domain: StringDomain,
    *,
    fmt: Format | None = None,
    claim: str | None = None,
    **named: object,
) -> Certificate:
    """PROVED, REFUTED or UNKNOWN from the stored weights alone, in real arithmetic or in every order of a format.

    Claim: B-2.1, B-2.2, B-3.4. `named` are further parameters for the certificate.
    Raises: BadInput for weights that are not finite, or that the format does not hold.

    >>> from constructions.contextual_counting import build
    >>> module = build(64, 3)
    >>> certify(module, domain_of(module, 64)).verdict.value
    'PROVED'
    """
    reading = Real() if fmt is None else Rounded(fmt)
    return decide.certify(ContextualCounting(module, domain, claim, named), reading)


def exhaustive(
    module: ContextualModel, domain: StringDomain, *, claim: str | None = None, **named: object
) -> Certificate:
    """Runs the module itself on every string of the domain.

    Raises: BadInput where these are too many.
    """
    return decide.exhaustive(ContextualCounting(module, domain, claim, named))
