"""The adversary of operations: every rule in every dtype against torch itself, and against exact arithmetic.

A call is one ATen operation on drawn numbers, in a graph of its own that capture judges. What is not refused is
compared number by number: whole numbers and truth values exactly, floats in their balls. The whole:
pytest tests/engine/test_against_torch.py -m deep
"""

import contextlib
import itertools
import operator
import random
import warnings
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from flint import arb, ctx
from models.selection import first

from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.engine import balls, capture, dtypes, run
from verify.engine.balls import Arithmetic, Ball, Unsure, Whole
from verify.engine.capture import computed_in
from verify.engine.rules import (
    COVERS,
    RULES,
    activations,
    cover_of,
    linear,
    movement,
    normalisation,
    order,
    pointwise,
    registry,
    whole,
)
from verify.engine.run import call

aten = torch.ops.aten
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ALL = (torch.bool, *WHOLES, *FLOATS)
SHAPE = (3, 4)


class Arg:
    """A tensor of a shape: floats, or whole numbers and truth values that computed floats decide, or known ones."""

    def __init__(self, dtype, shape=SHAPE, known=False, places=None, positive=False):
        self.dtype, self.shape, self.known, self.places, self.positive = dtype, shape, known, places, positive


def overload(name):
    base, kind = name.removeprefix("aten.").split(".")
    return getattr(getattr(aten, base), kind)


# what is drawn


def numbers(arg, rng):
    """Numbers of a dtype, its ends, its smallest, ties and halves among them."""
    size = torch.Size(arg.shape).numel()
    if arg.places is not None:
        found = [rng.randrange(arg.places) for _ in range(size)]
    elif arg.dtype == torch.bool:
        found = [rng.random() < 0.5 for _ in range(size)]
    elif arg.dtype in WHOLES:
        ends = torch.iinfo(arg.dtype)
        special = [0, 1, 2, 3, 7, -1, -2, ends.min, ends.max, ends.max - 1, 200, 2**24 + 1, 2**53 + 1, -(2**62)]
        special = [x for x in special if ends.min <= x <= ends.max]
        some = special[:7] if rng.random() < 0.5 else special
        found = [rng.choice(some) if rng.random() < 0.7 else rng.randint(ends.min, ends.max) for _ in range(size)]
    else:
        info = torch.finfo(arg.dtype)
        special = [0.0, 1.0, -1.0, 0.5, -2.0, 3.0, info.tiny, -info.smallest_normal * 3, info.eps, info.max]
        special += [info.smallest_normal / 2**info.bits**0.5, -1e-170, 5e-324, 1e-162, 1.7e308, -info.max, 40.0, 0.1]
        scale = 10.0 ** rng.choice([0, 0, 0, 1, -3, -160, 100])
        wild = rng.choice([0.0, 0.0, 0.5])
        found = [rng.choice(special) if rng.random() < wild else rng.gauss(0, scale) for _ in range(size)]
        if arg.positive:
            found = [abs(x) for x in found]
    drawn = torch.tensor(found, dtype=torch.float64 if arg.dtype in FLOATS else arg.dtype).to(arg.dtype)
    if arg.dtype in FLOATS:
        drawn = torch.where(torch.isfinite(drawn), drawn, torch.ones_like(drawn))
    return drawn.reshape(arg.shape)


def enclosed(point, at, rng):
    """A ball with a point in it, exact or not."""
    if rng.random() < 0.4:
        return at.tensor(point)
    exact = point.double()
    rad = exact.abs() * 2.0 ** rng.randint(-60, -2) + rng.choice([0.0, 1e-9, 0.3, 1e-320])
    mid = exact + rad * rng.choice([-0.9, 0.0, 0.5, 0.9])
    rad = ((mid - exact).abs() + rad) * (1 + 2.0**-40) + 5e-324
    is_number = torch.isfinite(mid) & torch.isfinite(rad)
    mid, rad = torch.where(is_number, mid, exact), torch.where(is_number, rad, 0.0)
    return Ball(mid, rad, balls.Norm(balls.length(rad)) if at.has_norms and mid.ndim else None)


# a graph of one call


