"""Forward passes of all models in balls of growing precision: no number is too small or too large for them.

A weight is an exact number. `settled` repeats a computation with more bits until it is known whether the right logit is
the largest, so that an answer is right, wrong (a tie is wrong) or, after the last of BITS, not known here. Written from
the papers' formulas: no numpy, nothing of the code under test, and of torch only the stored numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from flint import arb, ctx, fmpq

BITS = (256, 1200, 5000)
ZERO, HALF = arb(0), arb(0.5)
Row = list[arb]
Matrix = list[Row]
Differences = dict[int, arb]  # (right logit) - (the other one) for each other class


def exact(x):
    """Nested lists of numbers as exact balls."""
    return [exact(y) for y in x] if isinstance(x, list) else arb(x)


def state(module) -> dict:
    """The module's stored numbers by name, as exact balls."""
    return {name: exact(value.double().tolist()) for name, value in module.state_dict().items()}


def settled(differences: Callable[[], Differences], most: int = BITS[-1]) -> Differences:
    """The differences at the first of BITS that tells whether all are positive, or at the last."""
    found: Differences = {}
    for bits in (*(b for b in BITS if b < most), most):
        with ctx.workprec(bits):
            found = differences()
            if is_right(found) is not None:
                break
    return found


def is_right(differences: Differences) -> bool | None:
    """Whether every other logit is smaller; None where that is not known."""
    if all(d > 0 for d in differences.values()):
        return True
    return False if any(d <= 0 for d in differences.values()) else None


def margin(differences: Differences) -> arb:
    """The least difference: a ball that holds it, not a number where one is none."""
    with ctx.workprec(BITS[-1]):
        least = arb("inf")
        for d in differences.values():
            least = d if d.is_nan() else least.min(d)
        return least


def number(x: float | str | Fraction) -> arb:
    """A number that a certificate names, with many bits."""
    with ctx.workprec(4 * BITS[-1]):
        if isinstance(x, float):
            return arb(x)
        x = Fraction(x)
        return arb(fmpq(x.numerator, x.denominator))


# Layers


def dot(x: Iterable[arb], y: Iterable[arb]) -> arb:
    """Products with a factor of exactly 0 are exactly 0."""
    return sum((a * b for a, b in zip(x, y, strict=True) if not a.is_zero() and not b.is_zero()), ZERO)


def times(x: Row, W: Matrix) -> Row:
    return [dot(x, column) for column in zip(*W, strict=True)]


def plus(*rows: Row) -> Row:
    return [sum(column[1:], column[0]) for column in zip(*rows, strict=True)]


def relu(x: Row) -> Row:
    return [a.max(ZERO) for a in x]


def gelu(x: Row) -> Row:
    """x (1 + erf(x / sqrt 2)) / 2, by erfc, which keeps the leading bits far out on the left."""
    root = arb(2).sqrt()
    return [a * HALF * (-a / root).erfc() for a in x]


def sigmoid(x: Row) -> Row:
    """1 / (1 + e^-x), and e^x / (1 + e^x) on the left."""
    return [1 / (1 + (-a).exp()) if a.mid() >= 0 else a.exp() / (1 + a.exp()) for a in x]


def tanh(x: Row) -> Row:
    return [a.tanh() for a in x]


def softmax(scores: Row) -> Row:
    top = max(scores, key=lambda s: s.mid())
    weights = [(s - top).exp() for s in scores]
    total = sum(weights, ZERO)
    return [w / total for w in weights]


def layer_norm(x: Row, weight: Row, bias: Row, eps: arb) -> Row:
    """(x - mean) / sqrt(variance + eps) weight + bias; no number where that is 0 / 0."""
    n, total = len(x), sum(x, ZERO)
    centred = [(n * a - total) / n for a in x]
    root = (dot(centred, centred) / n + eps).sqrt()
    return [c / root * w + b for c, w, b in zip(centred, weight, bias, strict=True)]


