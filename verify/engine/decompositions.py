"""Operations that are captured as others: each is the same function of real numbers, and rounded no less often.

What is written here is what the graph then says. Sums stay sums in any order; a kernel that keeps them wider is within
the contract of a dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

aten = torch.ops.aten


def vector_norm(
    x: Tensor, ord: float = 2, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: object = None
) -> object:
    """The l1, l2 or largest norm, as sums of absolute values, roots of sums of squares, and maxima."""
    axes = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if dtype is not None or not x.is_floating_point() or ord not in (1, 2, float("inf")) or not axes:
        return NotImplemented
    if ord == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    return x.abs().sum(axes, keepdim) if ord == 1 else x.abs().amax(axes, keepdim)


def clamp(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    """The larger of x and one tensor, then the smaller of that and another."""
    x = x if least is None else torch.maximum(x, least)
    return x if most is None else torch.minimum(x, most)


def extreme(x: Tensor, dim: int, keepdim: bool = False, *, is_max: bool) -> tuple[Tensor, Tensor]:
    """The largest or smallest number along an axis, and its first place."""
    if is_max:
        return x.amax(dim, keepdim), x.argmax(dim, keepdim)
    return x.amin(dim, keepdim), x.argmin(dim, keepdim)


def overwritten(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> object:
    """x[mask] = c: the number c where the mask is true, x elsewhere."""
    chosen = [(i, index) for i, index in enumerate(indices) if index is not None]
    is_mask = len(chosen) == 1 and chosen[0][1].dtype == torch.bool
    if not is_mask or accumulate or values.numel() != 1 or values.dtype != x.dtype:
        return NotImplemented
    first, mask = chosen[0]
    after = x.ndim - first - mask.ndim
    return torch.where(mask.reshape([1] * first + list(mask.shape) + [1] * after), values.reshape(()), x)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: object,
    groups: int,
) -> object:
    """A convolution over one axis, as a linear map of the numbers in each window."""
    if transposed or weight.ndim != 3 or x.ndim != 3:
        return NotImplemented
    out, of_group, k = weight.shape
    padded = aten.constant_pad_nd.default(x, [padding[0], padding[0]], 0.0)
    count = (padded.shape[-1] - dilation[0] * (k - 1) - 1) // stride[0] + 1
    last = stride[0] * (count - 1) + 1
    windows = torch.stack([padded[..., i : i + last : stride[0]] for i in (j * dilation[0] for j in range(k))], -1)
    rows = windows.permute(0, 2, 1, 3)  # (inputs, windows, channels, k)
    parts = []
    for g in range(groups):
        own, share = slice(g * of_group, (g + 1) * of_group), slice(g * (out // groups), (g + 1) * (out // groups))
        numbers = rows[:, :, own].reshape(len(x), count, of_group * k)
        to = weight[share].reshape(out // groups, of_group * k)
        parts.append(aten.linear.default(numbers, to, None if bias is None else bias[share]))
    return (parts[0] if groups == 1 else torch.cat(parts, -1)).permute(0, 2, 1)


DECOMPOSITIONS: dict[object, Callable[..., object]] = {
    aten.linalg_vector_norm.default: vector_norm,
    aten.clamp.Tensor: clamp,
    aten.max.dim: lambda x, dim, keepdim=False: extreme(x, dim, keepdim, is_max=True),
    aten.min.dim: lambda x, dim, keepdim=False: extreme(x, dim, keepdim, is_max=False),
    aten.index_put.default: overwritten,
    aten.convolution.default: convolution,
}
