"""What the proofs of Count01 read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.model_arrays import module_of

if TYPE_CHECKING:
    from constructions.count01 import Count01Transformer
    from constructions.model_arrays import ModelArrays

    Count01Model = Count01Transformer | ModelArrays


def bytes_of(model: Count01Model) -> bytes:
    """The file of the model's module."""
    from constructions.count01 import as_bytes

    return as_bytes(module_of(model))
