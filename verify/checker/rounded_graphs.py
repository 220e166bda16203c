"""A captured graph in a format of floats, operation by operation: docs/checker.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from verify.checker.arrays import FLOAT, Array, refuse, tensor
from verify.checker.graphs import AT_ONCE, Follower, TracedGraph, base_of, called_with, of_one
from verify.checker.layer_norm import ULPS
from verify.checker.moved import ZERO, MovedArray, OfArrays
from verify.checker.moves import CREATING, MOVES, PARTS, SIGNIFICANT, created, transposed
from verify.checker.operations import (  # fmt: skip
    ADDED,
    OPERATIONS,
    OPPOSITE,
    TIMES,
    cumulated,
    matmul,
    mean,
    summed,
    where,
)
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import Node
from verify.checker.rounded_norms import RoundedKernels
from verify.checker.rounded_results import FUNCTIONS, NO_NUMBER, check_widths

CHOOSING = {"abs", "maximum", "minimum", "clamp", "clamp_min", "hardtanh", "amax", "amin"}
TRUTHS = {*OPPOSITE, "any", "all", "logical_and", "logical_or", "logical_xor", "logical_not"}


class RoundedFollower(Follower):
    """Follows a graph in a format; with the errors kept, one input at a time."""

    def __init__(self, graph: TracedGraph, bits: int, at: RoundedKernels) -> None:
        super().__init__(graph, bits)
        self.at, self.found = at, at.number(0.0)  # what the logits are
        check_widths(graph, self.uses, at.fmt)
        self.call, self.finish, self.most_at_once = self.called, self.hulls, 1 if at.errors.are_kept else AT_ONCE
        self.show = lambda found: found.mid if isinstance(found, MovedArray) else found
        self.rules: dict[str, Callable[..., object]] = {
            "add": self.plus, "sub": lambda x, y, *, alpha=1: self.plus(x, y, alpha=-alpha), "pow": self.power,
            "rsub": lambda x, y, *, alpha=1: self.plus(y, x, alpha=-alpha), "leaky_relu": self.leaky_relu,
            "mul": lambda x, y: at.times(TIMES, at.read(x), at.read(y)), "linear": self.linear,
            "div": lambda x, y: at.quotient(at.read(x), at.read(y)), "relu": at.errors.relu, "where": self.where,
            "addmm": self.added, "baddbmm": self.added, "neg": partial(at.errors.linear, OPERATIONS["neg"]),
            "sum": partial(self.sums, summed, 0), "mean": partial(self.sums, mean, 3),
            "cumsum": partial(self.sums, cumulated, 0), "native_layer_norm": at.layer_norm,
            "_fused_rms_norm": at.rms_norm, "scaled_dot_product_attention": at.attention,
            **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), at.matrices),
            **dict.fromkeys(("softmax", "_softmax"), lambda x, dim, _=None: at.softmax(x, dim, NO_NUMBER)),
            "_safe_softmax": lambda x, dim: at.softmax(x, dim, ZERO), "softplus": lambda x: at.softplus(at.read(x)),
            **{name: partial(self.function, name) for name in FUNCTIONS},
        }  # fmt: skip

    def hulls(self, values: Mapping[int, object]) -> Array:
        found = values[self.graph.output]
        require(isinstance(found, MovedArray), "program: the output is no tensor of floats")
        self.found = self.at.read(found)
        return self.last({self.graph.output: self.found.hull})

    def called(self, i: int, node: Node, values: dict[int, object], tokens: Sequence[Sequence[int]]) -> object:
        """An operation on numbers of the format, where any is one, and else as it is in real arithmetic."""
        base, is_float = base_of(node), node["dtype"] in SIGNIFICANT
        made = values
        if base in CREATING:
            made = {j: self.show(values[j]) for j in self.uses[i]}
        is_special = node["op"] in ("stored", "tokens", "getitem") or base in CREATING or base.startswith("_assert")
        has_floats = any(isinstance(values[j], MovedArray) for j in self.uses[i])
        has_floats = has_floats or any(isinstance(x, float) for x in node.get("args", ()))
        if is_special or not is_float and not has_floats:
            found = self._called(i, node, made, tokens)
            if not is_float or not isinstance(found, Array):
                return found
            return self.at.stored(found) if node["op"] == "stored" else self.at.number(found)
        args, kwargs = called_with(node, values)
        if base == "_to_copy":
            return self.cast(args[0], of_one(node["dtype"]))
        if base == "index":
            self.check_places(i)
        if base in MOVES or base in PARTS or base == "cat":
            return self.moved(base, *args, **kwargs)
        if base in CHOOSING or base in TRUTHS:
            return self.chosen(base, args, kwargs)
        require(base in self.rules, f"program: {node['op'][:60]} is not followed in a dtype", NOT_CHECKABLE)
        return self.rules[base](*args, **kwargs)

    def cast(self, x: object, dtype: str) -> object:
        """Numbers of another format, none with fewer bits than are followed; whole ones are rounded by none."""
        if dtype not in SIGNIFICANT:
            return (
                OPERATIONS["ne"](self.at.read(x).hull, 0)
                if dtype == "bool"
                else refuse("a float cast to whole numbers")
            )
        if isinstance(x, MovedArray):
            return x
        is_narrow = SIGNIFICANT[dtype] < self.at.fmt.p
        is_kept = not is_narrow or all(created(v, dtype) == v for row in tensor(x).whole for v in row)
        require(is_kept, "program: a cast that rounds a whole number", NOT_CHECKABLE)
        return self.at.number(x)

    def moved(self, base: str, x: object, *rest: object, **options: object) -> MovedArray | tuple[MovedArray, ...]:
        """What moves numbers moves what each error does to them."""
        linear = self.at.errors.linear
        if base in ("cat", "stack"):
            several = x if isinstance(x, list) else refuse("a tensor that is joined with nothing")
            return linear(lambda *parts: OPERATIONS[base]([*parts], *rest, **options), *map(self.unread, several))
        x = self.unread(x)
        if base == "constant_pad_nd":
            require(rest[1:] in ((), (0,)) and not options, "program: padding by another number than 0", NOT_CHECKABLE)
        if base in PARTS:
            parts = range(len(PARTS[base](x.mid, *rest, **options)))
            return tuple(linear(lambda a, k=k: PARTS[base](a, *rest, **options)[k], x) for k in parts)
        return linear(lambda a: OPERATIONS[base](a, *rest, **options), x)

    def unread(self, x: object) -> MovedArray:
        return x if isinstance(x, MovedArray) else self.at.number(x)

    def chosen(self, base: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """What chooses among numbers, which rounding does not reorder, or says how they compare, as they are read."""
        taken = self.at.read if base in TRUTHS else self.unread
        alone = base in ("amax", "amin", "any", "all")
        found = [taken(x) for x in (args[:1] if alone else [x for x in [*args, *kwargs.values()] if x is not None])]
        parts = iter(x.hull for x in found)
        given = [next(parts) if x is not None and (j == 0 or not alone) else x for j, x in enumerate(args)]
        named = {name: next(parts) if x is not None and not alone else x for name, x in kwargs.items()}
        out = OPERATIONS[base](*given, **named)
        if out.kind != FLOAT:
            return out
        balls = self.at.errors.of_balls(out)
        return MovedArray(balls.mid, balls.moved, all(x.is_stored for x in found))

    def where(self, condition: object, x: object, y: object) -> MovedArray:
        given = self.at.read(condition).hull if isinstance(condition, MovedArray) else condition
        return self.at.errors.linear(partial(where, given), self.unread(x), self.unread(y))

    # ---- sums and products

    def plus(self, x: object, y: object, *, alpha: float = 1) -> MovedArray:
        x, y, at = self.at.read(x), self.at.read(y), self.at
        if abs(alpha) != 1:
            return at.plus(x, at.read(at.times(TIMES, y, at.number(alpha))))
        return at.plus(x, y if alpha == 1 else at.errors.linear(OPERATIONS["neg"], y))

    def leaky_relu(self, x: object, slope: object = 0.01) -> MovedArray:
        x, steep = self.at.read(x), self.at.number(slope).mid.rows[0][0]
        found = self.at.errors.of_balls(OPERATIONS["leaky_relu"](x.hull, steep))
        return self.at.left(found, ADDED(x.size, found.size), 1)

    def power(self, x: object, n: float) -> MovedArray:
        names = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
        if n in names:
            return self.function(names[n], x)
        require(n in range(1, 17), "program: such a power", NOT_CHECKABLE)
        one = found = self.at.read(x)
        for k in range(int(n) - 1):
            found = self.at.read(self.at.times(TIMES, found, self.at.read(x) if k else one))
        return self.at.left(found, found.size, 0, ULPS)

    def linear(self, x: object, W: object, bias: object = None) -> MovedArray:
        return self.at.matrices(x, W, lambda a, b: matmul(a, transposed(b, 0, 1)), bias=bias)

    def added(self, bias: object, x: object, y: object, *, beta: object = 1, alpha: object = 1) -> MovedArray:
        require(beta == alpha == 1, "program: a multiple in a matrix product", NOT_CHECKABLE)
        return self.at.matrices(x, y, bias=bias)

    def sums(self, op: OfArrays, stored: int, x: object, *where_: object) -> MovedArray:
        x = self.at.read(x)
        n, size, found = x.mid.size, op(x.size, *where_), self.at.errors.linear(lambda a: op(a, *where_), x)
        found = self.at.finite(self.at.left(found, size, n, stored), size)
        return self.at.within(found, OPERATIONS["sum"](x.size, *where_), n) if op is mean else found

    def function(self, name: str, x: object, approximate: str = "none") -> MovedArray:
        require(approximate == "none", "program: an approximate GELU", NOT_CHECKABLE)
        return self.at.function(name, self.at.read(x), {"rsqrt": 4, "reciprocal": 3}.get(name, 0))
