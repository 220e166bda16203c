"""Which kind of network a model is, module or arrays, and its stored numbers: torch is not loaded for arrays."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from constructions.model_arrays import ModelArrays
from constructions.recurrent.arrays import CELLS, GATED, LINEAR, ROTATION
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import finite

if TYPE_CHECKING:
    from constructions.recurrent.gated import GatedModel
    from constructions.recurrent.linear import LinearModel, RotationModel
    from constructions.recurrent.model import RecurrentModel

    AnyModule = RecurrentModel | LinearModel | RotationModel | GatedModel
    AnyModel = AnyModule | ModelArrays


def stored(model: AnyModel) -> dict[str, Array]:
    """The stored numbers by their names in the state dict, as float64.

    Raises: BadInput for weights that are not finite, or of a dtype that float64 does not hold.

    >>> from constructions.recurrent import counters, counters_arrays
    >>> one, other = stored(counters.ring(m=2)), stored(counters_arrays.ring(m=2))
    >>> all((one[name] == other[name]).all() for name in one)
    True
    """
    weights = model.weights if isinstance(model, ModelArrays) else model.state_dict()
    return {name: finite(name, value) for name, value in weights.items()}


def module_of(model: AnyModel) -> AnyModule:
    """The module of a model, made of its arrays where it is not made yet.

    >>> from constructions.recurrent.counters_arrays import ring
    >>> module_of(ring(m=3)).hidden
    3
    """
    if not isinstance(model, ModelArrays):
        return model
    place, name = str(class_of(model)).split(":")
    kind: type[AnyModule] = getattr(import_module(place), name)
    return model.made(kind)


def class_of(model: AnyModel) -> str | None:
    """Of which of the four classes it is, or is made; None for another one.

    >>> from constructions.recurrent.counters import cyclotomic
    >>> class_of(cyclotomic(m=3)) == LINEAR
    True
    """
    if isinstance(model, ModelArrays):
        names = [model.made_by.removesuffix(".zeros")]
    else:
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in type(model).__mro__]
    return next((name for name in (CELLS, LINEAR, ROTATION, GATED) if name in names), None)


def has_cells(model: AnyModel) -> bool:
    """Whether it is a RecurrentModel: torch's RNN, GRU or LSTM."""
    return class_of(model) == CELLS


def is_linear(model: AnyModel) -> bool:
    """Whether it is a LinearModel."""
    return class_of(model) == LINEAR


def is_rotation(model: AnyModel) -> bool:
    """Whether it is a RotationModel."""
    return class_of(model) == ROTATION


def is_gated(model: AnyModel) -> bool:
    """Whether it is a GatedModel."""
    return class_of(model) == GATED
