"""Recurrent cells with 120 digits, one number at a time: what `recurrent_cells` computes in floats, in mpmath."""

from __future__ import annotations

from mpmath import exp, mp, mpf, tanh

DIGITS = 120


def sigmoid(x):
    return 1 / (1 + exp(-x))


def step(kind, weights, state, activation, near=lambda h: h, sigmoid=sigmoid):
    """One step of a one-layer cell whose input is the constant 1; `near` is what a state is as a factor of W_h."""
    W_x, W_h, b_x, b_h = weights
    H = len(state[0])
    given = [row[0] + b for row, b in zip(W_x, b_x, strict=True)]
    factors = [near(h) for h in state[0]]
    recurrent = [sum(w * h for w, h in zip(row, factors, strict=True)) + b for row, b in zip(W_h, b_h, strict=True)]
    if kind == "gru":
        r, z = ([sigmoid(given[k * H + j] + recurrent[k * H + j]) for j in range(H)] for k in (0, 1))
        n = [tanh(given[2 * H + j] + r[j] * recurrent[2 * H + j]) for j in range(H)]
        return [[(1 - z[j]) * n[j] + z[j] * state[0][j] for j in range(H)]]
    a = [x + y for x, y in zip(given, recurrent, strict=True)]
    if kind == "rnn":
        return [[tanh(x) if activation == "tanh" else max(x, mpf(0)) for x in a]]
    i, f, o = ([sigmoid(x) for x in a[k * H : k * H + H]] for k in (0, 1, 3))
    c = [f[j] * state[1][j] + i[j] * tanh(a[2 * H + j]) for j in range(H)]
    return [[o[j] * tanh(c[j]) for j in range(H)], c]


def stored_numbers(model):
    """The cell's four tensors, the readout's weight, and its bias, as lists of numbers with digits."""

    def numbers(x):
        return [numbers(y) for y in x] if isinstance(x, list) else mpf(x)

    stored = {name: numbers(value.double().tolist()) for name, value in model.state_dict().items()}
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return [stored[f"cell.{name}"] for name in names], stored["readout.weight"], stored["readout.bias"]


def margins(model, modulus, steps):
    """(right logit) - (largest other) after 1, 2, ... steps tokens, class j standing for the answer j + 1."""
    with mp.workdps(DIGITS):
        weights, V, b = stored_numbers(model)
        state = [[mpf(0)] * model.hidden for _ in range(2 if model.kind == "lstm" else 1)]
        found = []
        for t in range(steps):
            state = step(model.kind, weights, state, model.activation)
            logits = [sum(w * h for w, h in zip(row, state[0], strict=True)) + c for row, c in zip(V, b, strict=True)]
            right = t % modulus
            found.append(logits[right] - max(x for j, x in enumerate(logits) if j != right))
        return found
