"""Any module of the project run in constant-bit arithmetic, by rounding what each of torch's operations returns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from constructions.constant_bits.arithmetic import FixedPoint, Ints
from constructions.errors import BadInput

aten = torch.ops.aten
# These move numbers, or pick some: nothing is rounded. masked_fill's -inf saturates to -B_s, whose exponential is 0.
EXACT = {
    *(aten.view, aten._unsafe_view, aten.expand, aten.permute, aten.transpose, aten.t, aten.unsqueeze, aten.squeeze),
    *(aten.cat, aten.stack, aten.index, aten.select, aten.slice, aten.clone, aten.detach, aten.alias, aten.masked_fill),
    *(aten.relu, aten.neg, aten.abs, aten.maximum, aten.amax, aten.argmax, aten.where, aten.gather, aten.embedding),
    *(aten.gt, aten.lt, aten.ge, aten.le, aten.eq, aten.ne, aten.isnan, aten._to_copy, aten.full_like),
}


def constant_bit(module: nn.Module, s: int) -> Callable[[Tensor], Tensor]:
    """The module's forward pass in s-bit arithmetic: weights rounded once, then every operation.

    Sums, those of matrix products included, are taken from left to right. A softmax subtracts no maximum; where all
    its exponentials are zero it is 0/0, and what depends on it is NaN. The results are float64 numbers.
    Claim: E, Sec. 3.3.
    Raises: BadInput for a weight that is not finite, an s outside 1..12, or (when run) an operation without a rule.

    >>> from constructions.relation_counting import bos
    >>> constant_bit(bos(T=4, L=3), s=5)(torch.tensor([[2, 0, 2]])).argmax(-1) + 1
    tensor([[2, 1, 2]])
    """
    machine = ConstantBits(FixedPoint(s))
    stored = copy.deepcopy(module).double()
    for name, weight in stored.named_parameters():
        if not bool(weight.isfinite().all()):
            raise BadInput(f"{name}: holds a weight that is not a finite number")
        weight.data = machine.decoded(machine.encoded(weight.data))

    @torch.no_grad()
    def run(tokens: Tensor) -> Tensor:
        with machine:
            result: Tensor = stored(tokens)
        return result

    return run


class ConstantBits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context torch's operations on floating point tensors round to s bits, or are refused."""

    def __init__(self, bits: FixedPoint) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bits = bits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        is_floating = any(isinstance(x, Tensor) and x.is_floating_point() for x in args)
        if packet in EXACT or not is_floating:
            return func(*args, **kwargs)
        if packet not in RULES or kwargs:
            raise BadInput(f"{func}: constant-bit arithmetic has no rule for this operation of the module")
        result = self.decoded(RULES[packet](self.bits, *(self.operand(x) for x in args)))
        if not any(isinstance(x, Tensor) and bool(x.isnan().any()) for x in args):
            return result
        traced = (torch.where(x.isnan(), x, 1.0) if isinstance(x, Tensor) else x for x in args)
        return torch.where(func(*traced).isnan(), torch.nan, result)

    def operand(self, x: Any) -> Any:
        """A tensor, or a float constant, as integers; dimensions and flags as they are."""
        is_number = isinstance(x, float) or (isinstance(x, Tensor) and x.is_floating_point())
        return self.encoded(torch.as_tensor(x, dtype=torch.float64)) if is_number else x

    def encoded(self, x: Tensor) -> Ints:
        return self.bits.encode(x.detach().nan_to_num(0.0, torch.inf, -torch.inf).numpy())

    def decoded(self, j: Ints) -> Tensor:
        return torch.from_numpy(np.where(j == undefined(self.bits), np.nan, self.bits.decode(j)))


def undefined(bits: FixedPoint) -> int:
    """The integer that stands for 0/0: no result is as low.

    >>> bits = FixedPoint(2)
    >>> undefined(bits) < bits.encode(np.array([-99.0])).item()
    True
    """
    return int(np.iinfo(bits.dtype).min)


def dot(bits: FixedPoint, x: Ints, y: Ints) -> Ints:
    """The matrix product (..., i, k), (..., k, j) -> (..., i, j), each sum from left to right.

    >>> bits = FixedPoint(2)
    >>> bits.decode(dot(bits, bits.encode(np.array([[3.0, 3.0, -3.0]])), bits.encode(np.ones((3, 1))))).tolist()
    [[0.75]]
    """
    total = np.zeros((*x.shape[:-1], y.shape[-1]), bits.dtype)
    for k in range(x.shape[-1]):
        total = bits.add(total, bits.multiply(x[..., k, None], y[..., k, None, :]))
    return total


def total_of(bits: FixedPoint, x: Ints, dims: list[int], keepdim: bool = False) -> Ints:
    """The sum over one dimension, from left to right.

    >>> bits = FixedPoint(2)
    >>> bits.decode(total_of(bits, bits.encode(np.array([[3.0, 3.0, -3.0]])), [1])).tolist()
    [0.75]
    """
    (dim,) = dims
    total = np.zeros_like(x.take(0, dim))
    for term in np.moveaxis(x, dim, 0):
        total = bits.add(total, term)
    return np.expand_dims(total, dim) if keepdim else total


def softmax(bits: FixedPoint, scores: Ints, dim: int, half_to_float: bool) -> Ints:
    """[exp(x)]_s over their sum.

    >>> bits = FixedPoint(2)
    >>> bits.decode(softmax(bits, bits.encode(np.zeros(2)), 0, False)).tolist()
    [0.5, 0.5]
    """
    exponentials = bits.exp(scores)
    total = total_of(bits, exponentials, [dim], keepdim=True)
    return np.where(total == 0, undefined(bits), bits.divide(exponentials, np.maximum(total, 1)))


def divide(bits: FixedPoint, x: Ints, y: Ints) -> Ints:
    if (y <= 0).any():
        raise BadInput("constant-bit arithmetic divides only by positive numbers")
    return bits.divide(x, y)


RULES: dict[Any, Callable[..., Ints]] = {
    aten.add: lambda bits, x, y: bits.add(x, y),
    aten.sub: lambda bits, x, y: bits.add(x, -y),
    aten.mul: lambda bits, x, y: bits.multiply(x, y),
    aten.div: divide,
    aten.exp: lambda bits, x: bits.exp(x),
    aten.sum: total_of,
    aten.mm: dot,
    aten.bmm: dot,
    aten._softmax: softmax,
}
