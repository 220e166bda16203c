"""The mean value form: how far a sum of logits is off, as a sum over operations of slope times local error.

Let y_k = f_k(inputs) be the operations on the tape. Their values in two evaluations, the midpoints and any run that
the reading allows, both lie in the balls, and differ by D_k (difference of the inputs) + e_k: D_k a matrix of slopes
between two points of the inputs' balls, |e_k| at most the step's `local`. So a linear function c of the output differs
by sum_k g_k . e_k, where g is c multiplied by the transposes D^T from the end to the beginning: each g_k is enclosed in
a ball, whatever the D's are, and no second-order term is left out. A ball that is on no step and not exact is off by
its own radius.

In a dtype two operations may read one result in two forms, y_k + e_kr for reader r: rounded, or kept with more bits.
Then sum_r g_kr . e_kr takes the place of g_k . e_k, with g_k the sum of the readers' g_kr. All forms are within some
rho of one number and within `local` of the exact one, so that e_kr = a + b_r, |a| <= local - rho, |b_r| <= rho: a is
the middle of the extreme e_kr, or the end of that interval nearest to it. So the sum is at most
(local - rho) |g_k| + rho sum_r |g_kr|, for any rho <= local. What only moves or chooses numbers makes none, and its
readers are those of what it moves. Numbers on no step differ as they may, by their radius for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    found, slopes = followed(tape, output, slope)
    return (found + apart * by_balls(slopes)) * ENLARGE


Slopes = dict[int, tuple[Ball, Ball]]
Sizes = dict[int, Tensor]  # sums of the readers' |slopes|, of balls that have several


def by_balls(slopes: Slopes) -> Tensor:
    """What the balls that are on no step change by at most, each by its radius."""
    found = torch.zeros(())
    for ball, g in slopes.values():
        found = found + off(g, ball.radius)
    return found


def followed(tape: list[Step], output: Ball, slope: Tensor) -> tuple[Tensor, Slopes]:
    """What local errors change slope * output by at most, and the slopes of the balls that are on no step.

    In a dtype what several operations read has the sum of their slopes' sizes, which have no sign.
    """
    slopes: Slopes = {id(output): (output, Ball(slope))}
    sizes: Sizes = {}
    is_rounded = any(step.u for step in tape)
    found = torch.zeros((), dtype=slope.dtype, device=slope.device)
    for step in reversed(tape):
        if id(step.out) not in slopes:
            continue
        _, g = slopes.pop(id(step.out))
        size = sizes.pop(id(step.out), None)
        if size is None:
            found = found + off(g, step.local)
        else:
            forms = step.between_forms
            found = found + off(g, (step.local - forms).clamp(min=0)) + off(Ball(size), forms)
        if step.is_tight:
            found = found + off(Ball(torch.zeros_like(g.mid), g.radius, g.norm), step.out.radius)
            g = Ball(g.mid)
        passed = step.pull(Ball(size)) if step.is_same and size is not None else (None,) * len(step.inputs)
        for ball, more, through in zip(step.inputs, step.pull(g), passed, strict=True):
            if ball.rad is not None:
                assert more is not None, "a ball that is not exact has slopes"
                before = slopes.get(id(ball))
                slopes[id(ball)] = ball, more if before is None else plus(SLOPES, before[1], more)
                if is_rounded and (before is not None or through is not None):
                    own = more.size if through is None else through.size
                    others = 0.0 if before is None else sizes.get(id(ball), before[1].size)
                    sizes[id(ball)] = (own + others) * ENLARGE
    return found, {key: (ball, Ball(sizes[key]) if key in sizes else g) for key, (ball, g) in slopes.items()}


Pairs = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def gaps(graph: Graph, at: Arithmetic, device: torch.device | str = "cpu") -> Pairs:
    """A function of tokens (N, length) and places (N,), (N,) in the output, counted through all its numbers.

    It bounds the number at the first place minus that at the second from both sides.
    """
    stored = enclosed_weights(graph, at, device)

    def one(tokens: Tensor, own: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
        gap, error, _, _ = _gap(graph, stored, at, tokens, own, rival)
        return gap - error, gap + error

    return _in_parts(one, graph, device)


def least_gaps(graph: Graph, at: Arithmetic, device: torch.device | str = "cpu", turns: int = 2) -> Pairs:
    """As `gaps`, with lower bounds that are nearly the least gaps where it falls with most numbers in one direction.

    Where the slope of a gap by a number has one sign on the whole box, the gap is least with that number at one end:
    between any two points of the box it changes by slope times distance, and twice the local errors. So these numbers
    are put at that end, and the mean value form is taken again on the smaller box; this in `turns`. In real arithmetic
    alone: in a dtype two operations may read different numbers of the box.
    """
    assert at.is_real, "one number has several forms"
    stored = enclosed_weights(graph, at, device)

    def one(tokens: Tensor, own: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
        gap, error, local, slopes = _gap(graph, stored, at, tokens, own, rival)
        low, high, box = gap - error, gap + error, stored
        slack = torch.zeros_like(gap)
        for _ in range(turns):
            slack = slack + 2 * local * ENLARGE
            box = {name: _at_ends(ball, slopes) if isinstance(ball, Ball) else ball for name, ball in box.items()}
            gap, error, local, slopes = _gap(graph, box, at, tokens, own, rival)
            low = torch.fmax(low, gap - error - slack - 4 * U * (gap.abs() + error + slack))
        return low, high

    return _in_parts(one, graph, device)


MOST_BOXES = 128  # that are bounded for one pair
Named = dict[str, Tensor]
IsPositive = Callable[[Tensor, Tensor, Tensor, Callable[[], bool]], bool]


def positive_gap(graph: Graph, at: Arithmetic, device: torch.device | str = "cpu") -> IsPositive:
    """A function of tokens (length,) and two places in the output: whether the gap is shown to be positive.

    As `least_gaps`, on boxes that are halved where this does not suffice: by the number whose slope is least known,
    times its radius. A box is the union of its halves, and so is the least gap the least of theirs. The last argument
    of the function says when to stop.
    """
    assert at.is_real, "one number has several forms"
    stored = enclosed_weights(graph, at, device)
    moving = {name: ball for name, ball in stored.items() if isinstance(ball, Ball) and ball.rad is not None}

    def one(
        mids: Named, rads: Named, slack: Tensor, tokens: Tensor, own: Tensor, rival: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Named, Named]:
        box = {name: Ball(mids[name], rads[name]) for name in moving}
        gap, error, local, slopes = _gap(graph, {**stored, **box}, at, tokens, own, rival)
        low = gap - error - slack - 4 * U * (gap.abs() + error + slack)
        slack = slack + 2 * local * ENLARGE
        box = {name: _at_ends(ball, slopes) for name, ball in box.items()}
        gap, error, _, slopes = _gap(graph, {**stored, **box}, at, tokens, own, rival)
        low = torch.fmax(low, gap - error - slack - 4 * U * (gap.abs() + error + slack))
        known = {name: slopes[id(ball)][1].radius if id(ball) in slopes else 0 * ball.mid for name, ball in box.items()}
        unknown = torch.cat([(known[name] * ball.radius).reshape(-1) for name, ball in box.items()])
        ends = {name: ball.mid for name, ball in box.items()}, {name: ball.radius for name, ball in box.items()}
        return low, slack, unknown.argmax(), *ends

    many = torch.vmap(one, in_dims=(0, 0, 0, None, None, None), chunk_size=taped_at_once(graph))

    def run(tokens: Tensor, own: Tensor, rival: Tensor, is_over: Callable[[], bool]) -> bool:
        mids = {name: ball.mid[None] for name, ball in moving.items()}
        rads = {name: ball.radius.expand(ball.mid.shape)[None] for name, ball in moving.items()}
        slack, looked_at = torch.zeros(1, dtype=torch.float64, device=device), 0
        with torch.no_grad():
            while len(slack):
                looked_at += len(slack)
                if looked_at > MOST_BOXES or is_over():
                    return False
                low, slack, widest, mids, rads = many(mids, rads, slack, tokens.to(device), own, rival)
                is_open = ~(low > 0)
                slack = slack[is_open].repeat(2)
                mids, rads = _halved(mids, rads, is_open, widest[is_open])
        return True

    return run


def _halved(mids: Named, rads: Named, is_open: Tensor, number: Tensor) -> tuple[Named, Named]:
    """The boxes that are open (n of them) in two halves each, by one number of each, counted through all tensors."""
    n = len(number)
    mid, rad = (torch.cat([x[is_open].flatten(1) for x in of.values()], 1).repeat(2, 1) for of in (mids, rads))
    row, column = torch.arange(2 * n), number.repeat(2)
    middle, half = mid[row, column], rad[row, column] / 2
    mid[row, column] = torch.where(row < n, middle - half, middle + half)
    rad[row, column] = half * ENLARGE + 2 * U * (middle.abs() + 2 * half) + LOST
    sizes, shapes = [x[0].numel() for x in mids.values()], [x.shape[1:] for x in mids.values()]

    def named(of: Tensor) -> Named:
        parts = zip(mids, of.split(sizes, 1), shapes, strict=True)  # type: ignore[no-untyped-call]
        return {name: part.reshape(2 * n, *shape) for name, part, shape in parts}

    return named(mid), named(rad)


def _at_ends(ball: Ball, slopes: Slopes) -> Ball:
    """The ball with each number at the end where what has these slopes is least, where their sign is known."""
    if ball.rad is None or id(ball) not in slopes:
        return ball
    g = slopes[id(ball)][1]
    sign = (g.mid > g.radius).double() - (g.mid < -g.radius).double()
    end = ball.mid - sign * ball.rad
    near = 2 * U * (ball.mid.abs() + ball.rad) + LOST
    return Ball(end, torch.where(sign == 0, ball.rad, near))


def _gap(
    graph: Graph, stored: Mapping[str, object], at: Arithmetic, tokens: Tensor, own: Tensor, rival: Tensor
) -> tuple[Tensor, Tensor, Tensor, Slopes]:
    """A number of the output minus another one: at the midpoints, how far it is from there, and `followed`."""
    tape: list[Step] = []
    output = evaluate(graph, stored, tokens, replace(at, has_norms=True, tape=tape))
    places = torch.arange(output.mid.numel(), device=tokens.device).reshape(output.mid.shape)
    here, there = (places == own).double(), (places == rival).double()
    nothing = torch.zeros_like(output.mid)
    gap = torch.where(here > 0, output.mid, nothing).sum() - torch.where(there > 0, output.mid, nothing).sum()
    local, slopes = followed(tape, output, here - there)
    error = (local + by_balls(slopes)) * ENLARGE
    return gap, error + 4 * U * gap.abs() + LOST, local, slopes


def taped_at_once(graph: Graph) -> int:
    """How many runs are made at once whose operations are all kept on a tape."""
    return max(1, ENTRIES_AT_ONCE // (16 * graph.widest))


def _in_parts(one: Pairs, graph: Graph, device: torch.device | str) -> Pairs:
    """A function of one pair as one of many, as many at once as fit."""
    many, at_once = torch.vmap(one), taped_at_once(graph)

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
