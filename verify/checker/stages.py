"""What follows the attention of a traced graph: numbers that are affine in what came before, and functions of them.

Sources are the numbers that the attention gives, then the results of each stage, in order. A stage is a function of one
number, or the product of two, of each element. A norm is three: squares, the inverse root of their mean, products.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from flint import arb

from verify.checker.affine import linear
from verify.checker.arrays import FLOAT, Array, common, expanded
from verify.checker.graphs import base_of, filled, uses_of
from verify.checker.lines import FUNCTIONS
from verify.checker.one_layer import OneLayerGraph, Sets
from verify.checker.operations import ADDED, mean, minus, scaled
from verify.checker.records import Node

ZERO, ONE = arb(0), arb(1)
NORMS = {"native_layer_norm": (True, 5), "_fused_rms_norm": (False, 4)}  # whether the mean goes, and arguments
POWERS = {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


class AffineNumbers(NamedTuple):
    """Numbers of one node: a row of constants for each own token, and one of coefficients for each source."""

    constant: Array
    linear: Array

    def each(self, function: Callable[[Array], Array]) -> "AffineNumbers":
        """The same linear operation on all rows."""
        return AffineNumbers(function(self.constant), function(self.linear))


class Stage(NamedTuple):
    """A function of each element of its arguments; its results are the sources from `start` on."""

    function: str
    arguments: list[AffineNumbers]
    start: int
    size: int


class StagesAfterAttention:
    """The graph's output as affine numbers, and the stages that it is made of."""

    def __init__(self, graph: OneLayerGraph, sets: Sequence[Sets]) -> None:
        self.graph, self.sets, self.stages = graph, sets, list[Stage]()
        self.sources = graph.size
        ones = [[ONE if i == j else ZERO for j in range(graph.size)] for i in range(graph.size)]
        self.values = {graph.attention: AffineNumbers(graph.mixed([[ZERO] * graph.size]), graph.mixed(ones))}
        for i in graph.after[1:]:
            self.values[i] = self._followed(i, graph.graph.nodes[i])
        self.output = self._padded(self.values[graph.graph.output])

    def _padded(self, x: AffineNumbers) -> AffineNumbers:
        """With rows of zeros for the sources that came later."""
        rows = x.linear.rows
        more = [[ZERO] * x.linear.size] * (self.sources - len(rows))
        return x._replace(linear=x.linear._replace(rows=[*rows, *more]))

    def _followed(self, i: int, node: Node) -> AffineNumbers:
        base, args = base_of(node), node["args"]
        moving = {j: self._padded(self.values[j]) for j in self.graph.uses[i] if j in self.values}
        first, *others = moving.values()
        if node["op"] == "getitem":
            self.graph.require_affine(args[1] == 0 and base_of(self.graph.graph.nodes[[*moving][0]]) in NORMS, i)
            return first
        if base in NORMS:
            return self._normed(i, node, first)
        self.graph.require_affine(not node["kwargs"] or base in ("gelu", "var", "_to_copy"), i)
        if base == "var":
            return self._variance(i, node, first)
        n = args[1] if base == "pow" else None
        function = POWERS.get(n, "") if type(n) is int or type(n) is float else base
        function = f"gelu {node['kwargs']['approximate']}" if base == "gelu" and node["kwargs"] else function
        if function in FUNCTIONS:
            self.graph.require_affine(args[:1] == [{"node": [*moving][0]}] and len(args) == 1 + (base == "pow"), i)
            return self.stage(function, first)
        if base in ("mul", "div") and len(args) == 2 == len(uses_of(args)) and {*uses_of(args)} == {*moving}:
            (other,) = others or [first]
            if base == "mul" and not others:
                return self.stage("square", first)
            return self.product(first, other if base == "mul" else self.stage("reciprocal", other))
        (constant,) = self.graph.followed([i], self.sets, {j: v.constant for j, v in self.values.items()})
        added = linear(self.graph, i, node, {j: v.linear for j, v in moving.items()})
        self.graph.check(i, node, added)
        return AffineNumbers(constant, added)

    def stage(self, function: str, *arguments: AffineNumbers) -> AffineNumbers:
        """The results of a new stage, each a source of its own."""
        shape, size, start = arguments[0].constant.shape, arguments[0].constant.size, self.sources
        self.stages.append(Stage(function, [*arguments], start, size))
        self.sources += size
        ones = [[ONE if i == j else ZERO for j in range(size)] for i in range(size)]
        rows = [[ZERO] * size] * start + ones
        return AffineNumbers(Array(FLOAT, shape, [[ZERO] * size]), Array(FLOAT, shape, rows))

    def product(self, x: AffineNumbers, y: AffineNumbers) -> AffineNumbers:
        shape = common([x.constant.shape, y.constant.shape])
        return self.stage("product", *(v.each(lambda a: expanded(a, shape)) for v in (x, y)))

    def _mean_square(self, x: AffineNumbers) -> AffineNumbers:
        return self.stage("square", x).each(lambda a: mean(a, [-1], True))

    def _normed(self, i: int, node: Node, x: AffineNumbers) -> AffineNumbers:
        """LayerNorm or RMSNorm over the last axis, with its weight and bias."""
        is_centred, count = NORMS[base_of(node)]
        given, others = node["args"], [j for j in self.graph.uses[i] if j not in self.values]
        self.graph.require_affine(len(given) == count and not node["kwargs"] and not {*others} & self.graph.computed, i)
        known = dict(zip(others, self.graph.followed(others, [], {}), strict=True))
        sizes, weight, *bias, eps = (filled(x, known) for x in given[1:])
        self.graph.require_affine([*x.constant.shape[-1:]] == sizes and isinstance(eps, float) and eps > 0, i)
        x = x.each(centred) if is_centred else x
        square = self._mean_square(x)
        square = square._replace(constant=ADDED(square.constant, eps))
        y = self.product(x, self.stage("rsqrt", square))
        return AffineNumbers(scaled(y.constant, weight, *bias or [None]), scaled(y.linear, weight, None))

    def _variance(self, i: int, node: Node, x: AffineNumbers) -> AffineNumbers:
        """A variance over the last axis, which is kept."""
        asked, n = node["kwargs"], x.constant.shape[-1]
        off = asked.get("correction", 1)
        is_plain = node["args"][1:] == [[-1]] and {*asked} <= {"correction", "keepdim"} and asked.get("keepdim") is True
        self.graph.require_affine(is_plain and type(off) in (int, float), i)
        assert isinstance(off, int | float)
        self.graph.require_affine(n > off, i)
        factor = arb(n) / (n - arb(off))
        return self._mean_square(x.each(centred)).each(lambda a: _times(a, factor))

    def needed(self, outputs: Iterable[int]) -> set[int]:
        """The sources that some elements of the output depend on."""
        found = set[int]()
        left = [(self.output, e) for e in outputs]
        for stage in (None, *reversed(self.stages)):
            if stage is not None:
                left = [(x, i) for i in range(stage.size) if stage.start + i in found for x in stage.arguments]
            found |= {r for x, e in left for r, row in enumerate(x.linear.balls) if not row[e].is_zero()}
        return found


def centred(x: Array) -> Array:
    return minus(x, mean(x, [-1], True))


def _times(x: Array, factor: arb) -> Array:
    return x._replace(rows=[[v * factor for v in row] for row in x.rows])
