"""Sums as a format computes them: balls that hold what any order of evaluation makes, rounded or kept wider.

What the last operation rounds is taken of its ends, as rounding keeps the order of numbers (docs/checker.md).
"""

import math
from collections.abc import Sequence
from functools import cache, reduce

from flint import arb

from verify.checker.ball_rows import most_of
from verify.checker.chains import Column, Row
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require


class ComputedSums:
    """A format, and the one that products and sums are in. A number's ball holds it as it is kept and as it is rounded.

    Raises: Refusal where a number may overflow.
    """

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat) -> None:
        self.fmt, self.inner, is_one = fmt, inner, inner == fmt
        self.growth, self.exp = cache(inner.growth), cache(lambda x: arb(x).exp().upper())
        self.once = inner.u if is_one else (1 + inner.u) * (1 + fmt.u) - 1  # what is stored, too
        self.kept = (1 + arb(2) ** -(2 * fmt.p + 2)) * (1 + inner.u * (not is_one)) - 1
        self.grain = fmt.tiny * arb(2) ** (1 - (fmt.factors or fmt.p))  # between numbers below the normal ones

    # ---- numbers

    def stored(self, x: float) -> arb:
        """A stored number; below the normal ones it may be flushed where it is read."""
        return self.hull([arb(x), *self._flushed(arb(x))])

    def number(self, x: arb) -> arb:
        return x

    def positive(self, x: arb) -> arb:
        return x.max(arb(0))

    def hull(self, numbers: Sequence[arb]) -> arb:
        first = numbers[0]
        return first if first.is_exact() and all(x == first for x in numbers) else reduce(arb.union, numbers)

    any_of = between = hull

    def _nearest(self, x: arb) -> arb:
        man, exponent = map(int, x.man_exp()) if x.is_finite() else (1, self.fmt.most + 2)
        found = self.fmt.closest(man << max(exponent, 0), max(-exponent, 0))
        require(math.isfinite(found), "a number may overflow in the format", NOT_CHECKABLE)
        return arb(found)

    def _flushed(self, *numbers: arb) -> list[arb]:
        return [arb(0)] * any(x != 0 and abs(x) < self.fmt.tiny for x in numbers)

    def factor(self, x: arb) -> arb:
        """A number as a matrix product reads it: rounded, and below the normal numbers perhaps 0."""
        ends = [self._read(self._nearest(end)) for end in (x.lower(), x.upper())]
        return self.hull(sum(ends, []))

    def weight(self, x: float) -> arb:
        """A stored number as a factor."""
        return self.hull(self._read(arb(x)))

    def _read(self, x: arb) -> list[arb]:
        """What a number of the format may be as a factor."""
        found = [*map(arb, self.fmt.as_factor(float(x)))]
        require(all(y.is_finite() for y in found), "a factor may overflow in the format", NOT_CHECKABLE)
        return found + self._flushed(*found)

    def result(self, low: arb, high: arb) -> arb:
        """What an operation gives whose exact result lies between two ends: it is rounded, or kept wider."""
        ends = [low, high]
        if any(self._nearest(x) != x for x in ends) or low != high:
            ends = [(low - self._kept(low)).lower(), (high + self._kept(high)).upper()]
        return self.hull([*ends, *map(self._nearest, ends), *self._flushed(*ends)])

    def _kept(self, x: arb) -> arb:
        """How far a result is off that is kept wider; below the normal numbers it may double."""
        return abs(x) * (self.kept if abs(x) > 2 * self.fmt.tiny else 1)

    # ---- sums

    def total(self, column: Column[arb], x: Row[arb], *added: arb) -> arb:
        """One sum, in any order; what is added may be a term of it, or come after it is stored, which is one more."""
        read = [(self.factor(x[j]), w) for j, w in column]
        if self.inner == self.fmt or not read or not added:
            return self._sum(read, added)
        apart = [self._sum((), (self.total(column, x, *added[:i], *added[i + 1 :]), a)) for i, a in enumerate(added)]
        apart += [self._sum((), (self.total(column, x), self._sum((), added)))] * (len(added) > 1)
        return self.hull([self._sum(read, added), *apart])

    def _sum(self, read: Sequence[tuple[arb, arb]], added: Sequence[arb]) -> arb:
        """A sum of n terms rounds each of them at most n times, as a product and in n - 1 sums.

        The last of these is that of the result. Where all terms are multiples of a unit, and their sizes together no
        more than 2^p of it, nothing is rounded before it is stored.
        """
        read, added = [(f, w) for f, w in read if is_there(f)], [*filter(is_there, added)]
        terms = [*(f * w for f, w in read), *added]
        if len(terms) < 2 and not read:
            return terms[0] if terms else arb(0)
        real, size = sum(terms, arb(0)), sum(map(abs, terms), arb(0)).upper()
        off, n = arb(0), len(terms)
        unit = min(map(unit_of, terms)) if all(x.is_exact() for x in terms) else -math.inf
        if n > 1 and not self.is_whole(unit, size, self.fmt if added else self.inner):
            is_hard = any(not (_is_power(f) or _is_power(w)) for f, w in read)
            off = self.off(size, n - 2 + is_hard, n)
        require(self.fmt.holds(size + off), "a sum may overflow in the format", NOT_CHECKABLE)
        return self.result((real - off).lower(), (real + off).upper())

    def off(self, size: arb, roundings: int, terms: int) -> arb:
        """What so many roundings do, and each product and sum that is flushed."""
        grown = self.growth(roundings)
        return (grown * size + 2 * terms * self.inner.tiny * (1 + grown)).upper()

    def is_whole(self, unit: float, size: arb, fmt: BinaryFormat) -> bool:
        return unit >= fmt.least and bool(size <= arb(2) ** (int(min(unit, 1024)) + fmt.p))


def is_there(x: arb) -> bool:
    """Whether a number may be other than 0."""
    return not x == 0  # noqa: SIM201, as a ball around 0 is neither


def unit_of(x: arb) -> float:
    """Of an exact number the largest e with which it is a multiple of 2^e."""
    return math.inf if x == 0 else int(x.man_exp()[1])


def _is_power(x: arb) -> bool:
    return x.is_exact() and (x == 0 or abs(int(x.man_exp()[0])) == 1)


def largest(column: Sequence[arb]) -> arb:
    return most_of(map(abs, column)).upper()
