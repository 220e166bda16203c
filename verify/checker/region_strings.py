"""Strings with regions, how many there are, and the ones of each region (docs/checker.md)."""

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

ZERO, ONE, OPEN, CLOSE, BOS = range(5)
TOKENS = "01[]"
VALID = re.compile(r"[01]*(?:\[[01]*\][01]*)*")
FEW, SHORT = 3000, 10


class Strings(NamedTuple):
    """The valid strings of `shortest` to N tokens with `fewest` to R regions, with that many zeros where it is said."""

    N: int
    R: int
    fewest: int = 0
    shortest: int = 0
    zeros: int | None = None

    @property
    def most(self) -> int:
        """The largest number of regions that fits."""
        return min(self.R, (self.N - (self.zeros or 0)) // 2)

    def number(self) -> int:
        """For each length and number of regions: the places of the delimiters, then the digits."""
        found = 0
        for M, n in product(range(self.fewest, self.most + 1), range(self.shortest, self.N + 1)):
            digits = n - 2 * M
            if digits >= 0:
                of_digits = 1 << digits if self.zeros is None else math.comb(digits, self.zeros)
                found += math.comb(n, 2 * M) * of_digits
        return found

    @property
    def in_words(self) -> str:
        regions = f"exactly {self.R}" if self.fewest == self.R else f"{self.fewest} to {self.R}"
        of_zeros = "" if self.zeros is None else f", {self.zeros} zeros"
        return f"valid strings of length {self.shortest} to {self.N}, {regions} regions{of_zeros}"

    @property
    def are_few(self) -> bool:
        """Whether they are run one by one where cells do not show the margin."""
        return self.N <= SHORT and self.number() <= FEW

    @property
    def shortest_ones(self) -> "Strings":
        """These, or the shortest of them, as long as they are few."""
        lengths = (self._replace(N=n) for n in range(min(self.N, SHORT), 0, -1))
        return next((few for few in lengths if few.are_few), self._replace(N=0))

    def has(self, text: str) -> bool:
        is_counted = self.zeros is None or text.count("0") == self.zeros
        is_long = self.shortest <= len(text) <= self.N and self.fewest <= text.count("[") <= self.R
        return is_counted and is_long and VALID.fullmatch(text) is not None

    def every(self) -> Iterator[str]:
        words = (product(TOKENS, repeat=n) for n in range(self.shortest, self.N + 1))
        return filter(self.has, ("".join(word) for listed in words for word in listed))


def counts(text: str, prompts: int) -> list[int]:
    """The ones of each region, 0 where there is none."""
    found = [region.count("1") for region in re.findall(r"\[([01]*)\]", text)]
    return (found + [0] * prompts)[:prompts]
