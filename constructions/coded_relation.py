"""Relation counting in d < T dimensions: one neuron, and a code that attention can tell apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.errors import BadInput, NotKnown
from constructions.histogram import HistogramTransformer
from constructions.readout import staircase_at


def softmax_code(v: Tensor, *, L: int, p: int = 1, dtype: torch.dtype) -> HistogramTransformer:
    """bos+sftm on any code of distinct unit vectors in R^m, with d = m + 1.

    e_t = (v_t, 1), e_BOS = (0, 2): the scores are kappa(<v_t, v_s> + 1), and 2 kappa for BOS as for the own token,
    so the last coordinate reads 2 + 1/(1 + k + sum n_s x_s) with x_s = e^(-kappa (1 - <v_t, v_s>)).

    Claim: W-3. kappa solves the separation inequality with half its slack left.
    Shapes: v (T, m); see HistogramTransformer.
    Raises: BadInput when two vectors coincide.

    >>> from constructions import token_codes
    >>> softmax_code(token_codes.circle(5), L=4, dtype=torch.float64).predict(torch.tensor([2, 0, 2, 2])).tolist()
    [3, 1, 3, 3]
    """
    T, m = v.shape
    d = m + 1
    module = HistogramTransformer("bos+sftm", T=T, L=L, d=d, p=p, dtype=dtype)
    one, zero = torch.ones(T, 1, dtype=v.dtype), torch.zeros(m, dtype=v.dtype)
    module.fill(E=torch.cat([v, one], 1), e_BOS=torch.cat([zero, torch.tensor([2.0], dtype=v.dtype)]))
    direction = torch.cat([zero, one[0]])
    return _sharpened(module, derived_kappa(v, L), direction, bias=-2.0)


def tagged_softmax_code(
    v: Tensor, *, L: int, p: int = 1, dtype: torch.dtype, kappa: float | None = None, alpha: float = 2.0**-7
) -> HistogramTransformer:
    """bos+sftm on a code of unit vectors in R^d', with the document's two extra dimensions: d = d' + 2.

    e_t = (v_t, alpha, 0), e_BOS = (0, 1/alpha, 1): the scores are kappa(<v_t, v_s> + alpha^2), and kappa for BOS.

    Claim: A-4.5 and A-rem (App. C.3.1, eq. 70-79); the printed kappa = 200 and 30000 and alpha = 0.01 can be given,
        by default kappa is derived.
    Shapes: v (T, d'); see HistogramTransformer.
    Raises: BadInput when two vectors coincide.

    >>> from constructions import token_codes
    >>> model = tagged_softmax_code(token_codes.binary(5), L=4, dtype=torch.float64)
    >>> model.d, model.predict(torch.tensor([2, 0, 2, 2])).tolist()
    (5, [3, 1, 3, 3])
    """
    T, m = v.shape
    module = HistogramTransformer("bos+sftm", T=T, L=L, d=m + 2, p=p, dtype=dtype)
    E, e_BOS = torch.zeros(T, m + 2, dtype=v.dtype), torch.zeros(m + 2, dtype=v.dtype)
    E[:, :m], E[:, m] = v, alpha
    e_BOS[m], e_BOS[m + 1] = 1 / alpha, 1.0
    direction = torch.zeros(m + 2, dtype=v.dtype)
    direction[m + 1] = 1.0
    module.fill(E=E, e_BOS=e_BOS)
    if kappa is None:
        return _sharpened(module, derived_kappa(v, L), direction, bias=0.0)
    return _sharpened(module, kappa, direction, bias=0.0, must_separate=False)


def derived_kappa(v: Tensor, L: int) -> float:
    """The inverse temperature at which half the separation is left: (L-1) e^(-kappa g) - (L-2) e^(-kappa G) = 1/2.

    g and G are the smallest and the largest 1 - <v_t, v_s>. Counts k and k + 1 stay apart when
    (L - k) x_max - (L - k - 1) x_min < 1, hardest for k = 1.
    Raises: BadInput when two vectors coincide.

    >>> from constructions import token_codes
    >>> round(derived_kappa(token_codes.circle(32), 10))
    150
    """
    T = len(v)
    gaps = 1 - (v @ v.T)[~torch.eye(T, dtype=torch.bool)]
    g, G = float(gaps.min()), float(gaps.max())
    if not g > 1e-12:
        raise BadInput("v: two tokens have the same vector, and no temperature tells them apart. Choose another code.")
    low, high = 0.0, math.log(2 * L) / g  # at `high` even (L - 1) e^(-kappa g) is below 1/2
    for _ in range(200):
        kappa = (low + high) / 2
        if (L - 1) * math.exp(-kappa * g) - (L - 2) * math.exp(-kappa * G) <= 0.5:
            high = kappa
        else:
            low = kappa
    return high


def coherent(kind: str, v: Tensor, *, L: int, p: int = 1, dtype: torch.dtype) -> HistogramTransformer:
    """dot or bos with p = 1 on unit vectors of low coherence, and one more dimension that the neuron reads.

    e_t = (v_t, alpha), read along (0, 1/alpha): the neuron reads
    1 + k (1 + alpha^2) + sum_s n_s (<v_t, v_s> + alpha^2).

    Claim: A-4.4 (App. C.2.2, eq. 45-54): M < 1/(2L-3) - (2L-4)/(2L-3) alpha^2; alpha takes half of what M leaves.
    Shapes: v (T, d - 1); see HistogramTransformer.
    Raises: NotKnown when M is not below 1/(2L - 3).

    >>> simplex = torch.linalg.svd(torch.eye(6, dtype=torch.float64) - 1 / 6).U[:, :5] * (6 / 5) ** 0.5
    >>> coherent("dot", simplex, L=3, dtype=torch.float64).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    T, m = v.shape
    M = float((v @ v.T)[~torch.eye(T, dtype=torch.bool)].abs().max())
    slack = 1 - max(1, 2 * L - 3) * M
    if not slack > 0:
        raise NotKnown(
            f"d={m + 1}: the best vectors found in {m} dimensions have coherence {M:.4g}, and {kind} with p = 1 needs "
            f"less than 1/(2 L - 3) = {1 / max(1, 2 * L - 3):.4g} on this construction. Use a larger --d, or --p {T}."
        )
    alpha = math.sqrt(slack / (2 * max(1, 2 * L - 4)))
    module = HistogramTransformer(kind, T=T, L=L, d=m + 1, p=p, dtype=dtype)
    root, identity = math.sqrt(m + 1), torch.eye(m + 1, dtype=torch.float64)
    E = torch.cat([v, torch.full((T, 1), alpha, dtype=v.dtype)], dim=1)
    module.fill(E=E, W_Q=root * identity, W_K=identity)
    # at least 1 + k - (L - k) M > 0 before the bias, so none is needed
    return read_one_neuron(module, identity[-1] / alpha, bias=0.0)


def signed_simplex(kind: str, *, T: int, L: int, p: int = 1, dtype: torch.dtype) -> HistogramTransformer:
    """dot or bos with p = 1 at d = T - 1: a simplex whose overlaps are +-1/(T-1) by a balanced sign.

    The tokens are the rows of an orthonormal basis of the complement of a balanced sign vector, scaled to unit norm;
    the vector of ones lies in that complement, so one direction reads 1 on every token.

    Claim: W-4: for even T and 2L - 3 < T - 1.
    Shapes: see HistogramTransformer with d = T - 1.
    Raises: NotKnown when T is odd or L too large.

    >>> signed_simplex("dot", T=6, L=3, dtype=torch.float64).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    if T % 2 or 2 * L - 3 >= T - 1:
        raise NotKnown(
            f"d={T - 1}: {kind} with p = 1 is known to count there for even T and 2 L - 3 < T - 1, got T={T}, L={L}. "
            f"Use --d {T} or more, or --p {T}."
        )
    sign = torch.ones(T, dtype=torch.float64)
    sign[1::2] = -1.0
    # Householder's reflection that maps sign/sqrt(T) to the first unit vector: its other columns span the complement
    w = sign / math.sqrt(T)
    w[0] += 1.0
    basis = (torch.eye(T, dtype=torch.float64) - 2 * torch.outer(w, w) / (w @ w))[:, 1:]
    E = basis * math.sqrt(T / (T - 1))
    module = HistogramTransformer(kind, T=T, L=L, d=T - 1, p=p, dtype=dtype)
    root = math.sqrt(T - 1)
    module.fill(E=E, W_Q=root * torch.eye(T - 1), W_K=torch.eye(T - 1))
    return read_one_neuron(module, basis.sum(0) * math.sqrt((T - 1) / T), bias=0.0)


def _sharpened(
    module: HistogramTransformer, kappa: float, direction: Tensor, bias: float, must_separate: bool = True
) -> HistogramTransformer:
    identity = torch.eye(module.d, dtype=torch.float64)
    module.fill(W_Q=kappa * math.sqrt(module.d) * identity, W_K=identity)
    return read_one_neuron(module, direction, bias, must_separate)


def read_one_neuron(
    module: HistogramTransformer, direction: Tensor, bias: float, must_separate: bool = True
) -> HistogramTransformer:
    """One neuron on the direction, and thresholds half-way between the ranges of neighbouring counts.

    The ranges come from the stored embeddings and scores: all multisets lie between the inputs with one other token.
    Raises: NotKnown when the ranges of two counts overlap, unless the weights are wanted all the same.
    """
    module.fill(W_1=direction[:, None], b_1=torch.tensor([bias], dtype=torch.float64))
    low, high = _gamma_ranges(module)
    is_falling = module.L > 1 and bool(low[-1] < low[0])
    upper, lower = (high[1:], low[:-1]) if is_falling else (high[:-1], low[1:])
    if must_separate and bool((upper >= lower).any()):
        raise NotKnown(
            f"d={module.d}: on this code the ranges of two counts overlap by {float((upper - lower).max()):.3g}. "
            "Use a larger --d or a smaller --L."
        )
    slopes, intercepts = staircase_at(((upper + lower) / 2).tolist(), is_falling, module.dtype)
    return module.fill(W_2=slopes[None], b_2=intercepts)


def _gamma_ranges(module: HistogramTransformer) -> tuple[Tensor, Tensor]:
    """The neuron's range over all tokens at each count 1..L: two vectors (L,)."""
    T, L = module.T, module.L
    weights = {name: value.detach().double() for name, value in module.named_parameters()}
    E, e_BOS = weights["E"], weights.get("e_BOS", torch.zeros(module.d, dtype=torch.float64))
    keys = torch.cat([E, e_BOS[None]]) @ weights["W_K"]
    scores = (E @ weights["W_Q"]) @ keys.T / math.sqrt(module.d)
    own = scores.diagonal()[:, None]
    weight = (scores - own).exp() if module.is_softmax else scores
    u, u_BOS = E @ weights["W_1"][:, 0], e_BOS @ weights["W_1"][:, 0]
    k = torch.arange(1, L + 1, dtype=torch.float64)[:, None, None]
    off = ~torch.eye(T, dtype=torch.bool)
    w_own = weight[:, :T].diagonal()[:, None]
    w_other = weight[:, :T]
    total = k * (w_own * u[:, None]) + (L - k) * (w_other * u) + weight[:, T:] * u_BOS
    if module.is_softmax:
        total = total / (k * w_own + (L - k) * w_other + weight[:, T:])
    gamma = (total + u[:, None] + weights["b_1"][0])[:, off]
    return gamma.amin(1), gamma.amax(1)
