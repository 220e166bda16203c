"""Every input decided by the error models in turn: balls, vectors in the l2 norm, mean values, higher precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import U
from verify.engine import exact, few_bits
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph
from verify.engine.enumeration import Enumeration
from verify.engine.guard import Guard
from verify.engine.margins import Question
from verify.engine.mean_value import gaps
from verify.engine.run import enclose
from verify.engine.tables import NoRadius, Sets
from verify.frame.clock import Deadline
from verify.module.cells import Decided, Search

MODELS = ("cells", "tables", "plain", "balls", "l2", "mean_value", "exact")
LISTED = 1000
EXACT_BITS = (128, 512, 2048)
AT_A_TIME = 64  # inputs in the mean value form
SPARSELY = 16  # of so many inputs that a plain run decides, one is run by the module beside


def arithmetic(reading: Real | Rounded, has_norms: bool = False) -> Arithmetic:
    """The arithmetic of a reading."""
    if isinstance(reading, Real):
        return Arithmetic(has_norms=has_norms)
    return Arithmetic(reading.format, reading.accumulate, has_norms)


@dataclass
class Tally:
    """What is known about the inputs seen so far."""

    right: int = 0
    wrong: int = 0
    undecided: int = 0
    by: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODELS, 0))
    margin: float = float("inf")
    tightest: list[int] | None = None
    wrong_inputs: list[list[int]] = field(default_factory=list)
    open_inputs: list[list[int]] = field(default_factory=list)

    @property
    def seen(self) -> int:
        return self.right + self.wrong + self.undecided

    def adds_up(self, search: Search) -> bool:
        """Whether each input of a search is counted once: here, or in a cell that is left."""
        kept = search.remembered
        is_whole = self.seen + search.open == search.part.size
        return is_whole and (kept is None or kept.adds_up(self.wrong, self.undecided))

    def add(self, tokens: Tensor, found: Bounds) -> None:
        """Counts a batch by its margins' bounds."""
        low, is_right, is_wrong = found.low, found.low > 0, found.high <= 0
        for model, decided in found.by.items():
            self.by[model] += decided
        self.right += int(is_right.sum())
        self.wrong += int(is_wrong.sum())
        is_open = ~(is_right | is_wrong)
        self.undecided += int(is_open.sum())
        if bool(is_right.any()):
            least = torch.where(is_right, low, torch.full_like(low, float("inf")))
            i = int(least.argmin())
            if float(least[i]) < self.margin:
                self.margin, self.tightest = float(least[i]), tokens[i].tolist()
        for mask, rows in ((is_wrong, self.wrong_inputs), (is_open, self.open_inputs)):
            rows.extend(tokens[mask][: LISTED - len(rows)].tolist())

    def take(self, other: Tally) -> None:
        """Counts what another part of the domain has; in whatever order several are taken, the result is one."""
        self.right, self.wrong = self.right + other.right, self.wrong + other.wrong
        self.undecided += other.undecided
        for model, decided in other.by.items():
            self.by[model] += decided
        if (other.margin, other.tightest or []) < (self.margin, self.tightest or []):
            self.margin, self.tightest = other.margin, other.tightest
        self.wrong_inputs = in_order(self.wrong_inputs + other.wrong_inputs)[:LISTED]
        self.open_inputs = in_order(self.open_inputs + other.open_inputs)[:LISTED]

    def add_cells(self, found: Decided) -> None:
        """Counts the inputs of decided cells, and lists those that are wrong as far as `found` does."""
        self.right, self.wrong = self.right + found.right, self.wrong + found.wrong
        self.by["cells"] += found.right + found.wrong
        if found.wrong:
            self.wrong_inputs.extend(found.tokens[: LISTED - len(self.wrong_inputs)].tolist())
            return
        i = int(found.low.argmin())
        if float(found.low[i]) < self.margin:
            self.margin, self.tightest = float(found.low[i]), found.tokens[i].tolist()

    def sort_wrong(self) -> None:
        """Sorts the list of wrong inputs, short ones first, each once."""
        self.wrong_inputs = in_order(self.wrong_inputs)


def in_order(inputs: list[list[int]]) -> list[list[int]]:
    """Inputs, short ones first, each once."""
    return sorted(map(list, set(map(tuple, inputs))), key=lambda row: (len(row), row))


