"""Operations on one number at a time, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from flint import arb, ctx
from torch import Tensor

from verify.arithmetic import elementary
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.operations import ULPS as ULPS
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, LOST, OF_FEW, OF_MANY, OF_SUMS, U
from verify.engine.balls import Arithmetic, Axes, Ball, Computed, Norm, Unsure, Value, of_finite
from verify.engine.dtypes import ANY, TRUTHS, truth
from verify.engine.rules.linear import SLOPES, negated, plus, times, unbroadcast, widened
from verify.engine.rules.registry import as_ball, midpoint, rule

ROOT_2_OVER_PI = 0.7978845608028654
CUBE = 0.044715
# The largest slopes: of GELU at x = sqrt(2) 1.12890412..., of SiLU 1.09984, of tanh-GELU 1.12901
GELU_SLOPE, SILU_SLOPE = 1.13, 1.1


def pair(at: Arithmetic, a: Value, b: Value) -> tuple[Ball, Ball]:
    like = midpoint(a, b)
    return as_ball(at, a, like), as_ball(at, b, like)


@rule("aten.add.Tensor", "aten.add.Scalar")
def add(at: Arithmetic, a: Value, b: Value, *, alpha: float = 1) -> Ball:
    """a + alpha b, rounded once each."""
    x, y = pair(at, a, b)
    return plus(at, x, y if alpha == 1 else times(at, y, at.number(alpha, y.mid)))


@rule("aten.sub.Tensor", "aten.sub.Scalar")
def sub(at: Arithmetic, a: Value, b: Value, *, alpha: float = 1) -> Ball:
    """a - alpha b, rounded once each."""
    x, y = pair(at, a, b)
    return plus(at, x, negated(at, y if alpha == 1 else times(at, y, at.number(alpha, y.mid))))


@rule("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(at: Arithmetic, a: Value, b: Value, *, alpha: float = 1) -> Ball:
    """b - alpha a, rounded once each."""
    return sub(at, b, a, alpha=alpha)


@rule("aten.mul.Tensor", "aten.mul.Scalar")
def mul(at: Arithmetic, a: Value, b: Value) -> Ball:
    """a b, rounded once."""
    x, y = pair(at, a, b)
    return times(at, y, x) if x.norm is None and y.norm is not None else times(at, x, y)


@rule("aten.div.Tensor", "aten.div.Scalar")
def div(at: Arithmetic, a: Value, b: Value) -> Ball:
    """a / b, rounded once, or a times the rounded 1/b; no number where b may be zero."""
    x, y = pair(at, a, b)
    if y.rad is None and y.mid.ndim == 0 and x.norm is not None:  # keeps the vectors' norms
        inverse = 1 / y.mid  # rounded once, or off by at most LEAST / 2; no number where y is too small
        off = torch.where(inverse.abs() < math.inf, 2 * U * inverse.abs() + LEAST, math.nan)
        out = times(at, x, Ball(inverse, off))
        if at.is_real:
            return out
        lost = 2 * at.tiny * x.size  # the rounded 1/b may underflow, or be beyond the largest
        return widened(at, out, at.checked(inverse.abs() * ENLARGE, (2 * at.u * out.size + lost) * ENLARGE))
    low = (y.mid.abs() - y.radius) * (1 - 4 * U)
    is_safe = low > 2.0**-500
    low = torch.where(is_safe, low, torch.ones_like(low))
    mid = x.mid / torch.where(is_safe, y.mid, torch.ones_like(y.mid))
    # |x/y - m/n| <= (|x - m| + |m/n| |y - n|) / |y|; |m/n| and its product with a radius may underflow
    by_y = 0.0 if y.rad is None else (mid.abs() + LEAST) * ENLARGE * y.rad + LEAST
    spread = (x.radius + by_y) / low * ENLARGE
    rad = at.result(mid, spread, 3).radius
    if not at.is_real:  # the rounded 1/b may underflow, or be beyond the largest
        rad = at.checked(1 / low, (rad + 2 * at.tiny * x.size) * ENLARGE)
    out = Ball(mid, of_finite(mid, torch.where(is_safe, rad, torch.full_like(rad, math.nan)), x))

    def pull(slope: Ball) -> tuple[Ball | None, Ball | None]:
        by_x = None if x.rad is None else unbroadcast(div(SLOPES, slope, y), x.mid.shape)
        if y.rad is None:
            return by_x, None
        return by_x, unbroadcast(negated(SLOPES, times(SLOPES, slope, div(SLOPES, out, y))), y.mid.shape)

    return at.record(out, (x, y), beyond(out, spread), pull)


def beyond(out: Ball, spread: Tensor) -> Tensor:
    """How much larger a radius is than what came from the arguments."""
    return (out.radius - spread + OF_FEW * out.radius + LOST) * ENLARGE


@rule("aten.neg.default")
def neg(at: Arithmetic, x: Ball) -> Ball:
    """-x, exact."""
    return negated(at, x)


@rule("aten.abs.default")
def absolute(at: Arithmetic, x: Ball) -> Ball:
    """|x|, exact."""
    return Ball(x.mid.abs(), x.rad, x.norm, x.infinite)


@rule("aten.reciprocal.default")
def reciprocal(at: Arithmetic, x: Ball) -> Ball:
    """1 / x; no number where x may be zero."""
    return div(at, 1.0, x)


@rule("aten.sqrt.default")
def sqrt(at: Arithmetic, x: Ball) -> Ball:
    """The square root; no number where x may be negative."""
    low = x.mid - x.radius * ENLARGE
    mid = x.mid.clamp(min=0).sqrt()
    # |sqrt(x) - sqrt(m)| = |x - m| / (sqrt(x) + sqrt(m)), and at most sqrt(|x - m|)
    below = low.clamp(min=0).sqrt()
    spread = torch.minimum(x.radius / (mid + below).clamp(min=1e-300), x.radius.sqrt()) * ENLARGE
    rad = at.result(mid, spread, 2).radius
    rad = (rad + (0.0 if at.is_real else ULPS * at.u * (mid + rad))) * ENLARGE
    out = Ball(mid, torch.where(low >= 0, rad, torch.full_like(rad, math.nan)))
    half = Ball(torch.full_like(mid, 0.5))
    return at.record(out, (x,), beyond(out, spread), lambda g: (div(SLOPES, times(SLOPES, g, half), out),))


@rule("aten.rsqrt.default")
def rsqrt(at: Arithmetic, x: Ball) -> Ball:
    """1 / sqrt(x), the root and the quotient rounded; no number where x may be zero."""
    return div(at, 1.0, sqrt(at, x))


@rule("aten.pow.Tensor_Scalar")
def power(at: Arithmetic, x: Ball, exponent: float) -> Ball:
    """x^2, x^3, ... by products in turn, x^0.5 and x^-0.5 by roots, x^-1 by division."""
    if exponent == 0.5:
        return sqrt(at, x)
    if exponent == -0.5:
        return rsqrt(at, x)
    if exponent == -1:
        return reciprocal(at, x)
    out = x
    for _ in range(int(exponent) - 1):
        out = times(at, out, x)
    # a library's power is within ULPS u of its value
    return out if at.is_real or exponent == 1 else widened(at, out, ULPS * at.u * out.size)


def known_power(exponent: object) -> bool:
    """Whether `power` has a rule for this exponent."""
    if not isinstance(exponent, int | float):
        return False
    return exponent in (0.5, -0.5, -1) or (float(exponent).is_integer() and 1 <= exponent <= 16)


def steepest(x: Ball, slope: Tensor, bend: float, most: float) -> Tensor:
    """The largest |f'| in each ball, from its value at the midpoint: |f''| <= bend and |f'| <= most everywhere.

    `slope` may be off by 2^-40.
    """
    return (slope.abs() + OF_MANY + bend * x.radius).clamp(max=most) * ENLARGE


def smooth(
    at: Arithmetic,
    x: Ball,
    value: Tensor,
    own: Tensor | float,
    slope: Tensor,
    dtype_error: Tensor,
    derivative: Ball | None = None,
) -> Ball:
    """f(x) from `value` at the midpoint, off by `own`, where |f'| is at most `slope` in each ball.

    `dtype_error` is what the dtype's function may be off by, relative to u; `derivative` encloses f' in each ball,
    and is [-slope, slope] where none is given.
    """
    local = own + dtype_error * at.u + (0.0 if at.is_real else at.tiny)
    local = local * torch.ones_like(value)
    rad = local if x.rad is None else slope * x.rad + local
    norm = None
    if at.has_norms and x.norm is not None:
        norm = Norm(slope.amax(x.norm.axis, keepdim=True) * x.norm.radius * ENLARGE, x.norm.axis)
    out = Ball(value, rad * ENLARGE, None if norm is None else norm.plus(local))
    between = derivative or Ball(torch.zeros_like(value), slope * torch.ones_like(value))
    return at.record(out, (x,), local * ENLARGE, lambda g: (times(SLOPES, g, between),))


def slopes(x: Ball, at_middle: Tensor, bend: float, least: float, most: float) -> Ball:
    """Encloses f' in each ball, from its value at the midpoint, off by 2^-40: |f''| <= bend, f' in [least, most]."""
    reach = torch.maximum(most - at_middle, at_middle - least).clamp(min=0) + 2.0**-39
    return Ball(at_middle, torch.minimum(2.0**-39 + bend * x.radius * ENLARGE, reach))


@rule("aten.relu.default")
def relu(at: Arithmetic, x: Ball) -> Ball:
    """max(x, 0), exact; moves no more than x does, and not at all where x is surely negative."""
    rad = x.rad
    if rad is not None:
        rad = torch.where(x.mid + rad * ENLARGE < 0, torch.zeros_like(rad), rad)
    out = Ball(x.mid.clamp(min=0), rad, x.norm, x.infinite)

    def pull(slope: Ball) -> tuple[Ball]:
        above, below = x.mid - x.radius * ENLARGE > 0, x.mid + x.radius * ENLARGE < 0
        half = torch.where(above | below, 0.0, 0.5)
        between = Ball(torch.where(above, 1.0, half).to(x.mid.dtype), half.to(x.mid.dtype))
        return (times(SLOPES, slope, between),)

    return at.record(out, (x,), torch.zeros_like(x.mid), pull, is_same=True)


@rule("aten.leaky_relu.default")
def leaky_relu(at: Arithmetic, x: Ball, slope: float = 0.01) -> Ball:
    """x where positive, else slope x, rounded once."""
    steep = max(1.0, abs(float(slope)))
    mid = torch.where(x.mid > 0, x.mid, x.mid * float(slope))
    lost = 0.0 if at.is_real else at.tiny * x.size  # the slope may be flushed
    return at.result(mid, of_finite(mid, (x.radius * steep + lost) * ENLARGE, x), 2)


def bounded_exp(at: Arithmetic, x: Ball) -> tuple[Tensor, Tensor]:
    """exp(x) and its radius, propagated and computed, without a dtype's own rounding."""
    value = elementary.exp(x.mid)
    r = x.radius
    # |exp(m + r) - exp(m)| <= exp(m) r (1 + r) for 0 <= r <= 1
    grown = torch.where((r <= 1) | torch.isnan(r), r * (1 + r), torch.full_like(r, math.inf))
    return value, (value * (grown + elementary.exp_error()) * ENLARGE + LOST * (1 + grown)) * ENLARGE


