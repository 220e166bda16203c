"""The door of both additions: the forward passes of the module and of its layers must be the classes' own."""

from __future__ import annotations

from torch import nn

from constructions.adder.transformer import AdderTransformer, Layer
from verify.judged import check_judged, check_type


def check_adder(model: AdderTransformer) -> None:
    """Raises BadInput for a module, or a layer of it, whose forward pass is not its class's own."""
    check_type(model, AdderTransformer)
    layers: dict[str, type[nn.Module]] = {f"layers.{i}": Layer for i in range(len(model.layers))}
    check_judged(model, AdderTransformer, {"layers": nn.ModuleList, **layers})
