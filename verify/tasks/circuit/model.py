"""What the proofs of circuits read: a module, or its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.model_arrays import module_of

if TYPE_CHECKING:
    from constructions.circuit_simulation import CircuitTransformer
    from constructions.model_arrays import ModelArrays

    CircuitModel = CircuitTransformer | ModelArrays


def bytes_of(model: CircuitModel) -> bytes:
    """The file of the model's module."""
    from constructions.circuits.weights import as_bytes

    return as_bytes(module_of(model))
