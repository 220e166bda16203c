"""Arrays of numbers as tensors: the same bits, or a refusal by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.errors import BadInput, shown

NAMES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
BFLOAT16 = "bfloat16"  # numpy has none; its bits are the upper half of a float32's


def tensor_of(array: np.ndarray[Any, Any], name: str, what: str) -> Tensor:
    """The tensor with the numbers of an array, in its own dtype.

    Raises: BadInput for a dtype that torch has not got.

    >>> tensor_of(np.array([1.5, -2.0], dtype=">f4"), "b_1", "weights='m.npz'")
    tensor([ 1.5000, -2.0000])
    """
    if array.dtype.name == BFLOAT16:
        return from_bytes(array.astype(array.dtype, order="C").tobytes(), BFLOAT16, array.shape, name, what)
    if array.dtype.name not in NAMES:
        also = " (bfloat16, whose name NumPy loses)" if array.dtype == np.dtype("V2") else ""
        raise BadInput(f"{what}: {name} has dtype {array.dtype}{also}, which is not read. Save it as float32.")
    native = array.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(array, dtype=native, order="C", copy=True))


def from_bytes(data: bytes | memoryview, dtype: str, shape: Sequence[int], name: str, what: str) -> Tensor:
    """The tensor whose numbers are these bytes, little end first.

    Raises: BadInput for another dtype, or a shape that the bytes do not fill.

    >>> from_bytes(bytes([0, 192]), "bfloat16", (1,), "b", "weights='m.gguf'")
    tensor([-2.], dtype=torch.bfloat16)
    """
    if dtype not in (*NAMES, BFLOAT16):
        raise BadInput(f"{what}: {name} has dtype {shown(dtype)}, which is not read. Save it as float32.")
    stored = np.dtype("<u2" if dtype == BFLOAT16 else dtype).newbyteorder("<")
    if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * stored.itemsize != len(data):
        raise BadInput(f"{what}: {name} has {len(data)} bytes, which are no {dtype} of shape {shown(list(shape))}.")
    array = np.frombuffer(data, dtype=stored).reshape(tuple(shape))
    if dtype != BFLOAT16:
        return tensor_of(array, name, what)
    return torch.from_numpy(array.astype(np.int16)).view(torch.bfloat16)
