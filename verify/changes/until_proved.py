"""Training that ends in a proof: rounds of training, a verdict after each, and practice on the closest calls.

A round trains, lets the task's own verifier decide the stored numbers, and, where they are wrong, draws many inputs and
keeps those on which the right answer is least ahead; these are half of the next round's batches. Where few inputs are
wrong, the readout is repaired. Only the verifier says PROVED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.training import Recipe, load_optimizers, train
from verify.arithmetic.outward import float_at_least
from verify.arithmetic.readings import Reading, Real
from verify.changes.changeable import Changeable, Decide
from verify.changes.repair import RepairOutcome, repair
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Deadline
from verify.frame.decide import Effort

REPAIRABLE = 0.003  # share of wrong answers below which a repair is tried
LEAST = 0.2  # seconds of a verdict, even where no time is left: small models are decided in them
DECIDING = 0.15  # of the time that is left, for the verdict on a round, and for a repair
GENTLER = 0.3  # by which the rate is divided more in each round


@dataclass(frozen=True)
class Lesson:
    """A module to be trained, and what it is to know.

    `loss` draws its batch from a generator, half of it from the hard inputs where there are any; `hard` says, by a seed
    and the hard ones so far, which inputs need practice most. `decided` is the verdict on the module as it
    stands, `changeable` its readout, None where that is not changed, and `file` its bytes on disk.
    """

    module: nn.Module
    recipe: Recipe
    loss: Callable[[torch.Generator, Tensor], Tensor]
    hard: Callable[[int, Tensor], Tensor]
    decided: Decide
    file: Callable[[nn.Module], bytes]
    changeable: Callable[[nn.Module], Changeable] | None = None


@dataclass(frozen=True)
class Round:
    """What one round of training came to; `wrong` is the share of wrong answers at most, None where it is not known."""

    steps: int
    loss: float
    verdict: Verdict
    wrong: float | None
    repaired: RepairOutcome | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values.

        >>> one = Round(10, 0.5, Verdict.REFUTED, 0.001, RepairOutcome.PROVED)
        >>> Round.from_dict(one.to_dict()) == one
        True
        """
        repaired = None if self.repaired is None else self.repaired.value
        found = {"steps": self.steps, "loss": self.loss, "verdict": self.verdict.value}
        return found | {"wrong_at_most": self.wrong, "repaired": repaired}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Round:
        repaired = None if said["repaired"] is None else RepairOutcome(said["repaired"])
        return cls(int(said["steps"]), float(said["loss"]), Verdict(said["verdict"]), said["wrong_at_most"], repaired)


@dataclass
class State:
    """How far a training has come: the rounds, the inputs that need practice, and the best model so far."""

    rounds: list[Round] = field(default_factory=list)
    hard: Tensor | None = None
    best: nn.Module | None = None
    certificate: Certificate | None = None

    def note(self, module: nn.Module, certificate: Certificate) -> None:
        """Keeps the model if none before it was known to be wrong on fewer answers."""
        before, now = (share_of_wrong(each) for each in (self.certificate, certificate))
        if certificate or before is None or (now is not None and now <= before):
            self.best, self.certificate = deepcopy(module), certificate


def share_of_wrong(certificate: Certificate | None) -> float | None:
    """The share of wrong answers at most, None where the certificate does not say it."""
    if certificate is None:
        return None
    if certificate:
        return 0.0
    if certificate.error_share is not None:
        return float_at_least(certificate.error_share[1])
    with suppress(KeyError, ZeroDivisionError, TypeError):
        counts = {name: int(number) for name, number in certificate.extra["counts"].items()}
        return float_at_least(1 - Fraction(counts["right"], sum(counts.values())))
    return None


def until_proved(
    course: Lesson,
    effort: Effort,
    reading: Reading | None = None,
    state: State | None = None,
    after: Callable[[State], None] = lambda state: None,
) -> State:
    """Trains until the verifier says PROVED, or the time is up; `after` is told of every round.

    Raises: BadInput where the task has no such reading.
    """
    reading, state = reading or Real(), state or State()
    load_optimizers()
    deadline, module = effort.deadline(), course.module
    whole = max(deadline.left(), 1e-9)
    while not (state.certificate or deadline.is_up()):
        number = len(state.rounds)
        effort.progress(1 - max(deadline.left(), 0.0) / whole)
        until = deadline.part(1 - DECIDING)
        hard = torch.empty(0) if state.hard is None else state.hard
        module.requires_grad_(True)
        training = train(
            module,
            lambda g, hard=hard: course.loss(g, hard),  # type: ignore[misc]
            course.recipe.slower(1 + GENTLER * number),
            effort.seed * 1000 + number,
            is_over=until.is_up,
        )
        module.requires_grad_(False)
        part = _for_a_verdict(effort, deadline, until)
        certificate = course.decided(module, reading, part)
        state.note(module, certificate)
        wrong, repaired = share_of_wrong(certificate), None
        if not certificate and wrong is not None and wrong < REPAIRABLE and course.changeable is not None:
            repaired = _repaired(course, module, reading, _for_a_verdict(effort, deadline, until), state)
        state.rounds.append(Round(training.steps, training.loss, certificate.verdict, wrong, repaired))
        state.hard = course.hard(effort.seed * 1000 + number, hard)
        after(state)
    return state


def _for_a_verdict(effort: Effort, deadline: Deadline, until: Deadline) -> Effort:
    """What one verdict may take of the time that is left: a part of it, or all where training is over."""
    seconds = (deadline if until.is_up() else deadline.part(DECIDING)).left()
    return Effort(effort.limit.of_seconds(max(LEAST, seconds)), effort.seed)


def _repaired(
    course: Lesson, module: nn.Module, reading: Reading, effort: Effort, state: State
) -> RepairOutcome | None:
    """Repairs the readout; what is proved then is kept. None where the model's domain is too large to be listed."""
    assert course.changeable is not None
    try:
        found = repair(course.changeable(module), reading, effort)
    except BadInput:
        return None
    if found.module is not None and found.certificate is not None and found.certificate:
        state.note(found.module, found.certificate)
    return found.outcome
