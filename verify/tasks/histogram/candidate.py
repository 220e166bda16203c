"""The smallest wrong input: fewest distinct tokens, then the sequence, then the position."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Candidate:
    """A wrong input, ordered by number of distinct tokens, then sequence, then position."""

    distinct: int
    tokens: tuple[int, ...]
    position: int


@dataclass
class Smallest:
    """The smallest wrong input that has been seen, by all searches of one model together."""

    candidate: Candidate | None = None

    def add(self, candidate: Candidate) -> None:
        if self.candidate is None or candidate < self.candidate:
            self.candidate = candidate