@dataclass
class Bounds:
    """Lower and upper bounds on the margins of a batch, and how many inputs each model decided."""

    low: Tensor
    high: Tensor
    by: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODELS, 0))

    @classmethod
    def unknown(cls, inputs: int) -> Bounds:
        """No bounds as yet."""
        low = torch.full((inputs,), -torch.inf, dtype=torch.float64)
        return cls(low, -low)

    def undecided(self) -> Tensor:
        """The inputs that are neither right nor wrong so far."""
        return undecided(self.low, self.high).nonzero().squeeze(1)

    def narrow(self, model: str, rows: Tensor, low: Tensor, high: Tensor) -> int:
        """Takes further bounds of some inputs, and returns how many of them that decides."""
        return self.replace(model, rows, torch.fmax(self.low[rows], low), torch.fmin(self.high[rows], high))

    def replace(self, model: str, rows: Tensor, low: Tensor | float, high: Tensor | float) -> int:
        """Takes other bounds of some undecided inputs, and returns how many of them that decides."""
        self.low[rows], self.high[rows] = low, high
        decided = int((~undecided(self.low[rows], self.high[rows])).sum())
        self.by[model] += decided
        return decided


Model = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Judge:
    """Bounds on the margins of inputs of one length, as sharp as they must be to decide."""

    def __init__(
        self,
        graph: Graph,
        question: Question,
        reading: Real | Rounded,
        device: str = "cpu",
        guard: Guard | None = None,
        sets: Sets | None = None,
    ) -> None:
        self.graph, self.reading, self.device, self.guard = graph, reading, device, guard
        self.question, self.sets, self.alone = question, sets, dict[int, Judge]()
        self.is_of_few_bits = isinstance(reading, Rounded) and few_bits.is_covered(reading.format, reading.accumulate)
        self.plain = None if sets is None or self.is_of_few_bits else self._enumeration(sets)
        if self.is_of_few_bits:
            assert isinstance(reading, Rounded) and reading.accumulate is not None
            few = few_bits.bounds(graph, question, reading.format, reading.accumulate, device, not reading.once)
            self.models: dict[str, Model] = {"mean_value": few}
            return
        self.mean_values = MeanValues(graph, question, arithmetic(reading), device)
        self.models = {
            name: enclose(graph, arithmetic(reading, has_norms), question, device)
            for name, has_norms in (("balls", False), ("l2", True))
        }

    def at(self, place: int) -> Judge:
        """The same for one of the answer positions, by its place among them."""
        positions = self.question.positions
        if positions is None or len(positions) == 1:
            return self
        if place not in self.alone:
            question = replace(self.question, positions=positions[place : place + 1])
            guard = self.guard and Guard(self.guard.module, self.graph, question, self.reading)
            self.alone[place] = Judge(self.graph, question, self.reading, self.device, guard, self.sets)
        return self.alone[place]

    def _enumeration(self, sets: Sets) -> Enumeration | None:
        """Plain runs with one radius for all inputs of these token sets, where there is one."""
        fmt, accumulate = None, None
        if isinstance(self.reading, Rounded):
            fmt, accumulate = self.reading.format, self.reading.accumulate
        try:
            return Enumeration(self.graph, self.question, sets, fmt, accumulate, self.device)
        except NoRadius:
            return None

    def bounds(self, tokens: Tensor, answers: Tensor, deadline: Deadline) -> Bounds:
        """Bounds on each margin, by each model in turn for what the ones before leave undecided.

        Raises: Disagreement where a run of the module lies outside them.
        """
        found = Bounds.unknown(len(tokens))
        by_plain = self._by_plain(tokens, answers, found)
        self._by_models(tokens, answers, found, deadline)
        if self.guard is not None:
            rows = torch.cat([(~by_plain).nonzero().squeeze(1), by_plain.nonzero().squeeze(1)[::SPARSELY]])
            self.guard.check(tokens[rows], answers[rows], found.low[rows], found.high[rows])
        return found

    def _by_plain(self, tokens: Tensor, answers: Tensor, found: Bounds) -> Tensor:
        """Narrows by plain runs, and those that may be the tightest by balls; whether each input is decided so."""
        nothing = torch.zeros(len(tokens), dtype=torch.bool)
        if self.plain is None or not len(tokens):
            return nothing
        found.narrow("plain", torch.arange(len(tokens)), *self._run(self.plain, tokens, answers))
        is_decided = ~undecided(found.low, found.high)
        if int(is_decided.sum()) < len(tokens) // SPARSELY:  # it costs more than it saves
            self.plain = None
        right = (found.low > 0).nonzero().squeeze(1)
        if len(right):
            tightest = right[found.low[right] <= found.high[right].amin()]
            tightest = tightest[found.low[tightest].argsort()[:AT_A_TIME]]
            low, high = self._run(self.models["balls"], tokens[tightest], answers[tightest])
            found.low[tightest] = torch.fmax(found.low[tightest], low)
            found.high[tightest] = torch.fmin(found.high[tightest], high)
        return is_decided

    def _run(self, model: Model, tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        low, high = model(tokens.to(self.device), answers.to(self.device))
        return low.cpu(), high.cpu()

    def _by_models(self, tokens: Tensor, answers: Tensor, found: Bounds, deadline: Deadline) -> None:
        for name, model in self.models.items():
            rows = found.undecided()
            if not len(rows):
                return
            found.narrow(name, rows, *self._run(model, tokens[rows], answers[rows]))
        if self.is_of_few_bits:
            return
        self._by_mean_values(tokens, answers, found, deadline)
        if isinstance(self.reading, Real):
            self._exactly(tokens, answers, found, deadline)

    def _by_mean_values(self, tokens: Tensor, answers: Tensor, found: Bounds, deadline: Deadline) -> None:
        """Narrows what is left by the gap to each rival in turn, the closest first; stops where it decides nothing."""
        for rows in torch.split(found.undecided(), AT_A_TIME):
            if not len(rows) or deadline.is_up():  # a split of no rows is one part
                return
            if not found.narrow("mean_value", rows, *self.mean_values(tokens[rows], answers[rows], deadline)):
                return

    def _exactly(self, tokens: Tensor, answers: Tensor, found: Bounds, deadline: Deadline) -> None:
        """Narrows what is left input by input, with more and more bits."""
        if not exact.is_covered(self.graph):
            return
        for row in found.undecided():
            for bits in EXACT_BITS:
                if deadline.is_up():
                    return
                low, high = exact.margin(self.graph, self.question, tokens[row], answers[row], bits)
                if found.replace("exact", row, low, high):
                    break


class MeanValues:
    """Bounds on margins from the gaps to single rivals in the mean value form."""

    def __init__(self, graph: Graph, question: Question, at: Arithmetic, device: str) -> None:
        self.graph, self.question = graph, question
        self.gaps, at = gaps(graph, at, device), replace(at, has_norms=True)

        def logits(output: Ball, tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
            found = question.logits(output)
            return found.mid, found.radius

        self.logits = enclose(graph, at, logits, device)
        self.device = device

    def __call__(self, tokens: Tensor, answers: Tensor, deadline: Deadline) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on each margin: of the least gap where all are bounded, -inf where one is not."""
        gap, low, high, own, rival = self._pairs(tokens, answers)
        rows, alive = torch.arange(len(tokens)), torch.ones(len(tokens), dtype=torch.bool)
        for pair in gap.argsort(1).T:  # an input is left once one of its rivals is not beaten
            chosen = (alive & ~(low[rows, pair] > 0)).nonzero().squeeze(1)
            if not bool(alive.any()) or deadline.is_up():
                break
            if len(chosen):
                places = pair[chosen]
                new_low, new_high = self.gaps(tokens[chosen], own[chosen, places], rival[chosen, places])
                low[chosen, places] = torch.fmax(low[chosen, places], new_low)
                high[chosen, places] = torch.fmin(high[chosen, places], new_high)
            alive &= low[rows, pair] > 0
        return low.amin(1), high.amin(1)

    def _pairs(self, tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of each input and pair of an answer position and a rival: the float gap, its bounds by balls, two places."""
        mid, rad = (x.cpu() for x in self.logits(tokens.to(self.device), answers.to(self.device)))
        at = answers.unsqueeze(-1)
        gap = mid.gather(2, at) - mid
        off = (rad.gather(2, at) + rad + 2 * U * (gap.abs() + mid.abs() + mid.gather(2, at).abs())) * ENLARGE
        is_own = torch.arange(mid.shape[2]) == at
        low, high, gap = (torch.where(is_own, torch.inf, x).flatten(1) for x in (gap - off, gap + off, gap))
        places = self._places()
        return (
            gap,
            low,
            high,
            places[torch.arange(len(places)), answers].unsqueeze(-1).expand_as(mid).flatten(1),
            (places.expand_as(mid).flatten(1)),
        )

    def _places(self) -> Tensor:
        """Where each answer position's classes are in the output: shape (positions, classes)."""
        every = torch.arange(self.graph.output.numel(), dtype=torch.float64).reshape(self.graph.output.shape)
        return self.question.logits(Ball(every)).mid.long()


def undecided(low: Tensor, high: Tensor) -> Tensor:
    """Where neither right nor wrong is proved; NaN proves nothing."""
    return ~((low > 0) | (high <= 0))


Progress = Callable[[int], None]
OfTokens = Callable[[Tensor], Tensor]


def climb(
    margin: OfTokens, start: Tensor, sets: tuple[tuple[int, ...], ...], keep: OfTokens, deadline: Deadline
) -> Tensor | None:
    """An input whose float margin is not positive, reached by changing one token at a time; None if none is found."""
    tokens = start
    best = float(margin(tokens.unsqueeze(0))[0])
    while best > 0 and not deadline.is_up():
        rows = [tokens]
        for i, allowed in enumerate(sets):
            for token in allowed:
                if token != int(tokens[i]):
                    changed = tokens.clone()
                    changed[i] = token
                    rows.append(changed)
        neighbours = keep(torch.stack(rows))
        values = margin(neighbours)
        i = int(values.argmin())
        if not float(values[i]) < best:
            return None
        tokens, best = neighbours[i], float(values[i])
    return tokens if best <= 0 else None
