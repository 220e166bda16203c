"""Inventory-based counting: one neuron for each token of the alphabet, and only the own one switches on.

The weights are those of constructions.inventory_counting_arrays, as modules.
"""

from __future__ import annotations

import torch

from constructions import inventory_counting_arrays
from constructions.histogram import HistogramTransformer, named


def lin(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """lin with a constant mixing matrix: the own neuron reads a k, every other one at most a L - 1 <= 0.

    Claim: A-4.3; constructions.inventory_counting_arrays.lin says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> lin(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.lin(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def lin_sftm(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """lin+sftm with A = 0, whose row softmax is 1/L everywhere.

    Claim: A-4.3; constructions.inventory_counting_arrays.lin_sftm says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> lin_sftm(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.lin_sftm(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def dot_sftm(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """dot+sftm with orthonormal tokens: the own neuron reads k / L.

    Claim: A-B.1; constructions.inventory_counting_arrays.dot_sftm says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> dot_sftm(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.dot_sftm(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def bos_sftm(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """bos+sftm with e_BOS = 0, which adds 1 to the normalisation: the own neuron reads k / (L + 1).

    Claim: A-B.1; constructions.inventory_counting_arrays.bos_sftm says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> bos_sftm(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.bos_sftm(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def dot(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """dot with p = T: the mixed token is (1 + k) e_t, so the own neuron reads k and the others -1.

    Claim: A, Sec. 4.1 (dot can count both ways), with the orthonormal tokens of App. B.3.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> dot(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.dot(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def bos(
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    basis: str = "standard",
    seed: int = 0,
    as_printed: bool = False,
) -> HistogramTransformer:
    """bos with p = T and e_BOS = 0, which has score 0 and value 0: the dot model with p = T.

    Claim: A, Sec. 4.1 (bos can count both ways), with the orthonormal tokens of App. B.3.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> bos(T=4, L=3).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return inventory_counting_arrays.bos(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()
