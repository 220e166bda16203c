"""The door of models that are arrays: what is judged is the numbers, and the module that runs is made of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays, rounded_to

if TYPE_CHECKING:
    from torch import nn

    from constructions.histogram_arrays import HistogramArrays

FLOATS = (np.float64, np.float32, np.float16)  # whose numbers are all numbers of float64


def check_judged(model: nn.Module | ModelArrays, made_by: str) -> None:
    """Refuses a module as verify.frame.judged does; arrays have no forward pass of their own that could differ.

    Raises: BadInput for a module that is not what its class, `made_by`, says.

    >>> from constructions.parity_arrays import sawtooth
    >>> check_judged(sawtooth(T=2, L=2), "constructions.parity:ParityTransformer")
    """
    if isinstance(model, ModelArrays):
        assert model.made_by == made_by
        check_held(model)
        return
    from verify.frame import judged

    module, name = made_by.split(":")
    judged.check_judged(model, getattr(import_module(module), name))


def check_held(arrays: ModelArrays | HistogramArrays) -> None:
    """Refuses numbers that the model's dtype does not hold, since its module and its file would round them.

    Raises: BadInput for the first such array.

    >>> from constructions.parity_arrays import sawtooth
    >>> check_held(sawtooth(T=2, L=2))
    """
    for name, x in arrays.weights.items():
        if x.dtype not in FLOATS or not np.array_equal(rounded_to(arrays.dtype, x), x, equal_nan=True):
            raise BadInput(f"{name}: holds numbers that are not {arrays.dtype}'s. Round them to it first.")
