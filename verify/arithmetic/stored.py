"""Stored numbers, read off tensors exactly: every finite number of a format that torch computes in is a float64."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq_mat
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import rational
from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.object_]  # of Fractions


def numbers(x: Tensor | Array) -> Array:
    """The stored numbers as float64; an array holds them so."""
    if isinstance(x, np.ndarray):
        return x
    return np.asarray(x.detach().cpu().double().numpy())


def finite(name: str, x: Tensor | Array) -> Array:
    """The stored numbers as float64.

    Raises: BadInput for a dtype that float64 does not hold, and for NaN or infinity.
    """
    if not isinstance(x, np.ndarray):
        from verify.arithmetic.formats import EXACT_IN_FLOAT64  # loads torch, which models that are arrays do without

        if x.dtype not in EXACT_IN_FLOAT64:
            raise BadInput(f"{name}: dtype {x.dtype} is not supported. Use float64, float32, bfloat16 or float16.")
    values = numbers(x)
    if not np.isfinite(values).all():
        raise BadInput(f"{name}: holds NaN or infinity, and such weights compute nothing. Check the file.")
    return values


def check_finite(parameters: Iterable[tuple[str, Tensor | Array]]) -> None:
    """Raises BadInput for the first weight that is no finite number, or of a dtype that float64 does not hold."""
    for name, x in parameters:
        finite(name, x)


def fractions(x: Tensor | Array) -> Numbers:
    """The stored numbers as an array of fractions."""
    values = numbers(x)
    return np.array([Fraction(float(v)) for v in values.flat], dtype=object).reshape(values.shape)


def rationals(x: Tensor | Array) -> Numbers:
    """The stored numbers as an array of flint's rationals, which are added and multiplied several times as fast."""
    values = numbers(x)
    return np.array([rational(v) for v in values.ravel().tolist()], dtype=object).reshape(values.shape)


def matrix(x: Tensor | Array | Numbers) -> fmpq_mat:
    """The stored numbers of a matrix, or the fractions of an array, as a matrix of flint's rationals."""
    values = x if isinstance(x, np.ndarray) else numbers(x)
    rows, columns = values.shape
    return fmpq_mat(rows, columns, [rational(v) for v in values.flatten().tolist()])


def exact_product(A: Numbers, B: Numbers) -> Numbers:
    """The matrix product of arrays of fractions.

    >>> half = np.array([[Fraction(1, 2)]])
    >>> exact_product(half, half)
    array([[Fraction(1, 4)]], dtype=object)
    """
    found = [Fraction(int(v.p), int(v.q)) for v in (matrix(A) * matrix(B)).entries()]
    return np.array(found, dtype=object).reshape(A.shape[0], B.shape[1])
