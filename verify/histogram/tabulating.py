"""Decides every multiset of slots by itself, in batches with a proved radius: cheaper than a search where it fits.

A slot that holds another token than the query changes each linear form by one step, so the pre-activations of all
multisets cost one addition each; a logit difference is one matrix product more. Groups of almost equal weights stand
for every order of their slots within a radius; what that leaves open is bounded again by the neurons that are on, where
the terms of different neurons cancel before absolute values are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import comb, prod

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import ENLARGE, U, gamma
from verify.histogram.candidate import Candidate, Smallest
from verify.histogram.multisets import Multisets, multisets_of
from verify.histogram.reduction import Reduces, Row
from verify.histogram.stored import Array, StoredModel

BLOCK = 1 << 17  # numbers in a working array, so that it stays in the cache
SMALL = 1 << 21  # numbers in a table that is made as a whole, rather than by the largest tokens of its multisets


@dataclass(frozen=True)
class Points:
    """Multisets of one cell: which group holds which other tokens.

    Shapes: for each group (n, m) indices of tokens in increasing order; the group's other slots hold the query token.
    """

    k: int
    held: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.held[0]) if self.held else 1

    def __getitem__(self, index: np.ndarray) -> Points:
        return Points(self.k, tuple(tokens[index] for tokens in self.held))

    def listed(self) -> Iterator[list[int]]:
        """Each multiset as whole numbers: for each group how many other tokens, and their indices."""
        for i in range(len(self)):
            yield [number for tokens in self.held for number in (tokens.shape[1], *tokens[i].tolist())]


@dataclass
class Tabulated:
    """What was decided: wrong (sequence, position) pairs, the smallest margin of each count, and what is left."""

    wrong_pairs: int = 0
    margins: dict[int, float] = field(default_factory=dict)
    left: list[Points] = field(default_factory=list)


class Slots:
    """The weights of one row's slots, group by group: a centre, and how far each weight lies from it.

    Shapes: a, drift and slack (G,); apart has the distances of each group's weights in increasing order, the largest of
    all positions. `drift` bounds the sum of a group's differences to its centre, `slack` what a weight may be off by.
    """

    def __init__(self, row: Row) -> None:
        self.sizes = [int(size) for size in row.sizes]
        if row.spread is None:
            self.a, self.slack = row.weight.mid, row.weight.rad
            self.apart = [np.zeros(size) for size in self.sizes]
            self.drift = np.zeros(len(self.sizes))
            return
        weights = row.spread.weights
        slots = [
            [(position, list(own[g])) for position, own in zip(row.positions, row.slots, strict=True)]
            for g in range(len(self.sizes))
        ]
        mids = [np.array([weights.mid[at] for at in group]) for group in slots]  # (positions, slots) each
        self.a = np.array([mid.mean() for mid in mids])
        self.slack = np.array([max(weights.rad[at].max() for at in group) for group in slots])
        away = [mid - a for mid, a in zip(mids, self.a, strict=True)]
        self.apart = [np.sort(np.abs(x), axis=1).max(0) * ENLARGE for x in away]
        sums = [np.abs(x.sum(1)).max() + gamma(x.shape[1] + 2) * np.abs(x).sum(1).max() for x in away]
        self.drift = np.array(sums) * ENLARGE


class Space:
    """The memory of one table after the other."""

    def __init__(self, stored: StoredModel) -> None:
        r = stored.p + 1
        rows = max(64, BLOCK // r)
        self.forms, self.on = np.empty((2, r, rows))
        self.differences = np.empty((stored.classes - 1, rows))
        self._tables: dict[tuple[int, Multisets], list[Array]] = {}

    def tables(self, g: int, multisets: Multisets, r: int, *, is_last: bool) -> list[Array]:
        """Arrays (r, number) for the multisets of each size of group g, without a large last size of the last group."""
        if (g, multisets) not in self._tables:
            is_large = is_last and multisets.number(multisets.size) * r > SMALL
            sizes = range(multisets.size + 1 - is_large)
            self._tables[g, multisets] = [np.empty((r, multisets.number(m))) for m in sizes]
        return self._tables[g, multisets]


class Table:
    """All multisets of one query token t in one row of positions that are alike, or almost."""

    def __init__(self, reduction: Reduces, row: Row, t: int, space: Space) -> None:
        self.stored: StoredModel = reduction.stored
        self.row, self.t, self.slots = row, t, Slots(row)
        own_weights = [row.own_weight] if row.spread is None else [row.own_weight[i] for i in range(len(row.positions))]
        tables = [reduction.tables(replace(row, own_weight=w), t, t + 1).of_token(t) for w in own_weights]
        bases, (_, own, others) = [base for base, _, _ in tables], tables[0]
        base = Ball(bases[0].mid, np.max([base.rad for base in bases], axis=0))
        self.shifts = np.array([base.mid - bases[0].mid for base in bases])  # (positions, r)
        self.tokens = np.array([s for s in range(self.stored.T) if s != t], dtype=np.intp)
        H = others[self.tokens]
        self.values = np.vstack([H.mid, own.mid])  # (S + 1, r), the query token last
        self._kept: dict[int, list[Array]] = {}
        self.space = space
        sizes, a = np.array(self.slots.sizes, dtype=float), self.slots.a
        self.start = base.mid + (sizes * a).sum() * own.mid
        self.order = sorted(range(len(sizes)), key=lambda g: self.slots.sizes[g])  # the largest group last
        self.multisets = [multisets_of(len(self.tokens), size, self.stored.L - 1) for size in self.slots.sizes]
        largest, loosest = np.maximum(H.magnitude.max(0, initial=0), own.magnitude), own.rad
        loosest = np.maximum(H.rad.max(0, initial=0), loosest)
        per_slot = (sizes * (np.abs(a) + self.slots.slack)).sum() * ENLARGE + sum(x.sum() for x in self.slots.apart)
        roundings = 4 * self.stored.L + 4 * len(sizes) + 40
        with np.errstate(invalid="ignore", over="ignore"):
            size = base.magnitude + np.abs(self.shifts).max(0)
            self.reach = (size + 3 * per_slot * largest) * ENLARGE  # of all terms of a form together
            radius = base.rad + per_slot * loosest + (sizes * self.slots.slack).sum() * largest
            self.form_error = (gamma(roundings) * self.reach + radius) * ENLARGE
            self.spread = self._spread()

    def _spread(self) -> Array:
        """How far the weights can take each form from where the centres and the first position put it (r,)."""
        low, high = self.values.min(0), self.values.max(0)
        middle = low / 2 + high / 2
        half = np.maximum(high - middle, middle - low) * ENLARGE
        found = sum((x.sum() for x in self.slots.apart), 0.0) * half + self.slots.drift.sum() * np.abs(middle)
        found = found + np.abs(self.shifts).max(0)
        result: Array = found * ENLARGE * (1 + gamma(self.stored.L))
        return result

    def decide(self, k: int, found: Tabulated, smallest: Smallest) -> None:
        """Decides every multiset with own count k."""
        readout = Readout.of(self, k)
        for levels in self._levels(k):
            block = Block.of(self, levels)
            for z, index, radius in self._parts(block, readout):
                self._judge(z, index, block, replace(readout, radius=radius), found, smallest)

    def _levels(self, k: int) -> Iterator[tuple[int, ...]]:
        """How many slots of each group hold other tokens, in every way."""
        missing, sizes = self.stored.L - k, self.slots.sizes
        for levels in product(*(range(min(size, missing) + 1) for size in sizes)):
            if sum(levels) == missing and (len(self.tokens) or not missing):
                yield levels

    def sums(self, g: int) -> list[Array]:
        """The changes (r, number) of every form by a group's multisets, by size; a last size that is large is left out.

        Multisets of that one are made from those of the size before, when they are judged.
        """
        if g not in self._kept:
            self._kept[g] = self.space.tables(g, self.multisets[g], len(self.start), is_last=g == self.order[-1])
            self.multisets[g].sums(self._steps(g), self._kept[g])
        return self._kept[g]

    def _steps(self, g: int) -> Array:
        """What one slot of a group changes when it holds another token than the query (r, S)."""
        steps: Array = self.slots.a[g] * (self.values[:-1] - self.values[-1]).T
        return steps

    def _parts(self, block: Block, readout: Readout) -> Iterator[tuple[Array, np.ndarray, Array]]:
        """The forms (r, n) of a block's multisets, their indices (n,), and what each difference may be off by."""
        first, rows = block.first, self.space.forms.shape[1]
        if not self.order:
            yield first, np.zeros(1, dtype=np.intp), self.radius(first, first, readout)
            return
        g, m, number = self.order[-1], block.levels[self.order[-1]], block.number
        tables, steps = self.sums(g), self._steps(g)
        low, high = m * steps.min(1, initial=0, keepdims=True), m * steps.max(1, initial=0, keepdims=True)
        if m < len(tables) and number <= rows:
            step = max(1, rows // number)
            radius = self.radius(first.min(1, keepdims=True) + low, first.max(1, keepdims=True) + high, readout)
            for begin in range(0, first.shape[1], step):
                part = first[:, begin : begin + step, None] + tables[m][:, None]
                yield part.reshape(len(first), -1), np.arange(begin * number, begin * number + part[0].size), radius
            return
        for i in range(first.shape[1]):
            radius = self.radius(first[:, [i]] + low, first[:, [i]] + high, readout)
            if m < len(tables):
                for begin in range(0, number, rows):
                    end, at = min(number, begin + rows), i * number
                    z = np.add(tables[m][:, begin:end], first[:, [i]], out=self.space.forms[:, : end - begin])
                    yield z, np.arange(at + begin, at + end), radius
                continue
            for start, n, u in self.multisets[g].parts(m):
                change = first[:, [i]] + steps[:, [u]]
                for begin in range(0, n, rows):
                    end, at = min(n, begin + rows), i * number + start
                    z = np.add(tables[m - 1][:, begin:end], change, out=self.space.forms[:, : end - begin])
                    yield z, np.arange(at + begin, at + end), radius

    def radius(self, low: Array, high: Array, readout: Readout) -> Array:
        """What each difference may be off by (C - 1, 1), for forms between these ends (r, 1) at the groups' centres.

        Neurons that keep their side are on or off together, so that their terms cancel as they do in the difference.
        """
        if not self.spread.any():
            return readout.error
        reach = self.spread[:, None] + 2 * self.form_error[:, None]
        is_on = (low > reach)[:, 0]
        is_bent = ~(is_on | (high < -reach)[:, 0])
        q = (readout.d * is_on) @ self.values.T
        least, most = q.min(1), q.max(1)
        middle = least / 2 + most / 2
        half = np.maximum(most - middle, middle - least)
        found = sum(float(x.sum()) for x in self.slots.apart) * half + float(self.slots.drift.sum()) * np.abs(middle)
        found = found + (np.abs(readout.d) * is_bent) @ self.spread
        found = found + np.abs((readout.d * is_on) @ self.shifts.T).max(1)
        found = found[:, None] * (1 + gamma(4 * self.stored.L + 2 * len(self.start) + 40))
        result: Array = (found + readout.error) * ENLARGE
        return result

    def _judge(
        self, z: Array, index: np.ndarray, block: Block, readout: Readout, found: Tabulated, smallest: Smallest
    ) -> None:
        n = z.shape[1]
        on = np.maximum(z, 0, out=self.space.on[:, :n])
        difference = np.matmul(readout.d, on, out=self.space.differences[:, :n])
        difference -= readout.radius
        least = difference.min(0, initial=np.inf)
        is_right = least > 0
        if is_right.all():
            readout.record(least, z[-1] + self.form_error[-1], found)
            return
        readout.record(least[is_right], z[-1, is_right] + self.form_error[-1], found)
        left = np.flatnonzero(~is_right)
        difference = difference[:, left] + readout.radius
        is_wrong = (difference + readout.radius <= 0).any(0)
        self._add_wrong(index[left[is_wrong]], block, readout.k, found, smallest)
        left, difference = left[~is_wrong], difference[:, ~is_wrong]
        if not len(left):
            return
        points = block.points(index[left], readout.k)
        if self.spread.any():
            least, most = self._closer(z[:, left].T, difference.T, points, readout)
            is_right, is_wrong = (least > 0).all(1), (most <= 0).any(1)
            D_upper = z[-1, left[is_right]] + self.form_error[-1]
            readout.record(least[is_right].min(1, initial=np.inf), D_upper, found)
            self._add_wrong(index[left[is_wrong]], block, readout.k, found, smallest)
            points = points[np.flatnonzero(~(is_right | is_wrong))]
        if len(points):
            found.left.append(points)

    def _closer(self, z: Array, difference: Array, points: Points, readout: Readout) -> tuple[Array, Array]:
        """Bounds on each difference (n, C - 1) over the orders of a group's slots, by the neurons that are on.

        With the weights' differences to their centre, a form is z + e, and ReLU(z + e) is ReLU(z) + [z > 0] e up to
        something between 0 and |e| - |z|. The sum of the second terms is one linear form in the tokens of the slots.
        """
        least, most = difference - readout.radius.T, difference + readout.radius.T
        i, j = np.nonzero((least <= 0) & (most > 0))
        if not len(i):
            return least, most
        d = readout.d[j]
        active = d * (z[i] > 0)
        q = active @ self.values.T  # (P, S + 1)
        change = np.abs(active @ self.shifts.T).max(1)
        for g, tokens in enumerate(points.held):
            apart = self.slots.apart[g]
            own = np.full((len(points), len(apart) - tokens.shape[1]), len(self.tokens))
            of_slot = np.take_along_axis(q, np.hstack([tokens, own])[i], 1)
            middle = of_slot.mean(1)
            distances = np.sort(np.abs(of_slot - middle[:, None]), axis=1)
            change += distances @ apart + self.slots.drift[g] * np.abs(middle)
        change = change * (1 + gamma(2 * self.stored.L + 20)) + readout.error[j, 0]
        up, down = self._bends(z, i, d)
        least[i, j] = np.fmax(least[i, j], difference[i, j] - (change + down) * ENLARGE)
        most[i, j] = np.fmin(most[i, j], difference[i, j] + (change + up) * ENLARGE)
        return least, most

    def _bends(self, z: Array, i: np.ndarray, d: Array) -> tuple[Array, Array]:
        """What neurons that may change sides can add to each difference of multiset i, and take from it (P,) each."""
        found = np.zeros((2, len(i)))
        reach = (self.spread + self.form_error) * ENLARGE
        near = np.flatnonzero((np.abs(z) < reach).any(1)[i])
        if len(near):
            bend = np.maximum(reach - np.abs(z[i[near]]), 0.0) * (1 + gamma(2 * len(self.start) + 20))
            found[0, near] = np.einsum("pr,pr->p", np.maximum(d[near], 0), bend)
            found[1, near] = np.einsum("pr,pr->p", np.maximum(-d[near], 0), bend)
        return found[0], found[1]

    def _add_wrong(self, index: np.ndarray, block: Block, k: int, found: Tabulated, smallest: Smallest) -> None:
        """Counts wrong multisets, and keeps the smallest input of them."""
        if not len(index):
            return
        found.wrong_pairs += block.pairs(index)
        lowest, best = block.lowest(index), smallest.candidate
        is_low = lowest <= (self.stored.L if best is None else best.distinct)
        if len(block.levels) == 1:
            is_low &= lowest == lowest.min()
        if is_low.any():
            smallest.add(self._smallest(block.points(index[is_low], k)))

    def _smallest(self, points: Points) -> Candidate:
        """The smallest input of these multisets."""
        holdings = []
        for size, held in zip(self.slots.sizes, points.held, strict=True):
            own = np.full((len(points), size - held.shape[1]), self.t)
            holdings.append(np.sort(np.hstack([self.tokens[held], own]), axis=1))
        everything = np.sort(np.hstack([*holdings, np.full((len(points), 1), self.t)]), axis=1)
        distinct = 1 + (everything[:, 1:] != everything[:, :-1]).sum(1)
        is_low = distinct == distinct.min()
        if not self.stored.is_linear:
            sequence = min(map(tuple, everything[is_low].tolist()))
            return Candidate(int(distinct.min()), sequence, sequence.index(self.t))
        found = []
        for position, groups in zip(self.row.positions, self.row.slots, strict=True):
            sequences = np.full((int(is_low.sum()), self.stored.L), self.t)
            for group, tokens in zip(groups, holdings, strict=True):
                sequences[:, sorted(group)] = tokens[is_low]
            found.append(Candidate(int(distinct.min()), min(map(tuple, sequences.tolist())), position))
        return min(found)


@dataclass(frozen=True)
class Block:
    """All multisets whose groups hold these numbers of other tokens: those of all groups but the largest, times its.

    Shapes: first (r, n) the forms of all combinations of the smaller groups, ways (n,) and distinct (n,) in how many
    orders they come and the most tokens that one of them has; `number` multisets of the largest group go with each.
    """

    table: Table
    levels: tuple[int, ...]
    first: Array
    ways: np.ndarray
    distinct: np.ndarray
    number: int

    @classmethod
    def of(cls, table: Table, levels: tuple[int, ...]) -> Block:
        first, ways, distinct = table.start[:, None], np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int16)
        for g in table.order[:-1]:
            multisets, m = table.multisets[g], levels[g]
            first = (first[:, :, None] + table.sums(g)[m][:, None]).reshape(len(first), -1)
            ways = np.outer(ways, multisets.arrangements[m] * comb(multisets.size, m)).ravel()
            distinct = np.maximum.outer(distinct, multisets.distinct[m]).ravel()
        number = table.multisets[table.order[-1]].number(levels[table.order[-1]]) if table.order else 1
        return cls(table, levels, first, ways, distinct, number)

    def _split(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indices of the combination of smaller groups, and of the largest group's multiset."""
        if len(self.ways) == 1:
            return np.zeros(1, dtype=np.intp), index
        return np.divmod(index, self.number)

    def pairs(self, index: np.ndarray) -> int:
        """How many (sequence, position) pairs these multisets stand for."""
        first, last = self._split(index)
        ways = self.ways[first]
        if self.table.order:
            g = self.table.order[-1]
            multisets, m = self.table.multisets[g], self.levels[g]
            ways = ways * multisets.arrangements[m][last] * comb(multisets.size, m)
        return int(ways.sum()) * len(self.table.row.positions)

    def lowest(self, index: np.ndarray) -> np.ndarray:
        """At most the number of distinct tokens of each of these (n,); exactly that for one group."""
        first, last = self._split(index)
        distinct = self.distinct[first]
        if self.table.order:
            g = self.table.order[-1]
            distinct = np.maximum(distinct, self.table.multisets[g].distinct[self.levels[g]][last])
        result: np.ndarray = 1 + distinct
        return result

    def points(self, index: np.ndarray, k: int) -> Points:
        """These multisets, token by token."""
        order, multisets = self.table.order, self.table.multisets
        numbers = [multisets[g].number(self.levels[g]) for g in order]
        held: dict[int, np.ndarray] = {}
        if numbers:
            for g, at in zip(order, np.unravel_index(index, numbers), strict=True):
                held[g] = multisets[g].tokens(self.levels[g], at)
        return Points(k, tuple(held[g] for g in range(len(self.levels))))


@dataclass(frozen=True)
class Readout:
    """The differences of the right logit of count k and each other one, and what can be wrong with them.

    Shapes: d (C - 1, r); error (C - 1, 1) by rounding, and radius (C - 1, 1) by the weights of the slots too.
    """

    k: int
    d: Array
    error: Array
    radius: Array

    @classmethod
    def of(cls, table: Table, k: int) -> Readout:
        stored, right = table.stored, table.stored.class_of(k)
        weights = np.vstack([stored.W_2, stored.b_2])
        d = np.delete(weights[:, [right]] - weights, right, axis=1)
        size, r = np.abs(d), len(weights)
        reach = table.reach + table.spread + table.form_error
        underflow = 2.0**-1060 * (r + reach.sum())
        with np.errstate(invalid="ignore", over="ignore"):
            most = reach @ size
            error = (table.form_error @ size + gamma(4 * r + 40) * most) * (1 + gamma(2 * r + 20)) + underflow
        error = np.where(most < 2.0**1000, error * ENLARGE, np.inf)[:, None]
        return cls(k, np.ascontiguousarray(d.T), error, error)

    def record(self, least: Array, D_upper: Array, found: Tabulated) -> None:
        """Keeps the smallest margin of right multisets with these least differences, times D."""
        if len(least):
            smallest = float((least / D_upper).min()) * (1 - 4 * U)
            found.margins[self.k] = min(smallest, found.margins.get(self.k, np.inf))


def number_of_points(row: Row, T: int, counts: list[int], L: int) -> int:
    """How many multisets the cells of one query token with these own counts have in a row."""
    sizes, wanted = [int(size) for size in row.sizes], {L - k for k in counts}
    numbers = [1]  # by how many slots hold other tokens
    for size in sizes:
        group = [comb(T - 2 + m, m) if T > 1 else int(m == 0) for m in range(size + 1)]
        longer = [0] * (len(numbers) + size)
        for a, b in product(range(len(numbers)), range(size + 1)):
            longer[a + b] += numbers[a] * group[b]
        numbers = longer
    return sum(number for m, number in enumerate(numbers) if m in wanted)


def kept_numbers(row: Row, T: int, r: int) -> int:
    """How many numbers the tables of one query token hold at a time."""
    sizes = sorted(int(size) for size in row.sizes)
    if not sizes or T < 2:
        return r
    return r * (prod(comb(T - 2 + size, size) for size in sizes[:-1]) + comb(T - 2 + sizes[-1], sizes[-1]))
