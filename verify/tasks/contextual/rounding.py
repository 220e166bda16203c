"""Contextual counting in a dtype, any order: how far computed scores, values, outputs and logits can be off.

An operation returns its exact result with a relative error of at most u, or less where it keeps more bits, and an
error below the smallest normal number where it underflows. A sum of k terms is then off by at most gamma(k - 1)
times the sum of absolute values, in any order. Two sums are exact: those of integer multiples of one power of two
that stay below 2^p of it, and, up to a tiny excess, the softmax's total (verify.arithmetic.softmax).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic, absolute_product
from verify.arithmetic.balls import Ball
from verify.arithmetic.contract import Contract
from verify.arithmetic.formats import Format
from verify.arithmetic.slack import INFLATION, LEAST, Array, gamma
from verify.arithmetic.softmax import Arguments, exponential_error, quotient_error, total_error
from verify.frame.clock import Deadline
from verify.tasks.contextual.stream import Encoded, Kinds, StoredContextual, at_a_time, attend, within

CONTRACT = Contract(
    normalised="normalises before or after weighing the values, by a quotient or a reciprocal",
    sums="a sum keeps to one format",
    products="matrix products in the order in which the module writes them",
    is_exp_small=True,
)


@dataclass(frozen=True)
class PositionErrors:
    """Bounds on |computed - real| of what the decoder sees of K kinds. Shapes: scores (K, R), values (K, g)."""

    scores: Array
    values: Array


@dataclass(frozen=True)
class Queries:
    """Bounds on |P U_Q|, and on the error of its computed entries. Shapes: size, error (R, e)."""

    size: Array
    error: Array

    @classmethod
    def of(cls, stored: StoredContextual, fmt: Format, until: Deadline) -> Queries:
        """Raises: TimeIsUp."""
        with np.errstate(invalid="ignore", over="ignore"):
            size = within(stored.ball("P"), stored.ball("U_Q"), until).magnitude
            return cls(size, table_error(stored.W["P"], stored.W["U_Q"], fmt, until))


def position_errors(
    stored: StoredContextual, kinds: Kinds, encoded: Encoded, queries: Queries, fmt: Format
) -> PositionErrors:
    """Follows the encoder and the decoder's linear maps, operation by operation."""
    W = stored.W
    with np.errstate(invalid="ignore", over="ignore"):
        attended = attention_error(stored, kinds, fmt)
        error = dot_error(magnitude(encoded.attended), attended, W["W_O"], fmt)
        added = dot_size(magnitude(encoded.attended) + attended, W["W_O"])
        x = magnitude(encoded.x)
        error = error + add_error(np.abs(W["E"])[kinds.tokens], added, x + error, fmt)
        pre = dot_error(x, error, W["W_1"], fmt, W["b_1"])
        top = encoded.pre.upper.max(axis=1)
        hidden = np.maximum(top, 0)
        hidden_error = np.where(top + pre <= 0, 0.0, pre)
        fed = dot_error(hidden, hidden_error, W["W_2"], fmt, W["b_2"])
        fed_size = dot_size(hidden, W["W_2"], W["b_2"])
        stream, stream_error = x + fed_size, error + fed + add_error(x, fed_size + fed, x + fed_size + error + fed, fmt)
        keys, keys_error = dot_size(stream, W["U_K"]), dot_error(stream, stream_error, W["U_K"], fmt)
        scores = dot_error(keys, keys_error, (queries.size + queries.error).T, fmt)
        scores = scores + dot_size(keys + keys_error, queries.error.T)
        values = dot_error(stream, stream_error, W["U_V"], fmt)
        return PositionErrors(known(scores * INFLATION), known(values * INFLATION))


def known(error: Array) -> Array:
    """An error that could not be computed is unbounded."""
    return np.where(np.isnan(error), np.inf, error)


def magnitude(balls: Ball) -> Array:
    """The largest absolute value over the corners."""
    result: Array = balls.magnitude.max(axis=1)
    return result


