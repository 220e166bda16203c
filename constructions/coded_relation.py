"""Relation counting in d < T dimensions: one neuron, and a code that attention can tell apart.

The weights as arrays.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.codes.tokens import hadamard
from constructions.errors import BadInput, NotKnown
from constructions.histogram_arrays import HistogramArrays
from constructions.model_arrays import Array
from constructions.readout_arrays import centred_staircase
from constructions.relation_counting_arrays import bos_apart, power_of_two


def softmax_code(
    v: Array,
    *,
    L: int,
    p: int = 1,
    dtype: str,
    kappa: float | None = None,
    norm: tuple[float, float] = (1.0, 1.0),
) -> HistogramArrays:
    """bos+sftm on any code of distinct vectors of one norm in R^m, with d = m + 1.

    e_t = (v_t, 1), e_BOS = 0: the scores are kappa (<v_t, v_s> - n), zero for BOS as for the own token, so the last
    coordinate reads 2 - 1/(1 + k + sum n_s x_s) with x_s = e^(-kappa (n - <v_t, v_s>)). The last coordinates of query
    and key are the factors of n = |v_t|^2, so that both can be numbers of few bits.

    Claim: W-3. By default kappa solves the separation inequality with half its slack left; a given one is the least.
    Shapes: v (T, m); see HistogramTransformer.
    Raises: BadInput when two vectors coincide.

    >>> from constructions.codes import tokens as token_codes
    >>> softmax_code(token_codes.circle(5), L=4, dtype="float64").predict([2, 0, 2, 2])
    [3, 1, 3, 3]
    """
    built, e = _blank(v, 1, L, p, dtype)
    query, key = np.ones(len(e)), np.ones(len(e))
    query[-1], key[-1] = -norm[0], norm[1]
    scale = _scale(v, L, built.d, kappa)
    built.fill(E=v @ e[:-1] + e[-1], e_BOS=0 * e[-1], W_Q=scale * np.diag(query), W_K=np.diag(key))
    return read_one_neuron(built, e[-1], bias=-1.0)


def tagged_softmax_code(v: Array, *, L: int, p: int = 1, dtype: str, kappa: float | None = None) -> HistogramArrays:
    """bos+sftm on a code of distinct vectors of one norm in R^d', with the document's two extra dimensions: d = d' + 2.

    e_t = (v_t, 1, 0), e_BOS = (0, 0, 1): the scores are kappa (<v_t, v_s> - |v_t|^2), and 0 for BOS, which is all that
    the last coordinate reads: 1/(1 + k + sum n_s x_s).

    Claim: A-4.5 and A-rem (App. C.3.1, eq. 70-79), with other weights than `printed_softmax_code`.
    Shapes: v (T, d'); see HistogramTransformer.
    Raises: BadInput when two vectors coincide.

    >>> from constructions.codes import tokens as token_codes
    >>> built = tagged_softmax_code(token_codes.signs(5), L=4, dtype="float64")
    >>> built.d, built.predict([2, 0, 2, 2])
    (5, [3, 1, 3, 3])
    """
    built, e = _blank(v, 2, L, p, dtype)
    built.fill(**bos_apart(v, _scale(v, L, built.d, kappa), e))
    return read_one_neuron(built, e[-1], bias=0.0)


def printed_softmax_code(v: Array, *, L: int, p: int = 1, dtype: str, kappa: float, alpha: float) -> HistogramArrays:
    """bos+sftm on a code of unit vectors in R^d' with the printed weights: d = d' + 2.

    e_t = (v_t, alpha, 0), e_BOS = (0, 1/alpha, 1): the scores are kappa (<v_t, v_s> + alpha^2), and kappa for BOS.

    Claim: A-4.5 and A-rem (App. C.3.1, eq. 70-79), with kappa = 200 or 30000 and alpha = 0.01 in the experiments.
    Shapes: v (T, d'); see HistogramTransformer.

    >>> from constructions.codes import tokens as token_codes
    >>> built = printed_softmax_code(token_codes.binary(5), L=4, dtype="float64", kappa=200.0, alpha=0.01)
    >>> built.d, built.predict([2, 0, 2, 2])
    (5, [3, 1, 3, 3])
    """
    built, e = _blank(v, 2, L, p, dtype)
    built.fill(E=v @ e[:-2] + alpha * e[-2], e_BOS=e[-2] / alpha + e[-1])
    built.fill(W_Q=kappa * math.sqrt(built.d) * e, W_K=e)
    return read_one_neuron(built, e[-1], bias=0.0, must_separate=False)


def _blank(v: Array, extra: int, L: int, p: int, dtype: str) -> tuple[HistogramArrays, Array]:
    """A zero bos+sftm model with some dimensions beside those of the code, and the standard basis."""
    T, m = v.shape
    built = HistogramArrays.zeros("bos+sftm", T=T, L=L, d=m + extra, p=p, dtype=dtype)
    return built, np.eye(built.d)


def _scale(v: Array, L: int, d: int, kappa: float | None) -> float:
    """What undoes 1/sqrt(d) and applies the derived kappa, or at least the given one: then a power of two."""
    return derived_kappa(v, L) * math.sqrt(d) if kappa is None else power_of_two(kappa * math.sqrt(d))


def sharp_kappa(v: Array) -> float:
    """The inverse temperature at which every other token has at most e^-16 of the own one's weight.

    It suits codes whose scores no rounding touches; elsewhere a larger kappa makes larger errors.

    >>> sharp_kappa(np.eye(3))
    16.0
    """
    return 16.0 / _gaps(v)[0]


def derived_kappa(v: Array, L: int) -> float:
    """The inverse temperature at which half the separation is left: (L-1) e^(-kappa g) - (L-2) e^(-kappa G) = 1/2.

    g and G are the smallest and the largest |v_t|^2 - <v_t, v_s>. Counts k and k + 1 stay apart when
    (L - k) x_max - (L - k - 1) x_min < 1, hardest for k = 1.
    Raises: BadInput when two vectors coincide.

    >>> from constructions.codes import tokens as token_codes
    >>> round(derived_kappa(token_codes.circle(32), 10))
    150
    """
    g, G = _gaps(v)
    low, high = 0.0, math.log(2 * L) / g  # at `high` even (L - 1) e^(-kappa g) is below 1/2
    for _ in range(200):
        kappa = (low + high) / 2
        if (L - 1) * math.exp(-kappa * g) - (L - 2) * math.exp(-kappa * G) <= 0.5:
            high = kappa
        else:
            low = kappa
    return high


def _gaps(v: Array) -> tuple[float, float]:
    """The smallest and the largest |v_t|^2 - <v_t, v_s>."""
    overlaps = v @ v.T
    gaps = (overlaps.diagonal()[:, None] - overlaps)[~np.eye(len(v), dtype=bool)]
    g, G = float(gaps.min()), float(gaps.max())
    if not g > 1e-12 * float(overlaps.diagonal().max()):
        raise BadInput("v: two tokens have the same vector, and no temperature tells them apart. Choose another code.")
    return g, G


def coherent(kind: str, v: Array, *, L: int, p: int = 1, dtype: str) -> HistogramArrays:
    """dot or bos with p = 1 on vectors of one norm and low coherence, and one more dimension that the neuron reads.

    e_t = (v_t, 1), and the scores are c <v_t, v_s>: the neuron reads c |v|^2 (k + sum_s n_s <v_t, v_s> / |v|^2).

    Claim: A-4.4 (App. C.2.2, eq. 45-54): M < 1/(2L-3) - (2L-4)/(2L-3) alpha^2, where e_t = (v_t, alpha) is read along
        (0, 1/alpha). W_Q leaves the last coordinate out of the scores, so that alpha = 0 in that condition.
    Shapes: v (T, d - 1); see HistogramTransformer.
    Raises: NotKnown when M is not below 1/(2L - 3).

    >>> simplex = np.linalg.svd(np.eye(6) - 1 / 6)[0][:, :5] * (6 / 5) ** 0.5
    >>> coherent("dot", simplex, L=3, dtype="float64").predict([2, 0, 2])
    [2, 1, 2]
    """
    T, m = v.shape
    n = float(v[0] @ v[0])
    M = float(np.abs(v @ v.T)[~np.eye(T, dtype=bool)].max()) / n
    if not max(1, 2 * L - 3) * M < 1:
        raise NotKnown(
            f"d={m + 1}: the best vectors found in {m} dimensions have coherence about {M:.4g}, and {kind} with p = 1 "
            f"needs less than 1/(2 L - 3), about {1 / max(1, 2 * L - 3):.4g}, on this construction. Use a larger --d, "
            f"or --p {T}."
        )
    built = HistogramArrays.zeros(kind, T=T, L=L, d=m + 1, p=p, dtype=dtype)
    identity = np.eye(m + 1)
    kept = identity.copy()
    kept[-1, -1] = 0.0
    E = np.column_stack([v, np.ones(T)])
    built.fill(E=E, W_Q=power_of_two(math.sqrt(m + 1) / n) * kept, W_K=identity)
    return read_one_neuron(built, identity[-1], bias=-1.0)


def signed_simplex(kind: str, *, T: int, L: int, p: int = 1, dtype: str) -> HistogramArrays:
    """dot or bos with p = 1 at d = T - 1: a simplex whose overlaps are +-1/(T-1) by a balanced sign.

    The tokens are the rows of an orthonormal basis of the complement of a balanced sign vector, scaled to one norm;
    the vector of ones lies in that complement, so one direction reads 1 on every token. A Hadamard matrix without one
    of its columns is such a basis in whole numbers.

    Claim: W-4: for even T and 2L - 3 < T - 1.
    Shapes: see HistogramTransformer with d = T - 1.
    Raises: NotKnown when T is odd or L too large.

    >>> signed_simplex("dot", T=6, L=3, dtype="float64").predict([2, 0, 2])
    [2, 1, 2]
    """
    if T % 2 or 2 * L - 3 >= T - 1:
        raise NotKnown(
            f"d={T - 1}: {kind} with p = 1 is known to count there for even T and 2 L - 3 < T - 1, got T={T}, L={L}. "
            f"Use --d {T} or more, or --p {T}."
        )
    H = hadamard(T)
    if H is not None:  # the sign is the column that is left out, and every sum of products is exact in few bits
        E, direction = np.concatenate([H[:, :1], H[:, 2:]], axis=1), np.eye(T - 1)[0]
    else:
        E, direction = _complement_of_signs(T)
    built = HistogramArrays.zeros(kind, T=T, L=L, d=T - 1, p=p, dtype=dtype)
    scale = power_of_two(math.sqrt(T - 1) / float(E[0] @ E[0]))
    built.fill(E=E, W_Q=scale * np.eye(T - 1), W_K=np.eye(T - 1))
    return read_one_neuron(built, direction, bias=-1.0)


def _complement_of_signs(T: int) -> tuple[Array, Array]:
    """The tokens of any even T, and the direction in which each is 1.

    Householder's reflection that maps sign/sqrt(T) to the first unit vector: its other columns span the complement.
    """
    sign = np.ones(T)
    sign[1::2] = -1.0
    w = sign / math.sqrt(T)
    w[0] += 1.0
    basis = (np.eye(T) - 2 * np.outer(w, w) / (w @ w))[:, 1:]
    scale = math.sqrt(T / (T - 1))
    return basis * scale, basis.sum(0) / scale


def read_one_neuron(
    built: HistogramArrays, direction: Array, bias: float, must_separate: bool = True
) -> HistogramArrays:
    """One neuron on the direction, and thresholds half-way between the ranges of neighbouring counts.

    The ranges come from the stored embeddings and scores: all multisets lie between the inputs with one other token.
    Raises: NotKnown when the ranges of two counts overlap, unless the weights are wanted all the same.

    >>> from constructions.relation_counting_arrays import dot
    >>> built = dot(T=4, L=3, dtype="float64")
    >>> read_one_neuron(built, built.weights["W_1"][:, 0], -1.0).predict([2, 0, 2])
    [2, 1, 2]
    """
    built.fill(W_1=direction[:, None], b_1=np.array([bias]))
    with np.errstate(over="ignore", invalid="ignore"):  # weights that are not finite are refused where they are judged
        low, high = _gamma_ranges(built)
    is_falling = built.L > 1 and bool(low[-1] < low[0])
    upper, lower = (high[1:], low[:-1]) if is_falling else (high[:-1], low[1:])
    if must_separate and bool((upper >= lower).any()):
        raise NotKnown(
            f"d={built.d}: on this code the ranges of two counts overlap by about {float((upper - lower).max()):.3g}. "
            "Use a larger --d or a smaller --L."
        )
    thresholds, ends = ((upper + lower) / 2).tolist(), [low.tolist(), high.tolist()]
    slopes, intercepts = centred_staircase(thresholds, ends, is_falling, built.dtype)
    return built.fill(W_2=slopes[None], b_2=intercepts)


def _gamma_ranges(model: HistogramArrays) -> tuple[Array, Array]:
    """The neuron's range over all tokens at each count 1..L: two vectors (L,)."""
    T, L, is_softmax = model.T, model.L, model.model.endswith("+sftm")
    weights = {name: value.astype(np.float64) for name, value in model.weights.items()}
    E, e_BOS = weights["E"], weights.get("e_BOS", np.zeros(model.d))
    keys = np.concatenate([E, e_BOS[None]]) @ weights["W_K"]
    scores = (E @ weights["W_Q"]) @ keys.T / math.sqrt(model.d)
    own = scores.diagonal()[:, None]
    weight = np.exp(scores - own) if is_softmax else scores
    u, u_BOS = E @ weights["W_1"][:, 0], e_BOS @ weights["W_1"][:, 0]
    k = np.arange(1.0, L + 1)[:, None, None]
    w_own = weight[:, :T].diagonal()[:, None]
    w_other = weight[:, :T]
    total = k * (w_own * u[:, None]) + (L - k) * (w_other * u) + weight[:, T:] * u_BOS
    if is_softmax:
        total = total / (k * w_own + (L - k) * w_other + weight[:, T:])
    gamma = (total + u[:, None] + weights["b_1"][0])[:, ~np.eye(T, dtype=bool)]
    return gamma.min(1), gamma.max(1)
