"""An adder run with every operation rounded to a format, in any one of many evaluation orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.evaluation import Evaluation, Tokens
from verify.arithmetic.rounding import add
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import numbers

if TYPE_CHECKING:
    from torch import Tensor

    from verify.tasks.addition.adder.model import Adder

ORDERS = ("left to right", "right to left", "pairwise", "large first", "small first", "upwards", "downwards")


def logits(model: Adder, tokens: Tokens, at: Evaluation) -> Array:
    """Logits (N, n, classes) of tokens (N, n), the weights first rounded to the format."""

    def stored(W: Tensor | Array) -> Array:
        return at.tensor(numbers(W))

    with np.errstate(all="ignore"):
        n = tokens.shape[1]
        x = at.tensor(at(add, stored(model.E)[tokens], stored(model.positions)[:n]))
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        for layer in model.blocks:
            parts = []
            for W_Q, W_K, W_V, W_O in zip(*map(stored, (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)), strict=True):
                scores = at.product(at.product(x, W_Q), np.swapaxes(at.product(x, W_K), -1, -2)) + hidden
                parts.append(at.product(at.product(at.softmax(scores), at.product(x, W_V)), W_O))
            for part in parts[1:]:
                parts[0] = at.tensor(at(add, parts[0], part))
            x = at.tensor(at(add, x, parts[0])) if model.has_skip else parts[0]
            if len(layer.b_1):
                h = np.maximum(at.tensor(at(add, at.product(x, stored(layer.W_1)), stored(layer.b_1))), 0)
                written = at.product(h, stored(layer.W_2))
                x = at.tensor(at(add, x, written)) if model.has_skip else written
            elif not model.has_skip:
                x = np.zeros_like(x)
        return at.tensor(at(add, at.product(x, stored(model.W_out)), stored(model.b_out)))
