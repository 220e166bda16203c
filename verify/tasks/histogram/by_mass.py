"""The multisets that hold most sequences first: what narrows the bracket where not all of them can be decided.

With own count k, a multiset of L - k other tokens stands for (L-1)! sequences over (k-1)! and the factorials of its
multiplicities, so those of different tokens hold most. They are made from their repeated tokens and a set of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice, pairwise, permutations
from math import comb, factorial, perm, prod

import numpy as np

from verify.frame.clock import Deadline
from verify.tasks.histogram.blocks import Last, MultisetBlock
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.multisets import Multisets
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import SMALL, CountReadout, Space, Table, Tabulated
from verify.tasks.histogram.task import Progress

MOST_REPEATED = 3  # different tokens of a multiset that may come more than once
FIRSTS = 1 << 12  # first choices of a block
LEFT = 1 << 14  # multisets near a tie that are kept for a search, from which on others stay undecided


@dataclass(frozen=True)
class Unit:
    """The multisets of one cell (row, t, k) whose repeated other tokens have these multiplicities.

    `number` says how many they are, `ways` how many sequences each of them is at one position.
    """

    row: Row
    t: int
    k: int
    repeats: tuple[int, ...]
    number: int
    ways: int

    @classmethod
    def all_of(cls, row: Row, t: int, k: int, S: int, L: int) -> Iterator[Unit]:
        """The units of one cell, but for those of more than MOST_REPEATED repeated tokens."""
        for repeats in _multiplicities(L - k):
            number = number_of(S, L - k, repeats)
            if number:
                ways = factorial(L - 1) // (factorial(k - 1) * prod(map(factorial, repeats)))
                yield cls(row, t, k, repeats, number, ways)

    @property
    def weight(self) -> int:
        """How many (sequence, position) pairs each multiset stands for."""
        return self.ways * len(self.row.positions)


def _multiplicities(m: int, most: int | None = None, tokens: int = MOST_REPEATED) -> Iterator[tuple[int, ...]]:
    """Decreasing multiplicities of at least 2 with a sum of at most m."""
    yield ()
    for first in range(2, min(m, most or m) + 1) if tokens else ():
        yield from ((first, *rest) for rest in _multiplicities(m - first, first, tokens - 1))


def number_of(S: int, m: int, repeats: tuple[int, ...]) -> int:
    """How many multisets of m of S tokens have these multiplicities, and all other tokens once.

    >>> number_of(3, 3, ()), number_of(3, 3, (2,)), number_of(3, 3, (3,))
    (1, 6, 3)
    """
    alike = prod(factorial(repeats.count(n)) for n in set(repeats))
    left = S - len(repeats)
    return perm(S, len(repeats)) // alike * comb(left, m - sum(repeats)) if left >= 0 else 0


@dataclass
class Seen:
    """What one cell gave: `covered` pairs were looked at, `dropped` of them left near a tie."""

    row: Row
    t: int
    k: int
    found: Tabulated = field(default_factory=Tabulated)
    covered: int = 0
    dropped: int = 0


@dataclass
class ByMass:
    """The units of some cells, by how many pairs one multiset holds, decided one after the other.

    `cells` are what was looked at.
    """

    reduction: Reduction
    units: list[Unit]
    cells: dict[tuple[tuple[int, ...], int, int], Seen] = field(default_factory=dict)

    @classmethod
    def of(cls, reduction: Reduction, cells: list[tuple[Row, int, list[int]]]) -> ByMass:
        """The units of rows with one group of slots; others stay undecided here."""
        S, L = reduction.stored.T - 1, reduction.stored.L
        units = [
            unit
            for row, t, counts in cells
            if len(row.groups) == 1
            for k in counts
            for unit in Unit.all_of(row, t, k, S, L)
        ]
        return cls(reduction, sorted(units, key=lambda unit: -unit.weight))

    def seen(self, row: Row, t: int, k: int) -> Seen:
        """What a cell gave."""
        return self.cells.setdefault((row.positions, t, k), Seen(row, t, k))

    def reach(self, seconds: float) -> int:
        """About how many pairs can be covered in this time."""
        stored, pairs = self.reduction.stored, 0
        affordable = seconds / (2e-8 + 1.2e-9 * (stored.p + 1))
        for unit in self.units:
            taken = min(unit.number, int(affordable))
            pairs, affordable = pairs + taken * unit.weight, affordable - taken
            if affordable < 1:
                break
        return pairs

    def run(self, deadline: Deadline, smallest: Smallest, progress: Progress) -> None:
        """Decides units until the time is up."""
        total = sum(unit.number * unit.weight for unit in self.units)
        space, tables, covered, kept = Space(self.reduction.stored), dict[tuple[tuple[int, ...], int], Table](), 0, 0
        for unit in self.units:
            key = unit.row.positions, unit.t
            if key not in tables:
                tables[key] = Table(self.reduction, unit.row, unit.t, space)
            table, cell = tables[key], self.seen(unit.row, unit.t, unit.k)
            found = cell.found
            readout = CountReadout.of(table, unit.k)
            for block, last in _blocks(table, unit):
                if deadline.is_up():
                    return
                before = len(found.left)
                is_quick = kept >= LEFT
                cell.dropped += unit.weight * table.decide_block(
                    block, last, readout, found, smallest, is_quick=is_quick
                )
                progress(covered / total)
                pairs = block.first.shape[1] * block.number * unit.weight
                cell.covered, covered = cell.covered + pairs, covered + pairs
                kept += sum(map(len, found.left[before:]))


def _blocks(table: Table, unit: Unit) -> Iterator[tuple[MultisetBlock, Last]]:
    """The multisets of a unit: for all repeated tokens and the largest others, the sets of the smaller others."""
    S, singles = len(table.tokens), table.stored.L - unit.k - sum(unit.repeats)
    steps = table.steps(0)
    for repeated in _repeated(S, unit.repeats):
        rest = np.array([s for s in range(S) if s not in repeated], dtype=np.intp)
        small = _smaller(len(rest), singles, len(table.start))
        sets = Multisets(len(rest), small, table.stored.L - 1, has_repeats=False)
        sums = sets.sums(steps[:, rest], small)
        fixed = np.repeat(np.array(repeated, dtype=np.intp), unit.repeats)
        for below, largest in _largest(len(rest), small, singles):
            tokens = np.hstack([np.broadcast_to(fixed, (len(largest), len(fixed))), rest[largest]])
            ordered = np.sort(steps[:, rest[:below]], axis=1)
            low, high = (part.sum(1, keepdims=True) for part in (ordered[:, :small], ordered[:, below - small :]))
            last = Last(low, high, [(0, comb(below, small), np.zeros_like(low), sums[small])])
            yield _block(table, unit, steps, tokens, rest, sets, comb(below, small)), last


def _repeated(S: int, repeats: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Different tokens for these multiplicities; those of the same one increase."""
    for tokens in permutations(range(S), len(repeats)):
        chosen = list(zip(repeats, tokens, strict=True))
        if all(n != m or s < u for (n, s), (m, u) in pairwise(chosen)):
            yield tokens


