"""Relation-based counting: attention compares tokens, one neuron reads the count off a common direction.

The weights are those of constructions.relation_counting_arrays, as modules.
"""

from __future__ import annotations

import torch

from constructions import relation_counting_arrays
from constructions.histogram import HistogramTransformer, named


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
    """dot with tagged tokens, all of which have one component along a direction that the neuron reads.

    Claim: A-4.2; constructions.relation_counting_arrays.dot says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> model = dot(T=4, L=3, d=4)
    >>> model.predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return relation_counting_arrays.dot(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()


def zero_bos(
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
    """bos with e_BOS = 0, which has score 0 and value 0: exactly the dot model of A-4.2.

    Claim: A-4.1alt; constructions.relation_counting_arrays.zero_bos says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> zero_bos(T=4, L=3, d=4).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return relation_counting_arrays.zero_bos(
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
    """bos with e_BOS the sum of the orthonormal e_t, which is also the direction the neuron reads.

    Claim: A-4.1; constructions.relation_counting_arrays.bos says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> bos(T=4, L=3, d=4).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    >>> bos(T=4, L=3, d=4, as_printed=True).predict(torch.tensor([2, 0, 2])).tolist()
    [3, 2, 3]
    """
    return relation_counting_arrays.bos(
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
    """bos+sftm whose neuron reads the attention paid to BOS: 1/(k + 1).

    Claim: A-4.1; constructions.relation_counting_arrays.bos_sftm says why it is right.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default equal), surplus is zero padding. `basis` is
        "standard" or "random", drawn by `seed`; `as_printed` keeps the document's numbers, misprints included.
    Raises: BadInput when d < T or a size makes no sense.

    >>> bos_sftm(T=4, L=3, d=4).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return relation_counting_arrays.bos_sftm(
        T=T, L=L, d=d, p=p, dtype=named(dtype), basis=basis, seed=seed, as_printed=as_printed
    ).module()