def dot_size(size: Array, W: Array, extra: Array | float = 0.0) -> Array:
    """Bounds the sum of absolute values of x W (+ extra) where |x| <= size, 0 only where there is no term."""
    return absolute_product(size, np.abs(W)) + np.abs(extra) * INFLATION


def dot_error(size: Array, error: Array, W: Array, fmt: Format, extra: Array | float = 0.0) -> Array:
    """The error of x W (+ extra) where |x| <= size (K, n) and x is itself off by at most `error` (K, n).

    Terms that are zero for sure cost nothing, and products with powers of two >= 1 are exact. Whether there are others
    is asked of their factors, as what is computed of them here may underflow; then `flushed` is far more.
    """
    full = size + error
    is_exact_factor = (np.frexp(W)[0] == 0.5) | (np.frexp(W)[0] == -0.5) | (W == 0)
    is_exact_factor &= (np.abs(W) >= 1) | (W == 0)
    inexact = full @ np.where(is_exact_factor, 0.0, np.abs(W))
    total = dot_size(full, W, extra) + fmt.u * inexact
    terms = (full > 0).astype(float) @ (W != 0) + (np.asarray(extra) != 0)
    rounding = fmt.u * inexact + gamma(np.maximum(terms - 1, 0), fmt.u) * total
    has_inexact = (full > 0).astype(float) @ ~is_exact_factor > 0
    flushed = np.where((terms > 1) | has_inexact, 2 * terms * fmt.tiny, 0.0)
    out = known((error @ np.abs(W) + rounding + flushed) * INFLATION)
    return np.where(total < fmt.largest / 2, out, np.inf)


def add_error(x: Array, y: Array, result: Array, fmt: Format) -> Array:
    """The rounding of one addition, none where a summand is zero; a result that can overflow is unbounded."""
    error = np.where((x > 0) & (y > 0), (fmt.u * result + fmt.tiny) * INFLATION, 0.0)
    return np.where(result < fmt.largest / 2, error, np.inf)


def table_error(X: Array, W: Array, fmt: Format, until: Deadline | None = None) -> Array:
    """The error of X W for stored X, zero where all partial sums are exact in any order and none overflows.

    Some rows at a time.
    Raises: TimeIsUp.
    """
    until, of_W, out = until or Deadline.never(), lowest_bit(W), np.zeros((len(X), W.shape[1]))
    step = at_a_time(W.size)
    for at in range(0, len(X), step):
        until.check()
        some = X[at : at + step]
        grain = lowest_bit_of_products(lowest_bit(some), of_W)
        size = np.abs(some) @ np.abs(W) * INFLATION
        fits = (grain >= fmt.smallest_exponent) & (size < np.exp2(np.minimum(fmt.p + grain, 1000.0)))
        fits &= size < fmt.largest / 2
        rounded = np.flatnonzero(~fits.all(axis=1))
        if len(rounded):
            error = dot_error(np.abs(some[rounded]), np.zeros_like(some[rounded]), W, fmt)
            out[at + rounded] = np.where(fits[rounded], 0.0, error)
    return out


def lowest_bit_of_products(x: Array, W: Array) -> Array:
    """The least x_ij + W_jk over j, row by row, for the exponents (n, m) and (m, k) that `lowest_bit` gives.

    >>> lowest_bit_of_products(np.array([[1.0, np.inf], [np.inf, np.inf]]), np.array([[2.0], [-5.0]]))
    array([[ 3.],
           [inf]])
    """
    out = np.empty((len(x), W.shape[1]))
    for least, row in zip(out, x, strict=True):
        is_there = row < np.inf
        least[:] = (row[is_there, None] + W[is_there]).min(axis=0, initial=np.inf)
    return out


def lowest_bit(x: Array) -> Array:
    """The exponent of the last significant bit; infinite for zero.

    >>> lowest_bit(np.array([6.0, 0.75, 0.0]))
    array([ 1., -2., inf])
    """
    fraction, exponent = np.frexp(x)
    whole = np.abs(fraction * 2.0**53).astype(np.int64)
    place = np.log2(np.where(whole == 0, 1, whole & -whole).astype(np.float64))
    return np.where(whole == 0, np.inf, exponent - 53 + place)


