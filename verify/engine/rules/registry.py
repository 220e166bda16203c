"""The table of rules: one function per ATen operation, without a branch on data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from verify.engine.balls import Arithmetic, Ball, Unsure, Value, Whole
from verify.engine.dtypes import FLOATS, as_float

Rule = Callable[..., Any]
Function = TypeVar("Function", bound=Rule)
RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Cover:
    """An operation is covered where torch computes it in one of these dtypes, by this rule.

    Arguments are cast to that dtype before, except those at the places `aside`: a condition, or places in a tensor. A
    rule of intervals is told the dtype besides.
    """

    rule: Rule
    dtypes: frozenset[torch.dtype]
    aside: tuple[int, ...] = ()
    is_of_intervals: bool = False


COVERS: dict[str, list[Cover]] = {}


def rule(
    *names: str, dtypes: frozenset[torch.dtype] = FLOATS, aside: tuple[int, ...] = ()
) -> Callable[[Function], Function]:
    """Registers a function as the rule of these ATen operations, named as in "aten.mm.default"."""

    def register(function: Function) -> Function:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
            covers(name, Cover(function, dtypes, aside))
        return function

    return register


def covers(name: str, cover: Cover) -> None:
    """Says what covers an operation in some dtypes, in which nothing else does."""
    before = COVERS.setdefault(name, [])
    assert not any(other.dtypes & cover.dtypes for other in before), name
    before.append(cover)


def cover_of(name: str, dtype: torch.dtype | None) -> Cover | None:
    """What covers an operation in a dtype; None where nothing does."""
    return next((cover for cover in COVERS.get(name, []) if dtype in cover.dtypes), None)


def statement(function: Rule) -> str:
    """What a rule says in its first sentence."""
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def as_ball(at: Arithmetic, x: Value, like: Tensor) -> Ball:
    """A ball from a ball, from whole numbers or truth values, or from a Python number."""
    return as_float(at, x) if isinstance(x, Ball | Tensor | Unsure | Whole) else at.number(x, like)


def midpoint(*xs: object) -> Tensor:
    """Some tensor among the arguments, for its device."""
    for x in xs:
        if isinstance(x, Ball):
            return x.mid
        if isinstance(x, Unsure):
            return x.value
        if isinstance(x, Whole):
            return x.low
        if isinstance(x, Tensor):
            return x
    return torch.zeros(())
