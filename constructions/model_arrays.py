"""A model before there is a module: its weights as arrays, which a proof reads without loading torch.

A builder computes its numbers in float64, and they are rounded to the asked dtype once, here, as torch's cast rounds
them. The module is made where something asks for what only a module has: a forward pass, a state dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from importlib import import_module
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from constructions.array_parts import in_parts
from constructions.errors import BadInput

if TYPE_CHECKING:
    import torch
    from torch import nn

Array = NDArray[np.float64]
P = ParamSpec("P")
M = TypeVar("M", bound="nn.Module")
LARGEST = {
    "float64": float(np.finfo(np.float64).max),
    "float32": float(np.finfo(np.float32).max),
    "bfloat16": float((2 - 2.0**-7) * 2.0**127),
    "float16": float(np.finfo(np.float16).max),
}
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # round-offs


class LayerArrays(SimpleNamespace):
    """The weights of one layer, by their names."""


@dataclass(frozen=True)
class ModelArrays:
    """The weights of a module that is not made yet, by their names in its state dict: float64, of numbers of the dtype.

    `made_by` names the module's class, or a method of it that makes a zero one, `arguments` are what it is made with.
    Weights, those of a layer under `blocks`, `arguments` and `facts`, what the class says of a module, are attributes;
    any other attribute is the module's.

    >>> from constructions.parity_arrays import sawtooth
    >>> model = sawtooth(T=2, L=2)
    >>> model.d, model.b_1.tolist(), type(model.module).__name__
    (3, [-2.0], 'ParityTransformer')
    """

    made_by: str
    dtype: str
    arguments: Mapping[str, Any]
    weights: Mapping[str, Array]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def zeros(
        cls, made_by: str, dtype: str, arguments: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], **facts: Any
    ) -> ModelArrays:
        """A zero model for a builder to write its numbers into, in float64."""
        return cls(made_by, dtype, arguments, {name: np.zeros(shape) for name, shape in shapes.items()}, facts)

    def rounded(self) -> ModelArrays:
        """The same model with its numbers rounded to the dtype; an array of such numbers stays the array it is."""

        def is_kept(value: Array) -> bool:
            return all(np.array_equal(rounded_to(self.dtype, part), part) for part in in_parts(value))

        weights = {name: x if is_kept(x) else rounded_to(self.dtype, x) for name, x in self.weights.items()}
        return replace(self, weights=weights)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("weights", "arguments", "facts"):  # while it is copied there are none
            raise AttributeError(name)
        for known in (self.weights, self.arguments, self.facts):
            if name in known:
                return known[name]
        return getattr(self.module, name)

    @cached_property
    def blocks(self) -> tuple[LayerArrays, ...]:
        """The weights of each layer."""
        parts: dict[str, dict[str, Array]] = {}
        for path, value in self.weights.items():
            if path.startswith("layers."):
                _, number, name = path.split(".")
                parts.setdefault(number, {})[name] = value
        return tuple(LayerArrays(**parts[number]) for number in sorted(parts, key=int))

    def parameters(self) -> Iterator[Array]:
        """Yields the weights."""
        yield from self.weights.values()

    def named_parameters(self) -> Iterator[tuple[str, Array]]:
        """Yields the names and the weights."""
        yield from self.weights.items()

    def made(self, kind: type[M]) -> M:
        """The module, which is of this class."""
        assert isinstance(self.module, kind)
        return self.module

    @cached_property
    def module(self) -> nn.Module:
        """The torch module with these weights."""
        import torch

        module, name = self.made_by.split(":")
        dtype: torch.dtype = getattr(torch, self.dtype)
        made: nn.Module = attrgetter(name)(import_module(module))(**self.arguments, dtype=dtype)
        with torch.no_grad():
            for path, parameter in made.named_parameters():
                parameter.copy_(torch.from_numpy(self.weights[path]))
        return made.eval()


def module_of(model: M | ModelArrays) -> M:
    """The module of a model, made of its arrays where it is not made yet: of the class that they name."""
    return cast("M", model.module) if isinstance(model, ModelArrays) else model


def modules(build: Callable[P, ModelArrays], kind: type[M]) -> Callable[P, M]:
    """The same builder, of modules: what `build` returns is made, and is of this class.

    >>> from constructions.recurrent.counters_arrays import ring
    >>> from constructions.recurrent.model import RecurrentModel
    >>> modules(ring, RecurrentModel)(m=3).hidden
    3
    """

    @wraps(build)
    def made(*args: P.args, **kwargs: P.kwargs) -> M:
        return build(*args, **kwargs).made(kind)

    return made


def name_of(dtype: torch.dtype | str) -> str:
    """The name of a dtype.

    >>> name_of("float32")
    'float32'
    """
    return str(dtype).removeprefix("torch.")


def rounded_to(dtype: str, values: NDArray[Any] | float) -> Array:
    """Rounds numbers to a dtype as torch's cast does: those of 16 bits by way of float32, of 8 bits by torch itself.

    >>> rounded_to("bfloat16", np.array([1 + 2.0**-9, 1 / 3])).tolist()
    [1.0, 0.333984375]
    """
    x = np.asarray(values, np.float64)
    if dtype not in LARGEST:
        import torch

        return np.asarray(torch.from_numpy(x).to(getattr(torch, dtype)).double().numpy())
    with np.errstate(over="ignore"):
        if dtype != "float64":
            x = x.astype(np.float32)
        if dtype == "float16":
            x = x.astype(np.float16)
        if dtype == "bfloat16":
            bits = np.array(x, order="C").view(np.uint32).astype(np.uint64)
            kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            x = np.where(np.isfinite(x), kept.astype(np.uint32).view(np.float32), x)
    return x.astype(np.float64)


def file_of(model: ModelArrays, buffers: Mapping[str, bool | float], metadata: dict[str, str] | None = None) -> bytes:
    """The safetensors file of the module's state dict: the weights in their dtype, and buffers of one number each.

    >>> from safetensors.torch import save
    >>> from constructions.parity_arrays import sawtooth
    >>> model = sawtooth(T=2, L=2, dtype="float32")
    >>> file_of(model, {}) == save(dict(model.module.state_dict()))
    True
    """
    if model.dtype == "bfloat16":  # which numpy does not have
        from safetensors.torch import save as save_tensors

        return save_tensors(dict(model.module.state_dict()), metadata=metadata)
    from safetensors.numpy import save

    return save(
        {name: x.astype(model.dtype, order="C") for name, x in model.weights.items()}
        | {name: np.asarray(x) for name, x in buffers.items()},
        metadata=metadata,
    )


def check_held(values: NDArray[Any] | float, dtype: str, what: str) -> None:
    """Raises BadInput for numbers that the dtype does not hold."""
    if not np.isfinite(rounded_to(dtype, values)).all():
        raise BadInput(f"{what}, beyond the largest {dtype} {LARGEST[dtype]:g}. Use a wider --dtype.")
