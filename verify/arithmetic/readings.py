"""Readings: what "the model computes" means, parsed once from the command line and then carried as a type."""

from __future__ import annotations

from dataclasses import dataclass

from constructions.constant_bits.arithmetic import FixedPoint
from constructions.errors import BadInput
from verify.arithmetic.formats import FORMATS, Format, precision_named


@dataclass(frozen=True)
class Real:
    """The stored numbers, exact dyadic rationals, evaluated in real arithmetic."""

    name = "real"


@dataclass(frozen=True)
class Rounded:
    """Every operation rounded to `format`, in every order of every sum; sums in `accumulate` where it is given."""

    format: Format
    accumulate: Format | None = None
    name = "dtype, any order"


@dataclass(frozen=True)
class ConstantBits:
    """Constant-bit arithmetic: s bits either side of the point, rounded after every operation, left to right."""

    s: int
    name = "bit-exact"


@dataclass(frozen=True)
class Kernel:
    """One torch kernel on this machine, as it runs."""

    name = "bit-exact"


Reading = Real | Rounded | ConstantBits | Kernel


def reading_of(precision: str | None, accumulate: str | None = None) -> Reading:
    """The reading that --precision and --accumulate name.

    Raises: BadInput for unknown names, or an `accumulate` without a format to go with.

    >>> reading_of(None), reading_of("real"), reading_of("s6")
    (Real(), Real(), ConstantBits(s=6))
    >>> reading_of("bfloat16", "float32").accumulate.p
    24
    """
    if precision in (None, "real"):
        if accumulate is not None:
            raise BadInput(f"--accumulate {accumulate}: goes with --precision; name the dtype, or drop it")
        return Real()
    assert precision is not None
    found = precision_named(precision)
    if isinstance(found, FixedPoint):
        if accumulate is not None:
            raise BadInput(
                f"--accumulate {accumulate}: has no effect with --precision {precision}; drop one of the two"
            )
        return ConstantBits(found.s)
    return Rounded(found, None if accumulate is None else FORMATS[accumulate])
