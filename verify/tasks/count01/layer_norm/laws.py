"""Laws: which triples (n0, n1, n2) there are, and how often each occurs. Every share is a share under one of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput, shown
from verify.arithmetic.slack import Array
from verify.tasks.count01.layer_norm.cone import Constraint
from verify.tasks.count01.task import PromptDomain

LARGEST_LAW = 20_000_000
CHOICES = "d-test, d-val, d-train, e-lengths, box:LO:HI:M or unbounded"
DOCUMENT_BOXES = {"d-train": (0, 100, 100), "d-val": (101, 150, 150), "d-test": (151, 200, 200)}
SHORTEST, LONGEST = 151, 200  # E's test set


class JudgedTriples(ABC):
    """Triples with their multiplicities: a law, or a list."""

    @property
    @abstractmethod
    def triples(self) -> NDArray[np.int64]:
        """The triples (n0, n1, n2), an array (N, 3)."""

    @cached_property
    def counts(self) -> Array:
        """Multiplicities (N, 5) of BOS, 0, 1, 2 and "=" as floats."""
        found = np.ones((len(self.triples), 5))
        found[:, 1:4] = self.triples
        return found

    @cached_property
    def has_more_ones(self) -> NDArray[np.bool_]:
        """Which triples have n1 > n0."""
        return self.triples[:, 1] > self.triples[:, 0]


class ListedTriples(JudgedTriples):
    """Triples that are given, where a law has all of its own."""

    def __init__(self, triples: NDArray[np.int64]) -> None:
        self._triples = triples

    @property
    def triples(self) -> NDArray[np.int64]:
        return self._triples


@dataclass(frozen=True)
class Law(JudgedTriples):
    """A distribution of triples: uniform on low <= n0, n1 <= high, 0 <= n2 <= noise, or E's random strings.

    `unbounded` has no probabilities: all of N^3, of which only "always" and "not always" can be said.
    """

    name: str
    low: int = 0
    high: int = 0
    noise: int = 0

    @property
    def is_unbounded(self) -> bool:
        return self.name == "unbounded"

    @property
    def is_uniform(self) -> bool:
        return not self.is_unbounded and self.name != "e-lengths"

    @property
    def domain(self) -> PromptDomain:
        """The triples of a box as a domain of prompts.

        Raises: BadInput for more than 20,000,000.
        """
        self._check_size()
        return PromptDomain(self.high, self.noise, min_digits=self.low)

    def __str__(self) -> str:
        if self.is_unbounded:
            return "all n0, n1, n2 >= 0"
        if not self.is_uniform:
            return f"a length uniform in [{SHORTEST}, {LONGEST}], every digit uniform in 0, 1, 2, all independent"
        return f"n0, n1 uniform in [{self.low}, {self.high}], n2 uniform in [0, {self.noise}], independent"

    @property
    def size(self) -> int:
        """How many triples it gives a positive probability."""
        if self.is_uniform:
            return int((self.high - self.low + 1) ** 2 * (self.noise + 1))
        return sum(comb(length + 2, 2) for length in range(SHORTEST, LONGEST + 1))

    @cached_property
    def triples(self) -> NDArray[np.int64]:
        """All triples (N, 3) in lexicographic order.

        Raises: BadInput for more than 20,000,000.
        """
        self._check_size()
        if self.is_uniform:
            digits, noise = np.arange(self.low, self.high + 1), np.arange(self.noise + 1)
            return np.stack(np.meshgrid(digits, digits, noise, indexing="ij"), axis=-1).reshape(-1, 3)
        parts = []
        for n0 in range(LONGEST + 1):
            n1, n2 = np.meshgrid(np.arange(LONGEST + 1 - n0), np.arange(LONGEST + 1 - n0), indexing="ij")
            total = n0 + n1 + n2
            inside = (total >= SHORTEST) & (total <= LONGEST)
            parts.append(np.stack([np.full(int(inside.sum()), n0), n1[inside], n2[inside]], axis=-1))
        return np.concatenate(parts)

    def _check_size(self) -> None:
        if self.size > LARGEST_LAW:
            raise BadInput(f"law={self.name}: has {self.size} triples, more than {LARGEST_LAW}; take a smaller box")

    @cached_property
    def weights(self) -> NDArray[np.object_] | None:
        """Integers proportional to the probabilities; None where all are equal."""
        if self.is_uniform:
            return None
        factorials = [1]
        for k in range(1, LONGEST + 1):
            factorials.append(factorials[-1] * k)
        powers = [3**k for k in range(LONGEST - SHORTEST + 1)]
        out = np.empty(len(self.triples), dtype=object)
        for i, (a, b, c) in enumerate(self.triples.tolist()):
            strings = factorials[a + b + c] // (factorials[a] * factorials[b] * factorials[c])
            out[i] = strings * powers[LONGEST - a - b - c]
        return out

    @cached_property
    def total(self) -> int:
        """The sum of the weights."""
        return self.size if self.is_uniform else 3**LONGEST * (LONGEST - SHORTEST + 1)

    def weight_of(self, chosen: NDArray[np.bool_]) -> int:
        """The sum of the weights of the chosen triples."""
        if self.weights is None:
            return int(np.count_nonzero(chosen))
        return int(sum(self.weights[chosen].tolist()))

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns the conditions on a linear form in (1, n0, n1, n2) to be positive exactly where n1 > n0.

        A linear form is positive on all triples of a side if and only if it is at the corners of their convex
        hull (three times two of them for a box), and along the directions in which it is unbounded.
        """
        if self.is_unbounded:
            return UNBOUNDED
        corners = self._box_corners() if self.is_uniform else self._length_corners()
        return tuple(Constraint((1, *n), n[1] > n[0]) for n in dict.fromkeys(corners))

    def _box_corners(self) -> list[tuple[int, int, int]]:
        low, high = self.low, self.high
        rest = [(low, low), (high, low), (high, high)]
        more = [(low, low + 1), (low, high), (high - 1, high)] if high > low else []
        return [(a, b, c) for a, b in more + rest for c in (0, self.noise)]

    def _length_corners(self) -> list[tuple[int, int, int]]:
        """The corners for the shortest and longest even and odd length: those between are mixtures of these."""
        corners = []
        for n in (SHORTEST, SHORTEST + 1, LONGEST - 1, LONGEST):
            half = n // 2
            corners += [(0, 0, n), (n, 0, 0), (0, 1, n - 1), (0, n, 0)]
            if n % 2:
                corners += [(half, half + 1, 0), (half + 1, half, 0), (half, half, 1)]
            else:
                corners += [(half, half, 0), (half - 1, half + 1, 0), (half - 1, half, 1)]
        return corners


