"""What comes after the attention: affine forms of atoms, and new atoms that are functions of such.

A linear operation keeps forms (`forms`). Everything else makes atoms of one kind, functions of one number or normalised
rows:

* leaky ReLU, |x|, clamps, and the larger or smaller of two are made of ReLUs: max(a, b) = b + max(a - b, 0);
* a product is a difference of squares, a b = ((s a + b / s)^2 - (s a - b / s)^2) / 4 for every s > 0. Both squares lie
  between lines that are apart by the square of their width: with s^2 the width of b over that of a, as far as some
  inputs show it, the product is bounded as by McCormick's planes. s is a power of two, so that it rounds nothing, and
  neither square is much larger than the product, whose rounding theirs would hide;
* a quotient is a product with a reciprocal;
* x times 1 / sqrt(mean of x^2 + eps), written out, is a row that is normalised, as the module of that name makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from verify.engine.balls import Ball
from verify.engine.dependence import arguments, options
from verify.engine.one_layer.forms import Form, add, divide, means, multiply, shifted, subtract, sums
from verify.engine.one_layer.lines import value

Node = torch.fx.Node
SAMPLES = 16  # inputs at which atoms are evaluated, to choose how a product is written
UNEVEN = 5  # by which power of two the larger of two squares may be beyond their product
NORM, RMS = "norm", "rms"
NORMS = (NORM, RMS)
OF_ONE = {
    "aten.relu.default": "relu",
    "aten.gelu.default": "gelu",
    "aten.silu.default": "silu",
    "aten.tanh.default": "tanh",
    "aten.sigmoid.default": "sigmoid",
    "aten.softplus.default": "softplus",
    "aten.elu.default": "elu",
    "aten.exp.default": "exp",
    "aten.sqrt.default": "sqrt",
    "aten.rsqrt.default": "rsqrt",
    "aten.reciprocal.default": "reciprocal",
}
BY_RELU = ("aten.abs.default", "aten.leaky_relu.default", "aten.clamp.default", "aten.hardtanh.default")
OF_TWO = ("aten.maximum.default", "aten.minimum.default", "aten.mul.Tensor", "aten.div.Tensor")
DEFAULTS = {"aten.softplus.default": (1, 20), "aten.elu.default": (1, 1, 1)}
POWERS = {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
POWER, VARIANCE = "aten.pow.Tensor_Scalar", "aten.var.correction"


def makes_atoms(node: Node, forms: list[Node]) -> bool:
    """Whether an operation on forms that is not linear is known here."""
    name, args = str(node.target), arguments(node)
    if options(node) and name != VARIANCE and not name.startswith("aten.gelu."):
        return False
    if name in OF_TWO:
        return True
    if forms != [args[0]]:
        return False
    if name in DEFAULTS:
        return all(x == default for x, default in zip(args[1:], DEFAULTS[name], strict=False))
    if name in ("aten.clamp.default", "aten.hardtanh.default"):
        ends = [end for end in args[1:3] if end is not None]
        return all(isinstance(end, int | float) for end in ends) and ends == sorted(ends)
    if name == POWER:
        return args[1] in POWERS
    return name in OF_ONE or name in BY_RELU or name == VARIANCE


class Atoms:
    """The atoms of one layer so far: where each comes from, the blocks that make them, and their values at some inputs.

    `columns` has for each atom its source, -1 for the attention or a block, and its place there.
    Shapes: `sampled` (SAMPLES, atoms).
    """

    def __init__(self) -> None:
        self.columns: list[tuple[int, int]] = []
        self.blocks: list[tuple[str, Form, float]] = []
        self.sampled = torch.zeros(SAMPLES, 0, dtype=torch.float64)

    @property
    def count(self) -> int:
        return len(self.columns)

    def add(self, source: int, found: Tensor) -> None:
        """Takes note of new atoms by their values at the samples."""
        first = sum(before == source for before, _ in self.columns)
        self.columns += [(source, first + i) for i in range(found.shape[1])]
        self.sampled = torch.cat([self.sampled, found], 1)

    def at_samples(self, form: Form) -> Tensor:
        """The numbers of a form at the samples: (SAMPLES, ...)."""
        mid = form.padded(1 + self.count).mid
        found: Tensor = mid[0] + torch.tensordot(self.sampled, mid[1:], 1)
        return found

    def of(self, function: str, form: Form, entries: Tensor, shape: list[int], eps: float = 0.0) -> Form:
        """New atoms: a function of some entries of a form, or all of them normalised; zero elsewhere."""
        given = Form(form.mid.flatten(1)[:, entries], form.rad.flatten(1)[:, entries])
        before, z = self.count, self.at_samples(given)
        self.blocks.append((function, given, eps))
        self.add(
            len(self.blocks) - 1,
            normalised(z, function, eps) if function in (NORM, RMS) else value(function, Ball(z)).mid,
        )
        return Form.of_atoms(shape, entries, before)

    def operation(self, node: Node, xs: list[Any], entries: Tensor, shape: list[int]) -> Form:
        """What an operation of `makes_atoms` gives at some entries of its result."""
        name = str(node.target)
        if name in OF_TWO:
            return self._of_two(name, xs, entries, shape)
        (x,), more = xs, arguments(node)[1:]
        if name == POWER:
            return self.of(POWERS[more[0]], x, entries, shape)
        if name == VARIANCE:
            return self._variance(node, x)
        if name in BY_RELU:
            return self._by_relu(name, x, more, entries, shape)
        is_tanh = options(node).get("approximate") == "tanh"
        return self.of(OF_ONE[name] + ("_tanh" if is_tanh else ""), x, entries, shape)

    def _by_relu(self, name: str, x: Form, more: Sequence[float | None], entries: Tensor, shape: list[int]) -> Form:
        def relu(z: Form) -> Form:
            return self.of("relu", z, entries, shape)

        if name == "aten.abs.default":
            return subtract(multiply(relu(x), 2.0), x)
        if name == "aten.leaky_relu.default":
            above = relu(x)
            return add(above, multiply(subtract(x, above), more[0] or 0.0 if more else 0.01))
        least, most = (*more, *(-1.0, 1.0)[len(more) :])[:2] if name == "aten.hardtanh.default" else (*more, None)[:2]
        # of x between the ends: least + max(x - least, 0) - max(x - most, 0)
        over = None if most is None else relu(subtract(x, most))
        found = x if least is None else add(relu(subtract(x, least)), least)
        return found if over is None else subtract(found, over)

    def _of_two(self, name: str, xs: list[Form | Ball | float], entries: Tensor, shape: list[int]) -> Form:
        x, y = (expanded(part, shape) for part in xs)
        if name == "aten.maximum.default":
            return add(y, self.of("relu", subtract(x, y), entries, shape))
        if name == "aten.minimum.default":
            return subtract(x, self.of("relu", subtract(x, y), entries, shape))
        if name == "aten.mul.Tensor":
            return self._product(x, y, entries, shape)
        inverse = self.of("reciprocal", y, entries, shape)
        return self._product(x, inverse, entries, shape)

    def _product(self, x: Form, y: Form, entries: Tensor, shape: list[int]) -> Form:
        """x y as a difference of squares; the square of a number alone, and a constant's multiple."""
        for form, other in ((x, y), (y, x)):
            if bool(form.is_zero[1:].all()):
                return multiply(other, Ball(form.mid[0], form.rad[0]))
        x, y = x.padded(1 + self.count), y.padded(1 + self.count)
        if torch.equal(x.mid, y.mid) and not bool(x.rad.any()) and not bool(y.rad.any()):
            return self.of("square", x, entries, shape)
        at = [self.at_samples(z).flatten(1)[:, entries] for z in (x, y)]
        by_width, by_size = (
            balance(*numbers) for numbers in ([z.amax(0) - z.amin(0) for z in at], [z.abs().amax(0) for z in at])
        )
        power = torch.maximum(by_size - UNEVEN, torch.minimum(by_width, by_size + UNEVEN))
        scale = torch.ones(int(torch.tensor(shape).prod()), dtype=torch.float64)
        scale[entries] = torch.exp2(power)
        s = scale.reshape(shape)
        a, b = multiply(x, Ball(s)), multiply(y, Ball(1 / s))
        squares = [self.of("square", z, entries, shape) for z in (add(a, b), subtract(a, b))]
        return multiply(subtract(*squares), 0.25)

    def _variance(self, node: Node, x: Form) -> Form:
        """The mean of squares of what is centred, for another divisor multiplied by a quotient."""
        dims, correction = arguments(node)[1], options(node).get("correction", 1)
        n = x.mid.ndim - 1
        axes = [d % n for d in (dims or range(n))]
        centred = subtract(x, means(x, axes, True))
        shape = list(x.mid.shape[1:])
        every = torch.arange(int(torch.tensor(shape).prod()))
        squares = self.of("square", centred, every, shape)
        count = int(torch.tensor([shape[d] for d in axes]).prod()) - (1 if correction is None else correction)
        return divide(sums(squares, axes, options(node).get("keepdim", False)), float(count))

    def norm(self, kind: str, x: Form, whole: Tensor, eps: float) -> Form:
        """Rows that are made of forms, normalised; whole says which rows of the last axis are."""
        shape = list(x.mid.shape[1:])
        width = shape[-1]
        mid = torch.zeros(1, *shape, dtype=torch.float64)
        for place in whole.flatten().nonzero().squeeze(1).tolist():
            rows = self.of(kind, x, place * width + torch.arange(width), shape, eps)
            mid = Form(mid, mid).padded(len(rows.mid)).mid + rows.mid  # rows have no entry in common
        return Form(mid, torch.zeros_like(mid))


