"""Every input of a domain at the price of a forward pass: plain float64 runs, and one radius for all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.margins import own_and_rival
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, U
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph
from verify.engine.margins import Question
from verify.engine.plain import Plain
from verify.engine.radius import radii
from verify.engine.run import enclosed_weights
from verify.engine.tables import NoRadius, Sets, Tables

DOUBLE = FORMATS["float64"]
SAMPLE = 256  # inputs whose deviations in LayerNorm are looked at
FLOOR = 0.5  # of the least deviation among them: inputs that have less are left to other models


class Enumeration:
    """Bounds on the margins of many inputs by a plain run of each: a model as `enclose` makes them.

    `sets` are the tokens of each position. In a dtype the run is on the rounded weights, and the radius bounds any run
    of the reading besides.
    Raises: NoRadius.
    """

    def __init__(
        self,
        graph: Graph,
        question: Question,
        sets: Sets,
        fmt: Format | None = None,
        accumulate: Format | None = None,
        device: str = "cpu",
    ) -> None:
        if graph.around:
            raise NoRadius("the weights are not known exactly")
        if fmt is not None:
            graph = rounded(graph, Arithmetic(fmt, accumulate))
        self.question, self.tables = question, Tables(graph, sets)
        found = self.tables.balls(Arithmetic(DOUBLE, has_norms=True))
        self.plain = Plain(graph, self.tables, found, device)
        self.thresholds = self._thresholds(sets, device)
        floors = dict(zip(self.tables.norms, self.thresholds.tolist(), strict=True))
        radius, both = radii(graph, question, self.tables, DOUBLE, None, floors, found)
        if fmt is not None and fmt is not DOUBLE:
            found = self.tables.balls(Arithmetic(fmt, accumulate, has_norms=True))
            more, _ = radii(graph, question, self.tables, fmt, accumulate, both, found)
            radius = (radius + more) * (1 + 2.0**-40)
        if not bool(torch.isfinite(radius).any()):
            raise NoRadius("the slopes over the whole domain are unbounded")
        self.radius = radius.to(device)

    def __call__(self, tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on each margin (N,), NaN where LayerNorm divides by less than was allowed for."""
        output, deviations = self.plain(tokens)
        logits = torch.vmap(self.question.chosen)(output)
        low, high = margins_within(logits, self.radius, answers)
        is_covered = (deviations >= self.thresholds).all(1)
        nothing = torch.full_like(low, math.nan)
        return torch.where(is_covered, low, nothing), torch.where(is_covered, high, nothing)

    def _thresholds(self, sets: Sets, device: str) -> Tensor:
        """What each LayerNorm's sqrt(variance + eps) has to be at least in a run."""
        draw = torch.Generator().manual_seed(0)
        columns = [torch.tensor(list(s))[torch.randint(len(s), (SAMPLE,), generator=draw)] for s in sets]
        try:
            _, deviations = self.plain(torch.stack(columns, 1).to(device))
        except (RuntimeError, IndexError, TypeError) as error:  # of torch's, of what has another rule here
            raise NoRadius(f"the graph does not run in float64: {error}") from None
        return FLOOR * deviations.amin(0)


def margins_within(logits: Tensor, radius: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds on the least margin over the positions of each input, as `margins` gives them, and faster.

    NaN where a logit is no number. The radius is enlarged by four roundings of numbers as large as the largest logit:
    one is made in each sum with it, and one more is its share of a difference, which is up to twice that size.
    Shapes: logits (N, positions, classes), radius (positions, classes), answers (N, positions).
    """
    largest = torch.maximum(logits.amax((1, 2)), -logits.amin((1, 2)))
    is_finite = torch.isfinite(largest)
    most = torch.where(is_finite, largest, torch.zeros_like(largest)).amax()
    wide = (radius + 4 * U * (most + radius)) * ENLARGE + LOST
    ends = logits + wide
    own_up, rival_up = own_and_rival(ends, answers, overwrites=True)
    torch.sub(logits, wide, out=ends)
    own_down, rival_down = own_and_rival(ends, answers, overwrites=True)
    low, high = (own_down - rival_up).amin(1), (own_up - rival_down).amin(1)
    nothing = torch.full_like(low, math.nan)
    return torch.where(is_finite, low, nothing), torch.where(is_finite, high, nothing)


def rounded(graph: Graph, at: Arithmetic) -> Graph:
    """The graph with its stored numbers rounded as a dtype stores them."""
    found = enclosed_weights(graph, at)
    if any(isinstance(x, Ball) and x.rad is not None for x in found.values()):
        raise NoRadius("a stored number is not exact in the dtype")
    stored = {name: x.mid if isinstance(x, Ball) else x for name, x in found.items()}
    return replace(graph, stored=stored)
