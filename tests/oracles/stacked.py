"""An LSTM with a projection, LayerNorm and an MLP head on one repeated input, in plain Python with sixty digits."""

from __future__ import annotations

from mpmath import exp, mp, mpf, sqrt, tanh


def affine(W, x, b=None):
    return [sum((mpf(w) * y for w, y in zip(row, x, strict=True)), mpf(0 if b is None else b[i]))
            for i, row in enumerate(W)]  # fmt: skip


def logits(state, steps, *, activation="relu", eps=1e-5, read=(1.0,)):
    """The logits after 1, 2, .. steps tokens, each of which is read as the same numbers.

    `state` is a state dict as lists: cell.*_l0 with weight_hr_l0 or without, input_proj, norm, and head.0, head.1, ...
    """
    found = []
    with mp.workdps(60):
        x = [mpf(y) for y in read]
        if "input_proj.weight" in state:
            x = affine(state["input_proj.weight"], x, state["input_proj.bias"])
        given = affine(state["cell.weight_ih_l0"], x, state["cell.bias_ih_l0"])
        H = len(given) // 4
        c = [mpf(0)] * H
        h = [mpf(0)] * len(state["cell.weight_hh_l0"][0])
        for _ in range(steps):
            a = [
                u + v
                for u, v in zip(given, affine(state["cell.weight_hh_l0"], h, state["cell.bias_hh_l0"]), strict=True)
            ]
            i, f, o = ([1 / (1 + exp(-u)) for u in a[k * H : k * H + H]] for k in (0, 1, 3))
            c = [f[j] * c[j] + i[j] * tanh(a[2 * H + j]) for j in range(H)]
            h = [o[j] * tanh(c[j]) for j in range(H)]
            if "cell.weight_hr_l0" in state:
                h = affine(state["cell.weight_hr_l0"], h)
            y = h
            if "norm.weight" in state:
                mean = sum(y) / len(y)
                spread = sqrt(sum((v - mean) ** 2 for v in y) / len(y) + mpf(eps))
                y = [
                    (v - mean) / spread * mpf(w) + mpf(b)
                    for v, w, b in zip(y, state["norm.weight"], state["norm.bias"], strict=True)
                ]
            depth = sum(name.startswith("head.") for name in state) // 2
            for k in range(depth):
                y = affine(state[f"head.{k}.weight"], y, state[f"head.{k}.bias"])
                if k < depth - 1:
                    y = [max(v, mpf(0)) if activation == "relu" else tanh(v) for v in y]
            found.append(y)
    return found


def first_wrong(rows, due):
    """The first length at which the right class is not ahead, None where it always is."""
    for t, row in enumerate(rows, 1):
        if not all(row[due(t)] > v for j, v in enumerate(row) if j != due(t)):
            return t
    return None
