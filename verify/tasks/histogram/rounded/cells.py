"""From computed pre-activations to logits: a lower bound on every cell's computed margin.

With one neuron on, the computed logits are lines over its value h, off by at most a sum of absolute values of lines.
So (right logit) - (other logit) - (their errors) is concave in h, and its minimum over a range is at an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from verify.arithmetic.any_order import NO_UNIT, is_power_of_two, times, unit_exponent
from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.margins import margins_between
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import INFLATION, Array, U, gamma, quotient_above, quotient_below
from verify.tasks.histogram.record import Record
from verify.tasks.histogram.reduction import ReductionTables, Row, slot_groups
from verify.tasks.histogram.rounded.coordinate import sharper_ends
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.vertices import CHUNK, chunks, form_ranges, is_sum, ratio_at_vertices, sum_at_vertices

MOST_VALUES = 1 << 12  # numbers of a format tried one by one


class RoundedReadout:
    """Computed logits of a rounded model, given what its hidden neurons can be."""

    def __init__(self, reduction: RoundedReduction) -> None:
        self.reduction, self.at = reduction, reduction.at
        stored, at, reader = reduction.stored, reduction.at, reduction.reader
        self.W_2, self.b_2 = stored.W_2, stored.b_2
        self.hard = ~is_power_of_two(self.W_2)
        W_2 = reduction.operand(self.W_2)
        self.factor_error = W_2.rad + np.abs(self.W_2 - W_2.mid)
        self.is_known = self.factor_error == 0
        is_fit = reader.is_exact & at.fits_operand(reader.largest, reader.unit)
        self.exact_unit = np.where(is_fit, reader.unit, -NO_UNIT)
        self.lost_b = at.flush_loss(self.b_2)

    def margins(self, row: Row, tables: ReductionTables) -> Array:
        """Lower bounds (n, L) on the computed margins of the tokens of these tables."""
        stored, p = self.reduction.stored, self.reduction.stored.p
        lower, upper = form_ranges(stored, row, tables)
        maybe_on = ~(upper[..., :p] <= 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            low = quotient_below(np.where(maybe_on, np.maximum(lower[..., :p], 0), 0), upper[..., p:])
            high = quotient_above(np.where(maybe_on, np.maximum(upper[..., :p], 0), 0), lower[..., p:])
        out = np.full(maybe_on.shape[:2], -np.inf)
        count = maybe_on.sum(-1)
        t, k = np.nonzero((count <= 1) & (lower[..., p] > 0))
        neuron = maybe_on[t, k].argmax(-1)
        ends = low[t, k, neuron], high[t, k, neuron]
        ends = ratio_at_vertices(stored, tables, t, k, neuron, *ends)
        margin = self._with_one(neuron, k, *self.at.factors(*ends))
        open_ = np.nonzero(~(margin > 0))[0]
        if len(open_):
            cells, ends = (t[open_], k[open_], neuron[open_]), (ends[0][open_], ends[1][open_])
            ends = sharper_ends(self.reduction, row, tables.start, tables.stop, cells, ends)
            by_value = cache(self._value_by_value)  # tokens that are built alike have the same ranges
            for i, low_h, high_h in zip(open_, *self.at.factors(*ends), strict=True):
                margin[i] = np.fmax(margin[i], by_value(int(neuron[i]), int(k[i]), float(low_h), float(high_h))[0])
        out[t, k] = margin
        t, k = np.nonzero((count > 1) & (lower[..., p] > 0))
        step = max(1, CHUNK // (p * stored.classes))
        for a in range(0, len(t), step):
            token, count = t[a : a + step], k[a : a + step]
            ends_h = self.at.factors(low[token, count], high[token, count])
            is_on = maybe_on[token, count]
            found = self._with_many(count, is_on, *ends_h)
            several = np.nonzero(is_sum(stored, is_on, lower[token, count, :p]) & self._is_scalar(is_on))[0]
            several = several[~(found[several] > 0)]
            if several.size:
                cells = token[several], count[several], is_on[several]
                ranges = ends_h[0][several], ends_h[1][several], high[token[several], count[several]]
                found[several] = np.fmax(found[several], self._with_sum(tables, cells, *ranges))
            out[token, count] = found
        return np.where(np.isnan(out), -np.inf, out)

    def _units(self, neuron: np.ndarray, low: Array, high: Array) -> np.ndarray:
        """log2 of a number of which all values of the neuron between low and high are multiples."""
        spacing = np.where(low > 0, np.frexp(low)[1] - self.at.stored.p, -NO_UNIT)
        spacing = np.where(low == high, unit_exponent(low), spacing)
        result: np.ndarray = np.maximum(spacing, self.exact_unit[neuron])
        return result

    def _with_one(self, neuron: np.ndarray, k: np.ndarray, low: Array, high: Array) -> Array:
        """At most one neuron on, with a value between low and high; k counts from 0."""
        at, W, b = self.at, self.W_2[neuron], self.b_2
        unit = self._units(neuron, low, high)[:, None] + np.where(W == 0, NO_UNIT, unit_exponent(W))
        sizes = [np.abs(W * end[:, None]) for end in (low, high)]
        results = [np.abs(W * end[:, None] + b) for end in (low, high)]
        largest_product, largest_result = np.maximum(*sizes) * INFLATION, np.maximum(*results) * INFLATION
        is_known = self.is_known[neuron] & (self.lost_b == 0)
        is_exact_product = is_known & (at.is_representable(largest_product, unit) | (W == 0))
        is_exact_sum = at.is_representable(largest_result, np.minimum(unit, unit_exponent(b)))
        is_exact = is_exact_product & (is_exact_sum | (W == 0))
        once = at.growth(1, 1)
        product = np.where(self.hard[neuron] & ~is_exact_product, once, 0.0)
        total = np.where((b != 0) & (W != 0) & ~is_exact, once, 0.0)
        slack = at.underflow(np.where(W != 0, 2, 0)) + self.lost_b
        factor = self.factor_error[neuron]
        margin = np.full(len(k), np.inf)
        for end, size, result in zip((low, high), sizes, results, strict=True):
            error = times(factor, end[:, None]) * (1 + once) + times(product, size)
            error = (error + total * (result + error) + slack) * (1 + once)
            error = np.where(is_exact, 0.0, error * INFLATION)
            margin = np.minimum(margin, self._margin(W * end[:, None], error, k))
        largest = np.maximum(largest_product, np.maximum(largest_result, np.abs(b))).max(1)
        return np.where(largest * (1 + 4 * once) <= at.stored.largest, margin, -np.inf)

    def _value_by_value(self, neuron: int, k: int, low: float, high: float) -> tuple[float, float]:
        """Bounds on the margin from both sides, of one neuron with few values, each tried; k counts from 0."""
        at, nothing = self.at, (-np.inf, np.inf)
        quantum = 2.0 ** (int(np.frexp(low)[1]) - at.stored.p)
        if at.operand is not at.stored or not 0 <= low <= high < low + MOST_VALUES * quantum:
            return nothing
        if low == 0 < high:
            return nothing
        h = np.unique(rounded(np.arange(low, high + quantum, quantum), at.stored))
        h = h[h <= high][:, None]
        product = Ball.exact(h) * self.reduction.operand(self.W_2[neuron])
        if at.inner is not at.stored:
            product = Ball(product.mid, product.rad + at.inner.u * product.magnitude)
        if not np.maximum(product.magnitude, np.abs(self.b_2)).max() * 4 <= at.stored.largest:
            return nothing
        low_product, high_product = ends(at.result(product))
        low_sum, high_sum = ends(Ball.between(low_product, high_product) + Ball(self.b_2, self.lost_b))
        low_logit, high_logit = ends(at.result(Ball.between(low_sum, high_sum)))
        right = k + 1 - self.reduction.stored.first_count
        least, greatest = margins_between(low_logit, high_logit, np.full(len(h), right))
        return float(least.min()), float(greatest.max())

    def is_wrong_in_every_order(self, tokens: list[int], position: int) -> bool:
        """Whether no order of evaluation makes the right logit the largest at a position of this input."""
        reduction, p, t = self.reduction, self.reduction.stored.p, tokens[position]
        row = next(row for row in reduction.rows if position in row.positions)
        total, own, others = reduction.tables(row, t, t + 1).of_token(t)
        for g, group in enumerate(slot_groups(reduction.stored, position)):
            for m in group:
                total = total + (own if tokens[m] == t else others[tokens[m]]) * row.weight[g]
        with np.errstate(all="ignore"):
            low = quotient_below(np.maximum(total.lower[:p], 0), total.upper[p])
            high = quotient_above(np.maximum(total.upper[:p], 0), total.lower[p])
            on = np.nonzero(~(high <= 0))[0]
            if len(on) > 1 or not total.lower[p] > 0:
                return False
            neuron = int(on[0]) if len(on) else 0
            ends_h = self.at.factors(low[[neuron]], high[[neuron]])
            count = tokens.count(t) - 1
            return self._value_by_value(neuron, count, float(ends_h[0][0]), float(ends_h[1][0]))[1] <= 0

    def _margin(self, terms: Array, error: Array, k: np.ndarray) -> Array:
        """(right logit) - (largest other logit) of logits terms + b_2 that are each off by at most `error`."""
        i, right = np.arange(len(k)), k + 1 - self.reduction.stored.first_count
        size = np.abs(terms) + np.abs(self.b_2)
        difference = (terms[i, right] - error[i, right])[:, None] - terms - error
        difference = difference + (self.b_2[right][:, None] - self.b_2)
        difference -= 8 * U * (size + size[i, right][:, None] + error + error[i, right][:, None])
        difference[i, right] = np.inf
        result: Array = difference.min(1)
        return result

    def errors(self, is_on: np.ndarray, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Bounds the errors of the logits for several neurons within their ranges (n, p), the logits' sizes, and their
        sum's largest.
        """
        at, b = self.at, self.b_2
        W = np.where(is_on[..., None], self.W_2, 0.0)
        size = times(np.abs(W), high[..., None]).sum(1) * INFLATION
        h = self._units(np.broadcast_to(np.arange(W.shape[1]), low.shape), low, high)
        unit = np.where(W == 0, NO_UNIT, h[..., None] + unit_exponent(W)).min(1)
        is_exact = at.is_representable((size + np.abs(b)) * INFLATION, np.minimum(unit, unit_exponent(b)))
        is_exact &= (self.is_known | ~is_on[..., None]).all(1) & (self.lost_b == 0)
        terms = (W != 0).sum(1)
        hard = (self.hard & is_on[..., None]).any(1)
        growth = at.growth(np.maximum(terms - 1, 0) + (b != 0) + hard, 1 + (b != 0))
        factor = times(self.factor_error * is_on[..., None], high[..., None]).sum(1)
        error = factor * (1 + growth) + growth * size + at.growth(terms, 1) * np.abs(b)
        error = error + (at.underflow(2 * terms) + self.lost_b) * (1 + growth)
        error = np.where(is_exact, 0.0, error * INFLATION)
        return error, size, (size + np.abs(b)) * (1 + growth) + error

    def _with_many(self, k: np.ndarray, is_on: np.ndarray, low: Array, high: Array) -> Array:
        """Several neurons on (n, p), each within its own range."""
        at, b = self.at, self.b_2
        i, right = np.arange(len(k)), k + 1 - self.reduction.stored.first_count
        error, size, largest = self.errors(is_on, low, high)
        W = np.where(is_on[..., None], self.W_2, 0.0)
        slope = W[i, :, right][:, :, None] - W
        least = np.minimum(slope * low[..., None], slope * high[..., None]).sum(1)
        difference = least + (b[right][:, None] - b) - error - error[i, right][:, None]
        rounding = size + size[i, right][:, None] + np.abs(b) + np.abs(b[right])[:, None] + error
        difference -= gamma(W.shape[1] + 8) * (rounding + error[i, right][:, None])
        difference[i, right] = np.inf
        return np.where(largest.max(1) <= at.stored.largest, difference.min(1), -np.inf)

    def _is_scalar(self, is_on: np.ndarray) -> np.ndarray:
        """Whether all neurons that are on have the same row of W_2."""
        first = self.W_2[is_on.argmax(-1)]
        same: np.ndarray = ((first[:, None] == self.W_2).all(-1) | ~is_on).all(-1)
        return same

    def _with_sum(
        self,
        tables: ReductionTables,
        cells: tuple[np.ndarray, np.ndarray, np.ndarray],
        low: Array,
        high: Array,
        before: Array,
    ) -> Array:
        """Several neurons always on that share a row of W_2: lines over their sum, one linear form over D.

        Every computed value is that of the tables, at most `before`, and then rounded as it is stored and read. So the
        sum moves by at most the sum of those steps; the readout errs as it does for each neuron within its own range.
        """
        token, k, is_on = cells
        error, _, largest = self.errors(is_on, low, high)
        least, greatest = sum_at_vertices(self.reduction.stored, tables, token, k, is_on)
        step = np.where(is_on, self.step(before), 0.0).sum(-1) * INFLATION
        rows = self.W_2[is_on.argmax(-1)]
        margin = np.full(len(k), np.inf)
        for end in (least - step - 4 * U * least, greatest + step + 4 * U * greatest):
            margin = np.minimum(margin, self._margin(rows * end[:, None], error, k))
        return np.where(largest.max(1) <= self.at.stored.largest, margin, -np.inf)

    def step(self, high: Array) -> Array:
        """How far a neuron of at most `high` can be from what it was before it was stored, and read as a factor."""
        at = self.at
        as_factor = 0.0 if at.operand is at.stored else 2 * at.operand.u
        return (at.growth(1, 1) + as_factor) * high * (1 + as_factor) + 4 * at.stored.tiny


