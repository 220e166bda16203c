"""Count01 with any number of heads, in real arithmetic or in a dtype: branch and bound over boxes of counts.

On a box of counts each head's share of a logit difference is a quotient of two linear forms with positive
denominator, so it is extreme at the corners; the sum over heads of the corner minima bounds the margin from
below. Boxes that stay undecided are split, down to single triples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as cartesian
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.exact_reals import ONE, Combination, float_below, float_of, rational
from verify.arithmetic.slack import ENLARGE_LONG, FAINT, LEAST, Array, U
from verify.arithmetic.softmax import nearest_weights
from verify.tasks.count01.layer_norm.tables import SMALLEST_NORMALISER
from verify.tasks.count01.real import ExactFailure, ExactModel, exact_model, margin_at, plus
from verify.tasks.count01.rounding import QueryErrors, seen
from verify.tasks.count01.task import Prompt, PromptDomain, SideCell, Triple, cells, kinds

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

CHUNK = 2048
MOST_BOXES = 200_000
LARGEST_COUNT = 1 << 48  # counts are exact in float64, and so are their sums
FLOAT_ERROR = 64 * U  # a quotient of two five- or six-term sums, relative to the largest value
CORNERS = np.array(list(cartesian((0, 1), repeat=3)))


@dataclass(frozen=True)
class BoxResult:
    """Proved with a margin, or the first input that failed or stayed undecided.

    `tightest` has the tightest of the triples that were decided alone, and the least and the greatest corner of the box
    with the smallest bound.
    """

    is_proved: bool
    margin: float | None
    boxes: int
    failure: ExactFailure | None = None
    undecided: tuple[Triple, SideCell] | None = None
    reason: str | None = None
    tightest: tuple[Prompt, ...] = ()


class BoxQuery:
    """The float arrays of one cell: weights (heads, kinds), differences (heads, kinds, rivals), offsets."""

    def __init__(
        self,
        model: Count01Model,
        exact: ExactModel,
        cell: SideCell,
        at: RoundedArithmetic | None,
        origin: Triple = (0, 0, 0),
    ) -> None:
        self.origin = origin
        self.cell, self.tokens = cell, kinds(cell.last)
        rivals = [j for j in range(exact.classes) if j != cell.expected]
        self.rivals = rivals
        values = [[[_rational(x) for x in exact.values[h][t]] for t in self.tokens] for h in range(exact.heads)]
        constant = [_rational(x) for x in exact.constant[cell.last]]
        c = cell.expected
        scores = [[exact.scores[h][cell.last][t] for t in self.tokens] for h in range(exact.heads)]
        self.weights = np.array([nearest_weights([rational(s - max(row)) for s in row]) for row in scores])
        self.values = np.array([[[_nearest(x) for x in row] for row in head] for head in values])
        self.constant = np.array([_nearest(x) for x in constant])
        self.differences = np.array([[[_nearest(row[c] - row[j]) for j in rivals] for row in head] for head in values])
        self.offset = np.array([_nearest(constant[c] - constant[j]) for j in rivals])
        largest = np.abs(self.differences).max(axis=1).sum(axis=0) + np.abs(self.offset)
        self.radius = FLOAT_ERROR * largest + 1e-300
        self.errors = None if at is None else QueryErrors(model, cell.last, at)

    def lower_bounds(self, low: Array, high: Array) -> Array:
        """Lower bounds (K,) of the margin on boxes of generator coordinates low..high (K, 3); NaN is none."""
        counts = self.counts(low[:, None] + CORNERS * (high - low)[:, None])
        D = np.einsum("kct,ht->kch", counts, self.weights)
        D = np.where(D > SMALLEST_NORMALISER, D, np.nan)
        weighted = self.weights[:, :, None] * self.differences
        quotients = np.einsum("kct,htr->kchr", counts, weighted) / D[..., None]
        quotients = quotients - lost(counts, D)[..., None]
        quotients = np.where(np.isfinite(quotients), quotients, np.nan)  # an overflow bounds nothing
        margins = quotients.min(axis=1).sum(axis=1) + self.offset - self.radius
        if self.errors is not None:
            margins = margins - self.rounding(counts, D)
        return np.where(np.isfinite(margins).all(axis=1), margins.min(axis=1), np.nan)

    def rounding(self, counts: Array, D: Array) -> Array:
        """Bounds (K, rivals) on the error of the computed logit differences."""
        assert self.errors is not None
        V = self.errors.V
        mean = np.abs(np.einsum("kct,hte->kche", counts, self.weights[..., None] * V) / D[..., None]).max(axis=1)
        size, underflow = np.abs(V) + self.errors.V_radius, lost(counts, D).max(axis=1)
        mean = mean + underflow[..., None]
        mean_size = (np.einsum("kct,hte->kche", counts, self.weights[..., None] * size) / D[..., None]).max(1)
        mean_size = mean_size + underflow[..., None]
        logits = np.einsum("kct,htj->kchj", counts, self.weights[..., None] * self.values) / D[..., None]
        high = logits.max(axis=1).sum(axis=1) + self.constant
        low = logits.min(axis=1).sum(axis=1) + self.constant
        slack = FLOAT_ERROR * (np.abs(self.values).max(axis=(0, 1)) * len(self.weights) + np.abs(self.constant))
        largest = np.maximum(np.abs(high), np.abs(low)) + slack + underflow.sum(axis=1, keepdims=True)
        widen = ENLARGE_LONG  # far more than the rounding of these normalisers and means
        errors = self.errors.logit_errors(
            counts.min(axis=1),
            counts.max(axis=1),
            D / widen,
            mean * widen + FLOAT_ERROR * size.max(axis=1),
            mean_size * widen,
            largest,
        )
        return (errors[:, [self.cell.expected]] + errors[:, self.rivals]) * widen

    def counts(self, points: Array) -> Array:
        """Multiplicities (..., kinds) at generator coordinates (..., 3)."""
        a, b, c = points[..., 0], points[..., 1], points[..., 2]
        n0, n1, _ = self.cell.side.at(0, 0, 0)
        d0, d1, _ = self.cell.side.away
        one = np.ones_like(a)
        first, _, noise = self.origin
        digits = [n0 + a + b * d0 + first, n1 + a + b * d1 + first, c + noise]
        return np.stack([one, *digits, one, *([one] * (len(self.tokens) - 5))], axis=-1).astype(float)


def lost(counts: Array, D: Array) -> Array:
    """What a mean (K, corners, heads) of values loses to underflow, for each normaliser D.

    The product of a weight and a value is off by at most LEAST, once for each token that is counted; whole multiples
    and sums of subnormal numbers are exact. The quotient may underflow as well.
    """
    result: Array = counts.sum(axis=-1, keepdims=True) * LEAST / D * ENLARGE_LONG + FAINT
    return result


def _rational(x: Combination) -> Fraction:
    """The value of a combination that has no exponential."""
    c = x.terms.get(ONE, fmpq(0))
    return Fraction(int(c.p), int(c.q))


def _nearest(x: Fraction) -> float:
    """The nearest float; NaN, which decides nothing, where x is too large for one."""
    try:
        return float(x)
    except OverflowError:
        return math.nan


def decide_boxes(model: Count01Model, labels: str, domain: PromptDomain, at: RoundedArithmetic | None) -> BoxResult:
    """Decides any number of heads on a bounded domain: at None is real arithmetic, else any order in its formats.

    In real arithmetic single triples that the floats leave undecided are settled exactly; in a dtype the
    first one ends the search undecided.
    """
    exact = exact_model(model, None if at is None else seen(model, at).mid)
    margin, boxes = math.inf, 0
    of_box: tuple[float, Prompt, Prompt] | None = None
    of_triple: tuple[float, Prompt] | None = None
    origin, whole, domain = domain.origin, domain, domain.moved
    for cell in cells(labels, whole.lasts):
        query = BoxQuery(model, exact, cell, at, origin)
        if query.errors is not None and query.errors.obstacle:
            return BoxResult(False, None, boxes, reason=query.errors.obstacle)
        low, high = root(cell, domain)
        while len(low):
            boxes += len(low[-CHUNK:])
            if boxes > MOST_BOXES:
                return BoxResult(False, None, boxes, reason=f"more than {MOST_BOXES} boxes")
            lo, hi, low, high = low[-CHUNK:], high[-CHUNK:], low[:-CHUNK], high[:-CHUNK]
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                bound = query.lower_bounds(lo.astype(float), hi.astype(float))
            decided = bound > 0
            margin = min([margin, *bound[decided].tolist()])
            least = int(np.where(decided, bound, np.inf).argmin())
            if decided[least] and (of_box is None or bound[least] < of_box[0]):
                first, last = (plus(cell.side.at(*(int(x) for x in end[least])), origin) for end in (lo, hi))
                of_box = float(bound[least]), (first, cell.last), (last, cell.last)
            is_leaf = (lo == hi).all(axis=1)
            for point in lo[~decided & is_leaf]:
                n = plus(cell.side.at(*(int(x) for x in point)), origin)
                if at is not None:
                    return BoxResult(False, None, boxes, undecided=(n, cell))
                sign, rival, ball = margin_at(exact, n, cell.last, cell.expected)
                if sign <= 0:
                    tie = "0" if sign == 0 else None
                    found = ExactFailure(n, cell.last, cell.expected, rival, float_of(ball), tie)
                    return BoxResult(False, None, boxes, failure=found)
                at_least = max(float_below(ball), 0.0)
                margin = min(margin, at_least)
                if of_triple is None or at_least < of_triple[0]:
                    of_triple = at_least, (n, cell.last)
            order = np.argsort(-np.nan_to_num(bound, nan=-np.inf), kind="stable")
            open_boxes = order[(~decided & ~is_leaf)[order]]
            children = split(lo[open_boxes], hi[open_boxes], cell, domain)
            low, high = np.concatenate([low, children[0]]), np.concatenate([high, children[1]])
    tightest = tuple(prompt for found in (of_triple, of_box) if found is not None for prompt in found[1:])
    return BoxResult(True, None if math.isinf(margin) else margin, boxes, tightest=tightest)


IntArray = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def root(cell: SideCell, domain: PromptDomain) -> tuple[IntArray, IntArray]:
    """The box of a whole side of a domain, or none where the side is empty."""
    A, B = domain.largest
    assert max(A, B) <= LARGEST_COUNT
    return clip(np.zeros((1, 3), dtype=np.int64), np.array([[A, A, B]], dtype=np.int64), cell, domain)


def clip(low: IntArray, high: IntArray, cell: SideCell, domain: PromptDomain) -> tuple[IntArray, IntArray]:
    """Shrinks boxes to the domain; drops those outside it."""
    step, high = sum(cell.side.base), high.copy()
    if domain.max_digits is not None:
        high[:, 0] = np.minimum(high[:, 0], domain.max_digits - step - low[:, 1])
        high[:, 1] = np.minimum(high[:, 1], domain.max_digits - step - low[:, 0])
    if domain.max_length is not None:
        spare = domain.max_length - step - (2 * low[:, 0] + low[:, 1] + low[:, 2])
        high[:, 0] = np.minimum(high[:, 0], low[:, 0] + spare // 2)
        high[:, 1] = np.minimum(high[:, 1], low[:, 1] + spare)
        high[:, 2] = np.minimum(high[:, 2], low[:, 2] + spare)
    inside = (high >= low).all(axis=1)
    return low[inside], high[inside]


def split(low: IntArray, high: IntArray, cell: SideCell, domain: PromptDomain) -> tuple[IntArray, IntArray]:
    """Halves each box along the coordinate with the largest quotient of ends, at their geometric mean."""
    if not len(low):
        return low, high
    spread = (high + 1.0) / (low + 1.0)
    axis = spread.argmax(axis=1)
    row = np.arange(len(low))
    start, end = low[row, axis], high[row, axis]
    middle = np.floor(np.sqrt((start + 1.0) * (end + 1.0))).astype(np.int64) - 1
    middle = np.clip(middle, start, end - 1)
    left_high, right_low = high.copy(), low.copy()
    left_high[row, axis], right_low[row, axis] = middle, middle + 1
    lows = np.stack([low, right_low], axis=1).reshape(-1, 3)
    highs = np.stack([left_high, high], axis=1).reshape(-1, 3)
    return clip(lows, highs, cell, domain)
