"""Torch's tracer: what loads it before a clock starts, and the margin of one input by the graph that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import torch
from torch import nn

from verify.arithmetic.formats import format_of
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.margins import Question
from verify.engine.run import enclose


@cache
def load_tracer() -> None:
    """Loads what torch traces modules with, by tracing a small one: start-up, and no part of any search."""
    capture(nn.Embedding(2, 2).eval(), 1)


def ends(module: nn.Module, tokens: Sequence[int], right: int, row: int = -1, **options: object) -> tuple[float, float]:
    """The margin of class `right` in a row of what the module returns for these tokens: at least in a run, and at most.

    It is at least the first number in the module's own dtype, sums in any order; and at most the second one in real
    arithmetic. `options` are further arguments of its forward.
    Raises: BadInput where there is no rule for an operation of the module.
    """
    graph = capture(deepcopy(module).eval(), len(tokens), arguments=options)
    question = Question((range(graph.output.shape[1])[row],), None)
    asked = torch.tensor([list(tokens)], dtype=torch.long), torch.tensor([[right]])
    low, _ = enclose(graph, Arithmetic(format_of(graph.coarsest), has_norms=True), question)(*asked)
    _, high = enclose(graph, Arithmetic(), question)(*asked)
    return float(low[0].nan_to_num(-torch.inf)), float(high[0].nan_to_num(torch.inf))
