"""The door of models that are arrays: what is judged is the numbers, and the module that runs is made of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from constructions.model_arrays import ModelArrays

if TYPE_CHECKING:
    from torch import nn


def check_judged(model: nn.Module | ModelArrays, made_by: str) -> None:
    """Refuses a module as verify.frame.judged does; arrays have no forward pass of their own that could differ.

    Raises: BadInput for a module that is not what its class, `made_by`, says.

    >>> from constructions.parity_arrays import sawtooth
    >>> check_judged(sawtooth(T=2, L=2), "constructions.parity:ParityTransformer")
    """
    if isinstance(model, ModelArrays):
        assert model.made_by == made_by
        return
    from verify.frame import judged

    module, name = made_by.split(":")
    judged.check_judged(model, getattr(import_module(module), name))
