"""All P^2 pairs with every operation rounded, in any order: each rounding's error, times what it can do to a margin.

The computed stream, neurons and logits are exact functions of slightly wrong inputs. A difference of logits is linear
in the stream's error where no neuron changes sign, and Lipschitz where one may, so each error counts with its own
slope instead of twice its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, joined, relu, stacked
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import INFLATION, LEAST, Array, gamma
from verify.arithmetic.stored import numbers
from verify.frame.clock import Deadline
from verify.tasks.addition.rounded import apart_from_factors, sum_error

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder


class UnfitFormat(Exception):
    """A model or a format that this analysis does not speak of; the message says why."""


@dataclass(frozen=True)
class Margins:
    """Lower bounds on the computed margins of all pairs, by right answer: (P answers, P pairs). NaN proves nothing."""

    least: Array
    pairs: np.ndarray

    @property
    def worst(self) -> float:
        return float("nan") if np.isnan(self.least).any() else float(self.least.min())


@np.errstate(invalid="ignore")  # infinite radii: NaN then proves nothing
def margins(model: Adder, P: int, at: RoundedArithmetic, until: Deadline | None = None) -> Margins:
    """Lower bounds on every pair's margin over all evaluations; the model's numbers are those of the format.

    Raises: UnfitFormat where attention is not uniform, or embeddings are rounded; TimeIsUp.
    """
    layer, until = model.blocks[0], until or Deadline.never()
    W_1, b_1, W_2 = map(numbers, (layer.W_1, layer.b_1, layer.W_2))
    W_out, b_out = numbers(model.W_out), numbers(model.b_out)
    x = attended(model, P, at)
    sizes_of_x, kept = x.magnitude, (x.magnitude,) if model.has_skip else ()
    e_1 = sum_error(sizes_of_x, W_1, (b_1,), None, at)
    read = _widened(x @ Ball.exact(W_1) + Ball.exact(b_1), e_1)
    is_on, is_open = read.mid > read.rad, ~(np.abs(read.mid) > read.rad)
    hidden = relu(read)
    e_2 = sum_error(hidden.magnitude, W_2, kept, None, at)
    if model.has_skip:
        e_2 = e_2 + np.where(x.rad > 0, apart_from_factors(sizes_of_x, at), 0.0)
    y = hidden @ Ball.exact(W_2)
    y = _widened(x + y if model.has_skip else y, e_2)
    e_3 = sum_error(y.magnitude, W_out, (b_out,), None, at)
    model_of = _exact_logits(x.mid, model)
    pairs = np.array([[(a, (r - a) % P) for a in range(P)] for r in range(P)])
    least = np.empty((P, P))
    for r in range(P):
        until.check()
        rows = pairs[r, :, 0] * P + pairs[r, :, 1]
        jump = np.abs(W_out[:, [r]] - W_out)
        gains = W_2 @ (W_out[:, [r]] - W_out)
        off = gamma(W_2.shape[1] + 4) * (np.abs(W_2) @ jump) + W_2.shape[1] * LEAST  # what float64 rounds of them
        sizes = np.abs(gains) + off
        loss = (e_1 * (is_on | is_open))[rows] @ sizes + e_2[rows] @ jump + e_3[rows] + e_3[rows][:, [r]]
        direct = (W_out[:, [r]] - W_out) if model.has_skip else np.zeros_like(W_out)
        for j in range(len(W_1)):
            slope = direct[j] + (is_on[rows] * W_1[j]) @ gains
            rounded_off = np.abs(W_1[j]) @ (off + gamma(len(gains) + 4) * sizes) + gamma(4) * np.abs(direct[j])
            change = np.abs(slope) + (is_open[rows] * np.abs(W_1[j])) @ sizes + rounded_off + len(gains) * LEAST
            loss = loss + x.rad[rows][:, [j]] * change
        apart = model_of[rows][:, [r]] - model_of[rows]
        bound = apart.lower - loss * INFLATION
        bound[:, r] = np.inf
        least[r] = np.where(np.isfinite(loss).all(1), bound.min(1), np.nan)
    return Margins(least, pairs)


def attended(model: Adder, P: int, at: RoundedArithmetic) -> Ball:
    """Every computed stream after uniform attention over a, b and "=": (P^2, d), a first."""
    layer = model.blocks[0]
    if len(model.blocks) != 1 or len(layer.W_Q) != 1 or numbers(layer.W_Q).any() or numbers(layer.W_K).any():
        raise UnfitFormat("attention is not one uniform head, and its softmax is not covered")
    E, X = numbers(model.E), numbers(model.positions)
    if X.any() or (rounded(E, at.stored) != E).any():
        raise UnfitFormat("positions are added to embeddings")
    values = at.product(Ball.exact(E), Ball.exact(numbers(layer.W_V[0])))
    # exp(0) = 1, and 1 + 1 + 1 = 3 in every order; a third is then rounded once, and is the same for all three
    share = at.as_operand(at.result(Ball(np.array([[1 / 3]]), np.array([[2.0**-54]]))))
    shares = Ball(np.full((3, 1), share.mid[0, 0]), np.full((3, 1), share.rad[0, 0]))
    a, b = np.divmod(np.arange(P * P), P)
    columns = []
    for k in range(values.mid.shape[1]):
        v = values[:, k]
        columns.append(at.product(stacked(v[a], v[b], v[np.full(P * P, P)], axis=1), shares))
    mixed = joined(*columns)
    written = at.product(mixed, Ball.exact(numbers(layer.W_O[0])))
    if not model.has_skip or not E[P].any():
        return written
    return at.product_and(mixed, Ball.exact(numbers(layer.W_O[0])), _rows(E[P], P * P))


def _exact_logits(x: Array, model: Adder) -> Ball:
    """The logits that real arithmetic gives for the midpoints of the stream."""
    layer = model.blocks[0]
    stream = Ball.exact(x)
    hidden = relu(stream @ Ball.exact(numbers(layer.W_1)) + Ball.exact(numbers(layer.b_1)))
    y = hidden @ Ball.exact(numbers(layer.W_2))
    y = stream + y if model.has_skip else y
    return y @ Ball.exact(numbers(model.W_out)) + Ball.exact(numbers(model.b_out))


def _widened(x: Ball, error: Array) -> Ball:
    return Ball(x.mid, (x.rad + error) * INFLATION)


def _rows(b: Array, n: int) -> Ball:
    return Ball.exact(np.broadcast_to(b, (n, len(b))).copy())
