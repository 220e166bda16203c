"""What a value of each torch dtype is here, and `cast`, the one way from one dtype to another.

A tensor of floats is a `Ball`. Whole numbers and truth values that no computed float decides are plain tensors, which
torch itself computes with. The others are intervals of whole numbers, `Whole`, or `Unsure` truth values: they hold what
they may be, and no cast, copy, mask or index makes them smaller.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verify.arithmetic.slack import U
from verify.engine.balls import Arithmetic, Ball, Computed, Decided, Unsure, Whole

TRUTHS = frozenset({torch.bool})
WHOLES = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
ANY = TRUTHS | WHOLES | FLOATS
IN_RANGE = 2.0**62  # int64 arithmetic on numbers whose float64 results stay below this does not wrap
EXACTLY = 2.0**53  # whole numbers below this are exact in float64


def is_float(dtype: torch.dtype | None) -> bool:
    """Whether values of a dtype are balls."""
    return dtype is not None and dtype.is_floating_point


def widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    """Whether every number of one format of floats is one of the other."""
    to = {torch.float16: (torch.float32, torch.float64), torch.bfloat16: (torch.float32, torch.float64)}
    return narrow == wide or wide in {**to, torch.float32: (torch.float64,)}.get(narrow, ())


def cast(at: Arithmetic, x: Computed, dtype: torch.dtype) -> Computed:
    """The value as a number of another dtype, as torch casts it: capture has refused what is not covered here.

    Whole numbers and truth values become floats rounded once; whole numbers beyond the range of another dtype wrap,
    and may be any number of it; the truth of a number is whether it is not 0. Floats keep their format: a cast of
    computed floats to another is refused.
    """
    if is_float(dtype):
        return as_float(at, x)
    if isinstance(x, Tensor):
        return x.to(dtype)
    low, high = ends(at, x)  # type: ignore[arg-type]  # a ball is refused at capture
    return fitted(low, high, dtype, torch.ones_like(low, dtype=torch.bool))


def as_float(at: Arithmetic, x: Computed) -> Ball:
    """A ball from a ball, from whole numbers or from truth values, which the dtype rounds once."""
    if isinstance(x, Ball):
        return x
    if isinstance(x, Tensor):
        assert not x.is_floating_point(), "floats are balls"
        mid = x.to(torch.float64)
        return Ball(mid, None if is_exact(at, x) else rounded(at, mid.abs()))
    if isinstance(x, Unsure):
        half = torch.full_like(x.value, 0.5, dtype=torch.float64)
        return Ball(torch.where(x.known, x.value.to(torch.float64), half), torch.where(x.known, 0.0, half))
    low, high = x.low.to(torch.float64), x.high.to(torch.float64)
    mid = low / 2 + high / 2
    size = torch.maximum(low.abs(), high.abs())
    # the ends, their halves, their sum and their distance are rounded once each, by at most u of 2 `size`
    apart = torch.where(x.low == x.high, 0.0, (high - low) / 2 + 8 * U * size)
    return Ball(mid, apart + rounded(at, size))


def is_exact(at: Arithmetic, x: Tensor) -> bool:
    """Whether these whole numbers or truth values are numbers of the dtype, all of them, as far as can be known."""
    if x.dtype == torch.bool or (at.is_real and x.dtype != torch.int64):
        return True
    is_batch = torch._C._functorch.is_batchedtensor(x)
    most = EXACTLY if at.stored is None else min(2.0**at.stored.p, at.stored.largest)
    return not is_batch and bool((x.to(torch.float64).abs() <= most).all())


def rounded(at: Arithmetic, size: Tensor) -> Tensor:
    """Bounds what is rounded away from whole numbers of at most this size; 0 where all such numbers are exact."""
    off = torch.where(size < EXACTLY, 0.0, 2 * U * size)
    if at.stored is None:
        return off
    return at.checked(size, off + torch.where(size <= 2.0**at.stored.p, 0.0, at.u * (1 + 4 * U) * size))


def ends(at: Arithmetic, x: Decided | float) -> tuple[Tensor, Tensor]:
    """The least and the greatest whole number that a value may be, in int64."""
    if isinstance(x, Whole):
        return x.low, x.high
    if isinstance(x, Unsure):
        return (x.value & x.known).long(), (x.value | ~x.known).long()
    number = x.long() if isinstance(x, Tensor) else torch.tensor(int(x))
    return number, number


def fitted(low: Tensor, high: Tensor, dtype: torch.dtype, is_sure: Tensor) -> Decided:
    """Whole numbers from `low` to `high` in a dtype, where `is_sure` says that int64 holds the two.

    One that is beyond the dtype's range wraps, as torch casts it; several may be any number of the dtype.
    """
    if dtype == torch.bool:
        true, false = ((low > 0) | (high < 0)) & is_sure, (low == 0) & (high == 0) & is_sure
        return Unsure(true, true | false)
    range_of = torch.iinfo(dtype)
    fits = is_sure & (low >= range_of.min) & (high <= range_of.max)
    least, most = torch.where(fits, low, range_of.min), torch.where(fits, high, range_of.max)
    is_one, one = is_sure & (low == high), low.to(dtype).long()
    return Whole(torch.where(is_one, one, least), torch.where(is_one, one, most))


def truth(at: Arithmetic, x: Computed) -> Unsure:
    """Whether a value is not 0: NaN is not."""
    if isinstance(x, Unsure):
        return x
    if isinstance(x, Tensor):
        return Unsure(x != 0, torch.ones_like(x, dtype=torch.bool))
    if isinstance(x, Whole):
        zero = (x.low == 0) & (x.high == 0)
        true = (x.low > 0) | (x.high < 0)
        return Unsure(true, true | zero)
    low, high = x.ends
    is_zero = (x.mid == 0) & (x.radius == 0)
    is_not = (low > 0) | (high < 0) | ((x.radius == 0) & (x.mid != 0))
    return Unsure(is_not, is_zero | is_not)


def is_whole(x: object) -> bool:
    """Whether a Python number is a whole number."""
    return isinstance(x, int) or (isinstance(x, float) and math.isfinite(x) and x.is_integer())
