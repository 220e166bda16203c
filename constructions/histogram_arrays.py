"""Histogram models as numpy arrays: built, and run, without loading torch.

The weights are those that the builders write into a HistogramTransformer, number by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from constructions.histogram_sizes import check_memory, check_sizes
from constructions.model_arrays import rounded_to
from constructions.readout_arrays import staircase

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer

Array = NDArray[np.floating[Any]]
NAMES = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")  # in the order of a module
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class HistogramArrays:
    """The weights of a HistogramTransformer, and what it says of itself.

    Shapes: as there; weights that the model does not have are left out. The numbers of bfloat16 are held in float32.

    >>> model = relation(model="dot", T=4, L=3)
    >>> model.predict([2, 0, 2])
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

        from constructions.histogram import DTYPES as TORCH_DTYPES
        from constructions.histogram import HistogramTransformer

        module = HistogramTransformer(
            self.model,
            T=self.T,
            L=self.L,
            d=self.d,
            p=self.p,
            classes=len(self.weights["b_2"]),
            first_count=self.first_count,
            dtype=TORCH_DTYPES[self.dtype],
        )
        return module.fill(**{name: torch.from_numpy(np.array(value)) for name, value in self.weights.items()})


def relation(
    *, model: str, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """dot, bos or bos+sftm that compares tokens, with standard directions: what relation_counting builds.

    Claim: A-4.2 for dot, A-4.1 for bos and, from T = 4 on, for bos+sftm.
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default T and 1), surplus is zero padding.
    Raises: BadInput when d < T or a size makes no sense, and for a model that is not built as arrays.

    >>> relation(model="bos", T=4, L=3, d=5).weights["E"].shape
    (4, 5)
    """
    d, p = T if d is None else d, 1 if p is None else p
    e = _orthonormal(model, T, L, d, p)
    if not has_relation(model, T):
        raise BadInput(f"model={model}, T={T}: has no relation as arrays. Use relation_counting's builder.")
    root = math.sqrt(d)
    weights: dict[str, NDArray[np.float64]]
    gamma = [float(k) for k in range(1, L + 1)]
    if model == "bos+sftm":
        direction, bias, gamma = e[-1], 0.0, [1 / (k + 1) for k in range(1, L + 1)]
        v = np.vstack([np.eye(T - 2), 0.0 - np.eye(2, T - 2)])
        scale = 2.0 ** math.ceil(math.log2(32.0 * math.sqrt(d)))
        scores = np.array([1.0] * (T - 2) + [-1.0, 0.0])
        weights = {"E": v @ e[:-2] + e[-2], "e_BOS": e[-1], "W_Q": scale * (e.T * scores) @ e, "W_K": e.T @ e}
    elif model == "bos":
        direction, bias = e.sum(0), -float(T + 1)
        weights = {"E": e, "e_BOS": direction, "W_Q": root * np.eye(d), "W_K": np.eye(d)}
    else:
        direction, bias, weights = e[-1], -1.0, _one_tag(e)
    return _stored(model, T, L, d, p, dtype, weights | _one_neuron(direction, bias, gamma, dtype))


def zero_bos(
    *, model: str, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """bos with e_BOS = 0, which has score 0 and value 0: exactly the dot model of `relation`.

    Claim: A-4.1alt (App. B.2.3, alternative proof).
    Shapes: see HistogramTransformer; d >= T and p >= 1 (by default T and 1), surplus is zero padding.
    Raises: BadInput when d < T or a size makes no sense, and for another model.

    >>> zero_bos(model="bos", T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    d, p = T if d is None else d, 1 if p is None else p
    e = _orthonormal(model, T, L, d, p)
    if model != "bos":
        raise BadInput(f"model={model}: only bos has a vector of BOS that may be 0. Use --model bos.")
    weights = (
        _one_tag(e) | {"e_BOS": np.zeros(d)} | _one_neuron(e[-1], -1.0, [float(k) for k in range(1, L + 1)], dtype)
    )
    return _stored(model, T, L, d, p, dtype, weights)


def _one_tag(e: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Tokens that all hold the last direction, and scores as if they did not: relation_counting.one_tag."""
    D = e.T @ e - e[:-1].sum(0)[:, None] * e[-1]
    return {"E": np.vstack([e[:-1] + e[-1], e[-1]]), "W_Q": math.sqrt(e.shape[1]) * D, "W_K": D}


def _one_neuron(
    direction: NDArray[np.float64], bias: float, gamma: Sequence[float], dtype: str
) -> dict[str, NDArray[np.float64]]:
    """One neuron on a direction, and a staircase of what it reads at each count."""
    slopes, intercepts = staircase(gamma, dtype)
    return {"W_1": direction[:, None], "b_1": np.array([bias]), "W_2": slopes[None], "b_2": intercepts}


def has_relation(model: str, T: int) -> bool:
    """Whether `relation` builds a model for so many tokens."""
    return model in ("dot", "bos") or (model == "bos+sftm" and T >= 4)


class Builder(Protocol):
    """Builds a histogram model as arrays."""

    def __call__(self, *, model: str, T: int, L: int, d: int | None, p: int | None, dtype: str) -> HistogramArrays:
        """The model of these sizes."""


def builder(construction: str, model: str, T: int, d: int | None) -> Builder | None:
    """What builds a construction as arrays at these sizes; None where only torch does.

    >>> builder("relation", "dot", 4, None) is relation, builder("relation", "dot", 4, 3)
    (True, None)
    """
    if d is not None and d < T:
        return None
    if construction == "relation":
        return relation if has_relation(model, T) else None
    return {"inventory": inventory, "zero-bos": zero_bos}.get(construction)


def inventory(
    *, model: str, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """Any model with a neuron for each token, and standard directions: what inventory_counting builds.

    Claim: A-4.3 for lin and lin+sftm, A-B.1 for dot+sftm, W-1 for the others.
    Shapes: see HistogramTransformer; d >= T and p >= T (by default equal), surplus is zero padding.
    Raises: BadInput when d < T or p < T or a size makes no sense.

    >>> inventory(model="lin+sftm", T=4, L=3).predict([2, 0, 2])
    [2, 1, 2]
    """
    d, p = T if d is None else d, T if p is None else p
    e = _orthonormal(model, T, L, d, p)
    if p < T:
        raise BadInput(
            f"p={p}: inventory counting needs p >= T (one neuron per token), got T={T}. Use --p {T} or more."
        )
    weights, gamma = _mixing(model, L, d)
    slopes, intercepts = staircase([gamma(k) for k in range(1, L + 1)], dtype)
    weights |= {"E": e, "W_1": e.T, "b_1": -np.ones(T), "W_2": np.tile(slopes, (T, 1)), "b_2": intercepts}
    return _stored(model, T, L, d, p, dtype, weights)


def _mixing(model: str, L: int, d: int) -> tuple[dict[str, NDArray[np.float64]], Callable[[int], float]]:
    """The weights that mix tokens, and what the own neuron then reads of the count."""
    if model == "lin":
        a = 2.0 ** -(L - 1).bit_length()
        return {"A": np.full((L, L), a)}, lambda k: a * k
    if model == "lin+sftm":
        return {"A": np.zeros((L, L))}, lambda k: k / L
    bos = {"e_BOS": np.zeros(d)} if model.startswith("bos") else {}
    if model.endswith("+sftm"):
        zero = np.zeros((d, d))
        return {**bos, "W_Q": zero, "W_K": zero}, lambda k: k / (L + len(bos))
    return {**bos, "W_Q": math.sqrt(d) * np.eye(d), "W_K": np.eye(d)}, lambda k: float(k)


def _orthonormal(model: str, T: int, L: int, d: int, p: int) -> NDArray[np.float64]:
    """The unit vectors of R^d for T tokens, where the sizes make sense."""
    check_sizes(model, T=T, L=L, d=d, p=p)
    check_memory(T * d + (L * L if model.startswith("lin") else 2 * d * d) + p * (d + L))
    if d < T:
        raise BadInput(
            f"d={d}: this construction needs d >= T (orthonormal tokens), got T={T}. "
            f"Use --d {T} or more, or --p {T}, which allows d < T."
        )
    return np.eye(T, d)


def _stored(
    model: str, T: int, L: int, d: int, p: int, dtype: str, weights: dict[str, NDArray[np.float64]]
) -> HistogramArrays:
    """The weights in a dtype, with zeros for neurons that are not used."""
    shapes = {"W_1": (d, p), "b_1": (p,), "W_2": (p, L)}
    held = "float32" if dtype == "bfloat16" else dtype
    padded = {name: _padded(weights[name], shapes.get(name, weights[name].shape)) for name in NAMES if name in weights}
    rounded = {name: rounded_to(dtype, value).astype(held) for name, value in padded.items()}
    return HistogramArrays(model, T, L, d, p, 1, dtype, rounded)


def _padded(value: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    out = np.zeros(shape)
    out[tuple(slice(0, n) for n in value.shape)] = value
    return out
