"""Every string without BOS up to a length: one layer of equal weights over tokens and positions.

The value of a token at a position is a number of the token's, more one of the position's, more a remainder that is
bounded; LayerNorm makes it small where it divides by nearly one number. So the mean over n tokens of which k are the
own one is k/n of that token's number, (n - k)/n of one in the hull of the others', and the mean over a window of
positions, which every string of n tokens at a shift shares. The stream adds the own position to that: over all shifts
it is nearly a polynomial in the shift, whose terms are shared errors, so that what no shift changes stays sharp. All
that is in real arithmetic; in a dtype a margin is less by what its logits drift.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from constructions.decoder_arrays import DecoderArrays
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma, underflow
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.tasks.inductive import boxes, drift, uniform
from verify.tasks.inductive.boxes import Found
from verify.tasks.inductive.noisy import Allowed, Noisy, joined

ARGUMENT = "equal weights over tokens and positions: rows of token, count and length, shifts as shared errors"
LARGEST = 1 << 20  # no table of positions is larger
DEGREE = 7  # of polynomials in the shift
TOGETHER = 4  # lengths whose cells are bounded at once


def applies(model: DecoderArrays, task: Task) -> bool:
    """Whether the argument speaks of a model: one layer, scores 0, no BOS, positions in the stream, counts of types."""
    return task.C is not None and not model.has_bos and uniform.applies(model) and model.pe in ("ape", "spe", "sine")


@np.errstate(all="ignore")
def decide(
    model: DecoderArrays, task: Task, longest: int | None, reading: Real | Rounded, budget: float | Budget
) -> Found:
    """The longest length up to which every string of the task is proved right at every shift, within some seconds."""
    found, deadline = Found(0, math.inf, math.inf), Budget.of(budget).deadline()
    known = drift.by_length(model, reading)
    if known is None:
        return found._replace(ended_by=boxes.REREAD)
    at, (model, lost) = Allowed(), known
    model = uniform.without_idle(at, model)
    longest = min(longest or len(model.table), len(model.table))
    types, places, rest = parts(values(at, model))
    bounds = (
        least
        for first in range(1, longest + 1, TOGETHER)
        for least in of_lengths(at, model, task, types, rest, places, range(first, min(first + TOGETHER, longest + 1)))
    )
    for n, least in enumerate(bounds, 1):
        least = (least - (lost(longest) if least > lost(longest) else lost(n))) * (1 - 4 * U)
        if not least > 0:
            break
        if deadline.is_up():
            return found._replace(ended_by=boxes.CUT)
        found = Found(n, min(found.margin_scaled, n * least * (1 - 4 * U)), min(found.margin, least))
    return found


def values(at: Allowed, model: DecoderArrays) -> Noisy:
    """What the head takes from each token at each position: (types, P, inner)."""
    found = uniform.values_of(at, model, boxes.streams(at, model))
    assert found is not None  # in real arithmetic no score overflows
    return found.boxed()


def parts(x: Noisy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of types (K, inner) and of positions (P, inner) whose sums the rows of x (K, P, inner) are, up to a
    remainder (inner,). Any numbers will do: the remainder is what they leave."""
    places = x.mid.mean(0)
    types = (x.mid - places).mean(1)
    sizes = np.abs(x.mid) + np.abs(places) + np.abs(types)[:, None]
    left = np.abs(x.mid - places - types[:, None]) + x.own + 8 * U * sizes
    return types, places, left.max((0, 1)) * ENLARGE


