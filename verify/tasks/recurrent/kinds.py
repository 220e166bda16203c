"""Which kind of network a model is, module or arrays, and its stored numbers: torch is not loaded for arrays."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeGuard

from constructions.model_arrays import ModelArrays
from constructions.recurrent.arrays import CELLS, GATED, LINEAR, RESIDUAL, ROTATION
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import finite

if TYPE_CHECKING:
    from constructions.recurrent.gated import GatedModel
    from constructions.recurrent.linear import LinearModel, RotationModel
    from constructions.recurrent.model import RecurrentModel
    from constructions.recurrent.residual import ResidualModel

    OneReadout = RecurrentModel | LinearModel | RotationModel | GatedModel
    AnyModule = OneReadout | ResidualModel
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
    """Of which of the five classes it is, or is made; None for another one.

    >>> from constructions.recurrent.counters import cyclotomic
    >>> class_of(cyclotomic(m=3)) == LINEAR
    True
    """
    if isinstance(model, ModelArrays):
        names = [model.made_by.removesuffix(".zeros")]
    else:
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in type(model).__mro__]
    return next((name for name in (CELLS, LINEAR, ROTATION, GATED, RESIDUAL) if name in names), None)


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


def is_residual(model: AnyModel) -> TypeGuard[ResidualModel]:
    """Whether it is a ResidualModel: whole blocks."""
    return class_of(model) == RESIDUAL


def named(model: AnyModel) -> str:
    """What a certificate calls its kind."""
    return f"{model.kind} blocks" if is_residual(model) else model.kind
