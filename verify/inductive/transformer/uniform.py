"""One layer whose scores are all exactly 0: each position sees the mean of all values before it, by prefix sums.

Where W_Q and its bias are 0, or W_K and its bias, every score is a sum of products with a factor 0, rotated or not: it
is 0 in real arithmetic and in every order of rounded arithmetic. Softmax of N zeros is N times e^0 = 1, divided by
their sum, which is N exactly for N <= 2^p in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from constructions.decoder import Decoder
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import U, gamma
from verify.engine.balls import Arithmetic
from verify.inductive.tasks import Line
from verify.inductive.transformer.noisy import Noisy, activate, is_power, layer_norm, margins, plus, product, sum_error
from verify.inductive.transformer.runs import Bounds, Runs, padded

ARGUMENT = "one layer of equal weights: prefix sums of values, in balls"
ROWS = 1 << 21  # logits held at a time


def applies(model: Decoder) -> bool:
    """Whether all scores of the only layer are 0 whatever the input is."""
    return len(model.blocks) == 1 and has_zero_scores(model.blocks[0])


def has_zero_scores(block: Any) -> bool:
    """Whether all scores of a block are 0 whatever the input is."""
    attention = block.attention
    pairs = ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K))
    if not all(bool(W.isfinite().all()) and (b is None or bool(b.isfinite().all())) for W, b in pairs):
        return False
    return any(not bool(W.any()) and (b is None or not bool(b.any())) for W, b in pairs)


def may_overflow(at: Arithmetic, attention: Any, x: Noisy) -> bool:
    """Whether a query or key of these rows may overflow in the dtype, so that 0 times it is NaN and no score is 0.

    A rotation adds two numbers of its size at most, and scales may be applied before the product: hence the factor 4.
    """
    if at.stored is None:
        return False
    for W, b in ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K)):
        rows = product(at, x, at.tensor(W))
        rows = rows if b is None else plus(at, rows, Noisy.of(at.tensor(b)))
        if not bool((4 * rows.size <= at.stored.largest).all()):
            return True
    return False


def stream(at: Arithmetic, model: Decoder, tokens: Tensor, shift: int) -> Noisy:
    """The stream before the block, (lines, n, d), BOS included: W_E[token] with its position."""
    if model.has_bos:
        tokens = nn.functional.pad(tokens, (1, 0), value=model.W_E.shape[0] - 1)
    E = at.tensor(model.W_E)
    x = Noisy(E.mid[tokens], E.radius[tokens])
    if model.pe not in ("ape", "sine", "spe"):
        return x
    n = tokens.shape[-1]
    table = at.tensor(model.W_pos[shift : shift + n])
    missing = n - len(table.mid)  # of positions after the table's end, that no input has
    rows = [nn.functional.pad(part, (0, 0, 0, max(missing, 0))) for part in (table.mid, table.radius)]
    if model.pe == "spe":
        wide = [row.expand(*x.mid.shape[:-1], 1) for row in rows]
        return Noisy(torch.cat([x.mid, wide[0]], -1), torch.cat([x.own, wide[1]], -1))
    return plus(at, x, Noisy(rows[0].expand_as(x.mid), rows[1].expand_as(x.mid)))


def values_of(at: Arithmetic, model: Decoder, seen: Noisy, layer: int = 0) -> Noisy:
    """What a layer's heads take from normalised rows of the stream."""
    block: Any = model.blocks[layer]
    attention = block.attention
    values = product(at, seen, at.tensor(attention.W_V))
    return values if attention.b_V is None else plus(at, values, Noisy.of(at.tensor(attention.b_V)))


def weight(at: Arithmetic, N: Tensor) -> Tensor:
    """What the weights of N positions may be off by from 1/N, relatively and all together.

    Their sum of N ones is exact in any order where the format holds N; beyond, nothing is known.
    """
    if at.is_real:
        return torch.full_like(N, 4 * U)
    inner = at.accumulate or at.stored
    assert inner is not None
    return torch.where(2.0**inner.p >= N, (2.1 * at.u + 4 * U) * ENLARGE, torch.inf)


def means(at: Arithmetic, values: Noisy) -> Noisy:
    """What equal weights make of values (lines, n, inner): the mean of each prefix.

    The weights share the error of the first, and the others have a rounding of their own. A sum's error is that of its
    large terms, and at most twice its small ones: adding a number to another is off by no more than either of them.
    """
    n = values.mid.shape[-2]
    N = torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    size = values.size
    mid = values.mid.cumsum(-2) / N
    sizes = size.cumsum(-2) * ENLARGE / N
    own = values.own.cumsum(-2) / N * ENLARGE + gamma(n + 4) * sizes
    shared = {q: G.cumsum(-2) / N for q, G in values.shared.items()}
    off = weight(at, N)
    if not at.is_real:
        is_small = size <= at.u * size.amax(-2, keepdim=True)
        own = own + summed(at, size, is_small, values, n) / N * (1 + off) + at.lost_in_sums(n)
    noise = Noisy(mid, own, shared).noise
    own = at.checked(sizes * (1 + off), (own + off * noise) * ENLARGE)
    return Noisy(mid, own, {**shared, "weights": mid * off})


def summed(at: Arithmetic, size: Tensor, is_small: Tensor, values: Noisy, n: int) -> Tensor:
    """What a dtype's sums of the first 1, 2, .. values times a weight are off by, in units of the weight."""
    large = torch.where(is_small, 0.0, size).cumsum(-2) * ENLARGE
    small = torch.where(is_small, size, 0.0).cumsum(-2) * ENLARGE * 2 * (1 + at.u) ** (n + 4)
    terms = (~is_small & (size > 0)).cumsum(-2)
    error = sum_error(at, max(int(terms.max()), 1))
    is_exact = (is_power(values.mid) & (values.noise == 0)) | is_small
    in_products = torch.where(is_exact.cumprod(-2).bool(), 0.0, error[1])
    is_first = torch.arange(n)[:, None] == 0
    others = torch.where(is_first | is_small, 0.0, size).cumsum(-2) * ENLARGE
    rounding = in_products + error[(terms - 1).clamp(min=0)] * (1 + in_products)
    return (rounding * (large + small) + 2 * at.u * others + small * (1 + 2 * at.u)) * ENLARGE


