"""Operations that move, copy or choose numbers and compute none: the same operation on midpoints and radii."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG, gamma
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.engine.balls import Arithmetic, Ball, Computed, Norm, Pull, Unsure, Value, length, norm_after
from verify.engine.dtypes import truth
from verify.engine.rules.linear import unbroadcast
from verify.engine.rules.registry import RULES, Rule, as_ball, midpoint, rule

aten = torch.ops.aten


def moved(x: Ball, move: Callable[..., Tensor]) -> Ball:
    """The ball after an operation that takes each number of its result from one place, or writes zeros."""
    return Ball(move(x.mid), None if x.rad is None else move(x.rad), None, x.infinite)


@rule("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def view(at: Arithmetic, x: Ball, shape: list[int]) -> Ball:
    """The same numbers in another shape."""
    out = moved(x, lambda t: t.reshape(shape))
    l1 = None
    if x.l1 is not None and out.mid.ndim and out.mid.shape[-1] == x.mid.shape[-1]:
        l1 = x.l1.reshape(*out.mid.shape[:-1], 1)
    return Ball(out.mid, out.rad, norm_after(x.norm, x.mid.shape, out.mid.shape), x.infinite, l1)


@rule("aten.permute.default")
def permute(at: Arithmetic, x: Ball, dims: list[int]) -> Ball:
    """The same numbers with the axes in another order."""
    out = moved(x, lambda t: t.permute(dims))
    norm, n = None, len(dims)
    if x.norm is not None:
        order = [d % n for d in dims]
        axis, finer = order.index(x.norm.axis % n) - n, x.norm.blocks
        passed = None if finer is None or axis != -1 else lambda h: finer(h).permute(*order, n)
        norm = Norm(x.norm.radius.permute(dims), axis, passed)
    return Ball(out.mid, out.rad, norm, x.infinite)


@rule("aten.transpose.int")
def transpose(at: Arithmetic, x: Ball, a: int, b: int) -> Ball:
    """The same numbers with two axes exchanged."""
    dims = list(range(x.mid.ndim))
    dims[a], dims[b] = dims[b], dims[a]
    return permute(at, x, dims)


@rule("aten.t.default")
def t(at: Arithmetic, x: Ball) -> Ball:
    """The transpose of a matrix, or a vector as it is."""
    return x if x.mid.ndim < 2 else transpose(at, x, 0, 1)


@rule("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default")
def same(at: Arithmetic, x: Ball, **options: object) -> Ball:
    """The same numbers."""
    return x


@rule("aten.lift_fresh_copy.default", "aten.lift_fresh.default")
def lifted(at: Arithmetic, x: Ball) -> Ball:
    """A stored constant."""
    return x


@rule("aten.expand.default")
def expand(at: Arithmetic, x: Ball, shape: list[int], **options: object) -> Ball:
    """The same numbers, repeated along new axes and those of size one."""
    out = moved(x, lambda t: t.expand(shape))
    if x.mid.shape == out.mid.shape:
        return x
    norm = x.norm
    if norm is not None and x.mid.shape[norm.axis] == out.mid.shape[norm.axis]:
        sizes = list(out.mid.shape)
        sizes[norm.axis] = 1
        return Ball(out.mid, out.rad, Norm(norm.radius.expand(sizes), norm.axis), x.infinite)
    return out


@rule("aten.unsqueeze.default")
def unsqueeze(at: Arithmetic, x: Ball, dim: int) -> Ball:
    """The same numbers with one more axis, of size one."""
    out = moved(x, lambda t: t.unsqueeze(dim))
    return Ball(out.mid, out.rad, norm_after(x.norm, x.mid.shape, out.mid.shape), x.infinite)


@rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(at: Arithmetic, x: Ball, *dims: object) -> Ball:
    """The same numbers without axes of size one."""
    out = moved(x, lambda t: t.squeeze(*[tuple(d) if isinstance(d, list) else d for d in dims]))
    return Ball(out.mid, out.rad, norm_after(x.norm, x.mid.shape, out.mid.shape), x.infinite)


@rule("aten.slice.Tensor")
def slice_(
    at: Arithmetic, x: Ball, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Ball:
    """Some of the numbers along one axis."""
    out = moved(x, lambda t: aten.slice.Tensor(t, dim, start, end, step))
    return Ball(
        out.mid, out.rad, part_of(x, out, dim, lambda t: aten.slice.Tensor(t, dim, start, end, step)), x.infinite
    )


def part_of(x: Ball, out: Ball, dim: int, take: Callable[..., Tensor]) -> Norm | None:
    """The norm of what is left after taking a part along an axis; a part of a vector is no longer than it."""
    if x.norm is None or out.mid.ndim != x.mid.ndim:
        return None
    if dim % x.mid.ndim == x.norm.axis % x.mid.ndim:
        return Norm(x.norm.radius, x.norm.axis)  # its blocks are not those of the part
    return Norm(take(x.norm.radius), x.norm.axis)


@rule("aten.select.int")
def select(at: Arithmetic, x: Ball, dim: int, index: int) -> Ball:
    """The numbers at one place of one axis."""
    out = moved(x, lambda t: t.select(dim, index))
    norm, n = None, x.mid.ndim
    if x.norm is not None and dim % n < x.norm.axis % n:
        finer, place = x.norm.blocks, dim % n
        passed = None if finer is None else lambda h: finer(h).select(place, index)
        norm = Norm(x.norm.radius.select(dim, index), x.norm.axis, passed)
    return Ball(out.mid, out.rad, norm, x.infinite)


@rule("aten.split_with_sizes.default", "aten.split.Tensor")
def split(at: Arithmetic, x: Ball, sizes: int | list[int], dim: int = 0) -> list[Ball]:
    """The numbers in consecutive parts along one axis."""
    mids, rads = torch.split(x.mid, sizes, dim), None if x.rad is None else torch.split(x.rad, sizes, dim)
    norms = norms_of_parts(x, mids, sizes, dim)
    return [Ball(mid, None if rads is None else rads[i], norms[i], x.infinite) for i, mid in enumerate(mids)]


def norms_of_parts(x: Ball, mids: Sequence[Tensor], sizes: int | list[int], dim: int) -> Sequence[Norm | None]:
    """The norms of consecutive parts along an axis; of h equal parts of vectors where their blocks are known."""
    if x.norm is None:
        return [None] * len(mids)
    if dim % x.mid.ndim != x.norm.axis % x.mid.ndim:
        return [Norm(part, x.norm.axis) for part in torch.split(x.norm.radius, sizes, dim)]
    n, before = len(mids), x.norm.blocks
    if before is None or len({mid.shape[dim] for mid in mids}) > 1:
        return [x.norm] * n if before is None else [Norm(x.norm.radius, x.norm.axis)] * n
    return [part_of_blocks(before, n, i) for i in range(n)]


def part_of_blocks(blocks: Callable[[int], Tensor], n: int, i: int) -> Norm:
    """The norm of the i-th of n equal parts of each vector."""
    return Norm(blocks(n)[..., i, :], -1, lambda h: blocks(n * h)[..., i * h : (i + 1) * h, :])


@rule("aten.unbind.int")
def unbind(at: Arithmetic, x: Ball, dim: int = 0) -> list[Ball]:
    """The numbers at each place of one axis."""
    return [moved(x, lambda t, i=i: t.select(dim, i)) for i in range(x.mid.shape[dim])]


@rule("aten.cat.default")
def cat(at: Arithmetic, xs: list[Value], dim: int = 0) -> Ball:
    """Tensors joined along one axis."""
    balls = [as_ball(at, x, midpoint(*xs)) for x in xs]
    rad = None if all(x.rad is None for x in balls) else torch.cat([x.radius for x in balls], dim)
    norm, n = None, balls[0].mid.ndim
    if all(x.norm is not None and x.norm.axis == -1 for x in balls):
        radii = [x.norm.radius for x in balls if x.norm is not None]
        norm = Norm(length(torch.cat(radii, -1)) if dim % n == n - 1 else torch.cat(radii, dim))
    return Ball(torch.cat([x.mid for x in balls], dim), rad, norm, any(x.infinite for x in balls))


@rule("aten.stack.default")
def stack(at: Arithmetic, xs: list[Value], dim: int = 0) -> Ball:
    """Tensors joined along a new axis."""
    balls = [as_ball(at, x, midpoint(*xs)) for x in xs]
    rad = None if all(x.rad is None for x in balls) else torch.stack([x.radius for x in balls], dim)
    return Ball(torch.stack([x.mid for x in balls], dim), rad, None, any(x.infinite for x in balls))


def register_move(name: str, operation: Callable[..., Tensor], says: str, aside: tuple[int, ...]) -> None:
    """Registers an operation that only moves numbers, and makes no others but zeros."""

    def move(at: Arithmetic, x: Ball, *arguments: object, **options: object) -> Ball:
        return moved(x, lambda values: operation(values, *arguments, **options))

    move.__doc__ = says
    rule(name, aside=aside)(move)


for _name, _operation, _says in (
    ("aten.flip.default", aten.flip.default, "The same numbers in reverse along some axes."),
    ("aten.repeat.default", aten.repeat.default, "The same numbers, repeated."),
    ("aten.roll.default", aten.roll.default, "The same numbers, turned round along some axes."),
    ("aten.diagonal.default", aten.diagonal.default, "The numbers on a diagonal."),
    ("aten.triu.default", aten.triu.default, "The numbers on and above a diagonal, zero elsewhere."),
    ("aten.tril.default", aten.tril.default, "The numbers on and below a diagonal, zero elsewhere."),
    ("aten.gather.default", aten.gather.default, "The numbers at exactly known places along one axis."),
    ("aten.index_select.default", aten.index_select.default, "The numbers at exactly known places of one axis."),
):
    register_move(_name, _operation, _says, (2,) if "at exactly known" in _says else ())


@rule("aten.constant_pad_nd.default")
def pad(at: Arithmetic, x: Ball, widths: list[int], value: float = 0.0) -> Ball:
    """The numbers with a constant round them, which a dtype rounds."""
    number = at.number(value, x.mid)
    mid = aten.constant_pad_nd.default(x.mid, widths, float(number.mid))
    rad = None if x.rad is None else aten.constant_pad_nd.default(x.rad, widths, 0.0)
    if number.rad is not None:
        is_new = aten.constant_pad_nd.default(torch.zeros_like(x.mid), widths, 1.0) > 0
        rad = torch.where(is_new, number.rad, torch.zeros_like(mid) if rad is None else rad)
    return Ball(mid, rad, None, x.infinite or number.infinite)


@rule("aten.embedding.default", aside=(1,))
def embedding(at: Arithmetic, weight: Ball, tokens: Tensor, *options: object) -> Ball:
    """The rows of a table that tokens name; where one is negative the module fails, and no logit has a ball."""
    return moved(weight, lambda table: aten.index.Tensor(table, [tokens]))


@rule("aten.index.Tensor", aside=(1,))
def index(at: Arithmetic, x: Ball, places: list[object]) -> Ball:
    """The numbers at exactly known places."""
    return moved(x, lambda values: aten.index.Tensor(values, places))


def register_write(name: str, operation: Callable[..., Tensor], says: str) -> None:
    """Registers an operation that overwrites a part of a tensor."""

    def write(at: Arithmetic, x: Value, part: Value, *place: object, **options: object) -> Ball:
        like = midpoint(x, part)
        whole, new = as_ball(at, x, like), as_ball(at, part, like)
        rad = None
        if whole.rad is not None or new.rad is not None:
            rad = operation(whole.radius, new.radius, *place, **options)
        return Ball(operation(whole.mid, new.mid, *place, **options), rad, None, whole.infinite or new.infinite)

    write.__doc__ = says
    rule(name)(write)


register_write(
    "aten.select_scatter.default", aten.select_scatter.default, "A tensor with one place of an axis overwritten."
)


def slice_scatter(
    x: Tensor, part: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """torch's, with an end within the axis: beyond it vmap computes a size that overflows where the step is not 1."""
    end = x.shape[dim] if end is None else min(end, x.shape[dim])
    found: Tensor = aten.slice_scatter.default(x, part, dim, start, end, step)
    return found


