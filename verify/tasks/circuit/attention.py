"""Where a head's softmax goes when no exponential is zero: the position retrieved, and how much leaks from it.

The computed scores lie around those of the midpoints. Where one position surely has the largest score, its
exponential is exactly 1, and the leak is the sum of all others. It is bounded lane by lane, as the scores are sums
over lanes: (largest number of keys with one address) ((1 + (c_1 - 1) exp(-gap_1)) ... (1 + (c_k - 1) exp(-gap_k)) - 1)
for c_j different keys in lane j. That takes one sort. Weights whose lanes say nothing are looked up in the table of
all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic, is_power_of_two, unit_exponent
from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import ENLARGE_LONG, INFLATION, Array, gamma
from verify.arithmetic.softmax import computed_exponentials
from verify.tasks.circuit.retrieval import (
    MAX_LANE_PAIRS,
    Indices,
    PlacedVectors,
    TooManyPairs,
    classes_of,
    pairs_of_equal_codes,
)
from verify.tasks.circuit.steps import NONE, reach_of

MAX_TABLE = 2**30  # pairs that are tried one by one: about a minute
LEAST_LEAK = 1e-250  # an exponential is never zero, even where float64 says so


class UnboundedSteps(Exception):
    """No bound on what the steps compute, with the reason."""


@dataclass(frozen=True)
class Attention:
    """What each position retrieves, whatever the tokens are (NONE where that is unknown), and a bound on its leak.

    The leak is the sum of the computed exponentials of all other positions, its own being exactly 1.
    """

    clear: Indices
    leak: Array


def attention(
    at: RoundedArithmetic, queries: PlacedVectors[Ball], keys: PlacedVectors[Ball], positions: int
) -> Attention:
    """Finds what every position with a query retrieves, and bounds its leak; positions ascend.

    Raises: Undecided where scores may overflow.
    """
    queries, keys = (PlacedVectors(at.as_operand(rows.vectors), rows.position) for rows in (queries, keys))
    error = ScoreError.of(at, queries.vectors, keys.vectors)
    clear, total = by_addresses(at, queries, keys, positions, error)
    asked = np.unique(queries.position)
    unclear = asked[clear[asked] == NONE]
    if len(unclear) and len(unclear) * len(keys.position) <= MAX_TABLE:
        found, by_table = table(at, queries, keys, unclear, error)
        clear[unclear], total[unclear] = found, by_table
    total = np.where(np.arange(positions) > 0, np.maximum(total, LEAST_LEAK), 0.0)
    return Attention(clear, computed_exponentials(at, total, np.arange(positions, dtype=float)))


@dataclass(frozen=True)
class ScoreError:
    """|computed - midpoint's| <= absolute + relative |midpoint's|, for every score."""

    absolute: float
    relative: float

    @classmethod
    def of(cls, at: RoundedArithmetic, q: Ball, k: Ball) -> ScoreError:
        """Raises: Undecided where the difference of two scores may overflow."""
        Q, K = q.magnitude.max(0, initial=0.0), k.magnitude.max(0, initial=0.0)
        is_read = np.asarray((Q > 0) & (K > 0))
        size = float((Q * K).sum()) * INFLATION
        if not is_read.any():
            return cls(0.0, 0.0)
        moved = float((Q * k.rad.max(0) + q.rad.max(0) * K).sum()) * INFLATION
        units = unit_exponent(q.mid).min(0) + unit_exponent(k.mid).min(0)
        unit, absolute = units[is_read].min(), moved
        is_known = not (q.rad[:, is_read].any() or k.rad[:, is_read].any())  # `moved` may underflow
        if not (is_known and at.is_exact_sum(np.array(size), unit)):
            hard_q, hard_k = ((~is_power_of_two(x.mid) | (x.rad > 0)) for x in (q, k))
            hard = is_read & np.any(hard_q, axis=0) & np.any(hard_k, axis=0)
            terms = int(is_read.sum())
            growth = float(at.growth(terms - 1 + bool(hard.any()), 0))
            here = gamma(terms + 8)  # the midpoints' scores and their gaps, in float64
            absolute += (growth + here) * size + float(at.underflow(2 * terms)) * (1 + growth)
        is_stored = at.inner is at.stored or (is_known and at.is_representable(np.array(size), unit))
        relative = 0.0 if is_stored else at.stored.u
        absolute = (absolute * (1 + relative) + (0.0 if is_stored else at.stored.tiny)) * INFLATION
        if not 2 * (size + absolute) * (1 + relative) <= at.stored.largest:
            raise UnboundedSteps("scores may overflow")
        return cls(absolute, relative)

    def of_difference(self, at: RoundedArithmetic, top: Array) -> tuple[Array, float]:
        """Bounds the error of (largest score - another score). Returns an absolute part, and the share of the
        difference that is left after errors that are proportional to it: of both scores, and of the subtraction.
        """
        shift = 2 * (self.absolute + self.relative * np.abs(top)) * INFLATION
        return shift, (1 - float(at.growth(1, 1))) * (1 - self.relative)


def by_addresses(
    at: RoundedArithmetic, queries: PlacedVectors[Ball], keys: PlacedVectors[Ball], positions: int, error: ScoreError
) -> tuple[Indices, Array]:
    """Finds what is retrieved and the leak of exact exponentials, if each lane of q and k says equal or different."""
    nothing = np.full(positions, NONE), np.full(positions, np.inf)
    q, k = queries.vectors.mid, keys.vectors.mid
    code_q, code_k = np.zeros(len(q), np.int64), np.zeros(len(k), np.int64)
    gaps, choices, top = [], [], np.zeros(len(q))
    for j in range(0, q.shape[1], 2):
        q_values, q_which = _distinct(q[:, j : j + 2])
        k_values, k_which = _distinct(k[:, j : j + 2])
        if len(q_values) * len(k_values) > MAX_LANE_PAIRS:
            return nothing
        scores = q_values @ k_values.T
        behind = scores.max(1, keepdims=True) - scores
        top = top + scores.max(1)[q_which]
        classes = classes_of(behind == 0)
        if classes is None:
            return nothing
        radix = int(max(classes[0].max(), classes[1].max())) + 1
        code_q, code_k = code_q * radix + classes[0][q_which], code_k * radix + classes[1][k_which]
        code_q, code_k = np.split(np.unique(np.concatenate([code_q, code_k]), return_inverse=True)[1], [len(code_q)])
        gaps.append(float(behind[behind > 0].min(initial=np.inf)))
        choices.append(len(np.unique(classes[1])))
    shift, left = error.of_difference(at, np.abs(top).max(initial=0.0) * ENLARGE_LONG)
    if not min(gaps, default=0.0) * left > shift:
        return nothing
    try:
        query, key = pairs_of_equal_codes(queries.position, code_q, keys.position, code_k)
    except TooManyPairs:
        return nothing
    clear = reach_of(query, key, queries.position, keys.position, positions).clear
    same = int(np.unique(code_k, return_counts=True)[1].max())
    each = np.exp(-left * np.array(gaps))
    by_lanes = same * np.expm1(np.log1p((np.array(choices) - 1) * each).sum())
    rows = np.searchsorted(keys.position, np.arange(positions), side="right")
    return clear, np.minimum(by_lanes, rows * each.max()) * np.exp(shift) * INFLATION


def table(
    at: RoundedArithmetic, queries: PlacedVectors[Ball], keys: PlacedVectors[Ball], wanted: Indices, error: ScoreError
) -> tuple[Indices, Array]:
    """Finds the same for some positions from all their scores. Takes quadratic time, a block of positions at a time."""
    k, starts = keys.vectors.mid.T, np.flatnonzero(np.diff(keys.position, prepend=-1))
    place = keys.position[starts]
    clear, total = np.full(len(wanted), NONE), np.full(len(wanted), np.inf)
    block = max(1, 2**22 // max(1, len(keys.position)))
    for first in range(0, len(wanted), block):
        which = slice(first, min(first + block, len(wanted)))
        rows = np.flatnonzero(np.isin(queries.position, wanted[which]))
        scores = queries.vectors.mid[rows] @ k
        one = np.flatnonzero(np.diff(queries.position[rows], prepend=-1))
        high = np.maximum.reduceat(np.maximum.reduceat(scores, starts, axis=1), one, axis=0)
        low = np.minimum.reduceat(np.minimum.reduceat(scores, starts, axis=1), one, axis=0)
        is_later = place[None, :] > wanted[which, None]
        low[is_later] = high[is_later] = -np.inf
        best, line = low.argmax(1), np.arange(len(low))
        shift, left = error.of_difference(at, np.maximum(np.abs(low), np.abs(high))[line, best])
        behind = left * (low[line, best][:, None] - high) - shift[:, None]
        behind[line, best] = np.inf
        is_clear = (behind > 0).all(1)
        clear[which] = np.where(is_clear, place[best], NONE)
        total[which] = np.where(is_clear, np.exp(-behind).sum(1) * INFLATION, np.inf)
    return clear, total


def _distinct(pairs: Array) -> tuple[Array, Indices]:
    """The different rows of an (R, 2) array, and which of them each row is."""
    first, second = (np.unique(column, return_inverse=True)[1] for column in pairs.T)
    _, where, which = np.unique(first * (second.max() + 1) + second, return_index=True, return_inverse=True)
    return pairs[where], which
