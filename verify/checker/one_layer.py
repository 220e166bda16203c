"""A traced graph of one attention layer as tables: what each place's token adds, whatever the others are.

Tokens may be sets: a table's rows become balls around all of theirs, and what follows holds for each of them. So the
scores and values of a key, with one token at its place, one at the place that asks and any at all others, are balls
that hold for all inputs of this kind; no structure has to be believed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple, TypeVar

from flint import arb

from verify.checker.arrays import FLOAT, WHOLE, Array, expanded, tensor, together
from verify.checker.graphs import Follower, TracedGraph, base_of, called_with, of_one
from verify.checker.operations import scores_and_values
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import Node

Sets = tuple[tuple[int, ...], ...]  # of the tokens at each place
SOFTMAX = ("_softmax", "softmax", "_safe_softmax")
FUSED = "scaled_dot_product_attention"
PRODUCTS = ("bmm", "matmul", "mm")
STILL = ("clone", "alias", "detach", "contiguous", "view", "_unsafe_view", "reshape", "permute", "transpose", "t",
         "unsqueeze", "squeeze", "expand", "slice", "select")  # fmt: skip  # linear, and no number twice in a line
T = TypeVar("T")


class ScoresAndValues(NamedTuple):
    """The scores and values of one softmax's keys: (inputs, keys), (inputs, keys, dimensions)."""

    scores: list[list[arb]]
    values: list[list[list[arb]]]


def with_token(sets: Sets, place: int, token: int) -> Sets:
    return (*sets[:place], (token,), *sets[place + 1 :])


def of_each(rows: Sequence[T], i: int) -> T:
    """The row of one input, where there may be one for all."""
    return rows[i if len(rows) > 1 else 0]


