"""Models in constant-bit arithmetic: all inputs at once, those whose partial sums agree being one (docs/checker.md)."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from typing import NamedTuple

from verify.checker.chains import Bits
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


def bits_of(c: dict[str, object]) -> int | None:
    """The s of a certificate in s-bit arithmetic; None for one in another reading."""
    p = c.get("parameters")
    found = re.fullmatch("s([1-9][0-9]?)", str(p.get("precision"))) if isinstance(p, dict) else None
    is_so = c.get("reading") == "bit-exact" and found is not None and int(found[1]) <= MOST_BITS
    return int(found[1]) if is_so and found else None


def opened_in_bits(task: str, c: dict[str, object], s: int, what: str) -> tuple[str, list[str]]:
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
