"""One string in real arithmetic, operation by operation in balls of any precision: the judge of counterexamples."""

from __future__ import annotations

import numpy as np
from flint import arb, arb_mat, ctx

from constructions.contextual.transformer import BOS
from verify.arithmetic.slack import Array

PRECISION = 400


def margins(W: dict[str, Array], tokens: list[int], right: list[int]) -> list[arb]:
    """(logit of the right count) - (largest other logit) for every prompt, as balls.

    Shapes: tokens without BOS; right, one count for each prompt.
    """
    with ctx.workprec(PRECISION):
        M = {name: _matrix(np.atleast_2d(value)) for name, value in W.items()}
        row = [BOS, *tokens]
        x = _matrix(W["E"][row]) + _matrix(W["positions"][: len(row)])
        x = x + _mean(x * M["W_Q"], x * M["W_K"], x * M["W_V"]) * M["W_O"]
        pre = x * M["W_1"] + _repeated(M["b_1"], len(row))
        hidden = arb_mat(pre.nrows(), pre.ncols(), [(z + abs(z)) / 2 for z in pre.entries()])
        x = x + hidden * M["W_2"] + _repeated(M["b_2"], len(row))
        output = _mean(M["P"] * M["U_Q"], x * M["U_K"], x * M["U_V"])
        logits = output * M["W_out"] + _repeated(M["b_out"], output.nrows())
        return [_margin([logits[r, c] for c in range(logits.ncols())], k) for r, k in enumerate(right)]


def _matrix(x: Array) -> arb_mat:
    return arb_mat(x.shape[0], x.shape[1], [arb(float(value)) for value in x.ravel()])


def _repeated(row: arb_mat, n: int) -> arb_mat:
    return arb_mat(n, row.ncols(), row.entries() * n)


def _mean(queries: arb_mat, keys: arb_mat, values: arb_mat) -> arb_mat:
    """The softmax of all scores, times the values."""
    scores = queries * keys.transpose()
    out = []
    for i in range(scores.nrows()):
        row = [scores[i, j] for j in range(scores.ncols())]
        top = max(row, key=lambda s: float(s.mid()))
        weights = [(s - top).exp() for s in row]
        total = sum(weights, arb(0))
        for h in range(values.ncols()):
            out.append(sum((w * values[j, h] for j, w in enumerate(weights)), arb(0)) / total)
    return arb_mat(scores.nrows(), values.ncols(), out)


def _margin(logits: list[arb], right: int) -> arb:
    others = [x for c, x in enumerate(logits) if c != right]
    least = logits[right] - others[0]
    for other in others[1:]:
        least = least.min(logits[right] - other)
    return least
