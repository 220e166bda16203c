"""The exact number of wrong inputs of a model on a bounded domain, whatever its heads.

Boxes of counts that are right or wrong throughout are counted whole; what is left is split, and the small boxes at
the end are decided triple by triple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verify.tasks.count01.layer_norm.accuracy import whole_model
from verify.tasks.count01.layer_norm.bounding import BoxMargins, Integers
from verify.tasks.count01.layer_norm.laws import Law, ListedTriples
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.syntax import AfterAnswer
from verify.tasks.count01.task import EOS, EQUALS, PromptDomain, Triple, answer

LARGEST = 10_000_000  # triples: seconds for one head, a minute for sixteen where boxes do not help
BLOCK = 400_000
SMALL = 512  # triples of a box that is no longer split
AT_ONCE = 4096  # boxes


@dataclass(frozen=True)
class WrongTriples:
    """How many of `inputs` (triple, last token) are wrong, and the first one: (triple, last token, due token)."""

    inputs: int
    wrong: int
    first: tuple[Triple, int, int] | None = None


def wrong_inputs(model: ModelNumbers, domain: PromptDomain, labels: str) -> WrongTriples | None:
    """Counts the wrong inputs of a bounded domain exactly; None where it has more than 10,000,000 triples.

    Raises: Undecided where a triple is too close to a tie.
    """
    if not domain.is_bounded or domain.size() > LARGEST:
        return None
    wrong, found = 0, list[tuple[Triple, int]]()
    for last in domain.lasts:
        for triples, is_wrong in sorted_out(model, domain, labels, last):
            wrong += int(np.count_nonzero(is_wrong))
            if is_wrong.any():
                a, b, c = min(triples[is_wrong].tolist())
                found.append(((a, b, c), last))
    inputs = len(domain.lasts) * domain.size()
    if not found:
        return WrongTriples(inputs, wrong)
    n, last = min(found)
    return WrongTriples(inputs, wrong, (n, last, answer(n[0], n[1], labels) if last == EQUALS else EOS))


def wrong_where_due(model: ModelNumbers, domain: PromptDomain, labels: str, last: int) -> NDArray[np.int64]:
    """The wrong triples of a domain after "=", or after one of 4 and 5 where it is the due answer, in their order.

    Raises: Undecided where a triple is too close to a tie.
    """
    found = [np.empty((0, 3), dtype=np.int64)]
    for triples, is_wrong in sorted_out(model, domain, labels, last):
        more = triples[:, 1] > triples[:, 0]
        due = np.where(more, answer(0, 1, labels), answer(0, 0, labels))
        found.append(triples[is_wrong & ((last == EQUALS) | (due == last))])
    wrong = np.concatenate(found)
    return wrong[np.lexsort(wrong.T[::-1])]


def wrong_after_equals(model: ModelNumbers, law: Law, labels: str) -> tuple[NDArray[np.int64], Fraction]:
    """The triples of a law that the whole model answers wrongly, in their order, and the share of right ones.

    Raises: Undecided where a triple is too close to a tie; BadInput for a law with too many triples.
    """
    if law.is_uniform:
        wrong = wrong_where_due(model, law.domain, labels, EQUALS)
        return wrong, Fraction(law.size - len(wrong), law.size)
    right = whole_model(model, law, labels).certain()
    return law.triples[~right], Fraction(law.weight_of(right), law.total)


Sorted = Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]


def sorted_out(model: ModelNumbers, domain: PromptDomain, labels: str, last: int) -> Sorted:
    """The triples of a domain after `last`, but for those in boxes that are right throughout; which are wrong."""
    decided = boxes_after(model, labels, last)
    low, high = whole_box(domain)
    small: list[tuple[Integers, Integers]] = []
    while len(low):
        lo, hi, low, high = low[-AT_ONCE:], high[-AT_ONCE:], low[:-AT_ONCE], high[:-AT_ONCE]
        side = decided(lo, hi)
        for triples in listed(lo[side < 0], hi[side < 0], domain):
            yield triples, np.ones(len(triples), dtype=bool)
        lo, hi = lo[side == 0], hi[side == 0]
        is_small = np.prod(hi - lo + 1, axis=1) <= SMALL
        small.append((lo[is_small], hi[is_small]))
        halves = halved(lo[~is_small], hi[~is_small])
        low, high = np.concatenate([low, halves[0]]), np.concatenate([high, halves[1]])
    low, high = (np.concatenate(ends) for ends in zip(*small, strict=True))
    for triples in listed(low, high, domain):
        yield triples, ~rights(model, ListedTriples(triples), labels, last)


def boxes_after(model: ModelNumbers, labels: str, last: int) -> Callable[[Integers, Integers], Integers]:
    """What Margins decides of each box for the token that is due there; 0 where two are."""
    more, rest = (answer(0, n1, labels) if last == EQUALS else EOS for n1 in (1, 0))
    margins = {expected: BoxMargins(model, last, expected) for expected in {more, rest}}

    def decided(low: Integers, high: Integers) -> Integers:
        has_more, has_not = low[:, 1] > high[:, 0], high[:, 1] <= low[:, 0]
        out = np.zeros(len(low), dtype=np.int64)
        for expected, found in margins.items():
            here = (has_more & (more == expected)) | (has_not & (rest == expected)) | (more == rest)
            if here.any():
                out[here] = found.decided(low[here], high[here])
        return out

    return decided


def whole_box(domain: PromptDomain) -> tuple[Integers, Integers]:
    """The smallest box around a bounded domain."""
    A, B = domain.largest
    return np.array([domain.origin]), np.array([[A, A, B]])


def halved(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Both halves of each box, cut across its longest side."""
    row, axis = np.arange(len(low)), (high - low).argmax(axis=1)
    middle = (low[row, axis] + high[row, axis]) // 2
    end, start = high.copy(), low.copy()
    end[row, axis], start[row, axis] = middle, middle + 1
    return np.concatenate([low, start]), np.concatenate([end, high])


def listed(low: Integers, high: Integers, domain: PromptDomain) -> Iterator[NDArray[np.int64]]:
    """The triples of a domain in some boxes, so many at a time."""
    waiting, size = list[NDArray[np.int64]](), 0
    for lo, hi in zip(low.tolist(), high.tolist(), strict=True):
        grid = np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(lo, hi, strict=True)), indexing="ij")
        triples = np.stack(grid, axis=-1).reshape(-1, 3).astype(np.int64)
        if domain.max_length is not None:
            triples = triples[triples.sum(axis=1) <= domain.max_length]
        waiting.append(triples)
        size += len(triples)
        if size >= BLOCK:
            yield np.concatenate(waiting)
            waiting, size = [], 0
    if size:
        yield np.concatenate(waiting)


def rights(model: ModelNumbers, listed: ListedTriples, labels: str, last: int) -> NDArray[np.bool_]:
    """On which triples the due token has strictly the largest logit after `last`."""
    if last == EQUALS:
        return whole_model(model, listed, labels).certain()
    return AfterAnswer(model, last, listed.triples).right(range(len(model.heads)))


def blocks(domain: PromptDomain) -> Iterator[NDArray[np.int64]]:
    """The triples of a domain in lexicographic order, so many at a time."""
    low, high = whole_box(domain)
    digits = np.arange(low[0, 0], high[0, 0] + 1)
    low, high = (np.repeat(ends, len(digits), axis=0) for ends in (low, high))
    low[:, 0] = high[:, 0] = digits
    return listed(low, high, domain)