def read(x: Row, W: Matrix, b: Row | None, right: int) -> Differences:
    """Columns that are equal leave a difference of exactly 0."""
    rows = [*W] if b is None else [*W, b]
    x = x if b is None else [*x, arb(1)]
    others = (c for c in range(len(rows[0])) if c != right)
    return {c: dot(x, [row[right] - row[c] for row in rows]) for c in others}


def attend(query: Row, keys: Matrix, values: Matrix, divisor: arb | None = None) -> Row:
    scores = [dot(query, key) for key in keys]
    return times(softmax(scores if divisor is None else [s / divisor for s in scores]), values)


def feed_forward(x: Row, W_1: Matrix, b_1: Row, W_2: Matrix) -> Row:
    return times(relu(plus(times(x, W_1), b_1)), W_2) if b_1 else [ZERO] * len(x)


# Models; `w` is their state, `right` the column of the right class


def histogram(w: dict, kind: str, tokens: Sequence[int], position: int, right: int) -> Differences:
    x = w["E"][tokens[position]]
    context = ([w["e_BOS"]] if kind.startswith("bos") else []) + [w["E"][t] for t in tokens]
    if kind.startswith("lin"):
        scores = w["A"][position]
    else:
        q = times(x, w["W_Q"])
        scores = [dot(q, times(c, w["W_K"])) / arb(len(x)).sqrt() for c in context]
    x = plus(x, times(softmax(scores) if kind.endswith("sftm") else scores, context))
    return read(relu(plus(times(x, w["W_1"]), w["b_1"])), w["W_2"], w["b_2"], right)


def parity(w: dict, tokens: Sequence[int], position: int, right: int) -> Differences:
    x, context = w["E"][tokens[position]], [w["E"][t] for t in tokens]
    q = times(x, w["W_Q"])
    x = plus(x, times([dot(q, times(c, w["W_K"])) for c in context], context))
    return read(relu(plus(times(x, w["W_1"]), w["b_1"])), w["W_2"], w["b_2"], right)


def contextual(w: dict, tokens: Sequence[int], prompt: int, right: int, is_causal: bool) -> Differences:
    """Tokens with BOS, where there is one; both the causal encoder and the one with positions."""
    x = [w["E"][t] for t in tokens]
    if not is_causal:
        x = [plus(row, place) for row, place in zip(x, w["positions"], strict=False)]
    keys, values = [times(row, w["W_K"]) for row in x], [times(row, w["W_V"]) for row in x]
    stream = []
    for i, row in enumerate(x):
        seen = i + 1 if is_causal else len(x)
        row = plus(row, times(attend(times(row, w["W_Q"]), keys[:seen], values[:seen]), w["W_O"]))
        stream.append(plus(row, feed_forward(row, w["W_1"], w["b_1"], w["W_2"]), w["b_2"]))
    query = times(w["P"][prompt], w["U_Q"])
    found = attend(query, [times(row, w["U_K"]) for row in stream], [times(row, w["U_V"]) for row in stream])
    return read(found, w["W_out"], w["b_out"], right)


def positional(w: dict, tokens: Sequence[int], prompt: int, right: int) -> Differences:
    """Tokens with BOS; causal, with positions, rotations, a slope, and an MLP behind the decoder's attention."""
    x = [plus(w["E"][t], place) for t, place in zip(tokens, w["positions"], strict=False)]

    def turned(row: Row, i: int) -> Row:
        out = []
        for a, b, c, s in zip(row[::2], row[1::2], w["cosines"][i], w["sines"][i], strict=True):
            out += [dot([a, -b], [c, s]), dot([a, b], [s, c])]
        return out

    queries, keys = ([turned(times(row, w[name]), i) for i, row in enumerate(x)] for name in ("W_Q", "W_K"))
    values, stream = [times(row, w["W_V"]) for row in x], []
    for i, row in enumerate(x):
        away = [-w["slope"] * (i - j) for j in range(i + 1)]
        shares = softmax([dot(queries[i], keys[j]) + away[j] for j in range(i + 1)])
        row = plus(row, times(times(shares, values[: i + 1]), w["W_O"]))
        stream.append(plus(row, feed_forward(row, w["W_1"], w["b_1"], w["W_2"]), w["b_2"]))
    query = times(w["P"][prompt], w["U_Q"])
    z = attend(query, [times(row, w["U_K"]) for row in stream], [times(row, w["U_V"]) for row in stream])
    return read(plus(z, feed_forward(z, w["W_3"], w["b_3"], w["W_4"]), w["b_4"]), w["W_out"], w["b_out"], right)


