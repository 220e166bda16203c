"""Readings: what "the model computes" means, parsed once from the command line and then carried as a type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructions.constant_bits.arithmetic import FixedPoint
from constructions.errors import BadInput, shown
from verify.arithmetic.formats import FORMATS, Format, precision_named

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Real:
    """The stored numbers, exact dyadic rationals, evaluated in real arithmetic."""

    name = "real"


@dataclass(frozen=True)
class Rounded:
    """Every operation rounded to `format`, in every order of every sum; sums in `accumulate` where it is given.

    `once` says that every result of an operation on tensors is rounded once, and never kept wider.
    """

    format: Format
    accumulate: Format | None = None
    once: bool = False

    @property
    def name(self) -> str:
        return "each result rounded once" if self.once else "dtype, any order"


@dataclass(frozen=True)
class ConstantBits:
    """Constant-bit arithmetic: s bits either side of the point, rounded after every operation, left to right."""

    s: int
    name = "bit-exact"

    def forward(self, module: nn.Module) -> Callable[[Tensor], Tensor]:
        """The module's forward pass in this arithmetic."""
        from constructions.constant_bits.run import constant_bit  # loads torch

        return constant_bit(module, self.s)


@dataclass(frozen=True)
class Kernel:
    """One torch kernel on this machine, as it runs."""

    name = "bit-exact"


Reading = Real | Rounded | ConstantBits | Kernel


def reading_of(precision: str | None, accumulate: str | None = None, rounding: str = "any") -> Reading:
    """The reading that --precision, --accumulate and --rounding name.

    Raises: BadInput for unknown names, an `accumulate` without a format to go with, or results rounded once without it.

    >>> reading_of(None), reading_of("real"), reading_of("s6")
    (Real(), Real(), ConstantBits(s=6))
    >>> reading_of("bfloat16", "float32").accumulate.p
    24
    """
    for name, given in {"precision": precision, "accumulate": accumulate}.items():
        if not isinstance(given, str | None):
            raise BadInput(f"{name}={shown(given)}: must be a name, such as float32")
    if rounding not in ("any", "once"):
        raise BadInput(f"rounding={rounding}: must be any or once")
    if rounding == "once" and (accumulate is None or precision not in ("bfloat16", "float16")):
        raise BadInput("--rounding once: goes with --precision bfloat16 or float16, and with --accumulate float32")
    if precision in (None, "real"):
        if accumulate is not None:
            raise BadInput(f"--accumulate {accumulate}: goes with --precision; name the dtype, or drop it")
        return Real()
    assert precision is not None
    if accumulate is not None and accumulate not in FORMATS:
        raise BadInput(f"accumulate={shown(accumulate)}: must be one of {', '.join(FORMATS)}")
    found = precision_named(precision)
    if isinstance(found, FixedPoint):
        if accumulate is not None:
            raise BadInput(
                f"--accumulate {accumulate}: has no effect with --precision {precision}; drop one of the two"
            )
        return ConstantBits(found.s)
    return Rounded(found, None if accumulate is None else FORMATS[accumulate], rounding == "once")


def precision_of(reading: Reading) -> str | None:
    """The --precision that names a reading; None for a kernel, which is chosen by --method.

    >>> precision_of(ConstantBits(6)), precision_of(reading_of("p12")), precision_of(Kernel())
    ('s6', 'p12', None)
    """
    if isinstance(reading, Rounded):
        return reading.format.name if reading.format.name in FORMATS else f"p{reading.format.p}"
    return f"s{reading.s}" if isinstance(reading, ConstantBits) else "real" if isinstance(reading, Real) else None


def options_of(options: Mapping[str, object]) -> list[str]:
    """The reading, method, budget and seed of a call as a command line has them.

    >>> options_of({"reading": reading_of("bfloat16", "float32"), "method": "certified", "budget": 5})
    ['--precision', 'bfloat16', '--accumulate', 'float32', '--method', 'certified', '--budget', '5']
    """
    words: list[str] = []
    reading = options.get("reading")
    if isinstance(reading, Reading) and precision_of(reading) is not None:
        words += ["--precision", str(precision_of(reading))]
    if isinstance(reading, Rounded) and reading.accumulate is not None:
        words += ["--accumulate", reading.accumulate.name]
    if isinstance(reading, Rounded) and reading.once:
        words += ["--rounding", "once"]
    for name in ("method", "budget", "seed"):
        if options.get(name) is not None:
            words += [f"--{name}", f"{options[name]:g}" if name == "budget" else str(options[name])]
    return words
