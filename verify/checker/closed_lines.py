"""Lines whose logits are known at any length, and on all lengths between two, in closed form (docs/checker.md).

The lengths with the same answer are r, r + k, ...; where all of them are not shown to be right at once, those up to
twice as far are, and where these do not show they are halved.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from flint import arb

from verify.checker.linear import first_wrong
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import PERIODS, positive_margin, predicts
from verify.checker.rounded_lines import Gaps
from verify.checker.steady import is_at_least

MOST_PIECES, MOST_WORK = 20_000, 1 << 25  # of lengths, and their `work`: half a minute


class StatesBetween(Protocol):
    """What is known of a line's logits; k in `gaps` is a multiple of `turns`, or low is high.

    `work` is that of `gaps`, in products.
    """

    turns: int
    work: int

    def gaps(self, low: int, high: int | None, k: int, right: int) -> Gaps:
        """Ends of (right logit) - (each other) after low, low + k, .., high tokens, or all of these from low on."""


def decide_line(
    states: StatesBetween,
    rows: Sequence[object],
    due: Callable[[int], int | None],
    c: LineCertificate,
    said: LineParameters,
) -> None:
    """Checks a line: right up to a length or for ever, or first wrong after so many tokens."""
    if c["verdict"] == "PROVED":
        is_proved(states, due, c, said)
        return
    n, margin, other = first_wrong(c, due, said)
    is_right(states, due, said, n - 1, arb(0))
    gaps = {j: low for j, (low, _) in ClosedLine(states, due, arb(0)).gaps(n, n, 1).items()}
    is_so = other in gaps and is_at_least(arb(margin), gaps[other])
    require(is_so, f"counterexample: the margin at length {n} is another")
    predicts(gaps, other, rows)


def is_proved(
    states: StatesBetween, due: Callable[[int], int | None], c: LineCertificate, said: LineParameters
) -> None:
    """Checks that a line is right up to a length or for ever, by the margin."""
    n, least = c["length"], positive_margin(c)
    require(n != "all" or said["task"] in PERIODS, "parameters: the task does not go on for ever")
    covered = "infinite" if n == "all" else str(n)
    require(c.get("inputs_covered") == covered, f"inputs_covered: must be {covered}")
    is_right(states, due, said, None if n == "all" else n, least)


def is_right(
    states: StatesBetween, due: Callable[[int], int | None], said: LineParameters, last: int | None, least: arb
) -> None:
    """Checks that the right class wins by so much at lengths 1..last, None for all."""
    single = {"modular": 0, "first-homogeneous": 1}.get(said["task"], last or 0)
    ClosedLine(states, due, least).win(single, said.get("modulus", 1), last)


class ClosedLine:
    """Where the right class wins by `least`, and by more than 0."""

    def __init__(self, states: StatesBetween, due: Callable[[int], int | None], least: arb) -> None:
        self.states, self.due, self.least = states, due, least
        self.left = min(MOST_PIECES, MOST_WORK // states.work)

    def gaps(self, low: int, high: int | None, k: int) -> Gaps:
        """The same at lengths with one answer."""
        right = self.due(low)
        require(right is not None, "a length has no right class")
        return self.states.gaps(low, high, k, right or 0)

    def win(self, single: int, period: int, last: int | None) -> None:
        """At lengths 1..last, None for all: some by themselves, and the others along answers that are the same."""
        for t in range(1, single + 1 if last is None else min(single, last) + 1):
            self._halved(t, 1, 0, 0)
        k = self.states.turns * period
        for r in range(single + 1, single + k + 1):
            if last is None or r <= last:
                self._along(r, k, None if last is None else (last - r) // k)

    def _along(self, r: int, k: int, n: int | None) -> None:
        """At lengths r + k q, q = 0..n: all that is left at once, or as much again as is known."""
        q = 0
        while n is None or q <= n:
            if self._is_right(r, k, q, n):
                return
            end = 2 * q if n is None else min(2 * q, n)
            self._halved(r, k, q, end)
            q = end + 1

    def _halved(self, r: int, k: int, low: int, high: int) -> None:
        todo = [(low, high)]
        while todo:
            low, high = todo.pop()
            if self._is_right(r, k, low, high):
                continue
            if low == high:
                t = r + k * low
                is_known = any(y < self.least or y <= 0 for _, y in self.gaps(t, t, k).values())
                what = "does not win" if is_known else "is not shown to win"
                sentence = f"length {t}: the right class {what} by {self.least}"
                raise Refusal(sentence, FAILS if is_known else NOT_CHECKABLE)
            middle = (low + high) // 2
            todo += [(middle + 1, high), (low, middle)]

    def _is_right(self, r: int, k: int, low: int, high: int | None) -> bool:
        """Between two of the lengths, or from one on."""
        self.left -= 1
        require(self.left > 0, "lengths come too near a tie to be followed in pieces", NOT_CHECKABLE)
        gaps = self.gaps(r + k * low, None if high is None else r + k * high, k)
        return all(bool(x >= self.least and x > 0) for x, _ in gaps.values())
