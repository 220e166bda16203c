"""The exact range of a linear form over all multisets, and the proof that needs nothing more.

A linear form in the counts of the other tokens is extreme where all other slots hold the same token, so its
range over all multisets costs one row minimum and maximum, and the own count k enters affinely. When every
neuron that can be on for (t, k) has the same readout row, the logits are lines over one scalar gamma, the
sum of those neurons; (line of the right class) - (highest other line) is concave in gamma, so its minimum
over a range is at one of the two ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.slack import LEAST, U, gamma, quotient_above, quotient_below
from verify.tasks.histogram.reduction import Reduces, ReductionTables, Row
from verify.tasks.histogram.slot_terms import GivenTerms, of_columns
from verify.tasks.histogram.stored import Array, StoredModel

CHUNK = 1 << 21  # numbers per working array
IN_CACHE = 1 << 15  # numbers of arrays that are passed over several times
ALL_TOKENS, ONE_CELL = "all tokens of a count", "one token and count"  # what is decided at once


class Tight(NamedTuple):
    """A cell and its margin."""

    margin: float
    row: Row
    t: int
    k: int


@dataclass
class DecidedCells:
    """The cells that vertices decided: a margin for each count, the tightest cell of each way to decide one, and the
    cells left open.
    """

    margin_per_count: Array
    tightest: dict[str, Tight] = field(default_factory=dict)
    open: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # (row index, t) -> counts

    def record(self, way: str, margin: Array, row: Row, t: np.ndarray, k: np.ndarray) -> None:
        """Keeps the smallest margin per count and the tightest cell."""
        if margin.size == 0:
            return
        np.minimum.at(self.margin_per_count, k - 1, margin)
        best = int(np.argmin(margin))
        if way not in self.tightest or margin[best] < self.tightest[way].margin:
            self.tightest[way] = Tight(float(margin[best]), row, int(t[best]), int(k[best]))


def decide_cells(reduction: Reduces) -> DecidedCells:
    """Decides every cell (row, t, k) that the vertices alone can decide."""
    stored = reduction.stored
    cells, readouts = DecidedCells(np.full(stored.L, np.inf)), Readouts.of(stored)
    for row_index, row in enumerate(reduction.rows):
        for tables, alone in _with_neurons(reduction, row):
            decided = _decide_chunk(stored, readouts, row, tables, alone, cells)
            for t, k in zip(*np.nonzero(~decided), strict=True):
                cells.open.setdefault((row_index, tables.start + int(t)), []).append(int(k) + 1)
    return cells


def chunks(reduction: Reduces, row: Row, start: int = 0, stop: int | None = None) -> Iterator[ReductionTables]:
    """The tables of a row, in parts of which all terms and all forms at all counts can be held."""
    stored = reduction.stored
    per_token = (stored.p + 1) * max(stored.T, stored.L * max(1, len(row.groups)))
    return _tables_by(per_token, reduction, row, start, stored.T if stop is None else stop)


def _tables_by(per_token: int, reduction: Reduces, row: Row, start: int, stop: int) -> Iterator[ReductionTables]:
    step = max(1, CHUNK // per_token)
    for first in range(start, stop, step):
        yield reduction.tables(row, first, min(stop, first + step))


def _with_neurons(reduction: Reduces, row: Row) -> Iterator[tuple[ReductionTables, np.ndarray | None]]:
    """Tables of a row, each with the one neuron of each token that may be on, as `neuron_alone`.

    Where there is no more, two forms of a token are looked at, and many tokens at once.
    """
    stored = reduction.stored
    if len(row.groups) != 1 or stored.L == 1:
        yield from ((tables, None) for tables in chunks(reduction, row))
        return
    for tables in _tables_by(max(stored.p + 1, stored.T, 2 * stored.L), reduction, row, 0, stored.T):
        alone = neuron_alone(stored, row, tables, *tables.terms.around(tables.tokens))
        if alone is not None:
            yield tables, alone
            continue
        for part in chunks(reduction, row, tables.start, tables.stop):
            yield part, neuron_alone(stored, row, part, *part.terms.ends(part.tokens))


@dataclass(frozen=True)
class Readouts:
    """The different rows of W_2: the first neuron that has each, and which of them each neuron has (p,)."""

    first: np.ndarray
    of_neuron: np.ndarray

    @classmethod
    def of(cls, stored: StoredModel) -> Readouts:
        number, first = dict[bytes, int](), list[int]()
        of_neuron = np.empty(stored.p, dtype=np.int64)
        for neuron, row in enumerate(stored.W_2 + 0.0):  # one zero, not two
            of_neuron[neuron] = number.setdefault(row.tobytes(), len(first))
            first += [neuron] if of_neuron[neuron] == len(first) else []
        return cls(np.array(first), of_neuron)

    def common(self, maybe_on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each cell the index of a neuron that stands for all that can be on, and whether they share W_2's row."""
        highest = np.where(maybe_on, self.of_neuron, -1).max(-1)
        lowest = np.where(maybe_on, self.of_neuron, len(self.first)).min(-1)
        none_on = highest < 0
        return self.first[np.where(none_on, 0, highest)], none_on | (highest == lowest)

    def of_one(self, is_on: np.ndarray, alone: np.ndarray) -> np.ndarray:
        """The same neurons where at most one of each token can be on (n, L)."""
        return self.first[np.where(is_on, self.of_neuron[alone][:, None], 0)]


