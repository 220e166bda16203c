"""Histogram models with fewer dimensions than tokens, by the sizes the command line asks for.

The weights are those of constructions.fewer_dimensions_arrays, as modules.
"""

from __future__ import annotations

import torch

from constructions import fewer_dimensions_arrays
from constructions.histogram import HistogramTransformer, named
from constructions.progress import Progress


def code(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramTransformer:
    """Inventory counting (p >= T) on the best code that is kept or found for d dimensions.

    Claim: A-4.4 and A-C.3.2; constructions.fewer_dimensions_arrays.code says why it is right.
    Shapes: see HistogramTransformer.
    Raises: NotKnown when no code is found, with the best gap; BadInput for p < T.

    >>> code("dot", T=4, L=10, d=8).predict(torch.tensor([2, 0, 2, 1, 1, 1, 3, 3, 3, 3])).tolist()
    [2, 1, 2, 3, 3, 3, 4, 4, 4, 4]
    """
    return fewer_dimensions_arrays.code(
        model, T=T, L=L, d=d, p=p, dtype=named(dtype), seed=seed, progress=progress
    ).module()


def simplex(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> HistogramTransformer:
    """dot or bos with p = 1 at d = T - 1, on the signed simplex.

    Claim: W-4.; constructions.fewer_dimensions_arrays.simplex says why it is right.
    Raises: NotKnown for odd T or L too large; BadInput for another d.

    >>> simplex("dot", T=6, L=3, d=5).d
    5
    """
    return fewer_dimensions_arrays.simplex(model, T=T, L=L, d=d, p=p, dtype=named(dtype)).module()


def coherent(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramTransformer:
    """Counts on the frame of lowest coherence known here: with p = 1 in dot and bos, or one neuron per token.

    Claim: A-4.4; constructions.fewer_dimensions_arrays.coherent says why it is right.
    Raises: NotKnown when the coherence is not below that; BadInput for d < 3 with p = 1, and for 1 < p < T in lin.

    >>> coherent("dot", T=6, L=3, d=6).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    >>> coherent("lin", T=6, L=2, d=3).predict(torch.tensor([2, 0])).tolist()
    [1, 1]
    """
    return fewer_dimensions_arrays.coherent(
        model, T=T, L=L, d=d, p=p, dtype=named(dtype), seed=seed, progress=progress
    ).module()


def sphere(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramTransformer:
    """bos+sftm with one neuron on the best spherical code of d - 1 dimensions: d = 3 is the circle.

    Claim: W-3.; constructions.fewer_dimensions_arrays.sphere says why it is right.
    Raises: BadInput for d < 3 with T > 2.

    >>> sphere("bos+sftm", T=8, L=4, d=3).predict(torch.tensor([7, 0, 7, 7])).tolist()
    [3, 1, 3, 3]
    """
    return fewer_dimensions_arrays.sphere(
        model, T=T, L=L, d=d, p=p, dtype=named(dtype), seed=seed, progress=progress
    ).module()


def plane(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramTransformer:
    """bos+sftm with one neuron at d = 2, on searched tokens that the neuron reads differently.

    Claim: W-8.; constructions.fewer_dimensions_arrays.plane says why it is right.
    Raises: NotKnown when no such tokens are found, with the gap reached; BadInput for another d.

    >>> plane("bos+sftm", T=3, L=2, d=4)
    Traceback (most recent call last):
    constructions.errors.BadInput: d=4: the plane has d = 2. Use --d 2, or --construction sphere.
    """
    return fewer_dimensions_arrays.plane(
        model, T=T, L=L, d=d, p=p, dtype=named(dtype), seed=seed, progress=progress
    ).module()


def binary(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    as_printed: bool = False,
) -> HistogramTransformer:
    """bos+sftm with one neuron on the binary code: d = ceil(log2(T + 1)) + 2, the rest zero padding.

    Claim: A-4.5; constructions.fewer_dimensions_arrays.binary says why it is right.
    Raises: BadInput when d is too small.

    >>> binary("bos+sftm", T=7, L=4).d
    5
    """
    return fewer_dimensions_arrays.binary(model, T=T, L=L, d=d, p=p, dtype=named(dtype), as_printed=as_printed).module()


def digits(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> HistogramTransformer:
    """bos+sftm with one neuron on digits in the base that needs the lowest temperature of those that fit into d.

    Claim: W-23 (ours); constructions.fewer_dimensions_arrays.digits says why it is right.
    Raises: BadInput when d is too small.

    >>> digits("bos+sftm", T=32, L=4, d=5).predict(torch.tensor([7, 31, 7, 7])).tolist()
    [3, 1, 3, 3]
    """
    return fewer_dimensions_arrays.digits(model, T=T, L=L, d=d, p=p, dtype=named(dtype)).module()


def quarter_circle(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: torch.dtype = torch.float32,
    as_printed: bool = False,
) -> HistogramTransformer:
    """bos+sftm with one neuron on the quarter circle: d = 4, the rest zero padding.

    Claim: A-rem; constructions.fewer_dimensions_arrays.quarter_circle says why it is right.
    Raises: BadInput when d is too small.

    >>> quarter_circle("bos+sftm", T=7, L=4).d
    4
    """
    return fewer_dimensions_arrays.quarter_circle(
        model, T=T, L=L, d=d, p=p, dtype=named(dtype), as_printed=as_printed
    ).module()
