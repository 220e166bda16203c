"""The smallest counting transformers: one neuron at d = T - 1 (dot, bos), ceil(log2(T + 1)) neurons (dot+sftm)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.coded_inventory import on_code
from constructions.coded_relation import read_one_neuron
from constructions.codes.search import Code
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer, check_dtype, check_memory, check_sizes
from constructions.readout import centred_staircase


def rational(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds dot or bos with one neuron at d = T - 1, for every T >= 2 and L: the reading depends on the count only.

    T = n+ + n- with n+ > n- >= 1. The neuron sees V = n- on n+ tokens and -n+ on the others, and the scores are
    G = kappa (1/V)(1/V)^T + beta diag(1/V) with kappa = -n+ n-/L and beta = T (n+ - n-)/L. Then G 1 = 0, so tokens
    in R^(T-1) have these scores, and V_t + sum_s n_s G_ts V_s = V_t + L kappa/V_t + beta k = n- - n+ + beta k exactly.
    T = 2 needs n+ = n- = 1 and is built apart: tokens 1 and -a on a line.

    Claim: W-14 (ours).
    Shapes: d >= T - 1, surplus is zero padding; p >= 1.
    Raises: BadInput for other sizes.

    >>> rational("dot", T=5, L=9, d=4).predict(torch.tensor([2, 0, 2, 2, 4, 4, 1, 2, 3])).tolist()
    [4, 1, 4, 4, 2, 2, 1, 4, 1]
    """
    _check(model, T, L, d, p, dtype)
    d, p = T - 1 if d is None else d, 1 if p is None else p
    if model not in ("dot", "bos"):
        raise BadInput(f"model={model!r}: one neuron at d = T - 1 is for dot and bos. Choose one of them.")
    check_sizes(model, T=T, L=L, d=d, p=p)
    if d < T - 1 or T < 2:
        raise BadInput(f"d={d}: this construction needs T >= 2 and d >= T - 1. Use --d {max(1, T - 1)} or more.")
    module = HistogramTransformer(model, T=T, L=L, d=d, p=p, dtype=dtype)
    if T == 2:
        return _two_tokens(module)
    low = (T - 1) // 2
    high = T - low
    V = torch.full((T,), float(low), dtype=torch.float64)
    V[high:] = -float(high)
    kappa, beta = -high * low / L, T * (high - low) / L
    G = kappa / torch.outer(V, V) + torch.diag(beta / V)
    E = torch.cat([torch.eye(T - 1, dtype=torch.float64), -torch.ones(1, T - 1, dtype=torch.float64)])
    module.fill(E=E, W_Q=math.sqrt(d) * G[:-1, :-1], W_K=torch.eye(T - 1, dtype=torch.float64))
    direction = torch.zeros(d, dtype=torch.float64)
    direction[: T - 1] = V[:-1]
    return read_one_neuron(module, direction, bias=float(high - low))  # the neuron reads beta k, and is always on


def _two_tokens(module: HistogramTransformer) -> HistogramTransformer:
    """Tokens 1 and -a on a line with one negative score g: both readings fall with the own count, nearly alike."""
    L, d = module.L, module.d
    a = 1 - 1 / (4 * L) if L > 2 else 0.75
    g = -1 / (L * a + (1 - a) ** 2 * (L + 1) / 2)
    module.fill(
        E=torch.tensor([[1.0], [-a]], dtype=torch.float64),
        W_Q=torch.tensor([[math.sqrt(d) * g]], dtype=torch.float64),
        W_K=torch.ones(1, 1, dtype=torch.float64),
    )
    direction = torch.zeros(d, dtype=torch.float64)
    direction[0] = 1.0
    return read_one_neuron(module, direction, bias=2.0)


