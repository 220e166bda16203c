"""What the proofs of circuits read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constructions.circuit_simulation import CircuitTransformer
    from constructions.model_arrays import ModelArrays

    CircuitModel = CircuitTransformer | ModelArrays

MADE_BY = "constructions.circuit_simulation:CircuitTransformer"


def module_of(model: CircuitModel) -> CircuitTransformer:
    """The module, made of its arrays where it is not made yet."""
    from constructions import model_arrays
    from constructions.circuit_simulation import CircuitTransformer

    module = model_arrays.module_of(model)
    assert isinstance(module, CircuitTransformer)
    return module


def bytes_of(model: CircuitModel) -> bytes:
    """The file of the model's module."""
    from constructions.circuits.weights import as_bytes

    return as_bytes(module_of(model))
