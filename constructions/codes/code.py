"""A code, and the readings of its neurons that say whether it counts: arrays, or tensors while it is searched.

The neuron of token t reads, up to a constant, minus R_t(k, s) when k slots hold t and the other L - k hold s:

* lin:       R = (L - k) D_ts with D_ts = V_tt - V_st, V = E W_1 (token s, neuron t);
* dot:       R = (L - k) D_ts with D_ts = G_tt V_tt - G_ts V_st, G = E X E^T the scores (query t, key s);
* dot+sftm:  R = (L - k) w_ts D_ts / (k + (L - k) w_ts) with w_ts = e^(G_ts - G_tt), D_ts = V_tt - V_st.

All multisets lie between two such inputs (the vertices), so after scaling each neuron the count is readable
exactly when max R(k + 1) < min R(k) over all t and s for every k. That gap, in logarithms, is what is
maximised, together with the condition that the neurons of all other tokens stay off.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from constructions.model_arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

    Numbers = TypeVar("Numbers", Tensor, Array)

FAR = 1e9


@dataclass(frozen=True)
class Code:
    """Token embeddings E (T, d), scores X (d, d) with G = E X E^T, neurons W_1 (d, T), and the worst gap in log R."""

    model: str
    E: Array
    X: Array
    W_1: Array
    gap: float


def log_readings(model: str, E: Numbers, X: Numbers, W_1: Numbers, L: int) -> Numbers:
    """log R_t(k, s) for k = 1..L-1: (..., L-1, T, T-1), with a steep slope where D_ts is not positive.

    >>> E = np.eye(3)
    >>> np.exp(log_readings("lin", E, E, E, L=3)[..., 0, 0]).round(12).tolist()
    [2.0, 1.0]
    """
    T, on = E.shape[-2], _functions(E)
    k = on.arange(1, L, dtype=E.dtype)[:, None, None]
    V, G = (E @ W_1).mT, E @ X @ E.mT
    values = G * V if model == "dot" else V
    D = _others(_diagonal(values) - values, T)
    log_D = on.log(on.clip(D, 1e-6, None)) - on.clip(1e-6 - D, 0, None) * 1e3
    if model != "dot+sftm":
        result: Numbers = log_D[..., None, :, :] + on.log(L - k)
    else:
        a = _others(G - _diagonal(G), T)[..., None, :, :]
        result = log_D[..., None, :, :] + a - on.log(k / (L - k) + on.exp(a))
    return result


def others_upper(model: str, E: Numbers, X: Numbers, W_1: Numbers, L: int) -> Numbers:
    """For dot+sftm: the most that neuron i reads at a position holding t != i, over all sequences: (..., T, T).

    >>> E = np.eye(2)
    >>> others_upper("dot+sftm", E, E, E, L=2).shape
    (2, 2)
    """
    T, on = E.shape[-2], _functions(E)
    V, G = E @ W_1, E @ X @ E.mT
    w = on.exp(G - _diagonal(G))[..., None]
    # one slot holds t, the other L - 1 hold s: the mixture is extreme there
    mixed = (V[..., :, None, :] + (L - 1) * w * V[..., None, :, :]) / (1 + (L - 1) * w)
    result: Numbers = V + on.amax(mixed, -2) - FAR * on.eye(T, dtype=E.dtype)
    return result


def _functions(x: Numbers) -> ModuleType:
    """The module whose functions take such numbers: numpy, or torch, which is loaded where there are tensors."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def _diagonal(x: Numbers) -> Numbers:
    result: Numbers = _functions(x).diagonal(x, 0, -2, -1)[..., None]
    return result


def _others(x: Numbers, T: int) -> Numbers:
    """Leaves out the diagonal: (..., T, T) to (..., T, T - 1)."""
    off = _functions(x).eye(T) == 0
    result: Numbers = x[..., off].reshape(*x.shape[:-2], T, T - 1)
    return result
