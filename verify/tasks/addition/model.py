"""What the proofs of sums read: an adder's module, or its arrays, and the weights of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from constructions.model_arrays import module_of

if TYPE_CHECKING:
    from constructions.adder.transformer import AdderTransformer, Layer
    from constructions.model_arrays import LayerArrays, ModelArrays

    Adder = AdderTransformer | ModelArrays
    AdderLayer = Layer | LayerArrays


def weights_of(model: Adder, header: Mapping[str, object]) -> bytes:
    """The file of the model's module."""
    from constructions.adder.transformer import to_bytes

    return to_bytes(module_of(model), dict(header))
