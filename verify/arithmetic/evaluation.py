"""Every operation rounded to a format, in any one of many evaluation orders.

torch rounds the results of its kernels, which accumulate in a wider format and an order of their own. This is the
other half of the reading "dtype, any order": the evaluations that no kernel at hand happens to use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from constructions.model_arrays import ModelArrays
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.rounding import add, divide, exponential, flushed, multiply, multiply_add, rounded, two_product
from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M", bound="nn.Module | ModelArrays")
ORDERS = (
    "left to right",
    "right to left",
    "pairwise",
    "ascending",
    "descending",
    "small first",
    "large first",
    "random",
    "upwards",
    "downwards",
)
ELEMENTS = 1 << 21  # products held at a time: 16 MiB an array
Node = Array | tuple[Array, Array]  # a partial sum, or a product that is not yet taken
Tokens = NDArray[np.int64]
Way = tuple[str, bool, bool]


@dataclass(frozen=True)
class Evaluation:
    """One way to evaluate a model in a format: every operation rounded to nearest, ties to even.

    `accumulate` is the format inside a matrix product or a softmax, whose result is then rounded to `fmt`
    (default: fmt throughout). In tf32 the factors of matrix products have 11 bits, and all else is float32.
    `order` is that of every sum: sorted by value or by magnitude, in a random tree (one by `seed` for all sums of so
    many terms), or, term by term, as each rounding drives the sum furthest up or down. `fused` takes x y + z as one
    operation; `flush` turns subnormal results into zero; `reciprocal` multiplies by 1/sqrt(d) where others divide.
    """

    fmt: Format
    accumulate: Format | None = None
    order: str = "left to right"
    fused: bool = False
    flush: bool = False
    reciprocal: bool = False
    seed: int = 0

    @cached_property
    def stored(self) -> Format:
        """The format of the weights and of every tensor."""
        return FORMATS["float32"] if self.fmt.name == "tf32" else self.fmt

    @cached_property
    def inner(self) -> Format:
        """The format inside an operation on tensors."""
        return self.accumulate or self.stored

    def named(self, directions: Mapping[str, Array] | None = None, ways: Iterable[Way] = ()) -> dict[str, object]:
        """What a certificate says of it, so that it can be run again.

        The sums of a tensor with directions are, element by element, the least (below 0) or the largest that any way
        computes: an order, whether products are fused, and whether what is added is one more term.
        """
        signs = {
            name: "".join("-" if x < 0 else "+" for x in values.flat) for name, values in (directions or {}).items()
        }
        plain = {"order": self.order, "seed": self.seed, "fused": self.fused, "flush": self.flush}
        return plain | {
            "reciprocal": self.reciprocal,
            "directions": [[name, found] for name, found in signs.items() if found],
            "ways": [[*way] for way in ways],
        }

    def __call__(self, operation: Callable[..., Array], *x: Array) -> Array:
        """One operation in the inner format."""
        result = operation(*x, self.inner)
        return flushed(result, self.inner) if self.flush else result

    def tensor(self, x: Array) -> Array:
        """The result of an operation on tensors, as it is stored."""
        x = rounded(x, self.stored)
        return flushed(x, self.stored) if self.flush else x

    def product(self, x: Array, y: Array, term: Array | None = None) -> Array:
        """The matrix product x y: (..., i, k), (..., k, j) -> (..., i, j); a term (j) is one more of each of its sums.

        >>> tf32, one = Evaluation(FORMATS["tf32"]), np.ones((1, 1))
        >>> tf32.product(one, one + 2.0**-12, np.array([2.0**-12])).item() == 1 + 2.0**-12  # the term is no factor
        True
        """
        if self.fmt.name == "tf32":
            x, y = rounded(x, self.fmt), rounded(y, self.fmt)
        if term is not None:
            x = np.concatenate([x, np.ones_like(x[..., :1])], -1)
            y = np.concatenate([y, np.broadcast_to(term, y[..., :1, :].shape)], -2)
        return self.tensor(self.dot(x[..., :, None, :], np.swapaxes(y, -1, -2)[..., None, :, :]))

    def softmax(self, scores: Array) -> Array:
        exponentials = self(exponential, self(add, scores, -scores.max(-1, keepdims=True)))
        total = self.dot(exponentials, np.ones(1))[..., None]
        return self.tensor(self(divide, exponentials, total))

    def layer_norm(self, x: Array, weight: Array, bias: Array, eps: float) -> Array:
        """LayerNorm over the last axis in two passes, each sum in this evaluation's order."""
        d, ones = np.array(float(x.shape[-1])), np.ones(x.shape[-1])
        mean = self(divide, self.dot(x, ones), d)[..., None]
        centred = self(add, x, -mean)
        variance = self(divide, self.dot(centred, centred), d)[..., None]
        root = self(square_root, self(add, variance, np.array(eps)))
        return self.tensor(self(add, self(multiply, self(divide, centred, root), weight), bias))

    def dot(self, x: Array, y: Array) -> Array:
        """The sum of products over the last axis, in this evaluation's order."""
        x, y = np.broadcast_arrays(x, y)
        if self.order not in ("pairwise", "random"):  # in which what is added to what depends on the number of terms
            x, y = _terms(x, y)
        if self.order in ("upwards", "downwards"):
            return self._driven(x, y)
        if self.order not in ("left to right", "pairwise", "random"):
            places = self._places(multiply(x, y, self.inner))
            x, y = np.take_along_axis(x, places, -1), np.take_along_axis(y, places, -1)
        nodes: list[Node] = [(x[..., i], y[..., i]) for i in range(x.shape[-1])]
        draw = random.Random(self.seed)
        if self.order == "random":
            nodes.sort(key=lambda _: draw.random())
        if self.order == "pairwise":
            while len(nodes) > 1:
                nodes = [self._joined(nodes[i : i + 2]) for i in range(0, len(nodes), 2)]
        while len(nodes) > 1:
            i = int(draw.random() * (len(nodes) - 1)) if self.order == "random" else 0
            nodes[i : i + 2] = [self._joined(nodes[i : i + 2])]
        return self._value(nodes[0])

    def _places(self, products: Array) -> NDArray[np.intp]:
        if self.order == "right to left":
            return np.broadcast_to(np.arange(products.shape[-1])[::-1], products.shape)
        key = products if "cending" in self.order else np.abs(products)
        return np.argsort(-key if self.order in ("descending", "large first") else key, axis=-1, kind="stable")

    def _joined(self, pair: list[Node]) -> Node:
        """The sum of two neighbours (or one node alone)."""
        if len(pair) == 1:
            return pair[0]
        total, term = pair
        if self.fused and isinstance(term, tuple):
            return self(multiply_add, *term, self._value(total))
        return self(add, self._value(total), self._value(term))

    def _value(self, node: Node) -> Array:
        return self(multiply, *node) if isinstance(node, tuple) else node

    def _driven(self, x: Array, y: Array) -> Array:
        """From the largest term on, always the term whose rounding errs most in the wanted direction."""
        sign = 1.0 if self.order == "upwards" else -1.0
        products = self(multiply, x, y)
        first = np.abs(products).argmax(-1)[..., None]
        total = np.take_along_axis(products, first, -1)
        is_left = np.arange(x.shape[-1]) != first
        for _ in range(x.shape[-1] - 1):
            sums = self(multiply_add, x, y, total) if self.fused else self(add, products, total)
            error = (sums - total) - (x * y if self.fused else products)
            chosen = np.where(is_left, np.nan_to_num(sign * error), -np.inf).argmax(-1)[..., None]
            total = np.take_along_axis(sums, chosen, -1)
            is_left &= np.arange(x.shape[-1]) != chosen
        return total[..., 0]