@rule("aten.exp.default")
def exp(at: Arithmetic, x: Ball) -> Ball:
    """e^x; unbounded above e^700."""
    value, rad = bounded_exp(at, x)
    size = value + rad
    out = Ball(value, at.checked(size, (rad + ULPS * at.u * size + at.tiny) * ENLARGE))
    own = (elementary.exp_error() + ULPS * at.u) * size + 2 * LOST + at.tiny
    return at.record(out, (x,), at.checked(size, own * ENLARGE), lambda g: (times(SLOPES, g, out),))


@rule("aten.pow.Scalar")
def exponential(at: Arithmetic, base: float, x: Value) -> Ball:
    """base^x = exp(x log base) for a positive base; unbounded above e^700."""
    with ctx.workprec(200):
        exact = arb(float(base)).log()
        value, off = float(exact), float(abs(exact - float(exact)).upper()) * ENLARGE
    ball = as_ball(at, x, midpoint(x))
    number = at.number(base, ball.mid)  # in a dtype rounded, by r: its logarithm moves by at most r / (base - r)
    moved = number.radius / (number.mid - number.radius) * ENLARGE
    log_base = Ball(torch.full_like(ball.mid, value), (off + LOST + moved).expand(ball.mid.shape))
    out = exp(at, times(Arithmetic(), ball, log_base))
    return widened(at, out, ULPS * at.u * out.size)


