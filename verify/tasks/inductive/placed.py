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

import numpy as np
import torch
from numpy.polynomial.chebyshev import chebvander
from torch import Tensor

from constructions.decoder import Decoder
from constructions.decoder.model import block_of
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma
from verify.counting.tasks import Task
from verify.engine.balls import Arithmetic
from verify.frame.clock import Budget
from verify.tasks.inductive import boxes, drift, uniform
from verify.tasks.inductive.boxes import Found
from verify.tasks.inductive.noisy import Noisy, layer_norm, underflow

ARGUMENT = "equal weights over tokens and positions: rows of token, count and length, shifts as shared errors"
LARGEST = 1 << 20  # no table of positions is larger
DEGREE = 7  # of polynomials in the shift


def applies(model: Decoder, task: Task) -> bool:
    """Whether the argument speaks of a model: one layer, scores 0, no BOS, positions in the stream, counts of types."""
    return task.C is not None and not model.has_bos and uniform.applies(model) and model.pe in ("ape", "spe", "sine")


def decide(model: Decoder, task: Task, longest: int | None, reading: Real | Rounded, budget: float | Budget) -> Found:
    """The longest length up to which every string of the task is proved right at every shift, within some seconds."""
    found, deadline = Found(0, math.inf, math.inf), Budget.of(budget).deadline()
    known = drift.by_length(model, reading)
    if known is None:
        return found._replace(ended_by=boxes.REREAD)
    at, (model, lost) = Arithmetic(), known
    longest = min(longest or len(model.W_pos), len(model.W_pos))
    types, places, rest = parts(values(at, model))
    for n in range(1, longest + 1):
        least = float(rows(at, model, task, types, rest, window(at, model, places, n), n).min())
        least = (least - (lost(longest) if least > lost(longest) else lost(n))) * (1 - 4 * U)
        if not least > 0:
            break
        if deadline.is_up():
            return found._replace(ended_by=boxes.CUT)
        found = Found(n, min(found.margin_scaled, n * least * (1 - 4 * U)), min(found.margin, least))
    return found


def values(at: Arithmetic, model: Decoder) -> Noisy:
    """What the head takes from each token at each position: (types, P, inner)."""
    block = block_of(model, 0)
    return uniform.values_of(at, model, layer_norm(at, boxes.streams(at, model), block.norm_1, "heads")).boxed()


def parts(x: Noisy) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of types (K, inner) and of positions (P, inner) whose sums the rows of x (K, P, inner) are, up to a
    remainder (inner,). Any numbers will do: the remainder is what they leave."""
    places = x.mid.mean(0)
    types = (x.mid - places).mean(1)
    sizes = x.mid.abs() + places.abs() + types.abs()[:, None]
    left = (x.mid - places - types[:, None]).abs() + x.own + 8 * U * sizes
    return types, places, left.amax((0, 1)) * ENLARGE


def window(at: Arithmetic, model: Decoder, places: Tensor, n: int) -> Noisy:
    """What the last of n positions and the mean of their numbers add to the stream, over all shifts: (d,).

    The shifts' rows are nearly polynomials of few degrees in the shift: what each Chebyshev polynomial T_i brings, with
    |T_i| <= 1, is one shared error, and what is left is a remainder. Any coefficients will do. A mean may lose
    LEAST / 2 to underflow, which W_O multiplies, and so may each product with it.
    """
    block = block_of(model, 0)
    W_O = at.tensor(block.attention.W_O).mid
    table = at.tensor(model.W_pos).mid
    table = torch.nn.functional.pad(table, (W_O.shape[1] - table.shape[1], 0))  # spe's lane is the last
    own, mean = table[n - 1 :], places.unfold(0, n, 1).mean(-1)
    size = places.abs().unfold(0, n, 1).mean(-1) @ W_O.abs() + own.abs()
    y, error = own + mean @ W_O, gamma(n + W_O.shape[0] + 16) * size
    error = error + 4 * LEAST * (len(W_O) + W_O.abs().sum(0))
    T = torch.from_numpy(chebvander(np.linspace(-1, 1, len(y)), min(DEGREE, len(y) - 1))).clamp(-1, 1)
    G = torch.linalg.pinv(T) @ y
    left = (y - T @ G).abs() + error + gamma(DEGREE + 8) * (y.abs() + T.abs() @ G.abs()) + 4 * len(G) * LEAST
    return Noisy(G[0], left.amax(0) * ENLARGE, {f"shift{i}": row for i, row in enumerate(G[1:], 1)})


def rows(at: Arithmetic, model: Decoder, task: Task, types: Tensor, rest: Tensor, position: Noisy, n: int) -> Tensor:
    """Lower bounds on the margins of all cells (token, count) in strings of n tokens."""
    K, C = len(types), min(task.C or 1, n)
    if K == 1 and n > C:  # of one type there is one string, whose last count is not judged
        return torch.full((1,), torch.inf)
    counts = torch.arange(n if K == 1 else 1, C + 1)
    t, k = (part.flatten() for part in torch.meshgrid(torch.arange(K), counts, indexing="ij"))
    others = boxes.others_hull(Noisy.exact(types), t)
    own, more = k[:, None].double() / n, (n - k[:, None]).double() / n
    mid = own * types[t] + more * others.mid
    size = own * types[t].abs() + more * others.mid.abs()
    lost = underflow((types[t] != 0) | (others.size > 0), 16)
    mixed = Noisy(mid, (more * others.own + rest + 16 * U * size + lost) * ENLARGE)
    E = at.tensor(model.W_E).mid
    E = torch.nn.functional.pad(E, (0, position.mid.shape[0] - E.shape[1]))[t]
    error = position.own + 4 * U * (E.abs() + position.mid.abs())
    x = Noisy(E + position.mid, error * ENLARGE, {q: G.expand_as(E) for q, G in position.shared.items()})
    right = torch.tensor([task.class_of(int(i)) for i in k])
    low, _ = uniform.read(at, model, uniform.last(at, model, x, mixed), right)
    return torch.where(torch.isnan(low), -torch.inf, low)