register_write("aten.slice_scatter.default", slice_scatter, "A tensor with a part overwritten.")


@rule("aten.copy.default")
def copy(at: Arithmetic, x: Value, new: Value, *options: object) -> Ball:
    """A tensor overwritten by another."""
    ball, shape = as_ball(at, new, midpoint(x, new)), midpoint(x).shape
    return moved(ball, lambda values: values.expand(shape))


@rule("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar", aside=(0,))
def where(at: Arithmetic, condition: Computed, a: Value, b: Value) -> Ball:
    """One of two numbers by a truth value; both where the truth value is not sure."""
    like = midpoint(a, b, condition)
    x, y = as_ball(at, a, like), as_ball(at, b, like)
    if not isinstance(condition, Tensor) or condition.dtype != torch.bool:
        condition = truth(at, condition)
    known = condition.value if isinstance(condition, Unsure) else condition
    mid = torch.where(known, x.mid, y.mid)
    rad = None
    if x.rad is not None or y.rad is not None:
        rad = torch.where(known, x.radius, y.radius)
    if isinstance(condition, Unsure):
        other = torch.where(known, y.mid, x.mid)
        apart = (other - mid).abs() * ENLARGE_LONG + torch.maximum(x.radius, y.radius)
        apart = torch.where(torch.isfinite(apart), apart, torch.full_like(apart, math.nan))  # a mask or none
        sure = rad if rad is not None else torch.zeros_like(mid)
        rad = torch.where(condition.known, sure, apart)
    out = Ball(mid, rad, None, x.infinite or y.infinite)
    if at.tape is None or rad is None or isinstance(condition, Unsure):
        return out
    return at.record(out, (x, y), torch.zeros(()), lambda slope: chosen(slope, condition, x, y), is_same=True)


