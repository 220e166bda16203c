"""A causal decoder written anew: fast in float64 with numpy, exactly to 200 bits, or rounded in a random order.

Nothing here is the decoder's own code or the engine's; the stored numbers are all that is taken from a model.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import mpmath
import numpy as np
from oracles.operations import Exact, add, each, gelu, gelu_tanh, layer_norm, matmul, softmax, whole
from scipy.special import erf

BASE = 10_000.0
NEAR = 1e-6  # margins below this, relative to the logits, are run again to 200 bits


def stored(model):
    """The numbers of a decoder and its shape, its tables of positions checked against their formula."""
    W = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    block = model.blocks[0]
    found = SimpleNamespace(
        W=W, pe=model.pe, bos=model.has_bos, heads=block.attention.n_heads, layers=len(model.blocks),
        has_norm="norm.weight" in W, activation=None if block.mlp is None else block.mlp.activation,
        eps=getattr(model.norm, "eps", None),
    )  # fmt: skip
    d = W["W_U"].shape[0]
    tiny = 1e-12 if model.W_E.dtype.itemsize == 8 else 1e-2
    if model.pe == "rope":
        half = W["blocks.0.attention.W_Q"].shape[1] // found.heads // 2
        cos, sin = (getattr(block.attention.rotation, name).double().numpy() for name in ("cos", "sin"))
        for i, j in np.ndindex(cos.shape):
            angle = (i + 1) * BASE ** (-j / half)
            assert abs(cos[i, j] - math.cos(angle)) < tiny and abs(sin[i, j] - math.sin(angle)) < tiny
        found.cos, found.sin = cos, sin
    elif model.pe in ("sine", "spe", "ape"):
        found.table = model.W_pos.detach().double().numpy()
        if model.pe == "spe":
            assert found.table[:, 0].tolist() == list(range(1, len(found.table) + 1))
        if model.pe == "sine":
            for i, j in np.ndindex(found.table.shape):
                if j < d - d % 2:
                    angle = (i + 1) * BASE ** (-(j - j % 2) / d)
                    assert abs(found.table[i, j] - (math.cos(angle) if j % 2 else math.sin(angle))) < tiny
    return found


def fast(m, strings, shift):
    """Logits (B, n, classes) of strings (B, n) in float64."""
    W = m.W
    strings = np.asarray(strings)
    if m.bos:
        strings = np.concatenate([np.full((len(strings), 1), len(W["W_E"]) - 1), strings], 1)
    n = strings.shape[1]
    x = W["W_E"][strings]
    if m.pe in ("ape", "sine"):
        x = x + m.table[shift : shift + n]
    if m.pe == "spe":
        x = np.concatenate([x, np.broadcast_to(m.table[shift : shift + n], (*x.shape[:2], 1))], -1)

    def norm(x, name):
        if not m.has_norm:
            return x
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + m.eps) * W[f"{name}.weight"] + W[f"{name}.bias"]

    def turned(y):
        half = y.shape[-1] // 2
        c, s, a, b = m.cos[shift : shift + n], m.sin[shift : shift + n], y[..., :half], y[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    for i in range(m.layers):
        at = f"blocks.{i}.attention."
        y = norm(x, f"blocks.{i}.norm_1")
        q, k, v = (y @ W[at + f"W_{c}"] + W.get(at + f"b_{c}", 0.0) for c in "QKV")
        heads = []
        for part in zip(*(np.split(z, m.heads, -1) for z in (q, k, v)), strict=True):
            a, b = (turned(z) for z in part[:2]) if m.pe == "rope" else part[:2]
            scores = np.einsum("bid,bjd->bij", a, b) / math.sqrt(a.shape[-1])
            scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(np.einsum("bij,bjd->bid", p / p.sum(-1, keepdims=True), part[2]))
        x = x + np.concatenate(heads, -1) @ W[at + "W_O"] + W.get(at + "b_O", 0.0)
        if m.activation is not None:
            mlp = f"blocks.{i}.mlp."
            h = norm(x, f"blocks.{i}.norm_2") @ W[mlp + "W_in"] + W[mlp + "b_in"]
            if m.activation == "relu":
                h = np.maximum(h, 0)
            elif m.activation == "gelu":
                h = h * (1 + erf(h / math.sqrt(2))) / 2
            else:
                h = h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))) / 2
            x = x + h @ W[mlp + "W_out"] + W[mlp + "b_out"]
    out = norm(x, "norm") @ W["W_U"] + W.get("b_U", 0.0)
    return out[:, int(m.bos) :]


def margins(logits, answers):
    """(right - largest other) at each position, infinite where none is judged."""
    out = []
    for row, right in zip(logits, answers, strict=True):
        out.append(math.inf if right is None else row[right] - max(x for c, x in enumerate(row) if c != right))
    return out


def has_twin(m):
    """Whether another class reads the very same numbers, for each class."""
    reads = np.vstack([m.W["W_U"], np.broadcast_to(m.W.get("b_U", 0.0), (1, m.W["W_U"].shape[1]))]).T
    return np.array([(reads == row).all(1).sum() > 1 for row in reads])


def slow(m, string, shift, f=None, passes=2):
    """Logits (n, classes) of one string over a field of `oracles.operations`: to 200 bits, unless f says otherwise."""
    f = f or Exact()
    with mpmath.workprec(200):
        W = {name: each(f.once, whole(value)) for name, value in m.W.items()}
        string = [len(m.W["W_E"]) - 1, *string] if m.bos else list(string)
        n = len(string)
        x = W["W_E"][string]
        rows = slice(shift, shift + n)
        if m.pe in ("ape", "sine"):
            x = add(f, x, each(f.once, whole(m.table[rows])))
        if m.pe == "spe":
            x = np.concatenate([x, each(f.once, whole(m.table[rows]))], 1)
        norm = _norm(f, m, W, passes)
        for i in range(m.layers):
            at = f"blocks.{i}.attention."
            y = norm(x, f"blocks.{i}.norm_1")
            q, k, v = (_affine(f, y, W[at + f"W_{c}"], W.get(at + f"b_{c}")) for c in "QKV")
            heads = []
            for a, b, values in zip(*(np.split(z, m.heads, 1) for z in (q, k, v)), strict=True):
                if m.pe == "rope":
                    a, b = _turned(f, m, a, rows), _turned(f, m, b, rows)
                root = f.number(mpmath.sqrt(a.shape[1]))
                scores = each(lambda z, root=root: f.once(z / root), matmul(f, a, b.T))
                scores = np.where(np.tri(n, dtype=bool), scores, -mpmath.inf)
                heads.append(matmul(f, softmax(f, scores), values))
            x = add(f, x, _affine(f, np.concatenate(heads, 1), W[at + "W_O"], W.get(at + "b_O")))
            if m.activation is not None:
                mlp = f"blocks.{i}.mlp."
                h = _affine(f, norm(x, f"blocks.{i}.norm_2"), W[mlp + "W_in"], W[mlp + "b_in"])
                h = each(lambda z: max(z, mpmath.mpf(0)), h) if m.activation == "relu" else _gelu(m.activation)(f, h)
                x = add(f, x, _affine(f, h, W[mlp + "W_out"], W[mlp + "b_out"]))
        out = _affine(f, norm(x, "norm"), W["W_U"], W.get("b_U"))
        return out[int(m.bos) :]


def _gelu(name):
    return gelu if name == "gelu" else gelu_tanh


def _affine(f, x, W, b):
    out = matmul(f, x, W)
    return out if b is None else add(f, out, np.broadcast_to(b, out.shape))


def _norm(f, m, W, passes):
    if not m.has_norm:
        return lambda x, name: x
    eps = mpmath.mpf(m.eps)
    return lambda x, name: layer_norm(f, x, W[f"{name}.weight"], W[f"{name}.bias"], eps, passes)


def _turned(f, m, x, rows):
    cos, sin = (each(f.once, whole(table[rows])) for table in (m.cos, m.sin))
    half = x.shape[1] // 2

    def turn(a, b, c, s):
        return f.once(f.once(a * c) + f.once(b * s))

    a, b = x[:, :half], x[:, half:]
    return np.concatenate([each(turn, a, -b, cos, sin), each(turn, b, a, cos, sin)], 1)


def least_margin(m, string, shift, answers):
    """The margins of a string, to 200 bits where float64 cannot tell."""
    logits = fast(m, [string], shift)[0]
    found = margins(logits, answers)
    scale = 1 + abs(logits).max()
    if any(abs(x) < NEAR * scale for x in found):
        found = margins(slow(m, string, shift), answers)
    return [0.0 if abs(x) < 1e-50 else x for x in found]


def margins_of(m, strings, shift, due, close=NEAR):
    """The margins (B, n) of strings, to 200 bits where float64 cannot tell; due is -1 where no position is judged."""
    logits = fast(m, strings, shift)
    is_due = np.arange(logits.shape[-1]) == due[..., None]
    others = np.where(is_due, -np.inf, logits).max(-1)
    margins = np.where(due < 0, np.inf, np.where(is_due, logits, -np.inf).max(-1) - others)
    near = abs(margins) < close * (1 + abs(logits).max())
    twins = near & has_twin(m)[due]  # another class has the same logit, so the margin is 0 or below
    margins[twins], near[twins] = np.minimum(margins[twins], 0.0), False
    for i in reversed(range(strings.shape[1])):
        while near[:, i].any():
            row = near[:, i].argmax()
            answers = [None if c < 0 else c for c in due[row, : i + 1]]
            for j, margin in enumerate(least_margin(m, strings[row, : i + 1].tolist(), shift, answers)):
                alike = (strings[:, : j + 1] == strings[row, : j + 1]).all(1)
                margins[alike, j], near[alike, j] = margin, False
    return margins
