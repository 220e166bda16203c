"""Models in constant-bit arithmetic: all inputs at once, those whose partial sums agree being one (docs/checker.md)."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, reduce
from typing import NamedTuple

from flint import arb

from verify.checker.chains import Column, from_left
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.rounded_operations import power
from verify.checker.statement import compare, verdict_of
from verify.checker.table import IN_BITS, walk

MOST_WORK = 4_000_000  # numbers that are added
MOST_BITS = 12
RIGHT = "right means: the right {} has strictly the largest logit"
Row = Sequence[int]
Label = tuple[int, ...]


class Slot(NamedTuple):
    """A token that may stand in a place of a sequence: what it adds to the label, and its score and value by head."""

    mark: Label
    scores: tuple[int, ...]
    values: tuple[Row, ...]


class NoToken(Exception):
    """A softmax is 0/0."""


class Bits:
    """Constant-bit arithmetic: whole numbers over 2^s, rounded after every operation, ties to the smaller magnitude."""

    def __init__(self, s: int) -> None:
        self.one, self.largest = 1 << s, int(4**s - 1)
        self.is_alive = cache(lambda j: bool((arb(j) / self.one).exp() * 2 * self.one > 1))

    def _rounded(self, x: int, over: int) -> int:
        size: int = min((2 * abs(x) + over - 1) // (2 * over), self.largest)
        return size if x >= 0 else -size

    def stored(self, x: float) -> int:
        exact = Fraction(x) * self.one
        return self._rounded(exact.numerator, exact.denominator)

    weight = stored

    def times(self, x: int, w: int) -> int:
        return self._rounded(x * w, self.one)

    def plus(self, x: int, y: int) -> int:
        found: int = max(-self.largest, min(self.largest, x + y))
        return found

    def positive(self, x: int) -> int:
        return max(x, 0)

    def hull(self, numbers: Sequence[int]) -> int:
        require(
            len({*numbers}) == 1, "scores of so many positions depend on tokens, which is not checked", NOT_CHECKABLE
        )
        return numbers[0]

    def any_of(self, numbers: Sequence[int]) -> int:
        """Which value is added with a weight of 0 plays no part."""
        return numbers[0]

    def between(self, numbers: Sequence[int]) -> tuple[int, int]:
        return min(numbers), max(numbers)

    def scores(self, queries: Sequence[Row], keys: Sequence[Row], seen: Sequence[int]) -> Iterator[list[int]]:
        for query, n in zip(queries, seen, strict=True):
            read = [(j, w) for j, w in enumerate(query) if w]
            yield [self.total(read, key) for key in keys[:n]]

    def total(self, column: Column[int], x: Row, *added: int) -> int:
        return from_left(self, column, x, *added)

    def retrieved(self, row: Sequence[tuple[int, int]], values: object) -> tuple[int, int]:
        """The one position whose exponential is never rounded to 0, as all others' are: its share is exactly 1."""
        alive = [(i, low) for i, (low, high) in enumerate(row) if self.is_alive(high)]
        is_one = len(alive) == 1 and self.is_alive(alive[0][1])
        require(is_one, "a step looks at no position, or at several", NOT_CHECKABLE)
        return alive[0][0], 0

    def mixed(self, value: int, share: int) -> int:
        return value

    def number(self, x: int) -> arb:
        return arb(x) / self.one