@rule("aten.log.default")
def log(at: Arithmetic, x: Ball) -> Ball:
    """The logarithm; no number where x may be zero or negative.

    A candidate y is checked by our own exp: ln x = y + ln(x e^-y), and |ln(1 + t)| <= |t| / (1 - |t|).
    """
    low = x.mid - x.radius * ENLARGE
    is_safe = (low > 1e-290) & (x.mid < 1e290)
    m = torch.where(is_safe, x.mid, torch.ones_like(x.mid))
    y = m.log()
    t = (m / elementary.exp(y) - 1).abs() + 2 * elementary.exp_error() + 8 * U
    spread = (t / (1 - t).clamp(min=0.5) + x.radius / torch.where(is_safe, low, torch.ones_like(low))) * ENLARGE
    rad = torch.where(is_safe & (t < 0.5), spread, torch.full_like(spread, math.nan))
    return Ball(y, (rad + U * y.abs() + ULPS * at.u * (y.abs() + rad) + at.tiny) * ENLARGE)


def logistic(x: Tensor) -> Tensor:
    """1 / (1 + e^-x) of float64 numbers, off by at most `logistic_error`."""
    e = elementary.exp(-x.abs())
    low = e / (1 + e)
    return torch.where(x >= 0, 1 - low, low)


def logistic_error() -> float:
    """e / (1 + e) is off by its parts: exp's error, at most e/4 <= 1/4 of it, then three roundings of at most 1."""
    return (elementary.exp_error() / 4 + 4 * U) * ENLARGE + LOST