def kept_apart(values: Noisy) -> Noisy:
    """The values with the divisors' errors of the first two positions shared, and all others each number's own."""
    name = "heads.s"
    found = values.boxed([q for q in values.shared if q != name])
    if name not in found.shared:
        return found
    G = found.shared[name]
    place = torch.arange(G.shape[-2])[:, None]
    shared = {f"{name}{i}": torch.where(place == i, G, 0.0) for i in range(2) if i < len(place)}
    shared = {q: part for q, part in shared.items() if bool(part.any())}
    return Noisy(found.mid, (found.own + torch.where(place < 2, 0.0, G.abs())) * ENLARGE, shared)


def last(at: Arithmetic, model: Decoder, x: Noisy, mixed: Noisy, layer: int = 0) -> Noisy:
    """What is unembedded, from rows of the stream and what their heads mixed, before W_O."""
    return layer_norm(at, after(at, model, x, mixed, layer), model.norm, "last")


def after(at: Arithmetic, model: Decoder, x: Noisy, mixed: Noisy, layer: int = 0) -> Noisy:
    """The stream after a block, from rows of the stream before it and what its heads mixed, before W_O."""
    block: Any = model.blocks[layer]
    attention, mlp = block.attention, block.mlp
    out = product(at, mixed, at.tensor(attention.W_O))
    if attention.b_O is not None:
        out = plus(at, out, Noisy.of(at.tensor(attention.b_O)))
    x = plus(at, x, out)
    if mlp is None:
        return x
    seen = layer_norm(at, x, block.norm_2, f"mlp{layer}")
    hidden = plus(at, product(at, seen, at.tensor(mlp.W_in)), Noisy.of(at.tensor(mlp.b_in)))
    hidden = activate(at, hidden, mlp.activation)
    out = plus(at, product(at, hidden, at.tensor(mlp.W_out)), Noisy.of(at.tensor(mlp.b_out)))
    return plus(at, x, out)


def bounds(runs: Runs, reading: Real | Rounded) -> Iterator[Bounds]:
    """Bounds on the margins at every shift; rotated zeros are zeros, so that rope's shifts are all as the first."""
    at = Arithmetic() if isinstance(reading, Real) else Arithmetic(reading.format, reading.accumulate)
    for shift in range(1) if runs.model.pe == "rope" else runs.shifts:
        lines = runs.lines(shift)
        yield Bounds(shift, lines, *of_lines(at, runs, lines, shift), "balls")


def of_lines(at: Arithmetic, runs: Runs, lines: list[Line], shift: int) -> tuple[Tensor, Tensor]:
    """Bounds on the margins of any strings at a shift: (lines, positions)."""
    model = runs.model
    longest = max(len(line.tokens) for line in lines)
    tokens, answers = padded(runs.task, (line.tokens for line in lines), longest)
    block: Any = model.blocks[0]
    low = torch.full(tokens.shape, torch.inf, dtype=torch.float64)
    high = low.clone()
    at_once = max(1, ROWS // (longest * model.W_U.shape[1]))
    bos = int(model.has_bos)
    for i in range(0, len(tokens), at_once):
        rows = slice(i, i + at_once)
        x = stream(at, model, tokens[rows], shift)
        seen = layer_norm(at, x, block.norm_1, "heads")
        judged = answers[rows] >= 0
        if may_overflow(at, block.attention, seen):
            low[rows][judged], high[rows][judged] = -torch.inf, torch.inf
            continue
        mixed = means(at, kept_apart(values_of(at, model, seen)))
        x_rows, mixed_rows = (part.each(lambda a: a[:, bos:][judged]) for part in (x, mixed))  # noqa: B023
        found = read(at, model, last(at, model, x_rows, mixed_rows), answers[rows][judged])
        low[rows][judged], high[rows][judged] = found
    return low, high


def read(at: Arithmetic, model: Decoder, x: Noisy, right: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds on the margins of rows of the last stream: quickly from below, and from both sides where that fails."""
    W_U = at.tensor(model.W_U)
    quick = torch.full((len(x.mid),), -torch.inf, dtype=torch.float64)
    if at.is_real and model.b_U is None and W_U.rad is None:
        quick = _below(x, W_U.mid, right)
    high = torch.full_like(quick, torch.inf)
    rows = (~(quick > 0)).nonzero().squeeze(1)
    for part in torch.split(rows, max(1, ROWS // W_U.mid.shape[1])):
        logits = product(at, x[part], W_U)
        if model.b_U is not None:
            logits = plus(at, logits, Noisy.of(at.tensor(model.b_U)))
        quick[part], high[part] = margins(logits, right[part])
    return quick, high


def _below(x: Noisy, W: Tensor, right: Tensor) -> Tensor:
    """A lower bound on the margins of x W in real arithmetic, with one product for all errors."""
    d = W.shape[0]
    other = W.abs()
    error = (gamma(d + 4) * x.size + x.noise) * (1 + gamma(2 * d + 16)) * ENLARGE**4
    logits, error = x.mid @ W, error @ other
    rows = torch.arange(len(right))
    own = (logits - error)[rows, right]
    logits += error
    logits[rows, right] = -torch.inf
    rival = logits.amax(1)
    low = own - rival
    return low - 4 * U * (own.abs() + rival.abs() + low.abs())
