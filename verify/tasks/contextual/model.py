"""What the proofs of contextual counting read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constructions.contextual.transformer import ContextualCountingTransformer
    from constructions.model_arrays import ModelArrays

    ContextualModel = ContextualCountingTransformer | ModelArrays

MADE_BY = "constructions.contextual.transformer:ContextualCountingTransformer"


def module_of(model: ContextualModel) -> ContextualCountingTransformer:
    """The module, made of its arrays where it is not made yet."""
    from constructions import model_arrays
    from constructions.contextual.transformer import ContextualCountingTransformer

    module = model_arrays.module_of(model)
    assert isinstance(module, ContextualCountingTransformer)
    return module


def bytes_of(model: ContextualModel) -> bytes:
    """The file of the model's module."""
    from constructions.contextual.transformer import as_bytes

    return as_bytes(module_of(model))