@rule("aten.sigmoid.default")
def sigmoid(at: Arithmetic, x: Ball) -> Ball:
    """1 / (1 + e^-x); |f'| <= 1/4, |f''| <= 0.0963."""
    value = logistic(x.mid)
    steep = value * (1 - value)
    slope, between = steepest(x, steep, 0.0963, 0.25), slopes(x, steep, 0.0963, 0.0, 0.25)
    dtype_error = ULPS * (value + 0.25 * x.radius)
    return within(at, smooth(at, x, value, logistic_error(), slope, dtype_error, between), 0.0, 1.0)


@rule("aten.tanh.default")
def tanh(at: Arithmetic, x: Ball) -> Ball:
    """tanh(x); |f'| <= 1, |f''| <= 0.77."""
    value = 2 * logistic(2 * x.mid) - 1
    slope, between = steepest(x, 1 - value * value, 0.77, 1.0), slopes(x, 1 - value * value, 0.77, 0.0, 1.0)
    own = 2 * logistic_error() + 2 * U
    return within(at, smooth(at, x, value, own, slope, ULPS * (value.abs() + x.radius), between), -1.0, 1.0)


def within(at: Arithmetic, x: Ball, least: float, most: float) -> Ball:
    """The ball, its radius no larger than reaches the ends of the function's range, and its dtype's error beyond."""
    assert x.rad is not None
    reach = torch.maximum(x.mid - least, most - x.mid) + OF_SUMS + 2 * ULPS * at.u
    out = Ball(x.mid, torch.minimum(x.rad, reach), x.norm)
    return at.record(out, (x,), torch.zeros_like(x.mid), lambda slope: (slope,), is_same=True)


