"""Which positions' tokens each number of a graph depends on: the union of what its arguments depend on.

A dependence is a tensor of truth values (channels, ...) for a value of shape (...): one channel for each position, and
whatever else is to be followed in the same way. An operation that is not known here makes every number of its result
depend on every number that goes in, so that only what is listed has to be right.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

Deps = Tensor | list[Tensor]  # (channels, ...); a list for an operation with several results
MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "reshape.default", "permute.default", "transpose.int", "t.default",
        "expand.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default", "slice.Tensor",
        "select.int", "split_with_sizes.default", "split.Tensor", "unbind.int", "flip.default", "clone.default",
        "alias.default", "detach.default", "contiguous.default", "lift_fresh.default", "lift_fresh_copy.default",
        "_to_copy.default",
    )
)  # fmt: skip
SAME = ("clone", "alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "_to_copy")
HARMLESS = {"dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "copy"}  # they move nothing
PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
SUMS = ("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default", "aten.amin.default", "aten.var.correction")
SOFTMAXES = ("aten._softmax.default", "aten.softmax.int", "aten._safe_softmax.default")
LAYER_NORM, RMS_NORM = "aten.native_layer_norm.default", "aten._fused_rms_norm.default"
BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


MOST = 1 << 29  # truth values of a graph's dependences, which are all kept


def too_many(program: torch.fx.Graph, channels: int) -> str | None:
    """Why a graph is not followed, where that would take too much memory."""
    values = [node.meta.get("val") for node in program.nodes]
    parts = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
    numbers = sum(part.numel() for part in parts if isinstance(part, Tensor))
    if channels * numbers <= MOST:
        return None
    return f"its {numbers} numbers by {channels} positions are more than {MOST}"


def arguments(node: torch.fx.Node) -> Any:
    """A node's arguments; what each of them is depends on the operation."""
    return node.args


def options(node: torch.fx.Node) -> Any:
    """A node's arguments by name."""
    return node.kwargs


def shape_of(node: torch.fx.Node) -> list[int]:
    value = node.meta["val"]
    return list((value[0] if isinstance(value, list | tuple) else value).shape)


def move(node: torch.fx.Node, x: Tensor) -> Any:
    """What an operation of MOVES makes of one tensor of the shape of its first argument."""
    name = str(node.target).split(".")[1]
    if name in SAME:
        return x
    if name in ("view", "_unsafe_view", "reshape"):
        return x.reshape(arguments(node)[1])
    return node.target(x, *arguments(node)[1:])  # type: ignore[operator]


def moved(node: torch.fx.Node, x: Tensor) -> list[Tensor] | Tensor:
    """What an operation of MOVES makes of each of several tensors along the first axis."""
    parts = [move(node, part) for part in x.unbind(0)]
    if isinstance(parts[0], list | tuple):
        return [torch.stack(column) for column in zip(*parts, strict=True)]
    return torch.stack(parts)


Places = Mapping[torch.fx.Node, Tensor]  # whole numbers that depend on nothing, as they are


def through(node: torch.fx.Node, given: Mapping[torch.fx.Node, Deps], channels: int, places: Places) -> Deps:
    """The dependence of what a node computes."""
    if node.target is operator.getitem:
        found = given[arguments(node)[0]]
        return found[arguments(node)[1]] if isinstance(found, list) else found
    inputs = [x for x in node.all_input_nodes if x in given]
    if not any(bool(flat(given[x]).any()) for x in inputs):
        return nothing(node, channels)
    by_rule = known(node, given, places)
    return union(node, [given[x] for x in inputs], channels) if by_rule is None else by_rule


def nothing(node: torch.fx.Node, channels: int) -> Deps:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return [torch.zeros(channels, *part.shape, dtype=torch.bool) for part in value if isinstance(part, Tensor)]
    shape = value.shape if isinstance(value, Tensor) else ()
    return torch.zeros(channels, *shape, dtype=torch.bool)


def flat(found: Deps) -> Tensor:
    """One row for each channel."""
    parts = found if isinstance(found, list) else [found]
    return torch.cat([part.reshape(len(part), -1) for part in parts], 1)


def union(node: torch.fx.Node, inputs: list[Deps], channels: int) -> Deps:
    """Every number depends on everything that goes in."""
    every = reduce(torch.logical_or, (flat(x).any(1) for x in inputs))
    empty = nothing(node, channels)
    if isinstance(empty, list):
        return [part | every.reshape(-1, *[1] * (part.ndim - 1)) for part in empty]
    return empty | every.reshape(-1, *[1] * (empty.ndim - 1))


def known(node: torch.fx.Node, given: Mapping[torch.fx.Node, Deps], places: Places) -> Deps | None:
    """The dependence by what the operation is; None where that is not known here."""
    name, args = str(node.target), arguments(node)
    rule, tensors = RULES.get(name), cast(Mapping[torch.fx.Node, Tensor], given)  # a list is read by getitem alone
    if name in MOVES:
        is_alone = all(x is args[0] for x in node.all_input_nodes) and set(options(node)) <= HARMLESS
        return moved(node, tensors[args[0]]) if is_alone else None
    if name == "aten.index.Tensor":
        return index(node, tensors, places)
    if rule is not None:
        return rule(node, tensors)
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        shape = shape_of(node)
        parts = [spread(tensors[x], shape) for x in node.all_input_nodes]
        return reduce(torch.logical_or, parts)
    return None


