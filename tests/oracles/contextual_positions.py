"""Contextual counting with positions in plain float64 loops, token by token."""

import math

import numpy as np


def plain_margins(W, tokens, right):
    """The lead of the right count for every prompt, token by token, in plain float64 loops: shares no code."""
    row = [4, *tokens]
    x = [W["E"][t] + W["positions"][i] for i, t in enumerate(row)]

    def turned(v, i):
        out = v.copy()
        for a in range(len(v) // 2):
            z = complex(v[2 * a], v[2 * a + 1]) * complex(W["cosines"][i, a], W["sines"][i, a])
            out[2 * a : 2 * a + 2] = z.real, z.imag
        return out

    stream = []
    for i in range(len(row)):
        q = turned(x[i] @ W["W_Q"], i)
        scores = [q @ turned(x[j] @ W["W_K"], j) - float(W["slope"]) * (i - j) for j in range(i + 1)]
        shares = [math.exp(s - max(scores)) for s in scores]
        y = x[i] + sum(a * (x[j] @ W["W_V"]) for j, a in enumerate(shares)) / sum(shares) @ W["W_O"]
        stream.append(y + np.maximum(y @ W["W_1"] + W["b_1"], 0) @ W["W_2"] + W["b_2"])
    leads = []
    for prompt, k in zip(W["P"], right, strict=True):
        scores = [prompt @ W["U_Q"] @ (s @ W["U_K"]) for s in stream]
        shares = [math.exp(s - max(scores)) for s in scores]
        z = sum(a * (s @ W["U_V"]) for s, a in zip(stream, shares, strict=True)) / sum(shares)
        z = z + np.maximum(z @ W["W_3"] + W["b_3"], 0) @ W["W_4"] + W["b_4"]
        logits = z @ W["W_out"] + W["b_out"]
        leads.append(logits[k] - max(logits[c] for c in range(len(logits)) if c != k))
    return leads
