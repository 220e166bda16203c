"""Steps of a chain of thought as a format computes them, in any order: the third arithmetic of `chains.py`.

A sum of one large term and small ones is off by few times the small ones, however many they are (docs/checker.md).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from flint import arb, arb_mat

from verify.checker.ball_rows import least_of, most_of
from verify.checker.chains import Row
from verify.checker.computed_sums import ComputedSums, is_there, largest, unit_of
from verify.checker.formats import ULPS
from verify.checker.reading import NOT_CHECKABLE, require

FORMATS_OF_A_SUM = 3  # which the partial results of one sum may have, as the certificate assumes
HALF = arb(1) / 2


class RowShares(NamedTuple):
    """A row's computed weights: of the position looked at, of all others together, and of all; how many others, and
    the hull of all values."""

    own: arb
    others: arb
    total: arb
    n: int
    is_clear: bool
    hull: arb


class ComputedSteps(ComputedSums):
    """The three sums of attention: scores, exponentials, and what they weigh. Raises: Refusal as for sums."""

    @property
    def _divided(self) -> arb:
        """What a reciprocal, its product, and that as a factor round."""
        fewer = arb(2) ** -self.fmt.factors if self.fmt.factors else 0
        return (1 + self.once) ** 3 * (1 + self.fmt.u) * (1 + fewer) - 1

    def scores(self, queries: list[Row[arb]], keys: list[Row[arb]], seen: Sequence[int] = ()) -> list[Row[arb]]:
        """Of all sums one bound on what they round: by each column's largest numbers and its unit."""
        sides = [[[self.factor(x) for x in row] for row in rows] for rows in (queries, keys)]
        read = [[*zip(*rows, strict=True)] for rows in sides]
        both = [pair for pair in zip(*read, strict=True) if all(any(map(is_there, side)) for side in pair)]
        size = sum((largest(q) * largest(k) for q, k in both), arb(0))
        units = [sum(min(unit_of(x) if x.is_exact() else -math.inf for x in side) for side in pair) for pair in both]
        unit, off, n = min(units, default=math.inf), arb(0), len(both)
        if not self.is_whole(unit, size, self.inner):
            off = self.off(size, n + 1, n)
        if not self.is_whole(unit, size, self.fmt):
            off = (off + self.once * (size + off) + self.fmt.tiny).upper()
        require(self.fmt.holds(2 * (size + off)), "a score may overflow in the format", NOT_CHECKABLE)
        found: list[Row[arb]] = (arb_mat(sides[0]) * arb_mat(sides[1]).transpose()).tolist()
        return [[x + arb(0, off) for x in row] for row in found] if off != 0 else found

    def retrieved(self, row: Row[arb], values: arb) -> tuple[int, RowShares]:
        """The position that is looked at, its exponential being 1, and the weights; or where none is, all up to 1."""
        best = max(range(len(row)), key=lambda i: float(row[i].mid()))
        gaps, n = [row[best].lower() - x.upper() for i, x in enumerate(row) if i != best], len(row) - 1
        if n == 0:
            return best, RowShares(arb(1), arb(0), arb(1), 0, True, values)
        is_clear = all(gap > 0 for gap in gaps)
        leak = sum(map(self._exponential, gaps), arb(0)).upper() if is_clear else arb(n)
        top = 1 + 2**FORMATS_OF_A_SUM * self._small(leak, n)
        off = (self.growth(n) * (1 + self.fmt.u) + self.fmt.u * (self.inner != self.fmt)).upper()
        off += 2 * (n + 2) * self.fmt.tiny
        off = off.min((top - 1).max(leak).upper()) if is_clear else off
        require(bool(off < HALF), "a softmax is too far off in the format", NOT_CHECKABLE)
        up, f = (8 * leak).min(4 * n * self.grain).upper(), self._divided
        most, lost = ((1 + f) / (1 - off) + up).upper(), (leak * (1 + f)).min(4 * n * self.fmt.tiny).upper()
        total = arb.union((1 - f) / (1 + off) - lost, most)
        if not is_clear:
            return best, RowShares(arb(0).union(most), most, total, n, False, values)
        top = top.min((1 + leak) * (1 + off)).upper()
        own = self.factor(arb.union((1 - 2 * self.kept) / top, arb(1)))
        others = ((1 + f) * leak.min(leak / (1 + leak) / (1 - off)) + up).upper()
        return best, RowShares(own, others, total, n, True, values)

    def _exponential(self, gap: arb) -> arb:
        """At most what is computed of e^-gap: the difference is rounded, a result below the normal ones may double."""
        x = float((self.fmt.tiny - gap * (1 - self.once)).upper())
        found = self.exp(math.nextafter(x, math.inf)) * (1 + ULPS * self.inner.u) * (1 + self.once)
        return found if found > 2 * self.fmt.tiny else 4 * found

    def _small(self, size: arb, terms: int) -> arb:
        """What no computed sums of parts of so many small terms add up to; below all numbers they are kept wider."""
        if 8 * size < self.inner.tiny * self.inner.u and (1 + self.kept) ** terms < 2:
            return 2 * size
        return ((size + terms * self.grain) * (1 + self.growth(terms))).upper()

    def mixed(self, value: arb, share: RowShares) -> arb:
        """The value that is looked at and up to which share others are added to it.

        Two bounds, of which both hold: that of any sum, and that of a large term z and small ones, whose sizes add up
        to T. A partial sum with z is rounded by no more than its distance to the last one in that format, so that each
        of the formats at most doubles what T moves.
        """
        v, others, n = self.factor(value), self.factor(share.hull), share.n
        if n == 0:
            return v
        rest, small = arb(0).union(share.others), share.others * abs(others).upper()
        z = share.own * v
        bounds = [share.total * v + rest * (others - v), *([z + rest * others] * share.is_clear)]
        off = self.off((abs(z).upper() + small).upper(), n + 1, n + 1)
        bounds = [x + arb(0, off) for x in bounds]
        if share.is_clear:
            bounds.append(z + arb(0, self._moved(z, self._small(small, n), share.own == 1 or v == 0)))
        low, high = most_of(map(arb.lower, bounds)), least_of(map(arb.upper, bounds))
        require(self.fmt.holds(abs(z).upper() + small + off), "a mean may overflow in the format", NOT_CHECKABLE)
        return self.result(low, high)

    def _moved(self, z: arb, small: arb, is_of_format: bool) -> arb:
        """How far a sum with a term z is from it; a number of the format beside z is off it by `rounded`."""
        rounded = arb(0) if is_of_format else self.inner.u * abs(z).upper() + self.grain
        moved = 2**FORMATS_OF_A_SUM * (small + rounded) + rounded
        may_flush = is_there(z) and not abs(z).lower() > self.inner.tiny + moved
        return arb(moved + (self.inner.tiny if may_flush else 0)).upper()

    def mean(self, scores: Row[arb], values: Row[arb]) -> arb:
        """Of all these values: by how far their weights are off, where none has nearly all of it."""
        best, share = self.retrieved(scores, self.hull(values))
        if share.is_clear:
            return self.mixed(values[best], share)
        read = [self.factor(v) for v in values]
        spread = most_of(map(arb.upper, scores)) - least_of(map(arb.lower, scores))
        share_off = (1 + ULPS * self.inner.u) * (1 + self.once) * (1 + self._divided) - 1
        require(bool(share_off < HALF / 2), "a softmax is too far off in the format", NOT_CHECKABLE)
        moved = self.once * spread + self.fmt.tiny + 2 * share_off
        weights = [(x - scores[best] + arb(0, moved.upper())).exp() for x in scores]
        apart = sum((w * (v - read[best]) for w, v in zip(weights, read, strict=True)), arb(0)) / sum(weights, arb(0))
        found, n = share.total * (read[best] + apart), share.n + 1
        size = (share.total * largest(read)).upper()
        off = self.off(size, n, n) + 4 * n * self.fmt.tiny * largest(read)
        require(self.fmt.holds(size + off), "a mean may overflow in the format", NOT_CHECKABLE)
        return self.result((found - off).lower(), (found + off).upper())
