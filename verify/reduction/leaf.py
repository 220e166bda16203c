"""The argument at a leaf: one attention layer and ReLUs, on all bags of a domain at once.

A query attends to things. With its own token fixed, each thing has a weight w > 0 and a row v, and the stream is
x + N / D with N = sum of w v and D = sum of w (D = 1 where nothing is normalised). Both are sums of one entry of a
table for each thing, and so is D (x + N / D) a for any vector a. Such a sum is called a form.

Proof of `leaf`. (1) D > 0 and relu(D z) = D relu(z), so that D times the logits are the readout of the ReLUs of the
forms D z. (2) A form that is at least 0 on the domain is its own ReLU there, one that is at most 0 has the ReLU 0, and
any other's lies between 0 and its largest value. (3) The readout of forms and of numbers in a box is one more form
with a box as its constant, and its range on the domain is what the domain says. (4) The sign of a difference of two
logits is that of D times it.

What is left to a task: its things, its tables, its answers. A domain says where a form is least and greatest; the
numbers are balls, intervals, or anything else with `lower`, `upper`, sums and products that hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.slack import Array, Index

Mask = NDArray[np.bool_]


class Enclosed(Protocol):
    """Arrays of numbers with an error, as a dataclass of arrays of one shape: `Ball`, `Interval`."""

    @property
    def lower(self) -> Array: ...

    @property
    def upper(self) -> Array: ...

    @classmethod
    def between(cls, low: Array, high: Array) -> Self: ...

    def hull(self, axis: int) -> Self: ...

    def __getitem__(self, index: Index) -> Self: ...

    def __add__(self, other: Self) -> Self: ...

    def __mul__(self, other: Self) -> Self: ...

    def __matmul__(self, other: Self) -> Self: ...


N = TypeVar("N", bound=Enclosed)
F = TypeVar("F")


class Bags(Protocol[F, N]):
    """A domain of bags of things, and what forms (f of them) come to on all of them."""

    def range(self, forms: F) -> N:
        """Returns numbers that hold every value of each form on the domain."""

    def readout(self, forms: F, is_on: Mask, box: N, gains: N) -> F:
        """Returns the forms sum over i of gains_i times form i where it `is_on`, and any number of box i elsewhere."""

    def plus(self, forms: F, more: F) -> F: ...


@dataclass(frozen=True)
class Outputs(Generic[N]):
    """The range of each output, and how far each ReLU may be above 0 that may be on or off (0 for others)."""

    range: N
    tops: Array


def leaf(domain: Bags[F, N], neurons: F, gains: N, direct: F | None = None) -> Outputs[N]:
    """Bounds D times the outputs: readouts of ReLUs by `gains` (neurons, outputs), and the forms that pass them by.

    A NaN or infinite bound makes every test false, so that such a neuron may be on or off without a known end.
    """
    z = domain.range(neurons)
    is_on = z.lower >= 0
    tops = np.where(is_on | (z.upper <= 0), 0.0, z.upper)
    box = type(z).between(np.zeros_like(tops), tops)
    outputs = domain.readout(neurons, is_on, box, gains)
    return Outputs(domain.range(outputs if direct is None else domain.plus(outputs, direct)), tops)


def each(x: N, change: Callable[[Array], Array]) -> N:
    """The numbers with the same change of shape, or the same mask, made to all their arrays."""
    return type(x)(*map(change, vars(x).values()))


def chosen(mask: Mask, x: N, y: N) -> N:
    """x where the mask is true, y elsewhere."""
    return type(x)(*(np.where(mask, a, b) for a, b in zip(vars(x).values(), vars(y).values(), strict=True)))
