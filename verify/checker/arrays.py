"""Tensors of a graph as plain lists: one flat list for each input of a batch, or one for all where they are the same.

Numbers are balls of python-flint for floats, integers for whole numbers, True and False for truth values. What a
forward does with its batch of one input is done for each input by itself: no input can depend on another.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple, NoReturn, TypeGuard

from flint import arb, arb_mat

from verify.checker.reading import NOT_CHECKABLE, Refusal, require

Axes = int | Sequence[int] | None
Number = arb | int  # floats, or whole numbers and truth values
Shape = tuple[int, ...]
FLOAT, WHOLE, TRUTH = KINDS = ("float", "whole number", "truth value")
MOST_NUMBERS = 1 << 24  # of one tensor


class Open(Exception):
    """The balls are too wide for a comparison that the forward itself makes."""


class Array(NamedTuple):
    """One tensor for each input: the same shape and kind, the numbers of each in order."""

    kind: str
    shape: Shape
    rows: Sequence[Sequence[Number]]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def as_floats(self) -> "Array":
        if self.kind == FLOAT:
            return self
        return Array(FLOAT, self.shape, [[*map(arb, row)] for row in self.rows])

    @property
    def balls(self) -> Sequence[Sequence[arb]]:
        """The numbers of a tensor of floats."""
        return self.rows if _are_balls(self.rows, self.kind) else refuse("a tensor of whole numbers as one of floats")

    @property
    def whole(self) -> Sequence[Sequence[int]]:
        """The numbers of a tensor of whole numbers or truth values."""
        return self.rows if _are_whole(self.rows, self.kind) else refuse("a tensor of floats as one of whole numbers")


def _are_balls(rows: Sequence[Sequence[Number]], kind: str) -> TypeGuard[Sequence[Sequence[arb]]]:
    return kind == FLOAT


def _are_whole(rows: Sequence[Sequence[Number]], kind: str) -> TypeGuard[Sequence[Sequence[int]]]:
    return kind != FLOAT


def of_numbers(value: object) -> Array:
    """A ball, or a number of Python's: the double that it is, a whole number or a truth value."""
    if isinstance(value, float | arb):
        return Array(FLOAT, (), [[arb(value)]])
    if not isinstance(value, int):
        raise Refusal(f"graph: {value!r} is no number", NOT_CHECKABLE)
    return Array(TRUTH if isinstance(value, bool) else WHOLE, (), [[value]])


def array(x: object) -> Array:
    return x if isinstance(x, Array) else of_numbers(x)


def tensor(x: object) -> Array:
    return x if isinstance(x, Array) else refuse("an operation on what is no tensor")


def axis_of(dim: int, rank: int) -> int:
    """An axis counted from 0. Raises: Refusal for one that is not there."""
    require(type(dim) is int and -max(rank, 1) <= dim < max(rank, 1), f"graph: there is no axis {dim}")
    return dim % max(rank, 1)


def flat(index: Sequence[int], shape: Shape) -> int:
    """The place of an entry among all numbers of a tensor in order."""
    place = 0
    for i, n in zip(index, shape, strict=True):
        require(0 <= i < n, "graph: a place is beyond its tensor")
        place = place * n + i
    return place


def check_size(shape: Sequence[int]) -> None:
    require(math.prod(shape) <= MOST_NUMBERS, "graph: a tensor is too large to be followed", NOT_CHECKABLE)


def indices(shape: Shape) -> Iterable[tuple[int, ...]]:
    check_size(shape)
    return product(*map(range, shape))


def picked(x: Array, shape: Shape, places: Sequence[int]) -> Array:
    """The numbers at these places, in another shape."""
    return Array(x.kind, shape, [[row[i] for i in places] for row in x.rows])


def moved(x: Array, shape: Shape, source: Callable[[tuple[int, ...]], Sequence[int]]) -> Array:
    """The tensor of another shape whose entry at an index is that of x at source(index)."""
    return picked(x, shape, [flat(source(index), x.shape) for index in indices(shape)])


def expanded(x: Array, shape: Shape) -> Array:
    """The tensor with axes of size 1, and missing first ones, repeated to a shape."""
    if x.shape == shape:
        return x
    more = len(shape) - len(x.shape)
    fits = more >= 0 and all(n in (1, m) for n, m in zip(x.shape, shape[max(more, 0) :], strict=True))
    require(fits, f"graph: {x.shape} does not broadcast to {shape}")
    check_size(shape)
    if x.size == 1:
        return Array(x.kind, shape, [[row[0]] * math.prod(shape) for row in x.rows])
    return moved(x, shape, lambda i: [j if n > 1 else 0 for j, n in zip(i[more:], x.shape, strict=True)])


def common(shapes: Iterable[Shape]) -> Shape:
    """The shape that tensors of these shapes broadcast to."""
    found: Shape = ()
    for shape in shapes:
        rank = max(len(found), len(shape))
        a, b = ((1,) * (rank - len(s)) + s for s in (found, shape))
        require(all(1 in (n, m) or n == m for n, m in zip(a, b, strict=True)), f"graph: {a} and {b} do not broadcast")
        found = tuple(m if n == 1 else n for n, m in zip(a, b, strict=True))
    return found


def together(*arrays: Array) -> list[Sequence[Sequence[Number]]]:
    """The rows of several tensors, as many of each."""
    most = max(len(x.rows) for x in arrays)
    return [x.rows if len(x.rows) == most else [x.rows[0]] * most for x in arrays]