def _decide_chunk(
    stored: StoredModel,
    readouts: Readouts,
    row: Row,
    tables: ReductionTables,
    alone: np.ndarray | None,
    cells: DecidedCells,
) -> np.ndarray:
    """Margins of all cells of a chunk by the range of gamma; returns which of them are decided (n, L)."""
    columns = None if alone is None else np.maximum(alone, 0)
    lower, upper = form_ranges(stored, row, tables, columns)
    p = stored.p
    maybe_on = ~(upper[..., :-1] <= 0)
    if alone is None:
        readout, is_scalar = readouts.common(maybe_on)
    else:
        maybe_on &= (alone >= 0)[:, None, None]
        readout, is_scalar = readouts.of_one(maybe_on[..., 0], alone), np.ones(maybe_on.shape[:2], dtype=bool)
    low = np.where(maybe_on, np.maximum(lower[..., :-1], 0), 0).sum(-1) * (1 - gamma(p + 4))
    high = np.where(maybe_on, np.maximum(upper[..., :-1], 0), 0).sum(-1) * (1 + gamma(p + 4))
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = quotient_below(low, upper[..., -1]), quotient_above(high, lower[..., -1])
    is_scalar &= lower[..., -1] > 0
    decided = _decided_by_hull(stored, row, tables, cells, readout, is_scalar, low, high)
    t, k = np.nonzero(is_scalar & ~decided)
    if t.size:
        low, high = low[t, k], high[t, k]
        single = np.nonzero(maybe_on[t, k].sum(-1) == 1)[0]
        of = t[single], k[single]
        neuron = maybe_on[of].argmax(-1) if alone is None else alone[of[0]]
        low[single], high[single] = ratio_at_vertices(stored, tables, *of, neuron, low[single], high[single])
        several = np.nonzero(is_sum(stored, maybe_on[t, k], lower[t, k, :-1]))[0] if alone is None else t[:0]
        if several.size:
            cell = t[several], k[several]
            least, greatest = sum_at_vertices(stored, tables, *cell, maybe_on[cell])
            low[several], high[several] = np.fmax(low[several], least), np.fmin(high[several], greatest)
        margin = line_margins(stored, stored.W_2[readout[t, k]], k, low, high)
        proved = margin > 0
        decided[t[proved], k[proved]] = True
        cells.record(ONE_CELL, margin[proved], row, tables.start + t[proved], k[proved] + 1)
    return decided


