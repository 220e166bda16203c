"""Gated decays whose every operation rounds, in any order, on all strings up to a length (docs/checker.md)."""

from typing import Any

from flint import arb, ctx

from verify.checker import formats, held
from verify.checker.computed_gates import StoredCell, after, gaps_of, gates
from verify.checker.formats import BinaryFormat
from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.recurrent import positive_margin
from verify.checker.rounded import BITS, ComputedBalls

MOST_WORK = 1_000_000  # numbers of states


def decide(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof of all strings up to a length."""
    fmt = formats.named(said)
    with ctx.workprec(BITS):
        net = StoredCell.of(weights, said, fmt)
        require("omega" not in net.rows, "strings of a rotation are not followed", NOT_CHECKABLE)
        ComputedStrings(net, fmt, said).prove(c)


class ComputedStrings:
    """All strings over K types: by how often a type t was read and by the length, each state lies in a ball."""

    def __init__(self, net: StoredCell, fmt: BinaryFormat, said: dict[str, Any]) -> None:
        self.net, self.fmt = net, fmt
        self.keep, self.add, self.read = gates(net, fmt)
        self.K, self.units = len(self.keep), len(self.keep[0].value)
        self.due = RightClasses(said, self.K, len(net.b))

    def prove(self, c: dict[str, Any]) -> None:
        length, margin = c["length"], positive_margin(c)
        require(length != "all", "length: strings of every length are not followed", NOT_CHECKABLE)
        require(c.get("inputs_covered") == held.strings(self.K, length), "inputs_covered: another number")
        require(
            length * self.K**2 * self.due.C * self.units <= MOST_WORK, "length: too many states are met", NOT_CHECKABLE
        )
        for t in range(self.K):
            for n, h in self._judged(t, length).items():
                state = ComputedBalls(h, [arb(0)] * self.units)
                right = self.due.of(n) or 0  # of counts up to C all have one
                for j, (low, high) in gaps_of(self.net, self.fmt, self.read[t], state, t, right).items():
                    sentence = f"count {n} of type {t}: class {right} does not win over {j} by {margin}"
                    require(not high < margin, f"{sentence} in any order")
                    require(bool(low >= margin and low > 0), f"{sentence}, or not shown", NOT_CHECKABLE)

    def _judged(self, t: int, length: int) -> dict[int, list[arb]]:
        """The computed states after the n-th token t, of all strings of up to this length."""
        states, judged = {0: [arb(0)] * self.units}, dict[int, list[arb]]()
        for _ in range(length):
            later = dict[int, list[arb]]()
            for n, h in states.items():
                for x in range(self.K):
                    reached = self._step(x, h)
                    if x == t:
                        _join(judged, n + 1, reached)
                    if n + (x == t) < self.due.C:
                        _join(later, n + (x == t), reached)
            states = later
        return judged

    def _step(self, x: int, h: list[arb]) -> list[arb]:
        found = after(self.fmt, self.keep[x], self.add[x], ComputedBalls(h, [arb(0)] * self.units))
        return [(v - e).union(v + e) for v, e in zip(found.value, found.error, strict=True)]


def _join(states: dict[int, list[arb]], n: int, h: list[arb]) -> None:
    states[n] = [x.union(y) for x, y in zip(states.get(n, h), h, strict=True)]