@rule("aten.erf.default")
def erf(at: Arithmetic, x: Ball) -> Ball:
    """erf(x); |f'| <= 2/sqrt(pi) < 1.13, |f''| < 0.97."""
    value = elementary.erf(x.mid)
    steep = 1.1283791670955126 * elementary.exp(-x.mid.square())
    slope, between = steepest(x, steep, 0.97, 1.13), slopes(x, steep, 0.97, 0.0, 1.13)
    return smooth(at, x, value, elementary.erf_error(), slope, ULPS * (value.abs() + 1.13 * x.radius), between)


@rule("aten.gelu.default")
def gelu(at: Arithmetic, x: Ball, *, approximate: str = "none") -> Ball:
    """x (1 + erf(x/sqrt 2)) / 2, or its tanh form; -0.13 <= f' <= 1.13, |f''| < 0.8."""
    m, between = x.mid, None
    slope = torch.full_like(m, GELU_SLOPE)
    if approximate == "tanh":
        inner = ROOT_2_OVER_PI * (m + CUBE * m * m * m)
        value = m * logistic(2 * inner)
        # the argument is off by 8 u of itself, which moves the logistic by at most 0.28 of that: |y f'(y)| < 0.28
        own = m.abs() * (logistic_error() + 16 * U) + LOST
    else:
        share = (1 + elementary.erf(m * 0.7071067811865476)) / 2
        value = m * share
        if x.rad is not None:
            density = 0.3989422804014327 * elementary.exp(-m.square() / 2)
            slope = steepest(x, share + m * density, 0.8, GELU_SLOPE)
            between = slopes(x, share + m * density, 0.8, 1 - GELU_SLOPE, GELU_SLOPE)
        # x/sqrt 2 is off by 2 u of itself, which moves erf by at most 2 u max |y| erf'(y) < u
        own = m.abs() * (elementary.erf_error() / 2 + 4 * U) + LOST
    own = at.checked(2 * x.size, own)  # some kernels halve x (1 + erf) last
    return smooth(at, x, value, own, slope, ULPS * x.size, between)


@rule("aten.silu.default")
def silu(at: Arithmetic, x: Ball) -> Ball:
    """x / (1 + e^-x); -0.1 <= f' <= 1.1, |f''| <= 1/2."""
    share = logistic(x.mid)
    own = x.mid.abs() * (logistic_error() + 2 * U) + LOST
    steep = share * (1 + x.mid * (1 - share))
    slope, between = steepest(x, steep, 0.5, SILU_SLOPE), slopes(x, steep, 0.5, 1 - SILU_SLOPE, SILU_SLOPE)
    return smooth(at, x, x.mid * share, own, slope, ULPS * x.size, between)


@rule("aten.sin.default")
def sin(at: Arithmetic, x: Ball) -> Ball:
    """sin(x), up to |x| = 2^20; its slope is at most 1."""
    return wave(at, x, elementary.sine(x.mid), elementary.cosine(x.mid))


@rule("aten.cos.default")
def cos(at: Arithmetic, x: Ball) -> Ball:
    """cos(x), up to |x| = 2^20; its slope is at most 1."""
    return wave(at, x, elementary.cosine(x.mid), -elementary.sine(x.mid))


