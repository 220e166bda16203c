"""Learned accuracy of all 2^a subsets of heads, exactly: float64 blocks that stay in cache, digits near zero."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.arithmetic.slack import ENLARGE_LONG, FAINT, Array, U
from verify.tasks.count01.layer_norm.accuracy import Learned
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.tables import largest
from verify.tasks.count01.task import Triple

MOST_HEADS = 16
BLOCK = 240  # triples a block: counts of one fit a byte
WORKERS = 2


@dataclass(frozen=True)
class SubsetTable:
    """right[S]: the weight of the triples that subset S (bit i: head i) answers rightly, of `total`; all decided."""

    a: int
    right: tuple[int, ...]
    total: int

    def accuracy(self, subset: int) -> Fraction:
        return Fraction(self.right[subset], self.total)

    @cached_property
    def smallest_perfect(self) -> tuple[int, ...] | None:
        """The first smallest subset without a wrong triple, as head numbers; None where there is none."""
        perfect = [S for S, right in enumerate(self.right) if right == self.total]
        return min((members(S) for S in perfect), key=lambda heads: (len(heads), heads), default=None)

    @cached_property
    def harmful_additions(self) -> tuple[int, int]:
        """How many pairs (subset, head outside it) lose accuracy by adding the head, and how many there are."""
        right = np.array(self.right, dtype=object if self.total >= 1 << 62 else np.int64)
        hurt = 0
        for i in range(self.a):
            without = np.flatnonzero((np.arange(1 << self.a) >> i & 1) == 0)
            hurt += int(np.count_nonzero(right[without | 1 << i] < right[without]))
        return hurt, self.a << (self.a - 1)

    def best_of_size(self, k: int) -> tuple[int, ...]:
        """The first subset of k heads with the largest accuracy."""
        return max(combinations(range(self.a), k), key=lambda heads: self.right[mask(heads)])

    def by_size(self) -> list[dict[str, str]]:
        """The least, middle and largest accuracy of the subsets of each size."""
        rows = []
        for k in range(self.a + 1):
            found = sorted(right for S, right in enumerate(self.right) if S.bit_count() == k)
            named = {"least": found[0], "median": found[len(found) // 2], "largest": found[-1]}
            rows.append({"heads": str(k)} | {name: str(Fraction(right, self.total)) for name, right in named.items()})
        return rows


def mask(heads: tuple[int, ...]) -> int:
    return sum(1 << i for i in heads)


def members(subset: int) -> tuple[int, ...]:
    return tuple(i for i in range(subset.bit_length()) if subset >> i & 1)


def all_subsets(
    model: ModelNumbers, law: Law, labels: str, progress: Callable[[float], None] = lambda share: None
) -> SubsetTable:
    """The table of a model with at most 16 heads.

    Raises: BadInput for more heads, Undecided where a triple of a subset is too close to a tie.
    """
    a = len(model.heads)
    if a > MOST_HEADS:
        raise BadInput(f"heads={a}: all subsets are tabulated for at most {MOST_HEADS}; name some with --subset")
    learned = Learned(model, law, labels)
    columns = [learned.differences.column(h) for h in range(a)]
    shift = learned.differences.shift(())
    parts = np.stack([c.values for c in columns]) + np.array([c.centre.nearest() for c in columns])[:, None]
    size = sum(largest(part) for part in parts) + abs(shift)
    # FAINT: the float nearest to a centre may have underflowed
    radius = (sum(c.radius for c in columns) + 4 * (a + 3) * U * size) * ENLARGE_LONG + FAINT
    turned = np.where(law.has_more_ones, 1.0, -1.0)
    low = a // 2
    names = np.array_split(np.arange(parts.shape[1]), -(-parts.shape[1] // BLOCK))
    counter = _counter(parts, turned, shift, radius, low, a, law)
    right, unsettled, done = _zeros(a, law), list[tuple[int, int]](), 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for block in range(0, len(names), 64):
            for found, near in pool.map(counter, names[block : block + 64]):
                right += found
                unsettled += near
            done += len(names[block : block + 64])
            progress(done / len(names))
    for subset, i in unsettled:
        x, y, z = law.triples[i].tolist()
        triple: Triple = (x, y, z)
        sign = learned.differences.sign(members(subset), triple)
        if (sign > 0) if law.has_more_ones[i] else (sign < 0):
            right[subset] += 1 if law.weights is None else law.weights[i]
    return SubsetTable(a, tuple(int(x) for x in right), law.total)


def _zeros(a: int, law: Law) -> Array:
    return np.zeros(1 << a, dtype=np.int64 if law.weights is None else object)


Found = tuple[Array, list[tuple[int, int]]]


def _counter(
    parts: Array, turned: Array, shift: float, radius: float, low: int, a: int, law: Law
) -> Callable[[Array], Found]:
    """A function from a block of triples to each subset's right ones there, and the (subset, triple) left open."""

    def sums(first: int, count: int, where: Array) -> Array:
        """The scores (triples, 2^count) of all subsets of `count` heads, times the due sign."""
        out = np.zeros((len(where), 1))
        for i in range(count):
            out = np.concatenate([out, out + (parts[first + i, where] * turned[where])[:, None]], axis=1)
        return out

    def count(where: Array) -> Found:
        few = sums(0, low, where) + (shift * turned[where])[:, None]
        many = sums(low, a - low, where)
        right, near = _zeros(a, law), list[tuple[int, int]]()
        n_low = 1 << low
        above, below = np.empty(few.shape, dtype=bool), np.empty(few.shape, dtype=bool)
        for k in range(many.shape[1]):
            np.greater(few, radius - many[:, k : k + 1], out=above)
            np.less(few, -radius - many[:, k : k + 1], out=below)  # NaN is neither
            found = _column_sums(above)
            if not (found + _column_sums(below) == len(where)).all():
                for row, column in np.argwhere(~(above | below)).tolist():
                    near.append((column + (k << low), int(where[row])))
            if law.weights is None:
                right[k * n_low : (k + 1) * n_low] = found
            else:
                w = law.weights[where]
                right[k * n_low : (k + 1) * n_low] = [sum(w[above[:, j]].tolist()) for j in range(n_low)]
        return right, near

    return count


def _column_sums(flags: NDArray[np.bool_]) -> Array:
    """How many flags are set in each column, eight columns at a time: at most 255 rows."""
    sums: Array
    if flags.shape[1] % 8:
        sums = flags.sum(axis=0, dtype=np.int64)
    else:
        sums = np.add.reduce(flags.view(np.uint64), axis=0).view(np.uint8).astype(np.int64)
    return sums
