"""The first wrong length of a line of one token by a run with 150 digits, in python-flint, for cells of one layer."""

from __future__ import annotations

from flint import arb, arb_mat, ctx

DIGITS, LONGEST = 150, 100_000
SAME = 1e-120  # what a turn changes, once it is taken to stay in its cycle


def column(values):
    return arb_mat(len(values), 1, [arb(x) for x in values])


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def first_wrong(model, modulus):
    """The first wrong length up to LONGEST tokens, None for none; margins in the cycle must be far from 0."""
    with ctx.workdps(DIGITS):
        stored = {name: value.double().tolist() for name, value in model.state_dict().items()}
        W = arb_mat(stored["cell.weight_hh_l0"])
        given = column([row[0] for row in stored["cell.weight_ih_l0"]]) + column(stored["cell.bias_ih_l0"])
        own = column(stored["cell.bias_hh_l0"])
        V, b = arb_mat(stored["readout.weight"]), column(stored["readout.bias"])
        H, h = model.hidden, [arb(0)] * model.hidden
        c, before, ago = h, None, []
        x = given.entries()
        for t in range(LONGEST):
            u = (W * arb_mat(H, 1, h) + own).entries()
            if model.kind == "rnn":
                a = [p + q for p, q in zip(x, u, strict=True)]
                h = [y.tanh() if model.activation == "tanh" else y.max(0) for y in a]
            elif model.kind == "gru":
                r, z = ([sigmoid(x[k * H + j] + u[k * H + j]) for j in range(H)] for k in (0, 1))
                h = [(1 - z[j]) * (x[2 * H + j] + r[j] * u[2 * H + j]).tanh() + z[j] * h[j] for j in range(H)]
            else:
                a = [p + q for p, q in zip(x, u, strict=True)]
                c = [sigmoid(a[H + j]) * c[j] + sigmoid(a[j]) * a[2 * H + j].tanh() for j in range(H)]
                h = [sigmoid(a[3 * H + j]) * c[j].tanh() for j in range(H)]
            h, c = [y.mid() for y in h], [y.mid() for y in c]
            logits = (V * arb_mat(H, 1, h) + b).entries()
            right = logits[t % modulus]
            gap = min((right - y for j, y in enumerate(logits) if j != t % modulus), key=lambda y: float(y))
            assert t < 3000 or abs(gap) > 1e-60 or gap.mid() == 0
            if gap.mid() <= 0:
                return t + 1
            if (t + 1) % modulus == 0:
                now = h + c
                if before is not None:
                    change = max(float(abs(p - q)) for p, q in zip(now, before, strict=True))
                    ago = [*ago[-20:], change]
                    if change < SAME and all(y < SAME for y in ago):
                        return None
                before = now
        return None
