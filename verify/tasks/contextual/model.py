"""What the proofs of contextual counting read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.model_arrays import module_of

if TYPE_CHECKING:
    from constructions.contextual.transformer import ContextualCountingTransformer
    from constructions.model_arrays import ModelArrays

    ContextualModel = ContextualCountingTransformer | ModelArrays


def bytes_of(model: ContextualModel) -> bytes:
    """The file of the model's module."""
    from constructions.contextual.transformer import as_bytes

    return as_bytes(module_of(model))
