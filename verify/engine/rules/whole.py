"""Whole numbers and truth values that computed floats decide, as intervals: what torch computes in their dtype.

Each rule takes intervals in the operation's own dtype, to which the arguments were cast before, and the same dtype is
that of its result: true and false are 1 and 0, so that their sum is "or" and their product "and". What may leave the
dtype's range may be any number of it, for it wraps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from verify.engine.balls import Arithmetic, Axes, Ball, Computed, Decided, Unsure, Whole
from verify.engine.dtypes import IN_RANGE, TRUTHS, WHOLES, cast, ends, fitted, truth
from verify.engine.rules.movement import MOVES
from verify.engine.rules.registry import COVERS, RULES, Cover, Rule, covers

BOTH = WHOLES | TRUTHS
Number = Decided | float


def register(names: tuple[str, ...], kinds: frozenset[torch.dtype], rule: Rule, aside: tuple[int, ...] = ()) -> None:
    """Registers an operation on whole numbers: each rule is called with the dtype as the option `dtype`."""
    for name in names:
        covers(name, Cover(rule, kinds, aside, True))


def size(x: tuple[Tensor, Tensor]) -> Tensor:
    """A bound on the absolute value, but for float64's rounding."""
    return torch.maximum(x[0].to(torch.float64).abs(), x[1].to(torch.float64).abs())


def added(at: Arithmetic, a: Number, b: Number, *, alpha: int = 1, dtype: torch.dtype) -> Decided:
    """a + alpha b of whole numbers, which wrap; "or" of truth values."""
    x, y = ends(at, a), multiplied(ends(at, b), ends(at, alpha))
    is_sure = (size(x) + y[2]) < IN_RANGE
    return fitted(x[0] + y[0], x[1] + y[1], dtype, is_sure)


def subtracted(at: Arithmetic, a: Number, b: Number, *, alpha: int = 1, dtype: torch.dtype) -> Decided:
    """a - alpha b of whole numbers, which wrap."""
    return added(at, a, b, alpha=-int(alpha), dtype=dtype)


def subtracted_from(at: Arithmetic, a: Number, b: Number, *, alpha: int = 1, dtype: torch.dtype) -> Decided:
    """b - alpha a of whole numbers, which wrap."""
    return added(at, b, a, alpha=-int(alpha), dtype=dtype)


