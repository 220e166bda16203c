"""One attention layer on a product of token sets: cells that are right, wrong throughout, run input by input, or open.

A cell is a product of token sets, one for each position. It is right where the least gap between the right logit and
every other is positive, wrong throughout where the greatest gap to one rival is not (a tie is wrong); else the position
whose tokens matter most, for the worst rival or for the weights of one head, is split in two. Small cells are run,
input by input. Every input of the domain is in exactly one cell, so that the four numbers sum to the domain's size,
whenever the search ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice, product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from verify.engine.capture import Graph
from verify.engine.margins import Question, margins
from verify.engine.one_layer.bounds import Cells, tables_of
from verify.engine.one_layer.layer import Layer, NotOneLayer, OneLayer, candidates
from verify.engine.one_layer.points import Points
from verify.frame.clock import Deadline
from verify.module.automaton import Chart, Mask
from verify.module.inputs import Product
from verify.module.specification import Traced, chart_of
from verify.reduction.quotients import Entries

LISTED = 1000  # inputs of a cell that is wrong throughout, which are then listed
DRAWN = 4  # inputs of right cells that are decided at once, which are then run
RUN = 256  # inputs of a cell that are run rather than split
BARE = 4  # how many times fewer where nothing follows the attention but a linear map, so that bounds cost less
AT_ONCE = 1 << 22  # numbers in the tables of a batch of cells
MOST_AT_ONCE = 1 << 10  # cells
FEWER = 0.25  # of the way from the least number at a place to the largest, where it is split: few tokens are the worst
MOST_STARTED = 1 << 12  # cells into which the whole domain is split before tokens are fixed
MOST_REMEMBERED = 1 << 16  # products of token sets, of one position among several that answer
ROUNDS = 4  # in which the time left is shared out among the tokens of the fixed positions
PARTS = 2  # of a batch, which are bounded at once
LEAST_PART = 1 << 19  # numbers; fewer take as long
WASTED = 1 << 17  # numbers that a part may have for functions that most of its cells do not
AtOnce = Callable[..., Iterable[Any]]
Aim = Literal["verdict", "accuracy"]  # the cells of the least bounds first, until an input is wrong; or the largest
AIMS: tuple[Aim, ...] = get_args(Aim)


def one_layer(graph: Graph, question: Question, part: Product) -> OneLayer:
    """The graph's one layer, the fewest positions fixed.

    Raises: NotOneLayer where no choice of them shows one, with the reason for the answer's own position.
    """
    answer = None if question.positions is None else question.positions[0]
    reasons: list[str] = []
    for fixed in candidates(graph.length, answer):
        try:
            found = OneLayer(graph, question, part.sets, fixed)
            found.layer([part.sets[i][0] for i in fixed])
        except (NotOneLayer, RuntimeError, IndexError, TypeError, KeyError, AttributeError) as reason:
            reasons.append(str(reason))  # a graph that cannot be followed is decided as any other one is
        else:
            return found
    raise NotOneLayer(reasons[min(1, len(reasons) - 1)])


class Columns(dict[int, int]):
    """The column of each label, asked for where it surely occurs: on a cell of several answers some may not."""

    def __init__(self, column: Callable[[int], int]) -> None:
        super().__init__()
        self.column = column

    def __missing__(self, label: int) -> int:
        self[label] = self.column(label)
        return self[label]


@dataclass(order=True)
class Cell:
    """A product of the ranks that a mask (free positions, ranks) has; its answer, None where several occur."""

    order: tuple[float, int, int]
    mask: Mask = field(compare=False)
    sizes: list[int] = field(compare=False)  # how many tokens each position may have
    size: int = field(compare=False)
    answer: int | None = field(compare=False)
    rivals: Mask | None = field(compare=False, default=None)  # those that are not beaten yet
    beaten: float = field(compare=False, default=math.inf)  # by how much the others are
    alike: list[Cell] = field(compare=False, default_factory=list)  # others that are right where this one is

    @cached_property
    def n_rivals(self) -> int | None:
        """How many are not beaten yet, None where all are."""
        return None if self.rivals is None else int(self.rivals.sum())

    @property
    def with_alike(self) -> int:
        return self.size + sum(cell.size for cell in self.alike)


@dataclass(frozen=True)
class Decided:
    """Inputs that are decided at once by "cells", how many, and some of them with bounds on their margins.

    By "tables" all of them are listed, as are those that these leave "open", which are no longer in any cell. `masks`
    are the cells that are wrong throughout.
    """

    how: str
    right: int
    wrong: int
    tokens: Tensor
    answers: Tensor
    low: Tensor
    high: Tensor
    masks: tuple[Mask, ...] = ()

    def only(self, rows: Tensor) -> Decided:
        return replace(
            self, tokens=self.tokens[rows], answers=self.answers[rows], low=self.low[rows], high=self.high[rows]
        )


@dataclass
class Remembered:
    """The products of token sets, and single inputs as such, that a search has found wrong or could not decide."""

    wrong: list[Mask] = field(default_factory=list)
    undecided: list[Mask] = field(default_factory=list)

    def add(self, wrong: Iterable[Mask], undecided: Iterable[Mask] = ()) -> None:
        """Takes note of more, up to a number beyond which nothing is counted with them."""
        for masks, more in ((self.wrong, wrong), (self.undecided, undecided)):
            if len(masks) <= MOST_REMEMBERED:
                masks.extend(more)

    def adds_up(self, wrong: int, undecided: int) -> bool:
        """Whether they are so many inputs, as far as they are remembered."""
        return all(
            len(masks) > MOST_REMEMBERED or sum(map(size_of, masks)) == count
            for masks, count in ((self.wrong, wrong), (self.undecided, undecided))
        )


class Search:
    """All inputs of a domain, by cells."""

    def __init__(
        self,
        given: OneLayer,
        part: Product,
        expected: Callable[[Tensor], object] | Chart | Traced,
        column: Callable[[int, int], int],
        aim: Aim = "accuracy",
    ) -> None:
        self.given, self.part, self.aim = given, part, aim
        chart = expected if isinstance(expected, Chart | Traced) else chart_of(expected, part.sets)
        assert chart is not None, "its answers on cells are known"
        self.chart = chart
        self.columns = Columns(lambda label: column(part.length, label))
        self.number = count()
        self.met = math.inf  # the least margin of an input met so far, at most
        self.tightest: list[int] | None = None
        self.failing: list[int] | None = None  # an input on which the module is wrong, in whatever cell it is
        self.bounded = 0
        self.rng = np.random.default_rng(0)
        width = max(map(len, part.sets))
        whole = np.zeros((part.length, width), dtype=bool)
        for place, allowed in enumerate(part.sets):
            whole[place, : len(allowed)] = True
        self.whole = whole
        self.sets = [torch.tensor(allowed) for allowed in part.sets]
        self.left: list[tuple[tuple[int, ...], list[Cell]]] = []
        self.remembered: Remembered | None = None  # where other positions answer as well

    @property
    def has_wrong(self) -> bool:
        return self.failing is not None

    @property
    def goal(self) -> float:
        """What a cell's least margin must exceed: half the least one met, so that the bound is within a factor of 2."""
        return 0.0 if self.has_wrong or math.isinf(self.met) else max(self.met / 2, 0.0)

    @property
    def is_enough(self) -> bool:
        """Whether the aim is reached before all cells are decided."""
        return self.aim == "verdict" and self.has_wrong

    @property
    def open(self) -> int:
        """How many inputs are in cells that are left."""
        return sum(cell.with_alike for _, cells in self.left for cell in cells)

    def masks_left(self) -> Iterator[Mask]:
        """The cells that are left, as products of the ranks of all positions."""
        for _, cells in self.left:
            for cell in cells:
                yield from (one.mask for one in (cell, *cell.alike))

    def start(self, deadline: Deadline) -> None:
        """The domain in cells of one answer each as far as that is quick, then by the tokens of the fixed positions."""
        cells = self._by_answer(deadline)
        for ranks in self.owns():
            own = [self._restricted(cell, ranks) for cell in cells]
            self.left.append((ranks, [cell for cell in own if cell is not None]))

    def owns(self) -> Iterator[tuple[int, ...]]:
        """The ranks of the fixed positions' tokens, all combinations."""
        return product(*(range(len(self.part.sets[i])) for i in self.given.fixed))

    def _by_answer(self, deadline: Deadline) -> list[tuple[int | None, Mask]]:
        done: list[tuple[int | None, Mask]] = []
        queue = [self.whole]
        while queue:
            mask = queue.pop(0)
            answers = self.chart.answers(mask)
            if len(answers) == 1:
                done.append((answers[0], mask))
            elif len(queue) + len(done) >= MOST_STARTED or deadline.is_up():
                done.append((None, mask))
            else:
                place, parts = self.chart.split(mask)
                queue += [with_part(mask, place, part) for part in parts]
        return done

    def _restricted(self, cell: tuple[int | None, Mask], ranks: tuple[int, ...]) -> Cell | None:
        """The part of a cell whose fixed positions have the tokens of these ranks; their rows have that one alone."""
        answer, mask = cell
        if not all(mask[i, rank] for i, rank in zip(self.given.fixed, ranks, strict=True)):
            return None
        smaller = mask.copy()
        for i, rank in zip(self.given.fixed, ranks, strict=True):
            smaller[i] = False
            smaller[i, rank] = True
        return self._cell(smaller, answer)

    def _cell(
        self,
        mask: Mask,
        answer: int | None,
        rivals: Mask | None = None,
        beaten: float = math.inf,
        least: float = -math.inf,
        sizes: list[int] | None = None,
    ) -> Cell:
        """A cell in the order of the aim; `least` is a lower bound on its margins, `sizes` those of its sets."""
        sizes = sizes or mask.sum(1).tolist()
        size = math.prod(sizes)
        order = (least if self.aim == "verdict" else 0.0), -size, next(self.number)
        return Cell(order, mask, sizes, size, answer, rivals, beaten)

    def run(self, deadline: Deadline, at_once: AtOnce = map) -> Iterator[list[Decided]]:
        """Decides cells until none is left or the time is up, the tokens of the fixed positions in turn.

        Whenever it says what it has decided, every other input is in a cell that is left. `at_once` is `map`, or that
        of several threads, which changes no result.
        """
        for last in range(ROUNDS):
            pending = [pair for pair in self.left if pair[1]]
            for i, (ranks, cells) in enumerate(pending):
                if deadline.is_up() or self.is_enough:
                    return
                until = deadline if last == ROUNDS - 1 else deadline.part(1 / (len(pending) - i))
                if (one := self.of_token(ranks, cells, at_once)) is not None:
                    yield from one.run(until)

    def first_batches(self, number: int) -> Iterator[list[Decided]]:
        """A batch of each of the first choices of the fixed positions' tokens, so many, or until an input is wrong."""
        for ranks, cells in self.left[:number]:
            if not self.has_wrong and (one := self.of_token(ranks, cells)) is not None:
                yield from islice(one.run(Deadline.never()), 1)

    def of_token(self, ranks: tuple[int, ...], cells: list[Cell], at_once: AtOnce = map) -> OneToken | None:
        """What decides the cells of one choice of the fixed positions' tokens.

        None where the module may fail with these, so that they are left.
        """
        tokens = [self.part.sets[p][r] for p, r in zip(self.given.fixed, ranks, strict=True)]
        try:
            return OneToken(self, self.given.layer(tokens), cells, at_once)
        except NotOneLayer:
            return None