def _smaller(S: int, singles: int, r: int) -> int:
    """How many of a set's tokens are tabulated: as many as fit."""
    return max(m for m in range(singles + 1) if m <= 1 or max(comb(S, n) for n in range(m + 1)) * r <= SMALL)


def _largest(S: int, small: int, singles: int) -> Iterator[tuple[int, np.ndarray]]:
    """The largest tokens (n, singles - small) of sets of S tokens, and below which token the `small` others lie."""
    left = singles - small
    if not left:
        yield S, np.zeros((1, 0), dtype=np.intp)
        return
    for least in range(small, S - left + 1):
        chosen = combinations(range(least + 1, S), left - 1)
        while some := list(islice(chosen, FIRSTS)):
            larger = np.array(some, dtype=np.intp).reshape(len(some), left - 1)
            yield least, np.hstack([np.full((len(some), 1), least), larger])


def _block(
    table: Table, unit: Unit, steps: Array, tokens: np.ndarray, rest: np.ndarray, sets: Multisets, number: int
) -> MultisetBlock:
    """A block whose first choices are `tokens` (n, m), and whose last ones are the first sets of `rest`."""
    first = np.repeat(table.start[:, None], len(tokens), axis=1)
    for column in tokens.T:
        first += steps[:, column]

    def held(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.sort(np.hstack([tokens[first], rest[sets.tokens(sets.size, last)]]), axis=1),)

    whole = sets.whole
    ways: np.ndarray = np.full(len(tokens), unit.ways, dtype=whole)
    one: np.ndarray = np.ones(1, dtype=whole)
    singles = table.stored.L - unit.k - sum(unit.repeats)
    distinct = np.full(len(tokens), len(unit.repeats) + singles)
    nothing = np.zeros(1, dtype=distinct.dtype)
    every = (number,)
    last = np.broadcast_to(one, every), np.broadcast_to(nothing, every)
    return MultisetBlock(first, ways, distinct, number, *last, held, len(unit.row.positions), is_single=True)
