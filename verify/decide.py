"""The one place that makes certificates: a problem is proved, else searched, and every failure is replayed.

A `Decidable` is one model with the domain of inputs that it is to be right on. What is special about a task is there;
the clock, the verdict, the count of inputs and the meaning of every field are here, the same for all tasks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real
from verify.certificate import Certificate, Verdict
from verify.judged import check_seconds, check_whole_number

CERTIFIED, EXHAUSTIVE, SAMPLED = "certified", "exhaustive", "sampled"
METHODS = (CERTIFIED, EXHAUSTIVE, SAMPLED)
SAMPLES = 1000


def silent(share: float) -> None:
    """Shows no progress."""


@dataclass(frozen=True)
class Effort:
    """How long to try: seconds for searches, a seed for what is drawn, and where to report the finished share."""

    budget: float = 30.0
    seed: int = 0
    progress: Callable[[float], None] = silent

    def __post_init__(self) -> None:
        check_seconds("budget", self.budget)
        check_whole_number("seed", self.seed)


@dataclass(frozen=True)
class Failure:
    """An input on which the model is wrong, already replayed.

    `counterexample` has `input`, `expected`, `predicted` and what the task adds; `margin` is (logit of the right
    answer) - (largest other logit) there, zero or negative, None where a logit is not a number.
    """

    counterexample: dict[str, Any]
    margin: float | None = None
    margin_exact: str | None = None


@dataclass(frozen=True)
class Finding:
    """What a proof found: right on the whole domain, wrong on an input, or open for a reason."""

    verdict: Verdict
    margin: float | None = None
    margin_exact: str | None = None
    margin_per_count: tuple[float | None, ...] | None = None
    tightest: dict[str, Any] | None = None
    failure: Failure | None = None
    reason: str | None = None
    error_share: tuple[Fraction, Fraction] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def proved(cls, margin: float | None, **fields: Any) -> Finding:
        """Right everywhere; `margin` is a lower bound on all margins, None where their infimum is 0."""
        return cls(Verdict.PROVED, margin=margin, **fields)

    @classmethod
    def refuted(cls, failure: Failure, **fields: Any) -> Finding:
        """Wrong on an input that was replayed."""
        return cls(Verdict.REFUTED, margin=failure.margin, margin_exact=failure.margin_exact, failure=failure, **fields)

    @classmethod
    def open(cls, reason: str, **fields: Any) -> Finding:
        """Neither proved nor refuted."""
        return cls(Verdict.UNKNOWN, reason=reason, **fields)


class Decidable(Protocol):
    """A model and the inputs on which it is to be right: what a task gives the house.

    Inputs are the task's own: any type that `run` takes in lists.
    """

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def claim(self) -> str | None:
        """The claim that the weights come from."""

    def parameters(self) -> dict[str, Any]:
        """What identifies the model's shape and the domain in a certificate."""

    def size(self) -> int | None:
        """How many inputs the domain has, None for infinitely many."""

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        """What a verdict in this reading takes for granted; BadInput where the task has no such reading."""

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        """Decides the whole domain at once, from the stored numbers."""

    def inputs(self) -> Iterator[Any]:
        """Every input, in the order in which the smallest counterexample comes first."""

    def draw(self, rng: random.Random) -> Any:
        """One input at random."""

    def run(self, inputs: list[Any], reading: Reading) -> np.ndarray:
        """The margin of each input as the module computes it: shape (len(inputs),), NaN where a logit is NaN."""

    def replay(self, wrong: Any, reading: Reading) -> Failure:
        """Runs one wrong input and says what it answers."""


