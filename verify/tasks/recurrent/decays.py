"""Runs of gated decays that keep every result, in closed form: any length is judged at once, without those before it.

Lemma. Where each token keeps f of a state and adds a, the state n tokens after h is f^n h + a (f^n - 1) / (f - 1), and
h + n a for f = 1. A run that keeps every result has these states, for any f that exp may be computed as; it reads r
times them, rounded as factors of the readout's product. A factor beyond the largest number is infinite: a logit is NaN
where its weight is 0 or two such factors have other signs, and else infinite. An answer is then right only where
its own logit is infinitely large and all others are infinitely small.

An f that may be computed above 1 lets states grow without end, so that they are infinite some day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

import numpy as np
from flint import arb, ctx

from verify.arithmetic.formats import Format
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Digits, bounds
from verify.tasks.recurrent.proof import OrbitQuestion

BITS = 256
FURTHEST = 1 << 60  # tokens
TWICE = 2  # what a sum is asked at, in largest numbers: it may have begun at one of the other sign
FINER = 16  # lengths that are judged, until they are twice as long
BEYOND = 3 / 4  # of u: the largest number is (2 - 2u) 2^e, and what is rounded to 2^(e + 1) is at least (2 - u) 2^e
WITHIN = 2  # units in the last place of v, each more than u |v|
LOOKS = 16  # turns that are judged between two looks at the clock


@dataclass(frozen=True)
class WrongAnswer:
    """After how many tokens, a bound on the margin, and the class if known; neither if a logit is not finite.

    `kept` is what the run keeps of each state.
    """

    at: int
    by: float | None = None
    predicted: int | None = None
    kept: tuple[float, ...] = ()


def is_closed(net: Network) -> bool:
    """Whether states are those of the lemma, and read as they are."""
    return net.kind == "gated" and net.W is None


def kept_off(net: Network, token: int, fmt: Format, share: float) -> list[float] | None:
    """Numbers of float64 near 1 + share u times what a token keeps, which exp may be computed as; None without any.

    Stored numbers stay as they are.
    """
    found = list[float]()
    for x, near in zip(net.tables[token][0].balls, net.tables[token][0].near.mid.tolist(), strict=True):
        tried = near if x == arb(near) else near * (1 + share * fmt.u)
        if not (x == arb(tried) or abs(arb(tried) - x) < WITHIN * arb(fmt.u) * abs(x)):
            return None
        found.append(tried)
    return found


class Decays:
    """The run whose last token, for ever, keeps these numbers of each state, as a format reads it."""

    def __init__(self, net: Network, line: OrbitQuestion, kept: Sequence[float], fmt: Format) -> None:
        """With the precision of the context."""
        self._net, self._line, self._fmt, self._on = net, line, fmt, Digits(net)
        self._keep = [arb(x) for x in kept]
        _, self._add, self._read = (table.balls for table in net.tables[line.token])
        self._start = [arb(0)] * net.hidden
        for token in line.leading:
            keep, add, _ = (table.balls for table in net.tables[token])
            self._start = [f * h + a for f, h, a in zip(keep, self._start, add, strict=True)]

    def read(self, t: int) -> list[arb]:
        """What the readout's factors are before they are rounded, after t tokens, of which some are the last one."""
        n, found = t - len(self._line.leading), list[arb]()
        for f, h, a, r in zip(self._keep, self._start, self._add, self._read, strict=True):
            power = f**n if f != 0 else arb(int(n == 0))
            found.append(r * (power * h + a * ((power - 1) / (f - 1) if f != 1 else arb(n))))
        return found

    def overflows(self) -> list[int]:
        """Lengths at which a state that keeps all of itself, and so is a sum, is read far beyond the largest number."""
        _, add, read = (table.balls for table in self._net.tables[self._line.token])
        steps = [float(abs(r * a).lower()) for f, a, r in zip(self._keep, add, read, strict=True) if f == 1]
        return sorted(len(self._line.leading) + math.ceil(Fraction(self._fmt.largest) * TWICE / Fraction(y))
                      for y in steps if y > 0)  # fmt: skip

    def wrong(self, t: int) -> WrongAnswer | None:
        """The answer after t tokens, where it is surely wrong."""
        read, largest = self.read(t), self._fmt.largest
        if all(abs(y) <= largest for y in read):
            factors = [y + arb(0, (abs(y) * self._fmt.u + self._fmt.tiny).upper()) for y in read]
            _, high, _ = bounds(self._on.gaps(factors, self._line.expected(t)))
            return WrongAnswer(t, high, self._said(factors)) if high <= 0 else None
        if self._fmt.saturates or not all(y.is_finite() for y in read):
            return None
        beyond = [abs(y) > largest * (1 + arb(BEYOND) * self._fmt.u) for y in read]
        if not all(is_beyond or abs(y) <= largest for y, is_beyond in zip(read, beyond, strict=True)):
            return None
        signs = np.array([is_beyond * (1.0 if y > 0 else -1.0) for y, is_beyond in zip(read, beyond, strict=True)])
        return None if is_right_beyond(self._net.V, signs, self._line.expected(t)) else WrongAnswer(t)

    def _said(self, factors: Sequence[arb]) -> int | None:
        """The class whose logit is the largest for all these factors; None where that depends on how they round."""
        return next((j for j in range(len(self._net.b)) if bounds(self._on.gaps(factors, j))[0] >= 0), None)


def is_right_beyond(V: Array, signs: Array, right: int) -> bool:
    """Whether an answer is right where factors are infinite that have a sign, and finite where it is 0."""
    said = (V * signs)[:, signs != 0]
    own = np.ones(len(V), dtype=bool)
    own[right] = False
    return bool((said[right] > 0).all() and (said[own] < 0).all())


def first_found(on: Decays, line: OrbitQuestion, length: int | None, until: Deadline) -> WrongAnswer | None:
    """A wrong answer among few of those up to a length: about the first, where it is wrong from then on."""
    k, last = line.period, FURTHEST if length is None else length
    before = max(line.settled, len(line.leading)) + 1
    for number, t in enumerate(chain(_grid(before, last), on.overflows() if length is None else ())):
        if number % LOOKS == 0 and until.is_up():
            return None
        turn = range(t, t + k if length is None else min(t + k, last + 1))
        found = next((wrong for wrong in map(on.wrong, turn) if wrong is not None), None)
        if found is not None:
            return _earliest(on, before, found, k)
        before = t
    return None


def _grid(start: int, last: int) -> Iterator[int]:
    while start <= last:
        yield start
        start += max(1, start // FINER)


def _earliest(on: Decays, before: int, found: WrongAnswer, k: int) -> WrongAnswer:
    """An earlier wrong answer at the same place of a turn, by bisection as if it were wrong from some turn on."""
    best, low, high = found, 0, (found.at - before) // k + 1  # turns earlier
    while high - low > 1:
        middle = (low + high) // 2
        wrong = on.wrong(found.at - k * middle)
        low, high, best = (low, middle, best) if wrong is None else (middle, high, wrong)
    return best


def refuted(
    net: Network, line: OrbitQuestion, length: int | None, fmt: Format, share: float, until: Deadline
) -> WrongAnswer | None:
    """A wrong answer of the run that keeps 1 + share u times what exp says, near which it is about the first."""
    with ctx.workprec(BITS):
        kept = kept_off(net, line.token, fmt, share)
        found = None if kept is None else first_found(Decays(net, line, kept, fmt), line, length, until)
        return None if found is None else replace(found, kept=tuple(kept or ()))
