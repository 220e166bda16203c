"""What a modular adder has in its stream for each sum, exactly: where attention is uniform and numbers lie on a line.

Attention then leaves start + (a + b) step. What a neuron reads is a line in the sum too, so that it is on from some sum
on, or up to one. Between two sums at which neurons go on or off, what all of them write is one line: its height and its
slope are sums of what has gone on so far, less what has gone off, so that all 2P - 1 streams cost a few operations for
each neuron and each sum.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq, fmpq_mat

from verify.arithmetic.exact_reals import rational
from verify.arithmetic.margins import margins_of
from verify.arithmetic.outward import float_neighbours
from verify.arithmetic.slack import ENLARGE, LEAST, Array, gamma
from verify.arithmetic.stored import matrix, numbers

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder

AT_ONCE = 1 << 20  # logits


def depends_on_sum(model: Adder, P: int) -> bool:
    """Whether the logits of a pair are a function of a + b: every token weighs alike, and numbers lie on a line.

    Then attention reads E_a + E_b and what is the same for all pairs, with E_a = E_0 + a (E_1 - E_0): that is tested on
    the stored numbers in rational arithmetic.
    """
    layer, E = model.blocks[0], numbers(model.E)[:P]
    if numbers(layer.W_Q).any() and numbers(layer.W_K).any():
        return False
    read = (numbers(layer.W_V) != 0).any((0, 2))
    lanes = ([rational(x) for x in lane] for lane in E.T[read])
    return all(len({y - x for x, y in pairwise(lane)}) <= 1 for lane in lanes)


def streams(model: Adder, P: int) -> list[list[fmpq]]:
    """What the readout reads for each sum, 0 to 2P - 2, of a model of one layer whose logits depend on the sum."""
    layer, sums, d = model.blocks[0], range(2 * P - 1), model.E.shape[1]
    start, step = _line(model, P)
    W_1, written = matrix(numbers(layer.W_1)), matrix(numbers(layer.W_2)).tolist()
    biases = [rational(b) for b in numbers(layer.b_1)]
    heights, slopes = ([[fmpq(0)] * d for _ in range(len(sums) + 1)] for _ in range(2))  # what changes
    for at, bias, by, out in zip((start * W_1).entries(), biases, (step * W_1).entries(), written, strict=True):
        on = _sums_above_zero(at + bias, by, len(sums))
        for place, sign in ((on.start, 1), (on.stop, -1)) if on else ():
            for lane, w in enumerate(out):
                heights[place][lane] += sign * w * (at + bias)
                slopes[place][lane] += sign * w * by
    found = [(start + step * fmpq(z)).entries() if model.has_skip else [fmpq(0)] * d for z in sums]
    for lane in range(d):
        heights_so_far = accumulate(change[lane] for change in heights)
        slopes_so_far = accumulate(change[lane] for change in slopes)
        for z, height, slope in zip(sums, heights_so_far, slopes_so_far, strict=False):
            found[z][lane] += height + z * slope
    return found


def _line(model: Adder, P: int) -> tuple[fmpq_mat, fmpq_mat]:
    """What attention leaves in the stream is start + (a + b) step: a third of what the three tokens bring together."""
    layer, E, X = model.blocks[0], numbers(model.E), numbers(model.positions)
    own = matrix(E[P:]) + matrix(X[2:])
    together = matrix(E[:1]) * fmpq(2) + matrix(X[:1]) + matrix(X[1:2]) + own
    start, step = (fmpq_mat(1, E.shape[1]) for _ in range(2))
    for W_V, W_O in zip(numbers(layer.W_V), numbers(layer.W_O), strict=True):
        head = matrix(W_V) * matrix(W_O) * fmpq(1, 3)
        start, step = start + together * head, step + (matrix(E[1:2]) - matrix(E[:1])) * head
    return (start + own if model.has_skip else start), step


def _sums_above_zero(at: fmpq, by: fmpq, sums: int) -> range:
    """The sums z below a number at which at + z by > 0.

    >>> [_sums_above_zero(fmpq(at), fmpq(by), 6) for at, by in ((-3, 1), (3, -1), (1, 0))]
    [range(4, 6), range(0, 3), range(0, 6)]
    """
    if by == 0:
        return range(sums if at > 0 else 0)
    meets = -at / by
    if by > 0:
        return range(max(0, int(meets.floor()) + 1), sums)
    return range(min(sums, max(0, int(meets.ceil()))))


def margins_by_sum(model: Adder, P: int) -> Array:
    """Lower bounds on the margin of each sum, 0 to 2P - 2: NaN where float64 does not tell.

    A logit is off by the gamma of its products and sums, and by what its stream is, both times the largest number of
    the readout in each dimension: one radius for all logits of a sum, so that only the largest other one is looked for.
    """
    ends = np.array([[float_neighbours(y) for y in stream] for stream in streams(model, P)])
    W, b = numbers(model.W_out), numbers(model.b_out)
    largest, d = np.abs(W).max(1), W.shape[0]
    found = np.empty(2 * P - 1)
    rows = max(1, AT_ONCE // P)
    for first in range(0, 2 * P - 1, rows):
        some = slice(first, first + rows)
        with np.errstate(invalid="ignore", over="ignore"):
            y, off = ends[some, :, 0], ends[some, :, 1] - ends[some, :, 0]
            logits = y @ W + b
            size = np.abs(y) @ largest + np.abs(b).max()
            wrong = gamma(2 * d + 8) * size + (1 + gamma(d + 4)) * (off @ largest) + (2 * d + 4) * LEAST
            gap = margins_of(logits, np.arange(first, first + len(y)) % P)
            found[some] = np.nextafter(gap - (2 * wrong + gamma(2) * np.abs(gap)) * ENLARGE, -np.inf)
    return found
