"""Counting by proportions: one head with equal weights, and a readout of two numbers whose quotient is the count.

The head's mean holds x = 1 / (number of positions) and K x with K the answer. Lines j (K x) - (j^2 / 2) x have their
maximum at j = K with the gap x (j - K)^2 / 2 for every x > 0. So no division is needed, and a positive scale, such as a
final LayerNorm, changes nothing.
"""

from __future__ import annotations

import numpy as np

from constructions.decoder_arrays import DType
from constructions.errors import BadInput
from constructions.inductive.lanes import Design, decoder, zeros
from constructions.model_arrays import Array, ModelArrays

SATURATED = 8.0  # where GELU is its argument up to 8 e^-32, which a power of two takes away exactly


def lines(first: int, number: int, centre: int) -> Array:
    """The readout of x and (K - centre) x: column c says K = first + c. Shape (2, number).

    Lines through a centre are half as long as those through 0, so that one bit more survives rounding.

    >>> (np.array([1.0, 2.0]) @ lines(0, 5, 0)).argmax().item()  # x = 1, K = 2
    2
    """
    j = np.arange(first, first + number, dtype=np.float64) - centre
    return np.stack([-(j**2) / 2, j])


def started(
    *,
    task: str,
    M: int,
    pe: str = "nope",
    bos: bool = False,
    layernorm: bool = True,
    positions: int = 128,
    n_heads: int = 1,
    centred: bool = True,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder that counts on from the number word k at the start: after k a^n it says k + n.

    The number word has the value (1, k - 1), others (0, 0), and every token keeps a 1: over N = n + 1 positions the
    mean is x = 1/N, t = 1 + (k - 1)/N = (k + n) x. BOS, where there is one, is a position more, and without a number
    word it is the number 0. In succession each number word says its successor itself, four times as loudly.
    Claim: C-T1 (ours; C, Sec. 5, knows no generalizable solution of shifted start).
    Args: task is one of C's with number words; M the largest of them.

    >>> model = started(task="shifted", M=9, layernorm=False)
    >>> import torch
    >>> model.module(torch.tensor([[4, 10, 10, 10]])).argmax(-1).tolist()
    [[4, 5, 6, 7]]
    """
    centre = M // 2 if centred else 0
    one, offset, x, t = range(4)
    has_words = task != "vanilla"
    words = M + 1 if has_words else 0
    fillers = 2 if task.startswith("helper") else 1
    scale = 2.0 ** max(M, 1).bit_length()  # a power of two, so that all lanes of a token are about 1
    E = zeros(words + fillers + bos, 4)
    share = 1 / (4 * scale) if task == "succession" else 1.0  # so that four times as loud is still about 1
    E[:, t] = share
    if task == "succession":
        j = np.arange(words)
        E[:words, x], E[:words, t] = 4 * share, share + 4 * share * (j + 1 - centre)
    elif has_words:
        E[:words, one] = 1.0
        E[:words, offset] = (np.arange(words) - 1 - int(bos) - centre) / scale
    if bos and task in ("vanilla", "succession"):
        E[-1, one], E[-1, offset] = 1.0, (-1 - centre) / scale
    mixed = zeros(4, 4)
    mixed[one, x], mixed[offset, t] = share, scale * share
    W_U = zeros(4, M + 1)
    W_U[[x, t]] = lines(0, M + 1, centre)
    design = Design(E, mixed, zeros(4, 0), zeros(0, 4), W_U)
    return decoder(design, pe=pe, bos=bos, layernorm=layernorm, positions=positions, n_heads=n_heads, dtype=dtype)


def selective(
    *,
    K: int,
    C: int,
    m: int | None = None,
    pe: str = "nope",
    layernorm: bool = True,
    positions: int = 128,
    n_heads: int = 1,
    activation: str = "relu",
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder with BOS that knows how often its token has occurred, modulo m where m is given, at every length.

    Over N positions BOS's share is w = 1/N, that of type i is c_i w. The gate of type i is c_i w, less more than 1
    where the token is another type: ReLU(gate i) is c_i w for the token's own type and 0 for all others, so that their
    sum is k w. Modulo m, the neurons ReLU(gate i - q w) with q = m r and m r + 1 take m w away
    from the (m r + 1)-st on.
    With GELU every neuron has the bias SATURATED, and a gate closes to less than minus twice that: GELU is its argument
    at an open gate and 0 at closed ones, up to 1e-14, and the bias of the open gate is taken away again.
    Raises: BadInput for GELU with a modulus, whose sawtooth has kinks at 0.
    Claim: C-T2 and C-T3 (ours; C, Sec. 5, asks for LayerNorm and MLP to divide).

    >>> import torch
    >>> selective(K=2, C=3).module(torch.tensor([[0, 1, 0, 0, 1]])).argmax(-1).tolist()
    [[1, 1, 2, 3, 2]]
    """
    if activation != "relu" and m is not None:
        raise BadInput(f"activation={activation!r}: the sawtooth of a modulus is of ReLU neurons; leave it out")
    types, bos, gates, w = range(K), K, range(K + 1, 2 * K + 1), 2 * K + 1
    x, kx, lanes = 2 * K + 2, 2 * K + 3, 2 * K + 4
    E = zeros(K + 1, lanes)
    E[types, types] = 1.0
    E[:K, K + 1 : 2 * K + 1] = np.eye(K) - 1
    E[K, bos] = 1.0
    share = 0.25  # of a gate's closing: a share, LayerNorm's factor included, is less than 1
    mixed = zeros(lanes, lanes)
    mixed[types, gates] = share
    mixed[bos, w] = share
    W_in, W_out, W_U = read_counts(lanes, gates, w, x, kx, C, m)
    design = Design(E, mixed, W_in, W_out, W_U)
    if activation != "relu":
        taken = W_out[0] + W_out[-1]  # of one open gate, and of the neuron of w
        W_in = W_in * (SATURATED / share)
        design = Design(E, mixed, W_in, W_out, W_U, activation, SATURATED, taken)
    return decoder(design, pe=pe, bos=True, layernorm=layernorm, positions=positions, n_heads=n_heads, dtype=dtype)


def read_counts(lanes: int, gates: range, w: int, x: int, kx: int, C: int, m: int | None) -> tuple[Array, Array, Array]:
    """The neurons that make x = w and (k - centre) w of the gates and w, and their readout: W_in, W_out, W_U.

    Shapes: W_in (lanes, p); W_out (p, lanes); W_U (lanes, m or C + 1).

    >>> [tuple(W.shape) for W in read_counts(6, range(0, 2), w=2, x=3, kx=4, C=5, m=None)]
    [(6, 3), (3, 6), (6, 6)]
    """
    teeth = range(1, (C - 1) // m + 1) if m is not None else range(0)
    thresholds = [(0, 1.0)]
    for r in teeth:
        assert m is not None
        thresholds += [(m * r, -float(m)), (m * r + 1, float(m))]
    centre = (min(C, m) if m is not None else C) // 2
    p = len(gates) * len(thresholds) + 1
    W_in, W_out = zeros(lanes, p), zeros(p, lanes)
    W_in[w, p - 1], W_out[p - 1, x], W_out[p - 1, kx] = 1.0, 1.0, -float(centre)
    for i, gate in enumerate(gates):
        for place, (q, slope) in enumerate(thresholds):
            neuron = i * len(thresholds) + place
            W_in[gate, neuron], W_in[w, neuron], W_out[neuron, kx] = 1.0, -float(q), slope
    W_U = zeros(lanes, m or C + 1)
    W_U[[x, kx]] = lines(0 if m is None else 1, m or C + 1, centre)
    return W_in, W_out, W_U