def each(function: Callable[..., Number], *given: object, kind: str = FLOAT) -> Array:
    """A function of single numbers on tensors that broadcast; of balls, unless another kind is named."""
    arrays = [array(x).as_floats() if kind == FLOAT else array(x) for x in given]
    shape = common(x.shape for x in arrays)
    rows = together(*(expanded(x, shape) for x in arrays))
    return Array(kind, shape, [[*map(function, *numbers)] for numbers in zip(*rows, strict=True)])


def lines(x: Array, dim: int) -> Array:
    """The tensor with one axis last."""
    axis = axis_of(dim, len(x.shape))
    if not x.shape or axis == len(x.shape) - 1:
        return x
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    return permuted(x, order)


def permuted(x: Array, order: Sequence[int]) -> Array:
    require(sorted(order) == [*range(len(x.shape))], f"graph: {order} is no order of axes")
    back = [order.index(i) for i in range(len(order))]
    return moved(x, tuple(x.shape[i] for i in order), lambda index: [index[i] for i in back])


def along(function: Callable[..., Sequence[Number]], x: Array, dim: int, kind: str = FLOAT) -> Array:
    """A function from the numbers along an axis to as many others, or to one, which then is an axis of size 1."""
    axis, by_lines = axis_of(dim, len(x.shape)), lines(x, dim)
    n = by_lines.shape[-1] if by_lines.shape else 1
    require(n > 0, "graph: an axis has no numbers", NOT_CHECKABLE)
    rows = [[y for i in range(0, len(row), n) for y in function(row[i : i + n])] for row in by_lines.rows]
    left = len(rows[0]) * n // len(by_lines.rows[0]) if by_lines.size else n
    shape = (*by_lines.shape[:-1], left) if by_lines.shape else ()
    out, rank = Array(kind, shape, rows), len(shape)
    if not shape or axis == rank - 1:
        return out
    return permuted(out, [*range(axis), rank - 1, *range(axis, rank - 1)])


def product_of(x: Array, y: Array) -> Array:
    """The matrix product over the last two axes, those before broadcast; of whole numbers it would wrap."""
    require(x.kind == y.kind == FLOAT, "graph: a matrix product of whole numbers", NOT_CHECKABLE)
    require(len(x.shape) >= 2 <= len(y.shape) and x.shape[-1] == y.shape[-2], "graph: matrices do not fit")
    (m, k), n = x.shape[-2:], y.shape[-1]
    before = common([x.shape[:-2], y.shape[:-2]])
    require(m * n * k > 0, "graph: a matrix has no numbers", NOT_CHECKABLE)
    if len(y.rows) == 1 and y.size == k * n:  # one matrix for all: all rows at once
        every = [number for row in expanded(x, (*before, m, k)).rows for number in row]
        numbers = (arb_mat(len(every) // k, k, every) * arb_mat(k, n, [*y.rows[0]])).entries()
        size = math.prod(before) * m * n
        return Array(FLOAT, (*before, m, n), [numbers[i : i + size] for i in range(0, len(numbers), size)])
    rows = []
    for a, b in zip(*together(expanded(x, (*before, m, k)), expanded(y, (*before, k, n))), strict=True):
        left = (arb_mat(m, k, [*a[i : i + m * k]]) for i in range(0, len(a), m * k))
        right = (arb_mat(k, n, [*b[i : i + k * n]]) for i in range(0, len(b), k * n))
        rows.append([number for A, B in zip(left, right, strict=True) for number in (A * B).entries()])
    return Array(FLOAT, (*before, m, n), rows)


def reshaped(x: Array, shape: Sequence[int]) -> Array:
    """The same numbers in another shape, one of whose sizes may be -1."""
    require(all(type(n) is int for n in shape), f"graph: {shape} is no shape")
    known = math.prod(n for n in shape if n != -1)
    if -1 in shape:
        require(known > 0 and x.size % known == 0, f"graph: {x.shape} has no shape {shape}")
    sizes = tuple(x.size // known if n == -1 else n for n in shape)
    require(min(sizes, default=0) >= 0 and math.prod(sizes) == x.size, f"graph: {x.shape} has no shape {shape}")
    return Array(x.kind, sizes, x.rows)


def joined(arrays: Sequence[Array], dim: int) -> Array:
    """Tensors one after the other along an axis."""
    arrays = [x for x in arrays if x.shape != (0,)] or [*arrays[:1]]
    axis, first = axis_of(dim, len(arrays[0].shape)), arrays[0].shape
    kind = next(kind for kind in KINDS if any(x.kind == kind for x in arrays))
    arrays = [x.as_floats() if kind == FLOAT else x for x in arrays]
    fits = all(x.shape[:axis] + x.shape[axis + 1 :] == first[:axis] + first[axis + 1 :] for x in arrays)
    require(fits, "graph: the tensors that are joined do not fit")
    blocks = [x.size // math.prod(first[:axis]) if x.size else 0 for x in arrays]
    rows = []
    for numbers in zip(*together(*arrays), strict=True):
        row: list[Number] = []
        for outer in range(math.prod(first[:axis])):
            for part, block in zip(numbers, blocks, strict=True):
                row.extend(part[outer * block : (outer + 1) * block])
        rows.append(row)
    return Array(kind, (*first[:axis], sum(x.shape[axis] for x in arrays), *first[axis + 1 :]), rows)


def sure(x: arb, holds: bool, fails: bool) -> bool:
    """A truth about a ball. Raises: Open where it is not the same for all its numbers."""
    if not holds and not fails:
        raise Open
    return holds


def refuse(what: str) -> NoReturn:
    raise Refusal(f"graph: {what} is not followed", NOT_CHECKABLE)
