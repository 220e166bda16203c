"""The exact number of wrong inputs of a model on a bounded region, whatever its heads: triple by triple."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.balls import Array
from verify.count01.heads.accuracy import whole_model
from verify.count01.heads.numbers import ModelNumbers
from verify.count01.heads.syntax import AfterAnswer
from verify.count01.task import EQUALS, Region, Triple, answer

LARGEST = 10_000_000  # triples: seconds for one head, a minute for sixteen
BLOCK = 400_000


@dataclass(frozen=True)
class Listed:
    """Triples as an array (N, 3), where a law has all of its own."""

    triples: NDArray[np.int64]

    @cached_property
    def counts(self) -> Array:
        """Multiplicities (N, 5) of BOS, 0, 1, 2 and "=" as floats."""
        one = np.ones((len(self.triples), 1))
        return np.concatenate([one, self.triples.astype(float), one], axis=1)

    @cached_property
    def has_more_ones(self) -> NDArray[np.bool_]:
        """Which triples have n1 > n0."""
        return self.triples[:, 1] > self.triples[:, 0]


@dataclass(frozen=True)
class Wrong:
    """How many of `inputs` (triple, last token) are wrong, and the first one: (triple, last token, due token)."""

    inputs: int
    wrong: int
    first: tuple[Triple, int, int] | None = None


def wrong_inputs(model: ModelNumbers, region: Region, labels: str) -> Wrong | None:
    """Counts the wrong inputs of a bounded region exactly; None where it has more than 10,000,000 triples.

    Raises: Undecided where a triple is too close to a tie.
    """
    if not region.is_bounded or region.size() > LARGEST:
        return None
    wrong, first = 0, None
    for triples in blocks(region):
        listed = Listed(triples)
        for last in region.lasts:
            right = rights(model, listed, labels, last)
            wrong += int(np.count_nonzero(~right))
            if first is None and not right.all():
                a, b, c = triples[int(np.argmin(right))].tolist()
                first = ((a, b, c), last, answer(a, b, labels) if last == EQUALS else 7)
    return Wrong(len(region.lasts) * region.size(), wrong, first)


def rights(model: ModelNumbers, listed: Listed, labels: str, last: int) -> NDArray[np.bool_]:
    """On which triples the due token has strictly the largest logit after `last`."""
    if last == EQUALS:
        return whole_model(model, listed, labels).certain()
    return AfterAnswer(model, last, listed.triples).right(range(len(model.heads)))


def blocks(region: Region) -> Iterator[NDArray[np.int64]]:
    """The triples of a region in lexicographic order, so many at a time."""
    L = region.max_length
    A = region.max_digits if region.max_digits is not None else L
    B = region.max_noise if region.max_noise is not None else L
    assert A is not None and B is not None
    digits, noise = np.arange(region.min_digits, A + 1), np.arange(region.min_noise, B + 1)
    rows = max(1, BLOCK // max(1, len(digits) * len(noise)))
    for start in range(0, len(digits), rows):
        grid = np.meshgrid(digits[start : start + rows], digits, noise, indexing="ij")
        triples = np.stack(grid, axis=-1).reshape(-1, 3).astype(np.int64)
        if L is not None:
            triples = triples[triples.sum(axis=1) <= L]
        if len(triples):
            yield triples
