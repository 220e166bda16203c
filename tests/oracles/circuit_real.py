"""The circuit transformer in real arithmetic: hundreds of digits, plain lists, nothing of the code under test."""

from __future__ import annotations

import mpmath

DIGITS = 600  # an exponential of unscaled weights is at least about 10^-217


def next_tokens(state: dict, tokens: list[int], g: int = 3) -> list[int]:
    """The token after each of these, all before it being as given; a g of exactly 1/2 does not exceed it."""
    W = {name: tensor.tolist() for name, tensor in state.items()}
    with mpmath.workdps(DIGITS):
        x = [[mpmath.mpf(a) + b for a, b in zip(W["E"][t], row, strict=True)]
             for t, row in zip(tokens, W["P"], strict=False)]  # fmt: skip
        for layer in range(2):
            x = _layer({name.rsplit(".", 1)[1]: w for name, w in W.items() if name.startswith(f"layers.{layer}.")}, x)
        return [int(row[g] - mpmath.mpf(1) / 2 > mpmath.mpf(10) ** (-DIGITS // 2)) for row in x]


def _layer(w: dict, x: list) -> list:
    q, k = ([_times(row, w[name]) for row in x] for name in ("W_Q", "W_K"))
    v = [_times(row, w["W_V"])[0] for row in x]
    out = []
    for m, row in enumerate(x):
        scores = [sum(a * b for a, b in zip(q[m], key, strict=True)) for key in k[: m + 1]]
        e = [mpmath.exp(score - max(scores)) for score in scores]
        mixed = sum(a * b for a, b in zip(e, v, strict=False)) / sum(e)
        y = [a + b for a, b in zip(row, _times([mixed], w["W_O"]), strict=True)]
        h = [max(mpmath.mpf(0), a + b) for a, b in zip(_times(y, w["W_1"]), w["b_1"], strict=True)]
        out.append([a + b + c for a, b, c in zip(y, _times(h, w["W_2"]), w["b_2"], strict=True)])
    return out


def _times(row: list, W: list) -> list:
    used = [(a, weights) for a, weights in zip(row, W, strict=True) if a and any(weights)]
    return [mpmath.fsum(a * weights[j] for a, weights in used if weights[j]) for j in range(len(W[0]))]
