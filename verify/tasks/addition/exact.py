"""One input through an adder in real arithmetic, in balls of growing precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flint import arb_mat, ctx

from verify.arithmetic.arb_matrices import attended, leads, plus_row, relu, stored
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.stored import numbers

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder, AdderLayer

PRECISIONS = (128, 512, 2048, 8192)


@dataclass(frozen=True)
class Answer:
    """The class that one output names, and a bound on its margin for the right one. `None` says that balls do not tell.

    (logit of the right answer) - (largest other logit) lies from `margin` to `at_most`, within 1e-9 of it, relatively.
    """

    predicted: int | None
    margin: float
    is_right: bool | None
    at_most: float


def answers(model: Adder, tokens: Sequence[int], queries: Sequence[int], right: Sequence[int]) -> list[Answer]:
    """The outputs at some positions of one input, against the right classes."""
    found: list[Answer] = []
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            rows = _logits(model, list(tokens))
            found = [_answer(rows, q, r) for q, r in zip(queries, right, strict=True)]
        if all(answer.is_right is not None for answer in found):
            break
    return found


def _answer(rows: arb_mat, query: int, right: int) -> Answer:
    apart = leads(rows, query, right)
    is_right = True if all(x > 0 for x in apart) else False if any(x <= 0 for x in apart) else None
    logits = [rows[query, c] for c in range(rows.ncols())]
    largest = [c for c, y in enumerate(logits) if all(y >= z for j, z in enumerate(logits) if j != c)]
    least = min(map(float_below, apart), default=math.inf)
    at_most = min(map(float_above, apart), default=math.inf)
    return Answer(largest[0] if largest else None, least, is_right, at_most)


def _logits(model: Adder, tokens: list[int]) -> arb_mat:
    """Logits of every position."""
    x = stored(numbers(model.E)[tokens]) + stored(numbers(model.positions)[: len(tokens)])
    for layer in model.blocks:
        x = _kept(model, x) + _attended(layer, x)
        hidden = relu(plus_row(x * stored(numbers(layer.W_1)), numbers(layer.b_1)))
        x = _kept(model, x) + hidden * stored(numbers(layer.W_2))
    return plus_row(x * stored(numbers(model.W_out)), numbers(model.b_out))


def _kept(model: Adder, x: arb_mat) -> arb_mat:
    return x if model.has_skip else arb_mat(x.nrows(), x.ncols())


def _attended(layer: AdderLayer, x: arb_mat) -> arb_mat:
    out = arb_mat(x.nrows(), x.ncols())
    for head in zip(*map(numbers, (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)), strict=True):
        W_Q, W_K, W_V, W_O = map(stored, head)
        out = out + attended(x * W_Q, x * W_K, x * W_V, is_causal=True) * W_O
    return out
