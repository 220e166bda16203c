"""A part of a domain decided on a graph of one attention layer, by cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from constructions.errors import BadInput
from verify.engine.guard import Guard
from verify.engine.one_layer.layer import OneLayer
from verify.frame.clock import Deadline
from verify.module import cells, positions
from verify.module.automaton import Chart
from verify.module.beside import Beside
from verify.module.decision import Bounds, Judge, Tally
from verify.module.inputs import Product
from verify.module.specification import Traced, chart_of
from verify.module.task import Task

LISTED = 1 << 26  # inputs up to which a function that settles few cells is asked input by input


@dataclass(frozen=True)
class Layered:
    """One layer, the inputs that it is to decide, what decides those that it leaves open, and what runs beside it."""

    layer: OneLayer
    part: Product
    task: Task
    classes: int
    judge: Judge

    @property
    def guard(self) -> Guard:
        """What runs the module beside."""
        assert self.judge.guard is not None
        return self.judge.guard

    @cached_property
    def chart(self) -> Chart | Traced | None:
        """Which answers occur on products of token sets; None where that is not known, or says too little."""
        found = chart_of(self.task.expected, self.part.sets)
        is_long = isinstance(found, Traced) and self.part.candidates <= LISTED and not found.settles()
        return None if is_long else found

    def search(self, aim: cells.Aim) -> cells.Search:
        """A search without cells as yet."""
        assert self.chart is not None
        return cells.Search(self.layer, self.part, self.chart, self._column, aim)

    def _column(self, length: int, label: int) -> int:
        """The place of a label among the classes."""
        one = replace(self.task, expected=lambda _: torch.tensor([label]))
        return int(one.answers(torch.zeros(1, length, dtype=torch.long), self.classes)[0, 0])

    def by_cells(
        self,
        search: cells.Search,
        tally: Tally,
        deadline: Deadline,
        progress: Callable[[int], None],
        keep: Callable[[bool], None] = lambda is_due: None,
        at_once: cells.AtOnce = map,
        batches: Iterable[list[cells.Decided]] | None = None,
    ) -> None:
        """Decides cells until none is left or the time is up; some inputs of right and of wrong ones are run beside.

        Where there are `batches`, these are all.

        `keep` is called wherever search and tally together count every input once, with True at the end.
        Raises: Disagreement.
        """
        beside = Beside(self.guard)

        def count(batch: list[cells.Decided]) -> None:
            for found in batch:
                positions.remember(search, found, *self._count(found, tally, deadline))
                beside.add(found)

        steps = (partial(count, batch) for batch in batches or search.run(deadline, at_once))
        self.in_steps(steps, search, tally, progress, keep, beside.check)

    @staticmethod
    def in_steps(
        steps: Iterable[Callable[[], None]],
        search: cells.Search,
        tally: Tally,
        progress: Callable[[int], None],
        keep: Callable[[bool], None],
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Counts step by step what is moved from the search to the tally; `keep` as in `by_cells`."""
        is_whole = True
        try:
            for step in steps:
                is_whole = False
                step()
                is_whole = True
                progress(tally.seen)
                keep(False)
            at_end()
        except (KeyboardInterrupt, BadInput):  # the latter where a worker or its scheduler is gone
            if is_whole and tally.adds_up(search):  # not where cells were being moved
                keep(True)
            raise
        if search.tightest is not None and search.met <= 4 * tally.margin:  # the bound is attained nearly there
            tally.tightest = search.tightest
        tally.sort_wrong()
        keep(True)

    def _count(self, found: cells.Decided, tally: Tally, deadline: Deadline) -> tuple[Tensor, Tensor]:
        """Counts what is decided at once; the bounds on the margins of the inputs that it names."""
        bounds = Bounds(found.low, found.high, {"tables": len(found.tokens)})
        if found.how == "cells":
            tally.add_cells(found)
            return found.low, found.high
        if found.how == "open":
            bounds = self.judge.bounds(found.tokens, found.answers.unsqueeze(1), deadline)
        tally.add(found.tokens, bounds)
        return bounds.low, bounds.high
