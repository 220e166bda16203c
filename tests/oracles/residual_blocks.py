"""Stacks of S4, Mamba and RWKV-6 blocks on whole strings, with a hundred digits: sums over all tokens before, no state.

Each block maps the list of its inputs to the list of its outputs. Scans are written out as sums of products, S4 as a
convolution with complex powers, so that nothing here goes step by step as the modules do.
"""

from __future__ import annotations

from mpmath import erf, exp, log, mp, mpc, mpf, sqrt, tanh

DIGITS = 100
EPS = mpf(1e-5)  # the double, exactly


def numbers(x):
    return [numbers(y) for y in x] if isinstance(x, list) else mpf(x)


def times(W, x, b=None):
    return [
        sum((w * y for w, y in zip(row, x, strict=True)), b[i] if b else mpf(0)) for i, row in enumerate(W)
    ]  # fmt: skip


def left(x, W):
    return [sum((x[i] * W[i][j] for i in range(len(x))), mpf(0)) for j in range(len(W[0]))]


def sigmoid(x):
    return 1 / (1 + exp(-x))


def plus(x, y):
    return [a + b for a, b in zip(x, y, strict=True)]


def layer_norm(x, w, b, eps=EPS):
    mean = sum(x) / len(x)
    root = sqrt(sum((v - mean) ** 2 for v in x) / len(x) + eps)
    return [(v - mean) / root * a + c for v, a, c in zip(x, w, b, strict=True)]


def rms_norm(x, w):
    root = sqrt(sum(v * v for v in x) / len(x) + EPS)
    return [v / root * a for v, a in zip(x, w, strict=True)]


def s4(p, xs):
    d, half = len(p["D"]), len(p["kernel.A_imag"][0])
    A = [[mpc(-exp(p["kernel.log_A_real"][i][n]), p["kernel.A_imag"][i][n]) for n in range(half)] for i in range(d)]
    dt = [exp(v) for v in p["kernel.log_dt"]]
    C = [[mpc(*p["kernel.C"][i][n]) * (exp(A[i][n] * dt[i]) - 1) / A[i][n] for n in range(half)] for i in range(d)]
    K = [
        [2 * sum((C[i][n] * exp(A[i][n] * dt[i] * lag)).real for n in range(half)) for i in range(d)]
        for lag in range(len(xs))
    ]
    found = []
    for t, x in enumerate(xs):
        y = [sum(K[t - s][i] * xs[s][i] for s in range(t + 1)) + p["D"][i] * x[i] for i in range(d)]
        y = [v * (1 + erf(v / sqrt(mpf(2)))) / 2 for v in y]
        z = times([[w[0] for w in row] for row in p["output_linear.0.weight"]], y, p["output_linear.0.bias"])
        out = [v + z[i] * sigmoid(z[d + i]) for i, v in enumerate(x)]
        found.append(layer_norm(out, p["norm.weight"], p["norm.bias"]))
    return found


def mamba(p, xs):
    m = {name.removeprefix("mixer."): value for name, value in p.items()}
    inner, N, window = len(m["A_log"]), len(m["A_log"][0]), len(m["conv1d.weight"][0][0])
    rank = len(m["dt_proj.weight"][0])
    both = [times(m["in_proj.weight"], rms_norm(x, p["norm.weight"])) for x in xs]
    u, dts, Bs, Cs = [], [], [], []
    for t in range(len(xs)):
        row = [
            m["conv1d.bias"][i]
            + sum(m["conv1d.weight"][i][0][window - 1 - lag] * both[t - lag][i] for lag in range(min(window, t + 1)))
            for i in range(inner)
        ]
        u.append([v * sigmoid(v) for v in row])
        read = times(m["x_proj.weight"], u[-1])
        dts.append([log(1 + exp(v)) for v in times(m["dt_proj.weight"], read[:rank], m["dt_proj.bias"])])
        Bs.append(read[rank : rank + N])
        Cs.append(read[rank + N :])
    found = []
    for t, x in enumerate(xs):
        y = []
        for i in range(inner):
            total = m["D"][i] * u[t][i]
            for s in range(t + 1):
                elapsed = sum((dts[q][i] for q in range(s + 1, t + 1)), mpf(0))
                total += sum(
                    Cs[t][n] * exp(-elapsed * exp(m["A_log"][i][n])) * dts[s][i] * Bs[s][n] * u[s][i] for n in range(N)
                )
            gate = both[t][inner + i]
            y.append(total * gate * sigmoid(gate))
        found.append(plus(x, times(m["out_proj.weight"], y)))
    return found