def wave(at: Arithmetic, x: Ball, value: Tensor, steep: Tensor) -> Ball:
    # a dtype's large arguments are reduced by its own library: within ULPS u of 1
    one = torch.ones_like(value)
    between = slopes(x, steep, 1.0, -1.0, 1.0)
    return within(at, smooth(at, x, value, elementary.circle_error(), one, ULPS * one, between), -1.0, 1.0)


@rule("aten.clamp.default", "aten.hardtanh.default")
def clamp(at: Arithmetic, x: Ball, least: float | None = None, most: float | None = None) -> Ball:
    """The number of [least, most] nearest to x, exact; moves no more than x does."""
    ends = [None if end is None else at.number(end, x.mid) for end in (least, most)]
    rad = x.radius
    for end in ends:
        if end is not None and end.rad is not None:
            rad = rad + end.rad
    low, high = (None if end is None else end.mid for end in ends)
    is_same = all(end is None or end.rad is None for end in ends)
    infinite = x.infinite or any(end is not None and end.infinite for end in ends)
    return Ball(x.mid.clamp(low, high), rad, x.norm if is_same else None, infinite)


@rule("aten.maximum.default")
def maximum(at: Arithmetic, a: Value, b: Value) -> Ball:
    """The larger of two, exact; moves no more than either does."""
    x, y = pair(at, a, b)
    return Ball(torch.maximum(x.mid, y.mid), torch.maximum(x.radius, y.radius), None, x.infinite or y.infinite)


@rule("aten.minimum.default")
def minimum(at: Arithmetic, a: Value, b: Value) -> Ball:
    """The smaller of two, exact; moves no more than either does."""
    x, y = pair(at, a, b)
    return Ball(torch.minimum(x.mid, y.mid), torch.maximum(x.radius, y.radius), None, x.infinite or y.infinite)


@rule("aten.amax.default")
def amax(at: Arithmetic, x: Ball, dims: Sequence[int] = (), keepdim: bool = False) -> Ball:
    """The largest number along axes, exact; moves no more than the one that moves most."""
    axes = list(dims) if dims else list(range(x.mid.ndim))
    return Ball(x.mid.amax(axes, keepdim), x.radius.amax(axes, keepdim), None, x.infinite)


@rule("aten.amin.default")
def amin(at: Arithmetic, x: Ball, dims: Sequence[int] = (), keepdim: bool = False) -> Ball:
    """The smallest number along axes, exact; moves no more than the one that moves most."""
    axes = list(dims) if dims else list(range(x.mid.ndim))
    return Ball(x.mid.amin(axes, keepdim), x.radius.amax(axes, keepdim), None, x.infinite)


def compared(name: str, says: str, above: bool, or_equal: bool) -> None:
    """Registers a comparison: sure where the two hulls do not meet, or where both are exact."""

    def compare(at: Arithmetic, a: Value, b: Value) -> Unsure:
        x, y = pair(at, a, b)
        if not above:
            x, y = y, x
        (x_low, x_high), (y_low, y_high) = x.ends, y.ends
        value = x.mid >= y.mid if or_equal else x.mid > y.mid
        surely = x_low >= y_high if or_equal else x_low > y_high
        surely_not = x_high < y_low if or_equal else x_high <= y_low
        return Unsure(value, surely | surely_not)

    compare.__doc__ = says
    for kind in ("Tensor", "Scalar"):
        rule(f"aten.{name}.{kind}")(compare)


compared("gt", "a > b, sure where the balls do not meet.", True, False)
compared("ge", "a >= b, sure where the balls do not meet.", True, True)
compared("lt", "a < b, sure where the balls do not meet.", False, False)
compared("le", "a <= b, sure where the balls do not meet.", False, True)


@rule("aten.eq.Tensor", "aten.eq.Scalar")
def equal(at: Arithmetic, a: Value, b: Value) -> Unsure:
    """a = b, sure where both are exact or the balls do not meet."""
    x, y = pair(at, a, b)
    (x_low, x_high), (y_low, y_high) = x.ends, y.ends
    are_same = (x.mid == y.mid) & (x.radius == 0) & (y.radius == 0)
    is_known = (x.radius == 0) & (y.radius == 0) & ~torch.isnan(x.mid) & ~torch.isnan(y.mid)
    return Unsure(are_same, is_known | (x_high < y_low) | (y_high < x_low))


