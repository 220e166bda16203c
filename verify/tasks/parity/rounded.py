"""One position of a parity model run with every operation rounded, each logit's sum in the order that hurts most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.evaluation import ORDERS, Evaluation, rounded_model
from verify.arithmetic.readings import Rounded
from verify.arithmetic.rounding import add
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import numbers

if TYPE_CHECKING:
    from verify.tasks.parity.proof import Model

HIDDEN_ORDERS = ("left to right", "right to left", "upwards", "downwards")
DRIVEN = ("upwards", "downwards")  # orders that cost the square of a sum's length
LONGEST_DRIVEN = 512


@dataclass(frozen=True)
class RoundedRun:
    """The margin that one evaluation computes at a position, NaN where a logit is, and the orders of its sums."""

    margin: float
    order: str
    evaluation: dict[str, object]  # as certificates name it


def runs(
    module: Model, tokens: tuple[int, ...], position: int, reading: Rounded, readouts: tuple[str, ...] = ORDERS
) -> Iterator[RoundedRun]:
    """For each order of the sums up to the neurons, the run whose logits are summed in the worst of these orders.

    >>> from constructions.parity import sawtooth
    >>> from verify.arithmetic.readings import reading_of
    >>> next(runs(sawtooth(T=2, L=3), (1, 0, 1), 0, reading_of("bfloat16"))).margin
    1.0
    """
    model = rounded_model(module, reading.format)
    odd = tokens.count(tokens[position]) % 2
    for order in _orders(HIDDEN_ORDERS, max(len(tokens), module.d)):
        at = Evaluation(reading.format, reading.accumulate, order)
        with np.errstate(all="ignore"):
            hidden = _hidden(model, tokens, position, at)
            right, how = _extreme(model, hidden, odd, -1, at, readouts)
            other, how_other = _extreme(model, hidden, 1 - odd, 1, at, readouts)
        worst = {f"logit {odd}": -np.ones(1), f"logit {1 - odd}": np.ones(1)}
        ways = [(tried, False, is_term) for tried in _orders(readouts, module.p) for is_term in (False, True)]
        words = f"sums {order}, then the right logit {how}, the other {how_other}"
        yield RoundedRun(right - other, words, at.named(worst, ways))


def _hidden(model: Model, tokens: tuple[int, ...], position: int, at: Evaluation) -> Array:
    """The neurons (1, p) at a position."""
    E, W_Q, W_K, W_1, b_1 = (numbers(W) for W in (model.E, model.W_Q, model.W_K, model.W_1, model.b_1))
    x = E[list(tokens)]
    own = x[[position]]
    scores = at.product(at.product(own, W_Q), at.product(x, W_K).T)
    mixed_token = at.tensor(at(add, own, at.product(scores, x)))
    return np.maximum(at.tensor(at(add, at.product(mixed_token, W_1), b_1)), 0)


def _extreme(
    model: Model, hidden: Array, c: int, sign: int, at: Evaluation, orders: tuple[str, ...]
) -> tuple[float, str]:
    """The least (sign -1) or the largest value of a logit that the orders tried compute, and the order.

    The bias is added to the sum, or is one more term of it.
    """
    W, b = numbers(model.W_2)[:, c : c + 1], numbers(model.b_2)[c : c + 1]
    found: list[tuple[float, str]] = []
    for order, is_term in product(_orders(orders, len(W)), (False, True)):
        tried = replace(at, order=order)
        added = tried.tensor(tried(add, tried.product(hidden, W), b))
        total = tried.product(hidden, W, b) if is_term else added
        found.append((float(total[0, 0]), order + ", its bias among the terms" * is_term))
    not_numbers = [(value, how) for value, how in found if np.isnan(value)]
    return not_numbers[0] if not_numbers else max(found, key=lambda pair: sign * pair[0])


def _orders(orders: tuple[str, ...], terms: int) -> list[str]:
    return [order for order in orders if terms <= LONGEST_DRIVEN or order not in DRIVEN]
