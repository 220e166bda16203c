"""A graph run on one input in python-flint balls of as many bits as asked: decides what float64 leaves open.

The same operations as in `verify.engine.rules`, written once more for arrays of balls: nothing but the graph and the
movement of numbers is shared. Only the reading real.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar, cast

import numpy as np
import torch
from flint import arb, arb_mat, ctx
from numpy.typing import NDArray
from torch import Tensor

from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.formats import Format
from verify.arithmetic.layer_norm import centred, squared_deviation
from verify.arithmetic.softmax import precise_weights
from verify.engine.capture import CREATING, Graph, computed_in, constant, given, is_exact_constant
from verify.engine.dtypes import is_float
from verify.engine.margins import Question
from verify.engine.run import condition, holds, plain

Array = NDArray[np.object_]
Operand = Array | Tensor | float
Axes = int | list[int] | None
Operation = Callable[..., object]
Function = TypeVar("Function", bound=Operation)
OPERATIONS: dict[str, Operation] = {}
FACTORED = {  # matrix products; the bias that some add may be rounded, too, when it is read
    f"aten.{name}.default" for name in ("mm", "bmm", "matmul", "mv", "dot", "linear", "addmm", "baddbmm")
}
HIDDEN = ("aten.scaled_dot_product_attention", "aten.conv")  # have matrix products inside


class Undecidable(Exception):
    """A comparison that the balls leave open at this precision, or arithmetic with an infinity."""


class MinusInfinity:
    """An exact -inf, as masks have: it may be added to and goes into softmax, and nothing else."""

    def _refused(self, *others: object) -> NoReturn:
        raise Undecidable

    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = __abs__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = max = min = _refused


MINUS_INFINITY = MinusInfinity()
Entry = arb | MinusInfinity
UNKNOWN = object()  # where sorted numbers stood: not followed here


def operation(*names: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for name in names:
            OPERATIONS[name] = function
        return function

    return register


def is_covered(graph: Graph) -> bool:
    """Whether every operation on floats has a rule here."""
    return all(
        name in OPERATIONS or name in MOVES or name in CREATING or name.startswith("aten._assert")
        for name in float_operations(graph)
    )


def float_operations(graph: Graph) -> set[str]:
    """The names of the operations that read or make floats."""
    return {
        str(node.target)
        for node in graph.calls
        if node.target is not operator.getitem and any(_is_float(n) for n in (node, *node.all_input_nodes))
    }


def _is_float(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    value = value[0] if isinstance(value, list | tuple) else value
    return isinstance(value, Tensor) and value.is_floating_point()


def margin(graph: Graph, question: Question, tokens: Tensor, answers: Tensor, bits: int) -> tuple[float, float]:
    """Lower and upper bounds on one input's margin, in balls of so many bits; nothing where a comparison stays open."""
    with ctx.workprec(bits):
        try:
            logits = rows(evaluate(graph, tokens), question)
        except Undecidable:
            return -math.inf, math.inf
        found = [differences(row, answer) for row, answer in zip(logits, answers.tolist(), strict=True)]
        if not all(row and all(d.is_finite() for d in row) for row in found):
            return -math.inf, math.inf
        return min(float_below(d) for row in found for d in row), min(min(float_above(d) for d in row) for row in found)


def differences(row: Array, answer: int) -> list[arb]:
    """How far the right logit is above each other; a rival of exactly -inf is below it, and nothing where it is so."""
    if row[answer] is MINUS_INFINITY:
        return []
    return [row[answer] - x for i, x in enumerate(row) if i != answer and x is not MINUS_INFINITY]


def rows(output: Array, question: Question) -> Array:
    """The logits that are compared, (positions, classes)."""
    first: Array = output[0]
    is_one = question.positions is None or first.ndim == 1
    found = first.reshape(1, -1) if is_one else first[list(question.positions or ())]
    return found if question.classes is None else found[:, list(question.classes)]