@rule("aten.ne.Tensor", "aten.ne.Scalar")
def unequal(at: Arithmetic, a: Value, b: Value) -> Unsure:
    """a is not b, sure where both are exact or the balls do not meet."""
    same: Unsure = equal(at, a, b)
    return Unsure(~same.value, same.known)


@rule("aten.any.default", "aten.any.dim", "aten.any.dims", dtypes=ANY)
def any_of(at: Arithmetic, x: Computed, dims: Axes = None, keepdim: bool = False) -> Unsure:
    """Whether any number is not 0, sure where one surely is not or all are sure."""
    given = truth(at, x)
    axes = list(range(given.value.ndim)) if dims is None else [dims] if isinstance(dims, int) else list(dims)
    true, unsure = given.value & given.known, ~given.known
    for axis in sorted((a % given.value.ndim for a in axes), reverse=True):
        true, unsure = true.any(axis, keepdim), unsure.any(axis, keepdim)
    return Unsure(true, true | ~unsure)


@rule("aten.all.default", "aten.all.dim", "aten.all.dims", dtypes=ANY)
def all_of(at: Arithmetic, x: Computed, dims: Axes = None, keepdim: bool = False) -> Unsure:
    """Whether no number is 0, sure where one surely is or all are sure."""
    given = truth(at, x)
    opposite: Unsure = any_of(at, Unsure(~given.value, given.known), dims, keepdim)
    return Unsure(~opposite.value, opposite.known)


def logic(name: str, says: str, operation: Callable[[Tensor, Tensor], Tensor], decides: bool | None) -> None:
    """Registers an operation on two truth values; one that `decides` settles it alone.

    Numbers are true where they are not 0; the operations on bits are covered for truth values alone.
    """

    def combine(at: Arithmetic, a: Computed, b: Computed) -> Unsure:
        x, y = truth(at, a), truth(at, b)
        known = x.known & y.known
        if decides is not None:
            known = known | (x.known & (x.value == decides)) | (y.known & (y.value == decides))
        return Unsure(operation(x.value, y.value), known)

    combine.__doc__ = says
    rule(f"aten.logical_{name}.default", dtypes=ANY)(combine)
    rule(f"aten.bitwise_{name}.Tensor", dtypes=TRUTHS)(combine)


logic("and", "Both, sure where either is surely false or both are sure.", torch.logical_and, False)
logic("or", "Either, sure where either is surely true or both are sure.", torch.logical_or, True)
logic("xor", "One of two and not the other, sure where both are.", torch.logical_xor, None)


def opposite(at: Arithmetic, x: Computed) -> Unsure:
    """The opposite of a truth value, or whether a number is 0; sure where that is."""
    given = truth(at, x)
    return Unsure(~given.value, given.known)


rule("aten.logical_not.default", dtypes=ANY)(opposite)
rule("aten.bitwise_not.default", dtypes=TRUTHS)(opposite)


@rule("aten._to_copy.default")
def to_copy(at: Arithmetic, x: Value, dtype: torch.dtype | None = None) -> Ball:
    """Numbers as floats of another format, rounded once; in real arithmetic as they are.

    What is rounded to a format of fewer bits than the reading has is not known: no number.
    """
    ball = as_ball(at, x, midpoint(x))
    if at.stored is None or dtype is None or not isinstance(x, Ball):
        return ball
    out = at.result(ball.mid, ball.rad, 1, ball.norm, ((ball,), lambda slope: (slope,)))
    is_narrower = FORMATS[str(dtype).removeprefix("torch.")].p < at.stored.p
    return widened(at, out, torch.full_like(out.mid, math.nan)) if is_narrower else out
