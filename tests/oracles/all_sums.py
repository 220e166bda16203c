"""Every pair of n-digit numbers at once, in NumPy and float64: what hangs on a prefix alone is computed once for it.

An adder reads "d_1..d_n + e_1..e_n =" and then its answer causally, so its stream at a digit of the first number is
the same for all pairs with that beginning. Arrays are (d, rows, m): rows of first numbers, m beginnings of second ones.
"""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 13  # pairs


def arrays(model):
    """The stored numbers of a model: (E, positions, layers, W_out, b_out)."""
    layers = [{name: W.double().numpy() for name, W in layer.named_parameters()} for layer in model.layers]
    return *(W.double().numpy() for W in (model.E, model.positions)), layers, model.W_out.numpy(), model.b_out.numpy()


def tokens(n, B, a):
    """The token at each position that is read, as arrays (rows, m), for the first numbers a and all second ones."""
    b = np.arange(B**n)
    answer = a[:, None] + b
    first = [a[:, None] // B ** (n - 1 - j) % B for j in range(n)]
    second = [np.arange(B ** (j + 1))[None] % B for j in range(n)]
    said = [answer // B**i % B for i in range(n, 0, -1)]
    return [*first, np.full((1, 1), B), *second, np.full((1, len(b)), B + 1), *said], answer


def margins(model, n, B):
    """For blocks of first numbers: the margin (answers, rows, B^n) of each digit of each answer, the highest first."""
    E, positions, layers, W_out, b_out = arrays(model)
    step = max(1, AT_ONCE // B**n)
    for start in range(0, B**n, step):
        a = np.arange(start, min(start + step, B**n))
        read, answer = tokens(n, B, a)
        x = [E[t].transpose(2, 0, 1) + p[:, None, None] for t, p in zip(read, positions, strict=True)]
        asked = range(2 * n + 1, len(x))
        for k, layer in enumerate(layers):
            wanted = asked if k == len(layers) - 1 else range(len(x))
            x = after(layer, x, wanted, bool(model.skip))
        out = [np.tensordot(W_out.T, y, 1) + b_out[:, None, None] for y in x]
        yield a, np.stack([margin(z, answer // B**i % B) for i, z in zip(range(n, -1, -1), out, strict=True)])


def after(layer, x, wanted, has_skip):
    """The streams after one layer at the positions that are wanted."""
    parts = {q: x[q] if has_skip else 0 for q in wanted}
    for W_Q, W_K, W_V, W_O in zip(*(layer[name] for name in ("W_Q", "W_K", "W_V", "W_O")), strict=True):
        keys, values = [once(times(W_K, y)) for y in x], [once(times(W_V, y)) for y in x]
        for q in wanted:
            mixed = attended(once(times(W_Q, x[q])), keys[: q + 1], values[: q + 1], x[q].shape[2])
            parts[q] = parts[q] + times(W_O, mixed)
    out = []
    for y in parts.values():
        read = np.maximum(times(layer["W_1"], y) + layer["b_1"][:, None, None], 0)
        out.append(times(layer["W_2"], read) + (y if has_skip else 0))
    return out


def times(W, y):
    """y W in the first dimension."""
    return np.tensordot(W.T, y, 1)


def once(x):
    """The same array with one row and beginning where it is constant."""
    return x[:, :1, :1] if (x == x[:, :1, :1]).all() else x


def attended(query, keys, values, m):
    """softmax(q k) v for m beginnings, where a key of fewer ones is the same for all that go on from one."""
    scores = [sum(widened(k, m) * widened(q, m) for k, q in zip(key, query, strict=True)) for key in keys]
    top = scores[0]
    for score in scores[1:]:
        top = np.maximum(top, score)
    weights = [np.exp(score - top) for score in scores]
    total = sum(weights)
    out = 0.0
    for w, value in zip(weights, values, strict=True):
        out = out + w / total * np.stack([widened(v, m) for v in value])
    return out


def widened(x, m):
    """An array (rows, beginnings) for m longer beginnings; one beginning is left to broadcasting."""
    return x if x.shape[1] in (1, m) else np.repeat(x, m // x.shape[1], axis=1)


def margin(logits, right):
    """(right logit) - (largest other), by class in the first dimension."""
    logits = np.broadcast_to(logits, (len(logits), *right.shape)).copy()
    own = np.take_along_axis(logits, right[None], 0)
    np.put_along_axis(logits, right[None], -np.inf, 0)
    return own[0] - logits.max(axis=0)
