"""One string through any trained recurrent network with 60 digits, one number at a time, in mpmath."""

from __future__ import annotations

from mpmath import exp, log, mp, mpf, tanh

DIGITS = 60


def sigmoid(x):
    return 1 / (1 + exp(-x))


def numbers(x):
    return [numbers(y) for y in x] if isinstance(x, list) else mpf(x)


def times(W, x):
    return [sum((w * h for w, h in zip(row, x, strict=True)), mpf(0)) for row in W]


def plus(*parts):
    return [sum(terms) for terms in zip(*parts, strict=True)]


def _cell(kind, activation, layer, x, h, c):
    W_x, W_h, b_x, b_h = layer
    given, recurrent, H = plus(times(W_x, x), b_x), plus(times(W_h, h), b_h), len(h)
    if kind == "rnn":
        return [tanh(a) if activation == "tanh" else max(a, mpf(0)) for a in plus(given, recurrent)], c
    if kind == "gru":
        r, z = ([sigmoid(given[k * H + j] + recurrent[k * H + j]) for j in range(H)] for k in (0, 1))
        n = [tanh(given[2 * H + j] + r[j] * recurrent[2 * H + j]) for j in range(H)]
        return [(1 - z[j]) * n[j] + z[j] * h[j] for j in range(H)], c
    a = plus(given, recurrent)
    i, f, o = ([sigmoid(y) for y in a[k * H : k * H + H]] for k in (0, 1, 3))
    c = [f[j] * c[j] + i[j] * tanh(a[2 * H + j]) for j in range(H)]
    return [o[j] * tanh(c[j]) for j in range(H)], c


def _gated(kind, cell, token):
    """What a token keeps, adds and reads."""
    if kind == "mamba":
        step = [log(1 + exp(d)) for d in cell["delta"][token]]
        keep = [exp(-s * exp(a)) for s, a in zip(step, cell["A"], strict=True)]
        return keep, [s * b for s, b in zip(step, cell["B"][token], strict=True)], cell["C"][token]
    if kind == "rwkv":
        add = [k * v for k, v in zip(cell["k"][token], cell["v"][token], strict=True)]
        return [exp(-exp(w)) for w in cell["w"][token]], add, cell["r"][token]
    return cell["a"], cell["u"][token], cell["c"]


def states(model, string):
    """What is read of the state after each token."""
    stored = {name: numbers(value.double().tolist()) for name, value in model.state_dict().items()}
    zero = [mpf(0)] * model.hidden
    if not hasattr(model.cell, "weight_ih_l0"):
        cell, h = {name.removeprefix("cell."): value for name, value in stored.items()}, zero
        for token in string:
            keep, add, read = _gated(model.kind, cell, token)
            h = [f * x + a for f, x, a in zip(keep, h, add, strict=True)]
            yield [r * x for r, x in zip(read, h, strict=True)]
        return
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    layers = [[stored[f"cell.{name}_l{k}"] for name in names] for k in range(model.layers)]
    own = [(zero, zero)] * model.layers
    for token in string:
        x = [mpf(1)] if model.inputs == 1 else [mpf(int(j == token)) for j in range(model.inputs)]
        x = stored["embedding.weight"][token] if model.types else x
        for k, layer in enumerate(layers):
            own[k] = _cell(model.kind, model.activation, layer, x, *own[k])
            x = own[k][0]
        yield x


def gap(model, string, right):
    """(right logit) - (largest other) after a string."""
    with mp.workdps(DIGITS):
        for y in states(model, string):
            last = y
        V, b = (numbers(value.double().tolist()) for value in (model.readout.weight, model.readout.bias))
        logits = plus(times(V, last), b)
        return logits[right] - max(x for j, x in enumerate(logits) if j != right)
