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

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import U, gamma
from verify.histogram.reduction import Reduces, Row, Tables
from verify.histogram.stored import Array, StoredModel

CHUNK = 1 << 21  # numbers per working array


@dataclass
class Cells:
    """The cells that vertices decided: a margin for each count, the tightest cell, and the cells left open."""

    margin_per_count: Array
    tightest: tuple[float, Row, int, int] | None = None  # margin, row, t, k
    open: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # (row index, t) -> counts

    def record(self, margin: Array, row: Row, t: np.ndarray, k: np.ndarray) -> None:
        """Keeps the smallest margin per count and the tightest cell."""
        if margin.size == 0:
            return
        np.minimum.at(self.margin_per_count, k - 1, margin)
        best = int(np.argmin(margin))
        if self.tightest is None or margin[best] < self.tightest[0]:
            self.tightest = (float(margin[best]), row, int(t[best]), int(k[best]))


def decide_cells(reduction: Reduces) -> Cells:
    """Decides every cell (row, t, k) that the vertices alone can decide."""
    stored = reduction.stored
    cells = Cells(np.full(stored.L, np.inf))
    for row_index, row in enumerate(reduction.rows):
        for tables in chunks(reduction, row):
            decided = _decide_chunk(stored, row, tables, cells)
            for t, k in zip(*np.nonzero(~decided), strict=True):
                cells.open.setdefault((row_index, tables.start + int(t)), []).append(int(k) + 1)
    return cells


