"""The mean value form: how far a sum of logits is off, as a sum over operations of slope times local error.

Let y_k = f_k(inputs) be the operations on the tape. Their values in two evaluations, the midpoints and any run that
the reading allows, both lie in the balls, and differ by D_k (difference of the inputs) + e_k: D_k a matrix of slopes
between two points of the inputs' balls, |e_k| at most the step's `local`. So a linear function c of the output differs
by sum_k g_k . e_k, where g is c multiplied by the transposes D^T from the end to the beginning: each g_k is enclosed in
a ball, whatever the D's are, and no second-order term is left out. A ball that is on no step and not exact is off by
its own radius.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, U, gamma
from verify.engine.balls import Arithmetic, Ball, Step, length
from verify.engine.capture import Graph
from verify.engine.rules.linear import SLOPES, plus
from verify.engine.run import ENTRIES_AT_ONCE, enclosed_weights, evaluate


def difference(tape: list[Step], output: Ball, slope: Tensor, apart: float = 1.0) -> Tensor:
    """A bound on how far the sum of slope * output is from its value at the midpoints, in any evaluation.

    Two evaluations differ by no more, neither of them that of the midpoints, where `apart` is 2: a ball on no step may
    have them at its ends.
    """
    slopes = {id(output): (output, Ball(slope))}
    found = torch.zeros((), dtype=slope.dtype, device=slope.device)
    for step in reversed(tape):
        if id(step.out) not in slopes:
            continue
        _, g = slopes.pop(id(step.out))
        found = found + off(g, step.local)
        if step.is_tight:
            found = found + off(Ball(torch.zeros_like(g.mid), g.radius, g.norm), step.out.radius)
            g = Ball(g.mid)
        for ball, more in zip(step.inputs, step.pull(g), strict=True):
            if ball.rad is not None:
                assert more is not None, "a ball that is not exact has slopes"
                before = slopes.get(id(ball))
                slopes[id(ball)] = ball, more if before is None else plus(SLOPES, before[1], more)
    for ball, g in slopes.values():  # on no step
        found = found + apart * off(g, ball.radius)
    return found * ENLARGE


Pairs = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def gaps(graph: Graph, at: Arithmetic, device: torch.device | str = "cpu") -> Pairs:
    """A function of tokens (N, length) and places (N,), (N,) in the output, counted through all its numbers.

    It bounds the number at the first place minus that at the second from both sides.
    """
    stored = enclosed_weights(graph, at, device)

    def one(tokens: Tensor, own: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
        tape: list[Step] = []
        output = evaluate(graph, stored, tokens, replace(at, has_norms=True, tape=tape))
        places = torch.arange(output.mid.numel(), device=tokens.device).reshape(output.mid.shape)
        here, there = (places == own).double(), (places == rival).double()
        nothing = torch.zeros_like(output.mid)
        gap = torch.where(here > 0, output.mid, nothing).sum() - torch.where(there > 0, output.mid, nothing).sum()
        error = difference(tape, output, here - there) + 2 * U * gap.abs() + LOST
        return gap - error - 2 * U * gap.abs(), gap + error + 2 * U * gap.abs()

    many, at_once = torch.vmap(one), max(1, ENTRIES_AT_ONCE // (16 * graph.widest))

    def run(tokens: Tensor, own: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            columns = zip(*(torch.split(x.to(device), at_once) for x in (tokens, own, rival)), strict=True)
            low, high = zip(*(many(*part) for part in columns), strict=True)
        return torch.cat(low).cpu(), torch.cat(high).cpu()

    return run


def off(slope: Ball, local: Tensor) -> Tensor:
    """A bound on the sum of |g_i e_i| for all g in the ball, |e_i| <= local_i."""
    local = local.to(slope.mid.device).expand(slope.mid.shape)  # a move's 0 is made on the CPU
    spread, enlarged = slope.radius * local, (1 + gamma(2 * slope.mid.numel() + 16)) * ENLARGE
    known = (slope.mid.abs() * local).sum()
    if slope.norm is None or slope.norm.axis != -1:
        return (known + spread.sum()) * enlarged
    by_length = slope.norm.radius * length(local)
    return (known + torch.minimum(spread.sum(-1, keepdim=True), by_length).sum()) * enlarged
