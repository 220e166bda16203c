"""The forward passes of the tasks' models, run with every operation rounded as a certificate names it (replay.py)."""

import math
from collections.abc import Sequence
from functools import reduce

from flint import fmpq_mat

from verify.checker import replay
from verify.checker.adder import Adder
from verify.checker.forwards import Head
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.replay import Replay, columns, positive
from verify.checker.replayed_margins import check_margin, least

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
    parts = [on.sums("", mean(on, x, i, head), columns(floats(head[3]))) for head in heads]
    return reduce(lambda total, part: plus(on, total, part), parts)


def mean(on: Replay, x: Numbers, i: int, head: Sequence[fmpq_mat]) -> list[float]:
    """The values of one head that a row reads of all up to it."""
    W_Q, W_K, W_V = (columns(floats(W)) for W in head[:3])
    scores = on.sums("", on.sums("", x[i], W_Q), [on.sums("", row, W_K) for row in x])
    shares = on.softmax([s if j <= i else -math.inf for j, s in enumerate(scores)])
    return on.sums("", shares, columns([on.sums("", row, W_V) for row in x]))


def check_answers(
    on: replay.Replay, margin: float | None, model: Adder, tokens: Sequence[int], right: Sequence[int]
) -> list[int]:
    """What an adder answers at its last positions, in the evaluation that is named.

    Raises: Refusal where all answers are right, or the least margin is another one.
    """
    rows = of_adder(on, model, tokens)[-len(right) :]
    on.ended()
    require(not any(math.isnan(x) for row in rows for x in row), "a logit is no number", NOT_CHECKABLE)
    gaps = [row[k] - max(x for j, x in enumerate(row) if j != k) for row, k in zip(rows, right, strict=True)]
    check_margin(margin, least(gaps), True)
    return [row.index(max(row)) for row in rows]


def of_prompt(
    on: Replay, W: dict[str, list[fmpq_mat]], skip: bool, tokens: Sequence[int], norm: Sequence[fmpq_mat] | None
) -> list[float]:
    """Logits of a Count01 model after a prompt; what the heads read is one row for all their W_O."""
    x = [floats(W["E"][0])[t] for t in tokens]
    gain, bias, eps = (floats(part)[0] for part in norm) if norm else ([], [], [])
    seen = [on.layer_norm(row, gain, bias, *eps) for row in x] if norm else x
    heads = zip(W["W_Q"], W["W_K"], W["W_V"], strict=True)
    read = [y for head in heads for y in mean(on, seen, len(x) - 1, head)]
    stream = on.sums("", read, columns([row for part in W["W_O"] for row in floats(part)]))
    stream = plus(on, x[-1], stream) if skip else stream
    return on.sums("", stream, columns(floats(W["W_out"][0])), floats(W["b_out"][0])[0])


def of_strings(on: Replay, matrices: dict[str, fmpq_mat], tokens: Sequence[int], is_causal: bool) -> Numbers:
    """Logits of every prompt that reads a string; places are in what is embedded, and turn queries and keys."""
    W = {name: floats(x) for name, x in matrices.items()}
    by = {name: columns(x) for name, x in W.items()}
    x = [W["E"][t] for t in tokens]
    x = [plus(on, row, W["positions"][i]) for i, row in enumerate(x)] if "positions" in W else x
    queries, keys, values = ([on.sums("", row, by[name]) for row in x] for name in ("W_Q", "W_K", "W_V"))
    if "slope" in W:
        queries, keys = ([_turned(on, row, W, i) for i, row in enumerate(rows)] for rows in (queries, keys))
    stream = []
    for i, row in enumerate(x):
        seen = i + 1 if is_causal else len(x)
        scores = on.sums("", queries[i], keys[:seen])
        if "slope" in W:
            far = [on.tensor(on.times(W["slope"][0][0], float(j - i))) for j in range(seen)]
            scores = plus(on, scores, far)
        read = on.sums("", on.softmax(scores), columns(values[:seen]))
        row = plus(on, row, on.sums("", read, by["W_O"]))
        hidden = positive(on.sums("", row, by["W_1"], W["b_1"][0]))
        stream.append(plus(on, row, on.sums("", hidden, by["W_2"], W["b_2"][0])))
    keys, values = ([on.sums("", row, by[name]) for row in stream] for name in ("U_K", "U_V"))
    found = []
    for prompt in W["P"]:
        shares = on.softmax(on.sums("", on.sums("", prompt, by["U_Q"]), keys))
        z = on.sums("", shares, columns(values))
        if "W_3" in W:
            fed = positive(on.sums("", z, by["W_3"], W["b_3"][0]))
            z = plus(on, z, on.sums("", fed, by["W_4"], W["b_4"][0]))
        found.append(on.sums("", z, by["W_out"], W["b_out"][0]))
    return found


def _turned(on: Replay, x: Sequence[float], W: dict[str, Numbers], place: int) -> list[float]:
    """Each pair of coordinates, turned by its place's angle."""
    found = list[float]()
    for i, (c, s) in enumerate(zip(W["cosines"][place], W["sines"][place], strict=True)):
        found += on.sums("", x[2 * i : 2 * i + 2], [(c, -s), (s, c)])
    return found
