"""Models whose rounding error is all but attained by construction, for tests: one source of error each.

Both tokens are embedded alike, and the question is the logit of the largest count, on L tokens 0. Everything but the
step in question is exact, or small beside it: weights are powers of two, and a sum 1 + u + ... + u that begins with 1
loses every other term, each being half a unit in the last place of 1.
"""

from __future__ import annotations

import numpy as np
import torch

from constructions.histogram import HistogramTransformer
from verify.arithmetic.formats import format_of_bits
from verify.arithmetic.rounding import rounded


def model(kind, *, L=1, **weights):
    """A model with these weights, all others zero; the one embedding is that of both tokens."""
    W = {name: torch.as_tensor(np.array(value, dtype=float)) for name, value in weights.items()}
    E = W.pop("E").repeat(2, 1)
    d, p = W["W_1"].shape
    W["W_2"] = torch.cat([torch.zeros(p, L - 1), W["W_2"]], dim=1)  # only the largest count reads the neurons
    if "b_2" in W:
        W["b_2"] = torch.cat([torch.zeros(L - 1), W["b_2"]])
    return HistogramTransformer(kind, T=2, L=L, d=d, p=p, classes=L + 1, dtype=torch.float64).fill(E=E, **W)


def column(*entries):
    return np.array(entries, dtype=float)[:, None]


def unit(i, d=4):
    return np.eye(d)[i]


def neurons(*values, W_2=1.0, b_2=0.0):
    """The logit is the sum of the neurons' values, each times W_2 (one for all, or one each), and b_2."""
    each = np.broadcast_to(W_2, len(values))
    return model("lin", E=values, W_1=np.eye(len(values)), W_2=column(*each), b_2=[b_2])


def attending_neurons(*values, each=1):
    """The logit is the sum of neurons that read `each` coordinates, in a model whose mixing adds zero."""
    W_1 = np.repeat(np.eye(len(values) // each), each, axis=0)
    return model("dot", E=values, W_1=W_1, W_2=np.ones((len(values) // each, 1)))


def coordinates(*values, W_1=1.0, b_1=0.0):
    """The logit is one neuron: the sum of the coordinates, each times W_1, and b_1."""
    each = np.broadcast_to(W_1, len(values))
    return model("lin", E=values, W_1=column(*each), b_1=[b_1], W_2=[[1.0]])


def slots(*A, b_1):
    """The logit is 1 + the sum of the mixing weights + b_1."""
    return model("lin", L=len(A), E=[1.0], A=np.tile(A, (len(A), 1)), W_1=[[1.0]], b_1=[b_1], W_2=[[1.0]])


def query(*values, W_Q=1.0, key=1.0):
    """The logit is the score of BOS: the sum of the coordinates times W_Q is the query, and its key has one entry."""
    E, W = np.zeros(4), np.zeros((4, 4))
    E[: len(values)], W[: len(values), 0] = values, W_Q
    return model("bos", E=E, e_BOS=unit(3), W_Q=W, W_K=2 * key * np.outer(unit(3), unit(0)), W_1=column(*unit(3)),
                 W_2=[[1.0]])  # fmt: skip


def score(*values):
    """The logit is the score of BOS: the coordinates are the query, and all entries of the key are 1."""
    E, W_K = np.zeros(4), np.zeros((4, 4))
    E[: len(values)], W_K[3] = values, 2
    return model("bos", E=E, e_BOS=unit(3), W_Q=np.eye(4), W_K=W_K, W_1=column(*unit(3)), W_2=[[1.0]])


def root(d, size=1.0, *, W_2=1.0):
    """The logit is W_2 times the score of BOS, size / sqrt(d)."""
    W_Q, W_K = size * np.outer(unit(0, d), unit(0, d)), np.outer(unit(1, d), unit(0, d))
    return model("bos", E=unit(0, d), e_BOS=unit(1, d), W_Q=W_Q, W_K=W_K, W_1=column(*unit(1, d)), W_2=[[W_2]])


def mixed(own, bos, weight, *, W_1=1.0, b_1=0.0):
    """The logit is b_1 and the sum over two coordinates of W_1 (own + weight bos)."""
    W_Q, W_K = 2 * np.outer(unit(2), unit(0)), weight * np.outer(unit(3), unit(0))
    return model("bos", E=[*own, 1, 0], e_BOS=[*bos, 0, 1], W_Q=W_Q, W_K=W_K, W_1=column(W_1, W_1, 0, 0), b_1=[b_1],
                 W_2=[[1.0]])  # fmt: skip


def share(own, bos, *, e_BOS=1.0, W_1=1.0, b_1=0.0, W_2=1.0, d=4):
    """The logit is W_2 (w e_BOS W_1 + b_1), w being the weight of BOS in softmax(own, bos), each times 2 / sqrt(d)."""
    first, second, third = np.eye(d)[:3]
    return model("bos+sftm", E=first, e_BOS=second + e_BOS * third, W_Q=2 * np.outer(first, first),
                 W_K=np.outer(own * first + bos * second, first), W_1=W_1 * column(*third), b_1=[b_1],
                 W_2=[[W_2]])  # fmt: skip


def lossy_product(p):
    """Two numbers of p bits whose product loses nearly u in its rounding, just above a power of two."""
    rng, fmt = np.random.default_rng(0), format_of_bits(p)
    a, b = 1 + rng.integers(0, 2 ** (p - 1), (2, 4000)) * 2.0 ** (1 - p)
    lost = (a * b - rounded(a * b, fmt)) / (a * b)
    best = lost.argmax()
    return float(a[best]), float(b[best])
