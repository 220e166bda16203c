"""All models whose stored numbers are near those of one: gaps between logits that hold for each of them.

Two bounds. Run forward, every stored number is a ball, and the last layer acts on balls of hidden numbers. In the mean
value form (verify.engine.mean_value) a gap changes by at most slope times distance, summed over all numbers, with each
slope enclosed over the whole box, so that nothing beyond the first order is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from verify.arithmetic.slack import ENLARGE, LEAST, LOST, gamma
from verify.changes.changeable import Changeable, Questions
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph
from verify.engine.mean_value import IsPositive, gaps, least_gaps, positive_gap
from verify.engine.mean_value import Pairs as MeanValues
from verify.engine.run import enclose
from verify.frame.clock import Deadline


@dataclass(frozen=True)
class RivalQuestions:
    """Questions with one rival each. Shapes: rival (n,)."""

    questions: Questions
    rival: Tensor

    def __len__(self) -> int:
        return len(self.rival)

    def __getitem__(self, index: Tensor | slice) -> RivalQuestions:
        return RivalQuestions(self.questions[index], self.rival[index])


@dataclass(frozen=True)
class ModelBox:
    """How far each number of each tensor moves at radius 1, by the tensor's name: |w|, or 1, or 0 where it stays.

    `hidden` is the graph of the module without its readout, `graph` that of the whole; X (p + 1, C) is the readout and
    `X_reach` how far it moves.
    """

    module: nn.Module
    reach: Mapping[str, Tensor]
    graph: Graph
    hidden: Graph
    X: Tensor
    X_reach: Tensor
    readout: tuple[str, ...]
    loose: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, changeable: Changeable, tensors: Collection[str], is_relative: bool, until: Deadline) -> ModelBox:
        """The box at radius 1 of these tensors.

        Raises: TimeIsUp where it is over before a graph is captured.
        """
        module = deepcopy(changeable.module).double().eval().requires_grad_(False)
        reach = {
            name: torch.zeros_like(w) if name not in tensors else w.abs() if is_relative else torch.ones_like(w)
            for name, w in module.named_parameters()
        }
        readout = changeable.readout
        until.check()
        graph = changeable.graph
        until.check()
        hidden = changeable.hidden_graph
        weight = reach[readout.weight]
        X_reach = weight.T if readout.is_transposed else weight
        if readout.bias is not None:
            X_reach = torch.vstack([X_reach, reach[readout.bias]])
        X = torch.from_numpy(readout.of(changeable.module))
        return cls(module, reach, graph, hidden, X, X_reach, readout.names, changeable.loose)

    @property
    def is_empty(self) -> bool:
        return not any(bool(reach.any()) for reach in self.reach.values())

    @property
    def classes(self) -> int:
        return self.X.shape[1]

    def within(self, r: float) -> Within:
        """All models at a distance of at most r."""
        return Within(
            enclose(self._around(self.hidden, r, self.readout), Arithmetic(), hidden_of),
            self.X,
            (r * self.X_reach) * ENLARGE + torch.where(self.X_reach > 0, LEAST, 0.0),
            gaps(graph := self._around(self.graph, r, ()), Arithmetic(has_norms=True)),
            least_gaps(graph, Arithmetic(has_norms=True)),
            positive_gap(graph, Arithmetic(has_norms=True)),
        )

    def _around(self, graph: Graph, r: float, without: Collection[str]) -> Graph:
        """A graph whose numbers move by up to r, rounded up, and by what torch rounds of constants."""
        found = {}
        for stored_as, stored in graph.stored.items():
            name = graph.names[stored_as]
            if name in self.reach and name not in without:
                loose = self.loose.get(name, 0.0) * stored.double().abs()
                far = (r * self.reach[name] + loose) * ENLARGE
                found[stored_as] = torch.where((self.reach[name] > 0) | (loose > 0), far + LEAST, 0.0)
        return replace(graph, around=found)


@dataclass(frozen=True)
class Within:
    """Lower bounds on gaps over all models of a box, by three ways, each tried where those before do not suffice.

    `hidden` encloses the hidden numbers (n, p) of an input at a position; X and `X_off` (p + 1, C) are the readout and
    how far each of its numbers may be; `mean_values` bounds gaps by slopes, `at_ends` with numbers at one end, where
    their slopes have one sign; `is_positive` halves the box.
    """

    hidden: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    X: Tensor
    X_off: Tensor
    mean_values: MeanValues
    at_ends: MeanValues
    is_positive: IsPositive

    def are_right(self, pairs: RivalQuestions, is_over: Callable[[], bool]) -> bool:
        """Whether all these gaps are shown to be positive, the closest ones first."""
        low = self.low(pairs)
        order = low.argsort()
        return all(self._is_right(pairs[row], is_over) for row in order[~(low[order] > 0)])

    def _is_right(self, pair: RivalQuestions, is_over: Callable[[], bool]) -> bool:
        """Whether the gap of one pair is shown to be positive on halves of the box."""
        asked, C = pair.questions, self.X.shape[1]
        own, rival = asked.position * C + asked.right, asked.position * C + pair.rival
        return self.is_positive(asked.tokens, own, rival, is_over)

    def low(self, pairs: RivalQuestions) -> Tensor:
        """A lower bound on each gap (n,): by running forward, and by slopes where that is not positive."""
        asked = pairs.questions
        D = self.X[:, asked.right] - self.X[:, pairs.rival]
        R = self.X_off[:, asked.right] + self.X_off[:, pairs.rival]
        mid, rad = self._hidden(asked)
        low = torch.stack([forward(m, r, d, o) for m, r, d, o in zip(mid, rad, D.T, R.T, strict=True)])
        for by_slopes in (self.mean_values, self.at_ends):
            left = (~(low > 0)).nonzero()[:, 0]
            if len(left):
                C = self.X.shape[1]
                places = (asked.position * C + row for row in (asked.right, pairs.rival))
                found, _ = by_slopes(asked.tokens[left], *(place[left] for place in places))
                low[left] = torch.fmax(low[left], found)
        return low

    def left_by_running(self, questions: Questions) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs that running forward leaves open: rows of the questions, rivals, and lower bounds on the gaps."""
        mid, rad = self._hidden(questions)
        low = torch.full((len(questions), self.X.shape[1]), torch.inf, dtype=mid.dtype)
        for right in sorted(set(questions.right.tolist())):
            own = (questions.right == right).nonzero()[:, 0]
            D, R = self.X[:, [right]] - self.X, self.X_off[:, [right]] + self.X_off
            low[own] = forward(mid[own], rad[own], D, R)
            low[own, right] = torch.inf
        row, rival = (~(low > 0)).nonzero(as_tuple=True)
        return row, rival, low[row, rival]

    def _hidden(self, questions: Questions) -> tuple[Tensor, Tensor]:
        """The hidden numbers with 1 as the last one for a bias, and their radii: (n, p + 1) each."""
        mid, rad = self.hidden(questions.tokens, questions.position[:, None])
        one = torch.ones(len(mid), len(self.X) - mid.shape[1], dtype=mid.dtype)
        return torch.cat([mid, one], 1), torch.cat([rad, 0 * one], 1)


def hidden_of(output: Ball, tokens: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """The hidden numbers at a position, and their radii: (p,) each."""
    p = output.mid.shape[-1]
    row = position.reshape(1, 1).expand(1, p)
    mid, rad = (x.reshape(-1, p).gather(0, row)[0] for x in (output.mid, output.radius))
    return mid, rad


def forward(mid: Tensor, rad: Tensor, D: Tensor, R: Tensor) -> Tensor:
    """Lower bounds on h . d over all h within `rad` of `mid` (..., p + 1), and d within R of the stored difference.

    D (p + 1, ...) is that difference of two columns of the readout, rounded once. The least is at least
    mid . D - rad . |D| - (|mid| + rad) . R; the roundings of D, of the three sums of p + 1 products and of their terms
    are within gamma of the same sums of absolute values, and LOST covers what underflows.
    """
    size, reach = D.abs(), mid.abs() + rad
    off, everything = rad @ size + reach @ R, reach @ (size + R)
    return mid @ D - (off + gamma(4 * mid.shape[-1] + 16) * everything) * ENLARGE - LOST
