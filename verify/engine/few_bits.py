"""Sums in a wider format: the mean value form for dtypes of few bits, over enclosures that it makes itself.

The reading "each result rounded once": every operation of the captured graph on floats is computed in the format of
accumulation, sums in any order, and its result is rounded once to the dtype, to nearest. Softmax and LayerNorm are one
operation each; scores and weights of scaled_dot_product_attention may each be rounded once, or not. What only moves or
chooses numbers rounds nothing. RMSNorm, GroupNorm, log-softmax, powers and variances are operations in several steps,
as in the reading of any order. Python's numbers are read in the format of accumulation, stored ones in the dtype.

The reading "dtype, any order" with a format of accumulation: each operation that reads a result reads it rounded, or
kept with 2p + 2 bits, and two operations need not read the same. A bias may be added to a sum that was rounded before.
LayerNorm is one operation; softmax, and the scores that attention makes, may round in between, as may whatever else is
not a product or sum of tensors. Python's numbers may be rounded to the dtype. Numbers are chosen and moved as they are:
a maximum of numbers, each rounded or kept, lies between the largest and the largest rounded, and so does its rounding.

Radii grow with each product of absolute values, the mean value form back to where the errors were made does not. So
before an operation that is not linear, the radius of each number that goes in is bounded backwards through the tape so
far, and the operation's slopes are enclosed over these balls. Rounding is monotone: where what is rounded lies between
numbers that round to the same one, the result is known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar, cast

import torch
from torch import Tensor

from verify.arithmetic.elementary import power_of_two
from verify.arithmetic.formats import Format
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, OF_MANY, OF_SUMS, U, gamma
from verify.engine.balls import Arithmetic, Ball, Norm, Step, Unsure, Value, Whole, length
from verify.engine.capture import CREATING, Graph, computed_in, given
from verify.engine.dependence import LAYER_NORM, SOFTMAXES
from verify.engine.dtypes import as_float, is_float
from verify.engine.margins import Question
from verify.engine.mean_value import difference
from verify.engine.rules import RULES, cover_of
from verify.engine.rules import normalisation as rules
from verify.engine.rules.linear import SLOPES, product, times, turned, unbroadcast, widened
from verify.engine.rules.movement import MOVES
from verify.engine.rules.registry import Rule, as_ball
from verify.engine.run import ENTRIES_AT_ONCE, call, condition, enclosed_weights, holds, is_assertion, where_all_hold

EXACT = frozenset(
    f"aten.{name}"
    for name in (
        "relu.default", "neg.default", "abs.default", "amax.default", "amin.default", "maximum.default",
        "minimum.default", "where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar",
        "constant_pad_nd.default", "select_scatter.default", "slice_scatter.default", "copy.default", "alias.default",
        "clone.default", "contiguous.default", "detach.default", "lift_fresh.default", "lift_fresh_copy.default",
        "embedding.default", "index.Tensor",
    )
)  # fmt: skip
CURVED = frozenset(
    f"aten.{name}"
    for name in (
        "_softmax.default", "softmax.int", "_safe_softmax.default", "_log_softmax.default", "relu.default",
        "leaky_relu.default", "gelu.default", "silu.default", "tanh.default", "sigmoid.default", "erf.default",
        "exp.default", "sin.default", "cos.default", "sqrt.default", "rsqrt.default", "reciprocal.default",
        "pow.Tensor_Scalar", "_fused_rms_norm.default", "var.correction", "native_group_norm.default",
    )
)  # fmt: skip
FUNCTIONS = frozenset(f"aten.{name}.default" for name in ("gelu", "silu", "tanh", "sigmoid", "erf"))
MATRICES = ("aten.bmm.default", "aten.mm.default", "aten.matmul.default")
STEPWISE = frozenset(  # kernels of torch's round in between
    f"aten.{name}"
    for name in (
        "_fused_rms_norm.default", "native_group_norm.default", "_log_softmax.default", "pow.Tensor_Scalar",
        "pow.Scalar", "var.correction",
    )
)  # fmt: skip
SUMS = frozenset(  # without quotients and means, whose rounded inverse may be multiplied by
    f"aten.{name}"
    for name in (
        "linear.default", "addmm.default", "mm.default", "bmm.default", "matmul.default", "sum.dim_IntList",
        "add.Tensor", "sub.Tensor", "mul.Tensor",
    )
)  # fmt: skip
PADDING = "aten.constant_pad_nd.default"
AS_THEY_RUN = frozenset((LAYER_NORM, "aten.scaled_dot_product_attention.default", *SOFTMAXES, *FUNCTIONS)) | frozenset(
    f"aten.{name}" for name in ("linear.default", "bmm.default", "matmul.default", "add.Tensor", "mul.Tensor")
)
BIASES = {"aten.linear.default": 2, "aten.addmm.default": 0}  # the place of the bias
PRODUCTS = frozenset(
    f"aten.{name}" for name in ("bmm.default", "mm.default", "matmul.default", "mul.Tensor", "div.Tensor")
)
SDPA = "aten.scaled_dot_product_attention.default"
T = TypeVar("T")
RANGE = 2.0**200  # numbers whose exponents are looked at: beyond, or below its inverse, nothing is known of rounding


MOST_BITS = 16  # of the dtype: with more, radii of any order are small against margins, and cost less


def is_covered(fmt: Format, wide: Format | None) -> bool:
    """Whether a dtype is one of few bits, with sums in a wider format; tf32 rounds factors only."""
    return wide is not None and fmt.p <= MOST_BITS and fmt.name != "tf32"


def exponent(x: Tensor) -> Tensor:
    """The least e with |x| < 2^e, for sizes between 1/RANGE and RANGE."""
    size = torch.nan_to_num(x.abs(), nan=1.0).clamp(1 / RANGE, RANGE)
    if _has_bits_in_batches():
        return ((size.view(torch.int64) >> 52) & 0x7FF) - 1022
    return torch.frexp(size).exponent.to(torch.int64)  # size is m 2^e, 1/2 <= m < 1: the same, several times slower


@cache
def _has_bits_in_batches() -> bool:
    """Whether torch.vmap, which the slopes of sums go through, can look at the bits of floats; torch 2.13 can."""
    try:
        torch.vmap(lambda x: x.view(torch.int64))(torch.ones(2, 1, dtype=torch.float64))
    except RuntimeError:
        return False
    return True


def nearest(x: Tensor, fmt: Format) -> Tensor:
    """The nearest number of p bits, ties to even, for sizes between 1/RANGE and RANGE."""
    e = exponent(x)
    return torch.round(x * power_of_two(fmt.p - e)) * power_of_two(e - fmt.p)


def half_spacing(size: Tensor, fmt: Format) -> Tensor:
    """Half the distance of neighbouring numbers of p bits below the next power of two above `size`."""
    return power_of_two(exponent(size) - 1 - fmt.p)


def rounded_once(at: Arithmetic, x: Ball, fmt: Format) -> Ball:
    """The ball after one rounding to nearest; what is subnormal may be flushed, and what may overflow is no number.

    Where its ends round to numbers that are less than a spacing apart, so does all that lies between, and the result's
    distance from the middle of the two is at most half of theirs, whatever was off before.
    """
    size, is_mask = x.size, torch.isinf(x.mid) & (x.radius == 0)
    half = half_spacing(size, fmt)
    loose = torch.where(size + half <= fmt.largest, (half + fmt.tiny) * ENLARGE, math.nan)
    down, up = x.ends
    low, high = nearest(down, fmt), nearest(up, fmt)
    is_normal = (torch.minimum(down.abs(), up.abs()) > 2 * fmt.tiny) & (down * up > 0) & (up.abs() < RANGE)
    is_known = is_normal & (x.radius < half) & ~torch.isnan(loose) & ~is_mask
    apart = (high - low) / 2  # exact, as their sum is: both have p bits
    local = torch.where(is_mask, 0.0, torch.where(is_known, apart, loose))
    mid = torch.where(is_known, (low + high) / 2, x.mid)
    radius = torch.where(is_known, apart, (x.radius + local) * ENLARGE)
    norm = Norm(length(radius)) if mid.ndim else None

    def pull(slope: Ball) -> tuple[Ball]:
        return (Ball(torch.where(is_known, 0.0, slope.mid), torch.where(is_known, 0.0, slope.radius)),)

    return at.record(Ball(mid, radius, norm, x.infinite), (x,), local, pull)


def exact_sum(at: Arithmetic, x: Ball, y: Ball, fmt: Format, wide: Format) -> Ball:
    """x + y of exact numbers: one number where their sum is one of the wide format, which is then rounded once."""
    total = x.mid + y.mid
    a, b = x.mid.expand(total.shape), y.mid.expand(total.shape)
    back = total - a
    error = (a - (total - back)) + (b - back)  # of the sum in float64, exactly
    in_range = (total.abs() > 2 * fmt.tiny) & (total.abs() < fmt.largest / 2)
    is_exact = (error == 0) & (nearest(total, wide) == total) & in_range
    is_known = is_exact | ((error == 0) & (total == 0))
    size = total.abs() * ENLARGE + 2 * error.abs()
    loose = half_spacing(size, fmt) + 2 * wide.u * size + fmt.tiny + wide.tiny + error.abs()
    loose = torch.where(size < fmt.largest / 2, loose * ENLARGE, math.nan)
    mid = torch.where(is_exact, nearest(total, fmt), total)
    radius = torch.where(is_known, 0.0, loose)
    return at.record(Ball(mid, radius, Norm(length(radius)) if mid.ndim else None), (), radius, lambda slope: ())


def tightened(at: Arithmetic, x: T) -> T | Ball:
    """The ball with each radius no larger than the mean value form says."""
    if not isinstance(x, Ball) or x.rad is None:
        return x
    assert at.tape is not None
    found = backwards(at.tape, x, torch.eye(x.mid.numel(), dtype=x.mid.dtype, device=x.mid.device))
    radius = torch.where(torch.isnan(x.rad), x.rad, torch.fmin(x.rad, found))  # what may be no number stays so
    norm = Norm(torch.minimum(length(radius), x.deviation(-1))) if x.mid.ndim else None
    out = Ball(x.mid, radius, norm, x.infinite)
    at.tape.append(Step(out, (x,), torch.zeros(()), lambda slope: (slope,), is_tight=True))
    return out


LOST_BY_ALL = 2.0**-900
MOST_MOVED = 30.0  # of scores, from their mean: beyond, slopes at the midpoint say nothing of their weights
AT_ONCE = 512  # slopes that are followed at once


def backwards(tape: list[Step], x: Ball, slopes: Tensor, flat: bool = False) -> Tensor:
    """How far sums of slope * x, for each row of slopes, are from those of the midpoints.

    The result has the shape of x where there is a row for each of its numbers and it is not `flat`.
    """

    def one(slope: Tensor) -> Tensor:
        return difference(tape, x, slope.reshape(x.mid.shape))

    found: Tensor = torch.vmap(one, chunk_size=AT_ONCE)(slopes)
    return found.reshape(x.mid.shape) if len(slopes) == x.mid.numel() and not flat else found


def relu(at: Arithmetic, x: Ball) -> Ball:
    """max(x, 0): on [l, u] round 0 within mu = -slope l / 2 of slope x + mu, slope = u / (u - l)."""
    low, high = x.ends
    is_unsure = (low < 0) & (high > 0)
    slope = torch.where(is_unsure, high / torch.where(is_unsure, high - low, 1.0), (x.mid > 0).to(x.mid.dtype))
    mu = torch.where(is_unsure, -slope * low / 2, 0.0)
    middle = torch.where(is_unsure, slope * x.mid + mu, x.mid.clamp(min=0))
    off = torch.where(is_unsure, OF_MANY * (mu + slope * x.size) + LOST, 0.0)
    local = (mu + off) * ENLARGE
    out = Ball(
        middle, (slope * x.radius + local) * ENLARGE, Norm(length(slope * x.radius + local)) if x.mid.ndim else None
    )
    local = torch.where(torch.isnan(x.radius), x.radius, local)
    return at.record(out, (x,), local, lambda g: (times(SLOPES, g, Ball(slope)),))


def linearised(at: Arithmetic, rule: Rule, x: Ball, **options: object) -> Ball:
    """A function of single numbers, its slope the middle of those in the ball, which are off by some share of |dx|."""
    assert at.tape is not None
    tape: list[Step] = []
    out = rule(replace(at, tape=tape), x, **options)
    slope, local = Ball(torch.ones_like(x.mid)), torch.zeros_like(x.mid)
    for step in reversed(tape):
        local = local + slope.size * step.local
        (slope,) = step.pull(slope)  # type: ignore[assignment]
    local = (local + slope.radius * x.radius) * ENLARGE
    return at.record(Ball(out.mid, out.rad, out.norm), (x,), local, lambda g: (times(SLOPES, g, Ball(slope.mid)),))


def centred_product(at: Arithmetic, x: Ball, y: Ball, more: int = 0) -> Ball:
    """x @ y, its slopes taken at the midpoints: the product of both distances is of second order."""
    assert at.tape is not None
    tape: list[Step] = []
    out = product(replace(at, tape=tape), x, y, more)
    if x.rad is None or y.rad is None:
        at.tape.extend(tape)
        return out
    second = x.rad @ y.rad * (1 + gamma(2 * x.mid.shape[-1] + 16)) * ENLARGE + LOST

    def pull(slope: Ball) -> tuple[Ball, Ball]:
        by_x = product(SLOPES, slope, turned(Ball(y.mid)))
        return unbroadcast(by_x, x.mid.shape), unbroadcast(product(SLOPES, turned(Ball(x.mid)), slope), y.mid.shape)

    return at.record(out, (x, y), tape[-1].local + second, pull)


def softmax(at: Arithmetic, x: Ball, dim: int, empty: float) -> Ball:
    """Softmax along an axis, computed in the format of `at`, its slopes taken from the midpoint.

    Let the scores move by d, p be the weights at the midpoint and t = d - sum of p d. Then p'_j is p_j e^(t_j) divided
    by the sum of p_k e^(t_k), which lies in [1, 1 + S], S = sum of p_k phi(rho_k), for phi(r) = e^r - 1 - r and
    |t| <= rho: so |p'_j - p_j (1 + t_j)| is at most p_j max(phi(rho_j), S e^(rho_j)), and p'_j at most p_j e^(rho_j),
    which is what is then rounded. A weight that is 0 at the midpoint is less than LOST where its score moves by 1 at
    most.
    """
    assert at.tape is not None
    found = rules.softmax(replace(at, tape=None), x, dim, empty)
    p = found.mid
    moved = p.movedim(dim, -1)
    n = moved.shape[-1]
    rows = moved.reshape(-1, n)
    each = torch.eye(n, dtype=p.dtype, device=p.device) - rows.unsqueeze(1)  # row of weights, weight, score
    each = torch.where(rows.unsqueeze(1) > 0, each, 0.0)
    block = torch.eye(len(rows), dtype=p.dtype, device=p.device)[:, None, :, None] * each.unsqueeze(2)
    slopes = block.reshape(rows.numel(), *moved.shape).movedim(-1, dim if dim < 0 else dim + 1)
    rho = backwards(at.tape, x, slopes.reshape(rows.numel(), -1), flat=True).reshape(moved.shape).movedim(-1, dim)
    rho = torch.where(p > 0, rho * ENLARGE + OF_MANY, 0.0)
    is_small = rho < MOST_MOVED
    r = torch.where(is_small, rho, 1.0)
    # e^r - 1 - r <= r^2/2 (1 + r/3 + r^2/12 + ...) <= r^2/2 (1 + r) for r <= 1
    phi = torch.where(r <= 1, r.square() / 2 * (1 + r), r.exp()) * (1 + OF_SUMS)
    total = (p * phi).sum(dim, keepdim=True) * ENLARGE
    second = p * torch.maximum(phi, total * (1 + r + phi)) * ENLARGE
    far = torch.where(p > 0, x.mid.amax(dim, keepdim=True) - x.mid, 0.0)
    off = rules.exponentials_off(at, far, x.radius.amax(dim, keepdim=True), n)
    rounding = rules.off_by_own(off, p * (1 + r + phi) * ENLARGE, dim) + 4 * (n + 2) * at.tiny
    own = OF_MANY * p + LOST  # of p itself, and of its slopes
    is_lost = (p > 0) | (x.radius <= 1) | (found.radius <= LOST_BY_ALL)
    is_near = (is_small & is_lost).all(dim, keepdim=True) & (second < found.radius)
    local = torch.where(is_near, second + own + rounding, found.radius)

    def pull(slope: Ball) -> tuple[Ball]:
        g, r = slope.mid, slope.radius
        centred = g - (p * g).sum(dim, keepdim=True)
        sizes = g.abs() + (p * g.abs()).sum(dim, keepdim=True)
        spread = p * (r + (p * r).sum(dim, keepdim=True)) + (gamma(2 * n + 16) + OF_MANY) * p * sizes + LOST
        return (Ball(torch.where(is_near, p * centred, 0.0), torch.where(is_near, spread * ENLARGE, 0.0)),)

    local = torch.where(torch.isnan(found.radius), found.radius, local)
    return at.record(Ball(p, found.rad, None, found.infinite), (x,), local * ENLARGE, pull)


def layer_norm(at: Arithmetic, x: Ball, weight: Ball | None, bias: Ball | None, eps: float) -> Ball:
    """LayerNorm over the last axis, computed in the format of `at`, its slopes taken from the midpoint.

    With c = m - mean(m), s^2 = |c|^2/d + eps, and s' that of m + dx, P the projection that centres:

        N(m + dx) - N(m) = P dx / s' - c (2 c.dx + |P dx|^2) / (d s s' (s + s')),
        s'^2 - s^2 = (2 c.dx + |P dx|^2) / d.

    So the slopes are known but for s', which c.dx, bounded backwards, encloses; |P dx|^2 is of second order.
    """
    assert at.tape is not None
    d, m = x.mid.shape[-1], x.mid
    c = m - m.mean(-1, keepdim=True)
    variance = c.square().mean(-1, keepdim=True)
    s, *_ = rules.deviation(variance, 0.0, eps)
    slack = (OF_MANY + gamma(2 * d + 64)) * (m.abs().mean(-1, keepdim=True) + s) + LOST  # what float64 rounds of c, s
    rho = x.deviation(-1)
    rows = c.reshape(-1, d)
    every = torch.eye(len(rows), dtype=m.dtype, device=m.device).unsqueeze(-1) * rows
    along = backwards(at.tape, x, every.flatten(1)).reshape(*m.shape[:-1], 1)
    q = (2 * along + rho.square()) / d * ENLARGE + 4 * slack * (s + slack)
    _, low, high = rules.deviation(variance, q, eps)
    low = torch.maximum(low, rules.least_deviation(x, eps))
    a, b = 1 / s, 1 / (s * s * s)
    a_off = torch.maximum(1 / low - a, a - 1 / high) * ENLARGE + OF_MANY / low
    b_low = 2 / (s * low * (s + low)) * ENLARGE
    b_off = torch.maximum(b_low - b, b - 2 / (s * high * (s + high))) * ENLARGE + OF_MANY * b_low
    found, *_ = rules.layer_norm(replace(at, tape=None), x, [d], None, None, eps)
    z = (found.mid.abs() + found.radius).clamp(max=math.sqrt(d) + 1.0)
    rounding = rules.layer_norm_rounding(at, x.size, z, low, d)
    own = (slack + found.mid.abs() * slack / low) / low * 4
    second = c.abs() * rho.square() * b_low / (2 * d)
    local = (rounding + own + second) * ENLARGE

    def pull(slope: Ball) -> tuple[Ball]:
        g, r = slope.mid, slope.radius
        centred, share = g - g.mean(-1, keepdim=True), (c * g).mean(-1, keepdim=True)
        sizes = g.abs() + g.abs().mean(-1, keepdim=True)
        rounds = gamma(2 * d + 24) * (sizes / low + c.abs() * (c * g).abs().mean(-1, keepdim=True) * b_low) + LOST
        known = a_off * centred.abs() + b_off * c.abs() * share.abs() + rounds
        by_entry = (r + r.mean(-1, keepdim=True)) / low + c.abs() * (c.abs() * r).mean(-1, keepdim=True) * b_low
        spread = torch.minimum(by_entry, (slope.deviation(-1) / low).expand_as(r))
        whole = length(known) + torch.minimum(length(by_entry), slope.deviation(-1) / low)
        return (Ball(centred / s - c * share * b, (known + spread) * ENLARGE, Norm(whole * ENLARGE)),)

    out = at.record(Ball(found.mid, found.rad, found.norm), (x,), local, pull)
    out = rules.scaled(at, tightened(at, out), weight, bias)
    return rules.reordered(at, out, x, eps, weight, bias)


@dataclass(frozen=True)
class FewBits:
    """A graph whose sums are in a wider format, each result rounded once; or, `is_kept`, rounded or kept."""

    graph: Graph
    fmt: Format
    wide: Format
    is_kept: bool = False

    def evaluate(self, stored: Mapping[str, object], tokens: Tensor, tape: list[Step]) -> Ball:
        """The module's output on one input (length,), enclosed; what it is made of is on the tape."""
        at = Arithmetic(self.wide, None, True, tape, has_forms=False)
        values: dict[torch.fx.Node, object] = {}
        asserted: list[Tensor] = []
        for node in self.graph.program.nodes:
            if node.op == "placeholder":
                values[node] = stored[node.name] if node.name in stored else tokens.unsqueeze(0)
            elif node.op == "output":
                output = cast(Ball, self._read(at, values[node.all_input_nodes[-1]]))
                return where_all_hold(at, output, asserted)
            else:
                if condition(node) is not None:
                    asserted.append(holds(node, values))
                if not is_assertion(node):
                    values[node] = self._computed(node, values, at, tokens.device)
        raise AssertionError("a graph without an output")

    def _computed(
        self, node: torch.fx.Node, values: dict[torch.fx.Node, object], at: Arithmetic, device: torch.device
    ) -> object:
        name, value = str(node.target), node.meta.get("val")
        whole = self._whole_numbers(node, values)
        if whole:
            values = {**values, **whole}
        moves = name in EXACT or RULES.get(name) in MOVES or node.target is operator.getitem
        moving = [x for x in node.all_input_nodes if isinstance(ball := values[x], Ball) and ball.rad is not None]
        if not moves:
            values = {**values, **{x: self._read(at, values[x]) for x in moving}}
        if name in CURVED or (name in PRODUCTS and len(moving) > 1):
            for x in moving:
                values[x] = tightened(at, values[x])
        args, kwargs = given(node, values)
        if name == LAYER_NORM:
            x, _, weight, bias, eps = args
            return self._result(at, layer_norm(at, tightened(at, x), weight, bias, eps)), None, None
        if name in SOFTMAXES:
            empty = 0.0 if "safe" in name else math.nan
            found = softmax(self._inside(at), as_ball(at, args[0], args[0]), args[1], empty)
            return self._result(at, tightened(at, found))
        if name == SDPA:
            return self._result(at, self._attention(at, *args, **kwargs))
        is_exact = name == "aten.add.Tensor" and not kwargs and all(isinstance(x, Ball) and _is_exact(x) for x in args)
        if is_exact and not self.is_kept:
            return exact_sum(at, args[0], args[1], self.fmt, self.wide)
        if name == "aten.relu.default" and isinstance(args[0], Ball):
            return relu(at, args[0])
        if name in FUNCTIONS and isinstance(args[0], Ball):
            return self._result(at, linearised(self._inside(at), RULES[name], args[0], **kwargs))
        if name in MATRICES and all(isinstance(x, Ball) for x in args):
            return self._result(at, centred_product(at, *args))
        has_numbers = self.is_kept and not _is_sum(name, args, kwargs)  # of Python's, as a fill or a factor
        if moves or name in CREATING or name in STEPWISE or has_numbers:
            return call(node, values, self._stepwise(at), device)
        out = call(node, values, at, device)
        if self.is_kept and name in BIASES and len(args) > 2 and isinstance(args[BIASES[name]], Ball):
            out = self._read(at, cast(Ball, out), args[BIASES[name]].size)
        if node.target is operator.getitem:
            return out
        is_floats = isinstance(value, Tensor) and is_float(value.dtype)
        return self._result(at, out) if is_floats and isinstance(out, Ball) and not moves else out

    def _stepwise(self, at: Arithmetic) -> Arithmetic:
        """For operations in several steps, each rounded to the dtype or kept."""
        return Arithmetic(self.fmt, self.wide, True, at.tape)

    def _inside(self, at: Arithmetic) -> Arithmetic:
        """For softmax, scores and functions: one operation in the format of accumulation, or several."""
        return self._stepwise(at) if self.is_kept else at

    def _result(self, at: Arithmetic, x: Ball) -> Ball:
        """What an operation leaves: a number rounded once, or one that is rounded where it is read."""
        return x if self.is_kept else rounded_once(at, x, self.fmt)

    def _read(self, at: Arithmetic, x: T, more: Tensor | float = 0.0) -> T | Ball:
        """A result that may be rounded or kept wherever it is read; `more` is taken from it before that."""
        if not self.is_kept or not isinstance(x, Ball) or x.rad is None:
            return x
        size = (x.size + more) * ENLARGE
        off = half_spacing(size, self.fmt) + size * 2.0 ** -(2 * self.fmt.p + 1) + self.fmt.tiny
        off = torch.where(size + off <= self.fmt.largest, off * ENLARGE, math.nan)
        return widened(at, x, torch.where(torch.isinf(x.mid) & (x.radius == 0), 0.0, off))

    def _whole_numbers(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> dict[torch.fx.Node, Ball]:
        """Whole numbers and truth values that an operation on floats reads, rounded to the dtype as they are before."""
        dtype = computed_in(node)
        cover = cover_of(str(node.target), dtype)
        if cover is None or not is_float(dtype) or cover.is_of_intervals:
            return {}
        read = [x for i, x in enumerate(node.args) if isinstance(x, torch.fx.Node) and i not in cover.aside]
        at = Arithmetic(self.fmt, self.wide)
        return {x: as_float(at, held) for x in read if isinstance(held := values[x], Tensor | Unsure | Whole)}

    def _attention(
        self, at: Arithmetic, q: Ball, k: Ball, v: Ball, mask: Value | None = None, dropout: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Ball:  # fmt: skip
        """Scores and weights are rounded once, or kept; where results are, the scores may round in several steps."""
        if enable_gqa:
            k, v = (rules.repeated(at, x, q.mid.shape[-3]) for x in (k, v))
        q, k, v = (tightened(at, x) for x in (q, k, v))
        scores = rules.scores(self._inside(at), q, k, mask, is_causal, scale, centred_product)
        if not self.is_kept:
            off = torch.where(torch.isinf(scores.mid), 0.0, half_spacing(scores.size, self.fmt) + self.fmt.tiny)
            scores = widened(at, scores, off)
        weights = tightened(at, softmax(self._inside(at), tightened(at, scores), -1, 0.0))
        weights = widened(at, weights, self._stepwise(at).u * weights.size + self.fmt.tiny)
        found = centred_product(at, weights, v, more=4)
        return rules.undivided(self._inside(at), weights, v, found)


def _is_exact(x: Ball) -> bool:
    return x.rad is None and not x.infinite


def _is_sum(name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether it is a sum or product of tensors alone, without a number of Python's as a factor or term."""
    return name in SUMS and not kwargs and (".Tensor" not in name or all(isinstance(x, Ball) for x in args))


def is_as_it_runs(graph: Graph) -> bool:
    """Whether each operation of the graph is one that torch runs as one, so that its result is rounded once.

    Norms, BatchNorm and convolutions are captured as several, between which a kernel rounds nothing: then every result
    is taken as rounded or kept, which holds what either makes.
    """
    return all(_runs_as_one(node) for node in graph.calls if not is_assertion(node))


def _runs_as_one(node: torch.fx.Node) -> bool:
    """Convolutions begin with a padding; BatchNorm's results are several, of which LayerNorm's alone are known here."""
    name, value = str(node.target), node.meta.get("val")
    if name == PADDING:
        return False
    if name in AS_THEY_RUN or name in EXACT or RULES.get(name) in MOVES or node.target is operator.getitem:
        return True
    return isinstance(value, Tensor) and not is_float(value.dtype)


def bounds(
    graph: Graph,
    question: Question,
    fmt: Format,
    wide: Format,
    device: torch.device | str = "cpu",
    is_kept: bool = False,
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A function of tokens (N, length) and answers (N, positions): between which numbers each margin lies."""
    is_kept = is_kept or not is_as_it_runs(graph)
    few, stored = FewBits(graph, fmt, wide, is_kept), enclosed_weights(graph, Arithmetic(fmt, wide), device)
    every = torch.arange(graph.output.numel(), dtype=torch.float64, device=device).reshape(graph.output.shape)
    places = question.logits(Ball(every)).mid

    def one(tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        tape: list[Step] = []
        output = few.evaluate(stored, tokens, tape)
        own = places.gather(1, answers.unsqueeze(1)).expand_as(places)
        is_own = (own == places).reshape(-1)

        def gap(here: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
            at_own, at_rival = (every == here).double(), (every == there).double()
            nothing = torch.zeros_like(output.mid)
            middle = torch.where(at_own > 0, output.mid, nothing).sum()
            middle = middle - torch.where(at_rival > 0, output.mid, nothing).sum()
            off = difference(tape, output, at_own - at_rival) + 4 * U * middle.abs() + LOST
            return middle - off * ENLARGE, middle + off * ENLARGE

        low, high = torch.vmap(gap, chunk_size=AT_ONCE)(own.reshape(-1), places.reshape(-1))
        return torch.where(is_own, math.inf, low).amin(), torch.where(is_own, math.inf, high).amin()

    many, at_once = torch.vmap(one), max(1, ENTRIES_AT_ONCE // (graph.widest * min(AT_ONCE, graph.widest) * 8))

    def run(tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            parts = zip(torch.split(tokens, at_once), torch.split(answers, at_once), strict=True)
            found = [many(*part) for part in parts]
        low, high = zip(*found, strict=True)
        return torch.cat(low), torch.cat(high)

    return run
