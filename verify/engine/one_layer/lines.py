"""Lines below and above an activation on an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U
from verify.engine.balls import Arithmetic, Ball
from verify.engine.rules import RULES

AT = Arithmetic()
POINTS = 9  # at which a smooth function is evaluated on an interval
# of each smooth function: a bound on |f''|, as the rules of the engine have it, and one on |f'|
CURVED = {
    "gelu": (0.8, 1.13),
    "gelu_tanh": (0.8, 1.13),
    "silu": (0.5, 1.1),
    "tanh": (0.77, 1.0),
    "sigmoid": (0.0963, 0.25),
    "softplus": (0.25, 1.0),
    "elu": (1.0, 1.0),
}
AT_ZERO = {"sigmoid": 0.5, "softplus": 0.7}  # bounds on |f(0)| where that is not 0
FALLS = {"softplus": 2.1e-9}  # what a function falls by beyond its threshold
# of functions that are steeper further out, bounds on |f''| and |f'| on an interval; NaN where they are not defined
LOCAL: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "square": lambda low, high: (2.0 + 0 * low, 2 * largest(low, high)),
    "cube": lambda low, high: (6 * largest(low, high), 3 * largest(low, high).square()),
    "exp": lambda low, high: (high.exp(), high.exp()),
    "sqrt": lambda low, high: (above_zero(low) ** -1.5 / 4, above_zero(low) ** -0.5 / 2),
    "rsqrt": lambda low, high: (above_zero(low) ** -2.5 * 0.75, above_zero(low) ** -1.5 / 2),
    "reciprocal": lambda low, high: (2 * off_zero(low, high) ** -3.0, off_zero(low, high) ** -2.0),
}
POWERS = {"square": 2, "cube": 3}
SLOPES = {"relu": 1.0} | {name: slope for name, (_, slope) in CURVED.items() if name not in FALLS}


def largest(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(low.abs(), high.abs())


def above_zero(low: Tensor) -> Tensor:
    return torch.where(low > 0, low, torch.nan)


def off_zero(low: Tensor, high: Tensor) -> Tensor:
    """The distance of an interval from 0."""
    return torch.where((low > 0) | (high < 0), torch.minimum(low.abs(), high.abs()), torch.nan)


def value(function: str, x: Ball) -> Ball:
    """The function of balls, by the engine's rule."""
    if function in POWERS:
        power: Ball = RULES["aten.pow.Tensor_Scalar"](AT, x, POWERS[function])
        return power
    name, _, form = function.partition("_")
    options = {"approximate": form} if form else {}
    found: Ball = RULES[f"aten.{name}.default"](AT, x, **options)
    return found


@dataclass(frozen=True)
class Lines:
    """below z + under <= f(z) <= above z + over on an interval, and a bound on |f| there. All of one shape."""

    below: Tensor
    under: Tensor
    above: Tensor
    over: Tensor
    size: Tensor


def lines(function: str, low: Tensor, high: Tensor) -> Lines:
    """Lines that hold on every interval; no lines, NaN, where an end is no number."""
    return of_relu(low, high) if function == "relu" else of_curved(function, low, high)


def of_relu(low: Tensor, high: Tensor) -> Lines:
    """max(z, 0), which is at least s z for every s in [0, 1], and at most s z + c where both ends are.

    Where the interval has one sign, it is z or 0 itself.
    """
    on, off = low >= 0, high <= 0
    width = torch.where(on | off, 1.0, high - low)
    slope = torch.where(on, 1.0, torch.where(off, 0.0, (high / width).clamp(0, 1)))
    # at the ends, of which the one is 0 - slope low, and the other high - slope high, off by U of each operation
    over = torch.maximum(-slope * low, high - slope * high) + 4 * U * (high.abs() + low.abs()) + LEAST
    zero = torch.zeros_like(low)
    below = torch.where(on, 1.0, torch.where(off, 0.0, (high > -low).double()))
    size = torch.maximum(high, zero)
    nothing = torch.where(torch.isfinite(low) & torch.isfinite(high), 0.0, torch.nan)
    return Lines(below + nothing, zero, slope + nothing, torch.where(on | off, 0.0, over), size + nothing)


def bends(function: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds on |f''| and |f'| on intervals."""
    if function in LOCAL:
        return tuple(bound * ENLARGE + LEAST for bound in LOCAL[function](low, high))  # type: ignore[return-value]
    return tuple(torch.full_like(low, bound) for bound in CURVED[function])  # type: ignore[return-value]


def of_curved(function: str, low: Tensor, high: Tensor) -> Lines:
    """A smooth function beside its chord.

    f(z) - s z is evaluated at some points of the interval. Between two that are h apart it is off the chord through
    them by at most h^2 / 8 times the largest |f''|, and so it lies within that of the range at the points.
    """
    curvature, steepest = bends(function, low, high)
    share = torch.linspace(0, 1, POINTS, dtype=torch.float64).reshape(-1, *[1] * low.ndim)
    z = low + (high - low) * share
    z[0], z[-1] = low, high
    found = value(function, Ball(z))
    width = high - low
    slope = torch.where(width > 0, (found.mid[-1] - found.mid[0]) / torch.where(width > 0, width, 1.0), 0.0)
    slope = torch.maximum(-steepest, torch.minimum(slope, steepest))
    rest = found.mid - slope * z
    off = found.radius + 4 * U * (found.mid.abs() + (slope * z).abs()) + LEAST
    gap = (width / (POINTS - 1)) * (1 + 2.0**-20) + 8 * U * (low.abs() + high.abs())  # the points are rounded
    bent = curvature / 8 * gap.square() * ENLARGE + LEAST + FALLS.get(function, 0.0)
    under = ((rest - off).amin(0) - bent) - 4 * U * (rest.abs().amax(0) + off.amax(0) + bent)
    over = ((rest + off).amax(0) + bent) + 4 * U * (rest.abs().amax(0) + off.amax(0) + bent)
    # f is between f(0) +- steepest |z|; or near what it is at the next point
    size = (steepest * torch.maximum(low.abs(), high.abs()) + AT_ZERO.get(function, 0.0)) * ENLARGE + LEAST
    if function in LOCAL:
        size = (found.size.amax(0) + steepest * gap) * ENLARGE
    return Lines(slope, under, slope, over, size)
