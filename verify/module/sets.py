"""Sets of numbers: what operations of torch make of numbers that may each be one of several, in many cells at once.

An operation on one number of each argument is computed by torch itself, for all combinations of values; members are
taken to be independent, so that the set found has every number that occurs. Extremes, orders and the places of extremes
are found from the sets' ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from verify.engine.balls import Axes

MOST_VALUES = 1 << 12  # that a number of the graph may have
AT_ONCE = 1 << 22  # combinations that are formed at a time


class NotTraced(Exception):
    """A function whose answers on a cell are not known."""


@dataclass(frozen=True)
class Sets:
    """Numbers that may each be some of `values`: truth values by cell, place in the tensor, and value.

    Shapes: `values` (values,), sorted; `may` (cells, ..., values).
    """

    values: Tensor
    may: Tensor

    @classmethod
    def exactly(cls, x: Tensor) -> Sets:
        """Numbers that are known, in every cell."""
        values, at = torch.unique(x, return_inverse=True)
        return cls(values, torch.nn.functional.one_hot(at, len(values)).bool().unsqueeze(0))

    def among(self, values: Tensor) -> Sets:
        """The same sets, of values that have these among them."""
        may = torch.zeros(*self.may.shape[:-1], len(values), dtype=torch.bool)
        may[..., torch.searchsorted(values, self.values)] = self.may
        return Sets(values, may)

    def without_rest(self) -> Sets:
        """The same sets, without values that no number has."""
        some = self.may.flatten(0, -2).any(0)
        return Sets(self.values[some], self.may[..., some])

    @property
    def least(self) -> Tensor:
        """The place of each number's least value."""
        return self.may.double().argmax(-1)

    @property
    def most(self) -> Tensor:
        return self.may.shape[-1] - 1 - self.may.flip(-1).double().argmax(-1)


def as_sets(x: Sets | Tensor) -> Sets:
    return x if isinstance(x, Sets) else Sets.exactly(x)


