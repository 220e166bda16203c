"""Decides every multiset of slots by itself, in batches with a proved radius: cheaper than a search where it fits.

A slot that holds another token than the query changes each linear form by one step, so the pre-activations of all
multisets cost one addition each; a logit difference is one matrix product more. Groups of almost equal weights stand
for every order of their slots within a radius; what that leaves open is bounded again by the neurons that are on, where
the terms of different neurons cancel before absolute values are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import comb, prod

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import ENLARGE, ENLARGE_LONG, LOST_BY_MANY, U, gamma, quotient_below
from verify.tasks.histogram.blocks import BlockPart, CellMultisets, Last, MultisetBlock, Near
from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.multisets import multisets_of
from verify.tasks.histogram.reduction import Reduces, Row, forms_of_token
from verify.tasks.histogram.stored import Array, StoredModel

BLOCK = 1 << 18  # numbers in a working array, so that it stays in the cache
TOGETHER = 1 << 11  # multisets near a tie that are looked at closer at once
Kind = type[np.float32] | type[np.float64]
U32 = 2.0**-24
UNDERFLOW: dict[Kind, float] = {
    np.float64: LOST_BY_MANY,
    np.float32: 2.0**-110,
}  # far more than what up to 2^12 products lose, in units of what multiplies them afterwards
NARROW = 2.0**40  # above forms and readouts whose products float32 holds with all errors
SMALL = 1 << 21  # numbers in a table that is made as a whole, rather than by the largest tokens of its multisets


def gamma32(n: int) -> float:
    """Bounds the relative error of n roundings to float32."""
    return n * U32 / (1 - n * U32) * ENLARGE


@dataclass
class Tabulated:
    """What was decided: wrong (sequence, position) pairs, the smallest margin of each count, and what is left."""

    wrong_pairs: int = 0
    margins: dict[int, float] = field(default_factory=dict)
    left: list[CellMultisets] = field(default_factory=list)

    def add(self, other: Tabulated) -> None:
        """Adds what was decided of other multisets."""
        self.wrong_pairs += other.wrong_pairs
        self.margins |= {k: min(margin, self.margins.get(k, np.inf)) for k, margin in other.margins.items()}
        self.left += other.left


class Slots:
    """The weights of one row's slots, group by group: a centre, and how far each weight lies from it.

    Shapes: a, drift and slack (G,); away has each group's weights less their centre (positions, slots), and apart their
    distances in increasing order, the largest of all positions. `drift` bounds the sum of a group's differences to its
    centre, `slack` what a weight may be off by.
    """

    def __init__(self, row: Row) -> None:
        self.sizes = [int(size) for size in row.sizes]
        if row.spread is None:
            self.a, self.slack = row.weight.mid, row.weight.rad
            self.away = [np.zeros((1, size)) for size in self.sizes]
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
        self.slack = np.array([np.max([weights.rad[at].max() for at in group]) for group in slots])
        self.away = [mid - a for mid, a in zip(mids, self.a, strict=True)]
        self.apart = [np.sort(np.abs(x), axis=1).max(0) * ENLARGE for x in self.away]
        sums = [np.abs(x.sum(1)).max() + gamma(x.shape[1] + 2) * np.abs(x).sum(1).max() for x in self.away]
        self.drift = np.array(sums) * ENLARGE


class Space:
    """What one table after the other needs: memory, and differences of what is read out."""

    def __init__(self, stored: StoredModel) -> None:
        self.stored, self.rows = stored, max(64, BLOCK // (stored.p + 1))
        self._buffers: dict[Kind, tuple[Array, ...]] = {}
        self._differences: dict[int, Array] = {}

    def differences(self, k: int) -> Array:
        """What the right logit's readout has more than each other one's (r, C - 1), for own count k."""
        if k not in self._differences:
            right, weights = self.stored.class_of(k), np.vstack([self.stored.W_2, self.stored.b_2])
            self._differences[k] = np.delete(weights[:, [right]] - weights, right, axis=1)
        return self._differences[k]

    def buffers(self, dtype: Kind, firsts: int, lasts: int) -> tuple[Array, ...]:
        """An array (r, firsts, lasts) for forms, and two (C - 1, firsts, lasts) for differences."""
        sizes, number = (self.stored.p + 1, self.stored.classes - 1, self.stored.classes - 1), firsts * lasts
        if dtype not in self._buffers:
            self._buffers[dtype] = tuple(np.empty(n * self.rows, dtype=dtype) for n in sizes)
        flat = zip(sizes, self._buffers[dtype], strict=True)
        return tuple(buffer[: n * number].reshape(n, firsts, lasts) for n, buffer in flat)


class Table:
    """All multisets of one query token t in one row of positions that are alike, or almost, by numbers of a dtype."""

    def __init__(self, reduction: Reduces, row: Row, t: int, space: Space, dtype: Kind | None = None) -> None:
        self.stored: StoredModel = reduction.stored
        self.row, self.t, self.slots = row, t, Slots(row)
        bases, own, others = forms_of_token(reduction, row, t)
        mids = np.array([base.mid for base in bases])
        middle = mids[0] if len(bases) == 1 else mids.min(0) / 2 + mids.max(0) / 2
        base = Ball(middle, np.max([base.rad for base in bases], axis=0))
        self.shifts = mids - middle  # (positions, r)
        self.tokens = np.array([s for s in range(self.stored.T) if s != t], dtype=np.intp)
        H = others[self.tokens]
        self.exact = base, own, H
        self.values = np.vstack([H.mid, own.mid])  # (S + 1, r), the query token last
        self._kept: dict[int, list[Array]] = {}
        self.space = space
        sizes, a = np.array(self.slots.sizes, dtype=float), self.slots.a
        start = base.mid + (sizes * a).sum() * own.mid
        self.order = sorted(range(len(sizes)), key=lambda g: self.slots.sizes[g])  # the largest group last
        self.multisets = [multisets_of(len(self.tokens), size, self.stored.L - 1) for size in self.slots.sizes]
        largest, loosest = np.maximum(H.magnitude.max(0, initial=0), own.magnitude), own.rad
        loosest = np.maximum(H.rad.max(0, initial=0), loosest)
        per_slot = (sizes * (np.abs(a) + self.slots.slack)).sum() * ENLARGE + sum(x.sum() for x in self.slots.apart)
        self.per_slot = float(per_slot)
        roundings = 4 * self.stored.L + 4 * len(sizes) + 40
        with np.errstate(invalid="ignore", over="ignore"):
            size = base.magnitude + np.abs(self.shifts).max(0)
            self.reach = (size + 3 * per_slot * largest) * ENLARGE  # of all terms of a form together
            radius = base.rad + per_slot * loosest + (sizes * self.slots.slack).sum() * largest
            self.spread = self._spread()
            readout = np.abs(np.vstack([self.stored.W_2, self.stored.b_2])).max(initial=0)
            self.is_narrow = bool(self.reach.max() < NARROW and readout < NARROW)
            self.dtype = dtype or self._dtype()
            rounding = gamma(roundings) if self.dtype is np.float64 else gamma32(roundings)
            # one product a slot may underflow, and few besides
            self.form_error = (rounding * self.reach + radius + UNDERFLOW[self.dtype] * (1 + self.stored.L)) * ENLARGE
        self.start: Array = start.astype(self.dtype)
        self.is_D_fixed = not (self.values[:, -1] != self.values[0, -1]).any()

    def _dtype(self) -> Kind:
        """float32 where the weights' differences leave more open than it does, and nothing comes near its ends."""
        return np.float32 if self.spread.any() and self.is_narrow else np.float64

    def _spread(self) -> Array:
        """How far the weights can take each form from where the centres and the middle of the positions put it (r,).

        Zero only where all weights and positions are alike: what underflows is added wherever some differ.
        """
        low, high = self.values.min(0), self.values.max(0)
        middle = low / 2 + high / 2
        half = np.maximum(high - middle, middle - low) * ENLARGE
        found = sum((x.sum() for x in self.slots.apart), 0.0) * half + self.slots.drift.sum() * np.abs(middle)
        found = found + np.abs(self.shifts).max(0)
        is_apart = any(x.any() for x in self.slots.apart) or self.slots.drift.any()
        result: Array = found * ENLARGE * (1 + gamma(self.stored.L)) + (UNDERFLOW[np.float64] if is_apart else 0.0)
        return result

    def in_order(self, order: np.ndarray) -> Table:
        """The same with the other tokens in another order."""
        found, (base, own, others) = copy(self), self.exact
        found.tokens, found.exact, found._kept = self.tokens[order], (base, own, others[order]), {}
        found.values = np.vstack([self.values[:-1][order], self.values[-1:]])
        return found

    def decide(self, k: int, found: Tabulated, smallest: Smallest) -> None:
        """Decides every multiset with own count k."""
        readout = CountReadout.of(self, k)
        for levels in self._levels(k):
            self.decide_block(self._block(levels), self._last(levels), readout, found, smallest)

    def decide_block(
        self, block: MultisetBlock, last: Last, readout: CountReadout, found: Tabulated, smallest: Smallest
    ) -> None:
        """Decides the multisets of one block."""
        near = Near()
        for part in self._parts(block, last, readout):
            self._judge(part, readout, found, smallest, near)
            if near.number >= TOGETHER:
                self._look_closer(near, block, readout, found, smallest)
                near = Near()
        if near.number:
            self._look_closer(near, block, readout, found, smallest)

    def _block(self, levels: tuple[int, ...]) -> MultisetBlock:
        """All multisets whose groups hold these numbers of other tokens: those of the smaller groups come first."""
        first, ways, distinct = self.start[:, None], np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int16)
        for g in self.order[:-1]:
            multisets, m = self.multisets[g], levels[g]
            first = (first[:, :, None] + self.sums(g)[m][:, None]).reshape(len(first), -1)
            ways = np.outer(ways, multisets.arrangements[m] * comb(multisets.size, m)).ravel()
            distinct = np.maximum.outer(distinct, multisets.distinct[m]).ravel()
        numbers = [self.multisets[g].number(levels[g]) for g in self.order]
        last_ways, last_distinct = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int16)
        if self.order:
            multisets, m = self.multisets[self.order[-1]], levels[self.order[-1]]
            last_ways, last_distinct = multisets.arrangements[m] * comb(multisets.size, m), multisets.distinct[m]

        def held(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, ...]:
            chosen = [*np.unravel_index(first, numbers[:-1]), last] if len(numbers) > 1 else [last][: len(numbers)]
            of_group = {g: self.multisets[g].tokens(levels[g], at) for g, at in zip(self.order, chosen, strict=True)}
            return tuple(of_group[g] for g in range(len(levels)))

        number, positions, is_single = [1, *numbers][-1], len(self.row.positions), len(levels) == 1
        return MultisetBlock(first, ways, distinct, number, last_ways, last_distinct, held, positions, is_single)

    def _last(self, levels: tuple[int, ...]) -> Last:
        """What the largest group adds to each form."""
        if not self.order:
            zeros = np.zeros_like(self.start)[:, None]
            return Last(zeros, zeros, [(0, 1, zeros, zeros)])
        g, m = self.order[-1], levels[self.order[-1]]
        tables, steps = self.sums(g), self.steps(g)
        low, high = m * steps.min(1, initial=0, keepdims=True), m * steps.max(1, initial=0, keepdims=True)
        if m < len(tables):
            return Last(low, high, [(0, tables[m].shape[1], np.zeros_like(low), tables[m])])
        pieces = [(start, n, steps[:, [u]], tables[m - 1]) for start, n, u in self.multisets[g].parts(m)]
        return Last(low, high, pieces)

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
            multisets, size = self.multisets[g], self.slots.sizes[g]
            is_large = g == self.order[-1] and multisets.number(size) * len(self.start) > SMALL
            self._kept[g] = multisets.sums(self.steps(g), size - is_large)
        return self._kept[g]

    def steps(self, g: int) -> Array:
        """What one slot of a group changes when it holds another token than the query (r, S)."""
        steps: Array = (self.slots.a[g] * (self.values[:-1] - self.values[-1]).T).astype(self.dtype)
        return steps

    def _parts(self, block: MultisetBlock, last: Last, readout: CountReadout) -> Iterator[BlockPart]:
        """The multisets of a block, not more at once than fit in the cache."""
        first, number, rows = block.first, block.number, self.space.rows
        if len(last.pieces) == 1 and number <= rows:
            step, table = max(1, rows // number), last.pieces[0][-1][:, :number]
            low, high = first.min(1, keepdims=True) + last.low, first.max(1, keepdims=True) + last.high
            radius = self.radius(low, high, readout)
            for begin in range(0, first.shape[1], step):
                yield BlockPart(block, begin, 0, first[:, begin : begin + step], table, radius)
            return
        for i in range(first.shape[1]):
            radius = self.radius(first[:, [i]] + last.low, first[:, [i]] + last.high, readout)
            for start, n, change, table in last.pieces:
                for begin in range(0, n, rows):
                    chosen = table[:, begin : min(n, begin + rows)]
                    yield BlockPart(block, i, start + begin, first[:, [i]] + change, chosen, radius)

    def radius(self, low: Array, high: Array, readout: CountReadout) -> Array:
        """What each difference may be off by (C - 1, 1), for forms between these ends (r, 1) at the groups' centres.

        Neurons that keep their side are on or off together, so that their terms cancel as they do in the difference.
        """
        if not self.spread.any():
            return readout.error
        reach = self.spread[:, None] + 2 * self.form_error[:, None]
        low, high = low.astype(np.float64), high.astype(np.float64)
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

    def _judge(self, part: BlockPart, readout: CountReadout, found: Tabulated, smallest: Smallest, near: Near) -> None:
        """Counts what is right or wrong by far; the rest is left to be looked at closer.

        A neuron's max(t + c, 0) is max(t, -c) + c, whose second term is the same for all last choices.
        """
        firsts, lasts = part.first.shape[1], part.last.shape[1]
        on, difference, lower = self.space.buffers(self.dtype, firsts, lasts)
        np.maximum(part.last[:, None], -part.first[:, :, None], out=on)
        np.matmul(
            readout.rounded,
            on.reshape(len(on), firsts * lasts),
            out=difference.reshape(len(difference), firsts * lasts),
        )
        own = readout.d @ part.first.astype(np.float64)
        np.subtract(difference, self._above(part.radius - own)[:, :, None], out=lower)
        least = lower.min(0, initial=np.inf).ravel()
        is_right = least > 0
        readout.record(least[is_right], self._normaliser(part, is_right), found)
        if is_right.all():
            return
        is_wrong = np.asarray((difference < -self._above(part.radius + own)[:, :, None]).any(0)).ravel()
        if is_wrong.any():
            found.wrong_pairs += part.pairs(is_wrong)
            if part.least_distinct() <= self._most_distinct(smallest):
                is_low = part.lowest() <= self._most_distinct(smallest)
                self._add_smallest(np.flatnonzero(is_wrong & is_low), part, readout.k, smallest)
        left = np.flatnonzero(~(is_right | is_wrong))
        if len(left):
            i, j = np.divmod(left, lasts)
            exactly = difference[:, i, j].astype(np.float64) + own[:, i]
            near.add(part.indices(left), part.forms(i, j), exactly, part.radius)

    def _above(self, x: Array) -> Array:
        """Numbers of the table's kind that are not below x."""
        result: Array = np.nextafter(x.astype(self.dtype), np.inf, dtype=self.dtype)
        return result

    def _look_closer(
        self, near: Near, block: MultisetBlock, readout: CountReadout, found: Tabulated, smallest: Smallest
    ) -> None:
        """Bounds multisets of a block by the neurons that are on, where slots differ; what that leaves is `left`."""
        index, z, difference, radius = near.joined()
        points = block.points(index, readout.k)
        if self.spread.any():
            least, most = self._closer(z.T, difference.T, points, radius.T, readout)
            D = z[-1] + self.form_error[-1]
        else:
            least, most, D = self.singly(points, readout)
        is_wrong = readout.settle(points, (least, most, D), found)
        found.wrong_pairs += block.pairs(index[is_wrong])
        is_low = block.lowest(index) <= self._most_distinct(smallest)
        if (is_wrong & is_low).any():
            smallest.add(self.smallest_of(points[np.flatnonzero(is_wrong & is_low)]))

    def singly(self, points: CellMultisets, readout: CountReadout) -> tuple[Array, Array, Array]:
        """Bounds on each difference (n, C - 1) and above on D (n,), with what these multisets' own terms round away.

        A softmax's weights differ by powers, so that rounding by the largest of them may hide what others say.
        """
        base, own, others = self.exact
        z, size, radius = (np.tile(x, (len(points), 1)) for x in (base.mid, np.abs(base.mid), base.rad))
        for g, tokens in enumerate(points.held):
            a, slack, number = self.slots.a[g], self.slots.slack[g], self.slots.sizes[g] - tokens.shape[1]
            terms = others.mid[tokens].sum(1) + number * own.mid
            sizes = np.abs(others.mid)[tokens].sum(1) + number * np.abs(own.mid)
            radii = others.rad[tokens].sum(1) + number * own.rad
            z, size = z + a * terms, size + abs(a) * sizes
            radius = radius + (abs(a) + slack) * radii + slack * sizes
        off = (gamma(4 * self.stored.L + 60) * size + radius) * ENLARGE_LONG + UNDERFLOW[np.float64]
        D = (z[:, -1] + off[:, -1]) * (1 + 4 * U)
        z[:, :-1] = np.maximum(z[:, :-1], 0)
        difference, weights = z @ readout.d.T, np.abs(readout.d).T
        reach = size + off
        error = (off @ weights + gamma(4 * len(base.mid) + 40) * (reach @ weights)) * ENLARGE_LONG
        error = error + UNDERFLOW[np.float64] * (len(base.mid) + reach.sum(1, keepdims=True))
        error = np.where(reach @ weights < 2.0**1000, error, np.inf)
        return difference - error, difference + error, D

    def _normaliser(self, part: BlockPart, chosen: np.ndarray) -> Array:
        """Upper bounds on D for the chosen multisets of a part, or one for all where it is the same for all."""
        D = part.normaliser()
        result: Array = (D[:1] if self.is_D_fixed else D[chosen]) + self.form_error[-1]
        return result

    def _closer(
        self, z: Array, difference: Array, points: CellMultisets, radius: Array, readout: CountReadout
    ) -> tuple[Array, Array]:
        """Bounds on each difference (n, C - 1) over the orders of a group's slots, by the neurons that are on.

        With the weights' differences to their centre, a form is z + e, and ReLU(z + e) is ReLU(z) + [z > 0] e up to
        something between 0 and |e| - |z|. The sum of the second terms is one linear form in the tokens of the slots.
        """
        least, most = difference - radius, difference + radius
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

    def _most_distinct(self, smallest: Smallest) -> int:
        """How many different tokens an input that is smaller may have."""
        return self.stored.L if smallest.candidate is None else smallest.candidate.distinct

    def _add_smallest(self, index: np.ndarray, part: BlockPart, k: int, smallest: Smallest) -> None:
        """Keeps the smallest input of some of a part's multisets that are wrong."""
        if not len(index):
            return
        if part.block.is_single:
            lowest = part.lowest()[index]
            index = index[lowest == lowest.min()]
        smallest.add(self.smallest_of(part.block.points(part.indices(index), k)))

    def smallest_of(self, points: CellMultisets) -> Candidate:
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
class CountReadout:
    """The differences of the right logit of count k and each other one, and what can be wrong with them.

    Shapes: d (C - 1, r), and `rounded` as the table's forms are; error (C - 1, 1) by rounding.
    """

    k: int
    d: Array
    rounded: Array
    error: Array

    @classmethod
    def of(cls, table: Table, k: int) -> CountReadout:
        d = table.space.differences(k)
        size, r = np.abs(d), len(d)
        reach = table.reach + table.spread + table.form_error
        is_narrow = table.dtype is np.float32
        # what a product with d loses may be multiplied by the slots' weights, what one of a form loses by d
        underflow = UNDERFLOW[table.dtype] * ((r + table.stored.L) * (1 + table.per_slot) + reach.sum())
        with np.errstate(invalid="ignore", over="ignore"):
            most = reach @ size
            rounding = gamma32(2 * r + 20) if is_narrow else gamma(4 * r + 40)
            error = (table.form_error @ size + rounding * most) * (1 + gamma(2 * r + 20)) + underflow
            error = np.where(most < (2.0**100 if is_narrow else 2.0**1000), error * ENLARGE, np.inf)[:, None]
            rounded: Array = np.ascontiguousarray(d.T.astype(table.dtype))
        return cls(k, np.ascontiguousarray(d.T), rounded, error)

    def settle(self, points: CellMultisets, bounds: tuple[Array, Array, Array], found: Tabulated) -> np.ndarray:
        """Which multisets (n,) are wrong, with what is found of the right ones; those near a tie are `left`.

        `bounds` are those on each difference (n, C - 1), below and above, and that above on D (n,).
        """
        least, most, D_upper = bounds
        is_right, is_wrong = (least > 0).all(1), np.asarray((most <= 0).any(1))
        self.record(least[is_right].min(1, initial=np.inf), D_upper[is_right], found)
        left = points[np.flatnonzero(~(is_right | is_wrong))]
        if len(left):
            found.left.append(left)
        return is_wrong

    def record(self, least: Array, D_upper: Array, found: Tabulated) -> None:
        """Keeps the smallest margin of right multisets with these least differences, times D."""
        if len(least):
            below = quotient_below(least.astype(np.float64), D_upper)
            smallest = float(below.min()) * (1 - 4 * (U32 if least.dtype == np.float32 else 0.0))
            found.margins[self.k] = min(smallest, found.margins.get(self.k, np.inf))


def number_of_points(row: Row, T: int, counts: list[int], L: int) -> int:
    """How many multisets the cells of one query token with these own counts have in a row."""
    return _number_of_points(tuple(map(int, row.sizes)), T, tuple(counts), L)


@lru_cache(maxsize=1 << 12)
def _number_of_points(sizes: tuple[int, ...], T: int, counts: tuple[int, ...], L: int) -> int:
    wanted = {L - k for k in counts}
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
