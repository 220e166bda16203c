"""The smallest counting transformers: one neuron at d = T - 1 (dot, bos), ceil(log2(T + 1)) neurons (dot+sftm).

The weights as arrays.
"""

from __future__ import annotations

import math

import numpy as np

from constructions.coded_inventory import on_code
from constructions.coded_relation import read_one_neuron
from constructions.codes.code import Code
from constructions.errors import BadInput
from constructions.histogram_arrays import HistogramArrays
from constructions.histogram_sizes import check_memory, check_sizes
from constructions.model_arrays import Array
from constructions.readout_arrays import centred_staircase


def rational(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """Builds dot or bos with one neuron at d = T - 1, for every T >= 2 and L: the reading depends on the count only.

    T = n+ + n- with n+ > n- >= 1. The neuron sees V = n- on n+ tokens and -n+ on the others, and the scores are
    G = kappa (1/V)(1/V)^T + beta diag(1/V) with kappa = -n+ n-/L and beta = T (n+ - n-)/L. Then G 1 = 0, so tokens
    in R^(T-1) have these scores, and V_t + sum_s n_s G_ts V_s = V_t + L kappa/V_t + beta k = n- - n+ + beta k exactly.
    T = 2 needs n+ = n- = 1 and is built apart: tokens 1 and -a on a line.

    Claim: W-14 (ours).
    Shapes: d >= T - 1, surplus is zero padding; p >= 1.
    Raises: BadInput for other sizes.

    >>> rational("dot", T=5, L=9, d=4).predict([2, 0, 2, 2, 4, 4, 1, 2, 3])
    [4, 1, 4, 4, 2, 2, 1, 4, 1]
    """
    _check(model, T, L, d, p)
    d, p = T - 1 if d is None else d, 1 if p is None else p
    if model not in ("dot", "bos"):
        raise BadInput(f"model={model!r}: one neuron at d = T - 1 is for dot and bos. Choose one of them.")
    check_sizes(model, T=T, L=L, d=d, p=p)
    if d < T - 1 or T < 2:
        raise BadInput(f"d={d}: this construction needs T >= 2 and d >= T - 1. Use --d {max(1, T - 1)} or more.")
    module = HistogramArrays.zeros(model, T=T, L=L, d=d, p=p, dtype=dtype)
    if T == 2:
        return _two_tokens(module)
    low = (T - 1) // 2
    high = T - low
    V = np.full((T,), float(low))
    V[high:] = -float(high)
    kappa, beta = -high * low / L, T * (high - low) / L
    G = kappa / np.outer(V, V) + np.diag(beta / V)
    E = np.concatenate([np.eye(T - 1), -np.ones((1, T - 1))])
    module.fill(E=E, W_Q=math.sqrt(d) * G[:-1, :-1], W_K=np.eye(T - 1))
    direction = np.zeros(d)
    direction[: T - 1] = V[:-1]
    return read_one_neuron(module, direction, bias=float(high - low))  # the neuron reads beta k, and is always on


def _two_tokens(module: HistogramArrays) -> HistogramArrays:
    """Tokens 1 and -a on a line with one negative score g: both readings fall with the own count, nearly alike."""
    L, d = module.L, module.d
    a = 1 - 1 / (4 * L) if L > 2 else 0.75
    g = -1 / (L * a + (1 - a) ** 2 * (L + 1) / 2)
    module.fill(
        E=np.array([[1.0], [-a]]),
        W_Q=np.array([[math.sqrt(d) * g]]),
        W_K=np.ones((1, 1)),
    )
    direction = np.zeros(d)
    direction[0] = 1.0
    return read_one_neuron(module, direction, bias=2.0)


def logarithmic(
    *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """Builds dot+sftm with p = ceil(log2(T + 1)) neurons at d = T - 1 or more: each token has a set of neurons.

    Token t owns a nonempty set P_t of neurons, all different. At t^L the neurons of P_t read numbers that sum to 2 and
    the others -2. Attention to another token s takes D_ts = 1 - sum_{i in P_t} U_si from that sum, times its share;
    with weights beta/D_ts every other token takes the same, so the sum is 2 - beta (L - k)/(k + sum n_s w_ts): a
    staircase over one scalar, read by equal rows of W_2.

    Claim: W-13 (ours); the document says that p >= T is required (Sec. 4.1.1, Fig. 4).
    Shapes: d >= T - 1, p >= ceil(log2(T + 1)), surplus is zero padding.
    Raises: BadInput for other sizes.

    >>> logarithmic(T=7, L=4).predict([2, 0, 2, 6])
    [2, 1, 2, 1]
    """
    _check("dot+sftm", T, L, d, p)
    fewest = T.bit_length()
    d, p = max(1, T - 1) if d is None else d, fewest if p is None else p
    check_sizes("dot+sftm", T=T, L=L, d=d, p=p)
    if p < fewest or d < T - 1:
        raise BadInput(
            f"p={p}, d={d}: sets of neurons for T={T} tokens need p >= {fewest} and d >= {T - 1}. "
            f"Use --p {max(p, fewest)} --d {max(d, T - 1)}."
        )
    module = HistogramArrays.zeros("dot+sftm", T=T, L=L, d=d, p=p, dtype=dtype)
    U, D = _shares(T, fewest)
    beta = float((D + np.eye(T) * 2).min()) / (max(2.0, (fewest + 1) / 2) * max(1, L))
    S = np.where(np.eye(T, dtype=bool), 0.0, np.log(beta / (D + np.eye(T))))
    weights = {
        "E": np.eye(T),
        "X": S,
        "W_1": U,
        "b_1": np.zeros(fewest),
    }
    if d < T:
        weights = _one_dimension_less(S, U)
    X = weights.pop("X")
    module.fill(**weights, W_Q=math.sqrt(d) * X, W_K=np.eye(len(X)))
    thresholds, ends = _scalars(S, D, L)
    slopes, intercepts = centred_staircase(thresholds, ends, False, dtype)
    module.fill(W_2=np.tile(slopes, (fewest, 1)), b_2=intercepts)
    return module


def _shares(T: int, p: int) -> tuple[Array, Array]:
    """U (T, p): what a token's neurons read, summing to 1, and -1 elsewhere; D (T, T): what another token takes."""
    owned = np.array([[t >> i & 1 for i in range(p)] for t in range(1, T + 1)])
    U = owned / owned.sum(1, keepdims=True) - (1 - owned)
    return U, 1 - owned @ U.T


def _one_dimension_less(S: Array, U: Array) -> dict[str, Array]:
    """The same scores up to a constant per row, which softmax ignores, with tokens in R^(T-1).

    With v = S^(-T) 1 and G = S + c 1^T, c = -S v/(1.v), G v = 0 and v^T G = 0: tokens are an orthonormal basis of the
    complement of v, and [E, 1] is invertible, so that E W_1 and a bias give U.
    """
    T = len(S)
    one = np.ones(T)
    v = np.linalg.solve(S.T, one)
    G = S - np.outer(S @ v / (one @ v), one)
    E = np.linalg.qr(np.concatenate([v[:, None], np.eye(T)], axis=1)).Q[:, 1:T]
    solved = np.linalg.solve(np.concatenate([E, one[:, None]], axis=1), U)
    return {"E": E, "X": E.T @ G @ E, "W_1": solved[:-1], "b_1": 2 * solved[-1]}


def _scalars(S: Array, D: Array, L: int) -> tuple[list[float], list[list[float]]]:
    """Thresholds half-way between the ranges of the sum at neighbouring counts, and the two ends of each range."""
    T, k = len(S), np.arange(1, L + 1)
    if T == 1:
        return [2.0 + i for i in range(L - 1)], [[1.5 + i for i in range(L - 1)] + [2.0 + L]]
    others = ~np.eye(T, dtype=bool)
    w = np.exp(S[others])
    taken = float((D[others] * w).mean())
    low, high = (2 - taken * (L - k) / (k + (L - k) * x) for x in (w.min(), w.max()))
    return ((high[:-1] + low[1:]) / 2).tolist(), [low.tolist(), high.tolist()]


def balanced(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """Builds lin or lin+sftm by inventory on even overlaps, at d = T - floor(T/L) or more: blocks of equal tokens.

    Let n = T - d blocks hold q = floor(T/n) tokens each, and u be constant on blocks, 0 on what is left, with sum 0.
    N_ts = -1/(2q-1) inside a block, 1/(2q-1) between blocks and 0 elsewhere and for s = t has N u = -u, and so the
    readings M = c 1^T + I + N with c = -(1 + N 1)/T have M 1 = M u = 0: rank T - n. Another token reads less than the
    own one by 1 - N_ts, within 1/(2q-1) < 1/(2L-3) of 1 for q >= L, which is W-2's condition. At d = T - 1 there is one
    block and N = 0: the tokens are a simplex, and L is any.

    Claim: W-15 (ours).
    Shapes: T - floor(T/L) <= d <= T - 1, p >= T.
    Raises: BadInput for other models or sizes.

    >>> balanced("lin", T=6, L=3, d=4).predict([2, 0, 2])
    [2, 1, 2]
    """
    _check(model, T, L, d, p)
    if model not in ("lin", "lin+sftm"):
        raise BadInput(f"model={model!r}: blocks of tokens are for lin and lin+sftm. Choose one of them.")
    fewest = max(1, T - max(1, T // L))  # as many blocks of L tokens as there are
    d, p = fewest if d is None else d, T if p is None else p
    check_sizes(model, T=T, L=L, d=d, p=p)
    if L < 2 or not fewest <= d < T or p < T:
        raise BadInput(
            f"T={T}, L={L}, d={d}, p={p}: blocks of tokens count for L >= 2 at d = {fewest} to {T - 1} with p >= T. "
            f"Use --d {fewest} --p {max(p, T)}."
        )
    u, N = _blocks(T, T - d)
    return on_kernel(model, u, N, L=L, p=p, dtype=dtype)


def on_kernel(
    model: str, u: Array, N: Array, *, L: int, p: int | None = None, dtype: str = "float32"
) -> HistogramArrays:
    """Builds lin or lin+sftm at d = T - 1 - m from m free vectors and numbers N that reproduce them: N u = -u.

    The readings M = c 1^T + I + N with c = -(1 + N 1)/T have M 1 = M u = 0, so tokens in the complement of 1 and u have
    them, and a neuron's reading of another token is below its own by 1 - N_ts.

    Claim: W-21 (ours): it counts where all |N_ts| < 1/(2L-3), and such N exist where (2L-2) max|u| < sum|u| throughout.
    Shapes: u (T, m) of full rank with columns that sum to 0, N (T, T) with zero diagonal.

    >>> u = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    >>> on_kernel("lin", u, (np.eye(4) - u @ u.T) / 3, L=2).d
    2
    """
    T, n = len(u), u.shape[1] + 1
    one = np.ones(T)
    M = np.eye(T) + N
    M = M - np.outer(M @ one, one) / T
    basis = np.linalg.qr(np.concatenate([one[:, None], u], axis=1), mode="complete").Q[:, n:]
    code = Code("lin", basis, np.eye(T - n), basis.T @ M.T, gap=1.0)
    return on_code(model, code, L=L, p=T if p is None else p, dtype=dtype)


def _blocks(T: int, n: int) -> tuple[Array, Array]:
    """The vectors u (T, n - 1) of n equal blocks against the first one, and N (T, T)."""
    if n == 1:
        return np.zeros((T, 0)), np.zeros((T, T))
    q = T // n
    member = np.zeros((T, n))
    for i in range(n):
        member[i * q : (i + 1) * q, i] = 1.0
    held = member.sum(1)
    N = np.outer(held, held) - 2 * member @ member.T + np.diag(held)
    return member[:, 1:] - member[:, :1], N / (2 * q - 1)


def _check(model: str, T: int, L: int, d: int | None, p: int | None) -> None:
    """Raises BadInput for sizes that make no sense, before any of them is used."""
    check_sizes(model, T=T, L=L, d=1 if d is None else d, p=1 if p is None else p)
    check_memory(T * (T if d is None else d) + L * (1 if p is None else p))