def evaluate(
    graph: Graph, tokens: Tensor, at: torch.fx.Node | None = None, as_factor: Callable[[Array], Array] | None = None
) -> Array:
    """The module's output on one input (length,), or what another node holds, as an array of balls.

    `as_factor` says how numbers are read that become factors of a matrix product.
    """
    assert not graph.around, "one module is evaluated, not all around it"
    values: dict[torch.fx.Node, object] = {}
    wanted = graph.program.output_node().all_input_nodes[-1] if at is None else at
    for node in graph.program.nodes:
        if node.op == "placeholder":
            stored = graph.stored.get(node.name)
            values[node] = tokens.unsqueeze(0) if stored is None else balls(stored)
        else:
            values[node] = call(node, values, as_factor)
        if node is wanted:
            return cast(Array, values[node])
    raise AssertionError("a graph without an output")


def balls(x: object) -> object:
    """A tensor of floats as exact balls; whole numbers and truth values stay as they are."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    flat = [MINUS_INFINITY if v == -math.inf else arb(v) for v in x.detach().double().cpu().flatten().tolist()]
    return filled(flat, tuple(x.shape))


def filled(flat: Sequence[object], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(flat), dtype=object)
    out[:] = flat
    return out.reshape(shape)


def nearest(x: Array, fmt: Format) -> Array:
    """Numbers rounded to a format, to nearest, ties to even: where both ends of a ball are rounded to one, all are.

    Raises: Undecidable where they are not, or beyond the largest number.

    >>> from verify.arithmetic.formats import FORMATS
    >>> nearest(filled([arb("1.0039062500001"), arb(0)], (2,)), FORMATS["bfloat16"]).tolist()
    [1.00781250000000, 0]
    """
    found = []
    for a in x.reshape(-1).tolist():
        if a is MINUS_INFINITY or not a.is_finite():
            raise Undecidable
        low, high = (_at_nearest(end, fmt) for end in (a.lower(), a.upper()))
        if low != high or abs(low) > fmt.largest:
            raise Undecidable
        found.append(arb(low))
    return filled(found, x.shape)


def _at_nearest(x: arb, fmt: Format) -> float:
    """An exact number, m 2^e, rounded to the format, infinite beyond float64."""
    m, e = (int(part) for part in x.man_exp())
    if m.bit_length() + e <= fmt.smallest_exponent - fmt.p:  # below half of the least number
        return 0.0
    dropped = max(m.bit_length() - fmt.p, fmt.smallest_exponent - fmt.p + 1 - e, 0)
    whole, rest = divmod(m, 1 << dropped)
    twice = 2 * rest - (1 << dropped)
    whole += dropped > 0 and (twice > 0 or (twice == 0 and whole % 2 == 1))
    try:
        return math.ldexp(whole, e + dropped)
    except OverflowError:
        return math.inf


def are_factors_known(graph: Graph) -> bool:
    """Whether each matrix product is one of the operations whose factors are read by themselves."""
    return not any(name.startswith(HIDDEN) for name in float_operations(graph))


def call(
    node: torch.fx.Node, values: Mapping[torch.fx.Node, object], as_factor: Callable[[Array], Array] | None = None
) -> object:
    args, kwargs = given(node, values)
    if node.target is operator.getitem:
        return args[0][args[1]]
    name = str(node.target)
    if condition(node) is not None and not bool(holds(node, values)):
        raise Undecidable
    if name.startswith("aten._assert"):
        return None
    if name in CREATING:
        shaped = [torch.zeros(a.shape) if isinstance(a, np.ndarray | Tensor) else a for a in args]
        return balls(node.target(*shaped, **{**kwargs, "dtype": node.meta["val"].dtype}))  # type: ignore[operator]
    if isinstance(node.meta["val"], Tensor) and not _is_float(node) and is_exact_constant(node):
        return constant(node)
    inputs = [values[n] for n in node.all_input_nodes]
    if any(value is UNKNOWN for value in inputs):
        raise Undecidable
    if not is_float(computed_in(node)) and all(isinstance(value, Tensor) for value in inputs):
        return plain(node, args, kwargs, torch.device("cpu"))
    if name in MOVES:
        return move(node.target, args, kwargs)
    names = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")
    if as_factor is not None and name in FACTORED:
        args = tuple(as_factor(x) if isinstance(x, np.ndarray) else x for x in args)
    return OPERATIONS[name](*args, **{k: v for k, v in kwargs.items() if k not in names})


MOVES = {
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "permute.default", "transpose.int", "t.default"),
        *("clone.default", "alias.default", "detach.default", "contiguous.default", "lift_fresh_copy.default"),
        *(
            "lift_fresh.default",
            "expand.default",
            "unsqueeze.default",
            "squeeze.dim",
            "squeeze.dims",
            "squeeze.default",
        ),
        *("slice.Tensor", "select.int", "split_with_sizes.default", "split.Tensor", "unbind.int", "flip.default"),
        *("repeat.default", "roll.default", "diagonal.default", "triu.default", "tril.default", "gather.default"),
        *("index_select.default", "index.Tensor", "embedding.default"),
    )
}
ZERO, NO_NUMBER = arb(0), arb("nan")


def move(target: object, args: Sequence[object], kwargs: Mapping[str, object]) -> Array | list[Array]:
    """Any operation that moves numbers: done on their places, counted from 1, where 0 is a new zero."""
    x = cast(Array, args[0])
    places = torch.arange(1, x.size + 1).reshape(x.shape)
    name = str(target)
    if name in ("aten.view.default", "aten._unsafe_view.default"):
        return x.reshape([-1 if s == -1 else int(s) for s in cast(Sequence[int], args[1])])
    operation = cast(Callable[..., Tensor | list[Tensor]], target)
    moved = (
        places[cast(Tensor, args[1])] if name == "aten.embedding.default" else operation(places, *args[1:], **kwargs)
    )
    flat = np.concatenate([filled([ZERO], (1,)), x.reshape(-1)])

    def at(part: Tensor) -> Array:
        found: Array = flat[part.reshape(-1).numpy()].reshape(tuple(part.shape))  # a number without axes stays an array
        return found

    return at(moved) if isinstance(moved, Tensor) else [at(part) for part in moved]


def as_array(x: Operand) -> Array:
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, Tensor):
        return filled([arb(v) for v in x.cpu().flatten().tolist()], tuple(x.shape))
    return filled([MINUS_INFINITY if x == -math.inf else arb(x)], ())


def each(function: Operation, *arrays: Operand) -> Array:
    """A function of single numbers on arrays, broadcast."""
    broadcast = np.broadcast_arrays(*[as_array(a) for a in arrays])
    flat = [function(*numbers) for numbers in zip(*(b.reshape(-1) for b in broadcast), strict=True)]
    return filled(flat, broadcast[0].shape)


def added(x: Entry, y: Entry, alpha: float = 1) -> Entry:
    if isinstance(x, MinusInfinity) or isinstance(y, MinusInfinity):
        other = y if isinstance(x, MinusInfinity) else x
        return other if isinstance(other, arb) and other.is_nan() else MINUS_INFINITY
    return x + y if alpha == 1 else x + arb(alpha) * y


COMPARISONS = {name: getattr(operator, name) for name in ("gt", "ge", "lt", "le", "eq", "ne")}


def register_each() -> None:
    """Operations on single numbers."""
    half = arb(0.5)

    def relu(x: arb) -> arb:
        return x if x > 0 else arb(0) if x <= 0 else x.max(arb(0))

    def gelu(x: arb) -> arb:
        return half * x * (1 + (x / arb(2).sqrt()).erf())

    def logistic(x: arb) -> arb:
        return 1 / (1 + (-x).exp())

    simple: dict[str, Operation] = {
        "relu": relu,
        "neg": lambda x: -x,
        "abs": abs,
        "reciprocal": lambda x: 1 / x,
        "sqrt": lambda x: x.sqrt(),
        "rsqrt": lambda x: 1 / x.sqrt(),
        "exp": lambda x: x.exp(),
        "log": lambda x: x.log(),
        "log1p": lambda x: x.log1p(),
        "expm1": lambda x: x.expm1(),
        "tanh": lambda x: x.tanh(),
        "erf": lambda x: x.erf(),
        "sin": lambda x: x.sin() if x.is_finite() else NO_NUMBER,
        "cos": lambda x: x.cos() if x.is_finite() else NO_NUMBER,
        "sigmoid": logistic,
        "silu": lambda x: x * logistic(x),
        "maximum": lambda x, y: x.max(y),
        "minimum": lambda x, y: x.min(y),
    }
    for name, function in simple.items():
        operation(f"aten.{name}.default")(lambda *xs, function=function: each(function, *xs))
    for kind in ("Tensor", "Scalar"):
        operation(f"aten.add.{kind}")(
            lambda x, y, alpha=1: each(lambda a, b: added(a, b if alpha == 1 else alpha * b), x, y)
        )
        operation(f"aten.sub.{kind}")(lambda x, y, alpha=1: each(lambda a, b: a - arb(alpha) * b, x, y))
        operation(f"aten.rsub.{kind}")(lambda x, y, alpha=1: each(lambda a, b: b - arb(alpha) * a, x, y))
        operation(f"aten.mul.{kind}")(lambda x, y: each(lambda a, b: a * b, x, y))
        operation(f"aten.div.{kind}")(lambda x, y: each(lambda a, b: a / b, x, y))
        for sign, compare in COMPARISONS.items():
            operation(f"aten.{sign}.{kind}")(lambda x, y, compare=compare: compared(compare, x, y))

    def gelu_of(x: Array, approximate: str = "none") -> Array:
        if approximate == "none":
            return each(gelu, x)
        root = (2 / arb.pi()).sqrt()
        return each(lambda a: half * a * (1 + (root * (a + arb("0.044715") * a**3)).tanh()), x)

    operation("aten.gelu.default")(gelu_of)


def compared(compare: Operation, x: Operand, y: Operand) -> Tensor:
    opposite = {operator.gt: operator.le, operator.ge: operator.lt, operator.eq: operator.ne}
    opposite |= {there: here for here, there in opposite.items()}

    def one(a: arb, b: arb) -> bool:
        if compare(a, b):
            return True
        if opposite[compare](a, b):
            return False
        raise Undecidable

    truth = each(one, x, y)
    return torch.tensor(truth.astype(bool))


register_each()


@operation("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(condition: Tensor, x: Operand, y: Operand) -> Array:
    return np.where(condition.numpy(), as_array(x), as_array(y))


@operation("aten.elu.default")
def elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    steep, flat, factor = arb(scale), arb(alpha) * arb(scale), arb(input_scale)
    return each(lambda a: steep * a.max(ZERO) + flat * (factor * a.min(ZERO)).expm1(), x)


@operation("aten.softplus.default")
def softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    def one(a: arb) -> arb:
        z = arb(beta) * a
        if z > threshold:
            return a
        if z <= threshold:
            return z.exp().log1p() / arb(beta)
        raise Undecidable

    return each(one, x)


def ordered(x: Array, dim: int, descending: bool) -> Array:
    """The numbers in order along an axis, by larger and smaller ones of two in turn."""

    def one(row: list[arb]) -> list[arb]:
        for last in range(len(row) - 1, 0, -1):
            for i in range(last):
                row[i], row[i + 1] = row[i].min(row[i + 1]), row[i].max(row[i + 1])
        return row[::-1] if descending else row

    rows = np.moveaxis(x, dim, -1)
    flat = [number for row in rows.reshape(-1, rows.shape[-1]) for number in one(list(row))]
    return np.moveaxis(filled(flat, rows.shape), -1, dim)


@operation("aten.sort.default")
def sort(x: Operand, dim: int = -1, descending: bool = False) -> list[object]:
    return [ordered(as_array(x), dim, descending), UNKNOWN]


@operation("aten.topk.default")
def topk(x: Operand, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[object]:
    return [np.take(ordered(as_array(x), dim, largest), range(k), dim), UNKNOWN]


@operation("aten.argmax.default")
def argmax(x: Operand, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The first place of the largest number, where comparisons say which that is."""

    def place(xs: list[arb]) -> int:
        best = 0
        for i, number in enumerate(xs):
            if number > xs[best]:
                best = i
            elif i and not number <= xs[best]:
                raise Undecidable
        return best

    return torch.tensor(folded(x, dim, keepdim, place).astype(np.int64))


