"""From one scalar to the argmax over counts: a staircase of lines, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constructions import readout_arrays
from constructions.model_arrays import Array, name_of


def staircase(gamma: Sequence[float], dtype: torch.dtype, *, as_printed: bool = False) -> tuple[Tensor, Tensor]:
    """The staircase of `constructions.readout_arrays`, as tensors.

    >>> slopes, intercepts = staircase([1.0, 2.0, 3.0], torch.float32)
    >>> slopes.tolist(), intercepts.tolist()
    ([-1.0, 0.0, 1.0], [1.5, 0.0, -2.5])
    """
    return _tensors(readout_arrays.staircase(gamma, name_of(dtype), as_printed=as_printed))


def centred_staircase(
    thresholds: Sequence[float], gammas: Sequence[Sequence[float]], is_falling: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """That of `constructions.readout_arrays`, as tensors.

    >>> centred_staircase([1.5, 2.5], [[1.0, 2.0, 3.0]], False, torch.float32)[0].tolist()
    [-1.0, 0.0, 1.0]
    """
    return _tensors(readout_arrays.centred_staircase(thresholds, gammas, is_falling, name_of(dtype)))


def staircase_at(
    thresholds: Sequence[float],
    is_falling: bool,
    dtype: torch.dtype,
    *,
    as_printed: bool = False,
    growth: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The same staircase from the thresholds between counts l and l + 1, for gamma that is known up to a range.

    Claim: A-B.4 (App. B.4, eq. 7-8). With `growth` the slope's step from line l to l + 1 is growth^l instead of 1.
    Shapes: thresholds (L - 1,); returns (L,) and (L,).

    >>> staircase_at([1.5, 2.5], False, torch.float32)[1].tolist()
    [0.0, -1.5, -4.0]
    """
    return _tensors(
        readout_arrays.staircase_at(thresholds, is_falling, name_of(dtype), as_printed=as_printed, growth=growth)
    )


def _tensors(lines: tuple[Array, Array]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(lines[0].copy()), torch.from_numpy(lines[1].copy())