class LeftToRight(Bits):
    """Sums from left to right over places, of each of which several tokens are possible."""

    def __init__(self, s: int) -> None:
        super().__init__(s)
        self.left, self.power = MOST_WORK, cache(self._power)

    def _power(self, x: int) -> int:
        """e^x, rounded."""
        if x == 0 or x > self.largest.bit_length() * self.one:
            return self.one if x == 0 else self.largest
        n, k = power(x / self.one)
        return self._rounded(n * self.one, 1 << k)

    def divided(self, x: int, y: int) -> int:
        return self._rounded(x * self.one, y)

    def mean(self, scores: Row, values: Row) -> int:
        """Of one sequence's values by softmax."""
        powers = [*map(self.power, scores)]
        total = reduce(self.plus, powers)
        if total == 0:
            raise NoToken
        return self.dot([self.divided(x, total) for x in powers], values)

    def matrix(self, rows: Sequence[Sequence[float]]) -> list[list[int]]:
        return [[self.stored(x) for x in row] for row in rows]

    def dot(self, x: Row, y: Row) -> int:
        return reduce(self.plus, map(self.times, x, y), 0)

    def affine(self, x: Row, W: Sequence[Row], b: Row | None = None) -> list[int]:
        found = [self.dot(x, column) for column in zip(*W, strict=True)]
        return found if b is None else [*map(self.plus, found, b)]

    def sums(
        self, places: Sequence[Sequence[tuple[Label, Row]]], fits: Callable[[Label], bool]
    ) -> Counter[tuple[Label, Label]]:
        """How many sequences have each label and sums, whose labels fit at every place."""
        (mark, row), found = places[0][0], Counter[tuple[Label, Label]]()
        found[(0,) * len(mark), (0,) * len(row)] = 1
        for place in places:
            before, found = found, Counter()
            self.left -= len(before) * len(place) * (1 + len(row))
            require(self.left > 0, "so many sums are not followed again", NOT_CHECKABLE)
            for (label, total), n in before.items():
                for mark, row in place:
                    new = tuple(a + b for a, b in zip(label, mark, strict=True))
                    if fits(new):
                        found[new, tuple(map(self.plus, total, row))] += n
        return found

    def means(
        self, places: Sequence[Sequence[Slot]], fits: Callable[[Label], bool]
    ) -> Iterator[tuple[Label, Label, int]]:
        """Labels, what the heads read by softmax side by side, and how many sequences have both.

        Where all exponentials of a head are 0, its softmax is 0 / 0: such sequences are left out.
        """
        powers = [[(x.mark, tuple(map(self.power, x.scores))) for x in place] for place in places]
        heads = len(places[0][0].scores)
        for totals in {total for _, total in self.sums(powers, fits) if min(total) > 0}:
            shared = [[(x.mark, (*tops, *self._shared(x, tops, totals))) for x, (_, tops) in zip(*both, strict=True)]
                      for both in zip(places, powers, strict=True)]  # fmt: skip
            for (label, found), n in self.sums(shared, fits).items():
                if found[:heads] == totals:
                    yield label, found[heads:], n

    def _shared(self, x: Slot, powers: Row, totals: Row) -> Iterator[int]:
        """A token's values, by its share of each head's weights."""
        for top, total, row in zip(powers, totals, x.values, strict=True):
            share = self.divided(top, total)
            yield from (self.times(share, y) for y in row)


def bits_of(c: Mapping[str, object]) -> int | None:
    """The s of a certificate in s-bit arithmetic; None for one in another reading."""
    p = c.get("parameters")
    found = re.fullmatch("s([1-9][0-9]?)", str(p.get("precision"))) if isinstance(p, dict) else None
    is_so = c.get("reading") == "bit-exact" and found is not None and int(found[1]) <= MOST_BITS
    return int(found[1]) if is_so and found else None


def opened_in_bits(task: str, c: Mapping[str, object], s: int, what: str) -> tuple[str, list[str]]:
    """The verdict of a certificate in s-bit arithmetic, and the fields taken on trust."""
    require(c.get("method") in ("certified", "exhaustive"), "method: is not checked", NOT_CHECKABLE)
    verdict = verdict_of(c)
    trusted = walk(c, f"{task}, {verdict.lower()}{IN_BITS}")
    arithmetic = (
        f"constant-bit arithmetic, s={s}: weights and every operation rounded to multiples of 2^-{s}, ties to the "
        f"smaller magnitude, saturating at 2^{s} - 2^-{s}; sums from left to right; softmax subtracts no maximum"
    )
    compare(c, {"task": task, "assumptions": [arithmetic, RIGHT.format(what)]})
    compare(c, {"inputs_covered": "1"} if verdict == "REFUTED" else {})
    return verdict, trusted


def ahead(row: Row, right: int) -> float:
    """(right logit) - (largest other), infinite where there is no other."""
    return min((row[right] - x for j, x in enumerate(row) if j != right), default=math.inf)