def _terms(x: Array, y: Array) -> tuple[Array, Array]:
    """The factors (..., n) of products that are not zero, in their order, and zeros up to the same number of terms.

    To add a zero to a number of a format is exact, so that sums taken term by term are the same without it.
    """
    with np.errstate(all="ignore"):
        is_term = ((x != 0) & (y != 0)) | (x * y != 0)  # NaN from an infinite factor and a zero is a term
    most = max(1, int(is_term.sum(-1).max(initial=0)))
    if 2 * most > x.shape[-1]:
        return x, y
    places = np.argsort(~is_term, axis=-1, kind="stable")[..., :most]
    is_kept = np.take_along_axis(is_term, places, -1)
    return tuple(np.where(is_kept, np.take_along_axis(factor, places, -1), 0.0) for factor in (x, y))  # type: ignore[return-value]


def square_root(x: Array | float, fmt: Format) -> Array:
    """The root of each number, rounded once."""
    x = np.atleast_1d(np.asarray(x, dtype=float))
    root = np.sqrt(x)
    high, low = two_product(root, root)
    return rounded(root, fmt, (x - high) - low)


def rounded_model(model: M, fmt: Format) -> M:
    """The model with every stored number rounded once to the format, kept in float64."""
    stored = Evaluation(fmt).stored
    if isinstance(model, ModelArrays):
        weights = {name: np.asarray(rounded(W, stored)) for name, W in model.weights.items()}
        return replace(model, dtype="float64", weights=weights)
    import torch

    model = deepcopy(model).double()
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.from_numpy(np.asarray(rounded(W.numpy(), stored))))
    return model
