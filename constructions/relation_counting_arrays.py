"""Relation-based counting: attention compares tokens; as arrays.

One neuron reads the count off a common direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from constructions.histogram_arrays import HistogramArrays
from constructions.model_arrays import Array
from constructions.orthonormal import orthonormal_rows
from constructions.readout_arrays import staircase


def dot(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramArrays:
    """dot with tagged tokens, all of which have one component along a direction that the neuron reads.

    Claim: A-4.2 (Prop. 4.2, App. B.2.1). The printed tag is the sum of the orthonormal tokens, so that every score
        holds T + 2 and the neuron reads L (T + 2) beside the count. We tag by one of the tokens and let W_Q, W_K
        undo that: the scores are 0 and 1, and every number is a whole one up to L + 1. sqrt(d) is in W_Q alone,
        where d^(1/4) twice is printed.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> model = dot(T=4, L=3, d=4)
    >>> model.predict([2, 0, 2])
    [2, 1, 2]
    """
    return _tagged(*_blank("dot", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed), as_printed)


def zero_bos(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramArrays:
    """bos with e_BOS = 0, which has score 0 and value 0: exactly the dot model of A-4.2.

    Claim: A-4.1alt (App. B.2.3, alternative proof).
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> zero_bos(T=4, L=3, d=4).predict([2, 0, 2])
    [2, 1, 2]
    """
    return _tagged(*_blank("bos", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed), as_printed)


def bos(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramArrays:
    """bos with e_BOS the sum of the orthonormal e_t, which is also the direction the neuron reads.

    Claim: A-4.1 (Prop. 4.1, App. B.2.3). The mixed token e_t + e_BOS + k e_t has component T + k + 1
        along e_BOS, so the bias must be -(T + 1); the printed -T makes the neuron read k + 1.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> bos(T=4, L=3, d=4).predict([2, 0, 2])
    [2, 1, 2]
    >>> bos(T=4, L=3, d=4, as_printed=True).predict([2, 0, 2])
    [3, 2, 3]
    """
    model, e = _blank("bos", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    e_BOS = e.sum(0)
    bias = -float(model.T) if as_printed else -float(model.T + 1)
    model.fill(E=e, e_BOS=e_BOS, **unscaled_scores(model.d, as_printed))
    return _read_one_neuron(model, e_BOS, bias, range(1, model.L + 1), as_printed)


def bos_sftm(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramArrays:
    """bos+sftm whose neuron reads the attention paid to BOS: 1/(k + 1).

    Claim: A-4.1 (Prop. 4.1, App. B.2.2), where e_BOS is the sum of orthonormal e_t, the scores are 1 and 0, and with
        a = e/((k+1)e + L-k) the neuron reads a(T-1) + 1 under the printed bias -1. The tokens fill R^T there, so that
        the neuron sees them beside BOS. From T = 4 on, ours leave BOS a dimension to itself (`bos_apart`): two of the
        tokens are the opposites of two others. Then the own token and BOS have the score 0 and all others at most -32.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> bos_sftm(T=4, L=3, d=4).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("bos+sftm", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    if not as_printed and T >= 4:
        model.fill(**bos_apart(two_with_opposites(T), power_of_two(32.0 * math.sqrt(model.d)), e))
        return _read_one_neuron(model, e[-1], 0.0, [1 / (k + 1) for k in range(1, L + 1)], False)
    constant = 1.0 if as_printed else 0.0
    gamma = [math.e / ((k + 1) * math.e + L - k) * (T - 1) + constant for k in range(1, L + 1)]
    if as_printed:
        model.fill(E=e, e_BOS=e.sum(0), **unscaled_scores(model.d, True))
        return _read_one_neuron(model, e.sum(0), -1.0, gamma, True)
    tagged = one_tag(e)  # along the tag tokens have 1 and BOS has T
    model.fill(e_BOS=tagged["E"].sum(0), **tagged)
    return _read_one_neuron(model, e[-1], -2.0, gamma, False)


def two_with_opposites(T: int) -> Array:
    """T >= 4 unit vectors of R^(T-2), no two with an overlap above zero: its basis, and minus the first two.

    Shapes: (T, T - 2).

    >>> two_with_opposites(5)
    array([[ 1.,  0.,  0.],
           [ 0.,  1.,  0.],
           [ 0.,  0.,  1.],
           [-1.,  0.,  0.],
           [ 0., -1.,  0.]])
    """
    basis = np.eye(T - 2)
    return np.concatenate([basis, 0.0 - basis[:2]])


def bos_apart(v: Array, scale: float, e: Array) -> dict[str, Array]:
    """e_t = (v_t, 1, 0) and e_BOS = (0, 0, 1) in the coordinates e, with the scores scale (<v_t, v_s> - n) / sqrt(d).

    All v_t have the square norm n, so that the own token has the score 0, as BOS does. If the scale is a power of two,
    the products of vectors of few whole numbers are exact in every format.
    Shapes: v (T, m), e (m + 2, d) orthonormal rows.

    >>> signs = np.array([[1.0, 1.0], [1.0, -1.0]])
    >>> w = bos_apart(signs, 1.0, np.eye(4))
    >>> (w["E"] @ w["W_Q"] @ w["W_K"].T @ w["E"].T).tolist()  # the own token 0, the other one -2
    [[0.0, -2.0], [-2.0, 0.0]]
    """
    m = v.shape[1]
    n = float(v[0] @ v[0])
    scores = np.array([1.0] * m + [-n, 0.0])
    return {
        "E": v @ e[:m] + e[m],
        "e_BOS": e[m + 1],
        "W_Q": scale * (e.T * scores) @ e,
        "W_K": e.T @ e,
    }


def power_of_two(x: float) -> float:
    """The smallest power of two that is at least x > 0.

    >>> power_of_two(5.0), power_of_two(0.5)
    (8.0, 0.5)
    """
    return 2.0 ** math.ceil(math.log2(x))


def unscaled_scores(d: int, as_printed: bool) -> dict[str, Array]:
    """W_Q and W_K with W_Q W_K^T = sqrt(d) I, which undoes the architecture's 1/sqrt(d).

    >>> w = unscaled_scores(4, as_printed=False)
    >>> (w["W_Q"] @ w["W_K"].T).diagonal().tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    identity = np.eye(d)
    if as_printed:
        return {"W_Q": d**0.25 * identity, "W_K": d**0.25 * identity}
    return {"W_Q": math.sqrt(d) * identity, "W_K": identity}


def _blank(
    kind: str, *, T: int, L: int, d: int | None, p: int | None, dtype: str, basis: str, seed: int
) -> tuple[HistogramArrays, Array]:
    """A zero model of the asked shape (by default d = T, p = 1) and its orthonormal tokens."""
    d, p = T if d is None else d, 1 if p is None else p
    model = HistogramArrays.zeros(kind, T=T, L=L, d=d, p=p, dtype=dtype)
    return model, orthonormal_rows(T, d, basis, seed)


def _tagged(model: HistogramArrays, e: Array, as_printed: bool) -> HistogramArrays:
    if as_printed:
        return _tagged_as_printed(model, e)
    model.fill(**one_tag(e))
    return _read_one_neuron(model, e[-1], -1.0, range(1, model.L + 1), False)


def one_tag(e: Array) -> dict[str, Array]:
    """Tokens e_t + tag, with the last e_t as the tag and as the last token, and W_Q, W_K that make them orthonormal.

    (e_t + tag) D = e_t and tag D = tag for D = sum of e_t e_t^T, less (sum of the first T - 1) tag^T.

    >>> w = one_tag(np.eye(4))
    >>> (w["E"] @ w["W_Q"] @ w["W_K"].T @ w["E"].T / 2).tolist()[0]  # of d = 4
    [1.0, 0.0, 0.0, 0.0]
    """
    tag, others = e[-1], e[:-1]
    D = e.T @ e - others.sum(0)[:, None] * tag
    return {"E": np.concatenate([others + tag, tag[None]]), "W_Q": math.sqrt(e.shape[1]) * D, "W_K": D}


def _tagged_as_printed(model: HistogramArrays, e: Array) -> HistogramArrays:
    T, L = model.T, model.L
    e_cnt = e.sum(0)
    # <e_t + e_cnt, e_s + e_cnt> = T + 2 + [s = t] and <e_t + e_cnt, e_cnt> = T + 1, so the neuron reads
    # 1 + L(T + 2) + k before its bias.
    model.fill(E=e + e_cnt, **unscaled_scores(model.d, True))
    return _read_one_neuron(model, e_cnt / (T + 1), -(1.0 + L * (T + 2)), range(1, L + 1), True)


def _read_one_neuron(
    model: HistogramArrays,
    direction: Array,
    bias: float,
    gamma: Sequence[float],
    as_printed: bool,
) -> HistogramArrays:
    slopes, intercepts = staircase(list(gamma), model.dtype, as_printed=as_printed)
    b_1 = np.array([bias])
    return model.fill(W_1=direction[:, None], b_1=b_1, W_2=slopes[None, :], b_2=intercepts)
