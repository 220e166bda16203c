"""The Count01 task: what the right next token is, and which inputs there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Protocol

from verify.frame.decide import Decidable, Item

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)
DIGITS = (ZERO, ONE, TWO)

Triple = tuple[int, int, int]
Prompt = tuple[Triple, int]  # the counts, and the last token


def answer(n0: int, n1: int, labels: str) -> int:
    """The token due after "=": 4 iff n1 > n0 (majority-ones), or 4 iff n0 >= n1 (thesis).

    >>> answer(2, 2, "majority-ones") == FIVE, answer(2, 2, "thesis") == FOUR
    (True, True)
    """
    if labels == "majority-ones":
        return FOUR if n1 > n0 else FIVE
    return FOUR if n0 >= n1 else FIVE


@dataclass(frozen=True)
class PromptDomain:
    """The prompts spoken of: n0 and n1 up to max_digits each, n2 up to max_noise, at most max_length digits.

    None is no bound. n0 and n1 are at least min_digits each, n2 at least min_noise. They are read after "=", and,
    unless `is_semantic`, after 4 and 5 as well.
    """

    max_digits: int | None = None
    max_noise: int | None = None
    max_length: int | None = None
    min_digits: int = 0
    min_noise: int = 0
    is_semantic: bool = False

    @property
    def origin(self) -> Triple:
        """The corner with the fewest digits."""
        return self.min_digits, self.min_digits, self.min_noise

    @property
    def largest(self) -> tuple[int, int]:
        """Of a bounded domain: the most digits of each kind, and the most noise."""
        L = self.max_length
        A, B = (L if bound is None else bound for bound in (self.max_digits, self.max_noise))
        assert A is not None and B is not None
        return A, B

    @property
    def moved(self) -> PromptDomain:
        """The same prompts counted from the origin: n1 > n0 holds for the same ones."""
        digits, noise, length = self.max_digits, self.max_noise, self.max_length
        return PromptDomain(
            None if digits is None else digits - self.min_digits,
            None if noise is None else noise - self.min_noise,
            None if length is None else length - sum(self.origin),
            is_semantic=self.is_semantic,
        )

    @property
    def lasts(self) -> tuple[int, ...]:
        """The tokens after which the prompts are read."""
        return (EQUALS,) if self.is_semantic else (EQUALS, FOUR, FIVE)

    def __contains__(self, n: Triple) -> bool:
        n0, n1, n2 = n
        return (
            min(n0, n1) >= self.min_digits
            and n2 >= self.min_noise
            and (self.max_digits is None or max(n0, n1) <= self.max_digits)
            and (self.max_noise is None or n2 <= self.max_noise)
            and (self.max_length is None or sum(n) <= self.max_length)
        )

    @property
    def is_bounded(self) -> bool:
        return self.max_length is not None or None not in (self.max_digits, self.max_noise)

    def size(self) -> int:
        """How many triples it has; only for a bounded domain.

        >>> PromptDomain(max_length=2).size(), PromptDomain(1, 1).size(), PromptDomain(3, 5, 6).size()
        (10, 8, 63)
        """
        if any(self.origin):
            return self.moved.size() if self.is_possible else 0
        (A, B), L = self.largest, self.max_length
        if L is None:
            return (A + 1) ** 2 * (B + 1)
        pairs = ((s, max(0, min(s, A) - max(0, s - A) + 1)) for s in range(min(2 * A, L) + 1))
        return sum(count * (min(B, L - s) + 1) for s, count in pairs)

    @property
    def is_possible(self) -> bool:
        """Whether any prompt is in it."""
        moved = self.moved
        return all(bound is None or bound >= 0 for bound in (moved.max_digits, moved.max_noise, moved.max_length))

    def __str__(self) -> str:
        digits = f"{self.min_digits} <= n0, n1" if self.min_digits else "n0, n1"
        noise = f"{self.min_noise} <= n2" if self.min_noise else "n2"
        parts = [
            f"all {digits}" if self.max_digits is None else f"{digits} <= {self.max_digits}",
            f"all {noise}" if self.max_noise is None else f"{noise} <= {self.max_noise}",
        ]
        if self.max_length is not None:
            bounds = [p for p in parts if not p.startswith("all")]
            parts = [*bounds, f"n0 + n1 + n2 <= {self.max_length}"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Side:
    """Half of the prompts, as base + a (1, 1, 0) + b `away` + c (0, 0, 1) with integers a, b, c >= 0."""

    base: Triple
    away: Triple

    def at(self, a: int, b: int, c: int) -> Triple:
        (n0, n1, _), (d0, d1, _) = self.base, self.away
        return n0 + a + b * d0, n1 + a + b * d1, c


MORE_ONES = Side(base=(0, 1, 0), away=(0, 1, 0))
REST = Side(base=(0, 0, 0), away=(1, 0, 0))


@dataclass(frozen=True)
class SideCell:
    """All prompts of one side, read after one last token: one expected token."""

    last: int
    side: Side
    expected: int


def cells(labels: str, lasts: tuple[int, ...] = (EQUALS, FOUR, FIVE)) -> tuple[SideCell, ...]:
    """Both subtasks on both sides: the answer after "=", EOS after 4 and 5 whatever precedes; `lasts` alone."""
    semantic = [SideCell(EQUALS, side, answer(side.base[0], side.base[1], labels)) for side in (MORE_ONES, REST)]
    syntactic = [SideCell(last, side, EOS) for last, side in product((FOUR, FIVE), (MORE_ONES, REST))]
    return tuple(cell for cell in (*semantic, *syntactic) if cell.last in lasts)


def kinds(last: int) -> tuple[int, ...]:
    """The token kinds a query at `last` can see: BOS, the digits, "=", and itself."""
    return (BOS, *DIGITS, EQUALS) if last == EQUALS else (BOS, *DIGITS, EQUALS, last)


def multiplicities(n: Triple, last: int) -> tuple[int, ...]:
    """How often each of `kinds(last)` is in the string."""
    return (1, *n, 1) if last == EQUALS else (1, *n, 1, 1)


def string(n: Triple, last: int) -> list[int]:
    """One string with these counts, sorted, up to and including the token `last`."""
    digits = [t for t, count in zip(DIGITS, n, strict=True) for _ in range(count)]
    return [BOS, *digits, EQUALS, *([] if last == EQUALS else [last])]


def triples(domain: PromptDomain) -> Iterator[Triple]:
    """Every triple of a bounded domain."""
    A, B = domain.largest
    digits = range(domain.min_digits, A + 1)
    for n in product(digits, digits, range(domain.min_noise, B + 1)):
        if n in domain:
            yield n


def by_length(domain: PromptDomain) -> Iterator[Triple]:
    """Every triple of a bounded domain, those with the fewest digits first.

    >>> list(by_length(PromptDomain(1, 1)))[:4]
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    """
    least = sum(domain.origin)
    most = domain.max_length
    if most is None:
        assert domain.max_digits is not None and domain.max_noise is not None
        most = 2 * domain.max_digits + domain.max_noise
    for length in range(least, most + 1):
        digits = length if domain.max_digits is None else min(length, domain.max_digits)
        for n0 in range(domain.min_digits, digits + 1):
            for n1 in range(domain.min_digits, min(digits, length - n0) + 1):
                if (n0, n1, length - n0 - n1) in domain:
                    yield n0, n1, length - n0 - n1


class DecidablePrompts(Decidable, Protocol):
    """What the proofs ask of a problem: the module, the answers that are due, and the prompts."""

    @property
    def module(self) -> Count01Model: ...

    @property
    def labels(self) -> str: ...

    @property
    def domain(self) -> PromptDomain: ...

    def on(self, domain: PromptDomain) -> DecidablePrompts:
        """The same problem on other prompts."""

    def telling(self, tightest: Sequence[Prompt]) -> tuple[tuple[Item, int], ...]:
        """Items and answers to be run beside a proof: its tightest prompts, and short ones."""
