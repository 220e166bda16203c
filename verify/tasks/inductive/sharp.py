"""One layer whose head brings nearly one key's value: its weight is 1 but for a tail that bounds all errors.

What a tail makes of the mean is `error_beside_one` in `verify/arithmetic/softmax.py`; which keys it is made of, how far
their scores are behind the best, and which errors the numbers share is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from constructions.decoder_arrays import AttentionArrays, DecoderArrays
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import ENLARGE_LONG, LEAST, LOST, OF_MANY, U, gamma, underflow
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.softmax import error_beside_one
from verify.tasks.inductive import uniform
from verify.tasks.inductive.noisy import Allowed, Noisy, layer_norm, plus, product
from verify.tasks.inductive.runs import MarginBounds, Runs, padded

ARGUMENT = "one layer whose head brings one key's value: a tail bounds its error"
SCORES = 1 << 18  # of all strings that are run together
APART = 4  # numbers that a head brings, whose errors are kept apart


def applies(model: DecoderArrays) -> bool:
    """Whether the model has one layer with one head, and scores that no rotation changes."""
    if len(model.blocks) != 1 or model.pe == "rope" or uniform.applies(model) or uniform.is_faint(model):
        return False
    attention = model.blocks[0].attention
    return bool(attention.n_heads == 1)


def bounds(runs: Runs, reading: Real | Rounded) -> Iterator[MarginBounds]:
    """Bounds on the margins at every shift, without any where no key has nearly all weight."""
    at, done = Allowed.of(reading), 0
    while done < len(runs.shifts):
        longest, number = max(len(line.tokens) for line in runs.lines(done)), len(runs.lines(done))
        shifts = runs.shifts[done : done + max(1, SCORES // (number * (longest + runs.bos) ** 2))]
        yield from _together(at, runs, shifts, longest)
        done = shifts.stop


@np.errstate(all="ignore")
def _together(at: Allowed, runs: Runs, shifts: range, longest: int) -> list[MarginBounds]:
    """Bounds at some shifts, whose lines are run together; each ends where the positions do."""
    model, bos, lines = runs.decoder, int(runs.bos), [runs.lines(shift) for shift in shifts]
    tokens, answers = padded(runs.task, (line.tokens for part in lines for line in part), longest)
    sizes = [len(part) for part in lines]
    x = uniform.embedded(at, model, uniform.with_bos(model, tokens), np.repeat(shifts, sizes))
    mixed, judged = brought(at, scored(at, model, x)), answers >= 0
    low, high = np.full(tokens.shape, np.inf), np.full(tokens.shape, np.inf)
    own, mixed = (part.each(lambda a: a[:, bos:][judged]) for part in (x, mixed))
    low[judged], high[judged] = uniform.read(at, model, uniform.last(at, model, own, mixed), answers[judged])
    found, first = [], 0
    for shift, part in zip(shifts, lines, strict=True):
        here = slice(first, first + len(part)), slice(max(len(line.tokens) for line in part))
        found.append(MarginBounds(range(shift, shift + 1), part, low[here], high[here], "balls"))
        first += len(part)
    return found


class Scored(NamedTuple):
    """The values (..., n, inner) of the keys of strings, the scores (..., n, n) of each two positions, masked or not,
    and what those are off by."""

    values: Noisy
    scores: np.ndarray
    off: np.ndarray

    def part(self, rows: slice) -> Scored:
        """Those of a string that has these positions alone."""
        v = self.values.each(lambda a: a[..., rows, :])
        return Scored(v, self.scores[..., rows, rows], self.off[..., rows, rows])


class Heard(NamedTuple):
    """The values (..., n, inner) of the keys of strings, the best key's (..., n, inner) of each position, and how far
    others are behind it.

    `behind` (..., n, n) bounds each score less the best key's from above; -inf for masked keys, and for the best
    itself unless its score may overflow.
    """

    values: Noisy
    best: Noisy
    behind: np.ndarray


def scored(at: Allowed, model: DecoderArrays, x: Noisy) -> Scored:
    """The keys of strings, of which x (..., n, d) are the rows of the stream."""
    block = model.blocks[0]
    seen = layer_norm(at, x, block.norm_1, "heads")
    q, k, v = (_read(at, block.attention, seen, name).boxed() for name in ("Q", "K", "V"))
    scores = product(at, q, Noisy(k.mid, k.noise).each(lambda a: np.swapaxes(a, -2, -1)))
    off = scores.noise + 4 * U * scores.size
    root = math.sqrt(block.attention.d_head)
    if not at.is_real and math.frexp(root)[0] != 0.5:
        off = off + 3 * at.u * scores.size
    off = off / root * ENLARGE + underflow(scores.size > 0, 2) + (0.0 if at.is_real or root == 1 else at.tiny)
    return Scored(v, scores.mid / root, off)


def heard(at: Allowed, keys: Scored) -> Heard:
    """The best key of each position, and how far others are behind it."""
    v, scores, off = keys
    n = scores.shape[-1]
    is_future = np.triu(np.ones((n, n), bool), 1)
    mid = np.where(is_future, -np.inf, scores)
    best = mid.argmax(-1)[..., None]
    behind = (mid - np.take_along_axis(mid, best, -1) + off + np.take_along_axis(off, best, -1)) * (1 - 4 * U)
    behind = np.where(behind < 0, behind * (1 - 2 * at.u), np.inf)  # a difference is rounded
    is_known = np.isfinite(np.take_along_axis(mid + off, best, -1))  # else it may be NaN, as is then its weight
    np.put_along_axis(behind, best, np.where(is_known, -np.inf, np.inf), -1)
    own = v.each(lambda a: np.take_along_axis(a, best, -2))
    return Heard(v, own, np.where(is_future, -np.inf, behind))


def powers(behind: np.ndarray) -> np.ndarray:
    """Upper bounds on e^behind."""
    found = np.exp(behind + OF_MANY * np.nan_to_num(np.abs(behind), posinf=0.0)) * ENLARGE_LONG
    return np.where(np.isneginf(behind), 0.0, found + LOST)


def brought(at: Allowed, keys: Scored) -> Noisy:
    """What the head mixes at each position of strings, (..., n, inner); unbounded where no key stands out."""
    v, own, behind = heard(at, keys)
    n = behind.shape[-1]
    largest = np.maximum.accumulate(v.size, -2)  # of the keys that are seen
    total = powers(behind).sum(-1, keepdims=True)
    error = error_beside_one(total, n, at, own.size, own.noise, largest) + underflow(largest > 0, 8)
    if at.stored is not None:
        holds = rounded(own.mid, at.stored) == own.mid
        error = error + np.where(holds, 0.0, 4 * at.u * own.size) + 4 * n * at.tiny
    return _column_by_column(own.mid, at.checked(2 * largest, error * ENLARGE + 8 * U * own.size))


def _column_by_column(mid: np.ndarray, error: np.ndarray) -> Noisy:
    """Rows whose numbers are off by one error each, which all that reads the number shares; a few of them at most."""
    columns = np.flatnonzero((error > 0).reshape(-1, error.shape[-1]).any(0)).tolist()
    if len(columns) > APART:
        return Noisy(mid, error)
    place, is_some = np.arange(mid.shape[-1]), np.isfinite(error)
    shared = {f"brought.{i}": np.where((place == i) & is_some, error, 0.0) for i in columns}
    return Noisy(mid, np.where(is_some, 0.0, error), shared)


def mixed_near(at: Allowed, keys: Scored) -> Noisy:
    """What the head mixes, in real arithmetic bounded by each key's own distance, so that no key need stand out."""
    if not at.is_real:
        return brought(at, keys)
    v, own, behind = heard(at, keys)
    weights = np.minimum(powers(behind), 1.0)
    return Noisy(own.mid, (reached(weights, v, own) + own.noise + 8 * U * own.size) * ENLARGE)


def reached(weights: np.ndarray, v: Noisy, own: Noisy) -> np.ndarray:
    """How far means in real arithmetic are from the best keys' values at most: (n, inner).

    A mean less the best key's value v is the sum of w_j (v_j - v) over the other keys, with w_j at most e^(s_j - s) and
    at most 1; `weights` (n, n) bounds them, and is 0 for the best key.
    """
    out = np.zeros_like(own.mid)
    for lane in np.flatnonzero(v.size.max(0) != 0):
        apart = np.abs(v.mid[:, lane] - own.mid[:, lane, None]) * ENLARGE + v.noise[:, lane] + own.noise[:, lane, None]
        out[:, lane] = (weights * apart).sum(1) * (1 + gamma(len(weights) + 4)) + len(weights) * LEAST
    return out


def _read(at: Allowed, attention: AttentionArrays, seen: Noisy, name: str) -> Noisy:
    out = product(at, seen, at.tensor(getattr(attention, f"W_{name}")))
    bias: np.ndarray | None = getattr(attention, f"b_{name}")
    return out if bias is None else plus(at, out, at.tensor(bias))