def multiplied(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The ends of a product, and its size; the ends mean nothing where that is not below IN_RANGE."""
    corners = [a * b for a in x for b in y]
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = torch.minimum(low, corner), torch.maximum(high, corner)
    return low, high, size(x) * size(y)


def times(at: Arithmetic, a: Number, b: Number, *, dtype: torch.dtype) -> Decided:
    """a b of whole numbers, which wraps; "and" of truth values."""
    low, high, largest = multiplied(ends(at, a), ends(at, b))
    return fitted(low, high, dtype, largest < IN_RANGE)


def negative(at: Arithmetic, x: Number, *, dtype: torch.dtype) -> Decided:
    """-x of whole numbers, which wraps."""
    return added(at, 0, x, alpha=-1, dtype=dtype)


def inverted(at: Arithmetic, x: Number, *, dtype: torch.dtype) -> Decided:
    """All bits of whole numbers inverted: -1 - x, or 255 - x in uint8."""
    return added(at, 255 if dtype == torch.uint8 else -1, x, alpha=-1, dtype=dtype)


def larger(at: Arithmetic, a: Number, b: Number, *, dtype: torch.dtype) -> Decided:
    """The larger of two whole numbers or truth values."""
    (x, x_high), (y, y_high) = ends(at, a), ends(at, b)
    return exactly(torch.maximum(x, y), torch.maximum(x_high, y_high), dtype)


def smaller(at: Arithmetic, a: Number, b: Number, *, dtype: torch.dtype) -> Decided:
    """The smaller of two whole numbers or truth values."""
    (x, x_high), (y, y_high) = ends(at, a), ends(at, b)
    return exactly(torch.minimum(x, y), torch.minimum(x_high, y_high), dtype)


def exactly(low: Tensor, high: Tensor, dtype: torch.dtype) -> Decided:
    return fitted(low, high, dtype, torch.ones_like(low, dtype=torch.bool))


def largest(
    at: Arithmetic, x: Number, dims: Sequence[int] = (), keepdim: bool = False, *, dtype: torch.dtype
) -> Decided:
    """The largest whole number or truth value along axes."""
    low, high = ends(at, x)
    axes = list(dims) if dims else list(range(low.ndim))
    return exactly(low.amax(axes, keepdim), high.amax(axes, keepdim), dtype)


def smallest(
    at: Arithmetic, x: Number, dims: Sequence[int] = (), keepdim: bool = False, *, dtype: torch.dtype
) -> Decided:
    """The smallest whole number or truth value along axes."""
    low, high = ends(at, x)
    axes = list(dims) if dims else list(range(low.ndim))
    return exactly(low.amin(axes, keepdim), high.amin(axes, keepdim), dtype)


def total(at: Arithmetic, x: Number, dims: Axes = None, keepdim: bool = False, *, dtype: torch.dtype) -> Decided:
    """A sum of whole numbers or of truth values counted, which wraps."""
    low, high = ends(at, x)
    axes = list(range(low.ndim)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        return exactly(low, high, dtype)
    is_sure = size((low, high)).sum(axes, keepdim) < IN_RANGE
    return fitted(low.sum(axes, keepdim), high.sum(axes, keepdim), dtype, is_sure)


def running_total(at: Arithmetic, x: Number, dim: int, *, dtype: torch.dtype) -> Decided:
    """Sums of the first 1, 2, ... whole numbers along an axis, which wrap."""
    low, high = ends(at, x)
    return fitted(low.cumsum(dim), high.cumsum(dim), dtype, size((low, high)).cumsum(dim) < IN_RANGE)


def copied(at: Arithmetic, x: Computed, *, dtype: torch.dtype, **options: object) -> Computed:
    """Whole numbers and truth values in another dtype, where they wrap, or are true where they are not 0."""
    return cast(at, x, dtype)


def chosen(at: Arithmetic, condition: Computed, a: Number, b: Number, *, dtype: torch.dtype) -> Decided:
    """One of two whole numbers or truth values by a truth value; either where that is not sure."""
    which = truth(at, condition)
    (x, x_high), (y, y_high) = ends(at, a), ends(at, b)
    low = torch.where(which.known, torch.where(which.value, x, y), torch.minimum(x, y))
    high = torch.where(which.known, torch.where(which.value, x_high, y_high), torch.maximum(x_high, y_high))
    return exactly(low, high, dtype)


def in_range(x: Number, dtype: torch.dtype) -> Number:
    """A Python number that the dtype does not have, as any number of it: it wraps; everything else as it is."""
    if not isinstance(x, int | float) or dtype == torch.bool or torch.iinfo(dtype).min <= x <= torch.iinfo(dtype).max:
        return x
    return Whole(torch.tensor(torch.iinfo(dtype).min), torch.tensor(torch.iinfo(dtype).max))


def compared(name: str, says: str) -> None:
    """Registers a comparison of whole numbers: sure where it holds, or fails, for both ends of both."""

    def compare(at: Arithmetic, a: Number, b: Number, *, dtype: torch.dtype) -> Unsure:
        (x, x_high), (y, y_high) = (ends(at, in_range(value, dtype)) for value in (a, b))
        if name in ("lt", "le"):
            x, x_high, y, y_high = y, y_high, x, x_high
        if name in ("gt", "lt"):
            surely, surely_not = x > y_high, x_high <= y
        elif name in ("ge", "le"):
            surely, surely_not = x >= y_high, x_high < y
        else:
            surely = (x == x_high) & (y == y_high) & (x == y)
            surely_not = (x_high < y) | (y_high < x)
            if name == "ne":
                surely, surely_not = surely_not, surely
        return Unsure(surely, surely | surely_not)

    compare.__doc__ = says
    register((f"aten.{name}.Tensor", f"aten.{name}.Scalar"), BOTH, compare)


for _name, _sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="), ("eq", "="), ("ne", "is not")):
    compared(_name, f"a {_sign} b of whole numbers, sure where the intervals say so.")

for _kind in ("Tensor", "Scalar"):
    register((f"aten.add.{_kind}",), BOTH, added)
    register((f"aten.mul.{_kind}",), BOTH, times)
    register((f"aten.sub.{_kind}",), WHOLES, subtracted)
    register((f"aten.rsub.{_kind}",), WHOLES, subtracted_from)
register(("aten.neg.default",), WHOLES, negative)
register(("aten.bitwise_not.default",), WHOLES, inverted)
register(("aten.maximum.default",), BOTH, larger)
register(("aten.minimum.default",), BOTH, smaller)
register(("aten.amax.default",), BOTH, largest)
register(("aten.amin.default",), BOTH, smallest)
register(("aten.sum.default", "aten.sum.dim_IntList"), WHOLES, total)
register(("aten.cumsum.default",), WHOLES, running_total)
register(("aten._to_copy.default",), BOTH, copied)
register(
    ("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar"), BOTH, chosen, (0,)
)

WRITES = ("aten.select_scatter.default", "aten.slice_scatter.default", "aten.copy.default")


def moved(name: str) -> Rule:
    """The rule of an operation that moves numbers, or writes some over others: done on both ends alike."""
    rule = RULES[name]

    def move(
        at: Arithmetic, x: Number, *arguments: object, dtype: torch.dtype, **options: object
    ) -> Decided | list[Decided]:
        def end(i: int, value: object) -> object:
            if isinstance(value, list) and any(isinstance(part, Tensor | Unsure | Whole) for part in value):
                return [end(i, part) for part in value]
            return Ball(ends(at, value)[i]) if isinstance(value, Tensor | Unsure | Whole) else value

        number = len(arguments) if name in WRITES else 0  # the arguments of the others are places
        written, place = arguments[:number], arguments[number:]
        low, high = (rule(at, end(i, x), *(end(i, y) for y in written), *place, **options) for i in (0, 1))
        if isinstance(low, list):
            return [exactly(a.mid, b.mid, dtype) for a, b in zip(low, high, strict=True)]
        return exactly(low.mid, high.mid, dtype)

    move.__doc__ = rule.__doc__
    return move


for _name in [name for name, rule in RULES.items() if rule in MOVES or name in WRITES]:
    register((_name,), BOTH, moved(_name), COVERS[_name][0].aside)
for _name in ("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh"):
    register((f"aten.{_name}.default",), BOTH, copied)
