"""The smallest counting transformers: one neuron at d = T - 1 (dot, bos), ceil(log2(T + 1)) neurons (dot+sftm).

The weights are those of constructions.exact_laws_arrays, as modules.
"""

from __future__ import annotations

import torch
from torch import Tensor

from constructions import exact_laws_arrays
from constructions.histogram import HistogramTransformer, named


def rational(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds dot or bos with one neuron at d = T - 1, for every T >= 2 and L: the reading depends on the count only.

    Claim: W-14 (ours); constructions.exact_laws_arrays.rational says why it is right.
    Shapes: d >= T - 1, surplus is zero padding; p >= 1.
    Raises: BadInput for other sizes.

    >>> rational("dot", T=5, L=9, d=4).predict(torch.tensor([2, 0, 2, 2, 4, 4, 1, 2, 3])).tolist()
    [4, 1, 4, 4, 2, 2, 1, 4, 1]
    """
    return exact_laws_arrays.rational(model, T=T, L=L, d=d, p=p, dtype=named(dtype)).module()


def logarithmic(
    *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds dot+sftm with p = ceil(log2(T + 1)) neurons at d = T - 1 or more: each token has a set of neurons.

    Claim: W-13 (ours); constructions.exact_laws_arrays.logarithmic says why it is right.
    Shapes: d >= T - 1, p >= ceil(log2(T + 1)), surplus is zero padding.
    Raises: BadInput for other sizes.

    >>> logarithmic(T=7, L=4).predict(torch.tensor([2, 0, 2, 6])).tolist()
    [2, 1, 2, 1]
    """
    return exact_laws_arrays.logarithmic(T=T, L=L, d=d, p=p, dtype=named(dtype)).module()


def balanced(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds lin or lin+sftm by inventory on even overlaps, at d = T - floor(T/L) or more: blocks of equal tokens.

    Claim: W-15 (ours); constructions.exact_laws_arrays.balanced says why it is right.
    Shapes: T - floor(T/L) <= d <= T - 1, p >= T.
    Raises: BadInput for other models or sizes.

    >>> balanced("lin", T=6, L=3, d=4).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    return exact_laws_arrays.balanced(model, T=T, L=L, d=d, p=p, dtype=named(dtype)).module()


def on_kernel(
    model: str, u: Tensor, N: Tensor, *, L: int, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds lin or lin+sftm at d = T - 1 - m from m free vectors and numbers N that reproduce them: N u = -u.

    Claim: W-21 (ours); constructions.exact_laws_arrays.on_kernel says why it is right.
    Shapes: u (T, m) of full rank with columns that sum to 0, N (T, T) with zero diagonal.

    >>> u = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)
    >>> on_kernel("lin", u, (torch.eye(4, dtype=torch.float64) - u @ u.T) / 3, L=2).d
    2
    """
    return exact_laws_arrays.on_kernel(model, u.numpy(), N.numpy(), L=L, p=p, dtype=named(dtype)).module()
