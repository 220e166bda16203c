"""Several positions that answer, each by cells of its own: on how many inputs all are right, on how many one is wrong.

An input is wrong where it is at some position, so that the wrong ones are a union of products of token sets. Its size
is counted token by token: tokens that are in the same products leave the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from verify.module.automaton import Mask
from verify.module.cells import MOST_REMEMBERED, Decided, Remembered, Search
from verify.module.decision import LISTED, Tally, undecided

MOST_WORK = 1 << 25  # truth values that are looked at for a union, a few seconds of them
OF_A_STEP = 1 << 7  # truth values that could be looked at in the time that a step takes besides
MOST_PLACES = 256  # positions, as the count is a recursion over them


def remember(search: Search, found: Decided, low: Tensor, high: Tensor) -> None:
    """Notes which products and single inputs are wrong, or not decided, where other positions answer as well."""
    kept = search.remembered
    if kept is None:
        return
    if found.how == "cells":
        kept.add(found.masks)
    else:
        is_open = undecided(low, high)
        kept.add(masks_of(search, found.tokens[high <= 0]), masks_of(search, found.tokens[is_open]))


def masks_of(search: Search, tokens: Tensor) -> Mask:
    """Single inputs as products."""
    masks = np.zeros((len(tokens), *search.whole.shape), dtype=bool)
    for place, allowed in enumerate(search.sets):
        masks[np.arange(len(tokens)), place, np.searchsorted(allowed.numpy(), tokens[:, place].numpy())] = True
    return masks


def together(searches: Sequence[Search], tallies: Sequence[Tally]) -> Tally:
    """All inputs of a domain, from searches that have ended at each position, each with its tally.

    What is in cells that are left counts in none of its numbers. Where there are too many products for their union,
    the inputs that are wrong somewhere are at least those of one position, and at most the sum.
    """
    size = searches[0].part.size
    for search, tally in zip(searches, tallies, strict=True):
        assert tally.adds_up(search), "an input is in no product, so that the union would leave it out"
    least = max(tally.wrong for tally in tallies)
    most = min(size, sum(size - tally.right for tally in tallies))
    wrong = [mask for search in searches for mask in remembered(search).wrong]
    left = [mask for search in searches for mask in (*remembered(search).undecided, *search.masks_left())]
    if least < most:
        least = union_size(wrong, searches[0].whole, least)
        most = union_size([*wrong, *left], searches[0].whole, most)
    found = Tally(right=size - most, wrong=least, undecided=0)
    found.by["cells"] = found.right + found.wrong
    for tally in tallies:
        if tally.margin < found.margin:
            found.margin, found.tightest = tally.margin, tally.tightest
        found.wrong_inputs += tally.wrong_inputs
        found.open_inputs += tally.open_inputs
    found.sort_wrong()
    del found.wrong_inputs[LISTED:], found.open_inputs[LISTED:]
    if not any(search.open for search in searches):
        found.undecided = most - least
    return found


def remembered(search: Search) -> Remembered:
    assert search.remembered is not None
    return search.remembered


class TooMuchWork(Exception):
    """A union that is too large to be counted."""


def union_size(masks: Sequence[Mask], whole: Mask, otherwise: int) -> int:
    """How many inputs of a product of token sets are in one of some others; `otherwise` where that takes too long.

    >>> row = np.array([[True, True, False], [True, True, True]])
    >>> union_size([row, row[::-1]], np.ones((2, 3), dtype=bool), 0)
    8
    """
    length = len(whole)
    if not masks or len(masks) > MOST_REMEMBERED or length > MOST_PLACES:
        return otherwise if masks else 0
    boxes: Mask = np.stack(masks)
    sizes = boxes.sum(2).tolist()
    is_all = np.asarray((boxes | ~whole).all(2))[:, ::-1].cumprod(1)[:, ::-1].astype(bool)  # from a position on
    widths, work = whole.sum(1).tolist(), 0

    def count(rows: np.ndarray[tuple[int], np.dtype[np.int64]], place: int) -> int:
        nonlocal work
        work += OF_A_STEP + len(rows) * whole.shape[1]
        if work > MOST_WORK:
            raise TooMuchWork
        if place == length or is_all[rows, place].any():
            return math.prod(widths[place:])
        if len(rows) == 1:
            return math.prod(sizes[rows[0]][place:])
        columns, times = np.unique(boxes[rows, place].T, axis=0, return_counts=True)
        return sum(
            n * count(rows[column], place + 1)
            for column, n in zip(columns, times.tolist(), strict=True)
            if column.any()
        )

    try:
        return count(np.arange(len(boxes)), 0)
    except TooMuchWork:
        return otherwise
