"""All strings with regions at once, place by place, and what one place's softmax computes (docs/checker.md)."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from flint import arb, arb_mat, fmpq_mat

from verify.checker.ball_rows import below
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import of_placed
from verify.checker.region_strings import BOS, OPEN
from verify.checker.roundoff import Reach, Roundoff

Row = tuple[int, int]  # a token and its place


class Places(NamedTuple):
    """The places of BOS and of strings of up to N tokens, whose delimiters are up to `states` - 1."""

    N: int
    states: int

    @property
    def rows(self) -> list[Row]:
        return [(BOS, 0), *product(range(4), range(1, self.N + 1))]

    def least(self, row: Row, costs: dict[Row, int]) -> dict[int, int]:
        """The least sum of what each place costs, over all strings with this token there, by the delimiters up to it.

        A string is read place by place, and the delimiters so far are all that is known of what was read. After a
        causal row nothing costs anything, but the string must come to an end.
        """
        t, j = row
        before = {0: costs[BOS, 0]}
        for place in range(1, j + 1):
            before = self._stepped(before, place, costs, [t] if place == j else range(4))
        after = dict.fromkeys(range(0, self.states, 2), 0)
        for place in range(self.N, j, -1):
            found = dict.fromkeys(range(0, self.states, 2), 0)
            for m in range(self.states):
                for m_next, cost in self._moves(m, place, costs, range(4)):
                    if m_next in after:
                        found[m] = min(found.get(m, cost + after[m_next]), cost + after[m_next])
            after = found
        return {m: x + after[m] for m, x in before.items() if m in after}

    def _moves(self, m: int, place: int, costs: dict[Row, int], tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Which numbers of delimiters may come next, and what that costs."""
        delimiter = OPEN + m % 2
        listed = [(m + (t == delimiter), costs.get((t, place), 0)) for t in tokens if t < OPEN or t == delimiter]
        return [(m_next, cost) for m_next, cost in listed if m_next < self.states]

    def _stepped(
        self, before: dict[int, int], place: int, costs: dict[Row, int], tokens: Sequence[int]
    ) -> dict[int, int]:
        found: dict[int, int] = {}
        for m, x in before.items():
            for m_next, cost in self._moves(m, place, costs, tokens):
                found[m_next] = min(found.get(m_next, x + cost), x + cost)
        return found


class OffAtPlaces:
    """What the steps round, in whole numbers over 2^BITS; nothing in real arithmetic."""

    def __init__(self, W: dict[str, fmpq_mat], slots: int, fmt: BinaryFormat | None) -> None:
        self.fmt, self.slots, self.steps = fmt, slots, of_placed(Roundoff(fmt), W, slots) if fmt else None

    def _at(self, row: Row) -> int:
        return row[0] * self.slots + row[1]

    def of_scores(self, row: Row, seen: Sequence[Row]) -> list[int]:
        """How far the scores may be off that a place gives others."""
        return _whole([self.steps.scores[self._at(row)][self._at(x)] for x in seen]) if self.steps else [0] * len(seen)

    def of_mean(self, number: int) -> list[int]:
        return _whole(self.steps.mean) if self.steps else [0] * number

    def stream(self, rows: Sequence[Row]) -> Reach | None:
        """What is computed at places before the attention."""
        if self.steps is None:
            return None
        x = self.steps.stream
        size, error = ([part.tolist()[self._at(row)] for row in rows] for part in (x.size, x.error))
        return Reach(arb_mat(size), arb_mat(error), x.unit)


def _whole(errors: Sequence[arb]) -> list[int]:
    return [-below(-x) for x in errors]
