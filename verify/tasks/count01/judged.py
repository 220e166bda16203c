"""The door of the Count01 proofs: the module's own forward pass must be what uses its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays
from verify.frame.unmade import check_judged
from verify.tasks.count01 import MODEL

if TYPE_CHECKING:
    from constructions.count01 import Count01Transformer

M = TypeVar("M", bound="Count01Transformer | ModelArrays")


def judged(model: M) -> M:
    """The model as the proofs read it, parametrized weights written out.

    Raises: BadInput for a module whose forward pass is not the class's own, or whose tensors do not fit together.
    """
    check_judged(model, MODEL)
    d = model.E.shape[-1]
    heads, _, d_h = model.W_Q.shape
    classes = len(model.b_out)
    shapes: dict[str, tuple[int, ...]] = {"E": (8, d), "W_O": (heads, d_h, d), "W_out": (d, classes)}
    shapes |= {name: (heads, d, d_h) for name in ("W_Q", "W_K", "W_V")}
    shapes |= {} if isinstance(model, ModelArrays) else {"skip": ()}
    for name, shape in shapes.items():
        found = tuple(getattr(model, name).shape)
        if found != shape:
            raise BadInput(f"{name}: has shape {found}, must be {shape}. Load the weights anew.")
    if isinstance(model, ModelArrays):
        return model
    from verify.frame.judged import unparametrized

    return unparametrized(model)
