"""The numbers of a graph that are functions of one position's token: computed once for each token, then looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from verify.engine import dependence
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph
from verify.engine.dependence import LAYER_NORM, Deps
from verify.engine.dtypes import is_float
from verify.engine.run import call, condition, enclosed_weights, holds

Sets = Sequence[Sequence[int]]
MOST_TOKENS = 4096  # of one position, in tables


Taker = Callable[[list[Tensor]], Tensor]
Tabled = Tensor | dict[str, Tensor] | list["Tabled"]  # whole numbers, midpoints and radii, or lists of these
Takers = Taker | list["Takers"]
Taken = Tensor | list["Taken"]


class NoRadius(Exception):
    """There is no radius of the whole domain: the message says why."""


class Tables:
    """Which numbers of a graph are functions of one position's token at most, and what they are for all its tokens.

    `tabled` are those, `frontier` the ones among them that others are computed from. In run r of the tables each
    position has its token of rank r, the last one where it has fewer.
    Raises: NoRadius.
    """

    def __init__(self, graph: Graph, sets: Sets) -> None:
        self.graph, self.sets = graph, [list(allowed) for allowed in sets]
        self.ranks = max(map(len, self.sets))
        if self.ranks > MOST_TOKENS:
            raise NoRadius(f"a position has {self.ranks} tokens")
        too_many = dependence.too_many(graph.program, graph.length)
        if too_many is not None:
            raise NoRadius(too_many)
        self.depends: dict[torch.fx.Node, Deps] = {}
        self.tabled: set[torch.fx.Node] = set()
        self.known: dict[torch.fx.Node, Tensor] = {}
        self.conditions: list[torch.fx.Node] = []  # what the module fails without, of one position's token at most
        for node in graph.program.nodes:
            if node.op != "output":
                self._follow(node)
        self.frontier = [
            node
            for node in graph.program.nodes
            if node in self.tabled and any(user not in self.tabled for user in node.users)
        ]
        self.norms = [n for n in graph.calls if str(n.target) == LAYER_NORM and self._is_left(n)]

    def _follow(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self.depends[node] = self._start(node)
            return
        rows = condition(node)
        if rows is not None:
            if self._is_of_tokens(rows) and rows not in self.tabled and not self._is_input(rows):
                raise NoRadius(f"{node.target} may fail")
            self.conditions.append(node)
        found = self.depends[node] = dependence.through(node, self.depends, self.graph.length, self.known)
        flat, value = dependence.flat(found), node.meta.get("val")
        before = [x for x in node.all_input_nodes if self._is_of_tokens(x)]
        if before and bool((flat.sum(0) <= 1).all()) and all(x in self.tabled or self._is_input(x) for x in before):
            self.tabled.add(node)
            return
        is_whole = isinstance(value, Tensor) and not is_float(value.dtype)
        if not before and is_whole and all(x in self.known for x in node.all_input_nodes):
            self.known[node] = cast(Tensor, call(node, self.known, Arithmetic(), torch.device("cpu")))

    def _start(self, node: torch.fx.Node) -> Tensor:
        empty = cast(Tensor, dependence.nothing(node, self.graph.length))
        if node.name in self.graph.stored:
            value = self.graph.stored[node.name]
            if not value.is_floating_point():
                self.known[node] = value
        elif self._is_input(node):
            for i in range(self.graph.length):
                empty[i, 0, i] = True
        return empty

    def _is_input(self, node: torch.fx.Node) -> bool:
        """Whether a node is the tokens."""
        is_argument = node.op == "placeholder" and node.name not in self.graph.stored
        return is_argument and isinstance(node.meta.get("val"), Tensor)

    def _is_of_tokens(self, node: torch.fx.Node) -> bool:
        return node in self.tabled or bool(dependence.flat(self.depends[node]).any())

    def _is_left(self, node: torch.fx.Node) -> bool:
        """Whether a node is computed from several positions' tokens."""
        return node not in self.tabled and self._is_of_tokens(node)

    @property
    def runs(self) -> Tensor:
        """The inputs (ranks, length) whose numbers are the tables."""
        columns = [torch.tensor(allowed)[torch.arange(self.ranks).clamp(max=len(allowed) - 1)] for allowed in self.sets]
        return torch.stack(columns, 1)

    def balls(self, at: Arithmetic) -> list[Tabled]:
        """The frontier's numbers (ranks, ...): midpoints and radii, whole numbers, or lists of these."""
        stored = enclosed_weights(self.graph, at)

        def one(tokens: Tensor) -> tuple[list[Tabled], Tensor]:
            values: dict[torch.fx.Node, object] = {}
            held = torch.ones((), dtype=torch.bool)
            for node in self.graph.program.nodes:
                if node in self.conditions:
                    held = held & holds(node, values)
                if node.op == "placeholder":
                    values[node] = stored[node.name] if node.name in stored else tokens.unsqueeze(0)
                elif node in self.tabled or (node.op == "call_function" and not self._is_of_tokens(node)):
                    values[node] = call(node, values, at, tokens.device)
            return [_parts(values[node]) for node in self.frontier], held

        with torch.no_grad():
            found, held = torch.vmap(one)(self.runs)
        if not bool(held.all()):
            raise NoRadius("the module fails on some token")
        return found


