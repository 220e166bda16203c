"""The stored numbers of a model, exactly: what is judged is what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.arithmetic.stored import finite
from verify.frame.arguments import check_whole_number
from verify.frame.unmade import check_held
from verify.tasks.histogram.catalogue import MODELS

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from constructions.histogram_arrays import HistogramArrays

Array = NDArray[np.float64]
NAMES = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")


@dataclass(frozen=True)
class StoredModel:
    """The weights of a HistogramTransformer as exact float64 numbers, and the length L they are judged at.

    Shapes: as in HistogramTransformer; weights that the model does not have are None.
    """

    model: str
    T: int
    L: int
    d: int
    p: int
    classes: int
    first_count: int
    E: Array
    e_BOS: Array | None
    A: Array | None
    W_Q: Array | None
    W_K: Array | None
    W_1: Array
    b_1: Array
    W_2: Array
    b_2: Array

    @property
    def is_softmax(self) -> bool:
        return self.model.endswith("+sftm")

    @property
    def is_linear(self) -> bool:
        return self.A is not None

    def class_of(self, k: int) -> int:
        """The class that stands for the count k."""
        return k - self.first_count

    @classmethod
    def of(cls, module: HistogramTransformer, L: int | None = None) -> StoredModel:
        """Reads the stored numbers off a module, to be judged at length L (by default the module's own).

        Raises: BadInput for weights that are not finite, or a length the model cannot be judged at.
        """

        from constructions.histogram import HistogramTransformer
        from verify.frame.judged import check_judged

        check_judged(module, HistogramTransformer, anywhere=True)
        check_flags(module)
        L = module.L if L is None else L
        check_whole_number("L", L)
        if L < 1:
            raise BadInput(f"L={L}: must be at least 1 (a sequence has at least one token)")
        if module.is_linear and module.L != L:
            raise BadInput(
                f"L={L}: this model mixes positions by a {module.L} x {module.L} matrix. Use --L {module.L}."
            )
        classes = module.b_2.shape[0]
        if classes + module.first_count <= L:
            raise BadInput(
                f"L={L}: this model has no class for counts above {classes + module.first_count - 1}. "
                f"Use --L {classes + module.first_count - 1} or less."
            )

        def read(name: str) -> Array | None:
            parameter = getattr(module, name, None)
            return None if parameter is None else finite(name, parameter)

        weights = {name: read(name) for name in NAMES}
        return cls(module.model, module.T, L, module.d, module.p, classes, module.first_count, **weights)  # type: ignore[arg-type]

    @classmethod
    def of_arrays(cls, arrays: HistogramArrays) -> StoredModel:
        """The numbers of a model that is given as arrays, at its own length.

        Raises: BadInput for weights that are not finite, or that the dtype does not hold.
        """
        check_held(arrays)
        stored: Mapping[str, np.ndarray] = arrays.weights
        weights = {name: finite(name, stored[name].astype(np.float64)) if name in stored else None for name in NAMES}
        sizes = (arrays.T, arrays.L, arrays.d, arrays.p, len(stored["b_2"]), arrays.first_count)
        return cls(arrays.model, *sizes, **weights)  # type: ignore[arg-type]


def check_flags(module: HistogramTransformer) -> None:
    """Raises BadInput where what a module says of itself is not what its tensors are: its forward pass reads both."""
    if module.model not in MODELS:
        raise BadInput(f"module.model={module.model!r}: must be one of {', '.join(MODELS)}. Build the module anew.")
    T, d = module.E.shape
    flags = {"is_softmax": module.model.endswith("+sftm"), "is_linear": module.model.startswith("lin")}
    flags["has_bos"] = module.model.startswith("bos")
    for name, due in (flags | {"T": T, "d": d, "p": module.W_2.shape[0]}).items():
        if getattr(module, name) != due:
            raise BadInput(
                f"module.{name}={getattr(module, name)!r}: a {module.model} with these tensors has {name}={due}. "
                "Build the module anew, and load the weights into it."
            )
    shapes = {"E": (T, d), "W_1": (d, module.p), "b_1": (module.p,), "W_2": (module.p, len(module.b_2))}
    mixing: dict[str, tuple[int, ...]] = {"W_Q": (d, d), "W_K": (d, d)}
    shapes |= {"A": (module.L, module.L)} if module.is_linear else mixing
    shapes |= {"e_BOS": (d,)} if module.has_bos else {}
    for name, shape in shapes.items():
        if tuple(getattr(module, name).shape) != shape:
            raise BadInput(f"{name}: has shape {tuple(getattr(module, name).shape)}, must be {shape}. Load it anew.")
