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
from verify.engine.balls import Arithmetic, Ball
from verify.engine.margins import margins
from verify.engine.rules.linear import cumsum, plus, product
from verify.engine.rules.normalisation import layer_norm
from verify.engine.rules.pointwise import div, gelu, relu
from verify.inductive.tasks import Line
from verify.inductive.transformer.runs import Bounds, Runs, padded

ARGUMENT = "one layer of equal weights: prefix sums of values, in balls"
ROWS = 1 << 21  # logits held at a time


def applies(model: Decoder) -> bool:
    """Whether all scores of the only layer are 0 whatever the input is."""
    if len(model.blocks) != 1:
        return False
    attention: Any = model.blocks[0].attention
    pairs = ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K))
    if not all(bool(W.isfinite().all()) and (b is None or bool(b.isfinite().all())) for W, b in pairs):
        return False
    return any(not bool(W.any()) and (b is None or not bool(b.any())) for W, b in pairs)


def may_overflow(at: Arithmetic, attention: Any, x: Ball) -> bool:
    """Whether a query or key of these rows may overflow in the dtype, so that 0 times it is NaN and no score is 0.

    A rotation adds two numbers of its size at most, and scales may be applied before the product: hence the factor 4.
    """
    if at.stored is None:
        return False
    for W, b in ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K)):
        rows = product(at, x, at.tensor(W))
        rows = rows if b is None else plus(at, rows, at.tensor(b))
        if not bool((4 * rows.size <= at.stored.largest).all()):
            return True
    return False


def norm(at: Arithmetic, layer: nn.Module, x: Ball) -> Ball:
    """A LayerNorm with its stored weight and bias, or nothing."""
    if not isinstance(layer, nn.LayerNorm):
        return x
    weight, bias = at.tensor(layer.weight), at.tensor(layer.bias)
    out, _, _ = layer_norm(at, x, list(layer.normalized_shape), weight, bias, layer.eps)
    return out


def stream(at: Arithmetic, model: Decoder, tokens: Tensor, shift: int) -> Ball:
    """The stream before the block, (lines, n, d), BOS included: W_E[token] with its position."""
    if model.has_bos:
        tokens = nn.functional.pad(tokens, (1, 0), value=model.W_E.shape[0] - 1)
    E = at.tensor(model.W_E)
    x = Ball(E.mid[tokens], None if E.rad is None else E.rad[tokens])
    if model.pe not in ("ape", "sine", "spe"):
        return x
    n = tokens.shape[-1]
    table = at.tensor(model.W_pos[shift : shift + n])
    missing = n - len(table.mid)  # of positions after the table's end, that no input has
    rows = [torch.cat([part, torch.zeros(missing, part.shape[1])]) if missing > 0 else part
            for part in (table.mid, table.radius)]  # fmt: skip
    if model.pe == "spe":
        wide = [row.expand(*x.mid.shape[:-1], 1) for row in rows]
        return Ball(torch.cat([x.mid, wide[0]], -1), torch.cat([x.radius, wide[1]], -1))
    return plus(at, x, Ball(rows[0].expand_as(x.mid), rows[1].expand_as(x.mid)))


def means(at: Arithmetic, values: Ball) -> Ball:
    """What equal weights make of values (lines, n, inner): the mean of each prefix.

    In a dtype each weight is fl(1/N), one number but for the bits that are kept, and a sum has as many roundings as it
    has terms that are not zero.
    """
    n = values.mid.shape[-2]
    N = torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    if at.is_real:
        sums = cumsum(at, values, -2)
        return div(at, sums, Ball(N.expand_as(sums.mid)))
    inner = at.accumulate or at.stored
    assert inner is not None and at.stored is not None
    exact = Arithmetic()
    weight = at.result(1 / N, None, 2)
    is_counted = Ball(weight.mid, torch.where(2.0**inner.p >= N, weight.radius * 2, torch.inf))
    terms = int(((values.mid != 0) | (values.radius != 0)).cumsum(-2).max())
    sizes = values.size.cumsum(-2) * ENLARGE / N * (1 + 8 * at.u)
    sums = div(exact, cumsum(exact, values, -2), Ball(N.expand_as(values.mid)))
    spread = sizes * N * is_counted.radius + at.sums(terms + 2) * sizes + at.lost_in_sums(n)
    return Ball(sums.mid, at.checked(sizes, (sums.radius + spread) * ENLARGE))


