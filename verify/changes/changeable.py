"""What a task gives, so that the numbers of its models can be changed: questions, the readout, and its own verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from flint import arb, fmpq
from torch import Tensor, nn

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Key
from verify.arithmetic.readings import Reading
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import numbers
from verify.frame.certificate import CERTIFIED, Certificate
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import Decidable, Effort, decide

if TYPE_CHECKING:
    from verify.engine.capture import Graph

ONE_DECISION = 0.2  # of the time that is left
MOST_NUMBERS = 1 << 25  # hidden numbers and tokens of all questions together: 256 MiB
AT_ONCE = 1 << 13  # questions that are run at a time
SCORES = 1 << 19  # of one head's attention to all tokens of them

M = TypeVar("M", bound=nn.Module)
Decide = Callable[[nn.Module, Reading, Effort], Certificate]


@dataclass(frozen=True)
class Questions:
    """Positions of token sequences with the class that is right there.

    Shapes: tokens (n, length), position (n,), right (n,).
    """

    tokens: Tensor
    position: Tensor
    right: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Tensor | np.ndarray | slice) -> Questions:
        chosen = torch.as_tensor(index) if isinstance(index, np.ndarray) else index
        return Questions(self.tokens[chosen], self.position[chosen], self.right[chosen])

    def __add__(self, more: Questions) -> Questions:
        both = ((self.tokens, more.tokens), (self.position, more.position), (self.right, more.right))
        return Questions(*(torch.cat(columns) for columns in both))


@dataclass(frozen=True)
class Sampling:
    """How questions of a domain that is too large to be listed are met.

    `drawn` gives so many at random, by a seed; `near` those that differ from given ones in one token; `of` the question
    that a counterexample names.
    """

    drawn: Callable[[int, int], Questions]
    near: Callable[[Questions], Questions]
    of: Callable[[Mapping[str, object]], Questions]


@dataclass(frozen=True)
class ChangeableReadout:
    """The last linear layer of a module by the names of its weight (p, C), or (C, p) if transposed, and bias (C,).

    Without a bias, what is said of p + 1 numbers holds of p.
    """

    weight: str
    bias: str | None
    is_transposed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Those that there are."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def of(self, module: nn.Module) -> Array:
        """The weight, and the bias as its last row: (p + 1, C)."""
        W = numbers(module.get_parameter(self.weight))
        W = W.T if self.is_transposed else W
        return W if self.bias is None else np.vstack([W, numbers(module.get_parameter(self.bias))])

    def replaced(self, module: nn.Module, X: Array) -> nn.Module:
        """A copy of the module with this readout, each number rounded once to the module's dtype."""
        W = X if self.bias is None else X[:-1]
        numbers = {self.weight: torch.from_numpy((W.T if self.is_transposed else W).copy())}
        if self.bias is not None:
            numbers[self.bias] = torch.from_numpy(X[-1].copy())
        return with_numbers(module, numbers)