def spread(found: Tensor, shape: list[int]) -> Tensor:
    """A dependence broadcast to a shape with as many axes or more."""
    missing = len(shape) - (found.ndim - 1)
    return found.reshape(len(found), *[1] * missing, *found.shape[1:]).expand(len(found), *shape)


def product(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    x, y = (given[part] for part in arguments(node)[:2])
    if x.ndim < 3 or y.ndim < 3:
        return None
    shape = shape_of(node)
    return spread(x.any(-1, keepdim=True), shape[:-1] + [1]) | spread(
        y.any(-2, keepdim=True), shape[:-2] + [1, shape[-1]]
    )


def linear(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    x, *rest = node.all_input_nodes
    if x is not arguments(node)[0] or any(bool(given[part].any()) for part in rest):
        return None
    shape = shape_of(node)
    return given[x].any(-1, keepdim=True).expand(len(given[x]), *shape)


def addmm(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    bias, x, y = (given[part] for part in arguments(node)[:3])
    shape = shape_of(node)
    by_rows = spread(x.any(-1, keepdim=True), shape[:-1] + [1])
    by_columns = spread(y.any(-2, keepdim=True), shape[:-2] + [1, shape[-1]])
    return spread(bias, shape) | by_rows | by_columns


def along(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    """Sums, extremes and variances along axes."""
    x, dims = given[arguments(node)[0]], arguments(node)[1] if len(arguments(node)) > 1 else None
    if not dims:
        return None
    axes = [dims] if isinstance(dims, int) else list(dims)
    n = x.ndim - 1
    for axis in axes:
        x = x.any(axis % n + 1, keepdim=True)
    return x.reshape(len(x), *shape_of(node))


def normalised(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    """Softmax along an axis."""
    x, dim = given[arguments(node)[0]], arguments(node)[1]
    axis = dim % (x.ndim - 1) + 1
    return x.any(axis, keepdim=True).expand_as(x)


def norm(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    """Norms over the last axis, by weights that depend on nothing."""
    x, *rest = node.all_input_nodes
    if len(arguments(node)[1]) != 1 or any(bool(given[part].any()) for part in rest):
        return None
    whole = given[x].any(-1, keepdim=True).expand_as(given[x])
    return [whole for _ in node.meta["val"]]


def by_stored_moments(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    """Every number by itself, by weights, means and variances that depend on nothing."""
    x, *rest = node.all_input_nodes
    if x is not arguments(node)[0] or any(bool(given[part].any()) for part in rest):
        return None
    return [given[x], *nothing(node, len(given[x]))[1:]]


def joined(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    parts = [given[x] for x in arguments(node)[0]]
    dim = arguments(node)[1] if len(arguments(node)) > 1 else 0
    n = parts[0].ndim - 1
    if str(node.target) == "aten.stack.default":
        return torch.stack(parts, dim % (n + 1) + 1)
    return torch.cat(parts, dim % n + 1)


def embedding(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    table, tokens = (given[x] for x in arguments(node)[:2])
    if bool(table.any()):
        return None
    return tokens.unsqueeze(-1).expand(*tokens.shape, shape_of(node)[-1])


def padded(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor]) -> Deps | None:
    x, widths = given[arguments(node)[0]], arguments(node)[1]
    found: Tensor = torch.ops.aten.constant_pad_nd.default(x, widths, 0)
    return found


def index(node: torch.fx.Node, given: Mapping[torch.fx.Node, Tensor], places: Places) -> Deps | None:
    """Numbers at places that depend on nothing, or the rows of a table that does not."""
    x, where = given[arguments(node)[0]], arguments(node)[1]
    chosen = [p for p in where if p is not None]
    if all(p in places for p in chosen):
        return torch.stack([taken(node, part, places) for part in x.unbind(0)])
    if bool(x.any()) or len(where) != 1:
        return None
    rows = given[chosen[0]]
    return rows.reshape(*rows.shape, *[1] * (x.ndim - 2)).expand(len(rows), *shape_of(node))


def taken(node: torch.fx.Node, x: Tensor, places: Places) -> Tensor:
    """What an index at known places takes from one tensor."""
    where = [None if p is None else places[p] for p in arguments(node)[1]]
    found: Tensor = torch.ops.aten.index.Tensor(x, where)
    return found


Rule = Callable[[torch.fx.Node, Mapping[torch.fx.Node, Tensor]], Deps | None]
RULES: dict[str, Rule] = {
    **dict.fromkeys(PRODUCTS, product),
    **dict.fromkeys(SUMS, along),
    **dict.fromkeys((*SOFTMAXES, "aten._log_softmax.default"), normalised),
    **dict.fromkeys((LAYER_NORM, RMS_NORM), norm),
    BATCH_NORM: by_stored_moments,
    **dict.fromkeys(("aten.cat.default", "aten.stack.default"), joined),
    "aten.linear.default": linear,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.constant_pad_nd.default": padded,
    "aten.embedding.default": embedding,
}
