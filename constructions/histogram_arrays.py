"""Histogram models as numpy arrays: built, and run, without loading torch; the torch module is made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constructions.histogram_sizes import check_memory, check_sizes
from constructions.model_arrays import rounded_to

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer

Array = NDArray[np.floating[Any]]
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class HistogramArrays:
    """The weights of a HistogramTransformer, and what it says of itself.

    Shapes: as there; weights that the model does not have are left out. Numbers of a dtype that numpy does not have,
        such as bfloat16, are held in float32.

    >>> from constructions.relation_counting_arrays import dot
    >>> dot(T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """

    model: str
    T: int
    L: int
    d: int
    p: int
    first_count: int
    dtype: str
    weights: Mapping[str, Array]

    @classmethod
    def zeros(cls, model: str, *, T: int, L: int, d: int, p: int, dtype: str) -> HistogramArrays:
        """A zero model, which `fill` writes weights into.

        Raises: BadInput for an unknown model or a size that makes no sense.

        >>> sorted(HistogramArrays.zeros("lin", T=3, L=4, d=3, p=1, dtype="float32").weights)
        ['A', 'E', 'W_1', 'W_2', 'b_1', 'b_2']
        """
        check_sizes(model, T=T, L=L, d=d, p=p)
        is_linear = model.startswith("lin")
        check_memory(T * d + (L * L if is_linear else 2 * d * d) + p * (d + L))
        shapes: dict[str, tuple[int, ...]] = {"E": (T, d)}
        shapes |= {"e_BOS": (d,)} if model.startswith("bos") else {}
        shapes |= {"A": (L, L)} if is_linear else {"W_Q": (d, d), "W_K": (d, d)}
        shapes |= {"W_1": (d, p), "b_1": (p,), "W_2": (p, L), "b_2": (L,)}
        held = dtype if dtype in ("float64", "float16") else "float32"
        return cls(model, T, L, d, p, 1, dtype, {name: np.zeros(shape, held) for name, shape in shapes.items()})

    def fill(self, **weights: Array) -> HistogramArrays:
        """Writes each named weight, rounded once to the dtype, into the leading block; the rest is padding."""
        for name, value in weights.items():
            block = tuple(slice(0, n) for n in value.shape)
            self.weights[name][block] = rounded_to(self.dtype, value)
        return self

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits (L, C) of one sequence, computed in the dtype of the arrays."""
        w = self.weights
        x = w["E"][list(tokens)]
        context = x if "e_BOS" not in w else np.vstack([w["e_BOS"], x])
        root = x.dtype.type(math.sqrt(self.d))
        scores = w["A"] if "A" in w else (x @ w["W_Q"]) @ (context @ w["W_K"]).T / root
        if self.model.endswith("+sftm"):
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores = scores / scores.sum(-1, keepdims=True)
        hidden = np.maximum((x + scores @ context) @ w["W_1"] + w["b_1"], x.dtype.type(0))
        result: Array = hidden @ w["W_2"] + w["b_2"]
        return result

    def predict(self, tokens: Sequence[int]) -> list[int]:
        """The predicted count at every position."""
        return [int(c) + self.first_count for c in self.logits(tokens).argmax(-1)]

    def module(self) -> HistogramTransformer:
        """The torch module with these weights."""
        import torch

        from constructions.histogram import HistogramTransformer

        module = HistogramTransformer(
            self.model,
            T=self.T,
            L=self.L,
            d=self.d,
            p=self.p,
            classes=len(self.weights["b_2"]),
            first_count=self.first_count,
            dtype=getattr(torch, self.dtype),
        )
        return module.fill(**{name: torch.from_numpy(np.array(value)) for name, value in self.weights.items()})
