"""How far sums of terms of known sizes are off in any order, as small ones are in few partial sums (docs/checker.md).

A sum of n terms has n - 1 partial sums, each off by at most u of what its two parts add up to, which is at most
(1 + u)^(n - 2) times its terms' sizes. Of two partial sums one is a part of the other, or they share no term; so the
k-th largest of them has at most n - k + 1 terms. All together have the two largest terms n - 1 times at most, and the
others n - 2, n - 3, ..., 1 times.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from flint import arb, fmpq

from verify.checker.computed_sums import ComputedSums
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require


class Departure(NamedTuple):
    """A number that is at most `size` as it is computed, and within `error` of what it stands for."""

    size: arb
    error: arb


class Depths:
    """The sums of a format; what they give is stored. Raises: Refusal where one may overflow."""

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat) -> None:
        self.fmt, self.inner, self.on = fmt, inner, ComputedSums(fmt, inner)
        self.stored = arb(0) if inner == fmt else fmt.u
        self.as_factor = arb(0) if fmt.factors is None else arb(2) ** -fmt.factors

    def storing(self, size: arb) -> arb:
        """What is rounded of a number of at most this size that is stored: half a unit in the last place of that."""
        if self.inner == self.fmt:
            return arb(0)
        exponent = math.frexp(float(size.upper().max(self.fmt.tiny)))[1]
        return self.fmt.u * arb(2) ** (exponent - 1)

    def of_many(self, size: arb, largest: arb, n: int) -> arb:
        """What a sum of n terms rounds, whose sizes add up to `size`, and none of which is above `largest`.

        With r terms of that size they are met at most r n - r (r - 1) / 2 times; size = r largest.
        """
        if n < 2 or size == 0:
            return arb(0)
        return self._step(n) * size * arb(n - 1).min(n - (size / largest - 1) / 2)

    def total(self, x: Sequence[Departure], column: Sequence[fmpq], added: fmpq, most: arb | None = None) -> Departure:
        """A sum of products and one more term, which may come after it is stored; it stands for `most` in size."""
        error, sizes, lost, u, tiny = arb(0), list[arb](), 0, self.inner.u, self.fmt.tiny
        for (size, off), w in zip(x, column, strict=True):
            if w == 0 or size == 0:
                continue
            read, rest = self.as_factor * size, abs(self.on.weight(int(w.p) / int(w.q)) - w).upper()
            error, size = error + (off + read) * abs(w) + (size + read) * rest, (size + read) * (abs(w) + rest)
            error, size = (error, size) if is_power(w) else (error + u * size, size * (1 + u))
            lost += abs(w) < 1 or not is_power(w)
            sizes.append(size)
        products = sum(sizes, arb(0))
        sizes += [arb(abs(added))] * (added != 0)
        n, size = len(sizes), sum(sizes, arb(0))
        if n > 1:
            ordered = sorted(sizes, key=lambda y: float(y.upper()), reverse=True)
            depths = [n - 2, *range(n - 2, -1, -1)]  # in all partial sums but the last one
            error += self._step(n) * sum((d * y for d, y in zip(depths, ordered, strict=True)), arb(0))
        lost += max(0, n - 1)
        if lost:  # else it is a number that was read, or a power of two times as much
            error += self.storing(products * (1 + self.inner.growth(n))) * (added != 0)
            last = size * (1 + self.inner.growth(n)) * (1 + self.stored)
            last = last if most is None else last.min(most + error)
            error += u * (n > 1) * last + self.storing(last * (1 + u))
        error = (error + lost * tiny * (1 + self.inner.growth(n)) * (1 + self.stored)).upper()
        require(self.fmt.holds(size + error), "a sum may overflow in the format", NOT_CHECKABLE)
        return Departure((size + error).upper(), error)

    def _step(self, n: int) -> arb:
        return self.inner.u * (1 + self.inner.growth(n - 2))


def is_power(w: fmpq) -> bool:
    """Whether a stored number is one of two, or 0, so that products with it are exact."""
    return abs(w.p) == 1 or w.q == 1 and int(w.p) & (int(abs(w.p)) - 1) == 0
