"""The table of rules: one function per ATen operation, without a branch on data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from verify.engine.balls import Arithmetic, Ball, Unsure

Rule = Callable[..., Any]
Function = TypeVar("Function", bound=Rule)
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Function], Function]:
    """Registers a function as the rule of these ATen operations, named as in "aten.mm.default"."""

    def register(function: Function) -> Function:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
        return function

    return register


def statement(function: Rule) -> str:
    """What a rule says in its first sentence."""
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def as_ball(at: Arithmetic, x: Any, like: Tensor) -> Ball:
    """A ball from a ball, a tensor of whole numbers or truth values, or a Python number."""
    if isinstance(x, Ball):
        return x
    if isinstance(x, Tensor):
        exact = Ball(x.to(torch.float64))
        is_small = x.dtype == torch.bool or at.is_real
        return exact if is_small else Ball(exact.mid, at.checked(exact.mid.abs(), exact.mid.abs() * at.u))
    if isinstance(x, Unsure):
        half = torch.full_like(x.value, 0.5, dtype=torch.float64)
        return Ball(torch.where(x.known, x.value.to(torch.float64), half), torch.where(x.known, 0.0, half))
    return at.number(x, like)


def midpoint(*xs: Any) -> Tensor:
    """Some tensor among the arguments, for its device."""
    for x in xs:
        if isinstance(x, Ball):
            return x.mid
        if isinstance(x, Unsure):
            return x.value
        if isinstance(x, Tensor):
            return x
    return torch.zeros(())
