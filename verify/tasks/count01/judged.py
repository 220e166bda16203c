"""The door of the Count01 proofs: the module's own forward pass must be what uses its numbers."""

from __future__ import annotations

from constructions.count01 import Count01Transformer
from constructions.errors import BadInput
from verify.frame.judged import check_judged, unparametrized


def judged(model: Count01Transformer) -> Count01Transformer:
    """The model as the proofs read it, parametrized weights written out.

    Raises: BadInput for a module whose forward pass is not the class's own, or whose tensors do not fit together.
    """
    check_judged(model, Count01Transformer)
    d = model.E.shape[-1]
    heads, _, d_h = model.W_Q.shape
    classes = len(model.b_out)
    shapes: dict[str, tuple[int, ...]] = {"E": (8, d), "W_O": (heads, d_h, d), "W_out": (d, classes)}
    shapes |= {name: (heads, d, d_h) for name in ("W_Q", "W_K", "W_V")} | {"skip": ()}
    for name, shape in shapes.items():
        found = tuple(getattr(model, name).shape)
        if found != shape:
            raise BadInput(f"{name}: has shape {found}, must be {shape}. Load the weights anew.")
    return unparametrized(model)
