"""From one scalar to the argmax over counts: a staircase of lines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constructions import readout_arrays
from constructions.errors import BadInput
from constructions.model_arrays import name_of

CENTRED = 1 << 16  # lines of all staircases that are compared: a quarter of a second


def staircase(gamma: Sequence[float], dtype: torch.dtype, *, as_printed: bool = False) -> tuple[Tensor, Tensor]:
    """Slopes and intercepts of L lines such that line k is the highest one at the scalar gamma[k - 1].

    Claim: A-B.4 (App. B.4, eq. 7-8). Line l takes over from line l - 1 half-way between their two values.
        The printed slopes are -1 + l/(L+1); multiplying all logits by L+1 and adding the same line to each
        changes no argmax and gives the slopes l - c, which every dtype stores exactly; c is the count whose logit
        is zero, chosen so that rounding costs the least. Where gamma decreases with the count the slopes do too.
    Shapes: gamma (L,) strictly monotone; returns W_2's row (L,) and b_2 (L,), both in float64, with each
        intercept already rounded to the dtype so that rounding errors do not add up along the recursion.
    Raises: BadInput when gamma is not strictly monotone.

    >>> slopes, intercepts = staircase([1.0, 2.0, 3.0], torch.float32)
    >>> slopes.tolist(), intercepts.tolist()
    ([-1.0, 0.0, 1.0], [1.5, 0.0, -2.5])
    """
    steps = [after - before for before, after in zip(gamma, gamma[1:], strict=False)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise BadInput("gamma: the scalar must increase, or decrease, strictly with the count")
    thresholds = [(before + after) / 2 for before, after in zip(gamma, gamma[1:], strict=False)]
    is_falling = bool(steps) and steps[0] < 0
    if as_printed:
        return staircase_at(thresholds, is_falling, dtype, as_printed=True)
    return centred_staircase(thresholds, [gamma], is_falling, dtype)


def centred_staircase(
    thresholds: Sequence[float], gammas: Sequence[Sequence[float]], is_falling: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The staircase with given thresholds whose line c is zero, for the c at which rounding costs the least.

    Claim: A-B.4 (App. B.4, eq. 7-8).
    Shapes: thresholds (L - 1,), each of the gammas (L,): where a count's reading varies, its two ends; returns (L,)
        and (L,).

    >>> centred_staircase([1.5, 2.5], [[1.0, 2.0, 3.0]], False, torch.float32)[0].tolist()
    [-1.0, 0.0, 1.0]
    """
    L = len(thresholds) + 1
    step = max(1, L * L // CENTRED)  # every count is tried as the centre, as long as that is quick
    centred = _staircases_around(range(0, L, step), thresholds, is_falling, dtype)
    return min(centred, key=lambda lines: max(rounding_cost(gamma, *lines) for gamma in gammas))


def _staircases_around(
    centres: range, thresholds: Sequence[float], is_falling: bool, dtype: torch.dtype
) -> list[tuple[Tensor, Tensor]]:
    """For each c the staircase whose line c is zero; all of them take each step away from their centre together."""
    L, direction, c = len(thresholds) + 1, -1.0 if is_falling else 1.0, torch.tensor(centres)
    slopes = direction * (torch.arange(L, dtype=torch.float64) - c[:, None])
    intercepts = torch.zeros(len(c), L, dtype=torch.float64)
    for l in range(1, L):
        after = (intercepts[:, l - 1] - direction * thresholds[l - 1]).to(dtype).to(torch.float64)
        intercepts[:, l] = torch.where(l > c, after, 0.0)
    for l in reversed(range(L - 1)):
        before = (intercepts[:, l + 1] + direction * thresholds[l]).to(dtype).to(torch.float64)
        intercepts[:, l] = torch.where(l < c, before, intercepts[:, l])
    return list(zip(slopes, intercepts, strict=True))


def rounding_cost(gamma: Sequence[float], slopes: Tensor, intercepts: Tensor) -> float:
    """The largest |product| + |intercept| of a right line and a neighbour, against how far the one is above the other.

    >>> rounding_cost([1.0, 2.0], torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.5]))
    7.0
    """
    h = torch.tensor(list(gamma), dtype=torch.float64)
    worst = [0.0]
    for right, other in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        products = [h[right] * slopes[line] for line in (right, other)]
        size = sum(x.abs() + intercepts[line].abs() for x, line in zip(products, (right, other), strict=True))
        gap = products[0] + intercepts[right] - products[1] - intercepts[other]
        worst += torch.where(gap > 0, size / gap, torch.inf).tolist()
    return max(worst)


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
    lines = readout_arrays.staircase_at(thresholds, is_falling, name_of(dtype), as_printed=as_printed, growth=growth)
    return torch.from_numpy(lines[0]), torch.from_numpy(lines[1])
