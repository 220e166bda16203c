"""Balls of torch tensors: midpoints, radii, and, where it pays, one radius in the l2 norm for each vector.

Every number that the reading allows lies within `rad` of `mid`, and every vector along `norm.axis` lies within
`norm.radius` of its midpoint in the l2 norm. The reading real allows one number, the exact one; the reading of a
dtype allows what any order of evaluation computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from verify.arithmetic.operations import Operations
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, U, gamma


@dataclass(frozen=True)
class Norm:
    """A bound on the l2 distance of each vector along `axis` (negative) from its midpoint; size 1 along that axis.

    `blocks`, for the last axis, gives the same for h equal parts of each vector: shape (..., h, 1).
    """

    radius: Tensor
    axis: int = -1
    blocks: Callable[[int], Tensor] | None = None

    def plus(self, local: Tensor) -> Norm:
        """The norm where each number may be off by `local` more."""
        radius = (self.radius + length(local, self.axis)) * ENLARGE
        if self.blocks is None or self.axis != -1:
            return Norm(radius, self.axis)
        before = self.blocks
        return Norm(radius, -1, lambda h: (before(h) + length(parts(local, h))) * ENLARGE)


def parts(x: Tensor, h: int) -> Tensor:
    """The last axis as h equal parts: (..., h, size / h)."""
    return x.reshape(*x.shape[:-1], h, x.shape[-1] // h)


@dataclass(frozen=True)
class Ball:
    """Midpoints and radii of one shape; `rad` None means exact. `infinite` says that a midpoint may be exactly +-inf.

    The radius inf says that the number may be any, NaN that it may be none at all: 1/0, or beyond a dtype's largest.

    `l1` bounds the sum of the distances along the last axis where that is less than the sum of the radii.

    >>> Ball(torch.tensor([3.0]), torch.tensor([0.5])).size.item() >= 3.5
    True
    """

    mid: Tensor
    rad: Tensor | None = None
    norm: Norm | None = None
    infinite: bool = False
    l1: Tensor | None = None

    @property
    def radius(self) -> Tensor:
        return torch.zeros_like(self.mid) if self.rad is None else self.rad

    @property
    def size(self) -> Tensor:
        """An upper bound on the absolute value."""
        return self.mid.abs() if self.rad is None else (self.mid.abs() + self.rad) * ENLARGE

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Lower and upper ends, rounded outwards."""
        if self.rad is None:
            return self.mid, self.mid
        down, up = self.mid - self.rad, self.mid + self.rad
        is_exact = self.rad == 0  # infinities of masks among them
        down = torch.where(is_exact, self.mid, down - U * 2 * down.abs() - LOST)
        return down, torch.where(is_exact, self.mid, up + U * 2 * up.abs() + LOST)

    def deviation(self, axis: int = -1) -> Tensor:
        """A bound on the l2 distance of the vectors along an axis, kept as an axis of size one."""
        if self.norm is not None and self.norm.axis == axis:
            return self.norm.radius
        return length(self.radius, axis)


def of_finite(mid: Tensor, rad: Tensor, *given: Ball) -> Tensor:
    """The radius, NaN where exact infinities among the balls given leave no number: 0 times -inf, or inf - inf."""
    if not any(ball.infinite for ball in given):
        return rad
    return torch.where(torch.isfinite(mid), rad, torch.full_like(rad, math.nan))


Pull = Callable[[Ball], tuple["Ball | None", ...]]


@dataclass(frozen=True)
class Step:
    """One operation on the tape: out = f(inputs), off by at most `local` at the midpoints and in any run together.

    `pull` takes an enclosure of g to one of D^T g for each input, for every matrix D of slopes between points of the
    inputs' balls; None for an input that is exact. What is uncertain of the slopes that reach a step that `is_tight` is
    better multiplied by the radius there than followed further.

    What reads the result may each read another form of it: all within `u` of its size and `tiny` of one number. A step
    that `is_same` makes no number anew: each reads the inputs through it, in a form of its own.
    """

    out: Ball
    inputs: tuple[Ball, ...]
    local: Tensor
    pull: Pull
    is_tight: bool = False
    is_same: bool = False
    u: float = 0.0
    tiny: float = 0.0

    @property
    def between_forms(self) -> Tensor:
        """How far a form of the result is from the number that all of them are near, and no more than `local`."""
        return torch.minimum((self.u * self.out.size + self.tiny) * ENLARGE, self.local)