def count01(w: dict, tokens: Sequence[int], right: int) -> Differences:
    """After the last token."""
    seen = {t: w["E"][t] for t in set(tokens)}
    if "norm_weight" in w:
        seen = {t: layer_norm(x, w["norm_weight"], w["norm_bias"], w["norm_eps"]) for t, x in seen.items()}
    divisor = w["score_divisor"].sqrt() if "score_divisor" in w else None
    out = [w["E"][tokens[-1]]] if w["skip"] > 0 else []
    for W_Q, W_K, W_V, W_O in zip(w["W_Q"], w["W_K"], w["W_V"], w["W_O"], strict=True):
        keys, values = ({t: times(x, W) for t, x in seen.items()} for W in (W_K, W_V))
        found = attend(times(seen[tokens[-1]], W_Q), [keys[t] for t in tokens], [values[t] for t in tokens], divisor)
        out.append(times(found, W_O))
    return read(plus(*out), w["W_out"], w["b_out"], right)


def adder(w: dict, tokens: Sequence[int], position: int, right: int) -> Differences:
    x = [plus(w["E"][t], place) for t, place in zip(tokens[: position + 1], w["positions"], strict=False)]
    layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("layers."))
    for k in range(layers):
        layer = {name: w[f"layers.{k}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2")}
        heads = list(zip(*(layer[name] for name in ("W_Q", "W_K", "W_V", "W_O")), strict=True))
        kept = [[[times(row, W_K) for row in x], [times(row, W_V) for row in x]] for _, W_K, W_V, _ in heads]
        after = []
        for i in range(position if k == layers - 1 else 0, position + 1):
            found = [
                times(attend(times(x[i], W_Q), keys[: i + 1], values[: i + 1]), W_O)
                for (W_Q, _, _, W_O), (keys, values) in zip(heads, kept, strict=True)
            ]
            row = plus(*([x[i]] if w["skip"] > 0 else []), *found)
            written = feed_forward(row, layer["W_1"], layer["b_1"], layer["W_2"])
            after.append(plus(row, written) if w["skip"] > 0 else written)
        x = after
    return read(x[-1], w["W_out"], w["b_out"], right)


