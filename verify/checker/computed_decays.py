"""Gated decays whose every operation rounds, at any length: in every order, and in one run (docs/checker.md).

A number of the state is h' = f h + a, computed with an f that is off by d at most and an a by g. Each result is off
by a share r and, where it may be flushed, by z, as `computed_gates.rounding` has them; a sum with the state 0 is not.
So its size is at most m_t, with m' = (1 + r) ((|f| + d) m + |a| + g) + z from |a| + g on, which grows; and where f - d
and (1 - r) (|a| - g) - z are not below 0 at least l_t, with l' = (1 - r) ((f - d) l + |a| - g) - z from |a| - g on,
which goes one way. Both are sums of powers.
"""

from typing import NamedTuple

from flint import arb, ctx

from verify.checker import followers
from verify.checker.closed_lines import is_proved, is_right
from verify.checker.computed_gates import gaps_of, sharp_after, sharp_gaps
from verify.checker.computed_tables import StoredCell, gates
from verify.checker.formats import BinaryFormat, named
from verify.checker.linear import wrong_after
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import due_of
from verify.checker.rounded import SHORT, ComputedBalls
from verify.checker.rounded_lines import Gaps, is_wrong

BITS = 400


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line: token by token, or else in closed form."""
    try:
        followers.line_of_gates(weights, c, said)
    except Refusal as refusal:
        if refusal.exit_code != NOT_CHECKABLE:
            raise
        in_closed_form(weights, c, said)


def in_closed_form(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line: right up to a length or for ever, or wrong after so many tokens in every order."""
    fmt = named(said)
    with ctx.workprec(BITS):
        net = StoredCell.of(weights, said, fmt)
        states, due = ComputedStates(net, fmt), due_of(len(net.b), said)
        if c["verdict"] == "PROVED":
            is_proved(states, due, c, said)
            return
        require(c["margin"] is not None, "answers that are no numbers in all orders are not checked", NOT_CHECKABLE)
        n, margin, wrong = wrong_after(c, due, said)
        is_wrong(lambda k: states.ends(n, n, k), due(n) or 0, margin, wrong, f"length {n}")
        if c["counterexample"]["is_first"]:
            is_right(states, due, said, n - 1, arb(0))


class Growth(NamedTuple):
    """x' = factor x + added from `first` after one token on, none of them below 0."""

    factor: arb
    added: arb
    first: arb

    def after(self, t: int) -> arb:
        power = self.factor ** (t - 1)
        more = arb(t - 1) if self.factor == 1 else (power - 1) / (self.factor - 1)
        return power * self.first + self.added * more

    def limit(self) -> arb:
        """What it comes near, NaN where it may grow for ever."""
        is_zero = self.first == 0 and self.added == 0
        return arb(0) if is_zero else self.added / (1 - self.factor) if self.factor < 1 else arb("nan")


class ComputedStates:
    """Between which numbers states are computed after t tokens, and what the logits are between two lengths."""

    turns = 1

    def __init__(self, net: StoredCell, fmt: BinaryFormat) -> None:
        self.net, self.fmt = net, fmt
        self.keep, self.add, self.read = keep, add, read = [table[0] for table in gates(net, fmt)]
        self.states = [ComputedBalls([arb(0)] * len(read.value), [arb(0)] * len(read.value))]
        self.work = 16 * len(net.b) * len(read.value)
        self.signs = [-1 if a < 0 else 1 for a in add.value]
        self.most, self.least = list[Growth](), list[Growth | None]()
        for f, d, a, g in zip(keep.value, keep.error, add.value, add.error, strict=True):
            terms = 1 if a == 0 and g == 0 else 2
            r = ((1 + fmt.u) * (1 + fmt.u**2 / 4)) ** terms - 1
            z = arb(0) if terms == 1 else 2 * terms * fmt.tiny * (1 + r)
            start, end = (abs(a) - g).lower(), (abs(a) + g).upper()
            low = Growth(((1 - r) * (f - d)).lower(), ((1 - r) * start - z).lower(), start)
            self.most.append(Growth(((1 + r) * (abs(f) + d)).upper(), ((1 + r) * end + z).upper(), end))
            self.least.append(low if low.factor >= 0 and low.added >= 0 else None)

    def gaps(self, low: int, high: int | None, k: int, right: int) -> Gaps:
        return self.ends(low, high, right)

    def ends(self, low: int, high: int | None, right: int) -> Gaps:
        """Between which numbers (right logit) - (each other) is computed at lengths low..high, or all from low on."""
        if low == high and low <= SHORT:
            return sharp_gaps(self.net, self.fmt, self.read, self._after(low), 0, right)
        box = list[arb]()
        for sign, least, most in zip(self.signs, self.least, self.most, strict=True):
            top = most.limit() if high is None else most.after(high)
            require(bool(top <= self.fmt.largest), "a computed number may overflow", NOT_CHECKABLE)
            box.append(sign * (-top if least is None else _lowest(least, low, high)).union(top))
        return gaps_of(self.net, self.fmt, self.read, ComputedBalls(box, [arb(0)] * len(box)), 0, right)

    def _after(self, t: int) -> ComputedBalls:
        """The state after t tokens, step by step."""
        while len(self.states) <= t:
            self.states.append(sharp_after(self.fmt, self.keep, self.add, self.states[-1]))
        return self.states[t]


def _lowest(x: Growth, low: int, high: int | None) -> arb:
    """All of x after low..high tokens is at least that: one of its ends, or where it grows for ever the first."""
    first, last = x.after(low), x.limit() if high is None else x.after(high)
    return first.min(last) if last.is_finite() else first