def balance(x: Tensor, y: Tensor) -> Tensor:
    """The power of two that, multiplied to x and divided from y, makes them nearly equal."""
    return ((y / x).log2() / 2).round().nan_to_num(0.0, 0.0, 0.0).clamp(-200, 200)


def normalised(z: Tensor, kind: str, eps: float) -> Tensor:
    """Rows divided by the root of their mean square and eps, for NORM after their mean is subtracted; no bound."""
    z = z - z.mean(-1, keepdim=True) if kind == NORM else z
    return z / (z.square().mean(-1, keepdim=True) + eps).sqrt()


def expanded(x: Form | Ball | float, shape: list[int]) -> Form:
    """A form, or a constant as one, broadcast to a shape."""
    if not isinstance(x, Form):
        return shifted(
            Form.zeros(shape), x if isinstance(x, Ball) else Ball(torch.tensor(float(x), dtype=torch.float64))
        )
    return Form(*(part.reshape(len(part), *[1] * (len(shape) + 1 - part.ndim), *part.shape[1:]).expand(-1, *shape)
                  for part in (x.mid, x.rad)))  # fmt: skip


def is_last(node: Node, dims: object) -> bool:
    return isinstance(dims, list) and [d % node.meta["val"].ndim for d in dims] == [node.meta["val"].ndim - 1]


