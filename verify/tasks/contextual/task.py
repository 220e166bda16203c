"""The contextual counting task: valid strings over 0 1 [ ], the ones in region r for each prompt r, and domains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

from constructions.contextual_counting_arrays import CLOSE, ONE, OPEN, TOKENS, ZERO
from constructions.errors import BadInput

SYMBOLS = "01[]"
MOST_PLACED = 1024  # tokens, where positions differ: a proof holds (5 N)^2 weights


def parse(text: str) -> list[int]:
    """The tokens of a string; spaces are skipped.

    Claim: B, Sec. 2.1: regions do not overlap, so neither do their delimiters nest.
    Raises: BadInput with the position (from 1) of the first fault: another symbol, "[" inside a region, "]" outside
        one, or a "[" that is never closed.

    >>> parse("[1]0")
    [2, 1, 3, 0]
    """
    tokens: list[int] = []
    opened = 0
    for position, symbol in enumerate(text, 1):
        if symbol == " ":
            continue
        fault = None
        if symbol not in SYMBOLS:
            fault = f"{symbol!r} is none of 0 1 [ ]"
        elif symbol == "[" and opened:
            fault = f"'[' inside the region opened at position {opened}; regions do not nest"
        elif symbol == "]" and not opened:
            fault = "']' closes no region"
        if fault:
            raise BadInput(f"string: position {position}: {fault}")
        opened = position if symbol == "[" else 0 if symbol == "]" else opened
        tokens.append(SYMBOLS.index(symbol))
    if opened:
        raise BadInput(f"string: position {opened}: '[' is never closed; add a ']' after it")
    return tokens


def written(tokens: list[int]) -> str:
    """The string of tokens.

    >>> written([2, 1, 3, 0])
    '[1]0'
    """
    return "".join(TOKENS[t] for t in tokens)


def answers(tokens: list[int], R: int) -> list[int]:
    """The number of ones in each of the first R regions; 0 for a region that is not there.

    >>> answers(parse("1[0][101]1"), 3)
    [0, 2, 0]
    """
    found: list[int] = []
    is_inside = False
    for token in tokens:
        if token == OPEN:
            found.append(0)
        is_inside = token == OPEN or (is_inside and token != CLOSE)
        if is_inside and token == ONE:
            found[-1] += 1
    return (found + [0] * R)[:R]


@dataclass(frozen=True)
class StringDomain:
    """All valid strings of length shortest..N with fewest..R regions, and, where given, exactly `zeros` 0 tokens.

    >>> domain = StringDomain(4, 1)
    >>> domain.strings(), sum(1 for _ in domain.enumerate())
    (62, 62)
    >>> domain = StringDomain(6, 2, 1, 1, zeros=2)
    >>> domain.strings(), sum(1 for _ in domain.enumerate())
    (141, 141)
    """

    N: int
    R: int
    fewest: int = 0
    shortest: int = 0
    zeros: int | None = None

    def __post_init__(self) -> None:
        if self.N < 1:
            raise BadInput(f"length={self.N}: must be at least 1")
        if not 0 <= self.fewest <= self.R:
            raise BadInput(f"regions={self.R}: must be at least {max(0, self.fewest)}")
        if 2 * self.fewest + (self.zeros or 0) > self.N:
            needed = 2 * self.fewest + (self.zeros or 0)
            raise BadInput(f"length={self.N}: no such string is that short; it must be at least {needed}")

    def strings(self) -> int:
        """How many strings that are: the delimiters' places determine which are "[" and which "]"."""
        return sum(self._with(regions) for regions in range(self.fewest, self.most + 1))

    @property
    def most(self) -> int:
        """The largest number of regions that fits."""
        return min(self.R, (self.N - (self.zeros or 0)) // 2)

    def _with(self, regions: int) -> int:
        """The strings with so many regions: over all lengths, choose the delimiters' places, then the digits.

        With a_j = sum over L <= N of C(L, j) 2^L, Pascal's rule gives a_j = C(N+1, j) 2^(N+1) - [j = 0] - 2 a_(j-1);
        with the zeros given there is only to choose where they and the delimiters are.
        """
        empty = int(self.shortest > 0 and regions == 0 and not self.zeros)
        if self.zeros is not None:
            marked = 2 * regions + self.zeros
            return comb(self.N + 1, marked + 1) * comb(marked, self.zeros) - empty
        a = 0
        for j in range(2 * regions + 1):
            a = (comb(self.N + 1, j) << (self.N + 1)) - (j == 0) - 2 * a
        return (a >> (2 * regions)) - empty

    def enumerate(self) -> Iterator[list[int]]:
        """Every string, the shortest first, those of one length in the order of their tokens."""
        for length in range(self.shortest, self.N + 1):
            yield from self._begun([], length)

    def _begun(self, tokens: list[int], length: int) -> Iterator[list[int]]:
        """Every string of a length that begins with these tokens."""
        opened, closed, left = tokens.count(OPEN), tokens.count(CLOSE), length - len(tokens)
        if opened - closed not in (0, 1) or opened > self.R or opened - closed > left:
            return
        if left:
            for token in range(len(SYMBOLS)):
                yield from self._begun([*tokens, token], length)
        elif self.has(tokens):
            yield tokens

    def has(self, tokens: list[int]) -> bool:
        """Whether a list of tokens is one of the strings."""
        if not self.shortest <= len(tokens) <= self.N:
            return False
        if self.zeros is not None and tokens.count(ZERO) != self.zeros:
            return False
        delimiters = [t for t in tokens if t in (OPEN, CLOSE)]
        is_valid = len(delimiters) % 2 == 0 and delimiters == [OPEN, CLOSE] * (len(delimiters) // 2)
        return is_valid and self.fewest <= len(delimiters) // 2 <= self.R

    def __str__(self) -> str:
        regions = f"exactly {self.R}" if self.fewest == self.R else f"{self.fewest} to {self.R}"
        zeros = "" if self.zeros is None else f", {self.zeros} zeros"
        return f"valid strings of length {self.shortest} to {self.N}, {regions} regions{zeros}"
