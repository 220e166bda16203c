"""Ground truth for both additions, in plain Python: sums, wrong answers of the lookahead scheme, margins of tables."""

from __future__ import annotations

import math


def lookahead_digits(a, b, n, B, k):
    """The digits, least significant first, that carries from only k columns below would give."""
    digits_a = [a // B**j % B for j in range(n)]
    digits_b = [b // B**j % B for j in range(n)]
    out = []
    for i in range(n + 1):
        carry = 0
        for j in range(max(0, i - k), i):
            carry = int(digits_a[j] + digits_b[j] + carry >= B)
        own = digits_a[i] + digits_b[i] if i < n else 0
        out.append((own + carry) % B)
    return out


def true_digits(a, b, n, B):
    return [(a + b) // B**j % B for j in range(n + 1)]


def wrong_pairs(n, B, k):
    """All pairs that the lookahead scheme answers wrongly, the smallest first number first."""
    size = B**n
    return [
        (a, b) for a in range(size) for b in range(size) if lookahead_digits(a, b, n, B, k) != true_digits(a, b, n, B)
    ]


def softmax(scores):
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    return [w / sum(weights) for w in weights]


def added(x, y):
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]


def logits(model, tokens):
    """An adder's logits at every position, one number at a time."""
    E, P = model.E.double().tolist(), model.positions.double().tolist()
    skip = bool(model.skip)
    x = [[e + p for e, p in zip(E[t], P[i], strict=True)] for i, t in enumerate(tokens)]

    def times(row, W):
        return [sum(a * w for a, w in zip(row, column, strict=True)) for column in zip(*W, strict=True)]

    for layer in model.layers:
        parts = [[0.0] * len(E[0]) for _ in x]
        for W_Q, W_K, W_V, W_O in zip(
            *(W.double().tolist() for W in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)), strict=True
        ):
            queries, keys, values = ([times(row, W) for row in x] for W in (W_Q, W_K, W_V))
            for i, q in enumerate(queries):
                shares = softmax([sum(a * b for a, b in zip(q, k, strict=True)) for k in keys[: i + 1]])
                mixed = [sum(s * v[c] for s, v in zip(shares, values, strict=False)) for c in range(len(values[0]))]
                parts[i] = [a + b for a, b in zip(parts[i], times(mixed, W_O), strict=True)]
        x = [
            [a + b for a, b in zip(row, part, strict=True)] if skip else part
            for row, part in zip(x, parts, strict=True)
        ]
        b_1 = layer.b_1.double().tolist()
        W_1, W_2 = layer.W_1.double().tolist(), layer.W_2.double().tolist()
        written = []
        for row in x:
            hidden = [max(0.0, r + b) for r, b in zip(times(row, W_1), b_1, strict=True)] if b_1 else []
            written.append(times(hidden, W_2) if b_1 else [0.0] * len(row))
        x = added(x, written) if skip else written
    W_out, b_out = model.W_out.double().tolist(), model.b_out.double().tolist()
    return [[y + b for y, b in zip(times(row, W_out), b_out, strict=True)] for row in x]


def margin(values, right):
    return values[right] - max(v for c, v in enumerate(values) if c != right)