@operation("aten.argmin.default")
def argmin(x: Operand, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return argmax(each(operator.neg, x), dim, keepdim)


@operation("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, momentum: float, eps: float
) -> tuple[Array, None, None]:
    def by_channel(part: Array) -> Array:
        return part.reshape([1, -1] + [1] * (x.ndim - 2))

    root = each(lambda v: (v + arb(eps)).sqrt(), var)
    out = each(lambda a, m, s: (a - m) / s, x, by_channel(mean), by_channel(root))
    out = out if weight is None else each(operator.mul, out, by_channel(weight))
    return (out if bias is None else each(added, out, by_channel(bias))), None, None


@operation("aten.leaky_relu.default")
def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    return each(lambda a: a.max(a * slope) if slope <= 1 else a.min(a * slope), x)


@operation("aten.clamp.default", "aten.hardtanh.default")
def clamp(x: Array, least: float | None = None, most: float | None = None) -> Array:
    out = x if least is None else each(lambda a: a.max(arb(least)), x)
    return out if most is None else each(lambda a: a.min(arb(most)), out)


@operation("aten.pow.Tensor_Scalar")
def power(x: Array, exponent: float) -> Array:
    if float(exponent).is_integer():
        return each(lambda a: a ** int(exponent), x)
    return each(lambda a: a.sqrt() if exponent > 0 else 1 / a.sqrt(), x)


@operation("aten.pow.Scalar")
def exponential(base: float, x: Operand) -> Array:
    return each(lambda a: arb(base) ** a, x)


@operation("aten._to_copy.default")
def to_copy(x: Operand) -> Array:
    return as_array(x)


@operation("aten.copy.default")
def copy(x: Array | Tensor, new: Operand) -> Array:
    return np.broadcast_to(as_array(new), tuple(x.shape))


@operation("aten.cat.default")
def cat(xs: list[Operand], dim: int = 0) -> Array:
    return np.concatenate([as_array(x) for x in xs], axis=dim)


@operation("aten.stack.default")
def stack(xs: list[Operand], dim: int = 0) -> Array:
    return np.stack([as_array(x) for x in xs], axis=dim)


@operation("aten.constant_pad_nd.default")
def pad(x: Array, widths: list[int], value: float = 0.0) -> Array:
    places = torch.arange(1, x.size + 1).reshape(x.shape)
    moved = torch.ops.aten.constant_pad_nd.default(places, widths, 0)
    padded: Array = np.concatenate([as_array(float(value)).reshape(1), x.reshape(-1)])[moved.numpy()]
    return padded


@operation("aten.select_scatter.default")
def select_scatter(x: Operand, part: Operand, dim: int, index: int) -> Array:
    out = as_array(x).copy()
    np.moveaxis(out, dim, 0)[index] = as_array(part)
    return out


@operation("aten.slice_scatter.default")
def slice_scatter(
    x: Operand, part: Operand, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    out = as_array(x).copy()
    np.moveaxis(out, dim, 0)[slice(start, end, step)] = np.moveaxis(as_array(part), dim, 0)
    return out


def product(x: Array, y: Array) -> Array:
    """x @ y over the last two axes."""
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    xs = np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
    ys = np.broadcast_to(y, (*lead, *y.shape[-2:])).reshape(-1, *y.shape[-2:])
    parts = [arb_mat(a.tolist()) * arb_mat(b.tolist()) for a, b in zip(xs, ys, strict=True)]
    flat = [number for part in parts for number in part.entries()]
    return filled(flat, (*lead, x.shape[-2], y.shape[-1]))


@operation("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def mm(x: Array, y: Array) -> Array:
    return product(as_array(x), as_array(y))


@operation("aten.mv.default")
def mv(x: Array, y: Array) -> Array:
    return product(x, y[:, None])[..., 0]


@operation("aten.dot.default")
def dot(x: Array, y: Array) -> Array:
    return np.asarray(product(x[None], y[:, None])[0, 0], dtype=object)


@operation("aten.linear.default")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    out = product(x.reshape(1, -1) if x.ndim == 1 else x, weight.T)
    out = out.reshape(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


@operation("aten.addmm.default", "aten.baddbmm.default")
def addmm(bias: Array, x: Array, y: Array, beta: float = 1, alpha: float = 1) -> Array:
    out: Array = bias * arb(beta) + product(x, y) * arb(alpha)
    return out


def folded(x: Operand, dims: Axes, keepdim: bool, fold: Callable[[list[arb]], object]) -> Array:
    """A function of the list of numbers along some axes."""
    x = as_array(x)
    axes = list(range(x.ndim)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    axes = [a % x.ndim for a in axes]
    kept = [a for a in range(x.ndim) if a not in axes]
    lists = x.transpose(kept + axes).reshape(*[x.shape[a] for a in kept], -1)
    shape = lists.shape[:-1]
    out = filled([fold(list(row)) for row in lists.reshape(-1, lists.shape[-1])], shape)
    return out.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdim else out


@operation("aten.sum.default", "aten.sum.dim_IntList")
def total(x: Operand, dims: Axes = None, keepdim: bool = False) -> Array:
    return folded(x, dims, keepdim, lambda xs: sum(xs, ZERO))


@operation("aten.mean.default", "aten.mean.dim")
def mean(x: Operand, dims: Axes = None, keepdim: bool = False) -> Array:
    return folded(x, dims, keepdim, lambda xs: sum(xs, ZERO) / len(xs))


@operation("aten.amax.default")
def amax(x: Operand, dims: Axes = None, keepdim: bool = False) -> Array:
    return folded(x, dims or None, keepdim, largest)


@operation("aten.amin.default")
def amin(x: Operand, dims: Axes = None, keepdim: bool = False) -> Array:
    return folded(x, dims or None, keepdim, lambda xs: -largest([-x for x in xs]))


def largest(xs: list[arb]) -> arb:
    out = xs[0]
    for x in xs[1:]:
        out = out.max(x)
    return out


@operation("aten.var.correction")
def variance(x: Array, dim: Axes = None, correction: float | None = 1, keepdim: bool = False) -> Array:
    def of(xs: list[arb]) -> arb:
        return sum((x * x for x in centred(xs)), ZERO) / arb(len(xs) - (1 if correction is None else correction))

    return folded(x, dim, keepdim, of)


@operation("aten.cumsum.default")
def cumsum(x: Operand, dim: int) -> Array:
    return np.cumsum(as_array(x), axis=dim)


def softmax_of(xs: list[arb | MinusInfinity], empty: arb) -> list[arb]:
    scores = [x for x in xs if not isinstance(x, MinusInfinity)]
    if not scores:
        return [empty] * len(xs)
    weights = precise_weights(scores)
    whole, left = sum(weights, ZERO), iter(weights)
    return [ZERO if x is MINUS_INFINITY else next(left) / whole for x in xs]


def softmax(x: Operand, dim: int, empty: arb) -> Array:
    x = np.moveaxis(as_array(x), dim, -1)
    flat = [p for row in x.reshape(-1, x.shape[-1]) for p in softmax_of(list(row), empty)]
    return np.moveaxis(filled(flat, x.shape), -1, dim)


@operation("aten._softmax.default", "aten.softmax.int")
def plain_softmax(x: Operand, dim: int, *options: object) -> Array:
    return softmax(x, dim, NO_NUMBER)


@operation("aten._safe_softmax.default")
def safe_softmax(x: Operand, dim: int, *options: object) -> Array:
    return softmax(x, dim, ZERO)


@operation("aten._log_softmax.default")
def log_softmax(x: Operand, dim: int, *options: object) -> Array:
    return each(lambda p: p.log(), softmax(x, dim, NO_NUMBER))


@operation("aten.scaled_dot_product_attention.default")
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    factor = 1 / arb(q.shape[-1]).sqrt() if scale is None else arb(scale)
    scores = product(q, np.swapaxes(k, -2, -1)) * factor
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        is_kept = np.broadcast_to(mask.numpy(), scores.shape)
        scores = each(lambda score, kept: score if kept or score.is_nan() else MINUS_INFINITY, scores, is_kept)
    elif mask is not None:
        scores = each(added, scores, mask)
    return product(softmax(scores, -1, ZERO), v)


@operation("aten.native_layer_norm.default")
def layer_norm(
    x: Array, shape: list[int], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, None, None]:
    def normal(xs: list[arb]) -> list[arb]:
        spread = squared_deviation(xs, arb(eps)).sqrt()
        return [x / spread for x in centred(xs)]

    out = filled([y for row in x.reshape(-1, x.shape[-1]) for y in normal(list(row))], x.shape)
    out = out if weight is None else each(operator.mul, out, weight)
    return (out if bias is None else each(added, out, bias)), None, None


@operation("aten._fused_rms_norm.default")
def rms_norm(x: Array, shape: list[int], weight: Array | None, eps: float) -> tuple[Array, None]:
    axes = list(range(-len(shape), 0))
    squares = folded(each(lambda a: a * a, x), axes, True, lambda xs: sum(xs, ZERO) / len(xs))
    out = each(lambda a, s: a / (s + arb(eps)).sqrt(), x, squares)
    return (out if weight is None else each(operator.mul, out, weight)), None
