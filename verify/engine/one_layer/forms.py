"""Affine forms of atoms: tensors that are a constant and a column for each atom, each a tensor of the same shape.

A linear operation does to each column what it does to a value; a constant is added to the first column alone. Columns
that are exactly zero stay so. So the rules of the engine, with their proved radii, are the rules here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from verify.engine.balls import Arithmetic, Ball, Value
from verify.engine.dependence import move
from verify.engine.rules.linear import mean, plus, product, times, total, turned
from verify.engine.rules.movement import cat, stack
from verify.engine.rules.pointwise import div
from verify.engine.rules.registry import as_ball

AT = Arithmetic()


@dataclass(frozen=True)
class Form:
    """A tensor whose entries are affine forms of the first atoms: `mid` and `rad` have the shape (1 + atoms, ...)."""

    mid: Tensor
    rad: Tensor

    @classmethod
    def constant(cls, x: Ball) -> Form:
        """A form of no atom."""
        return cls(x.mid.unsqueeze(0), x.radius.unsqueeze(0))

    @classmethod
    def zeros(cls, shape: list[int]) -> Form:
        """A form that is zero."""
        mid = torch.zeros(1, *shape, dtype=torch.float64)
        return cls(mid, mid)

    @classmethod
    def of_atoms(cls, shape: list[int], entries: Tensor, before: int) -> Form:
        """New atoms, the first one after `before`, at some entries of a flat tensor; zero elsewhere."""
        size = int(torch.tensor(shape).prod())
        mid = torch.zeros(1 + before + len(entries), size, dtype=torch.float64)
        mid[1 + before + torch.arange(len(entries)), entries] = 1.0
        mid = mid.reshape(-1, *shape)
        return cls(mid, torch.zeros_like(mid))

    @property
    def is_zero(self) -> Tensor:
        """Which columns are exactly zero."""
        return ~((self.mid != 0) | (self.rad != 0)).reshape(len(self.mid), -1).any(1)

    def padded(self, columns: int) -> Form:
        """The form with columns of zeros for later atoms."""
        more = self.mid.new_zeros(columns - len(self.mid), *self.mid.shape[1:])
        return Form(torch.cat([self.mid, more]), torch.cat([self.rad, more]))


def each_column(operation: Callable[..., Ball], *forms: Form) -> Form:
    """A linear operation done to every column; columns that are zero in all forms stay zero."""
    columns = max(len(form.mid) for form in forms)
    forms = tuple(form.padded(columns) for form in forms)

    def one(*parts: Tensor) -> tuple[Tensor, Tensor]:
        found = operation(*(Ball(m, r) for m, r in zip(parts[::2], parts[1::2], strict=True)))
        return found.mid, found.radius

    mid, rad = torch.vmap(one)(*(part for form in forms for part in (form.mid, form.rad)))
    stays = torch.stack([form.is_zero for form in forms]).all(0)
    stays[0] = False  # a constant may be no number
    mid[stays], rad[stays] = 0.0, 0.0
    return Form(mid, rad)


def shifted(x: Form, bias: Ball) -> Form:
    """The form plus a constant."""
    return each_column(lambda a, b: plus(AT, a, b), x, Form.constant(bias))


def number(x: Value) -> Ball:
    """A constant: a ball, whole numbers, or a Python number."""
    return as_ball(AT, x, torch.zeros(()))


def as_form(x: Form | Value) -> Form:
    return x if isinstance(x, Form) else Form.constant(number(x))


def add(x: Form | Value, y: Form | Value) -> Form:
    return each_column(lambda a, b: plus(AT, a, b), as_form(x), as_form(y))


def negative(x: Form) -> Form:
    return Form(-x.mid, x.rad)


def subtract(x: Form | Value, y: Form | Value) -> Form:
    return add(as_form(x), negative(as_form(y)))


def multiply(x: Form | Value, y: Form | Value) -> Form:
    """A form times a constant."""
    form, factor = cast(tuple[Form, Value], (x, y) if isinstance(x, Form) else (y, x))
    return each_column(lambda column: times(AT, column, number(factor)), form)


def divide(x: Form, y: Value) -> Form:
    return each_column(lambda column: div(AT, column, number(y)), x)


def matmul(x: Form | Value, y: Form | Value) -> Form:
    """A form times a constant matrix, from either side."""
    if isinstance(x, Form):
        return each_column(lambda column: product(AT, column, cast(Ball, y)), x)
    return each_column(lambda column: product(AT, cast(Ball, x), column), cast(Form, y))


def linear(x: Form, weight: Ball, bias: Ball | None = None) -> Form:
    def by_weight(column: Ball) -> Ball:
        if column.mid.ndim > 1:
            return product(AT, column, turned(weight))
        found = product(AT, Ball(column.mid.unsqueeze(0), column.radius.unsqueeze(0)), turned(weight))
        return Ball(found.mid.squeeze(0), found.radius.squeeze(0))

    out = each_column(by_weight, x)
    return out if bias is None else shifted(out, bias)


def addmm(bias: Form | Value, x: Form | Value, y: Form | Value) -> Form:
    return add(bias, matmul(x, y))


def sums(x: Form, dims: Sequence[int], keepdim: bool = False, **options: object) -> Form:
    return each_column(lambda column: total(AT, column, dims, keepdim), x)


def means(x: Form, dims: Sequence[int], keepdim: bool = False, **options: object) -> Form:
    return each_column(lambda column: mean(AT, column, dims, keepdim), x)


def joined(xs: list[Form | Value], dim: int = 0) -> Form:
    return each_column(lambda *columns: cat(AT, list(columns), dim), *map(as_form, xs))


def stacked(xs: list[Form | Value], dim: int = 0) -> Form:
    return each_column(lambda *columns: stack(AT, list(columns), dim), *map(as_form, xs))


def moved(node: torch.fx.Node, x: Form) -> list[Form] | Form:
    """What an operation that moves numbers makes of a form."""
    mid, rad = (torch.vmap(lambda column: move(node, column))(part) for part in (x.mid, x.rad))
    if isinstance(mid, Tensor):
        return Form(mid, rad)
    return [Form(m, r) for m, r in zip(mid, rad, strict=True)]


LINEAR: dict[str, Callable[..., Form]] = {
    "aten.add.Tensor": add,
    "aten.add.Scalar": add,
    "aten.sub.Tensor": subtract,
    "aten.sub.Scalar": subtract,
    "aten.rsub.Scalar": lambda x, y: subtract(y, x),
    "aten.mul.Tensor": multiply,
    "aten.mul.Scalar": multiply,
    "aten.div.Tensor": divide,
    "aten.div.Scalar": divide,
    "aten.neg.default": negative,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.matmul.default": matmul,
    "aten.linear.default": linear,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.sum.dim_IntList": sums,
    "aten.mean.dim": means,
    "aten.cat.default": joined,
    "aten.stack.default": stacked,
}
ONE_FORM = ("aten.mul", "aten.mm", "aten.bmm", "aten.matmul")  # forms of either argument, but not of both
FIRST_FORM = ("aten.div", "aten.linear")  # forms of the first argument alone