def attention_error(stored: StoredContextual, kinds: Kinds, fmt: Format) -> Array:
    """The error (K, d_h) of the encoder head's output."""
    at = RoundedArithmetic.of(fmt)
    E, W_Q, W_K, W_V = (stored.W[name] for name in ("E", "W_Q", "W_K", "W_V"))
    q, k = np.abs(E @ W_Q) * INFLATION, np.abs(E @ W_K) * INFLATION
    q_error, k_error = table_error(E, W_Q, fmt), table_error(E, W_K, fmt)
    is_exact = not q_error.any() and not k_error.any()
    S, S_error = E @ W_Q @ (E @ W_K).T, dot_error(q, q_error, (k + k_error).T, fmt)
    S_error = S_error + dot_size(q + q_error, k_error.T)
    if is_exact:
        S_error = table_error(E @ W_Q, (E @ W_K).T, fmt)
    # twice: S itself is rounded to float64 here, by no more than the dtype's own error, or not at all
    S, S_error = S[kinds.tokens], 2 * S_error[kinds.tokens]
    possible, sure = (kinds.counts > 0).any(axis=1), (kinds.counts > 0).all(axis=1)
    most = kinds.counts.max(axis=1)
    highest = np.where(possible, S + S_error, -np.inf).max(axis=1, keepdims=True)
    found = Arguments.of(Ball(S, S_error), at, possible, sure)
    is_top, distance = found.is_top, found.distance
    is_known = np.asarray((is_top & sure).any(axis=1) | ~(possible & ~is_top).any(axis=1))
    is_one = is_top & is_known[:, None]
    weight = (np.exp(np.minimum(S + S_error - highest, 0.0)) + LEAST) * INFLATION
    argument = np.minimum(found.off, 50.0)
    relative = (np.expm1(argument) + np.exp(argument) * exponential_error(distance, fmt)) * INFLATION
    relative = np.where(is_one | ~possible, 0.0, np.where(argument < 50.0, relative, np.inf))
    J = (is_one * most).sum(axis=1)
    others = np.where(is_one, 0.0, most * weight * (1 + relative)).sum(axis=1)
    terms = kinds.counts.sum(axis=2).max(axis=1)
    total = total_error(at, terms, J, others, is_known & is_one.any(axis=1), is_one_format=True)
    # shares: how much of the softmax the inexact weights can hold
    at_least = np.where(is_known, np.maximum((is_one * kinds.counts.min(axis=1)).sum(axis=1), 1), 0.0)
    heavy = np.where(is_known[:, None], most * weight / np.maximum(at_least, 1)[:, None], 1.0)
    moved = np.minimum((np.minimum(heavy, 1.0) * relative).sum(axis=1), relative.max(axis=1))
    moved = np.where(moved < 0.25, 2 * moved, np.inf)
    V, V_error = np.abs(E @ W_V) * INFLATION, table_error(E, W_V, fmt)
    spread = V.max(axis=0)[None, :] * 2
    size = magnitude(attend(stored, kinds.tokens, kinds.counts, Ball.exact(V)))
    valued = np.einsum("kt,th->kh", most.astype(float), (V + V_error > 0).astype(float))
    # three roundings: the reciprocal of the total, its product with the weight, and that with the value; then the sum
    rounding = quotient_error(total[:, None], at.growth_of_products(np.maximum(valued - 1, 0) + 3))
    shaken = np.where(moved[:, None] > 0, moved[:, None] * spread, 0.0)
    flushed = 2 * valued * fmt.tiny * (1 + (V + V_error).max(axis=0))
    error = shaken + rounding * (size + shaken) + V_error.max(axis=0) * (1 + rounding) + flushed
    # weighed before it is normalised, a sum can exceed what the mean does not
    total_size = terms[:, None] * (V + V_error).max(axis=0)
    return known(np.where(total_size < fmt.largest / 2, error * INFLATION, np.inf))