def last(at: Arithmetic, model: Decoder, x: Ball, mixed: Ball) -> Ball:
    """What is unembedded, from rows of the stream and what their heads mixed, before W_O."""
    block: Any = model.blocks[0]
    attention = block.attention
    out = product(at, mixed, at.tensor(attention.W_O))
    if attention.b_O is not None:
        out = plus(at, out, at.tensor(attention.b_O))
    x = plus(at, x, out)
    if block.mlp is not None:
        hidden = plus(at, product(at, norm(at, block.norm_2, x), at.tensor(block.mlp.W_in)), at.tensor(block.mlp.b_in))
        hidden = relu(at, hidden) if block.mlp.activation == "relu" else gelu(at, hidden, approximate=_kind(block.mlp))
        out = plus(at, product(at, hidden, at.tensor(block.mlp.W_out)), at.tensor(block.mlp.b_out))
        x = plus(at, x, out)
    return norm(at, model.norm, x)


def _kind(mlp: Any) -> str:
    return "tanh" if mlp.activation == "gelu_tanh" else "none"


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
    for i in range(0, len(tokens), at_once):
        rows = slice(i, i + at_once)
        x = stream(at, model, tokens[rows], shift)
        seen = norm(at, block.norm_1, x)
        if may_overflow(at, block.attention, seen):
            judged = answers[rows] >= 0
            low[rows][judged], high[rows][judged] = -torch.inf, torch.inf
            continue
        values = product(at, seen, at.tensor(block.attention.W_V))
        if block.attention.b_V is not None:
            values = plus(at, values, at.tensor(block.attention.b_V))
        mixed = means(at, values)
        judged = answers[rows] >= 0
        bos = int(model.has_bos)
        x_rows, mixed_rows = (Ball(b.mid[:, bos:][judged], b.radius[:, bos:][judged]) for b in (x, mixed))
        low[rows][judged], high[rows][judged] = read(
            at, model, last(at, model, x_rows, mixed_rows), answers[rows][judged]
        )
    return low, high


def read(at: Arithmetic, model: Decoder, x: Ball, right: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds on the margins of rows of the last stream: quickly from below, and from both sides where that fails."""
    W_U = at.tensor(model.W_U)
    quick = torch.full((len(x.mid),), -torch.inf, dtype=torch.float64)
    if model.b_U is None and W_U.rad is None:
        quick = _below(at, x, W_U.mid, right)
    high = torch.full_like(quick, torch.inf)
    rows = (~(quick > 0)).nonzero().squeeze(1)
    for part in torch.split(rows, max(1, ROWS // W_U.mid.shape[1])):
        chosen = Ball(x.mid[part], x.radius[part])
        logits = product(at, chosen, W_U)
        if model.b_U is not None:
            logits = plus(at, logits, at.tensor(model.b_U))
        quick[part], high[part] = margins(logits, right[part])
    return quick, high


def _below(at: Arithmetic, x: Ball, W: Tensor, right: Tensor) -> Tensor:
    """A lower bound on the margins of x W: as `product` and `margins` have it, with one product for all errors."""
    d = W.shape[0]
    sizes, other = x.size, W.abs()
    if at.stored is not None and not bool((sizes @ other.amax(1, keepdim=True)).max() < at.stored.largest):
        return torch.full((len(x.mid),), -torch.inf, dtype=torch.float64)
    error = (at.own_sums(d) * sizes + x.radius) * (1 + gamma(2 * d + 16)) * ENLARGE**4
    logits, error = x.mid @ W, error @ other + at.lost_in_sums(d)
    rows = torch.arange(len(right))
    own = (logits - error)[rows, right]
    logits += error
    logits[rows, right] = -torch.inf
    rival = logits.amax(1)
    low = own - rival
    return low - 4 * U * (own.abs() + rival.abs() + low.abs())