def chosen(slope: Ball, condition: Tensor, x: Ball, y: Ball) -> tuple[Ball | None, Ball | None]:
    """Slopes moved back to the one of two numbers that was chosen: to each where it was, 0 elsewhere."""

    def part(of: Ball, is_chosen: Tensor) -> Ball | None:
        if of.rad is None:
            return None
        mid, rad = (torch.where(is_chosen, values, torch.zeros_like(values)) for values in (slope.mid, slope.radius))
        return unbroadcast(Ball(mid, rad), of.mid.shape)

    return part(x, condition), part(y, ~condition)


INVERTIBLE = (view, permute, transpose, t, unsqueeze, squeeze)
MOVES = {
    *INVERTIBLE,
    *(expand, slice_, select, split, unbind, cat, stack, embedding, index),
    *(RULES[f"aten.{name}.default"] for name in ("flip", "repeat", "roll", "diagonal", "triu", "tril", "gather")),
    RULES["aten.index_select.default"],
}


def record_move(at: Arithmetic, move: Rule, args: Sequence[object], options: Mapping[str, object], out: object) -> None:
    """Writes an operation that moves numbers on the tape: slopes are moved back, and added where they meet."""
    outs = out if isinstance(out, list) else [out]
    read = args[0] if isinstance(args[0], list) else [args[0]]
    given = [x for x in read if isinstance(x, Ball)]
    if len(given) < len(read) or any(part is x for part in outs for x in given):
        return
    for i, part in enumerate(outs):
        if isinstance(part, Ball) and part.rad is not None:
            pull = back(move, args, options, given, None if part is out else i)
            at.record(part, tuple(given), torch.zeros(()), pull, is_same=True)