def certify(problem: Decidable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Decides the problem on its whole domain.

    Raises: BadInput where the task has no such reading.
    """
    reading, effort = reading or Real(), effort or Effort()
    assumptions, started = problem.assumptions(reading), time.perf_counter()
    with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test is false for them
        finding = problem.prove(reading, effort)
    return _certificate(problem, reading, CERTIFIED, finding, assumptions, started)


def exhaustive(problem: Decidable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Runs the module on every input of the domain, as torch runs it or in constant-bit arithmetic.

    Raises: BadInput where the domain is infinite, or the run would outlast the budget.
    """
    reading, effort = _running(reading, EXHAUSTIVE), effort or Effort()
    size = problem.size()
    if size is None:
        raise BadInput("method=exhaustive: the domain has infinitely many inputs; use --method certified")
    assumptions, started = problem.assumptions(reading), time.perf_counter()
    wrong, first, margin, done = 0, None, float("inf"), 0
    for batch in _batches(problem.inputs(), effort.budget, started, size):
        margins = problem.run(batch, reading)
        is_wrong = ~(margins > 0)  # NaN is wrong
        if is_wrong.any() and first is None:
            first = batch[int(is_wrong.argmax())]
        wrong, done = wrong + int(is_wrong.sum()), done + len(batch)
        margin = min(margin, float(margins.min())) if not np.isnan(margins).any() else margin
        effort.progress(done / size)
    if done != size:
        raise AssertionError(f"the domain has {size} inputs, and {done} were run")
    counts = {"counts": {"right": str(size - wrong), "wrong": str(wrong)}}
    if first is None:
        return _certificate(problem, reading, EXHAUSTIVE, Finding.proved(margin, extra=counts), assumptions, started)
    finding = Finding.refuted(problem.replay(first, reading), extra=counts)
    return _certificate(problem, reading, EXHAUSTIVE, finding, assumptions, started)


def sampled(problem: Decidable, reading: Reading | None = None, effort: Effort | None = None) -> Certificate:
    """Runs the module on inputs drawn at random: a failure refutes, and nothing is ever proved."""
    reading, effort = _running(reading, SAMPLED), effort or Effort()
    assumptions, started, rng = problem.assumptions(reading), time.perf_counter(), random.Random(effort.seed)
    drawn = [problem.draw(rng) for _ in range(SAMPLES)]
    is_wrong = ~(problem.run(drawn, reading) > 0)
    if is_wrong.any():
        finding = Finding.refuted(problem.replay(drawn[int(is_wrong.argmax())], reading))
    else:
        finding = Finding.open(
            f"no failure among {SAMPLES} sampled inputs, and sampling never proves", extra={"samples": SAMPLES}
        )
    return _certificate(problem, reading, SAMPLED, finding, assumptions, started)


def decide(problem: Decidable, reading: Reading, method: str, effort: Effort) -> Certificate:
    """The certificate by one of METHODS."""
    if method == CERTIFIED:
        return certify(problem, reading, effort)
    return (exhaustive if method == EXHAUSTIVE else sampled)(problem, reading, effort)


def covered(verdict: Verdict, size: int | None) -> int | None:
    """How many inputs a verdict speaks for: all when PROVED (None: infinitely many), one when REFUTED, else none.

    >>> covered(Verdict.PROVED, 9), covered(Verdict.REFUTED, 9), covered(Verdict.UNKNOWN, None)
    (9, 1, 0)
    """
    return {Verdict.PROVED: size, Verdict.REFUTED: 1, Verdict.UNKNOWN: 0}[verdict]


def _running(reading: Reading | None, method: str) -> Reading:
    """The reading of a run: real stands for the kernel that torch uses here."""
    if reading is None or isinstance(reading, Real):
        return Kernel()
    if not isinstance(reading, Kernel | ConstantBits):
        raise BadInput(f"method={method}: runs one kernel, not every order; use --method certified, or no --precision")
    return reading


def _batches(
    inputs: Iterator[Any], budget: float, started: float, size: int, length: int = 4096
) -> Iterator[list[Any]]:
    """The inputs in lists, refused once the first ones show that the rest would outlast the budget."""
    batch: list[Any] = []
    done = 0
    for item in inputs:
        batch.append(item)
        if len(batch) == length:
            yield batch
            done, batch = done + length, []
            seconds = (time.perf_counter() - started) / done * size
            if done == length and seconds > budget:
                raise BadInput(
                    f"method=exhaustive: {size} inputs take about {seconds:.0f} s here, more than the budget of "
                    f"{budget:g} s. Use --method certified, or --budget {seconds * 1.5:.0f}."
                )
    if batch:
        yield batch


def _certificate(
    problem: Decidable,
    reading: Reading,
    method: str,
    finding: Finding,
    assumptions: tuple[str, ...],
    started: float,
) -> Certificate:
    return Certificate(
        finding.verdict,
        problem.claim,
        problem.task,
        problem.parameters(),
        reading.name,
        method,
        covered(finding.verdict, problem.size()),
        margin=finding.margin,
        margin_exact=finding.margin_exact,
        margin_per_count=finding.margin_per_count,
        tightest=finding.tightest,
        counterexample=None if finding.failure is None else finding.failure.counterexample,
        assumptions=assumptions,
        error_share=finding.error_share,
        reason=finding.reason,
        seconds=time.perf_counter() - started,
        extra=finding.extra,
    )
