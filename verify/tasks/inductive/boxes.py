"""Every string up to a length, in real arithmetic or a dtype: a last layer of equal weights, by boxes.

One token comes first and is told from all later ones: BOS, or a first token that layers before it have marked. A row
stands for many positions: those with lo..hi later tokens, of which the own token t is the k-th of its type. There the
first and each later token weigh nearly 1/D, D = 1 + later tokens; own tokens give k values of t, and the others a
number in the hull of theirs. The weight is an error that all of a row share: what is read from shares of one weight is
compared under one weight, so that a row may stand for lengths that are twice each other. A row that does not close is
halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from constructions.decoder_arrays import DecoderArrays
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import OF_FEW, gamma, underflow
from verify.counting.tasks import FIRST, Task
from verify.frame.clock import Budget, Deadline
from verify.tasks.inductive import uniform
from verify.tasks.inductive.noisy import Allowed, Noisy, box, is_power, plus, sum_error

ARGUMENT = "rows of token, count and range of lengths, for every string: boxes with shared errors"
LARGEST = 1 << 40  # beyond every length that a dtype tells apart
EXCEEDED = "beyond it the error bounds exceed the margin"
CUT = "the {limit} ended there"
OVERFLOWS = "no bound is known that keeps scores from overflow"
REREAD = "a stored number may be read as another"


class Found(NamedTuple):
    """Up to which length all strings are right, the least margin times D bounded there, and what ended the search."""

    length: int
    margin_scaled: float
    margin: float
    ended_by: str = EXCEEDED


@dataclass(frozen=True)
class TokenBoxes:
    """What tokens have at any of their positions before the last layer, and what may stand first.

    `is_counted` says whether what stands first is a token of the types 0..K-1, and not BOS.
    Shapes: stream (K, d), values (K, inner) of later tokens; first (K, inner), or (1, inner) for BOS, of values.
    """

    stream: Noisy
    values: Noisy
    first: Noisy
    is_counted: bool = False


def applies(model: DecoderArrays, task: Task) -> bool:
    """Whether the argument speaks of a model: one layer, scores 0, BOS, counts of types or the first token of any."""
    is_any_first = task.name in FIRST and not task.has_distinct_start
    return (task.C is not None or is_any_first) and model.has_bos and uniform.applies(model)


@np.errstate(all="ignore")
def decide(
    model: DecoderArrays, task: Task, longest: int | None, reading: Real | Rounded, budget: float | Budget = 30.0
) -> Found:
    """The longest length up to which every string of the task is proved right, within some seconds."""
    at = Allowed.of(reading)
    model = uniform.without_idle(at, model)
    tokens, deadline = tokens_of(at, model, task), Budget.of(budget).deadline()
    return widest(at, model, task, lambda most: tokens, LARGEST if longest is None else longest, deadline)


def widest(
    at: Allowed,
    model: DecoderArrays,
    task: Task,
    tokens_of: Callable[[int], TokenBoxes | None],
    end: int,
    deadline: Deadline,
) -> Found:
    """Up to how many later tokens, and at most `end`, every string is proved right, given what tokens have by then."""
    done, scaled, margin = 0, float("inf"), float("inf")
    todo = [(lo, min(2 * lo - 1, end)) for lo in (1 << i for i in range(end.bit_length()))][::-1]
    while todo:
        if deadline.is_up():
            return Found(done, scaled, margin, CUT)
        lo, hi = todo.pop()
        tokens = tokens_of(hi)
        if tokens is None:
            return Found(done, scaled, margin, OVERFLOWS)
        low = rows(at, model, task, tokens, lo, hi)
        if bool((low > 0).all()):
            done, least = hi, float(low.min())
            margin, scaled = min(margin, least), min(scaled, least * (lo + 1) * (1 - OF_FEW))
        elif lo < hi:
            middle = (lo + hi) // 2
            todo += [(middle + 1, hi), (lo, middle)]
        else:
            break
    return Found(done, scaled, margin)


def tokens_of(at: Allowed, model: DecoderArrays, task: Task) -> TokenBoxes | None:
    """Streams and values of all tokens, over all positions that they may have; None where a score may overflow."""
    K = task.K
    assert K is not None
    x = streams(at, model)
    values = uniform.values_of(at, model, x)
    if values is None:
        return None
    values = hull(values.boxed([q for q in values.shared if q != "heads.s"]))
    types, bos = np.arange(K), np.array([K])
    return TokenBoxes(hull(x)[types], values[types], values[bos])


def streams(at: Allowed, model: DecoderArrays) -> Noisy:
    """The stream of each token, BOS last, at each position before the first block: (tokens, positions, d)."""
    E = at.tensor(model.W_E)
    x = E.each(lambda a: a[:, None])
    if model.pe not in ("ape", "sine", "spe"):
        return x
    table = at.tensor(model.table).each(lambda a: np.broadcast_to(a, (len(E.mid), *a.shape)))
    x = x.each(lambda a: np.broadcast_to(a, (*table.mid.shape[:2], a.shape[-1])))
    return uniform.beside(x, table) if model.pe == "spe" else plus(at, x, table)


def hull(x: Noisy) -> Noisy:
    """Rows (tokens, positions, d) as one row for each token: itself where it has one position, else a box."""
    if x.mid.shape[1] == 1:
        return x.each(lambda a: a[:, 0])
    return box((x.mid - x.noise).min(1), (x.mid + x.noise).max(1))


def rows(at: Allowed, model: DecoderArrays, task: Task, tokens: TokenBoxes, lo: int, hi: int) -> np.ndarray:
    """Lower bounds on the margins of all cells (first token, token, count) with lo..hi later tokens.

    Where the first token is asked for, a token is it where no other came after BOS; with more, t is among them once at
    least, and the others are of any types.
    """
    K, C = len(tokens.values.mid), min(task.C or 1, hi)
    s, t, k = (part.flatten() for part in np.meshgrid(
        np.arange(len(tokens.first.mid)), np.arange(K), np.arange(1, C + 1), indexing="ij"
    ))  # fmt: skip
    count = k + (s == t) if tokens.is_counted else k
    is_judged = count <= (task.C or 1)
    s, t, k, count = (part[is_judged] for part in (s, t, k, count))
    right, others = np.array([task.class_of(int(i)) for i in count]), others_hull(tokens.values, t)
    if task.name in FIRST:
        assert lo > 1 or hi == 1
        right, others = np.full_like(t, int(hi == 1)), others_hull(tokens.values, np.full_like(t, -1))
    mixed = means(at, tokens, LaterCells(s, t, k.astype(np.float64)[:, None], others, lo, hi))
    x = tokens.stream[t]
    low, _ = uniform.read(at, model, uniform.last(at, model, x, mixed, len(model.blocks) - 1), right)
    return np.where(np.isnan(low), -np.inf, low)


class LaterCells(NamedTuple):
    """Cells where s is first, and of lo..hi later tokens t is k; `others` (cells, inner) holds the values of the rest.

    Shapes: s, t (cells,); k (cells, 1).
    """

    s: np.ndarray
    t: np.ndarray
    k: np.ndarray
    others: Noisy
    lo: int
    hi: int


def means(at: Allowed, tokens: TokenBoxes, row: LaterCells) -> Noisy:
    """The mean of the values of each cell: (cells, inner)."""
    s, t, k, others, lo, hi = row
    values = tokens.values
    own, first = values[t], tokens.first[s]
    least, most = 1 / (hi + 1) * (1 - 2.0**-52), 1 / (lo + 1) * (1 + 2.0**-52)
    w = (least + most) / 2
    off = float(uniform.weight(at, np.array([hi + 1.0]))[0])
    spread = ((most - least) / (2 * w) * (1 + off) + off) * ENLARGE
    # the others' shares: any number of them from 0 to `many`, each nearly 1/D
    many = np.maximum((hi - k) / (hi + 1), 0.0) * (1 + OF_FEW)
    top, bottom = np.maximum(others.mid + others.noise, 0) * many, np.minimum(others.mid - others.noise, 0) * many
    rest = Noisy((top + bottom) / 2, (top - bottom) / 2 * (1 + 2 * min(off, 1.0)) * ENLARGE)
    mid = w * (first.mid + k * own.mid) + rest.mid
    shared = {}
    if "heads.s" in values.shared:
        shared = {"bos.s": w * first.shared["heads.s"], "own.s": w * k * own.shared["heads.s"]}
    sizes = (w * (first.size + k * own.size)) * ENLARGE
    error = w * (first.own + k * own.own) + rest.own + gamma(8) * (sizes + rest.size)
    error = error + underflow((first.size > 0) | (own.size > 0) | (others.size > 0), 32)
    if not at.is_real:
        error = error + rounding(at, first, own, row, w * (1 + spread), many) + at.lost_in_sums(hi + 1)
    straight = w * (first.mid + k * own.mid)  # what scales with the weight; the rest holds its own weights
    noise = Noisy(mid, error, shared).noise
    error = at.checked(2 * (sizes + rest.size) * (1 + spread), (error + spread * noise + 2 * off * rest.size) * ENLARGE)
    return Noisy(mid, error, {**shared, "weights": straight * spread})


def others_hull(values: Noisy, t: np.ndarray) -> Noisy:
    """The hull of the values of all tokens but t, or of all where t is -1; zero where there is no other."""
    low, high = values.mid - values.noise, values.mid + values.noise
    is_own = (np.arange(len(low)) == t[:, None])[..., None]
    bottom, top = np.where(is_own, np.inf, low).min(1), np.where(is_own, -np.inf, high).max(1)
    is_alone = is_own.all(1)
    bottom, top = np.where(is_alone, 0.0, bottom), np.where(is_alone, 0.0, top)
    return box(bottom, top)


def rounding(at: Allowed, first: Noisy, own: Noisy, row: LaterCells, w: float, many: np.ndarray) -> np.ndarray:
    """What a dtype's sums of values times weights are off by: (cells, inner).

    Large are the first and the token's own values, and the others where they are not small; see `uniform.means`.
    """
    k, hi, others = row.k, row.hi, row.others.size
    ours = first.size + k * own.size
    is_small = others <= at.u * ours
    counted = (first.size > 0).astype(np.float64) + np.where(own.size > 0, k, 0.0)
    terms = np.where(is_small, counted, counted + hi)
    error = sum_error(at, int(k.max()) + 2)
    few = error[np.clip(terms.astype(np.int64) - 1, 0, len(error) - 1)]
    growth = at.sums(hi + 2) if (hi + 4) * at.u < 0.5 else np.inf
    is_exact = is_power(first.mid) & (first.noise == 0) & is_power(own.mid) & (own.noise == 0) & is_small
    in_products = np.where(is_exact, 0.0, error[1])
    relative = in_products + np.where(is_small | (others == 0), few, growth) * (1 + in_products)
    large = w * ours + np.where(is_small, 0.0, others * many)
    small = np.where(is_small, others * many, 0.0) * 2 * (1 + at.u) ** min(hi + 4, int(4 / at.u))
    return np.asarray((relative * (large + small) + 2 * at.u * large + small * (1 + 2 * at.u)) * ENLARGE)