class Case:
    """One operation on arguments: its graph, and why capture refuses it, if it does."""

    def __init__(self, name, *args, **kwargs):
        self.name, self.inputs = name, {}
        self.graph = torch.fx.Graph()
        self.args = [self._given(arg) for arg in args]
        node = self._call(overload(name), *self.args, **kwargs)
        self.node = node
        value = node.meta["val"]
        while isinstance(value, list | tuple):
            node = self._call(operator.getitem, node, 0)
            value = node.meta["val"]
        self.last = node
        if not value.dtype.is_floating_point:
            node = self._call(aten._to_copy.default, node, dtype=torch.float64)
        self.graph.output((node,))
        signature = SimpleNamespace(
            buffers_to_mutate={}, output_specs=[SimpleNamespace(kind=SimpleNamespace(name="USER_OUTPUT"))]
        )
        one_tensor = SimpleNamespace(out_spec=SimpleNamespace(is_leaf=lambda: True))
        program = SimpleNamespace(graph=self.graph, graph_signature=signature, call_spec=one_tensor)
        self.refused = list(capture._refusals(program, True))
        values = [n.meta["val"] for n in self.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        bits = {torch.finfo(x.dtype).bits for x in values if x.dtype in FLOATS}
        self.narrowest = [d for d in FLOATS if torch.finfo(d).bits == min(bits) and any(x.dtype == d for x in values)]

    def _placeholder(self, arg):
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        node.meta["val"] = numbers(arg, random.Random(0))
        self.inputs[node] = arg
        return node

    def _given(self, arg):
        if isinstance(arg, list):
            return [self._given(part) for part in arg]
        if not isinstance(arg, Arg):
            return arg
        if arg.dtype in FLOATS or arg.known or arg.places is not None:
            return self._placeholder(arg)
        x, y = (self._placeholder(Arg(torch.float32, arg.shape)) for _ in range(2))
        truth = self._call(aten.gt.Tensor, x, y)
        if arg.dtype == torch.bool:
            return truth
        here, there = (self._placeholder(Arg(arg.dtype, arg.shape)) for _ in range(2))
        return self._call(aten.where.self, truth, here, there)

    def _call(self, target, *args, **kwargs):
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = run_node(node, lambda n: n.meta["val"])
        return node


def run_node(node, value):
    """A node as torch runs it."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    if node.target in (aten.view.default, aten._unsafe_view.default):
        return args[0].reshape(args[1])
    return node.target(*args, **kwargs)


# exact values of what is computed number by number

SIGNS = {name: getattr(operator, name) for name in ("gt", "ge", "lt", "le", "eq", "ne")}


def exactly(x):
    return Fraction(x) if isinstance(x, float | int) else x


RATIONAL = {
    "add": lambda a, b, alpha=1: a + alpha * b,
    "sub": lambda a, b, alpha=1: a - alpha * b,
    "rsub": lambda a, b, alpha=1: b - alpha * a,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else None,
    "neg": lambda a: -a,
    "abs": abs,
    "relu": lambda a: max(a, 0),
    "reciprocal": lambda a: 1 / a if a else None,
    "maximum": max,
    "minimum": min,
    "clamp": lambda a, low=None, high=None: min(
        max(a, a if low is None else low), max(a, a if low is None else low) if high is None else high
    ),
    "leaky_relu": lambda a, slope=0.01: a if a > 0 else a * exactly(slope),
    **SIGNS,
}


def logistic(x):
    return 1 / (1 + (-x).exp())


IRRATIONAL = {
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tanh": lambda x: x.tanh(),
    "erf": lambda x: x.erf(),
    "sigmoid": logistic,
    "silu": lambda x: x * logistic(x),
    "gelu": lambda x: x * (1 + (x / arb(2).sqrt()).erf()) / 2,
    "log1p": lambda x: x.log1p(),
    "expm1": lambda x: x.expm1(),
    "softplus": lambda x, beta=1, threshold=20: (
        x if arb(beta) * x > threshold else (arb(beta) * x).exp().log1p() / arb(beta)
    ),
    "elu": lambda x, alpha=1, scale=1, factor=1: (
        arb(scale) * x if x > 0 else arb(alpha) * arb(scale) * (arb(factor) * x).expm1()
    ),
}


def mean(xs):
    return sum(xs, Fraction(0)) / len(xs)


def rows_normal(x, eps, is_centred):
    """x - mean over the root of its variance, or mean square, and eps, row by row, in balls of many bits."""
    for row in x.tolist():
        row = [Fraction(v) for v in row]
        centre = mean(row) if is_centred else 0
        square = mean([(v - centre) ** 2 for v in row]) + Fraction(eps)
        root = (arb(square.numerator) / square.denominator).sqrt()
        yield [arb((v - centre).numerator) / (v - centre).denominator / root for v in row]


def dot(a, b):
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


def ordered(base, x, *more):
    """Rows along an axis, sorted by Python."""
    k, more = (more[0], more[1:]) if base == "topk" else (None, more)
    dim, is_down = (*more, *(-1, base == "topk")[len(more) :])
    rows = [sorted(row, reverse=is_down)[:k] for row in x.movedim(dim, -1).tolist()]
    return torch.tensor(rows, dtype=torch.float64).movedim(-1, dim).flatten().tolist()


def whole_oracle(name, args, kwargs):
    """The exact numbers of an operation on rows, flat; nothing where there is no oracle."""
    base = name.split(".")[1]
    if base in ("mm", "matmul") and args[0].ndim == 2:
        return [dot(row, column) for row in args[0].tolist() for column in args[1].T.tolist()]
    if base == "linear" and args[0].ndim == 2:
        bias = args[2].tolist() if len(args) > 2 else [0.0] * len(args[1])
        return [
            dot(row, w) + Fraction(b) for row in args[0].tolist() for w, b in zip(args[1].tolist(), bias, strict=True)
        ]
    if name in ("aten.sum.dim_IntList", "aten.mean.dim") and args[0].ndim == 2 and args[1] in ([1], [-1]):
        totals = [sum(map(Fraction, row), Fraction(0)) for row in args[0].tolist()]
        return totals if base == "sum" else [t / args[0].shape[1] for t in totals]
    if base in ("sort", "topk") and not bool(args[0].isnan().any()):
        return ordered(base, *args)
    if base == "native_layer_norm" and args[2] is None:
        return [y for row in rows_normal(args[0], args[4], True) for y in row]
    if base == "_fused_rms_norm" and args[2] is None:
        return [y for row in rows_normal(args[0], args[3], False) for y in row]
    return None


def oracle(node, args, kwargs):
    """What exact arithmetic makes of the numbers that go in, flat, None where it is undefined."""
    name = str(node.target)
    found = whole_oracle(name, args, kwargs)
    base = name.split(".")[1]
    if found is not None or (base not in RATIONAL and base not in IRRATIONAL):
        return found
    if any(isinstance(x, float) and x != x or isinstance(x, torch.Tensor) and x.isinf().any() for x in args):
        return None
    shape = torch.broadcast_shapes(*(x.shape for x in args if isinstance(x, torch.Tensor)))
    columns = [x.expand(shape).flatten().tolist() if isinstance(x, torch.Tensor) else itertools.repeat(x) for x in args]
    options = {key: exactly(x) for key, x in kwargs.items() if key == "alpha"}
    if base == "gelu" and kwargs.get("approximate", "none") != "none":
        return None
    if base in IRRATIONAL:
        return [IRRATIONAL[base](arb(x), *numbers) for x, *numbers in zip(*columns, strict=False)]
    return [RATIONAL[base](*map(exactly, xs), **options) for xs in zip(*columns, strict=False)]


def holds(mid, rad, true):
    """Whether a ball holds an exact number, or a ball of many bits; a radius that is no number holds all."""
    if true is None or rad != rad or mid != mid or rad == torch.inf or abs(mid) == torch.inf:
        return true is None or rad != 0 or mid == true
    if isinstance(true, arb):
        return not true.is_finite() or not abs(true - arb(mid)) > arb(rad)
    return abs(Fraction(true) - Fraction(mid)) <= Fraction(rad)


# the comparison


def at_hand(value):
    """What was computed, where the engine's numbers are."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, value)


class Attack:
    """What was compared, which covers it reached, and the first thing that was wrong, where torch runs on a device."""

    def __init__(self, device="cpu"):
        self.device = torch.device(device)
        self.compared, self.reached, self.wrong, self.refused = 0, set(), [], {}

    def case(self, name, *args, draws=1, seed=0, **kwargs):
        """Tries one call, and says whether it was judged."""
        try:
            case = Case(name, *args, **kwargs)
        except (RuntimeError, TypeError, IndexError, NotImplementedError, ValueError, AssertionError):
            return False  # torch has no such operation in these dtypes
        if case.refused:
            self.refused[name] = self.refused.get(name, 0) + 1
            return False
        for i in range(draws):
            rng = random.Random(f"{name} {seed} {i}")
            points = {node: numbers(arg, rng) for node, arg in case.inputs.items()}
            if rng.random() < 0.4:  # ties
                for node, before in itertools.combinations(points, 2):
                    if points[node].dtype == points[before].dtype and points[node].shape == points[before].shape:
                        points[node] = torch.where(torch.rand(points[node].shape) < 0.5, points[before], points[node])
            has_norms = rng.random() < 0.5
            self.run(case, points, Arithmetic(None, None, has_norms), rng)
            narrow = rng.choice(case.narrowest)
            fmt = FORMATS[str(narrow).removeprefix("torch.")]
            points = {n: x.to(narrow).to(x.dtype) if x.dtype in FLOATS else x for n, x in points.items()}
            if all(x.dtype not in FLOATS or bool(torch.isfinite(x).all()) for x in points.values()):
                self.run(case, points, Arithmetic(fmt, None, has_norms), rng)
        return True

    def run(self, case, points, at, rng):
        stored = {n: enclosed(x, at, rng) if x.is_floating_point() else x for n, x in points.items()}
        exact, found = {n: at64.tensor(x) if x.is_floating_point() else x for n, x in points.items()}, dict(stored)
        values = {node: x.to(self.device) for node, x in points.items()}
        for node in case.graph.nodes:
            if node.op != "call_function":
                continue
            try:
                if self.device.type != "cpu":  # where a whole number divided by 0 is no error
                    run_node(node, lambda n: at_hand(values[n]))
                values[node] = run_node(node, values.__getitem__)
            except RuntimeError:
                return  # it cannot compute in these dtypes
            found[node] = call(node, found, at, torch.device("cpu"))
            exact[node] = call(node, exact, at64, torch.device("cpu")) if at.is_real else None
            if node.target is operator.getitem:
                continue
            name = str(node.target)
            cover = cover_of(name, computed_in(node))
            if cover is not None and not isinstance(found[node], torch.Tensor):
                self.reached.add((name, COVERS[name].index(cover)))
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: at_hand(values[n]))
            is_in_floats = dtypes.is_float(computed_in(node))  # whole numbers wrap: torch says what they are
            truths = oracle(node, args, kwargs) if at.is_real and is_in_floats else None
            parts = zip(*(x if isinstance(x, list | tuple) else [x] for x in (found[node], values[node])), strict=False)
            for i, (out, value) in enumerate(parts):
                if value is None or out is None:
                    continue
                value = at_hand(value)
                own = exact[node][i] if isinstance(exact[node], list | tuple) else exact[node]
                if not self.agree(out, value, own, truths if i == 0 else None, at):
                    reading = "real" if at.is_real else at.stored.name
                    kinds = [(x.dtype, x.tolist()) if isinstance(x, torch.Tensor) else x for x in args]
                    self.wrong.append(f"{name} in {reading}: {out} for {value} of {kinds} {kwargs}")

    def agree(self, out, value, own, truths, at):
        self.compared += value.numel()
        if isinstance(out, torch.Tensor):
            return torch.equal(out, value)
        if isinstance(out, Whole):
            return bool(((out.low <= value) & (value <= out.high)).all())
        if isinstance(out, Unsure):
            if truths is not None:
                value = torch.tensor([bool(t) for t in truths]).reshape(out.value.shape)
            return out.value.dtype == torch.bool and not bool((out.known & (out.value != value)).any())
        mid, rad = out.mid.expand(value.shape), out.radius.expand(value.shape)
        if out.mid.shape != value.shape:
            return False
        if truths is not None:
            triples = zip(mid.flatten().tolist(), rad.flatten().tolist(), truths, strict=True)
            return all(holds(*triple) for triple in triples)
        is_same = (value.double() == mid) | torch.isnan(rad) | torch.isnan(mid) | torch.isinf(rad)
        off = (value.double() - mid).abs()
        if at.is_real:  # torch's own rounding, and what it rounds away
            if value.dtype != torch.float64:
                return True
            is_same = is_same | ~torch.isfinite(value) | ~torch.isfinite(own.radius)
            rad = rad + 2 * own.radius
        return bool((is_same | (off <= rad)).all())