def logarithmic(
    *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds dot+sftm with p = ceil(log2(T + 1)) neurons at d = T - 1 or more: each token has a set of neurons.

    Token t owns a nonempty set P_t of neurons, all different. At t^L the neurons of P_t read numbers that sum to 2 and
    the others -2. Attention to another token s takes D_ts = 1 - sum_{i in P_t} U_si from that sum, times its share;
    with weights beta/D_ts every other token takes the same, so the sum is 2 - beta (L - k)/(k + sum n_s w_ts): a
    staircase over one scalar, read by equal rows of W_2.

    Claim: W-13 (ours); the document says that p >= T is required (Sec. 4.1.1, Fig. 4).
    Shapes: d >= T - 1, p >= ceil(log2(T + 1)), surplus is zero padding.
    Raises: BadInput for other sizes.

    >>> logarithmic(T=7, L=4).predict(torch.tensor([2, 0, 2, 6])).tolist()
    [2, 1, 2, 1]
    """
    _check("dot+sftm", T, L, d, p, dtype)
    fewest = T.bit_length()
    d, p = max(1, T - 1) if d is None else d, fewest if p is None else p
    check_sizes("dot+sftm", T=T, L=L, d=d, p=p)
    if p < fewest or d < T - 1:
        raise BadInput(
            f"p={p}, d={d}: sets of neurons for T={T} tokens need p >= {fewest} and d >= {T - 1}. "
            f"Use --p {max(p, fewest)} --d {max(d, T - 1)}."
        )
    module = HistogramTransformer("dot+sftm", T=T, L=L, d=d, p=p, dtype=dtype)
    U, D = _shares(T, fewest)
    beta = float((D + torch.eye(T) * 2).min()) / (max(2.0, (fewest + 1) / 2) * max(1, L))
    S = torch.where(torch.eye(T, dtype=torch.bool), 0.0, torch.log(beta / (D + torch.eye(T))))
    weights = {
        "E": torch.eye(T, dtype=torch.float64),
        "X": S,
        "W_1": U,
        "b_1": torch.zeros(fewest, dtype=torch.float64),
    }
    if d < T:
        weights = _one_dimension_less(S, U)
    X = weights.pop("X")
    module.fill(**weights, W_Q=math.sqrt(d) * X, W_K=torch.eye(len(X), dtype=torch.float64))
    thresholds, ends = _scalars(S, D, L)
    slopes, intercepts = centred_staircase(thresholds, ends, False, dtype)
    module.fill(W_2=slopes.expand(fewest, L), b_2=intercepts)
    return module


def _shares(T: int, p: int) -> tuple[Tensor, Tensor]:
    """U (T, p): what a token's neurons read, summing to 1, and -1 elsewhere; D (T, T): what another token takes."""
    owned = torch.tensor([[t >> i & 1 for i in range(p)] for t in range(1, T + 1)], dtype=torch.float64)
    U = owned / owned.sum(1, keepdim=True) - (1 - owned)
    return U, 1 - owned @ U.T


def _one_dimension_less(S: Tensor, U: Tensor) -> dict[str, Tensor]:
    """The same scores up to a constant per row, which softmax ignores, with tokens in R^(T-1).

    With v = S^(-T) 1 and G = S + c 1^T, c = -S v/(1.v), G v = 0 and v^T G = 0: tokens are an orthonormal basis of the
    complement of v, and [E, 1] is invertible, so that E W_1 and a bias give U.
    """
    T = len(S)
    one = torch.ones(T, dtype=torch.float64)
    v = torch.linalg.solve(S.T, one)
    G = S - torch.outer(S @ v / (one @ v), one)
    E = torch.linalg.qr(torch.cat([v[:, None], torch.eye(T, dtype=torch.float64)], dim=1)).Q[:, 1:T]
    solved = torch.linalg.solve(torch.cat([E, one[:, None]], dim=1), U)
    return {"E": E, "X": E.T @ G @ E, "W_1": solved[:-1], "b_1": 2 * solved[-1]}


def _scalars(S: Tensor, D: Tensor, L: int) -> tuple[list[float], list[list[float]]]:
    """Thresholds half-way between the ranges of the sum at neighbouring counts, and the two ends of each range."""
    T, k = len(S), torch.arange(1, L + 1, dtype=torch.float64)
    if T == 1:
        return [2.0 + i for i in range(L - 1)], [[1.5 + i for i in range(L - 1)] + [2.0 + L]]
    others = ~torch.eye(T, dtype=torch.bool)
    w = torch.exp(S[others])
    taken = float((D[others] * w).mean())
    low, high = (2 - taken * (L - k) / (k + (L - k) * x) for x in (w.min(), w.max()))
    return ((high[:-1] + low[1:]) / 2).tolist(), [low.tolist(), high.tolist()]


def balanced(
    model: str, *, T: int, L: int, d: int | None = None, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds lin or lin+sftm by inventory on even overlaps, at d = T - floor(T/L) or more: blocks of equal tokens.

    Let n = T - d blocks hold q = floor(T/n) tokens each, and u be constant on blocks, 0 on what is left, with sum 0.
    N_ts = -1/(2q-1) inside a block, 1/(2q-1) between blocks and 0 elsewhere and for s = t has N u = -u, and so the
    readings M = c 1^T + I + N with c = -(1 + N 1)/T have M 1 = M u = 0: rank T - n. Another token reads less than the
    own one by 1 - N_ts, within 1/(2q-1) < 1/(2L-3) of 1 for q >= L, which is W-2's condition. At d = T - 1 there is one
    block and N = 0: the tokens are a simplex, and L is any.

    Claim: W-15 (ours).
    Shapes: T - floor(T/L) <= d <= T - 1, p >= T.
    Raises: BadInput for other models or sizes.

    >>> balanced("lin", T=6, L=3, d=4).predict(torch.tensor([2, 0, 2])).tolist()
    [2, 1, 2]
    """
    _check(model, T, L, d, p, dtype)
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
    model: str, u: Tensor, N: Tensor, *, L: int, p: int | None = None, dtype: torch.dtype = torch.float32
) -> HistogramTransformer:
    """Builds lin or lin+sftm at d = T - 1 - m from m free vectors and numbers N that reproduce them: N u = -u.

    The readings M = c 1^T + I + N with c = -(1 + N 1)/T have M 1 = M u = 0, so tokens in the complement of 1 and u have
    them, and a neuron's reading of another token is below its own by 1 - N_ts.

    Claim: W-21 (ours): it counts where all |N_ts| < 1/(2L-3), and such N exist where (2L-2) max|u| < sum|u| throughout.
    Shapes: u (T, m) of full rank with columns that sum to 0, N (T, T) with zero diagonal.

    >>> u = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)
    >>> on_kernel("lin", u, (torch.eye(4, dtype=torch.float64) - u @ u.T) / 3, L=2).d
    2
    """
    T, n = len(u), u.shape[1] + 1
    one = torch.ones(T, dtype=torch.float64)
    M = torch.eye(T, dtype=torch.float64) + N
    M = M - torch.outer(M @ one, one) / T
    basis = torch.linalg.qr(torch.cat([one[:, None], u], dim=1), mode="complete").Q[:, n:]
    code = Code("lin", basis, torch.eye(T - n, dtype=torch.float64), basis.T @ M.T, gap=1.0)
    return on_code(model, code, L=L, p=T if p is None else p, dtype=dtype)


def _blocks(T: int, n: int) -> tuple[Tensor, Tensor]:
    """The vectors u (T, n - 1) of n equal blocks against the first one, and N (T, T)."""
    if n == 1:
        return torch.zeros(T, 0, dtype=torch.float64), torch.zeros(T, T, dtype=torch.float64)
    q = T // n
    member = torch.zeros(T, n, dtype=torch.float64)
    for i in range(n):
        member[i * q : (i + 1) * q, i] = 1.0
    held = member.sum(1)
    N = torch.outer(held, held) - 2 * member @ member.T + torch.diag(held)
    return member[:, 1:] - member[:, :1], N / (2 * q - 1)


def _check(model: str, T: int, L: int, d: int | None, p: int | None, dtype: torch.dtype) -> None:
    """Raises BadInput for sizes or a dtype that make no sense, before any of them is used."""
    check_sizes(model, T=T, L=L, d=1 if d is None else d, p=1 if p is None else p)
    check_dtype(dtype)
    check_memory(T * (T if d is None else d) + L * (1 if p is None else p))
