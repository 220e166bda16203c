"""Between which numbers a format computes: results, factors, and sums of terms in any order (docs/checker.md).

Rounding keeps the order of numbers. So the least that any order makes of terms comes from the least of its two parts.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from math import comb, isfinite, prod

from flint import arb, fmpq

from verify.checker.formats import ULPS, BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require

MOST_SPLITS = 1 << 14  # of a sum into two parts, over all its parts
BESIDE = 4  # bits below the last one with which a number is below a half-way case, and no other number is rounded
FINE = 128  # bits of a quotient beside those that are kept
HIGHEST = 1 << 14  # of an exponential's argument: what is above overflows

Ends = tuple[fmpq, fmpq]
Terms = tuple[tuple[fmpq, int], ...]  # numbers, and how often each is a term


class EveryOrder:
    """Ends of all that a format may compute, each number as it is kept and as it is rounded.

    Raises: Refusal where a number may overflow.
    """

    def __init__(self, fmt: BinaryFormat) -> None:
        self.fmt, self.tiny, self.largest = fmt, fmpq(2) ** fmt.least, exact(fmt.largest)
        self.least = cache(self._least)

    # ---- one result each

    def down(self, x: fmpq) -> fmpq:
        """The least that x may be computed as: rounded, kept with 2p + 2 bits or more, or both, or flushed.

        It is kept once (docs/precision.md): what is kept and a number that is exactly 0 add up to no further result.
        """
        if abs(x) < self.tiny:
            return fmpq(0) if x >= 0 else -self.tiny
        (n, k), bits = scaled(x), 2 * self.fmt.p + 2
        lost = max(0, abs(n).bit_length() - bits)
        cut = fmpq((n >> lost) << lost, 1 << k)  # x to nearest with as many bits or more is at least this,
        kept: fmpq = max(cut, x - abs(x) / 2**bits)  # and at most half a unit in the last of them away
        return min(self.nearest(kept), kept)

    def nearest(self, x: fmpq) -> fmpq:
        """The number of the format that x is rounded to, of two the lower one."""
        (n, k), beside = scaled(x), self.fmt.p + BESIDE
        found = self.fmt.closest((n << beside) - (n != 0), k + beside)
        require(isfinite(found), "a computed number may overflow in the format", NOT_CHECKABLE)
        return exact(arb(found))

    def result(self, low: fmpq, high: fmpq) -> Ends:
        """What an operation gives whose exact result lies between two ends."""
        return self.down(low), -self.down(-high)

    def factor(self, x: Ends) -> Ends:
        """A number as a matrix product reads it: rounded, and below the normal numbers perhaps 0."""
        low, high = self.nearest(x[0]), -self.nearest(-x[1])
        return (fmpq(0) if 0 < low < self.tiny else low), (fmpq(0) if -self.tiny < high < 0 else high)

    def times(self, x: Ends, y: Ends) -> Ends:
        """A product: as it is, where a sum takes it so, or rounded."""
        corners = [a * b for a in x for b in y]
        return self.result(min(corners), max(corners))

    def over(self, x: Ends, y: Ends) -> Ends:
        """A quotient by what is above zero."""
        require(y[0] > 0, "a quotient by what may be 0 in the format", NOT_CHECKABLE)
        corners = [a / b for a in x for b in y]
        return self.result(self._cut(min(corners)), -self._cut(-max(corners)))

    def _cut(self, x: fmpq) -> fmpq:
        """At most x, and a whole number over a power of two."""
        k = max(0, int(x.q).bit_length() - int(abs(x.p)).bit_length()) + 2 * self.fmt.p + FINE
        return fmpq((int(x.p) << k) // int(x.q), 1 << k)

    def root(self, d: int) -> Ends:
        """A square root."""
        found = arb(d).sqrt()
        return self.result(exact(found.lower()), exact(found.upper()))

    def power(self, x: Ends) -> Ends:
        """An exponential within two units in the last place of its value; below the normal numbers it may be 0."""
        if x[0] == x[1] == 0:
            return fmpq(1), fmpq(1)
        require(x[1] < HIGHEST, "an exponential overflows in the format", NOT_CHECKABLE)
        low, high, off = arb(x[0]).exp(), arb(x[1]).exp(), ULPS * self.fmt.u
        least = exact((low * (1 - off)).lower()) if low > 2 * self.fmt.tiny else fmpq(0)
        return self.result(least, exact((high * (1 + off) + self.fmt.tiny).upper()))

    # ---- sums

    def total(self, terms: Iterable[tuple[Ends, int]]) -> Ends:
        """A sum in any order and grouping, of ends and how often each is a term; zeros are added exactly."""
        terms = [((low, high), n) for (low, high), n in terms if n and (low != 0 or high != 0)]
        lows, highs = (_counted([(x[up] * (1 - 2 * up), n) for x, n in terms]) for up in (False, True))
        return self.least(lows), -self.least(highs)

    def _least(self, terms: Terms) -> fmpq:
        """The least that any order makes of these terms.

        In any order and grouping the last operation adds the sums of two parts, each of which is the least where that
        of its own parts is. What is left over is rounded once, as rounding keeps the order.
        """
        counts = [n for _, n in terms]
        if prod(comb(n + 2, 2) for n in counts) > MOST_SPLITS:
            return self._bounded(terms)
        found = dict[tuple[int, ...], fmpq]()
        for state in product(*(range(n + 1) for n in counts)):
            if sum(state) > 1:
                splits = product(*(range(n + 1) for n in state))
                parts = [(part, tuple(n - m for n, m in zip(state, part, strict=True))) for part in splits]
                found[state] = self.down(min(found[a] + found[b] for a, b in parts[1 : len(parts) // 2 + 1]))
            else:
                found[state] = sum((x * n for (x, _), n in zip(terms, state, strict=True)), fmpq(0))
        return found[tuple(counts)]

    def _bounded(self, terms: Terms) -> fmpq:
        """Of many terms: exact, where all are multiples of a unit, or each is rounded in n - 2 sums and the last."""
        n, size = sum(n for _, n in terms), sum((abs(x) * n for x, n in terms), fmpq(0))
        total, growth = sum((x * n for x, n in terms), fmpq(0)), self.fmt.growth(n - 2)
        off = exact((growth * arb(size) + 2 * n * self.fmt.tiny * (1 + growth)).upper())
        require(size + off <= self.largest, "a partial sum may overflow in the format", NOT_CHECKABLE)
        unit = min((int(x.p) & -int(x.p)).bit_length() - int(x.q).bit_length() for x, _ in terms)
        is_exact = unit >= self.fmt.least and size <= fmpq(2) ** (self.fmt.p + unit)
        return total if is_exact else self.down(total - off)

    def numbers(self, x: Ends, most: int) -> list[fmpq]:
        """The numbers of the format between two that are not negative; of more than so many not all."""
        found = [x[0]]
        while found[-1] < x[1] and len(found) <= most:
            n, k = scaled(found[-1])
            exponent = max(n.bit_length() - 1 - k, self.fmt.least) if n else self.fmt.least
            found.append(found[-1] + fmpq(2) ** (exponent - self.fmt.p + 1))
        return found


def _counted(terms: Sequence[tuple[fmpq, int]]) -> Terms:
    """How often each number is there."""
    found = dict[fmpq, int]()
    for x, n in terms:
        found[x] = found.get(x, 0) + n
    return tuple(sorted(found.items()))


def exact(x: arb) -> fmpq:
    """A ball's middle."""
    mantissa, exponent = x.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


def scaled(x: fmpq) -> tuple[int, int]:
    """(n, k) with x = n / 2^k."""
    return int(x.p), int(x.q).bit_length() - 1