def mean_square(node: object) -> tuple[str, Node] | None:
    """What a node is the mean square of along the last axis: RMS and the numbers, or NORM and those before centring."""
    if not isinstance(node, Node):
        return None
    name, args = str(node.target), arguments(node)
    if name == VARIANCE:
        is_plain = options(node).get("correction", 1) == 0 and options(node).get("keepdim", False)
        return (NORM, args[0]) if is_plain and is_last(args[0], args[1]) else None
    if name != "aten.mean.dim" or len(args) < 3 or not args[2] or not is_last(args[0], args[1]):
        return None
    squares = args[0]
    is_power = str(squares.target) == POWER and arguments(squares)[1] == 2
    is_product = str(squares.target) == "aten.mul.Tensor" and arguments(squares)[0] is arguments(squares)[1]
    return (RMS, arguments(squares)[0]) if is_power or is_product else None


def root(node: object) -> tuple[str, Node, float, bool] | None:
    """The root of a mean square and eps, or 1 divided by it: as `mean_square`, eps, and whether it is 1 / root."""
    if not isinstance(node, Node):
        return None
    name, args = str(node.target), arguments(node)
    power = {"aten.sqrt.default": 0.5, "aten.rsqrt.default": -0.5}.get(name, args[1] if name == POWER else None)
    if power not in (0.5, -0.5) or not isinstance(args[0], Node):
        return None
    inner, eps = args[0], 0.0
    if str(inner.target).startswith("aten.add.") and not options(inner):
        numbers = [x for x in arguments(inner) if isinstance(x, int | float)]
        nodes = [x for x in arguments(inner) if isinstance(x, Node)]
        if len(numbers) != 1 or len(nodes) != 1:
            return None
        inner, eps = nodes[0], float(numbers[0])
    found = mean_square(inner)
    return None if found is None else (*found, eps, power < 0)


def written_norm(node: Node) -> tuple[str, Node, float] | None:
    """The kind of norm that a product or a quotient writes out, what it normalises, and eps."""
    name, args = str(node.target), arguments(node)
    if name not in ("aten.mul.Tensor", "aten.div.Tensor") or options(node):
        return None
    for x, r in (args, args[::-1]) if name == "aten.mul.Tensor" else (args,):
        found = root(r)
        if found is None or found[3] != (name == "aten.mul.Tensor"):
            continue
        kind, of, eps, _ = found
        if x is of and kind == RMS:
            return kind, of, eps
        if kind == NORM and is_centred(x, of):
            return kind, of, eps
    return None


def is_centred(x: object, of: Node) -> bool:
    """Whether a node is another less its mean along the last axis."""
    if not isinstance(x, Node) or not str(x.target).startswith("aten.sub.") or options(x) or arguments(x)[0] is not of:
        return False
    mean = arguments(x)[1]
    is_mean = isinstance(mean, Node) and str(mean.target) == "aten.mean.dim" and arguments(mean)[0] is of
    return is_mean and len(arguments(mean)) > 2 and bool(arguments(mean)[2]) and is_last(of, arguments(mean)[1])