def cell_margins(
    reduction: RoundedReduction, is_over: Callable[[], bool] = lambda: False, record: Record | None = None
) -> Array:
    """A lower bound on the computed margin of every cell (row, t, k - 1); only positive ones prove anything.

    Cells that ranges leave open, where a neuron's range ignores what the others then are, are split until `is_over`
    says so: all of them where they are few, else until one stays open, which leaves the model open.
    """
    readout = RoundedReadout(reduction)
    stored = reduction.stored
    margins = np.full((len(reduction.rows), stored.T, stored.L), -np.inf)
    if not reduction.is_finite:
        return margins
    for index, row in enumerate(reduction.rows):
        for tables in chunks(reduction, row):
            margins[index, tables.start : tables.stop] = readout.margins(row, tables)
    open_ = np.argwhere(~(margins > 0))
    hardest = open_[np.argsort(margins[tuple(open_.T)], kind="stable")]
    are_many = len(open_) > stored.T
    for index, t, k in hardest.tolist():
        if is_over():
            break
        found = joint_margin(readout, reduction.rows[index], t, k, is_over, record)
        margins[index, t, k] = np.fmax(margins[index, t, k], found)
        if are_many and not found > 0:
            break
    return margins


def joint_margin(
    readout: RoundedReadout,
    row: Row,
    t: int,
    k: int,
    is_over: Callable[[], bool] = lambda: False,
    record: Record | None = None,
) -> float:
    """The margin of a cell (k counts from 0), its multisets of other tokens split until the neurons decide jointly.

    What rounding the neurons and the readout can cost moves into b_2: off the right logit, onto the others.
    """
    from verify.tasks.histogram.rounded.search import margin_of_cell

    reduction, at = readout.reduction, readout.at
    stored, p = reduction.stored, reduction.stored.p
    lower, upper = (x[0, k] for x in form_ranges(stored, row, reduction.tables(row, t, t + 1)))
    if not (lower[p] > 0 and np.isfinite(upper).all()):
        return -np.inf
    low = quotient_below(np.maximum(lower[:p], 0), upper[p])
    high = quotient_above(np.maximum(upper[:p], 0), lower[p])
    ends_h = at.factors(low, high)
    error, _, largest = readout.errors((high > 0)[None], ends_h[0][None], ends_h[1][None])
    cost = (error[0] + readout.step(high) @ np.abs(stored.W_2)) * INFLATION + 4 * U * np.abs(stored.b_2)
    if not largest.max() <= at.stored.largest:
        return -np.inf
    cost[k + 1 - stored.first_count] *= -1
    moved = RoundedReduction(replace(stored, b_2=stored.b_2 + cost), at)
    return margin_of_cell(moved, row, t, k + 1, is_over, record)
