"""What the proofs of Count01 read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.model_arrays import ModelArrays, file_of

if TYPE_CHECKING:
    from constructions.count01 import Count01Transformer

    Count01Model = Count01Transformer | ModelArrays


def bytes_of(model: Count01Model) -> bytes:
    """The file of the model's module."""
    if isinstance(model, ModelArrays):
        buffers = {"skip": model.has_skip} | ({"norm_eps": model.norm_eps} if model.has_norm else {})
        return file_of(model, buffers | ({"score_divisor": model.scale} if model.scale != 1 else {}))
    from constructions.count01 import as_bytes

    return as_bytes(model)
