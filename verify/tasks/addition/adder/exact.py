"""One input through an adder in real arithmetic, in balls of growing precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, arb_mat, ctx

from constructions.adder.transformer import AdderTransformer
from verify.arithmetic.exact_reals import float_above, float_below

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


def answers(
    model: AdderTransformer, tokens: Sequence[int], queries: Sequence[int], right: Sequence[int]
) -> list[Answer]:
    """The outputs at some positions of one input, against the right classes."""
    found: list[Answer] = []
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            rows = _logits(model, list(tokens))
            found = [
                _answer([rows[q, c] for c in range(model.classes)], r) for q, r in zip(queries, right, strict=True)
            ]
        if all(answer.is_right is not None for answer in found):
            break
    return found


def _answer(logits: list[arb], right: int) -> Answer:
    apart = [logits[right] - y for c, y in enumerate(logits) if c != right]
    is_right = True if all(x > 0 for x in apart) else False if any(x <= 0 for x in apart) else None
    largest = [c for c, y in enumerate(logits) if all(y >= z for j, z in enumerate(logits) if j != c)]
    least = min(map(float_below, apart), default=math.inf)
    at_most = min(map(float_above, apart), default=math.inf)
    return Answer(largest[0] if largest else None, least, is_right, at_most)


def _logits(model: AdderTransformer, tokens: list[int]) -> arb_mat:
    """Logits of every position."""
    E, P = model.E.double().tolist(), model.positions.double().tolist()
    n = len(tokens)
    x = arb_mat([[arb(e) + arb(p) for e, p in zip(E[t], P[i], strict=True)] for i, t in enumerate(tokens)])
    for layer in model.blocks:
        heads = zip(*(W.double().tolist() for W in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)), strict=True)
        attended = arb_mat(n, len(E[0]))
        for W_Q, W_K, W_V, W_O in heads:
            scores = (x * matrix(W_Q)) * (x * matrix(W_K)).transpose()
            attended = attended + _softmax(scores, n) * (x * matrix(W_V)) * matrix(W_O)
        x = x + attended if model.has_skip else attended
        if not layer.b_1.numel():
            x = x if model.has_skip else arb_mat(n, len(E[0]))
        else:
            b_1 = layer.b_1.double().tolist()
            read = x * matrix(layer.W_1.double().tolist())
            hidden = arb_mat([[_relu(read[i, k] + arb(b)) for k, b in enumerate(b_1)] for i in range(n)])
            written = hidden * matrix(layer.W_2.double().tolist())
            x = x + written if model.has_skip else written
    out = x * matrix(model.W_out.double().tolist())
    b_out = [arb(b) for b in model.b_out.double().tolist()]
    return arb_mat([[out[i, c] + b for c, b in enumerate(b_out)] for i in range(n)])


def matrix(rows: list[list[float]]) -> arb_mat:
    """A matrix of stored numbers."""
    return arb_mat([[arb(x) for x in row] for row in rows])


def _softmax(scores: arb_mat, n: int) -> arb_mat:
    rows = []
    for i in range(n):
        top = max(float(scores[i, j].mid()) for j in range(i + 1))
        weights = [(scores[i, j] - top).exp() for j in range(i + 1)]
        total = sum(weights, arb(0))
        rows.append([w / total for w in weights] + [arb(0)] * (n - i - 1))
    return arb_mat(rows)


def _relu(x: arb) -> arb:
    if x >= 0:
        return x
    return arb(0) if x <= 0 else x.union(arb(0)).max(arb(0))
