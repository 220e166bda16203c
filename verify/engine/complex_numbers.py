"""Complex numbers of a graph as pairs of real ones, in one more axis at the end, as torch.view_as_real shows them.

Rotary embeddings are written with them: view_as_complex, polar, products, and what moves numbers. The graph is
rewritten, so that nothing else knows of them; an operation that is not listed stays, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx.node import Argument, Target

aten = torch.ops.aten
Node = torch.fx.Node
MOVES = {
    f"aten.{name}"
    for name in ("clone.default", "alias.default", "detach.default", "contiguous.default", "lift_fresh_copy.default")
}
VIEWS = {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default"}
ALONG = {"aten.unsqueeze.default", "aten.select.int", "aten.slice.Tensor", "aten.squeeze.dim"}  # one axis, named next


def is_complex(x: object) -> bool:
    """Whether a node computes complex numbers."""
    value = x.meta.get("val") if isinstance(x, Node) else None
    return isinstance(value, Tensor) and value.dtype.is_complex


def as_pairs(graph: torch.fx.Graph) -> None:
    """Rewrites a graph in place."""
    if any(is_complex(node) for node in graph.nodes):
        ComplexPairs(graph).rewrite()


class ComplexPairs:
    """One graph, and the node of pairs for each complex one."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph, self.pairs = graph, dict[Node, Node]()

    def rewrite(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "placeholder" and is_complex(node):
                node.meta["val"] = torch.view_as_real(node.meta["val"])
                self.pairs[node] = node
            elif node.op == "call_function" and (
                is_complex(node) or any(x in self.pairs for x in node.all_input_nodes)
            ):
                with self.graph.inserting_before(node):
                    self._replace(node)
        for node in reversed(list(self.graph.nodes)):
            if node in self.pairs and node.op != "placeholder" and not node.users:
                self.graph.erase_node(node)

    def _call(self, of: Node, target: Target, *args: Argument) -> Node:
        """A new node with the source line of another."""
        operation = cast(Callable[..., object], target)
        node = self.graph.call_function(operation, args)
        node.meta["stack_trace"] = of.meta.get("stack_trace")
        values = torch.fx.node.map_arg(args, lambda x: x.meta["val"])
        node.meta["val"] = operation(*values)
        return node

    def _replace(self, node: Node) -> None:
        name, args = str(node.target), node.args
        if name == "aten.view_as_real.default" and args[0] in self.pairs:
            node.replace_all_uses_with(self.pairs[args[0]])  # type: ignore[index]
            self.graph.erase_node(node)
            return
        found = self._pairs(node, name, list(args))
        if found is not None:
            self.pairs[node] = found

    def _pairs(self, node: Node, name: str, args: list[Any]) -> Node | None:
        """The pairs that an operation gives; None for one that is not known here."""
        if name == "aten.view_as_complex.default":
            return args[0]  # type: ignore[no-any-return]
        if name in ("aten.complex.default", "aten.polar.default"):
            parts = args
            if name == "aten.polar.default":
                parts = [
                    self._call(node, aten.mul.Tensor, args[0], self._call(node, wave, args[1]))
                    for wave in (aten.cos.default, aten.sin.default)
                ]
            return self._call(node, aten.stack.default, parts, -1)
        if name in ("aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor") and not node.kwargs:
            return self._combined(node, name, args)
        if args[0] not in self.pairs:
            return None
        x, rank = self.pairs[args[0]], node.meta["val"].ndim
        before = args[0].meta["val"].ndim - (args[0].op == "placeholder")  # a stored one has its last axis already
        if name in MOVES:
            return self._call(node, node.target, x)
        if name in VIEWS:
            return self._call(node, node.target, x, [*args[1], 2])
        if name in ALONG:
            axes = rank if name == "aten.unsqueeze.default" else before
            dim = args[1] if len(args) > 1 else 0
            return self._call(node, node.target, x, dim % axes, *args[2:])
        if name == "aten.squeeze.dims":
            return self._call(node, node.target, x, [d % before for d in args[1]])
        if name == "aten.permute.default":
            return self._call(node, node.target, x, [*(d % before for d in args[1]), before])
        if name == "aten.index.Tensor":
            return self._call(node, node.target, x, args[1])
        return None

    def _combined(self, node: Node, name: str, args: list[Any]) -> Node | None:
        """A sum, a difference or a product of complex numbers, or the product of one and real numbers."""
        parts = [self.pairs.get(x) for x in args]
        if None in parts:
            if name != "aten.mul.Tensor":
                return None
            (real,) = (x for x, part in zip(args, parts, strict=True) if part is None)
            (pair,) = (part for part in parts if part is not None)
            if isinstance(real, complex) or is_complex(real):
                return None
            if isinstance(real, Node):
                real = self._call(node, aten.unsqueeze.default, real, -1)
            return self._call(node, aten.mul.Tensor, pair, real)
        if name != "aten.mul.Tensor":
            return self._call(node, node.target, *parts)
        (a, b), (c, d) = ([self._call(node, aten.select.int, x, -1, i) for i in (0, 1)] for x in parts)

        def times(x: Node, y: Node) -> Node:
            return self._call(node, aten.mul.Tensor, x, y)

        re = self._call(node, aten.sub.Tensor, times(a, c), times(b, d))
        im = self._call(node, aten.add.Tensor, times(a, d), times(b, c))
        return self._call(node, aten.stack.default, [re, im], -1)


def stored(value: Tensor) -> Tensor:
    """A stored tensor as the rewritten graph reads it."""
    return torch.view_as_real(value) if value.dtype.is_complex else value