def pointwise(
    operation: Callable[..., Tensor], args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> Sets:
    """An operation on one number of each argument: torch computes it for all combinations of values."""
    args = [as_sets(x) if isinstance(x, Tensor) and x.ndim else x for x in args]
    sets = [x for x in args if isinstance(x, Sets)]
    k = len(sets)
    grids = [x.values.reshape([-1 if j == i else 1 for j in range(k)]) for i, x in enumerate(sets)]
    left = iter(grids)
    result = operation(*[next(left) if isinstance(x, Sets) else x for x in args], **(kwargs or {}))
    result = result.expand([len(x.values) for x in sets]).reshape(-1)
    values, at = torch.unique(result, return_inverse=True)
    if len(values) > MOST_VALUES:
        raise NotTraced(f"{len(values)} values")
    shape = torch.broadcast_shapes(*(x.may.shape[1:-1] for x in sets))  # type: ignore[no-untyped-call]
    cells = max(len(x.may) for x in sets)
    mays = [padded(x.may, len(shape)).expand(cells, *shape, -1).reshape(-1, len(x.values)) for x in sets]
    step, found = max(1, AT_ONCE // max(1, len(result))), []
    for parts in zip(*(torch.split(may, step) for may in mays), strict=True):
        joint = parts[0]
        for part in parts[1:]:
            joint = (joint.unsqueeze(-1) & part.unsqueeze(1)).flatten(1)
        found.append(torch.zeros(len(joint), len(values)).index_add_(1, at, joint.float()) > 0)
    return Sets(values, torch.cat(found).reshape(cells, *shape, len(values))).without_rest()


def padded(may: Tensor, axes: int) -> Tensor:
    """(cells, ..., values) with so many axes between."""
    return may.reshape(len(may), *[1] * (axes - may.ndim + 2), *may.shape[1:])


def moved(operation: Callable[..., Tensor], x: Sets, *args: object, **kwargs: object) -> Sets | list[Sets]:
    """An operation that moves numbers."""

    def one(part: Tensor) -> Tensor:
        return operation(part, *args, **kwargs)

    found = torch.vmap(torch.vmap(one, in_dims=-1, out_dims=-1))(x.may)
    return [Sets(x.values, part) for part in found] if isinstance(found, list | tuple) else Sets(x.values, found)


def axes_of(x: Sets, dims: Axes) -> list[int]:
    """Axes of the tensor of truth values, the last one first."""
    n = x.may.ndim - 2
    listed = range(n) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return sorted((d % n + 1 for d in listed), reverse=True)


def folded(x: Sets, dims: Axes, keepdim: bool, fold: Callable[[Sets, int], Sets]) -> Sets:
    """A function along axes in turn, each of which it leaves out."""
    axes = axes_of(x, dims)
    for axis in axes:
        x = fold(x, axis)
    may = x.may
    for axis in reversed(axes) if keepdim else ():
        may = may.unsqueeze(axis)
    return replace(x, may=may)


def larger(x: Sets, axis: int) -> Sets:
    """The largest of independent numbers is v where one may be v and every other may be at most v."""
    reached = torch.arange(len(x.values)) >= x.least.amax(axis).unsqueeze(-1)
    return Sets(x.values, x.may.any(axis) & reached)


def smaller(x: Sets, axis: int) -> Sets:
    reached = torch.arange(len(x.values)) <= x.most.amin(axis).unsqueeze(-1)
    return Sets(x.values, x.may.any(axis) & reached)


def in_turn(operation: Callable[..., Tensor]) -> Callable[[Sets, int], Sets]:
    """One number after another."""

    def fold(x: Sets, axis: int) -> Sets:
        first, *rest = x.may.unbind(axis)
        found = Sets(x.values, first)
        for may in rest:
            found = pointwise(operation, [found, Sets(x.values, may)])
        return found

    return fold


def in_dtype(x: Sets, node: torch.fx.Node) -> Sets:
    """The numbers in the dtype of a sum; floats that are small whole numbers, so that it is exact in any order."""
    dtype = node.meta["val"].dtype
    if dtype.is_floating_point:
        is_whole = not x.values.is_floating_point() or bool((x.values == x.values.round()).all())
        most = float(x.values.double().abs().max()) * x.may[0, ..., 0].numel()
        if not is_whole or most * torch.finfo(dtype).eps > 1:
            raise NotTraced("a sum of floats")
    return pointwise(lambda v: v.to(dtype), [x])


def mean(node: torch.fx.Node, x: Sets, dims: Axes = None, keepdim: bool = False, **options: object) -> Sets:
    """The sum, divided by the number of terms, as torch does it on a CPU."""
    found = folded(in_dtype(x, node), dims, keepdim, in_turn(torch.add))
    count = x.may[0, ..., 0].numel() // found.may[0, ..., 0].numel()
    return pointwise(lambda v: v / count, [found])


def triangle(node: torch.fx.Node, x: Sets, *diagonal: object) -> Sets:
    """Zeros beside a diagonal."""
    operation: Callable[..., Tensor] = node.target  # type: ignore[assignment]
    kept = operation(torch.ones(x.may.shape[1:-1], dtype=torch.bool), *diagonal)
    return pointwise(torch.where, [kept, x, torch.zeros((), dtype=x.values.dtype)])


def ranked(node: torch.fx.Node, x: Sets, *args: Any) -> list[Sets]:
    """The median or the k-th smallest number along an axis."""
    is_median = "median" in str(node.target)
    k, dim, is_kept = (None, *args, False)[:3] if is_median else (*args, *(1, -1, False)[len(args) :])
    (axis,) = axes_of(x, dim)
    at = (x.may.shape[axis] - 1) // 2 if k is None else k - 1
    found = [replace(part, may=part.may.narrow(axis, at, 1)) for part in (ordered(x, dim, False), any_place(x, dim))]
    return found if is_kept else [replace(part, may=part.may.squeeze(axis)) for part in found]


def total(node: torch.fx.Node, x: Sets, dims: Axes = None, keepdim: bool = False, **options: object) -> Sets:
    return folded(in_dtype(x, node), dims, keepdim, in_turn(torch.add))


def cumulative(node: torch.fx.Node, x: Sets, dim: int, **options: object) -> Sets:
    x = in_dtype(x, node)
    (axis,) = axes_of(x, dim)
    found = [Sets(x.values, x.may.select(axis, 0))]
    for may in x.may.unbind(axis)[1:]:
        found.append(pointwise(torch.add, [found[-1], Sets(x.values, may)]))
    return stacked(found, axis)


def stacked(parts: list[Sets], axis: int) -> Sets:
    """Sets side by side along a new axis of the truth values."""
    values = torch.unique(torch.cat([part.values for part in parts]))
    return Sets(values, torch.stack([part.among(values).may for part in parts], axis))


def truth(x: Sets) -> Sets:
    return pointwise(lambda v: v != 0, [x])


def any_of(node: torch.fx.Node, x: Sets, dims: Axes = None, keepdim: bool = False) -> Sets:
    return folded(truth(x), dims, keepdim, larger)


def all_of(node: torch.fx.Node, x: Sets, dims: Axes = None, keepdim: bool = False) -> Sets:
    return folded(truth(x), dims, keepdim, smaller)


def joined(node: torch.fx.Node, xs: list[Sets | Tensor], dim: int = 0) -> Sets:
    parts = [as_sets(x) for x in xs]
    values = torch.unique(torch.cat([part.values for part in parts]))
    cells = max(len(part.may) for part in parts)
    mays = [part.among(values).may for part in parts]
    n = mays[0].ndim - 2
    axis = dim % (n + 1) + 1 if "stack" in str(node.target) else dim % n + 1
    join = torch.stack if "stack" in str(node.target) else torch.cat
    return Sets(values, join([may.expand(cells, *may.shape[1:]) for may in mays], axis))


def ordered(x: Sets, dim: int, descending: bool) -> Sets:
    """The k-th smallest is v where some number may be v, at most k are surely below, more than k may be at most v."""
    (axis,) = axes_of(x, dim)
    may = x.may.movedim(axis, -2)  # (..., numbers, values)
    at_most = may.cumsum(-1) > 0  # may be at most v
    surely_below = may.flip(-1).cumsum(-1).flip(-1) == 0  # no value from v on
    k = torch.arange(may.shape[-2]).unsqueeze(-1)
    below, upto = surely_below.sum(-2).unsqueeze(-2), at_most.sum(-2).unsqueeze(-2)
    found = may.any(-2).unsqueeze(-2) & (below <= k) & (k < upto)
    return Sets(x.values, (found.flip(-2) if descending else found).movedim(-2, axis))


def sort(node: torch.fx.Node, x: Sets, dim: int = -1, descending: bool = False, **options: object) -> list[Sets]:
    return [ordered(x, dim, descending), any_place(x, dim)]


def topk(node: torch.fx.Node, x: Sets, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Sets]:
    """The k first in order; torch may give them in any other one where it is not asked to sort them."""
    if not sorted:
        raise NotTraced("topk without an order")
    (axis,) = axes_of(x, dim)
    return [replace(part, may=part.may.narrow(axis, 0, k)) for part in (ordered(x, dim, largest), any_place(x, dim))]


def any_place(x: Sets, dim: int) -> Sets:
    """Places along an axis of which nothing is known."""
    (axis,) = axes_of(x, dim)
    n = x.may.shape[axis]
    return Sets(torch.arange(n), torch.ones(*x.may.shape[:-1], n, dtype=torch.bool))


def place(x: Sets, dim: int | None, keepdim: bool, is_max: bool) -> Sets:
    """The first place of the extreme: i may be it where no number before must reach its, and none after exceed it."""
    if dim is None:
        flat_one = Sets(x.values, x.may.flatten(1, -2))
        found = place(flat_one, 0, False, is_max)
        return replace(found, may=found.may.reshape(-1, *[1] * (x.may.ndim - 2 if keepdim else 0), found.may.shape[-1]))
    (axis,) = axes_of(x, dim)
    may = x.may.movedim(axis, -2)
    if not is_max:
        may = may.flip(-1)  # the smallest value as the largest
    upto, below = may.cumsum(-1) > 0, (may.cumsum(-1) - may.long()) > 0  # may be at most v, may be below v
    n = may.shape[-2]

    def may_be_at(i: int) -> Tensor:
        before, after = below[..., :i, :].all(-2), upto[..., i + 1 :, :].all(-2)
        return (may[..., i, :] & before & after).any(-1)

    sets = torch.stack([may_be_at(i) for i in range(n)], -1)
    return Sets(torch.arange(n), sets.unsqueeze(axis) if keepdim else sets)


def extreme(is_max: bool) -> Callable[..., list[Sets]]:
    def both(node: torch.fx.Node, x: Sets, dim: int, keepdim: bool = False) -> list[Sets]:
        return [folded(x, dim, keepdim, larger if is_max else smaller), place(x, dim, keepdim, is_max)]

    return both


def gathered(node: torch.fx.Node, x: Sets | Tensor, dim: int, places: Sets | Tensor) -> Sets:
    """The numbers at places that may be several: whatever is at one of them."""
    x, places = as_sets(x), as_sets(places)
    (axis,) = axes_of(x, dim)
    sizes = places.may.shape[1:-1]
    found = None
    for i, value in enumerate(places.values.tolist()):
        here = x.may.select(axis, int(value)).unsqueeze(axis)
        parts = [slice(None)] + [slice(n) for n in sizes]
        parts[axis] = slice(None)
        chosen = here[tuple(parts)] & places.may[..., i : i + 1]
        found = chosen if found is None else found | chosen
    assert found is not None, "an index has a value"
    return Sets(x.values, found)


def indexed(node: torch.fx.Node, x: object, where: list[object]) -> Sets:
    """A known table at places that may be several, or sets at known places."""
    if isinstance(x, Sets) and not any(isinstance(p, Sets) for p in where):
        return moved(lambda part: torch.ops.aten.index.Tensor(part, where), x)  # type: ignore[return-value]
    if isinstance(x, Tensor) and x.ndim == 1 and len(where) == 1 and not x.is_floating_point():
        return pointwise(lambda at: x[at], where)
    raise NotTraced("an index")


FOLDS: dict[str, Callable[..., object]] = {
    "amax": lambda node, x, dims=(), keepdim=False: folded(x, list(dims), keepdim, larger),
    "amin": lambda node, x, dims=(), keepdim=False: folded(x, list(dims), keepdim, smaller),
    "max": lambda node, x, *more: extreme(True)(node, x, *more) if more else folded(x, None, False, larger),
    "min": lambda node, x, *more: extreme(False)(node, x, *more) if more else folded(x, None, False, smaller),
    "argmax": lambda node, x, dim=None, keepdim=False: place(x, dim, keepdim, True),
    "argmin": lambda node, x, dim=None, keepdim=False: place(x, dim, keepdim, False),
    "any": any_of,
    "all": all_of,
    "sum": total,
    "count_nonzero": lambda node, x, dim=None: folded(in_dtype(truth(x), node), dim, False, in_turn(torch.add)),
    "prod": lambda node, x, dim=None, keepdim=False, **options: folded(
        in_dtype(x, node), dim, keepdim, in_turn(torch.mul)
    ),
    "mean": mean,
    "cumsum": cumulative,
    "triu": triangle,
    "tril": triangle,
    "median": ranked,
    "kthvalue": ranked,
    "cat": joined,
    "stack": joined,
    "sort": sort,
    "topk": topk,
    "gather": gathered,
    "index": indexed,
}