class Bounded(NamedTuple):
    """Of each of some cells the entries, the right class, its rivals, and what `Cells.least` says of these.

    By place and rank; of other tokens `table` and `spread` are infinite and `by_token`, the least over the rivals, is
    minus infinity.
    """

    entries: Entries
    right: Tensor
    rivals: Tensor
    low: Tensor
    table: Tensor
    spread: Tensor
    by_token: Tensor


class OneToken:
    """The cells of one choice of the fixed positions' tokens."""

    def __init__(self, search: Search, layer: Layer, cells: list[Cell], at_once: AtOnce = map) -> None:
        self.search, self.layer, self.cells, self.at_once = search, layer, cells, at_once
        self.points, self.tables = Points(layer), tables_of(layer)
        self.most_run = RUN if layer.blocks else max(1, RUN // BARE)
        self.places, self.next = list(layer.places), list[Cell]()
        self.widest = max((block.size for block in layer.blocks), default=0)
        self._gather_alike()
        heapq.heapify(cells)

    def _gather_alike(self) -> None:
        """Cells that lie in others once places with the same tables are exchanged wait until those are decided.

        What is bounded on a product of sets holds for all tables within the balls, and so for the product with its
        sets exchanged between places whose balls are the same numbers.
        """
        for cell in self.cells[:]:
            self.cells += cell.alike
            cell.alike = []
        groups = alike_places(self.tables.rows.reshape(len(self.places) + 1, -1)[:-1])
        if len(groups) == len(self.places):
            return
        kept: dict[int | None, list[tuple[Mask, Cell]]] = {}
        for cell in sorted(self.cells):
            mask = in_order(cell.mask[self.places], groups)
            others = kept.setdefault(cell.answer, [])
            around = next((other for whole, other in others if not (mask & ~whole).any()), None)
            if around is None or cell.answer is None:
                others.append((mask, cell))
            else:
                around.alike.append(cell)
        self.cells[:] = [cell for cells in kept.values() for _, cell in cells]

    def run(self, until: Deadline) -> Iterator[list[Decided]]:
        """Decides cells, the first by their order, until none is left, the aim is reached or the time is up."""
        while self.cells and not self.search.is_enough and not until.is_up():
            rest, self.next = self.cells.copy(), []
            found = list(self._decide(self._batch(rest)))
            for cell in self.next:
                heapq.heappush(rest, cell)
            self.cells[:] = rest  # all at once: an interrupted search can go on as if the batch had not begun
            yield found

    def _decide(self, batch: list[Cell]) -> Iterator[Decided]:
        small = [cell for cell in batch if cell.size <= self.most_run]
        for cell in batch:  # what is not decided at once helps no other
            if cell.size <= self.most_run or cell.answer is None:
                self.next += cell.alike
        for answer_less in [c for c in batch if c.answer is None and c.size > self.most_run]:
            self._by_answer(answer_less)
        large = [cell for cell in batch if cell.answer is not None and cell.size > self.most_run]
        parts = in_parts(large, list(map(self._functions, large)))
        for part, found in zip(parts, self.at_once(self._bounds, parts), strict=True):
            yield from self._bounded(part, found)
        if small:
            yield from self._run(small)

    def _batch(self, rest: list[Cell]) -> list[Cell]:
        """Takes the first cells, as many as one batch of tables holds."""
        batch: list[Cell] = []
        numbers = 0
        while rest and len(batch) < MOST_AT_ONCE and (not batch or numbers < AT_ONCE):
            cell = heapq.heappop(rest)
            numbers += self._functions(cell) * sum(cell.sizes)
            batch.append(cell)
        return batch

    def _functions(self, cell: Cell) -> int:
        """How many functions are bounded side by side on a cell: its rivals, or its largest block."""
        rivals = self.layer.logits.constant.mid.numel() if cell.n_rivals is None else cell.n_rivals
        return max(rivals, self.widest, 1)

    def _by_answer(self, cell: Cell) -> None:
        place, parts = self.search.chart.split(cell.mask)
        for part in parts:
            mask = with_part(cell.mask, place, part)
            answers = self.search.chart.answers(mask)
            self.next.append(self.search._cell(mask, answers[0] if len(answers) == 1 else None))

    def _masks(self, batch: list[Cell]) -> Mask:
        """The ranks at the free places: (cells, places, ranks)."""
        whole = self.search.whole[self.places]
        return np.array([cell.mask[self.places] for cell in batch], dtype=bool).reshape(-1, *whole.shape)

    def _bounds(self, batch: list[Cell]) -> Bounded:
        """What is bounded on each of some cells; it changes nothing, so that several threads may do so at once."""
        entries = entries_of(self._masks(batch))
        right = torch.tensor([self.search.columns[cell.answer] for cell in batch])  # type: ignore[index]
        with torch.no_grad():
            cells = Cells(self.layer, entries, self.tables)
            rivals = self._rivals(batch, right)
            found = cells.least(cells.gaps(right, rivals), by_token=True)
            assert found.by_token is not None, "it was asked for"
            known = found.by_token.nan_to_num_(nan=-torch.inf, posinf=-torch.inf)  # what overflows says nothing
            by_token = entries.by_place(known.amin(1), -torch.inf)[:, :-1]
            table = entries.by_place(found.table.nan_to_num(), torch.inf)[:, :-1]
            spread = entries.by_place(found.spread.nan_to_num(), torch.inf)[:, :-1]
            return Bounded(entries, right, rivals, found.low, table, spread, by_token)

    def _bounded(self, batch: list[Cell], found: Bounded) -> Iterator[Decided]:
        search = self.search
        entries, right, rivals, low, table, spread, by_token = found
        search.bounded += len(batch)
        low = low.nan_to_num(nan=-torch.inf, posinf=-torch.inf)
        worst = low.argmin(1)
        rows = torch.arange(len(batch))
        least = torch.minimum(low[rows, worst], torch.tensor([cell.beaten for cell in batch], dtype=torch.float64))
        at = table.argmin(-1)
        met_low, met_high = self._margins(at, right)
        self._meet(batch, at, met_low, met_high)
        is_right = (least > 0) & (least >= search.goal)
        if bool(is_right.any()):
            yield self._decided(batch, is_right, right, least)
        is_wrong = torch.zeros_like(is_right)
        may_be = ((met_high <= 0) & ~is_right).nonzero().squeeze(1)
        if len(may_be):  # the input of the greatest sum is the last one to be wrong
            other = table[may_be].where(torch.isfinite(table[may_be]), -torch.inf).argmax(-1)
            may_be = may_be[self._margins(other, right[may_be])[0] <= 0]
        if len(may_be):
            with torch.no_grad():
                one = Cells(self.layer, entries.only(may_be), self.tables)
                below = one.least(-one.gaps(right[may_be], rivals[may_be, worst[may_be]].unsqueeze(1))).low
            is_wrong[may_be] = below.squeeze(1) >= 0
        if bool(is_wrong.any()):
            yield self._decided_wrong(batch, is_wrong, right, at)
        left = ~is_right & ~is_wrong
        for i in (~is_right).nonzero().squeeze(1).tolist():
            self.next += batch[i].alike
        is_beaten = low > search.goal
        beaten = torch.where(is_beaten, low, torch.inf).amin(1)
        is_out = left[:, None, None] & (by_token > 0) & (by_token >= search.goal)
        masks = np.stack([cell.mask for cell in batch])
        masks[:, self.places] &= ~is_out.numpy()
        if bool(is_out.any()):
            yield self._decided_tokens(batch, is_out, masks, found)
        kept = np.zeros((len(batch), self.layer.logits.constant.mid.numel()), dtype=bool)
        kept[rows.unsqueeze(1).numpy(), rivals.numpy()] = ~is_beaten.numpy()
        sizes, numbers = masks.sum(2).tolist(), spread.numpy()
        still = left.nonzero().squeeze(1).tolist()
        split = [i for i in still if 2 * math.prod(sizes[i]) > batch[i].size]
        parts = halves(masks[split], self.places, numbers[split])
        found_of = dict(zip(split, zip(parts, parts.sum(3).tolist(), strict=True), strict=True))
        lows, beaten_by = least.tolist(), beaten.tolist()
        for i in still:
            known = batch[i].answer, kept[i], min(batch[i].beaten, beaten_by[i]), lows[i]
            some = found_of.get(i, (masks[i : i + 1], sizes[i : i + 1]))
            self.next += [search._cell(mask.copy(), *known, n) for mask, n in zip(*some, strict=True) if all(n)]

    def _rivals(self, batch: list[Cell], right: Tensor) -> Tensor:
        """The classes to compare with, as many columns as the cell with most of them has; others have one repeated."""
        classes = self.layer.logits.constant.mid.numel()
        alive = np.ones((len(batch), classes), dtype=bool)
        for i, cell in enumerate(batch):
            if cell.rivals is not None:
                alive[i] = cell.rivals
        alive[np.arange(len(batch)), right.numpy()] = False
        most = max(1, int(alive.sum(1).max()))
        order = np.argsort(~alive, axis=1, kind="stable")[:, :most]
        return torch.from_numpy(np.where(np.take_along_axis(alive, order, 1), order, order[:, :1]))

    def _margins(self, ranks: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return margins(self.points(ranks), right)

    def _meet(self, batch: list[Cell], at: Tensor, low: Tensor, high: Tensor) -> None:
        """Takes note of the right input with the least margin among some, and of one that is wrong."""
        wrong = (high <= 0).nonzero().squeeze(1).tolist()
        if wrong and not self.search.has_wrong:
            i = wrong[0]
            self.search.failing = self._tokens(at[i : i + 1], batch[0].mask)[0].tolist()
        i = int(torch.where(low > 0, high, torch.inf).argmin())
        if float(low[i]) > 0 and float(high[i]) < self.search.met:
            self.search.met = float(high[i])
            self.search.tightest = self._tokens(at[i : i + 1], batch[0].mask)[0].tolist()

    def _tokens(self, ranks: Tensor, mask: Mask) -> Tensor:
        """Inputs from the ranks of their free positions' tokens; the fixed ones have the only rank of the mask."""
        sets, found = self.search.sets, torch.empty(len(ranks), len(self.search.sets), dtype=torch.long)
        for column, place in enumerate(self.places):
            found[:, place] = sets[place][ranks[:, column]]
        for place in self.search.given.fixed:
            found[:, place] = sets[place][int(mask[place].argmax())]
        return found

    def _decided(self, batch: list[Cell], chosen: Tensor, right: Tensor, low: Tensor) -> Decided:
        """Right cells, and an input that is drawn from each of those with the least bounds."""
        rows = chosen.nonzero().squeeze(1)
        size = sum(batch[i].with_alike for i in rows.tolist())
        rows = rows[low[rows].argsort()[:DRAWN]]
        tokens = self._drawn([batch[i].mask for i in rows.tolist()])
        high = torch.full((len(rows),), torch.inf, dtype=torch.float64)
        return Decided("cells", size, 0, tokens, right[rows], low[rows], high)

    def _decided_tokens(self, batch: list[Cell], is_out: Tensor, masks: Mask, found: Bounded) -> Decided:
        """The inputs with any of some tokens, which are right; an input that is drawn for those of the least bounds.

        Those of a cell are all its inputs but those of its mask without these tokens.
        """
        beaten = torch.tensor([cell.beaten for cell in batch], dtype=torch.float64)
        bounds = torch.where(is_out, found.by_token, torch.inf).flatten(1)
        low = torch.minimum(bounds.amin(1), beaten)
        rows = is_out.flatten(1).any(1).nonzero().squeeze(1)
        size = sum(batch[i].size - size_of(masks[i]) for i in rows.tolist())
        rows = rows[low[rows].argsort()[:DRAWN]]
        some = []
        for i in rows.tolist():
            place, at = divmod(int(bounds[i].argmin()), is_out.shape[2])
            alone = np.zeros_like(batch[i].mask[0])
            alone[at] = True
            some.append(with_part(batch[i].mask, self.places[place], alone))
        high = torch.full((len(rows),), torch.inf, dtype=torch.float64)
        return Decided("cells", size, 0, self._drawn(some), found.right[rows], low[rows], high)

    def _decided_wrong(self, batch: list[Cell], chosen: Tensor, right: Tensor, at: Tensor) -> Decided:
        """Cells that are wrong throughout: all inputs of small ones, of others the one of the bound and a drawn one."""
        rows = chosen.nonzero().squeeze(1).tolist()
        small = [batch[i] for i in rows if batch[i].size <= LISTED]
        each = self._tokens(rows_of(self._masks(small)), batch[0].mask)
        listed, tokens = iter(torch.split(each, [cell.size for cell in small])), list[Tensor]()
        for i in rows:
            if batch[i].size <= LISTED:
                tokens.append(next(listed))
            else:
                tokens.append(torch.cat([self._tokens(at[i : i + 1], batch[i].mask), self._drawn([batch[i].mask])]))
        answers = [right[i].expand(len(found)) for i, found in zip(rows, tokens, strict=True)]
        every, size = torch.cat(tokens), sum(batch[i].size for i in rows)
        low = torch.full((len(every),), -torch.inf, dtype=torch.float64)
        masks = tuple(batch[i].mask for i in rows)
        return Decided("cells", 0, size, every, torch.cat(answers), low, torch.zeros_like(low), masks)

    def _drawn(self, masks: list[Mask]) -> Tensor:
        """An input of each of some cells, each with the same probability."""
        every = np.stack([mask[self.places] for mask in masks])
        ranks = np.where(every, self.search.rng.random(every.shape), -1.0).argmax(-1)
        return self._tokens(torch.from_numpy(ranks), masks[0])

    def _run(self, batch: list[Cell]) -> Iterator[Decided]:
        """All inputs of small cells, by tables; those that these leave open come by themselves."""
        ranks = rows_of(self._masks(batch))
        tokens = self._tokens(ranks, batch[0].mask)
        parts = torch.split(tokens, [cell.size for cell in batch])
        right = torch.cat([self._columns(cell, rows) for cell, rows in zip(batch, parts, strict=True)])
        low, high = self._margins(ranks, right)
        is_right, is_wrong = low > 0, high <= 0
        is_done = is_right | is_wrong
        self._meet(batch, ranks, low, high)
        found = Decided("tables", int(is_right.sum()), int(is_wrong.sum()), tokens, right, low, high)
        if bool(is_done.any()):
            yield found.only(is_done)
        if not bool(is_done.all()):
            yield replace(found.only(~is_done), how="open", right=0, wrong=0)

    def _columns(self, cell: Cell, tokens: Tensor) -> Tensor:
        if cell.answer is not None:
            return torch.full((len(tokens),), self.search.columns[cell.answer])
        found = self.search.chart.function(tokens)
        return torch.tensor([self.search.columns[int(label)] for label in found.tolist()])


def halves(masks: Mask, places: list[int], numbers: npt.NDArray[np.float64]) -> Mask:
    """Each cell in two, by the numbers at the place where those of its tokens spread most.

    Shapes: masks (cells, positions, ranks), numbers (cells, places, ranks); (cells, 2, positions, ranks).
    """
    rows, at = np.arange(len(masks)), masks[:, places]
    most, least = np.where(at, numbers, -np.inf).max(2), np.where(at, numbers, np.inf).min(2)
    widest = np.where(at.sum(2) > 1, most - least, -1.0).argmax(1)
    allowed, middle = at[rows, widest], ((1 - FEWER) * least + FEWER * most)[rows, widest, None]
    upper = allowed & (numbers[rows, widest] > middle)
    count = allowed.sum(1, keepdims=True)
    is_alike = ~upper.any(1)
    upper[is_alike] = (allowed & (allowed.cumsum(1) > count // 2))[is_alike]
    found = np.stack([masks, masks], 1)
    position = np.array(places)[widest]
    found[rows, 0, position], found[rows, 1, position] = upper, allowed & ~upper
    return found


def alike_places(rows: Tensor) -> list[list[int]]:
    """The places whose tables are the same numbers: rows (places, numbers)."""
    groups: list[list[int]] = []
    for place, row in enumerate(rows):
        same = next((group for group in groups if torch.equal(rows[group[0]], row)), None)
        groups.append([place]) if same is None else same.append(place)
    return groups


def in_order(mask: Mask, groups: list[list[int]]) -> Mask:
    """The sets of each group of places with the larger ones last."""
    found = mask.copy()
    for group in groups:
        rows = mask[group]
        found[group] = rows[np.lexsort((*rows.T, rows.sum(1)))]
    return found


def in_parts(batch: list[Cell], functions: list[int]) -> list[list[Cell]]:
    """Some cells in parts of about as many numbers, each of cells with alike many functions and sizes of sets.

    All cells of a part have as many functions as the one with most; parts that are small may be of any.
    """
    sizes = [sorted(cell.sizes, reverse=True) for cell in batch]
    keys = [(n.bit_length(), each) for n, each in zip(functions, sizes, strict=True)]
    most = max(sum(n * sum(each) for n, each in zip(functions, sizes, strict=True)) // PARTS, LEAST_PART)
    parts = list[list[Cell]]()
    entries, largest, room = 0, 0, 0
    for i in sorted(range(len(batch)), key=keys.__getitem__):
        more = sum(sizes[i])
        if room <= 0 or entries * (functions[i] - largest) > WASTED:
            parts.append([])
            entries, largest, room = 0, 0, most
        parts[-1].append(batch[i])
        entries, largest = entries + more, max(largest, functions[i])
        room -= functions[i] * more
    return parts


def size_of(mask: Mask) -> int:
    return math.prod(mask.sum(1).tolist())


def with_part(mask: Mask, place: int, part: Mask) -> Mask:
    smaller = mask.copy()
    smaller[place] = part
    return smaller


def entries_of(masks: Mask) -> Entries:
    """The ranks of masks (cells, places, ranks); the last place has rank 0, what is fixed."""
    fixed = np.zeros_like(masks[:, :1])
    fixed[..., 0] = True
    return Entries.of(np.concatenate([masks, fixed], 1))


def rows_of(masks: Mask) -> Tensor:
    """All combinations of one rank at each place, of one cell after the other: (inputs, places).

    >>> rows_of(np.array([[[True, True], [True, True]], [[False, True], [True, False]]])).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 0]]
    """
    cells, places, _ = masks.shape
    listed, sizes = np.argsort(~masks, axis=2, kind="stable"), masks.sum(2)
    total = sizes.prod(1)
    cell = np.repeat(np.arange(cells), total)
    at = np.arange(len(cell)) - np.repeat(total.cumsum() - total, total)
    found = np.empty((len(cell), places), dtype=np.int64)
    for place in reversed(range(places)):
        at, rank = np.divmod(at, sizes[cell, place])
        found[:, place] = listed[cell, place, rank]
    return torch.from_numpy(found)
