"""Every string up to a length, in real arithmetic or a dtype: one layer of equal weights with BOS, by boxes.

A row stands for many positions: those at length lo..hi whose own token is t for the k-th time. There BOS and each token
weigh nearly 1/D, D = 1 + length; own tokens give k values of t, and the other length - k tokens a number in the hull of
theirs. The weight is an error that all of a row share: what is read from shares of one weight is compared under one
weight, so that a row may stand for lengths that are twice each other. A row that does not close is halved.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constructions.decoder import Decoder
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import gamma
from verify.engine.balls import Arithmetic
from verify.inductive.tasks import Task
from verify.inductive.transformer import uniform
from verify.inductive.transformer.noisy import Noisy, is_power, layer_norm, plus, sum_error

ARGUMENT = "rows of token, count and range of lengths, for every string: boxes with shared errors"
LARGEST = 1 << 40  # beyond every length that a dtype tells apart


class Found(NamedTuple):
    """Up to which length all strings are right, and the least margin times D bounded there."""

    length: int
    margin_scaled: float
    margin: float


@dataclass(frozen=True)
class Tokens:
    """What tokens have at any of their positions: stream (K [+ BOS], d), values (K [+ BOS], inner); BOS is last."""

    stream: Noisy
    values: Noisy
    K: int


def applies(model: Decoder, task: Task) -> bool:
    """Whether the argument speaks of a model: one layer, scores 0, BOS, counts of types."""
    return task.C is not None and model.has_bos and uniform.applies(model)


def decide(model: Decoder, task: Task, longest: int | None, reading: Real | Rounded, budget: float = 30.0) -> Found:
    """The longest length up to which every string of the task is proved right, within some seconds."""
    at = Arithmetic() if isinstance(reading, Real) else Arithmetic(reading.format, reading.accumulate)
    tokens = tokens_of(at, model, task)
    end = LARGEST if longest is None else longest
    done, scaled, margin = 0, float("inf"), float("inf")
    todo = [(lo, min(2 * lo - 1, end)) for lo in (1 << i for i in range(end.bit_length()))][::-1]
    deadline = time.perf_counter() + budget
    while todo and tokens is not None and time.perf_counter() < deadline:
        lo, hi = todo.pop()
        low = rows(at, model, task, tokens, lo, hi)
        if bool((low > 0).all()):
            done, least = hi, float(low.min())
            margin, scaled = min(margin, least), min(scaled, least * (lo + 1) * (1 - 2.0**-50))
        elif lo < hi:
            middle = (lo + hi) // 2
            todo += [(middle + 1, hi), (lo, middle)]
        else:
            break
    return Found(done, scaled, margin)


def tokens_of(at: Arithmetic, model: Decoder, task: Task) -> Tokens | None:
    """Streams and values of all tokens, over all positions that they may have; None where a score may overflow."""
    block: Any = model.blocks[0]
    K = task.K
    assert K is not None
    every = torch.arange(K + 1)[:, None]
    E = at.tensor(model.W_E)
    x = Noisy(E.mid[every], E.radius[every])
    if model.pe in ("ape", "sine", "spe"):
        table = at.tensor(model.W_pos)
        at_each = Noisy(table.mid.expand(K + 1, -1, -1), table.radius.expand(K + 1, -1, -1))
        x = x.each(lambda a: a.expand(-1, table.mid.shape[0], -1))
        joined = Noisy(torch.cat([x.mid, at_each.mid], -1), torch.cat([x.own, at_each.own], -1))
        x = joined if model.pe == "spe" else plus(at, x, at_each)
    seen = layer_norm(at, x, block.norm_1, "heads")
    if uniform.may_overflow(at, block.attention, seen):
        return None
    values = uniform.values_of(at, model, seen)
    return Tokens(hull(x), hull(values.boxed([q for q in values.shared if q != "heads.s"])), K)


def hull(x: Noisy) -> Noisy:
    """Rows (tokens, positions, d) as one row for each token: itself where it has one position, else a box."""
    if x.mid.shape[1] == 1:
        return x.each(lambda a: a[:, 0])
    low, high = (x.mid - x.noise).amin(1), (x.mid + x.noise).amax(1)
    mid = (low + high) / 2
    return Noisy(mid, ((high - low) / 2 + 2.0**-50 * (low.abs() + high.abs())) * ENLARGE)


def rows(at: Arithmetic, model: Decoder, task: Task, tokens: Tokens, lo: int, hi: int) -> Tensor:
    """Lower bounds on the margins of all cells (token, count) at the lengths lo..hi."""
    K, C = tokens.K, min(task.C or 1, hi)
    t = torch.arange(K).repeat_interleave(C)
    k = torch.arange(1, C + 1, dtype=torch.float64).repeat(K)[:, None]
    right = torch.tensor([task.answers((0,) * int(i))[-1] for i in k.flatten()])
    mixed = means(at, tokens, t, k, lo, hi)
    x = tokens.stream.each(lambda a: a[t])
    low, _ = uniform.read(at, model, uniform.last(at, model, x, mixed), right)
    return torch.where(torch.isnan(low), -torch.inf, low)


def means(at: Arithmetic, tokens: Tokens, t: Tensor, k: Tensor, lo: int, hi: int) -> Noisy:
    """The mean of values where token t comes for the k-th time, at the lengths lo..hi: (cells, inner)."""
    values = tokens.values
    own, first = values.each(lambda a: a[t]), values.each(lambda a: a[-1:])
    others = others_hull(values, t, len(values.mid) - 1)
    least, most = 1 / (hi + 1) * (1 - 2.0**-52), 1 / (lo + 1) * (1 + 2.0**-52)
    w = (least + most) / 2
    off = float(uniform.weight(at, torch.tensor([hi + 1.0]))[0])
    spread = ((most - least) / (2 * w) * (1 + off) + off) * ENLARGE
    # the others' shares: any number of them from 0 to `many`, each nearly 1/D
    many = ((hi - k) / (hi + 1)).clamp(min=0.0) * (1 + 2.0**-50)
    top, bottom = (others.mid + others.noise).clamp(min=0) * many, (others.mid - others.noise).clamp(max=0) * many
    box = Noisy((top + bottom) / 2, (top - bottom) / 2 * (1 + 2 * min(off, 1.0)) * ENLARGE)
    mid = w * (first.mid + k * own.mid) + box.mid
    shared = {}
    if "heads.s" in values.shared:
        shared = {"bos.s": w * first.shared["heads.s"].expand_as(mid), "own.s": w * k * own.shared["heads.s"]}
    sizes = (w * (first.size + k * own.size)) * ENLARGE
    error = w * (first.own + k * own.own) + box.own + gamma(8) * (sizes + box.size)
    if not at.is_real:
        error = error + rounding(at, tokens, t, k, hi, w * (1 + spread), many) + at.lost_in_sums(hi + 1)
    straight = w * (first.mid + k * own.mid)  # what scales with the weight; the box holds its own weights
    noise = Noisy(mid, error, shared).noise
    error = at.checked((sizes + box.size) * (1 + spread), (error + spread * noise + 2 * off * box.size) * ENLARGE)
    return Noisy(mid, error, {**shared, "weights": straight * spread})


def others_hull(values: Noisy, t: Tensor, K: int) -> Noisy:
    """The hull of the values of all tokens but t, for each t; zero where there is no other."""
    low, high = values.mid - values.noise, values.mid + values.noise
    is_own = (torch.arange(K + 1) == t[:, None])[..., None]
    is_own[:, K] = True  # BOS is no other token
    bottom, top = torch.where(is_own, torch.inf, low).amin(1), torch.where(is_own, -torch.inf, high).amax(1)
    is_alone = torch.isinf(bottom)
    bottom, top = torch.where(is_alone, 0.0, bottom), torch.where(is_alone, 0.0, top)
    return Noisy((bottom + top) / 2, ((top - bottom) / 2 + 2.0**-50 * (top.abs() + bottom.abs())) * ENLARGE)


def rounding(at: Arithmetic, tokens: Tokens, t: Tensor, k: Tensor, hi: int, w: float, many: Tensor) -> Tensor:
    """What a dtype's sums of values times weights are off by: (cells, inner).

    Large are BOS and the token's own values, and the others where they are not small; see `uniform.means`.
    """
    values = tokens.values
    first, own = values.each(lambda a: a[-1:]), values.each(lambda a: a[t])
    others = others_hull(values, t, len(values.mid) - 1).size
    ours = first.size + k * own.size
    is_small = others <= at.u * ours
    counted = (first.size > 0).double() + torch.where(own.size > 0, k, 0.0)
    terms = torch.where(is_small, counted, counted + hi)
    error = sum_error(at, int(k.max()) + 2)
    few = error[(terms.long() - 1).clamp(0, len(error) - 1)]
    growth = at.sums(hi + 2) if (hi + 4) * at.u < 0.5 else torch.inf
    is_exact = is_power(first.mid) & (first.noise == 0) & is_power(own.mid) & (own.noise == 0) & is_small
    in_products = torch.where(is_exact, 0.0, error[1])
    relative = in_products + torch.where(is_small | (others == 0), few, growth) * (1 + in_products)
    large = w * ours + torch.where(is_small, 0.0, others * many)
    small = torch.where(is_small, others * many, 0.0) * 2 * (1 + at.u) ** min(hi + 4, int(4 / at.u))
    return (relative * (large + small) + 2 * at.u * large + small * (1 + 2 * at.u)) * ENLARGE