@dataclass(frozen=True)
class Unsure:
    """Truth values, `known` where they hold for the whole ball."""

    value: Tensor
    known: Tensor


@dataclass(frozen=True)
class Whole:
    """Whole numbers that computed floats decide: each lies between `low` and `high`, both in int64."""

    low: Tensor
    high: Tensor


Decided = Tensor | Whole | Unsure  # whole numbers and truth values
Computed = Ball | Decided
Value = Computed | float  # what an operation may be given; float: any number of Python
Axes = int | Sequence[int] | None


def length(x: Tensor, axis: int = -1) -> Tensor:
    """An upper bound on the l2 norm along an axis, kept as an axis of size one.

    Scaled by the largest entry, so that no square underflows or overflows; the rounding is within ENLARGE.
    """
    top = x.abs().amax(axis, keepdim=True)
    safe = torch.where((top > 0) & torch.isfinite(top), top, torch.ones_like(top))
    total = (x / safe).square().sum(axis, keepdim=True).sqrt() * safe * ENLARGE
    return torch.where(torch.isfinite(top), total + LOST, top)


@dataclass(frozen=True)
class Arithmetic(Operations):
    """What one operation may be off by: float64's own rounding, and in a dtype the rounding that the reading allows.

    `has_norms` follows vectors in the l2 norm too, and `tape` keeps the steps
    for the mean value form. `kept` has the norms of stored matrices, for runs that share them unchanged. `has_forms`
    says that what reads a result may read it rounded or kept, and not all of them alike.
    """

    has_norms: bool = False
    tape: list[Step] | None = None
    kept: dict[object, tuple[Tensor, Tensor]] | None = field(default=None, compare=False)
    has_forms: bool = True

    def record(self, out: Ball, inputs: tuple[Ball, ...], local: Tensor, pull: Pull, is_same: bool = False) -> Ball:
        """The ball itself, written on the tape as one step from its inputs."""
        if self.tape is not None:
            forms = (self.u, self.tiny) if self.has_forms and self.stored is not None else (0.0, 0.0)
            self.tape.append(Step(out, inputs, local, pull, False, is_same, *forms))
        return out

    def within_reach(self, size: Tensor, k: int, rad: Tensor) -> Tensor:
        """The radius, NaN where a part of a sum of k products may overflow, whose absolute values add up to `size`.

        Each part is at most the sum of the absolute values, each k + 2 times rounded upwards, then stored, and what is
        rounded up below the normal numbers.
        """
        if self.stored is None:
            return rad
        inner = self.accumulate or self.stored
        grown = math.exp(min((k + 2) * (inner.u + 2.0 ** -(2 * inner.p + 1)) + 2 * self.u, 700.0)) * ENLARGE
        return self.checked((size + 2 * (k + 2) * self.tiny) * grown, rad)

    def checked(self, size: Tensor, rad: Tensor) -> Tensor:
        """The radius, NaN where a number of that size may overflow in the dtype: inf - inf is no number."""
        if self.stored is None:
            return rad
        return torch.where(size <= self.stored.largest, rad, torch.full_like(rad, math.nan))

    def result(
        self,
        mid: Tensor,
        rad: Tensor | None,
        roundings: int = 1,
        norm: Norm | None = None,
        step: tuple[tuple[Ball, ...], Pull] | None = None,
    ) -> Ball:
        """One operation's result: float64 computed `mid` with `roundings`, exact values lie within `rad` besides.

        `norm` bounds the same propagated error in the l2 norm, without the roundings; `step` goes on the tape.
        """
        size = mid.abs() if rad is None else mid.abs() + rad
        relative = gamma(roundings) + (1 + self.u) ** roundings - 1
        local = relative * ENLARGE * size + 2 * roundings * self.tiny
        total = (local if rad is None else rad + local) * ENLARGE
        total = self.checked(size, total)
        if norm is not None:
            norm = norm.plus(local * ENLARGE)
        out = Ball(mid, total, norm)
        return (
            out
            if step is None or self.tape is None
            else self.record(out, step[0], self.checked(size, local * ENLARGE), step[1])
        )

    def number(self, x: float, like: Tensor) -> Ball:
        """A Python number, the double it is; a dtype rounds it or keeps it wider."""
        near = float(x)
        value = torch.full((), near, dtype=torch.float64, device=like.device)
        is_read = not math.isfinite(near) or near == x  # else a whole number beyond 2^53, off by at most u of itself
        own = value.abs() * (0.0 if is_read else 2 * U)
        if self.stored is None or not math.isfinite(near) or near.is_integer() and abs(near) <= 2**self.stored.p:
            return Ball(value, None if is_read else own, infinite=math.isinf(near))
        return Ball(value, self.checked(value.abs(), own + value.abs() * self.u + self.stored.tiny))

    def tensor(self, x: Tensor) -> Ball:
        """A stored tensor of floats: rounded to the dtype once; what is subnormal there may be flushed."""
        from verify.arithmetic.rounding import rounded

        exact = x.detach().to(torch.float64)
        infinite = bool(torch.isinf(exact).any())
        if self.stored is None:
            return Ball(exact, None, infinite=infinite)
        if self.stored.name == "tf32":  # factors are rounded, or not
            rad = exact.abs() * self.stored.u * (1 + 2.0**-10) + self.stored.tiny
            beyond = (exact.abs() > self.stored.largest) & torch.isfinite(exact)
            return Ball(exact, torch.where(beyond, torch.full_like(rad, math.nan), rad), infinite=infinite)
        near = torch.as_tensor(rounded(exact.cpu().numpy(), self.stored), device=exact.device)
        flushed = (near.abs() < self.stored.tiny) & (near != 0)
        # a number beyond the largest becomes infinite, which no mask means
        overflow = torch.isinf(near) & torch.isfinite(exact)
        rad = torch.where(flushed, near.abs(), torch.zeros_like(near))
        rad = torch.where(overflow, torch.full_like(rad, math.nan), rad)
        is_exact = not bool((flushed | overflow).any())
        return Ball(near, None if is_exact else rad, infinite=infinite)


