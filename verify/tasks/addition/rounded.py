"""An adder run with every operation rounded to a format, in any one of many evaluation orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic, is_power_of_two
from verify.arithmetic.evaluation import Evaluation, Tokens
from verify.arithmetic.rounding import add, rounded
from verify.arithmetic.slack import INFLATION, Array
from verify.arithmetic.stored import numbers

if TYPE_CHECKING:
    from torch import Tensor

    from verify.tasks.addition.model import Adder

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


def apart_from_factors(x: Array, arithmetic: RoundedArithmetic) -> Array:
    """Bounds how far numbers of these sizes, kept with more bits where they are added, are from themselves as factors.

    A skip connection may add what a kernel still holds with 2p + 2 bits; a factor of a matrix product has p of them.
    """
    return np.where(x > 0, arithmetic.stored.u * x + arithmetic.stored.tiny, 0.0) * INFLATION


def sum_error(
    x: Array, W: Array, added: tuple[Array, ...], results: Array | None, arithmetic: RoundedArithmetic
) -> Array:
    """Bounds the rounding error of x W + added in any order, by column. Two terms round once, relative to their result.

    `x` and `results` bound absolute values. Infinite where the sum of absolute values leaves the format. Where factors
    are rounded, a computed one is off by v of itself, a stored one by what is known, and the product by both; stored
    numbers that are subnormal may be read as zero.
    """
    size = x @ np.abs(W) + sum(np.abs(a) for a in added)
    terms = (x != 0).astype(float) @ (W != 0).astype(float) + sum((a != 0).astype(float) for a in added)
    is_hard = (x != 0).astype(float) @ (~is_power_of_two(W)).astype(float) > 0
    adds = np.maximum(terms - 1, 0)
    is_plain = arithmetic.inner is arithmetic.stored
    roundings = adds + is_hard + (0 if is_plain else 1)
    error = np.where(roundings > 0, arithmetic.growth(roundings, 2), 0.0) * size
    if results is not None and is_plain:
        before = arithmetic.growth(np.maximum(roundings - 1, 0)) * size
        error = np.where(roundings > 0, before + arithmetic.stored.u * (results + before) * INFLATION, 0.0)
    v = arithmetic.operand.u if arithmetic.rounds_factors else 0.0
    moved = np.abs(W - rounded(W, arithmetic.operand)) + arithmetic.flush_loss(W)
    error = error + x @ (v * np.abs(W) + (1 + v) * moved) * (1 + arithmetic.growth(roundings, 2))
    error = error + sum(arithmetic.flush_loss(a) for a in added)
    error = (error + arithmetic.underflow(2 * terms) * 2) * INFLATION
    return np.where((size + error) * INFLATION <= arithmetic.stored.largest, error, np.inf)
