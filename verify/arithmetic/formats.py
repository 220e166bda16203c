"""Binary floating point formats, and how far one rounded operation, or a sum of them, can be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from constructions.constant_bits.arithmetic import FixedPoint
from constructions.errors import BadInput, shown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Format:
    """A binary floating point format: significand bits with the hidden one, and the exponent range.

    Beyond `largest` a rounded number is infinite; in a format without infinity it `saturates`.

    >>> FORMATS["e4m3"].u, FORMATS["e4m3"].eta, FORMATS["e4m3"].tiny
    (0.0625, 0.001953125, 0.015625)
    """

    name: str
    p: int
    smallest_exponent: int
    largest: float
    saturates: bool = False

    @property
    def u(self) -> float:
        """The unit round-off: rounding to nearest is off by at most u relative to the exact result."""
        return 2.0**-self.p

    @property
    def tiny(self) -> float:
        """The smallest normal number: below it, flushing to zero is off by less than this."""
        return 2.0**self.smallest_exponent

    @property
    def eta(self) -> float:
        """The smallest subnormal."""
        return max(2.0 ** (self.smallest_exponent - self.p + 1), 5e-324)


def largest_below(power: float, p: int) -> float:
    """The largest number with p significand bits below a power of two."""
    return power * (1 - 2.0**-p)


FORMATS = {
    fmt.name: fmt
    for fmt in (
        Format("float64", 53, -1022, float(np.finfo(np.float64).max)),
        Format("float32", 24, -126, float(np.finfo(np.float32).max)),
        Format("tf32", 11, -126, largest_below(2.0**128, 11)),
        Format("bfloat16", 8, -126, largest_below(2.0**128, 8)),
        Format("float16", 11, -14, 65504.0),
        Format("e4m3", 4, -6, 448.0, saturates=True),
        Format("e5m2", 3, -14, 57344.0),
    )
}


# Formats whose every value is a float64: converting one to the other loses nothing.
EXACT_IN_FLOAT64: tuple[torch.dtype, ...]  # the dtypes whose numbers float64 holds

# Formats that torch computes in on a CPU.
KERNELS: dict[str, torch.dtype]
KERNEL_NAMES = ("float64", "float32", "bfloat16", "float16")


def __getattr__(name: str) -> object:
    """KERNELS and EXACT_IN_FLOAT64, which load torch where they are asked for."""
    if name not in ("KERNELS", "EXACT_IN_FLOAT64"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import torch

    kernels = {kernel: getattr(torch, kernel) for kernel in KERNEL_NAMES}
    return kernels if name == "KERNELS" else tuple(kernels.values())


def format_of(dtype: torch.dtype | str) -> Format:
    """The format of a torch dtype, or of its name.

    >>> import torch
    >>> format_of(torch.bfloat16).p
    8
    """
    name = str(dtype).removeprefix("torch.")
    return FORMATS[{"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(name, name)]


def format_of_bits(p: int) -> Format:
    """A format with p significand bits and the exponents of float32."""
    return Format(f"{p}-bit significand", p, -126, largest_below(2.0**128, p))


def format_named(name: str) -> Format:
    """A format by its name, or "p12" for 12 significand bits (the hidden one counted) with the exponents of float32.

    Raises: BadInput for any other name.

    >>> format_named("p12").u == 2.0**-12
    True
    """
    if name in FORMATS:
        return FORMATS[name]
    if name.startswith("p") and name[1:].isdecimal() and len(name) < 5 and 2 <= int(name[1:]) <= 53:
        return format_of_bits(int(name[1:]))
    raise BadInput(
        f"precision={shown(name)}: must be one of {', '.join(FORMATS)}, or pN for a significand of N bits, "
        "the hidden one counted, N = 2..53"
    )


def precision_named(name: str) -> Format | FixedPoint:
    """Parses --precision: a floating point format, or "s6" for constant-bit arithmetic of 6 bits either side.

    Raises: BadInput for any other name.

    >>> precision_named("s6"), precision_named("bfloat16").p
    (FixedPoint(s=6), 8)
    """
    if name.startswith("s") and name[1:].isdecimal() and len(name) < 5:
        return FixedPoint(int(name[1:]))
    try:
        return format_named(name)
    except BadInput as error:
        raise BadInput(f"{error}; or sN for constant-bit arithmetic, N = 1..12") from None