def norm_after(norm: Norm | None, before: torch.Size, after: torch.Size) -> Norm | None:
    """The norm of a tensor that is viewed with another shape, where vectors stay whole, split, or join."""
    if norm is None or len(before) == 0 or len(after) == 0:
        return None
    if norm.axis == -2 and len(after) >= 2 and before[-2:] == after[-2:]:
        return Norm(norm.radius.reshape(*after[:-2], 1, after[-1]), -2)
    if norm.axis != -1:
        return norm if before == after else None
    if before[-1] == after[-1]:
        blocks = norm.blocks
        passed = None if blocks is None else lambda h: blocks(h).reshape(*after[:-1], h, 1)
        return Norm(norm.radius.reshape(*after[:-1], 1), -1, passed)
    product = 1
    for k in range(1, len(after) + 1):  # one vector becomes several, each no longer than it
        product *= after[-k]
        if product == before[-1]:
            if norm.blocks is not None and k == 2:
                return as_rows(norm.blocks, after)
            whole = norm.radius.reshape(*after[:-k], *([1] * k))
            return Norm(whole.expand(*after[:-1], 1))
    product = 1
    for k in range(1, len(before) + 1):  # several vectors become one
        product *= before[-k]
        if product == after[-1]:
            joined = norm.radius.reshape(*before[:-1])
            for _ in range(k - 1):
                joined = length(joined, -1).squeeze(-1)
            return Norm(joined.reshape(*after[:-1], 1))
    return None


def as_rows(blocks: Callable[[int], Tensor], after: torch.Size) -> Norm:
    """The norm of vectors that are viewed as rows, where their equal parts have bounds of their own."""
    n = after[-2]
    return Norm(blocks(n).reshape(*after[:-1], 1), -1, lambda h: blocks(n * h).reshape(*after[:-1], h, 1))
