"""Any torch module decided on every input of a finite token domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from verify.arithmetic.readings import reading_of
from verify.frame.certificate import CERTIFIED, Certificate, Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort, decide
from verify.frame.tracing import load_tracer
from verify.module.automaton import (
    Automaton,
    compose,
    count_of_last,
    dyck,
    each_prefix,
    first_repeated,
    largest,
    majority,
    smallest,
    sorted_at,
    sum_modulo,
)
from verify.module.cells import Aim
from verify.module.inputs import Domain, strings, tokens
from verify.module.problem import ModuleProblem
from verify.module.recurrence import Recurrence
from verify.module.recurrent import RecurrentProblem
from verify.module.task import Task

__all__ = [
    "Automaton", "Domain", "ModuleProblem", "Recurrence", "RecurrentProblem", "Task", "assert_proved", "certify",
    "certify_recurrence", "compose", "count_of_last", "dyck", "each_prefix", "first_repeated", "largest", "majority",
    "smallest", "sorted_at", "strings", "sum_modulo", "tokens",
]  # fmt: skip


def certify(
    module: nn.Module,
    *,
    inputs: object,
    expected: Callable[[Tensor], object],
    position: int | Sequence[int] | None = -1,
    classes: Iterable[int] | None = None,
    reading: str = "real",
    accumulate: str | None = None,
    rounding: str = "any",
    method: str = CERTIFIED,
    budget: float | Budget = 30.0,
    seed: int = 0,
    device: str = "cpu",
    resume: str | None = None,
    aim: Aim = "accuracy",
) -> Certificate:
    """Decides a module on every input of a finite domain: right means that the right class has the largest logit.

    `reading` is "real", or a dtype for every order of evaluation ("float32", "bfloat16", "p12", ...); with sums in
    `accumulate`, and `rounding` "once", each result is rounded once. `resume` is a folder in which a search by cells
    keeps what it has found, and from which it goes on. `aim` is "accuracy", all right and wrong inputs counted, or
    "verdict", which ends at the first wrong one.
    Raises: BadInput for a module that no rule covers, naming the source line, or arguments that make no task.

    >>> import torch
    >>> class Parity(nn.Module):
    ...     def forward(self, t):
    ...         s = (1 - 2 * t[:, :1]).double() * (1 - 2 * t[:, 1:])
    ...         return torch.cat([s, -s], dim=1)
    >>> certify(Parity().eval(), inputs=tokens([2, 2]), expected=lambda t: t.sum(1) % 2).verdict
    <Verdict.PROVED: 'PROVED'>
    """
    problem = ModuleProblem(module, Task(inputs, expected, position, classes), device, resume, aim)
    load_tracer()
    return decide(problem, reading_of(reading, accumulate, rounding), method, Effort(budget, seed))


def certify_recurrence(
    cell: nn.Module,
    *,
    start: object,
    expected: Automaton,
    vocabulary: int | Iterable[int] = 1,
    length: int | None = None,
    reading: str = "real",
    accumulate: str | None = None,
    method: str = CERTIFIED,
    budget: float | Budget = 30.0,
    seed: int = 0,
) -> Certificate:
    """Decides a recurrent cell, cell(state, token) -> (state, logits), on all strings of up to `length` tokens.

    All lengths where it is None. `start`, `expected` and `vocabulary` are those of a `Recurrence`. `reading` is "real",
    or a format for every order of evaluation; the methods "exhaustive" and "sampled" run torch.
    Raises: BadInput for a cell that no rule covers, naming the source line, or arguments that make no task.

    >>> import torch
    >>> class Turn(nn.Module):
    ...     def forward(self, state, token):
    ...         after = torch.stack([-state[1], state[0]])
    ...         return after, torch.stack([after[0], after[1], -after[0], -after[1]])
    >>> fourth = Automaton(0, lambda state, token: (state + 1) % 4, lambda state: state)
    >>> certify_recurrence(Turn().eval(), start=torch.tensor([1.0, 0.0]), expected=fourth, length=100).verdict
    <Verdict.PROVED: 'PROVED'>
    """
    problem = RecurrentProblem(cell, Recurrence(start, expected, vocabulary), length)
    load_tracer()
    return decide(problem, reading_of(reading, accumulate), method, Effort(budget, seed))


def assert_proved(module: nn.Module, **task: Any) -> Certificate:
    """The certificate of `certify`, where it says PROVED.

    Raises: AssertionError with the counterexample or the reason otherwise; BadInput as `certify`.

    >>> import torch
    >>> sevens = torch.nn.Embedding.from_pretrained(7 * torch.eye(3))
    >>> model = torch.nn.Sequential(sevens, torch.nn.Flatten()).eval()
    >>> assert_proved(model, inputs=tokens([3]), expected=lambda t: t[:, 0]).inputs_covered
    3
    """
    certificate = certify(module, **task)
    if certificate.verdict is not Verdict.PROVED:
        raise AssertionError(f"{certificate.verdict}: {certificate.counterexample or certificate.reason}")
    return certificate
