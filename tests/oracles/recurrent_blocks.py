"""A line of one repeated token through a trained network with 100 digits, to a length: in blocks once it repeats.

python-flint's matrices of balls, with steps of its own. Once the state after a block of `period` * k tokens is within
10^-60 of what it was a block before, and the change still shrinks, all later blocks are taken to be the same; a margin
above 10^-30 cannot change by that.
"""

from __future__ import annotations

from flint import arb, arb_mat, ctx

DIGITS = 100
SAME, BLOCKS = 1e-60, 8  # blocks of up to so many periods


def column(values):
    return arb_mat(len(values), 1, [arb(x) for x in values])


def weights(model):
    state = {name: value.double().tolist() for name, value in model.state_dict().items()}
    layers = [
        (arb_mat(state[f"cell.weight_ih_l{k}"]), arb_mat(state[f"cell.weight_hh_l{k}"]),
         column(state[f"cell.bias_ih_l{k}"]), column(state[f"cell.bias_hh_l{k}"]))
        for k in range(model.layers)
    ]  # fmt: skip
    return layers, arb_mat(state["readout.weight"]), column(state["readout.bias"])


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def points(values):
    """Their midpoints: digits and no proof."""
    return arb_mat(len(values), 1, [x.mid() for x in values])


def step(kind, layer, x, h, c):
    W_x, W_h, b_x, b_h = layer
    given, own, H = (W_x * x + b_x).entries(), (W_h * h + b_h).entries(), h.nrows()
    if kind == "rnn":
        return points([(a + b).tanh() for a, b in zip(given, own, strict=True)]), c
    if kind == "gru":
        r, z = ([sigmoid(given[k * H + j] + own[k * H + j]) for j in range(H)] for k in (0, 1))
        n = [(given[2 * H + j] + r[j] * own[2 * H + j]).tanh() for j in range(H)]
        return points([(1 - z[j]) * n[j] + z[j] * h[j, 0] for j in range(H)]), c
    a = [p + q for p, q in zip(given, own, strict=True)]
    c = points([sigmoid(a[H + j]) * c[j, 0] + sigmoid(a[j]) * a[2 * H + j].tanh() for j in range(H)])
    return points([sigmoid(a[3 * H + j]) * c[j, 0].tanh() for j in range(H)]), c


def line(model, modulus, length):
    """The first wrong length of a line, None up to `length`, and the tokens that were run one by one."""
    with ctx.workdps(DIGITS):
        layers, V, b = weights(model)
        zero = column([0.0] * model.hidden)
        own, before = [(zero, zero)] * model.layers, []
        for t in range(length):
            x = column([1.0])
            for k, layer in enumerate(layers):
                own[k] = step(model.kind, layer, x, *own[k])
                x = own[k][0]
            logits = (V * x + b).entries()
            right = t % modulus
            if max((y for j, y in enumerate(logits) if j != right), key=lambda y: float(y.mid())) >= logits[right]:
                return t + 1, t + 1
            if (t + 1) % modulus == 0:
                now = [y for parts in own for part in parts for y in part.entries()]
                for old in before:
                    if max(float(abs(y - z)) for y, z in zip(now, old, strict=True)) < SAME:
                        return None, t + 1
                before = [*before[1 - BLOCKS :], now]
        return None, length
