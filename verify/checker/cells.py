"""Inputs of one attention layer by cells, products of token sets, searched anew: docs/checker.md.

With the token of the place that answers fixed, softmax's weights are w_j > 0 and what a key adds to the logits is a row
v_j, each of the token at its place j alone, so that D (logit y - logit c - margin) with D = sum of w_j is a sum of one
number for each place, w_j (v_j y - v_j c - margin). Its least value over a cell is the sum of the least ones at the
places. So a cell is right where that is at least 0 for every rival c, and wrong where the greatest is at most 0 for one
of them. Else the place that matters most is halved, down to single inputs. Numbers are whole ones over a power of two,
rounded outwards.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from flint import arb, ctx

from verify.checker.affine import linear_part
from verify.checker.arrays import Open
from verify.checker.graphs import UNFIT
from verify.checker.one_layer import OneLayerGraph, Sets, of_each, with_token
from verify.checker.questions import MOST_INPUTS, InputsPart, Statement, Tokens
from verify.checker.reading import NOT_CHECKABLE, Refusal, require

PRECISION, BITS, MOST_BITS = 256, 192, 1 << 14  # of balls; of whole numbers after the smallest weight's point
MOST_CELLS = 1 << 22
RULES: dict[str, Callable[[Sequence[int]], int]] = {"largest token": max, "smallest token": min}
Ends = tuple[dict[int, int], dict[int, int]]  # the lower and the upper end for each token


class CellTally(NamedTuple):
    """How many inputs are right with the margin and how many are wrong, and those that no cell decides."""

    right: int
    wrong: int
    open: list[Tokens]


def count(statement: Statement, margin: float) -> CellTally:
    """Decides all inputs as far as cells do, down to single ones. Raises: Refusal where this is no such layer."""
    part, rule = statement.parts[0], RULES.get(str(statement.answers.get("rule")))
    is_one = len(statement.parts) == 1 and part.sets is not None and len(part.positions) == 1
    require(rule is not None and is_one, f"more than {MOST_INPUTS} inputs with other answers", NOT_CHECKABLE)
    assert rule is not None
    try:
        with ctx.workprec(PRECISION):
            found = [cells.count() for cells in _by_own_token(statement, part, rule, margin)]
    except (Open, *UNFIT) as error:
        raise Refusal(f"program: cells: {str(error) or 'a comparison is open'}", NOT_CHECKABLE) from None
    right, wrong, left = zip(*found, strict=True)
    return CellTally(sum(right), sum(wrong), [tokens for some in left for tokens in some])


def _by_own_token(
    statement: Statement, part: InputsPart, rule: Callable[[Sequence[int]], int], margin: float
) -> Iterator["HalvedCells"]:
    """The cells of each token at the place that answers, with the tables of what each token adds at each place."""
    assert part.sets is not None, "the inputs are a product"
    every: Sets = tuple(map(tuple, part.sets))
    own, graph = part.positions[0], OneLayerGraph(part.graph, PRECISION, every)
    singles = [(j, t) for j, tokens in enumerate(every) for t in tokens]
    (group, start), values = _one_softmax(statement, graph), dict[tuple[int, int], list[arb]]()
    left = iter(singles)
    while batch := [*islice(left, graph.at_once)]:
        shares = graph.scores_and_values([with_token(every, j, t) for j, t in batch])[group]
        rows = [of_each(shares.values, i)[j] for i, (j, _) in enumerate(batch)]
        padded = [[arb(0)] * start + row + [arb(0)] * (graph.size - start - len(row)) for row in rows]
        output = linear_part(graph, padded)
        for pair, row in zip(batch, output.rows, strict=True):
            values[pair] = [*statement.logits(output, row, part)[0].values()]
    for token in every[own]:
        sets = with_token(every, own, token)
        constant = graph.constant([sets])
        added = statement.logits(constant, constant.rows[0], part)[0]
        scores, left = {}, iter([(j, t) for j, chosen in enumerate(sets) for t in chosen])
        while batch := [*islice(left, graph.at_once)]:
            found = graph.scores_and_values([with_token(sets, j, t) for j, t in batch])[group].scores
            scores.update({pair: of_each(found, i)[pair[0]] for i, pair in enumerate(batch)})
        rows_ = {pair: dict(zip(added, map(arb.__add__, values[pair], added.values()), strict=True)) for pair in scores}
        yield HalvedCells(sets, scores, rows_, rule, margin)


def _one_softmax(statement: Statement, graph: OneLayerGraph) -> tuple[int, int]:
    """The one head and row whose values reach the logits, and where these stand among what the attention gives."""
    part, width, starts = statement.parts[0], graph.width, range(0, graph.size, graph.width)
    ones = [[arb(0, start <= i < start + width) for i in range(graph.size)] for start in starts]
    output = linear_part(graph, ones)
    logits = [statement.logits(output, row, part)[0].values() for row in output.rows]
    found = [at for at, row in enumerate(logits) if not all(x == 0 for x in row)]
    require(len(found) == 1, f"{len(found)} heads or rows of the attention reach the logits", NOT_CHECKABLE)
    return found[0], starts[found[0]]


def ends(x: arb, bits: int) -> tuple[int, int]:
    """Whole numbers over 2^bits between which a ball lies."""
    require(x.is_finite(), "a number on a cell has no bound", NOT_CHECKABLE)
    low, high = (x * arb(2) ** bits).lower().floor(), (x * arb(2) ** bits).upper().ceil()
    least, greatest = low.unique_fmpz(), high.unique_fmpz()
    require(least is not None and greatest is not None, "a number on a cell has no bound", NOT_CHECKABLE)
    return int(least), int(greatest)  # type: ignore[arg-type]


class HalvedCells:
    """The inputs with one token at the place that answers."""

    def __init__(
        self,
        sets: Sets,
        scores: dict[tuple[int, int], arb],
        rows: dict[tuple[int, int], dict[int, arb]],
        rule: Callable[[Sequence[int]], int],
        margin: float,
    ) -> None:
        self.sets, self.rule, self.margin = sets, rule, margin
        finite = [float(x.mid()) for x in scores.values() if x.is_finite()] or [0.0]
        top, apart = max(finite), max(finite) - min(finite)
        require(apart < MOST_BITS, "scores on a cell are too far apart", NOT_CHECKABLE)
        bits = BITS + 2 * int(apart)
        weights = {pair: (x - top).exp() for pair, x in scores.items()}
        self.weights = {pair: ends(w, bits) for pair, w in weights.items()}
        self.due = {pair: ends(w * arb(margin), bits)[1] for pair, w in weights.items()}
        self.sums = {(*pair, c): ends(w * x, bits) for pair, w in weights.items() for c, x in rows[pair].items()}
        self.classes = [*next(iter(rows.values()))]
        self.table = cache(self._table)

    def _table(self, place: int, due: int, rival: int) -> Ends:
        """The terms at a place: the least ones with the margin, the greatest ones without."""
        low, high = dict[int, int](), dict[int, int]()
        for t in self.sets[place]:
            (y_low, y_high), (c_low, c_high) = self.sums[place, t, due], self.sums[place, t, rival]
            low[t], high[t] = y_low - c_high - self.due[place, t], y_high - c_low
        return low, high

    def count(self) -> CellTally:
        right = wrong = met = 0
        undecided: list[Tokens] = []
        left = [(self.sets, self.classes)]
        while left:
            sets, rivals = left.pop()
            met += 1
            require(met <= MOST_CELLS, f"more than {MOST_CELLS} cells", NOT_CHECKABLE)
            parts = self._by_answer(sets)
            if parts:
                left += [(part, rivals) for part in parts]
                continue
            due, size = self.rule([self.rule(chosen) for chosen in sets]), math.prod(map(len, sets))
            require(due in self.classes, "program: the answer on a cell is no class")
            low = {c: self._sum(sets, due, c, 0) for c in rivals if c != due}
            open_ = [c for c, x in low.items() if x < 0 or x == 0 == self.margin]
            whole = sum(min(self.weights[j, t][0] for t in chosen) for j, chosen in enumerate(sets))
            require(whole > 0, "the weights on a cell may be 0", NOT_CHECKABLE)
            if not open_:
                right += size
            elif any(self._sum(sets, due, c, 1) <= 0 for c in open_):
                wrong += size
            elif size == 1:
                undecided.append(tuple(chosen[0] for chosen in sets))
            else:
                halves = self._halves(sets, due, min(open_, key=low.__getitem__))
                left += [(half, open_) for half in halves]
        return CellTally(right, wrong, undecided)

    def _sum(self, sets: Sets, due: int, rival: int, end: int) -> int:
        """The least sum of the terms on a cell, or for end 1 the greatest one."""
        extreme = (min, max)[end]
        return sum(extreme(map(self.table(j, due, rival)[end].__getitem__, chosen)) for j, chosen in enumerate(sets))

    def _by_answer(self, sets: Sets) -> list[Sets]:
        """Two parts of a cell that has several answers, the extreme token at one place apart; none where it has one."""
        top = self.rule([self.rule(chosen) for chosen in sets])
        if any(chosen == (top,) for chosen in sets):
            return []
        place = next(j for j, chosen in enumerate(sets) if top in chosen)
        rest = tuple(t for t in sets[place] if t != top)
        return [(*sets[:place], chosen, *sets[place + 1 :]) for chosen in ((top,), rest)]

    def _halves(self, sets: Sets, due: int, rival: int) -> list[Sets]:
        """Two parts of a cell, at the place where the terms are apart the most."""
        terms = [self.table(j, due, rival)[0] for j in range(len(sets))]
        apart = [
            max(map(at.__getitem__, chosen)) - min(map(at.__getitem__, chosen))
            for at, chosen in zip(terms, sets, strict=True)
        ]
        place = max((j for j, chosen in enumerate(sets) if len(chosen) > 1), key=apart.__getitem__)
        at, chosen = terms[place], sets[place]
        middle = (max(map(at.__getitem__, chosen)) + min(map(at.__getitem__, chosen))) // 2
        upper = tuple(t for t in chosen if at[t] > middle)
        lower = tuple(t for t in chosen if at[t] <= middle)
        if not upper:
            upper, lower = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
        return [(*sets[:place], part, *sets[place + 1 :]) for part in (lower, upper)]