def shifted(xs, t):
    return xs[t - 1] if t else [mpf(0)] * len(xs[0])


def rwkv(p, xs):
    a = {name.removeprefix("att."): value for name, value in p.items()}
    f = {name.removeprefix("ffn."): value for name, value in p.items()}
    d, heads = len(xs[0]), len(a["time_faaaa"])
    size = d // heads
    read = [layer_norm(x, p["ln1.weight"], p["ln1.bias"]) for x in xs]
    w, k, v, r, g = [], [], [], [], []
    for t, x in enumerate(read):
        ahead = [b - c for b, c in zip(shifted(read, t), x, strict=True)]
        base = [c + e * s for c, e, s in zip(x, ahead, a["time_maa_x"][0][0], strict=True)]
        low = [tanh(c) for c in left(base, a["time_maa_w1"])]
        rank = len(low) // 5

        of = [
            [c + e * s for c, e, s in zip(x, ahead, plus(
                a[f"time_maa_{name}"][0][0], left(low[i * rank : i * rank + rank], a["time_maa_w2"][i])), strict=True)]
            for i, name in enumerate("wkvrg")
        ]  # fmt: skip
        decay = left([tanh(c) for c in left(of[0], a["time_decay_w1"])], a["time_decay_w2"])
        w.append([exp(-exp(c)) for c in plus(a["time_decay"][0][0], decay)])
        k.append(times(a["key.weight"], of[1]))
        v.append(times(a["value.weight"], of[2]))
        r.append(times(a["receptance.weight"], of[3]))
        g.append(times(a["gate.weight"], of[4]))
    middle = []
    for t, x in enumerate(xs):
        out = []
        for h in range(heads):
            places = range(h * size, h * size + size)
            head = []
            for j in places:
                total = mpf(0)
                for i in places:
                    total += r[t][i] * a["time_faaaa"][h][i - h * size] * k[t][i] * v[t][j]
                    for s in range(t):
                        kept = mpf(1)
                        for q in range(s + 1, t):
                            kept *= w[q][i]
                        total += r[t][i] * kept * k[s][i] * v[s][j]
                head.append(total)
            out += layer_norm(
                head, [a["ln_x.weight"][i] for i in places], [a["ln_x.bias"][i] for i in places], 64 * EPS
            )
        middle.append(plus(x, times(a["output.weight"], [y * z * sigmoid(z) for y, z in zip(out, g[t], strict=True)])))
    later, found = [layer_norm(x, p["ln2.weight"], p["ln2.bias"]) for x in middle], []
    for t, x in enumerate(middle):
        k_read, r_read = (
            [b + (c - b) * s for b, c, s in zip(later[t], shifted(later, t), f[f"time_maa_{name}"][0][0], strict=True)]
            for name in "kr"
        )
        hidden = [max(c, mpf(0)) ** 2 for c in times(f["key.weight"], k_read)]
        gates = [sigmoid(c) for c in times(f["receptance.weight"], r_read)]
        found.append([b + c * y for b, c, y in zip(x, gates, times(f["value.weight"], hidden), strict=True)])
    return found


BLOCKS = {"s4": s4, "mamba": mamba, "rwkv": rwkv}


def logits(model, string):
    """The logits after each token of a string."""
    with mp.workdps(DIGITS):
        state = {name: numbers(value.double().tolist()) for name, value in model.state_dict().items()}
        xs = [state["embedding.weight"][token] for token in string]
        if model.kind == "rwkv":
            xs = [layer_norm(x, state["first.weight"], state["first.bias"]) for x in xs]
        for b in range(model.layers):
            own = f"blocks.{b}."
            xs = BLOCKS[model.kind]({n.removeprefix(own): x for n, x in state.items() if n.startswith(own)}, xs)
        if model.kind == "rwkv":
            xs = [layer_norm(x, state["norm.weight"], state["norm.bias"]) for x in xs]
        if model.kind == "mamba":
            xs = [rms_norm(x, state["norm.weight"]) for x in xs]
        return [times(state["head.weight"], x, state.get("head.bias")) for x in xs]


def wrong_at(model, string, due):
    """After how many tokens answers of a string are wrong; None of `due` is not judged."""
    return [
        t
        for t, (row, right) in enumerate(zip(logits(model, string), due, strict=True), 1)
        if right is not None and not all(row[right] > x for j, x in enumerate(row) if j != right)
    ]