def _parts(x: object) -> Tabled:
    if isinstance(x, list | tuple):
        return [_parts(part) for part in x]
    if isinstance(x, Ball):
        return {"mid": x.mid, "rad": x.radius}
    if isinstance(x, Tensor):
        return x
    raise NoRadius("a truth value or whole number of one position's token is not sure")


class Rows:
    """The frontier's numbers for given tokens, by their tables."""

    def __init__(self, tables: Tables, found: list[Tabled], device: str = "cpu") -> None:
        self.tables = tables
        self.ranks = [torch.zeros(max(allowed) + 1, dtype=torch.long) for allowed in tables.sets]
        for rank, allowed in zip(self.ranks, tables.sets, strict=True):
            rank[torch.tensor(allowed)] = torch.arange(len(allowed))
        self.ranks = [rank.to(device) for rank in self.ranks]
        self.taken = [
            self._take(value, tables.depends[node]) for node, value in zip(tables.frontier, found, strict=True)
        ]

    def __call__(self, tokens: Tensor) -> list[Taken]:
        ranks = [rank[tokens[:, i]] for i, rank in enumerate(self.ranks)]
        return [_apply(take, ranks) for take in self.taken]

    def _take(self, value: Tabled, depends: dependence.Deps) -> Takers:
        if isinstance(value, list):
            if not isinstance(depends, list):
                raise NoRadius("several results of one dependence")
            return [self._take(part, of) for part, of in zip(value, depends, strict=True)]
        table = value["mid"] if isinstance(value, dict) else value
        return _taker(table.to(self.ranks[0].device), cast(Tensor, depends))


def _apply(take: Takers, ranks: list[Tensor]) -> Taken:
    return [_apply(part, ranks) for part in take] if isinstance(take, list) else take(ranks)


def _taker(table: Tensor, depends: Tensor) -> Taker:
    """A function of each position's ranks (N,) that gives the numbers (N, ...) of a table (ranks, ...)."""
    place = depends.long().argmax(0)  # of each number; 0 where it depends on none, and all ranks have the same
    if bool((place == place.reshape(-1)[0]).all()):
        i = int(place.reshape(-1)[0])
        return lambda ranks: table[ranks[i]]
    for axis in range(place.ndim):
        along = place.movedim(axis, 0).reshape(place.shape[axis], -1)
        if bool((along == along[:, :1]).all()):
            columns = [(int(i), part.contiguous()) for i, part in zip(along[:, 0], table.unbind(axis + 1), strict=True)]
            return lambda ranks: torch.stack([part[ranks[i]] for i, part in columns], axis + 1)
    flat = table.flatten(1)
    groups = [(int(i), (place.reshape(-1) == i).nonzero().squeeze(1)) for i in sorted(set(place.reshape(-1).tolist()))]
    parts = [(i, columns, flat[:, columns].contiguous()) for i, columns in groups]

    def take(ranks: list[Tensor]) -> Tensor:
        out = flat.new_empty(len(ranks[0]), flat.shape[1])
        for i, columns, part in parts:
            out[:, columns] = part[ranks[i]]
        return out.reshape(-1, *table.shape[1:])

    return take
