"""The share of random strings on which a model is right: document B's Fig. 5 as exact numbers.

All strings of length N with M regions are equally likely: places of the delimiters are uniform, digits are fair coins.
(The document draws digits so, and does not say how it places regions.) What a prompt is told depends on the number k of
ones in its region, and with bias 0 on the number of zeros. Each such cell is right on all its strings, wrong on all, or
open, and binomial coefficients count them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from verify.tasks.contextual.cells import CellProof, PromptCells
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.verdict import domain_of

if TYPE_CHECKING:
    from verify.tasks.contextual.model import ContextualModel


@dataclass(frozen=True)
class PairShare:
    """The share of pairs of a string and a prompt that are right, and of those that the proof leaves open."""

    right: Fraction
    open: Fraction


@dataclass(frozen=True)
class RandomStrings:
    """All strings of N tokens with exactly M regions, equally likely.

    >>> strings = RandomStrings(6, 1)
    >>> strings.number(), sum(strings.with_ones(k) for k in range(5))
    (240, 240)
    >>> strings.with_ones(1) == sum(strings.with_ones_and_zeros(1, zeros) for zeros in range(5))
    True
    """

    N: int
    M: int

    @property
    def digits(self) -> int:
        return self.N - 2 * self.M

    def number(self) -> int:
        """How many there are."""
        return comb(self.N, 2 * self.M) << self.digits

    def with_ones(self, k: int) -> int:
        """Those with k ones in a given region: over its number of digits, the rest free in the 2M other gaps."""
        return sum(
            comb(inside, k) * self._elsewhere(inside) << (self.digits - inside) for inside in range(k, self.digits + 1)
        )

    def with_ones_and_zeros(self, k: int, zeros: int) -> int:
        """Those with k ones in a given region and so many zeros in all."""
        return sum(
            comb(k + own, k) * comb(self.digits - k - own, zeros - own) * self._elsewhere(k + own)
            for own in range(min(zeros, self.digits - k) + 1)
        )

    def _elsewhere(self, inside: int) -> int:
        """The ways to place all other digits in the gaps between 2M delimiters that are not this region."""
        return comb(self.digits - inside + 2 * self.M - 1, 2 * self.M - 1)


def share(module: ContextualModel, N: int, M: int, *, by_zeros: bool, advance: Callable[[float], None]) -> PairShare:
    """Over strings of N tokens and M >= 1 regions, and the prompts of regions that are there.

    Claim: B-3.4. With `by_zeros` each number of zeros is decided by itself, as it has to be where 0 is the bias token.
    """
    strings, stored = RandomStrings(N, M), StoredContextual.of(module)
    right = unsure = 0
    for zeros in range(strings.digits + 1) if by_zeros else (None,):
        with np.errstate(invalid="ignore", over="ignore"):
            domain = domain_of(module, N, regions=M, exactly=True, zeros=zeros)
            cells = list(CellProof(stored, domain).decide())
        for k in range(strings.digits - (zeros or 0) + 1):
            decided = [of_cell(cells, r, k) for r in range(1, M + 1)]
            if any(known is not False for known in decided):
                number = strings.with_ones(k) if zeros is None else strings.with_ones_and_zeros(k, zeros)
                right += number * sum(known is True for known in decided)
                unsure += number * sum(known is None for known in decided)
        advance((zeros or 0) / max(1, strings.digits))
    total = strings.number() * M
    return PairShare(Fraction(right, total), Fraction(unsure, total))


def of_cell(cells: Sequence[PromptCells], r: int, k: int) -> bool | None:
    """Whether count k of prompt r is right on all strings (True), wrong on all (False), or open."""
    found = next(c for c in cells if c.r == r)
    if found.margin[k] > 0:
        return True
    return False if found.wrong[k] else None
