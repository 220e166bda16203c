"""Inventory counting on a code: one neuron per token in d < T dimensions, read out exactly where the code allows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.codes.search import Code, log_readings, others_upper
from constructions.errors import NotKnown
from constructions.histogram import HistogramTransformer
from constructions.histogram_sizes import CARRIER as CARRIER
from constructions.readout import centred_staircase


def on_code(model: str, code: Code, *, L: int, p: int | None = None, dtype: torch.dtype) -> HistogramTransformer:
    """The weights that count on a code: per neuron a scale and a bias that bring all tokens to the same thresholds.

    Claim: A-4.4 for codes of low coherence, W-2 for codes whose overlaps are even instead of small.
        Everything after the code is computed from the code as stored in the dtype.
    Shapes: see HistogramTransformer with p >= T.
    Raises: NotKnown when the readings of two counts overlap on this code, with the gap that is missing.

    >>> from constructions.codes.search import search
    >>> module = on_code("dot", search("dot", 6, 4, 3, steps=300), L=4, dtype=torch.float32)
    >>> module.predict(torch.tensor([[0, 5, 5, 0], [1, 2, 3, 4]])).tolist()
    [[2, 2, 2, 2], [1, 1, 1, 1]]
    """
    T, d = code.E.shape
    module = HistogramTransformer(model, T=T, L=L, d=d, p=T if p is None else p, dtype=dtype)
    module.fill(E=code.E, W_1=code.W_1)
    E, W_1 = (x.detach().double() for x in (module.E, module.W_1[:, :T]))
    X = _mix(module, code, E, W_1)
    top, scale, low, high, other = _readings(module, X, E, W_1)
    K = min(float((scale * (top - other)).min()), 1.25 * float(high[0]))
    is_apart = bool((high[1:] < low[:-1]).all()) and (L == 1 or float(high[1]) < K)  # false for NaN
    if not (code.gap > 0 and is_apart and 0 < K < math.inf):
        raise NotKnown(
            f"d={d}: no {model} code is known to count T={T} tokens at L={L} there; on the best one found the readings "
            f"of two counts overlap (gap about {code.gap:.3g} in log R, above zero is needed). Use a larger --d."
        )
    upper, lower = (K - low[:-1]).clamp(min=0), K - high[1:]  # of count k and of count k + 1
    ends = [(K - high).clamp(min=0).tolist(), (K - low).tolist()]
    slopes, intercepts = centred_staircase(((upper + lower) / 2).tolist(), ends, False, dtype)
    return module.fill(b_1=K / scale - top, W_2=scale[:, None] * slopes, b_2=intercepts)


def on_frame(model: str, v: Tensor, *, L: int, p: int | None = None, dtype: torch.dtype) -> HistogramTransformer:
    """Counts by inventory on unit vectors of low coherence M: the tokens, their scores and their neurons are all v.

    Claim: A-4.4 (App. C.2): M < 1/(2L-3) for lin and lin+sftm, M < 1/sqrt(L-1) for dot and bos.
    Shapes: v (T, d); see HistogramTransformer with p >= T.
    Raises: NotKnown when M is not below that.

    >>> module = on_frame("lin", torch.eye(4, dtype=torch.float64), L=3, dtype=torch.float32)
    >>> module.predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    T, d = v.shape
    M = float((v @ v.T)[~torch.eye(T, dtype=torch.bool)].abs().max()) if T > 1 else 0.0
    is_linear = CARRIER[model] == "lin"
    most = 1 / max(1, 2 * L - 3) if is_linear else 1 / math.sqrt(max(1, L - 1))
    formula = "1/(2 L - 3)" if is_linear else "1/sqrt(L - 1)"
    if not most > M:
        raise NotKnown(
            f"d={d}: the best vectors found in {d} dimensions have coherence about {M:.4g}, and {model} with p = T "
            f"needs less than {formula}, about {most:.4g}, on this construction. Use a larger --d, or --construction "
            "code."
        )
    code = Code(CARRIER[model], v, torch.eye(d, dtype=v.dtype), v.T, gap=1.0)
    return on_code(model, code, L=L, p=p, dtype=dtype)


def _mix(module: HistogramTransformer, code: Code, E: Tensor, W_1: Tensor) -> Tensor:
    """Writes the mixing weights and returns the scores' matrix X as stored, over sqrt(d)."""
    carrier, root = CARRIER[module.model], math.sqrt(module.d)
    if module.is_linear:
        if not module.is_softmax:
            module.fill(A=torch.full((module.L, module.L), 2.0 ** -(module.L - 1).bit_length()))  # at most 1/L
        return code.X
    X = code.X
    if carrier == "dot":
        X = X * _small(E @ W_1) / module.L / float((E @ X @ E.T).abs().max())
    module.fill(W_Q=root * X, W_K=torch.eye(module.d, dtype=torch.float64))
    return module.W_Q.detach().double() / root


def _small(V: Tensor) -> float:
    """A power of two by which mixing is scaled down, so that the residual alone keeps the other neurons off."""
    T = len(V)
    gap = V.diagonal() - (V - 1e9 * torch.eye(T, dtype=V.dtype)).amax(0)
    return 2.0 ** math.floor(math.log2(max(float(gap.min()), 1e-9) / (8 * float(V.abs().max()))))


def _readings(
    module: HistogramTransformer, X: Tensor, E: Tensor, W_1: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Per neuron the reading at count L and its scale; the scaled range of R per count (0 at L); the others' most."""
    L, T = module.L, module.T
    carrier = CARRIER[module.model]
    V, G = E @ W_1, E @ X @ E.T
    if carrier == "dot+sftm":
        unit, top = 1.0, 2 * V.diagonal()
        other = others_upper(carrier, E, X, W_1, L).amax(0)
    else:
        unit = 1.0 / L if module.model == "lin+sftm" else module.A[0, 0].item() if module.is_linear else 1.0
        values = G * V.T if carrier == "dot" else V
        top = V.diagonal() + L * unit * values.diagonal()
        most = unit * L * (V.amax(0) if carrier == "lin" else (G[:, :, None] * V[None]).amax((0, 1)))
        other = (V - 1e9 * torch.eye(T, dtype=V.dtype)).amax(0) + most.clamp(min=0)
    log_R = log_readings(carrier, E, X, W_1, L) + math.log(unit)
    if L == 1:
        return top, torch.ones_like(top), torch.zeros(1), torch.zeros(1), other
    scale = (-log_R.mean((0, 2))).exp()  # the normalisation whose gap was maximised
    R = log_R.exp() * scale[:, None]
    zero = torch.zeros(1, dtype=R.dtype)
    return top, scale, torch.cat([R.amin((1, 2)), zero]), torch.cat([R.amax((1, 2)), zero]), other