# With vertex (0, 1, 0) and rays (1, 1, 0), (0, 1, 0), (0, 0, 1) on one side, (0, 0, 0) and (1, 0, 0) on the other.
UNBOUNDED = (
    Constraint((1, 0, 1, 0), True),
    Constraint((0, 1, 1, 0), True, is_strict=False),
    Constraint((0, 0, 1, 0), True, is_strict=False),
    Constraint((0, 0, 0, 1), True, is_strict=False),
    Constraint((1, 0, 0, 0), False),
    Constraint((0, 1, 1, 0), False),
    Constraint((0, 1, 0, 0), False),
    Constraint((0, 0, 0, 1), False),
)


def law_named(name: str) -> Law:
    """The law that --law names.

    Raises: BadInput for any other name, or a box without triples.

    >>> law_named("d-test").size, str(law_named("box:0:5:2"))
    (502500, 'n0, n1 uniform in [0, 5], n2 uniform in [0, 2], independent')
    """
    if name in ("unbounded", "e-lengths"):
        return Law(name)
    if name in DOCUMENT_BOXES:
        return Law(name, *DOCUMENT_BOXES[name])
    found = re.fullmatch(r"box:(\d{1,9}):(\d{1,9}):(\d{1,9})", name)
    if not found:
        raise BadInput(f"law={shown(name)}: must be {CHOICES}, such as box:0:200:200")
    low, high, noise = (int(x) for x in found.groups())
    if low > high:
        raise BadInput(f"law={name!r}: LO={low} exceeds HI={high}; exchange them")
    if max(high, noise) >= 1 << 24:
        raise BadInput(f"law={name!r}: counts must be below 2^24; use unbounded for all of them")
    return Law(name, low, high, noise)
