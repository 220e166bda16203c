"""Every string without BOS up to a length: a first layer that tells the first token from all later ones, by boxes.

The second layer has equal weights, so that `boxes` decides it, given boxes that hold what the first layer leaves of
each type: at the first position, where its heads have one key and bring that key's value, and at all later ones. There
a head either brings nearly the first key's value, with a tail that bounds the others', or it has equal weights and
brings a mean of values. In a string whose first two tokens differ, that mean has between 1/n and 1 - 1/n of each
token's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from constructions.decoder_arrays import AttentionArrays, DecoderArrays
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import gamma, underflow
from verify.counting.tasks import Task
from verify.frame.clock import Budget, Deadline
from verify.tasks.inductive import boxes, sharp, uniform
from verify.tasks.inductive.boxes import Found, TokenBoxes
from verify.tasks.inductive.noisy import Allowed, Noisy, box, joined, layer_norm, plus, product

ARGUMENT = "the first token and later ones after layer 1, then rows of token, count and range of lengths: boxes"
LARGEST = 1 << 20  # no table of positions, and no length that weights store, is larger
TOGETHER = 4  # first positions whose strings are bounded at once


def applies(model: DecoderArrays, task: Task) -> bool:
    """Whether the argument speaks of a model: two layers, no BOS, counts of types, equal weights in the second layer,
    and a first layer of equal weights without positions, or of one head with positions that are added to the stream."""
    if task.C is None or model.has_bos or len(model.blocks) != 2 or not uniform.has_zero_scores(model.blocks[1]):
        return False
    if uniform.is_faint(model):
        return False
    return _has_shares(model, task) or (model.pe in ("ape", "sine", "spe") and _attention(model).n_heads == 1)


def _has_shares(model: DecoderArrays, task: Task) -> bool:
    return task.has_distinct_start and model.pe in ("nope", "rope") and uniform.has_zero_scores(model.blocks[0])


def _attention(model: DecoderArrays) -> AttentionArrays:
    return model.blocks[0].attention


@np.errstate(all="ignore")
def decide(
    model: DecoderArrays, task: Task, longest: int | None, reading: Real | Rounded, budget: float | Budget
) -> Found:
    """The longest length up to which every string of the task is proved right, within some seconds."""
    at = Allowed.of(reading)
    model = uniform.without_idle(at, model)
    deadline = Budget.of(budget).deadline()
    end = LARGEST if longest is None else longest
    firsts = first_tokens(at, model)
    if firsts is None:
        return Found(0, math.inf, math.inf, boxes.OVERFLOWS)
    least = float(single(at, model, task, firsts).min())
    if not least > 0:
        return Found(0, math.inf, math.inf)
    later = _later_tokens(at, model, task, end, deadline)
    found = boxes.widest(at, model, task, later(firsts), end - 1, deadline)
    return Found(found.length + 1, min(found.margin_scaled, least), min(found.margin, least), found.ended_by)


def first_tokens(at: Allowed, model: DecoderArrays) -> TokenBoxes | None:
    """Streams before the second layer, and values there, of each type at the first position; None where a score of the
    single key may overflow. Softmax of one finite score is 1, in a dtype too, and masked keys weigh 0."""
    x = boxes.streams(at, model)
    seen = layer_norm(at, x, model.blocks[0].norm_1, "heads")
    if _scores_may_overflow(at, model, seen):
        return None
    mixed = uniform.taken(at, _attention(model), seen)
    return _enclosed(at, model, uniform.after(at, model, x, mixed, 0))


def _scores_may_overflow(at: Allowed, model: DecoderArrays, seen: Noisy) -> bool:
    """Whether a score of layer 1 may overflow in the dtype, or be no number."""
    attention, sizes = _attention(model), []
    if at.stored is None:
        stored = (attention.W_Q, attention.W_K, attention.b_Q, attention.b_K)
        return not all(bool(np.isfinite(x).all()) for x in stored if x is not None)
    for name in ("Q", "K"):
        rows = product(at, seen, at.tensor(getattr(attention, f"W_{name}")))
        bias: np.ndarray | None = getattr(attention, f"b_{name}")
        rows = rows if bias is None else plus(at, rows, at.tensor(bias))
        sizes.append(rows.size.max((0, 1)))  # of each number of a query, or a key
    return not bool(4 * (sizes[0] * sizes[1]).sum() <= at.stored.largest and np.isfinite(sizes[0] + sizes[1]).all())


def _enclosed(at: Allowed, model: DecoderArrays, x: Noisy) -> TokenBoxes | None:
    """Boxes of streams (types, rows, d) before the second layer, over all rows, and of their values."""
    found = uniform.values_of(at, model, x, 1)
    if found is None:
        return None
    stream, values = (boxes.hull(rows).boxed() for rows in (x, found))
    return TokenBoxes(stream, values, values, is_counted=True)


def single(at: Allowed, model: DecoderArrays, task: Task, firsts: TokenBoxes) -> np.ndarray:
    """Lower bounds on the margins of the strings of one token: (K,)."""
    right = np.full((len(firsts.stream.mid),), task.class_of(1))
    low, _ = uniform.read(at, model, uniform.last(at, model, firsts.stream, firsts.first, 1), right)
    return np.where(np.isnan(low), -np.inf, low)


def _later_tokens(
    at: Allowed, model: DecoderArrays, task: Task, end: int, deadline: Deadline
) -> Callable[[TokenBoxes], Callable[[int], TokenBoxes | None]]:
    """What later tokens have, given the first ones, as a function of how many there are at most."""

    def joined(firsts: TokenBoxes, later: TokenBoxes | None) -> TokenBoxes | None:
        return None if later is None else TokenBoxes(later.stream, later.values, firsts.first, is_counted=True)

    if _has_shares(model, task):
        return lambda firsts: lambda most: joined(firsts, by_shares(at, model, most + 1))
    found = by_positions(at, model, end, deadline) if end > 1 else None
    return lambda firsts: lambda most: joined(firsts, found)


def by_shares(at: Allowed, model: DecoderArrays, n: int) -> TokenBoxes | None:
    """What types have after the first position of strings of up to n tokens whose first two differ.

    The mean of values is between (1/n) v + (1 - 1/n) u and (1 - 1/n) v + (1/n) u, v the own type's value and u one in
    the hull of the others'. A dtype's weights are off from 1/n together, and its sums by what sums of n terms are.
    """
    x = boxes.streams(at, model)
    found = uniform.values_of(at, model, x)
    if found is None:
        return None
    values = found.boxed().each(lambda a: a[:, 0])
    others = boxes.others_hull(values, np.arange(len(values.mid)))
    low, high = np.full_like(values.mid, np.inf), np.full_like(values.mid, -np.inf)
    for own in (1 / n, 1 - 1 / n):
        mid = own * values.mid + (1 - own) * others.mid
        reach = (own * values.noise + (1 - own) * others.noise) * ENLARGE
        low, high = np.minimum(low, mid - reach), np.maximum(high, mid + reach)
    size = np.maximum(values.size, others.size)
    off = float(uniform.weight(at, np.array([float(n)]))[0])
    each = off + (0.0 if at.is_real else (at.sums(n) + at.u) * (1 + off)) + gamma(16)
    lost = 0.0 if at.is_real else at.lost_in_sums(n)
    mixed, error = box(low, high), each * size + lost + underflow(size > 0, 16)
    mixed = Noisy(mixed.mid, at.checked(2 * size, (mixed.own + error) * ENLARGE))
    after = uniform.after(at, model, x, mixed.each(lambda a: a[:, None]), 0)
    return _enclosed(at, model, after)


def by_positions(at: Allowed, model: DecoderArrays, n: int, deadline: Deadline) -> TokenBoxes | None:
    """What types have after the first position, at each first and own position id of strings of up to n tokens."""
    x = boxes.streams(at, model)
    any_type = boxes.hull(x.each(lambda a: a.swapaxes(0, 1)))
    found, end = [], x.mid.shape[1]
    for together in range(0, end - 1, TOGETHER):
        if deadline.is_up():
            return None
        firsts = range(together, min(together + TOGETHER, end - 1))
        own = np.concatenate([np.arange(first + 1, min(first + n, end)) for first in firsts])
        keys = sharp.scored(at, model, any_type.each(lambda a: a[together : firsts[-1] + n]))  # noqa: B023
        strings = (sharp.mixed_near(at, keys.part(slice(i, i + n))) for i in range(len(firsts)))
        mixed = joined([string.each(lambda a: a[1:]) for string in strings], 0).each(lambda a: a[None])
        rows = x.each(lambda a: a[:, own])  # noqa: B023
        part = _enclosed(at, model, uniform.after(at, model, rows, mixed, 0))
        if part is None:
            return None
        found.append(part)
    stream, values = (
        boxes.hull(joined([getattr(part, name).each(lambda a: a[:, None]) for part in found], 1))
        for name in ("stream", "values")
    )
    return TokenBoxes(stream, values, values, is_counted=True)
