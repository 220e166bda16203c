"""The forward passes of the tasks' models, run with every operation rounded as a certificate names it (replay.py)."""

import math
from collections.abc import Sequence
from typing import Any

from flint import fmpq_mat

from verify.checker import replay
from verify.checker.adder import Adder
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import Head
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.replay import Replay, columns, positive

Numbers = list[list[float]]


def of_counts(on: Replay, W: dict[str, list[list[float]]], tokens: Sequence[int], position: int, d: int | None,
              is_softmax: bool) -> list[float]:  # fmt: skip
    """Logits of a model of one layer at a position; scores are divided by sqrt(d), or not at all."""
    own = W["E"][tokens[position]]
    context = W.get("e_BOS", []) + [W["E"][t] for t in tokens]
    if "A" in W:
        mixing: Sequence[float] = W["A"][position]
    else:
        q, by_key = on.sums("queries", own, columns(W["W_Q"])), columns(W["W_K"])
        keys = [on.sums("keys", x, by_key) for x in context]
        mixing = on.scores(q, keys, d) if d else on.sums("scores", q, keys)
    mixing = on.softmax(mixing) if is_softmax else mixing
    x = on.sums("mixed", mixing, columns(context), own)
    hidden = positive(on.sums("hidden", x, columns(W["W_1"]), W["b_1"][0]))
    return [on.sums(f"logit {c}", hidden, [column], [W["b_2"][0][c]])[0] for c, column in enumerate(columns(W["W_2"]))]


def floats(W: fmpq_mat) -> Numbers:
    """Numbers of a format, as they are."""
    return [[int(x.p) / int(x.q) for x in row] for row in W.tolist()]


def plus(on: Replay, x: Sequence[float], y: Sequence[float]) -> list[float]:
    """The sum of two tensors."""
    return [on.tensor(on.add(a, b)) for a, b in zip(x, y, strict=True)]


def of_adder(on: Replay, model: Adder, tokens: Sequence[int]) -> Numbers:
    """Logits at every position. Later positions have the score -infinity."""
    E, places = floats(model.E), floats(model.positions)
    x = [plus(on, E[t], places[i]) for i, t in enumerate(tokens)]
    for layer in model.layers:
        attended = [_heads(on, x, i, layer.heads) for i in range(len(x))]
        x = [plus(on, row, found) for row, found in zip(x, attended, strict=True)] if model.skip else attended
        if layer.b_1.ncols():
            W_1, W_2, b_1 = columns(floats(layer.W_1)), columns(floats(layer.W_2)), floats(layer.b_1)[0]
            written = [on.sums("", positive(on.sums("", row, W_1, b_1)), W_2) for row in x]
            x = [plus(on, row, found) for row, found in zip(x, written, strict=True)] if model.skip else written
        elif not model.skip:
            x = [[0.0] * len(row) for row in x]
    W_out, b_out = columns(floats(model.W_out)), floats(model.b_out)[0]
    return [on.sums("", row, W_out, b_out) for row in x]


def _heads(on: Replay, x: Numbers, i: int, heads: Sequence[Head]) -> list[float]:
    """What the heads write at a position, added one after the other."""
    found: list[list[float]] = []
    for head in heads:
        W_Q, W_K, W_V, W_O = (columns(floats(W)) for W in head)
        scores = on.sums("", on.sums("", x[i], W_Q), [on.sums("", row, W_K) for row in x])
        shares = on.softmax([s if j <= i else -math.inf for j, s in enumerate(scores)])
        mean = on.sums("", shares, columns([on.sums("", row, W_V) for row in x]))
        found.append(on.sums("", mean, W_O))
    total = found[0]
    for part in found[1:]:
        total = plus(on, total, part)
    return total


def check_answers(c: dict[str, Any], fmt: BinaryFormat, model: Adder, tokens: Sequence[int], right: Sequence[int]) -> list[int]:
    """What an adder answers at its last positions, in the evaluation that is named.

    Raises: Refusal where all answers are right, or the least margin is another one.
    """
    on = replay.replay_of(c, fmt)
    rows = of_adder(on, model, tokens)[-len(right) :]
    on.ended()
    require(not any(math.isnan(x) for row in rows for x in row), "a logit is no number", NOT_CHECKABLE)
    gaps = [row[k] - max(x for j, x in enumerate(row) if j != k) for row, k in zip(rows, right, strict=True)]
    replay.check_margin(c["margin"], min(gaps), True)
    return [row.index(max(row)) for row in rows]