def back(move: Rule, args: Sequence[object], options: Mapping[str, object], given: list[Ball], i: int | None) -> Pull:
    """Slopes moved back through part i of what an operation gives, all of it where i is None."""
    is_list = isinstance(args[0], list)

    def forward(*mids: Tensor) -> Tensor:
        balls = [Ball(mid) for mid in mids]
        found = move(Arithmetic(), balls if is_list else balls[0], *args[1:], **options)
        values: Tensor = (found if i is None else found[i]).mid
        return values

    def pull(slope: Ball) -> tuple[Ball | None, ...]:
        if move in INVERTIBLE:
            return (undone(move, slope, given[0].mid.shape, args[1:]),)
        moved_back = torch.func.vjp(forward, *(x.mid for x in given))[1]
        mids, rads, sizes = (moved_back(v) for v in (slope.mid, slope.radius, slope.mid.abs()))
        g = gamma(slope.mid.numel())  # as many slopes meet in one number at most
        found = []
        for x, mid, rad, size in zip(given, mids, rads, sizes, strict=True):
            is_part = slope.norm is not None and slope.norm.axis == -1 and move in (split, slice_)
            along = is_part and mid.shape[:-1] == slope.mid.shape[:-1]
            norm = Norm(slope.norm.radius) if along and slope.norm is not None else None
            off = rad * (1 + g) + (0.0 if move in (split, slice_) else g * size)
            found.append(None if x.rad is None else Ball(mid, off * ENLARGE, norm))
        return tuple(found)

    return pull


def undone(move: Rule, slope: Ball, shape: torch.Size, args: Sequence[object]) -> Ball:
    """Slopes in the shape and order before a view or a permutation; their norms go with them."""
    at = Arithmetic()
    if move is permute:
        dims = [d % len(shape) for d in cast(Sequence[int], args[0])]
        result: Ball = permute(at, slope, [dims.index(i) for i in range(len(dims))])
    elif move in (transpose, t):
        result = move(at, slope, *args)
    else:
        result = view(at, slope, list(shape))
    return result