def neuron_alone(
    stored: StoredModel, row: Row, tables: ReductionTables, least: Array, most: Array
) -> np.ndarray | None:
    """The one neuron of each token that may be on at some count, -1 for none; None where some token has several.

    Of a row whose slots weigh the same, with numbers at or beyond the ends of the terms. An upper end is affine in the
    count, so a neuron is off at all counts if it is at the first and at the last, and by far more than what is rounded
    in between: 64 U of all terms.
    """
    p, found = stored.p, np.empty(len(tables.tokens), dtype=np.int64)
    for start in range(0, len(found), max(1, IN_CACHE // p)):
        of = slice(start, start + max(1, IN_CACHE // p)), slice(p)
        maybe_on = _may_be_on(stored, row, tables.base[of], tables.own[of], least[of], most[of])
        number = maybe_on.sum(1)
        if (number > 1).any():
            return None
        found[of[0]] = np.where(number == 1, maybe_on.argmax(1), -1)
    return found


def _may_be_on(stored: StoredModel, row: Row, base: Ball, own: Ball, least: Array, most: Array) -> np.ndarray:
    steps, lowest = stored.L - 1, -base.upper
    mine = _least_product(row, -own.upper, -own.lower)[0]
    rest = _least_product(row, -most, -least)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(mine)
        size += np.abs(rest)
        size *= steps
        size += np.abs(lowest)
        size *= 64 * U
        worst = np.minimum(mine, rest, out=mine if mine.flags.writeable else None)
        worst *= steps
        worst += lowest
        result: np.ndarray = ~(worst > size)
        return result


def _decided_by_hull(
    stored: StoredModel,
    row: Row,
    tables: ReductionTables,
    cells: DecidedCells,
    readout: np.ndarray,
    is_scalar: np.ndarray,
    low: Array,
    high: Array,
) -> np.ndarray:
    """One test for all tokens of a count at once, where their ranges of gamma do not touch another count's."""
    decided = np.zeros(is_scalar.shape, dtype=bool)
    for neuron in np.unique(readout[is_scalar]):
        member = is_scalar & (readout == neuron)
        if member.sum() < 2 * stored.L and len(np.unique(readout[is_scalar])) > 8:
            continue  # as many readouts as neurons: the hull saves nothing over the cells themselves
        counts = np.nonzero(member.any(0))[0]
        hull_low = np.where(member, low, np.inf).min(0)[counts]
        hull_high = np.where(member, high, -np.inf).max(0)[counts]
        rows = np.broadcast_to(stored.W_2[neuron], (len(counts), stored.classes))
        at_low, at_high = end_margins(stored, rows, counts, hull_low, hull_high)
        margin = np.minimum(at_low, at_high)
        proved = margin > 0
        decided[:, counts[proved]] |= member[:, counts[proved]]
        where_low = np.where(member, low, np.inf).argmin(0)[counts]
        where_high = np.where(member, high, -np.inf).argmax(0)[counts]
        tokens = tables.start + np.where(at_low <= margin, where_low, where_high)
        cells.record(ALL_TOKENS, margin[proved], row, tokens[proved], counts[proved] + 1)
    return decided


def line_margins(stored: StoredModel, rows: Array, k: np.ndarray, low: Array, high: Array) -> Array:
    """Lower bounds on (right line) - (highest other line) over gamma in [low, high]; k counts from 0 here.

    Shapes: rows (n, C), k, low and high (n,); returns (n,).
    """
    return np.minimum(*end_margins(stored, rows, k, low, high))


def end_margins(stored: StoredModel, rows: Array, k: np.ndarray, low: Array, high: Array) -> tuple[Array, Array]:
    """The same at each of the two ends: concave in gamma, the margin is least at one of them."""
    n, right = len(k), k + 1 - stored.first_count
    at_ends = np.empty((2, n))
    step = max(1, IN_CACHE // stored.classes)
    for a in range(0, n, step):
        part = slice(a, min(n, a + step))
        of, i = right[part], np.arange(len(right[part]))
        slope = rows[part][i, of][:, None] - rows[part]
        intercept = stored.b_2[of][:, None] - stored.b_2[None, :]
        for margin, end in zip(at_ends, (low[part], high[part]), strict=True):
            difference = slope * end[:, None]
            # Five roundings, each relative to one of these two terms or to their sum. Two products may underflow, the
            # difference's and that with 8 U, by half of LEAST each.
            slack = np.abs(difference)
            slack += np.abs(intercept)
            slack *= 8 * U
            slack += 2 * LEAST
            difference += intercept
            difference -= slack
            difference[i, of] = np.inf
            margin[part] = difference.min(1)
    return at_ends[0], at_ends[1]


def ratio_at_vertices(
    stored: StoredModel,
    tables: ReductionTables,
    t: np.ndarray,
    k: np.ndarray,
    neuron: np.ndarray,
    low: Array,
    high: Array,
) -> tuple[Array, Array]:
    """Narrows the range of gamma = z / D of cells with one neuron on: a ratio of linear forms is least at a vertex."""
    if not stored.is_softmax or stored.is_linear:
        return low, high
    least, greatest = ends_of_ratio(stored, tables, t, k + 1, neuron)
    return np.fmax(low, least), np.fmin(high, greatest)


def is_sum(stored: StoredModel, maybe_on: np.ndarray, lower: Array) -> np.ndarray:
    """Tells where `sum_at_vertices` applies: attention, and several neurons that can be on and then always are."""
    always: np.ndarray = (~maybe_on | (lower > 0)).all(-1) & (maybe_on.sum(-1) > 1)
    return np.zeros_like(always) if stored.is_linear else always


def sum_at_vertices(
    stored: StoredModel, tables: ReductionTables, t: np.ndarray, k: np.ndarray, is_on: np.ndarray
) -> tuple[Array, Array]:
    """The exact range of gamma for cells (t, k) whose neurons `is_on` (cells, p) are all above zero on every input.

    Their sum is then one linear form over D: the neurons trade off against each other, as their ranges do not show.
    """
    low, high = np.full(len(t), -np.inf), np.full(len(t), np.inf)
    sets, member = np.unique(is_on, axis=0, return_inverse=True)
    for index, neurons in enumerate(sets):
        adding = np.zeros((stored.p + 1, 2))
        adding[:-1, 0], adding[-1, 1] = neurons, 1.0
        parts = (ball @ Ball.exact(adding) for ball in (tables.base, tables.own, tables.others))
        base, own, others = parts
        summed = ReductionTables(tables.start, tables.stop, base, own, GivenTerms(others))
        cells = np.nonzero(member.reshape(-1) == index)[0]
        low[cells], high[cells] = ends_of_ratio(stored, summed, t[cells], k[cells] + 1, np.zeros_like(cells))
    return low, high


def ends_of_ratio(
    stored: StoredModel, tables: ReductionTables, token: np.ndarray, count: np.ndarray, coordinate: np.ndarray
) -> tuple[Array, Array]:
    """Bounds (positive part of one coordinate) / (the last one, D) over cells (token, own count), or is infinite."""
    step = max(1, CHUNK // stored.T)
    parts = [
        _ends_of_ratio(stored, tables, *(x[start : start + step] for x in (token, count, coordinate)))
        for start in range(0, len(token), step)
    ]
    least, greatest = zip(*parts, strict=True) if parts else ((token[:0],), (token[:0],))
    return np.concatenate(least), np.concatenate(greatest)


def _ends_of_ratio(
    stored: StoredModel, tables: ReductionTables, token: np.ndarray, count: np.ndarray, coordinate: np.ndarray
) -> tuple[Array, Array]:
    def ends_of(coordinate: np.ndarray) -> tuple[Array, Array]:
        parts, balls = (
            [],
            (tables.base[token, coordinate], tables.own[token, coordinate], tables.terms.at(token, coordinate)),
        )
        for sign in (1.0, -1.0):
            base, own, others = (sign * ball.mid - ball.rad for ball in balls)
            mine, rest = (count - 1) * own, (stored.L - count)[:, None] * others
            total = (base + mine)[:, None] + rest
            size = (np.abs(base) + np.abs(mine))[:, None] + np.abs(rest)
            parts.append(sign * (total - 8 * U * size))
        return parts[0], parts[1]

    z_low, z_high = ends_of(coordinate)
    # what is subtracted is no less than what is rounded: sums and whole multiples of subnormal numbers are exact
    D_low, D_high = ends_of(np.full(len(token), -1))
    z_low, z_high = np.maximum(z_low, 0), np.maximum(z_high, 0)
    is_other = np.arange(stored.T)[None, :] != (tables.start + token)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        smallest = np.where(is_other, quotient_below(z_low, D_high), np.inf).min(1)
        largest = np.where(is_other, quotient_above(z_high, D_low), -np.inf).max(1)
    usable = is_other.any(1) & (np.where(is_other, D_low, np.inf).min(1) > 0)
    return np.where(usable, smallest, -np.inf), np.where(usable, largest, np.inf)


def form_ranges(
    stored: StoredModel, row: Row, tables: ReductionTables, columns: np.ndarray | None = None
) -> tuple[Array, Array]:
    """The range of every linear form over all sequences with own count k = 1..L: two arrays (n, L, r).

    With `columns` (n,) of one neuron for each token and of D: (n, L, 2).
    """
    base, own = tables.base, tables.own
    smallest, largest = tables.terms.ends(tables.tokens, columns)
    if columns is not None:
        base, own = (Ball(of_columns(x.mid, columns), of_columns(x.rad, columns)) for x in (base, own))
    (base_low, base_high), (low, high) = ends(base), ends(own)
    lower = _least_sum(stored, row, base_low, low, high, smallest, largest)
    upper = _least_sum(stored, row, -base_high, -high, -low, -largest, -smallest)
    return lower, np.negative(upper, out=upper)


def _least_sum(
    stored: StoredModel, row: Row, base: Array, own_low: Array, own_high: Array, other_low: Array, other_high: Array
) -> Array:
    """Lower bounds on base + (sum over slots) with k - 1 slots holding t and the rest anything else: (n, L, r).

    Each group's slot contributes at least `mine` when it holds t and at least `rest` otherwise; the k - 1
    slots that gain least by holding t do.
    """
    L = stored.L
    if L == 1:
        return base[:, None, :]
    mine = _least_product(row, own_low, own_high)  # (G, n, r)
    rest = _least_product(row, other_low, other_high)
    sizes = row.sizes
    if len(sizes) == 1:
        return _of_one_group(base, mine[0], rest[0], L)
    gain = np.sort(np.repeat(mine - rest, sizes, axis=0), axis=0)  # NaN sorts last and is caught by `size`
    gained = np.concatenate([np.zeros((1, *gain.shape[1:])), np.cumsum(gain, axis=0)])
    everything = np.tensordot(sizes.astype(float), rest, axes=(0, 0))
    size = np.abs(base) + 2 * np.tensordot(sizes.astype(float), np.abs(rest) + np.abs(mine), axes=(0, 0))
    total = base + everything + gained - gamma(3 * L + 10) * size
    return np.moveaxis(total, 0, 1)


def _of_one_group(base: Array, mine: Array, rest: Array, L: int) -> Array:
    """base + (k - 1) mine + (L - k) rest for k = 1..L, less what is rounded away: (n, r) each to (n, L, r).

    Whole multiples and sums of subnormal numbers are exact, so that nothing underflows but the slack, which is then 0.
    The longer one of the last two axes is the last in memory.
    """
    (n, r), k = base.shape, np.arange(1.0, L + 1)
    is_long = r < L
    axis, shape = (2, (n, r, L)) if is_long else (1, (n, L, r))
    k = k if is_long else k[:, None]
    whole, step = np.empty(shape), max(1, IN_CACHE // (L * r))
    for start in range(0, n, step):
        of = slice(start, start + step)
        total, alone, own, others = whole[of], *(np.expand_dims(x[of], axis) for x in (base, mine, rest))
        term = (k - 1) * own
        np.add(alone, term, out=total)
        size: Array = np.abs(alone) + np.abs(term, out=term)
        np.multiply(L - k, others, out=term)
        total += term
        size += np.abs(term, out=term)
        size *= 8 * U
        total -= size
    return whole.swapaxes(1, 2) if is_long else whole


def _least_product(row: Row, low: Array, high: Array) -> Array:
    """The least product of each group's weight with a number between low and high: (G, n, r).

    With low, where the weight is not below zero. The product of a 0 is exact, and its next number would slow down what
    is then computed of it: a subnormal number.
    """
    if not row.weight.rad.any() and (row.weight.mid == 1).all():
        return np.broadcast_to(low, (len(row.groups), *low.shape))
    is_zero, factors = low == 0, [low]
    if not (row.weight.lower >= 0).all():
        is_zero, factors = is_zero & (high == 0), [low, high]
    products = [weight[:, None, None] * factor for weight in (row.weight.lower, row.weight.upper) for factor in factors]
    for product in products[1:]:
        np.minimum(products[0], product, out=products[0])
    least = np.nextafter(products[0], -np.inf, out=products[0])
    np.copyto(least, 0.0, where=is_zero & np.isfinite(row.weight.rad)[:, None, None])
    return least