def with_numbers(module: nn.Module, numbers: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the module with these tensors in place of its own, each number rounded once to the tensor's dtype."""
    copied = deepcopy(module)
    for name, value in numbers.items():
        owner, _, own = name.rpartition(".")
        rounded = value.to(module.get_parameter(name).dtype)
        setattr(copied.get_submodule(owner), own, nn.Parameter(rounded, requires_grad=False))
    return copied


@dataclass(frozen=True)
class Changeable:
    """One model on the questions of its domain, whose answer at each is the largest number of hidden @ W + b.

    `questions` are all that there are, each way in which the model cannot but give the same answer once. `decide` is
    the task's own verdict on a module of the same type, and `file` its bytes on disk. `enclosed` gives the hidden
    numbers of an input at a position, and 1 as the last one, by so many bits. `terms` gives the same times a positive
    number, each as rational multiples of numbers that are linearly independent over the rationals; None where it
    cannot. `loose` says for which tensors torch reads a relative bit more than is stored, as where it divides by the
    double sqrt(d). `root` is the d of a sqrt(d) among `terms`, 1 where there is none. `sampling` is how questions are
    met where they cannot be listed, None where they always can. `decision_takes` are seconds of a verdict before it
    looks at its clock. `posed` says the same of another module of the
    same type and shapes.
    """

    module: nn.Module
    readout: ChangeableReadout
    length: int
    questions: Callable[[], Questions]
    decide: Decide
    file: Callable[[nn.Module], bytes]
    enclosed: Callable[[Tensor, int, int], list[arb]]
    terms: Callable[[Tensor, int], list[dict[Key, fmpq]] | None]
    posed: Callable[[nn.Module], Changeable]
    loose: Mapping[str, float] = field(default_factory=dict)
    sampling: Sampling | None = None
    root: int = 1
    trace_takes: float = 0.0
    decision_takes: float = 0.0

    def chosen(self, tensors: Collection[str] | None) -> tuple[str, ...]:
        """The names of tensors, all by default.

        Raises: BadInput for a name that is no tensor of the model.
        """
        names = tuple(name for name, _ in self.module.named_parameters())
        for name in tensors or ():
            if name not in names:
                raise BadInput(f"tensors={name!r}: the model has {', '.join(names)}.")
        return names if tensors is None else tuple(tensors)

    @cached_property
    def hidden_module(self) -> nn.Module:
        """The module in float64, with the identity for its readout: what it returns are the hidden numbers."""
        has_bias = int(self.readout.bias is not None)
        p = len(self.readout.of(self.module)) - has_bias
        identity = np.vstack([np.eye(p), np.zeros((has_bias, p))])
        return self.readout.replaced(deepcopy(self.module).double(), identity).eval()

    @cached_property
    def hidden_graph(self) -> Graph:
        """The graph of `hidden_module`, captured once."""
        from verify.engine.capture import capture

        return capture(self.hidden_module, self.length)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the module in float64, captured once."""
        from verify.engine.capture import capture

        return capture(deepcopy(self.module).double().eval().requires_grad_(False), self.length)

    def is_traced(self, until: Deadline | None) -> bool:
        """Whether it is traced at its own length, or can be by then."""
        if until is None or not self.trace_takes or "hidden_graph" in vars(self):
            return True
        return self.trace_takes < until.left()

    def is_decided(self, until: Deadline | None) -> bool:
        """Whether a verdict can look at its clock by then."""
        return until is None or not self.decision_takes or self.decision_takes < until.left()

    @property
    def at_once(self) -> int:
        """How many questions are run between two looks at the clock."""
        return max(1, min(AT_ONCE, SCORES // self.length**2))

    def hidden(self, questions: Questions, until: Deadline | None = None) -> Array:
        """The hidden numbers in float64, and 1 as the last one for the bias: (n, p + 1).

        Raises: TimeIsUp.
        """
        until = until or Deadline.never()
        H = np.ones((len(questions), len(self.readout.of(self.module))))  # in one piece: small ones would pin the heap
        with torch.no_grad():
            for start in range(0, len(questions), self.at_once):
                until.check()
                some = questions[slice(start, start + self.at_once)]
                output = self.hidden_module(some.tokens)
                rows = output.reshape(len(some), -1, output.shape[-1])
                H[start : start + len(some), : output.shape[-1]] = rows[torch.arange(len(some)), some.position]
        return H


def of_kind(
    kind: type[M], problem: Callable[[M, Reading], Decidable], file: Callable[[M], bytes]
) -> tuple[Decide, Callable[[nn.Module], bytes]]:
    """The verdict on any module of a kind, as the problem that a task makes of it, and its bytes on disk."""

    def verdict(changed: nn.Module, reading: Reading, effort: Effort) -> Certificate:
        assert isinstance(changed, kind)
        return decide(problem(changed, reading), reading, CERTIFIED, effort)

    def written(changed: nn.Module) -> bytes:
        assert isinstance(changed, kind)
        return file(changed)

    return verdict, written


class TooMany(BadInput):
    """A domain with more questions than can be listed."""


def check_listed(number: int, columns: int, length: int, where: str) -> None:
    """Raises: TooMany where so many questions of so many hidden numbers cannot be listed."""
    if number * (columns + length) > MOST_NUMBERS:
        raise TooMany(
            f"{where}: {number} questions of {columns} hidden numbers each are too many to be listed "
            f"({MOST_NUMBERS} numbers in all). Use a smaller domain."
        )


def one_decision(effort: Effort, deadline: Deadline) -> Effort:
    """What one of several decisions may take of the time that is left."""
    return replace(effort, budget=Budget(max(0.0, deadline.left() * ONE_DECISION), effort.clock))
