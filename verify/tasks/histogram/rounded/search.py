"""The branch and bound of real arithmetic on tables of computed numbers: one cell, proved or left open."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.record import Record
from verify.tasks.histogram.reduction import Row
from verify.tasks.histogram.rounded.reduction import RoundedReduction

MOST_BATCHES = 1 << 10  # of regions, tried before a cell is left open


def margin_of_cell(
    reduction: RoundedReduction, row: Row, t: int, k: int, is_over: Callable[[], bool], record: Record | None = None
) -> float:
    """A lower bound on the margin of the cell of token t with own count k, -inf where the search does not end.

    `is_over` is asked before every batch; the record keeps the splits for the checker.
    """
    search, batches = RegionSearch(reduction, None, row, t, [k], record=record), 0

    def gives_up() -> bool:
        nonlocal batches
        batches += 1
        return search.is_lost or batches > MOST_BATCHES or is_over()

    while not search.is_finished and not gives_up():
        search.run_sizes([max(search.sizes)], gives_up)
    if search.is_lost or not search.is_finished:
        return -np.inf
    return search.right_margin[k]