def chunks(reduction: Reduces, row: Row) -> Iterator[Tables]:
    stored = reduction.stored
    per_token = (stored.p + 1) * max(stored.T, stored.L * max(1, len(row.groups)))
    step = max(1, CHUNK // per_token)
    for start in range(0, stored.T, step):
        yield reduction.tables(row, start, min(stored.T, start + step))


def _decide_chunk(stored: StoredModel, row: Row, tables: Tables, cells: Cells) -> np.ndarray:
    """Margins of all cells of a chunk by the range of gamma; returns which of them are decided (n, L)."""
    lower, upper = form_ranges(stored, row, tables)
    p = stored.p
    maybe_on = ~(upper[..., :p] <= 0)
    readout, is_scalar = _common_readout(stored, maybe_on)
    low = np.where(maybe_on, np.maximum(lower[..., :p], 0), 0).sum(-1) * (1 - gamma(p + 4))
    high = np.where(maybe_on, np.maximum(upper[..., :p], 0), 0).sum(-1) * (1 + gamma(p + 4))
    with np.errstate(invalid="ignore", divide="ignore"):
        low = low / upper[..., p] * (1 - 4 * U)
        high = high / lower[..., p] * (1 + 4 * U)
    is_scalar &= lower[..., p] > 0
    decided = _decided_by_hull(stored, row, tables, cells, readout, is_scalar, low, high)
    t, k = np.nonzero(is_scalar & ~decided)
    if t.size:
        low, high = low[t, k], high[t, k]
        if stored.is_softmax and not stored.is_linear:
            low, high = ratio_at_vertices(stored, tables, t, k, maybe_on, low, high)
        several = np.nonzero(is_sum(stored, maybe_on[t, k], lower[t, k, :p]))[0]
        if several.size:
            cell = t[several], k[several]
            least, greatest = sum_at_vertices(stored, tables, *cell, maybe_on[cell])
            low[several], high[several] = np.fmax(low[several], least), np.fmin(high[several], greatest)
        margin = line_margins(stored, stored.W_2[readout[t, k]], k, low, high)
        proved = margin > 0
        decided[t[proved], k[proved]] = True
        cells.record(margin[proved], row, tables.start + t[proved], k[proved] + 1)
    return decided


def _common_readout(stored: StoredModel, maybe_on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each cell the index of a neuron that stands for all that can be on, and whether they share W_2's row."""
    _, first, row_id = np.unique(stored.W_2, axis=0, return_index=True, return_inverse=True)
    row_id = row_id.reshape(-1)
    highest = np.where(maybe_on, row_id, -1).max(-1)
    lowest = np.where(maybe_on, row_id, len(first)).min(-1)
    none_on = highest < 0
    return first[np.where(none_on, 0, highest)], none_on | (highest == lowest)


def _decided_by_hull(
    stored: StoredModel,
    row: Row,
    tables: Tables,
    cells: Cells,
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
        margin = line_margins(stored, rows, counts, hull_low, hull_high)
        proved = margin > 0
        decided[:, counts[proved]] |= member[:, counts[proved]]
        where_low = np.where(member, low, np.inf).argmin(0)[counts]
        where_high = np.where(member, high, -np.inf).argmax(0)[counts]
        at_low = line_margins(stored, rows, counts, hull_low, hull_low) <= margin
        tokens = tables.start + np.where(at_low, where_low, where_high)
        cells.record(margin[proved], row, tokens[proved], counts[proved] + 1)
    return decided


def line_margins(stored: StoredModel, rows: Array, k: np.ndarray, low: Array, high: Array) -> Array:
    """Lower bounds on (right line) - (highest other line) over gamma in [low, high]; k counts from 0 here.

    Shapes: rows (n, C), k, low and high (n,); returns (n,).
    """
    n = len(k)
    out = np.empty(n)
    right = k + 1 - stored.first_count
    step = max(1, CHUNK // stored.classes)
    for a in range(0, n, step):
        part = slice(a, min(n, a + step))
        i = np.arange(len(right[part]))
        slope = rows[part][i, right[part]][:, None] - rows[part]
        intercept = stored.b_2[right[part]][:, None] - stored.b_2[None, :]
        smallest = np.full(len(i), np.inf)
        for end in (low[part], high[part]):
            difference = slope * end[:, None] + intercept
            # Five roundings, each relative to one of these two terms or to their sum.
            difference -= (
                8 * U * (np.abs(slope * end[:, None]) + np.abs(intercept)) + 2.0**-1073
            )  # two units of underflow
            difference[i, right[part]] = np.inf
            smallest = np.minimum(smallest, difference.min(1))
        out[part] = smallest
    return out


def ratio_at_vertices(
    stored: StoredModel,
    tables: Tables,
    t: np.ndarray,
    k: np.ndarray,
    maybe_on: np.ndarray,
    low: Array,
    high: Array,
) -> tuple[Array, Array]:
    """The exact range of gamma = z / D for cells with one neuron on: a ratio of linear forms is extreme at a vertex."""
    low, high = low.copy(), high.copy()
    single = np.nonzero(maybe_on[t, k].sum(-1) == 1)[0]
    step = max(1, CHUNK // stored.T)
    for a in range(0, len(single), step):
        cell = single[a : a + step]
        neuron = maybe_on[t[cell], k[cell]].argmax(-1)
        least, greatest = _ends_of_ratio(stored, tables, t[cell], k[cell] + 1, neuron)
        low[cell], high[cell] = np.fmax(low[cell], least), np.fmin(high[cell], greatest)
    return low, high


def is_sum(stored: StoredModel, maybe_on: np.ndarray, lower: Array) -> np.ndarray:
    """Tells where `sum_at_vertices` applies: attention, and several neurons that can be on and then always are."""
    always: np.ndarray = (~maybe_on | (lower > 0)).all(-1) & (maybe_on.sum(-1) > 1)
    return np.zeros_like(always) if stored.is_linear else always


def sum_at_vertices(
    stored: StoredModel, tables: Tables, t: np.ndarray, k: np.ndarray, is_on: np.ndarray
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
        summed, cells = Tables(tables.start, tables.stop, *parts), np.nonzero(member.reshape(-1) == index)[0]
        step = max(1, CHUNK // stored.T)
        for a in range(0, len(cells), step):
            cell = cells[a : a + step]
            first = np.zeros(len(cell), dtype=int)
            low[cell], high[cell] = _ends_of_ratio(stored, summed, t[cell], k[cell] + 1, first)
    return low, high


def _ends_of_ratio(
    stored: StoredModel, tables: Tables, token: np.ndarray, count: np.ndarray, coordinate: np.ndarray
) -> tuple[Array, Array]:
    """Bounds (positive part of one coordinate) / (the last one, D) over cells (token, own count), or is infinite."""

    def ends(coordinate: np.ndarray) -> tuple[Array, Array]:
        parts = []
        for sign in (1.0, -1.0):
            base, own, others = (
                sign * ball.mid[index] - ball.rad[index]
                for ball, index in (
                    (tables.base, (token, coordinate)),
                    (tables.own, (token, coordinate)),
                    (tables.others, (token, slice(None), coordinate)),
                )
            )
            mine, rest = (count - 1) * own, (stored.L - count)[:, None] * others
            total = (base + mine)[:, None] + rest
            size = (np.abs(base) + np.abs(mine))[:, None] + np.abs(rest)
            parts.append(sign * (total - 8 * U * size))
        return parts[0], parts[1]

    z_low, z_high = ends(coordinate)
    D_low, D_high = ends(np.full(len(token), -1))
    z_low, z_high = np.maximum(z_low, 0), np.maximum(z_high, 0)
    is_other = np.arange(stored.T)[None, :] != (tables.start + token)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        smallest = np.where(is_other, z_low / D_high * (1 - 4 * U), np.inf).min(1)
        largest = np.where(is_other, z_high / D_low * (1 + 4 * U), -np.inf).max(1)
    usable = np.where(is_other, D_low, np.inf).min(1) > 0
    return np.where(usable, smallest, -np.inf), np.where(usable, largest, np.inf)


def form_ranges(stored: StoredModel, row: Row, tables: Tables) -> tuple[Array, Array]:
    """The range of every linear form over all sequences with own count k = 1..L: two arrays (n, L, r)."""
    smallest, largest = _others_range(stored, tables)
    own = tables.own
    lower = _least_sum(stored, row, tables.base.lower, own.lower, own.upper, smallest, largest)
    upper = -_least_sum(stored, row, -tables.base.upper, -own.upper, -own.lower, -largest, -smallest)
    return lower, upper


def _others_range(stored: StoredModel, tables: Tables) -> tuple[Array, Array]:
    """The smallest and the largest term of a slot that does not hold t: (n, r) each."""
    tokens = np.arange(tables.start, tables.stop)
    n = len(tokens)
    if tables.others.mid.shape[0] == 1:  # the same table for every t: leave out t by the two extremes
        lower, upper = tables.others.lower[0], tables.others.upper[0]
        return _least_without(lower, tokens), -_least_without(-upper, tokens)
    lower, upper = tables.others.lower, tables.others.upper
    lower[np.arange(n), tokens] = np.inf
    upper[np.arange(n), tokens] = -np.inf
    return lower.min(1), upper.max(1)


def _least_without(x: Array, tokens: np.ndarray) -> Array:
    """min over s != t of x[s], for each t, propagating NaN."""
    order = np.argsort(x, axis=0, kind="stable")[:2]
    first, second = np.take_along_axis(x, order[:1], 0)[0], np.take_along_axis(x, order[1:2], 0)[0]
    is_own = np.equal(order[0][None, :], tokens[:, None])
    least = np.where(is_own, second[None], first[None])
    has_nan = np.asarray(np.isnan(x).any(0))
    return np.where(has_nan[None], np.nan, least)


def _least_sum(
    stored: StoredModel,
    row: Row,
    base: Array,
    own_low: Array,
    own_high: Array,
    other_low: Array,
    other_high: Array,
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
        k = np.arange(1, L + 1)[:, None]
        term = (k - 1) * mine[0][:, None, :]
        total: Array = base[:, None, :] + term
        size: Array = np.abs(base)[:, None, :] + np.abs(term, out=term)
        np.multiply(L - k, rest[0][:, None, :], out=term)
        total += term
        size += np.abs(term, out=term)
        size *= 8 * U
        result: Array = np.subtract(total, size, out=total)
        return result
    gain = np.sort(np.repeat(mine - rest, sizes, axis=0), axis=0)  # NaN sorts last and is caught by `size`
    gained = np.concatenate([np.zeros((1, *gain.shape[1:])), np.cumsum(gain, axis=0)])
    everything = np.tensordot(sizes.astype(float), rest, axes=(0, 0))
    size = np.abs(base) + 2 * np.tensordot(sizes.astype(float), np.abs(rest) + np.abs(mine), axes=(0, 0))
    total = base + everything + gained - gamma(3 * L + 10) * size
    return np.moveaxis(total, 0, 1)


def _least_product(row: Row, low: Array, high: Array) -> Array:
    """The least product of each group's weight with a number between low and high: (G, n, r)."""
    if not row.weight.rad.any() and (row.weight.mid == 1).all():
        return np.broadcast_to(low, (len(row.groups), *low.shape))
    products = [
        weight[:, None, None] * end
        for weight in (row.weight.lower, row.weight.upper)
        for end in (low[None], high[None])
    ]
    result: Array = np.nextafter(np.min(products, axis=0), -np.inf)
    return result
