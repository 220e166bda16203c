"""The linear part of an affine map that comes after the attention of a traced graph, each operation by itself."""

from collections.abc import Mapping

from verify.checker.arrays import Array, expanded
from verify.checker.graphs import base_of, filled, of_one, uses_of
from verify.checker.moves import as_dtype
from verify.checker.one_layer import PRODUCTS, STILL, OneLayerGraph
from verify.checker.operations import OPERATIONS
from verify.checker.records import Node

LINEAR = ("linear", "div", "mul", "neg", "sum", "mean", "index", *PRODUCTS, *STILL)


def linear(graph: OneLayerGraph, i: int, node: Node, values: Mapping[int, Array]) -> Array:
    """An operation less what it adds by itself: sums, moves, and products with numbers that no token decides.

    Raises: Refusal where it is none of them.
    """
    base, args = base_of(node), node["args"]
    moving = [j for j in graph.uses[i] if j in values]
    if base == "_to_copy":
        return as_dtype(values[moving[0]], of_one(node["dtype"]))
    base, args = ("mm", args[1:]) if base == "addmm" else (base, args[:2] if base == "linear" else args)
    at = [k for k, x in enumerate(args) if x in [{"node": j} for j in moving]]
    graph.require_affine(not node["kwargs"] and len(at) == len(moving), i)
    if base in ("add", "sub"):
        graph.require_affine(len(args) == 2, i)
        if len(at) == 2:
            return OPERATIONS[base](*(filled(x, values) for x in args))
        found = values[moving[0]]
        return expanded(
            OPERATIONS["neg"](found) if base == "sub" and at == [1] else found, tuple(of_one(node["shape"]))
        )
    is_left = at == [0] and base in LINEAR
    graph.require_affine(is_left or at == [1] and base == "mul", i)
    others = [j for j in uses_of(args) if j not in values]
    graph.require_affine(not {*others} & graph.computed, i)
    known = dict(zip(others, graph.followed(others, [], {}), strict=True))
    return OPERATIONS[base](*(filled(x, {**values, **known}) for x in args))