def decoder(w: dict, layout: dict, tokens: Sequence[int], position: int, right: int, shift: int = 0) -> Differences:
    """A pre-norm decoder; `layout` has pe (nope, ape or spe), bos, heads, d_head, layers, activation, eps or None."""
    heads, d_head, eps = layout["heads"], layout["d_head"], layout["eps"]
    tokens = [len(w["W_E"]) - 1] * layout["bos"] + list(tokens[: position + 1])
    x = [w["W_E"][t] for t in tokens]
    if layout["pe"] == "ape":
        x = [plus(row, place) for row, place in zip(x, w["W_pos"][shift:], strict=False)]
    if layout["pe"] == "spe":
        x = [[*row, arb(shift + i + 1)] for i, row in enumerate(x)]

    def normed(row: Row, name: str) -> Row:
        return row if eps is None else layer_norm(row, w[f"{name}.weight"], w[f"{name}.bias"], arb(eps))

    def affine(row: Row, name: str, letter: str) -> Row:
        y = times(row, w[f"{name}.W_{letter}"])
        return plus(y, w[f"{name}.b_{letter}"]) if f"{name}.b_{letter}" in w else y

    for k in range(layout["layers"]):
        at, seen = f"blocks.{k}.attention", [normed(row, f"blocks.{k}.norm_1") for row in x]
        q, keys, values = ([affine(row, at, letter) for row in seen] for letter in "QKV")
        after = []
        for i in range(len(x) - 1 if k == layout["layers"] - 1 else 0, len(x)):
            found: Row = []
            for h in range(heads):
                own = slice(h * d_head, h * d_head + d_head)
                past = [key[own] for key in keys[: i + 1]], [value[own] for value in values[: i + 1]]
                found += attend(q[i][own], *past, arb(d_head**0.5))
            row = plus(x[i], affine(found, at, "O"))
            if f"blocks.{k}.mlp.W_in" in w:
                y = normed(row, f"blocks.{k}.norm_2")
                y = {"relu": relu, "gelu": gelu}[layout["activation"]](affine(y, f"blocks.{k}.mlp", "in"))
                row = plus(row, affine(y, f"blocks.{k}.mlp", "out"))
            after.append(row)
        x = after
    return read(normed(x[-1], "norm"), w["W_U"], w.get("b_U"), right)


def recurrent(w: dict, kind: str, activation: str, tokens: Sequence[int], right: int) -> Differences:
    """One layer of cells from the state 0; tokens are one-hot, or the constant 1 where there is one input."""
    hidden, inputs = len(w["readout.weight"][0]), len(w["cell.weight_ih_l0"][0])
    h, c = [ZERO] * hidden, [ZERO] * hidden
    turned = [list(column) for column in zip(*w["readout.weight"], strict=True)]
    for t in tokens:
        x = [arb(1)] if inputs == 1 else [arb(int(i == t)) for i in range(inputs)]
        given = [dot(row, x) + b for row, b in zip(w["cell.weight_ih_l0"], w["cell.bias_ih_l0"], strict=True)]
        past = [dot(row, h) + b for row, b in zip(w["cell.weight_hh_l0"], w["cell.bias_hh_l0"], strict=True)]
        parts = [slice(i, i + hidden) for i in range(0, len(given), hidden)]
        both = plus(given, past)
        if kind == "rnn":
            h = {"tanh": tanh, "relu": relu}[activation](both)
        elif kind == "gru":
            r, z = sigmoid(both[parts[0]]), sigmoid(both[parts[1]])
            n = tanh([a + b * k for a, b, k in zip(given[parts[2]], r, past[parts[2]], strict=True)])
            h = [(1 - a) * b + a * old for a, b, old in zip(z, n, h, strict=True)]
        else:
            i, f, o = (sigmoid(both[parts[k]]) for k in (0, 1, 3))
            c = [a * old + b * new for a, old, b, new in zip(f, c, i, tanh(both[parts[2]]), strict=True)]
            h = [a * b for a, b in zip(o, tanh(c), strict=True)]
    return read(h, turned, w["readout.bias"], right)


def circuit(w: dict, tokens: Sequence[int], right: int) -> Differences:
    """How far coordinate 3 after the last token is on the right side of 1/2; at exactly 1/2 it is 0, rightly."""
    x = [plus(w["E"][t], place) for t, place in zip(tokens, w["P"], strict=False)]
    for k in (0, 1):
        W = {name: w[f"layers.{k}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2")}
        keys, values = [times(row, W["W_K"]) for row in x], [times(row, W["W_V"]) for row in x]
        after = []
        for i in range(len(x)):
            found = attend(times(x[i], W["W_Q"]), keys[: i + 1], values[: i + 1])
            row = plus(x[i], times(found, W["W_O"]))
            after.append(plus(row, feed_forward(row, W["W_1"], W["b_1"], W["W_2"]), W["b_2"]))
        x = after
    g = x[-1][3] - HALF
    return {0: g} if right else {} if g.is_zero() else {1: -g}
