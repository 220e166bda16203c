"""Inventory counting on a code: one neuron per token in d < T dimensions, read out exactly where the code allows.

The weights as arrays.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.codes.code import Code, log_readings, others_upper
from constructions.errors import NotKnown
from constructions.histogram_arrays import HistogramArrays
from constructions.histogram_sizes import CARRIER as CARRIER
from constructions.model_arrays import Array
from constructions.readout_arrays import centred_staircase


def on_code(model: str, code: Code, *, L: int, p: int | None = None, dtype: str) -> HistogramArrays:
    """The weights that count on a code: per neuron a scale and a bias that bring all tokens to the same thresholds.

    Claim: A-4.4 for codes of low coherence, W-2 for codes whose overlaps are even instead of small.
        Everything after the code is computed from the code as stored in the dtype.
    Shapes: see HistogramTransformer with p >= T.
    Raises: NotKnown when the readings of two counts overlap on this code, with the gap that is missing.

    >>> from constructions.codes.search import search
    >>> built = on_code("dot", search("dot", 6, 4, 3, steps=300), L=4, dtype="float32")
    >>> built.predict([0, 5, 5, 0]), built.predict([1, 2, 3, 4])
    ([2, 2, 2, 2], [1, 1, 1, 1])
    """
    T, d = code.E.shape
    built = HistogramArrays.zeros(model, T=T, L=L, d=d, p=T if p is None else p, dtype=dtype)
    built.fill(E=code.E, W_1=code.W_1)
    E, W_1 = (x.astype(np.float64) for x in (built.weights["E"], built.weights["W_1"][:, :T]))
    X = _mix(built, code, E, W_1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is not finite is refused below
        top, scale, low, high, other = _readings(built, X, E, W_1)
    K = min(float((scale * (top - other)).min()), 1.25 * float(high[0]))
    is_apart = bool((high[1:] < low[:-1]).all()) and (L == 1 or float(high[1]) < K)  # false for NaN
    if not (code.gap > 0 and is_apart and 0 < K < math.inf):
        raise NotKnown(
            f"d={d}: no {model} code is known to count T={T} tokens at L={L} there; on the best one found the readings "
            f"of two counts overlap (gap about {code.gap:.3g} in log R, above zero is needed). Use a larger --d."
        )
    upper, lower = np.maximum(K - low[:-1], 0), K - high[1:]  # of count k and of count k + 1
    ends = [np.maximum(K - high, 0).tolist(), (K - low).tolist()]
    slopes, intercepts = centred_staircase(((upper + lower) / 2).tolist(), ends, False, dtype)
    return built.fill(b_1=K / scale - top, W_2=scale[:, None] * slopes, b_2=intercepts)


def on_frame(model: str, v: Array, *, L: int, p: int | None = None, dtype: str) -> HistogramArrays:
    """Counts by inventory on unit vectors of low coherence M: the tokens, their scores and their neurons are all v.

    Claim: A-4.4 (App. C.2): M < 1/(2L-3) for lin and lin+sftm, M < 1/sqrt(L-1) for dot and bos.
    Shapes: v (T, d); see HistogramTransformer with p >= T.
    Raises: NotKnown when M is not below that.

    >>> on_frame("lin", np.eye(4), L=3, dtype="float32").predict([2, 0, 2])
    [2, 1, 2]
    """
    T, d = v.shape
    M = float(np.abs(v @ v.T)[~np.eye(T, dtype=bool)].max()) if T > 1 else 0.0
    is_linear = CARRIER[model] == "lin"
    most = 1 / max(1, 2 * L - 3) if is_linear else 1 / math.sqrt(max(1, L - 1))
    formula = "1/(2 L - 3)" if is_linear else "1/sqrt(L - 1)"
    if not most > M:
        raise NotKnown(
            f"d={d}: the best vectors found in {d} dimensions have coherence about {M:.4g}, and {model} with p = T "
            f"needs less than {formula}, about {most:.4g}, on this construction. Use a larger --d, or --construction "
            "code."
        )
    code = Code(CARRIER[model], v, np.eye(d), v.T, gap=1.0)
    return on_code(model, code, L=L, p=p, dtype=dtype)


def _mix(model: HistogramArrays, code: Code, E: Array, W_1: Array) -> Array:
    """Writes the mixing weights and returns the scores' matrix X as stored, over sqrt(d)."""
    carrier, root = CARRIER[model.model], math.sqrt(model.d)
    if carrier == "lin":
        if model.model == "lin":
            model.fill(A=np.full((model.L, model.L), 2.0 ** -(model.L - 1).bit_length()))  # at most 1/L
        return code.X
    X = code.X
    if carrier == "dot":
        X = X * _small(E @ W_1) / model.L / float(np.abs(E @ X @ E.T).max())
    model.fill(W_Q=root * X, W_K=np.eye(model.d))
    return model.weights["W_Q"].astype(np.float64) / root


def _small(V: Array) -> float:
    """A power of two by which mixing is scaled down, so that the residual alone keeps the other neurons off."""
    T = len(V)
    gap = V.diagonal() - (V - 1e9 * np.eye(T)).max(0)
    return 2.0 ** math.floor(math.log2(max(float(gap.min()), 1e-9) / (8 * float(np.abs(V).max()))))


def _readings(model: HistogramArrays, X: Array, E: Array, W_1: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Per neuron the reading at count L and its scale; the scaled range of R per count (0 at L); the others' most."""
    L, T = model.L, model.T
    carrier = CARRIER[model.model]
    V, G = E @ W_1, E @ X @ E.T
    if carrier == "dot+sftm":
        unit, top = 1.0, 2 * V.diagonal()
        other = others_upper(carrier, E, X, W_1, L).max(0)
    else:
        unit = 1.0 / L if model.model == "lin+sftm" else float(model.weights["A"][0, 0]) if carrier == "lin" else 1.0
        values = G * V.T if carrier == "dot" else V
        top = V.diagonal() + L * unit * values.diagonal()
        most = unit * L * (V.max(0) if carrier == "lin" else (G[:, :, None] * V[None]).max((0, 1)))
        other = (V - 1e9 * np.eye(T)).max(0) + np.maximum(most, 0)
    log_R = log_readings(carrier, E, X, W_1, L) + math.log(unit)
    if L == 1:
        return top, np.ones_like(top), np.zeros(1), np.zeros(1), other
    scale = np.exp(-log_R.mean((0, 2)))  # the normalisation whose gap was maximised
    R = np.exp(log_R) * scale[:, None]
    zero = np.zeros(1)
    return top, scale, np.concatenate([R.min((1, 2)), zero]), np.concatenate([R.max((1, 2)), zero]), other
