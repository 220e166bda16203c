"""Inventory-based counting: one neuron for each token of the alphabet, and only the own one switches on.

The weights as arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from constructions.errors import BadInput
from constructions.histogram_arrays import HistogramArrays
from constructions.model_arrays import Array
from constructions.orthonormal import orthonormal_rows
from constructions.readout_arrays import staircase
from constructions.relation_counting_arrays import unscaled_scores


def lin(
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
    """lin with a constant mixing matrix: the own neuron reads a k, every other one at most a L - 1 <= 0.

    Claim: A-4.3 (Prop. 4.3, App. B.3.1). Any 0 < a <= 1/L works; we take the power of two at or below
        the printed 1/L, which every dtype stores exactly.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> lin(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("lin", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    a = 1.0 / L if as_printed else 2.0 ** -(L - 1).bit_length()
    mixing = {"A": np.full((L, L), a)}
    return _inventory(model, e, as_printed, lambda k: a * k, mixing)


def lin_sftm(
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
    """lin+sftm with A = 0, whose row softmax is 1/L everywhere.

    Claim: A-4.3 (Prop. 4.3, App. B.3.2): every constant alpha gives 1/L; zero is the exact one.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> lin_sftm(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("lin+sftm", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    return _inventory(model, e, as_printed, lambda k: k / L, {})


def dot_sftm(
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
    """dot+sftm with orthonormal tokens: the own neuron reads k / L.

    Claim: A-B.1 (Prop. B.1, App. B.3.3), where the scores are 1 and 0 and the neuron reads e k / (e k + L - k). Any
        scores that favour the own token, or disfavour it, crowd the counts at one end. We take none, W_Q = W_K = 0:
        attention is uniform, and the counts are 1/L apart, the most that is possible.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> dot_sftm(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("dot+sftm", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    if as_printed:
        return _inventory(model, e, True, lambda k: math.e * k / (math.e * k + L - k))
    return _inventory(model, e, False, lambda k: k / L, {})


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
    """bos+sftm with e_BOS = 0, which adds 1 to the normalisation: the own neuron reads k / (L + 1).

    Claim: A-B.1 carried over to bos+sftm (ours; the document counts by relation here). As in `dot_sftm` the attention
        is uniform; `as_printed` has its scores, and reads e k / (e k + L - k + 1).
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> bos_sftm(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("bos+sftm", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    if as_printed:
        return _inventory(model, e, True, lambda k: math.e * k / (math.e * k + L - k + 1))
    return _inventory(model, e, False, lambda k: k / (L + 1), {})


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
    """dot with p = T: the mixed token is (1 + k) e_t, so the own neuron reads k and the others -1.

    Claim: A, Sec. 4.1 (dot can count both ways), with the orthonormal tokens of App. B.3.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> dot(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("dot", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    return _inventory(model, e, as_printed, lambda k: k)


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
    """bos with p = T and e_BOS = 0, which has score 0 and value 0: the dot model with p = T.

    Claim: A, Sec. 4.1 (bos can count both ways), with the orthonormal tokens of App. B.3.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> bos(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    model, e = _blank("bos", T=T, L=L, d=d, p=p, dtype=dtype, basis=basis, seed=seed)
    return _inventory(model, e, as_printed, lambda k: k)


def _blank(
    kind: str, *, T: int, L: int, d: int | None, p: int | None, dtype: str, basis: str, seed: int
) -> tuple[HistogramArrays, Array]:
    """A zero model of the asked shape (by default d = p = T) and its orthonormal tokens."""
    d, p = T if d is None else d, T if p is None else p
    model = HistogramArrays.zeros(kind, T=T, L=L, d=d, p=p, dtype=dtype)
    if p < T:
        raise BadInput(
            f"p={p}: inventory counting needs p >= T (one neuron per token), got T={T}. Use --p {T} or more."
        )
    return model, orthonormal_rows(T, d, basis, seed)


def _inventory(
    model: HistogramArrays,
    e: Array,
    as_printed: bool,
    gamma: Callable[[int], float],
    mixing: dict[str, Array] | None = None,
) -> HistogramArrays:
    """The common block: W_1 = E, b_1 = -1, and the staircase of gamma(k) behind every neuron."""
    T, L = model.T, model.L
    slopes, intercepts = staircase([gamma(k) for k in range(1, L + 1)], model.dtype, as_printed=as_printed)
    return model.fill(
        E=e,
        **(unscaled_scores(model.d, as_printed) if mixing is None else mixing),
        W_1=e.T,
        b_1=-np.ones(T),
        W_2=np.tile(slopes, (T, 1)),
        b_2=intercepts,
    )