def window(at: Allowed, model: DecoderArrays, places: np.ndarray, n: int) -> Noisy:
    """What the last of n positions and the mean of their numbers add to the stream, over all shifts: (1, d).

    The shifts' rows are nearly polynomials of few degrees in the shift: what each Chebyshev polynomial T_i brings, with
    |T_i| <= 1, is one shared error, and what is left is a remainder. Any coefficients will do. A mean may lose
    LEAST / 2 to underflow, which W_O multiplies, and so may each product with it.
    """
    block = model.blocks[0]
    W_O = at.tensor(block.attention.W_O).mid
    table = at.tensor(model.table).mid
    table = np.pad(table, ((0, 0), (W_O.shape[1] - table.shape[1], 0)))  # spe's lane is the last
    own, mean = table[n - 1 :], np.lib.stride_tricks.sliding_window_view(places, n, 0).mean(-1)
    size = np.lib.stride_tricks.sliding_window_view(np.abs(places), n, 0).mean(-1) @ np.abs(W_O) + np.abs(own)
    y, error = own + mean @ W_O, gamma(n + W_O.shape[0] + 16) * size
    error = error + 4 * LEAST * (len(W_O) + np.abs(W_O).sum(0))
    T = np.clip(chebvander(np.linspace(-1, 1, len(y)), min(DEGREE, len(y) - 1)), -1, 1)
    G = np.linalg.pinv(T) @ y
    left = np.abs(y - T @ G) + error + gamma(DEGREE + 8) * (np.abs(y) + np.abs(T) @ np.abs(G)) + 4 * len(G) * LEAST
    shared = {f"shift{i}": G[i : i + 1] for i in range(1, len(G))}
    return Noisy(G[:1], left.max(0, keepdims=True) * ENLARGE, shared)


def of_lengths(
    at: Allowed,
    model: DecoderArrays,
    task: Task,
    types: np.ndarray,
    rest: np.ndarray,
    places: np.ndarray,
    lengths: range,
) -> list[float]:
    """Lower bounds on the margins in strings of each of these lengths."""
    cells = [cells_of(task, len(types), n) for n in lengths]
    sizes = [len(t) for t, _ in cells]
    t, k = (np.concatenate(column) for column in zip(*cells, strict=True))
    position = joined([window(at, model, places, n) for n in lengths], 0)[np.repeat(np.arange(len(lengths)), sizes)]
    low = rows(at, model, task, types, rest, position, PlacedCells(t, k, np.repeat(lengths, sizes)))
    return [float(part.min(initial=math.inf)) for part in np.split(low, np.cumsum(sizes)[:-1])]


def cells_of(task: Task, K: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens and counts of strings of n tokens; of one type there is one, whose last count is judged or not."""
    counts = np.arange(n if K == 1 else 1, min(task.C or 1, n) + 1)
    return np.repeat(np.arange(K), len(counts)), np.tile(counts, K)


class PlacedCells(NamedTuple):
    """Cells of strings of n tokens in which the last token t is the k-th of its type, n of each cell its own."""

    t: np.ndarray
    k: np.ndarray
    n: np.ndarray


def rows(
    at: Allowed,
    model: DecoderArrays,
    task: Task,
    types: np.ndarray,
    rest: np.ndarray,
    position: Noisy,
    cells: PlacedCells,
) -> np.ndarray:
    """Lower bounds on the margins of cells, at whose own position the stream has what a row of `position` holds."""
    t, k, n = cells.t, cells.k[:, None].astype(np.float64), cells.n[:, None].astype(np.float64)
    others = boxes.others_hull(Noisy.exact(types), t)
    own, more = k / n, (n - k) / n
    mid = own * types[t] + more * others.mid
    size = own * np.abs(types[t]) + more * np.abs(others.mid)
    lost = underflow((types[t] != 0) | (others.size > 0), 16)
    mixed = Noisy(mid, (more * others.own + rest + 16 * U * size + lost) * ENLARGE)
    E = at.tensor(model.W_E).mid
    E = np.pad(E, ((0, 0), (0, position.mid.shape[1] - E.shape[1])))[t]
    error = position.own + 4 * U * (np.abs(E) + np.abs(position.mid))
    x = Noisy(E + position.mid, error * ENLARGE, position.shared)
    right = np.array([task.class_of(int(i)) for i in cells.k], dtype=int)
    low, _ = uniform.read(at, model, uniform.last(at, model, x, mixed), right)
    return np.where(np.isnan(low), -np.inf, low)
