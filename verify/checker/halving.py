"""Inputs decided by cells, products of token sets, each halved until it is right, wrong, or a single input."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from verify.checker.one_layer import Sets
from verify.checker.questions import Tokens
from verify.checker.reading import NOT_CHECKABLE, require

MOST_CELLS = 1 << 22
Rule = Callable[[Sequence[int]], int]
Terms = Sequence[Mapping[int, int]]  # for each place, a number for each of its tokens


class CellTally(NamedTuple):
    """How many inputs are right with the margin and how many are wrong, and those that no cell decides."""

    right: int
    wrong: int
    open: list[Tokens]


class CellBounds(ABC):
    """Bounds on (logit of the right class - another logit) over one cell."""

    @abstractmethod
    def least(self, rivals: Sequence[int]) -> dict[int, int]:
        """Whether the least differences, less the margin, are below, at or above 0."""

    @abstractmethod
    def is_behind(self, rivals: Sequence[int]) -> bool:
        """Whether the right class is nowhere ahead of one of these."""

    @abstractmethod
    def terms(self, rival: int) -> Terms:
        """What tokens add to a bound, whose spread says where to halve."""


BoundsOf = Callable[[Sets, int, CellBounds | None], CellBounds]  # of a cell that is part of another


class HalvedCells:
    """A product of token sets, some function of which bounds each cell."""

    def __init__(self, sets: Sets, classes: list[int], rule: Rule, margin: float, bounds: BoundsOf) -> None:
        self.sets, self.classes, self.rule, self.margin, self.bounds = sets, classes, rule, margin, bounds

    def count(self) -> CellTally:
        right = wrong = met = 0
        undecided: list[Tokens] = []
        left: list[tuple[Sets, list[int], CellBounds | None]] = [(self.sets, self.classes, None)]
        while left:
            sets, rivals, parent = left.pop()
            met += 1
            require(met <= MOST_CELLS, f"more than {MOST_CELLS} cells", NOT_CHECKABLE)
            parts = self._by_answer(sets)
            if parts:
                left += [(part, rivals, parent) for part in parts]
                continue
            due, size = self.rule([self.rule(chosen) for chosen in sets]), math.prod(map(len, sets))
            require(due in self.classes, "program: the answer on a cell is no class")
            cell = self.bounds(sets, due, parent)
            low = cell.least([c for c in rivals if c != due])
            open_ = [c for c, x in low.items() if x < 0 or x == 0 == self.margin]
            if not open_:
                right += size
            elif cell.is_behind(open_):
                wrong += size
            elif size == 1:
                undecided.append(tuple(chosen[0] for chosen in sets))
            else:
                terms = cell.terms(min(open_, key=low.__getitem__))
                left += [(half, open_, cell) for half in halves(sets, terms)]
        return CellTally(right, wrong, undecided)

    def _by_answer(self, sets: Sets) -> list[Sets]:
        """Two parts of a cell that has several answers, the extreme token at one place apart; none where it has one."""
        top = self.rule([self.rule(chosen) for chosen in sets])
        if any(chosen == (top,) for chosen in sets):
            return []
        place = next(j for j, chosen in enumerate(sets) if top in chosen)
        rest = tuple(t for t in sets[place] if t != top)
        return [(*sets[:place], chosen, *sets[place + 1 :]) for chosen in ((top,), rest)]


def halves(sets: Sets, terms: Terms) -> Iterator[Sets]:
    """Two parts of a cell, at the place where the terms are apart the most."""
    apart = [max(at[t] for t in chosen) - min(at[t] for t in chosen) for at, chosen in zip(terms, sets, strict=True)]
    place = max((j for j, chosen in enumerate(sets) if len(chosen) > 1), key=apart.__getitem__)
    at, chosen = terms[place], sets[place]
    middle = (max(at[t] for t in chosen) + min(at[t] for t in chosen)) // 2
    upper = tuple(t for t in chosen if at[t] > middle)
    lower = tuple(t for t in chosen if at[t] <= middle)
    if not upper:
        upper, lower = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
    return ((*sets[:place], part, *sets[place + 1 :]) for part in (lower, upper))