class OneLayerGraph(Follower):
    """Follows a graph on products of token sets up to its attention, and of what comes after it where that is 0."""

    def __init__(self, graph: TracedGraph, bits: int, every: Sets) -> None:
        super().__init__(graph, bits)
        self.sets: Sequence[Sets] = []
        self.tokens = [i for i, node in enumerate(graph.nodes) if node["op"] == "tokens"]
        self.lookups = {i for i, used in enumerate(self.uses) if {*used} & {*self.tokens}}
        self.instead = {i: partial(self._rows, i) for i in self.lookups}
        self.instead |= {i: lambda _: Array(WHOLE, (1, graph.length), [[0] * graph.length]) for i in self.tokens}
        self.attention, self.softmax = self._attention()
        used = self._needed([graph.output], {})
        for i, node in enumerate(graph.nodes):
            self.require_affine(i in used or base_of(node) == "_assert_tensor_metadata", i)
            self.require_affine(i not in self.lookups or self._is_lookup(i, node), i)
        self.after = [self.attention]
        for i in range(self.attention + 1, graph.output + 1):
            self.after += [i] if i in used and {*self.uses[i]} & {*self.after} else []
        self.require_affine(self.after[-1] == graph.output, graph.output)
        self.followed([graph.output], [every], {})  # the shapes and kinds of all nodes are what the certificate says

    def require_affine(self, condition: bool, i: int) -> None:
        require(condition, f"program: more than one attention and affine maps, at node {i}", NOT_CHECKABLE)

    def _is_lookup(self, i: int, node: Node) -> bool:
        """Whether a node reads the rows of a table that tokens choose, each at its own place."""
        args, (tokens,) = node["args"], self.tokens
        is_plain = node["op"].startswith("aten.") and not node["kwargs"] and self.uses[i][0] not in self.computed
        is_plain = is_plain and self.graph.nodes[tokens]["dtype"] == "int64"
        index = {"index": [[{"node": tokens}]], "embedding": [{"node": tokens}]}.get(base_of(node))
        return is_plain and index is not None and args[1:2] == index and (base_of(node) != "index" or len(args) == 2)

    def _attention(self) -> tuple[int, int | None]:
        """The one node that mixes values, and that of its softmax where it is written out."""
        nodes = self.graph.nodes
        found = [i for i, node in enumerate(nodes) if base_of(node) in (*SOFTMAX, FUSED)]
        self.require_affine(len(found) == 1 and found[0] in self.computed and len(self.tokens) == 1, len(nodes))
        (softmax,) = found
        if base_of(nodes[softmax]) == FUSED:
            return softmax, None
        self.require_affine(nodes[softmax]["args"][1] in (-1, len(of_one(nodes[softmax]["shape"])) - 1), softmax)
        for i, node in enumerate(nodes):
            if base_of(node) in PRODUCTS and self._reads_shares(self.uses[i][0], softmax):
                self.require_affine(len(of_one(node["shape"])) >= 2, i)
                return i, softmax
        raise Refusal("program: no values are mixed by the softmax", NOT_CHECKABLE)

    def _reads_shares(self, at: int, softmax: int) -> bool:
        while at != softmax and base_of(self.graph.nodes[at]) in (*STILL, "_to_copy") and len(self.uses[at]) == 1:
            at = self.uses[at][0]
        return at == softmax

    def _needed(self, wanted: Sequence[int], given: Mapping[int, object]) -> set[int]:
        found, left = set[int](), [*wanted]
        while left:
            i = left.pop()
            if i not in found and i not in given:
                found.add(i)
                left += self.uses[i]
        return found

    def followed(self, wanted: Sequence[int], sets: Sequence[Sets], given: Mapping[int, Array]) -> list[Array]:
        """Some nodes' values on some products of token sets, those of other nodes being given."""
        self.sets, values = sets, {**self.fixed, **given}
        for i in sorted(self._needed(wanted, values)):
            values[i] = self._value(i, self.graph.nodes[i], values, [])
            if i not in self.computed and not given:
                self.fixed[i] = values[i]
        return [tensor(values[i]) for i in wanted]

    def _rows(self, i: int, values: Mapping[int, Array]) -> Array:
        """The rows of a table that sets of tokens choose, as balls around those of each set."""
        W = values[self.uses[i][0]]
        self.require_affine(W.kind == FLOAT and len(W.shape) == 2, i)  # balls are around floats alone
        n, width = W.shape
        table, known = W.rows[0], dict[tuple[int, ...], list[arb]]()
        for chosen in {chosen for sets in self.sets for chosen in sets}:
            require(max(chosen) < n, "program: a token is beyond its table")
            rows = [table[t * width : (t + 1) * width] for t in chosen]
            known[chosen] = [reduce(arb.union, column) for column in zip(*rows, strict=True)]
        found = [[x for chosen in sets for x in known[chosen]] for sets in self.sets]
        return Array(W.kind, (1, self.graph.length, width), found)

    def scores_and_values(self, sets: Sequence[Sets]) -> list[ScoresAndValues]:
        """Each softmax's scores and the values that it mixes, the heads' and their rows' in order."""
        node = self.graph.nodes[self.attention]
        *before, rows, width = of_one(node["shape"])
        if self.softmax is None:
            names = self.uses[self.attention]
            values = dict(zip(names, self.followed(names, sets, {}), strict=True))
            args, kwargs = called_with(node, values)
            attention: Callable[..., tuple[Array, Array]] = scores_and_values
            scores, v = attention(*args, **kwargs)
        else:
            scores, v = self._written_out(sets)
        keys = scores.shape[-1]
        self.require_affine(min(len(scores.shape), len(v.shape)) >= 2 and keys == self.graph.length, self.attention)
        scores, v = expanded(scores, (*before, rows, keys)), expanded(v, (*before, keys, width))
        both = zip((scores, v), together(scores, v), strict=True)
        (scored, valued), found = (x._replace(rows=rows).balls for x, rows in both), []
        for at in range(scores.size // keys):
            first = at // rows * keys
            found.append(ScoresAndValues(
                [[*row[at * keys : (at + 1) * keys]] for row in scored],
                [[[*row[k * width : (k + 1) * width]] for k in range(first, first + keys)] for row in valued],
            ))  # fmt: skip
        return found

    def _written_out(self, sets: Sequence[Sets]) -> tuple[Array, Array]:
        """The scores, moved as their softmax is: each line must be that of one softmax, in its order."""
        assert self.softmax is not None, "it is written out"
        moved, value = self.uses[self.attention][:2]
        scores, v = self.followed([self.uses[self.softmax][0], value], sets, {})
        n = scores.shape[-1]
        labels = Array(FLOAT, scores.shape, [[*map(arb, range(scores.size))]])
        (named,) = self.followed([moved], sets, {self.softmax: labels})
        line = [int(float(x)) for x in named.rows[0]]
        are_lines = all(line[i : i + n] == [*range(line[i] // n * n, line[i] // n * n + n)]
                        for i in range(0, len(line), n))  # fmt: skip
        self.require_affine(named.shape[-1] == n and are_lines, self.attention)
        return self.followed([moved], sets, {self.softmax: scores.as_floats()})[0], v

    def mixed(self, numbers: Sequence[Sequence[arb]]) -> Array:
        return Array(FLOAT, tuple(self.shape), numbers)

    @property
    def shape(self) -> list[int]:
        return of_one(self.graph.nodes[self.attention]["shape"])

    @property
    def width(self) -> int:
        return self.shape[-1]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constant(self, sets: Sequence[Sets]) -> Array:
        """The output where the attention's is 0."""
        zero = self.mixed([[arb(0)] * self.size])
        (found,) = self.followed([self.graph.output], sets, {self.attention: zero})
        return self.last({self.graph.output: found})
