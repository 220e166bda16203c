"""Settings of the running torch under which its float32 matrix products are no longer in float32.

A proof in float32 or tf32 speaks of evaluations that keep to docs/precision.md. A process that has lowered the
precision of matrix products does not evaluate so, and is told.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.arithmetic.formats import Format

# What a setting may be without breaking the reading of a format; float64 is never lowered, and narrower formats have
# products of their own.
ALLOWED = {"float32": ("highest", "ieee", "none"), "tf32": ("highest", "ieee", "none", "high", "tf32")}
KEPT = {
    "float32": "float32 matrix products are float32: torch.set_float32_matmul_precision is at 'highest'",
    "tf32": "float32 matrix products are float32 or tf32: torch.set_float32_matmul_precision is not at 'medium'",
}


class LoweredPrecision(UserWarning):
    """The running torch does not evaluate as a certificate assumes."""


def assumed(fmt: Format) -> tuple[str, ...]:
    """Lists what a proof in this format assumes of torch's settings.

    >>> from verify.arithmetic.formats import FORMATS
    >>> assumed(FORMATS["float64"]), len(assumed(FORMATS["float32"]))
    ((), 1)
    """
    return (KEPT[fmt.name],) if fmt.name in KEPT else ()


def warn_if_lowered(fmt: Format) -> None:
    """Warns where this process runs float32 matrix products with fewer bits than a proof in the format speaks of."""
    found = lowered(fmt)
    if found:
        warnings.warn(
            f"precision={fmt.name}: the certificate does not speak of runs in this process, where {found[0]}; "
            "call torch.set_float32_matmul_precision('highest')",
            LoweredPrecision,
            stacklevel=3,
        )


def lowered(fmt: Format) -> list[str]:
    """The settings that break the format's reading here, as Python shows them; none where torch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None or fmt.name not in ALLOWED:
        return []
    allowed = ALLOWED[fmt.name]
    found = [f"{name} is {value!r}" for name, value in _settings(torch) if value not in allowed]
    return found + [f"torch.autocast is on for {device}" for device in ("cpu", "cuda") if _is_autocast(torch, device)]


def _settings(torch: ModuleType) -> Iterator[tuple[str, str]]:
    """The one setting of old, and since torch 2.9 what holds for each kind of matrix product."""
    with suppress(RuntimeError):  # old and newer settings were mixed: the newer ones are what holds
        yield "torch.get_float32_matmul_precision()", torch.get_float32_matmul_precision()
    for backend in ("cuda", "mkldnn"):
        products = getattr(getattr(torch.backends, backend, None), "matmul", None)
        yield f"torch.backends.{backend}.matmul.fp32_precision", getattr(products, "fp32_precision", "none")


def _is_autocast(torch: ModuleType, device: str) -> bool:
    return bool(torch.is_autocast_enabled(device))