at64 = Arithmetic(FORMATS["float64"])

PAIRS = [
    *(f"aten.{name}.Tensor" for name in ("add", "sub", "rsub", "mul", "div", *SIGNS)),
    *(f"aten.bitwise_{name}.Tensor" for name in ("and", "or", "xor")),
    *(f"aten.{name}.default" for name in ("maximum", "minimum", "logical_and", "logical_or", "logical_xor")),
    "aten.copy.default",
    "aten.div.Tensor_mode",
]
SCALARS = (2, -1, 0.3, 2**53 + 1, 300, True, 2.0, -(2**31), 5e-324, 1.7e308)
WITH_NUMBERS = [f"aten.{name}.Scalar" for name in ("add", "sub", "rsub", "mul", "div", *SIGNS)]
ONE = [
    *(f"aten.{name}.default" for name in ("neg", "abs", "relu", "leaky_relu", "reciprocal", "sqrt", "rsqrt", "exp")),
    *(f"aten.{name}.default" for name in ("log", "sin", "cos", "tanh", "erf", "sigmoid", "gelu", "silu")),
    *(f"aten.{name}.default" for name in ("logical_not", "bitwise_not", "any", "all", "sum", "mean", "amax", "amin")),
    *(f"aten.{name}.default" for name in ("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "t", "squeeze")),
    *(f"aten.{name}.default" for name in ("log1p", "expm1")),
    *(f"aten.{name}.default" for name in ("triu", "tril", "diagonal", "contiguous")),
]
MORE = [
    ("aten.any.dim", (1,)), ("aten.any.dims", ([0, 1],)), ("aten.all.dim", (1, True)), ("aten.all.dims", ([1],)),
    ("aten.sum.dim_IntList", ([1],)), ("aten.sum.dim_IntList", ([0, 1], True)), ("aten.mean.dim", ([1],)),
    ("aten.amax.default", ([1],)), ("aten.amin.default", ([0],)), ("aten.cumsum.default", (1,)),
    ("aten.clamp.default", (-1, 2)), ("aten.clamp.default", (0.5, 2.5)), ("aten.clamp.default", (None, 1)),
    ("aten.hardtanh.default", (-1.0, 1.0)), ("aten.gelu.default", ()),
    *(("aten.pow.Tensor_Scalar", (e,)) for e in (1, 2, 3, 0.5, -0.5, -1)),
    ("aten.view.default", ([4, 3],)), ("aten._unsafe_view.default", ([2, 6],)), ("aten.reshape.default", ([12],)),
    ("aten.permute.default", ([1, 0],)), ("aten.transpose.int", (0, 1)), ("aten.expand.default", ([2, 3, 4],)),
    ("aten.unsqueeze.default", (1,)), ("aten.slice.Tensor", (1, 1, 3)), ("aten.select.int", (1, 2)),
    ("aten.split_with_sizes.default", ([1, 3], 1)), ("aten.split.Tensor", (2, 1)), ("aten.unbind.int", (0,)),
    ("aten.flip.default", ([1],)), ("aten.repeat.default", ([2, 1],)), ("aten.roll.default", ([1], [1])),
    ("aten.constant_pad_nd.default", ([1, 0], 0.5)), ("aten.constant_pad_nd.default", ([1, 0], 1)),
]  # fmt: skip


def calls():
    """Every call that is tried: an operation and its arguments."""
    given = [Arg(d, known=known) for d in ALL for known in ((False,) if d in FLOATS else (False, True))]
    for name in PAIRS:
        for a, b in itertools.product(given, given):
            yield (
                (name, a, b, *(() if "mode" not in name else ())),
                {"rounding_mode": "floor"} if "mode" in name else {},
            )
    for name in WITH_NUMBERS:
        for a, number in itertools.product(given, SCALARS):
            yield (name, a, number), {}
    for a, b in itertools.product(given, [Arg(d, ()) for d in FLOATS]):  # numbers without axes
        yield ("aten.mul.Tensor", a, b), {}
        yield ("aten.gt.Tensor", a, b), {}
    for name in ("aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Scalar"):
        for a, alpha in itertools.product(given, (2, 3, 0.3)):
            yield (name, a, 3 if "Scalar" in name else a), {"alpha": alpha}
    for a in given:
        for name in ONE:
            yield (name, a), {}
        for name, more in MORE:
            yield (name, a, *more), {}
        yield ("aten.gelu.default", a), {"approximate": "tanh"}
        yield ("aten.pow.Scalar", 0.3, a), {}
        yield ("aten.squeeze.dim", Arg(a.dtype, (3, 1, 4), a.known), 1), {}
        yield ("aten.squeeze.dims", Arg(a.dtype, (3, 1, 4), a.known), [1]), {}
        for dtype in ALL:
            yield ("aten._to_copy.default", a), {"dtype": dtype}
            yield ("aten.sum.dim_IntList", a, [1]), {"dtype": dtype}
            yield ("aten.cumsum.default", a, 1), {"dtype": dtype}
        places, rows = Arg(torch.int64, (3, 4), True, 4), Arg(torch.int64, (2,), True, 3)
        yield ("aten.gather.default", a, 1, places), {}
        yield ("aten.index_select.default", a, 0, rows), {}
        yield ("aten.embedding.default", a, rows), {}
        yield ("aten.index.Tensor", a, [rows, None]), {}
        for dtype in ALL:
            for b in (Arg(dtype), Arg(dtype, known=True)):
                yield ("aten.where.self", Arg(torch.bool), a, b), {}
                yield ("aten.where.self", Arg(torch.bool, known=True), a, b), {}
                yield ("aten.cat.default", [a, b], 1), {}
                yield ("aten.stack.default", [a, b], 0), {}
                yield ("aten.select_scatter.default", a, Arg(dtype, (3,), b.known), 1, 2), {}
                yield ("aten.slice_scatter.default", a, Arg(dtype, (3, 2), b.known), 1, 1, 3), {}
        for number in (2, 0.3, True):
            yield ("aten.where.ScalarSelf", Arg(torch.bool), number, a), {}
            yield ("aten.where.ScalarOther", Arg(torch.bool), a, number), {}
            yield ("aten.where.Scalar", a, number, 3), {}
    for d in FLOATS:
        yield from of_floats(d)


def of_floats(d):
    """Operations on floats alone."""

    def x(*shape):
        return Arg(d, shape)

    for name in ("aten.mm.default", "aten.matmul.default"):
        yield (name, x(3, 5), x(5, 2)), {}
    yield ("aten.bmm.default", x(2, 3, 4), x(2, 4, 2)), {}
    yield ("aten.mv.default", x(3, 4), x(4)), {}
    yield ("aten.dot.default", x(4), x(4)), {}
    yield ("aten.linear.default", x(3, 70), x(2, 70), x(2)), {}
    yield ("aten.linear.default", x(3, 4), x(2, 4)), {}
    yield ("aten.linear.default", x(4), x(2, 4), x(2)), {}
    for options in ({}, {"alpha": 0.3, "beta": 2.0}):
        yield ("aten.addmm.default", x(2), x(3, 5), x(5, 2)), options
        yield ("aten.baddbmm.default", x(2, 3, 2), x(2, 3, 4), x(2, 4, 2)), options
    for name in ("aten._softmax.default", "aten._log_softmax.default"):
        yield (name, x(3, 5), -1, False), {}
        yield (name, x(3, 5), 0, False), {}
    yield ("aten.softmax.int", x(3, 5), -1), {}
    yield ("aten._safe_softmax.default", x(3, 5), -1), {}
    q, mask = x(1, 1, 3, 2), Arg(torch.bool, (3, 3), True)
    yield ("aten.scaled_dot_product_attention.default", q, q, q), {}
    yield ("aten.scaled_dot_product_attention.default", q, q, q, mask), {}
    yield ("aten.scaled_dot_product_attention.default", q, q, q, Arg(torch.bool, (3, 3))), {}
    yield ("aten.scaled_dot_product_attention.default", q, q, q, None, 0.0, True), {}
    for eps in (1e-5, 5e-324, 0.0):
        for affine in ((x(6), x(6)), (None, None), (x(6), None)):
            yield ("aten.native_layer_norm.default", x(3, 6), [6], *affine, eps), {}
        for affine in ((x(4), x(4)), (None, None)):
            yield ("aten.native_group_norm.default", x(2, 4, 3), *affine, 2, 4, 3, 2, eps), {}
        for weight in (x(6), None):
            yield ("aten._fused_rms_norm.default", x(3, 6), [6], weight, eps), {}
    for affine in ((x(4), x(4)), (None, None), (x(4), None)):
        for shape in ((2, 4, 3), (3, 4)):
            for eps in (1e-5, 0.0):
                moments = (Arg(d, (4,)), Arg(d, (4,), positive=True))
                yield ("aten._native_batch_norm_legit_no_training.default", x(*shape), *affine, *moments, 0.1, eps), {}
    k = x(1, 2, 3, 2)
    yield ("aten.scaled_dot_product_attention.default", x(1, 4, 3, 2), k, k), {"enable_gqa": True}
    yield ("aten.scaled_dot_product_attention.default", x(1, 4, 3, 2), k, k, mask), {"enable_gqa": True}
    for more in ((), (2.0, 1.0), (0.3, 20), (1, 0)):
        yield ("aten.softplus.default", x(3, 4), *more), {}
    for more in ((), (0.7,), (1.6732632423543772, 1.0507009873554805), (2.0, 1.0, 0.5), (-0.5, 1, 1), (0.3, -2.0, 1)):
        yield ("aten.elu.default", x(3, 4), *more), {}
    for more in ((), (1, False), (1, True), (0, True)):
        yield ("aten.sort.default", x(3, 4), *more), {}
    for more in ((2,), (1, 1, False), (3, 1, True)):
        yield ("aten.topk.default", x(3, 4), *more), {}
    for name in ("aten.argmax.default", "aten.argmin.default"):
        for more in ((), (1,), (0, True), (None, True)):
            yield (name, x(3, 4), *more), {}
    for correction in (0, 1):
        yield ("aten.var.correction", x(3, 6), [1]), {"correction": correction}


def kind_of(x):
    """What kind of argument it is: truth values, whole numbers or floats, known or not, or a number and its type."""
    if isinstance(x, list | tuple):
        return tuple(kind_of(part) for part in x if isinstance(part, Arg | list))
    if not isinstance(x, Arg):
        return type(x)
    return x.known, family(x.dtype)


def family(dtype):
    return "truth" if dtype == torch.bool else "float" if dtype in FLOATS else "whole" if dtype in WHOLES else dtype


def attacked(most=None, draws=1, seed=0, names=None, device="cpu"):
    """Tries all calls, or of each kind of call the `most` that are drawn first."""
    attack, rng, tried = Attack(device), random.Random(seed), {}
    listed = [entry for entry in calls() if names is None or entry[0][0] in names]
    rng.shuffle(listed)
    torch.manual_seed(seed)
    with ctx.workprec(400), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in listed:
            kind = (args[0], *(kind_of(x) for x in args[1:4]), family(kwargs.get("dtype")))
            if most is None or tried.get(kind, 0) < most:
                is_run = attack.case(*args, draws=draws, seed=rng.random(), **kwargs)
                tried[kind] = tried.get(kind, 0) + is_run
            if len(attack.wrong) > 20:
                break
    return attack


def covered():
    return {(name, i) for name, found in COVERS.items() for i in range(len(found))}


def test_operations_are_what_torch_computes():
    attack = attacked(most=1)
    assert attack.wrong == []
    assert attack.compared > 20_000
    assert covered() - attack.reached == set()


@pytest.mark.deep
def test_operations_are_what_torch_computes_in_every_dtype():
    """Every rule in every dtype: pytest tests/engine/test_against_torch.py -m deep."""
    attack = attacked(seed=1)
    assert attack.wrong == []
    assert attack.compared > 200_000
    assert covered() - attack.reached == set()


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_operations_on_other_numbers(seed):
    assert attacked(most=8, draws=3, seed=seed + 10).wrong == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("seed", first(3, range(15)))
def test_operations_are_what_a_gpu_computes(seed):
    attack = attacked(most=8, draws=2, seed=seed + 20, device="cuda")
    assert attack.wrong == []
    assert attack.compared > 50_000


SOFTPLUS, ELU, SDPA = "aten.softplus.default", "aten.elu.default", "aten.scaled_dot_product_attention.default"
BATCH = "aten._native_batch_norm_legit_no_training.default"
CAST, SCALED = "aten._to_copy.default", "aten.mul.Tensor"
MODULES = (activations, order, dtypes, whole, linear, normalisation, pointwise, movement, registry, run)
FAULTS = [
    (dtypes, "fitted", "true | false)", "true | ~true)", CAST),
    (dtypes, "fitted", "is_sure & (low >= range_of.min) & (high <= range_of.max)", "is_sure", SCALED),
    (dtypes, "ends", "(x.value | ~x.known).long()", "x.value.long()", CAST),
    (dtypes, "truth", "(low > 0) | (high < 0) |", "(x.mid != 0) |", "aten.logical_not.default"),
    (dtypes, "as_float", "(high - low) / 2", "(high - low) / 4", CAST),
    (whole, "times", "fitted(low, high, dtype", "fitted(low, low, dtype", SCALED),
    (whole, "chosen", "torch.minimum(x, y)", "x", "aten.where.self"),
    (activations, "log_of_one_plus", "(x.radius + rounding)", "(0.5 * x.radius + rounding)", "aten.log1p.default"),
    (activations, "log1p", "ULPS * at.u", "0 * at.u", "aten.log1p.default"),
    (activations, "expm1", "(rad + 2 * U", "(0.5 * rad + 2 * U", "aten.expm1.default"),
    (activations, "softplus", "torch.where(may_be, fall, 0.0)", "0.0 * fall", SOFTPLUS),
    (activations, "softplus", "z - reach > threshold, z + reach >=", "z > threshold, z >=", SOFTPLUS),
    (activations, "softplus", "4 * ULPS * (value.abs() + r) + 2 * x.size", "0 * value", SOFTPLUS),
    (activations, "elu", "2 * ULPS * (", "0 * (", ELU),
    (order, "in_order", "x.radius.amax", "x.radius.amin", "aten.sort.default"),
    (
        order,
        "in_order",
        "(other_high < low).sum(-1), (other_low > high)",
        "(other_low > high).sum(-1), (other_high < low)",
        "aten.sort.default",
    ),
    (order, "interval_of", "first, last = ", "last, first = ", "aten.topk.default"),
    (order, "topk", "places.low.narrow(dim, 0, k)", "places.high.narrow(dim, 0, k)", "aten.topk.default"),
    (order, "place", "_, high, other_low, _", "high, _, other_low, _", "aten.argmax.default"),
    (order, "argmin", "-x.mid", "x.mid", "aten.argmin.default"),
    (normalisation, "batch_norm", "by_channel(shift, sides)", "by_channel(negated(Arithmetic(), shift), sides)", BATCH),
    (normalisation, "batch_norm", "(2 * ULPS + 8) * at.u * size", "0 * size", BATCH),
    (normalisation, "batch_norm", "at.checked(largest * ENLARGE, extra * ENLARGE)", "extra * ENLARGE", BATCH),
    (normalisation, "repeated", "// (heads // x.mid.shape[-3])", "% x.mid.shape[-3]", SDPA),
]


@contextlib.contextmanager
def everywhere(owner, function, right, wrong):
    """A fault planted in a function, and in each module of the engine that imported it, and in the table of rules."""
    before = getattr(owner, function)
    with planted(owner, function, right, wrong) as faulty, contextlib.ExitStack() as stack:
        for module in MODULES:
            if getattr(module, function, None) is before:
                stack.enter_context(mock.patch.object(module, function, faulty))
        for name, found in COVERS.items():
            new = [replace(cover, rule=faulty) if cover.rule is before else cover for cover in found]
            stack.enter_context(mock.patch.dict(COVERS, {name: new}))
        named = {name: faulty for name, rule in RULES.items() if rule is before}
        stack.enter_context(mock.patch.dict(RULES, named))
        yield


@pytest.mark.parametrize("owner, function, right, wrong, name", first(1, FAULTS))
def test_a_fault_in_an_operation_is_caught(owner, function, right, wrong, name):
    with everywhere(owner, function, right, wrong):
        assert any(attacked(draws=2, seed=seed, names=(name,)).wrong for seed in range(3))
