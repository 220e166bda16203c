"""Softmax, attention and layer norms: rules for the whole of each, much sharper than rule by rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from verify.arithmetic import elementary
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, OF_SUMS, U, gamma
from verify.engine.balls import Arithmetic, Ball, Computed, Norm, Unsure, Value, length
from verify.engine.dtypes import as_float
from verify.engine.rules.linear import (
    SLOPES,
    mean,
    negated,
    plus,
    product,
    times,
    total,
    turned,
    widened,
)
from verify.engine.rules.movement import record_move
from verify.engine.rules.pointwise import ULPS, rsqrt
from verify.engine.rules.registry import RULES, as_ball, rule

FAR = 1500.0  # e^-1500 < 2^-2000, and float64 has no such number


def softmax(at: Arithmetic, x: Ball, dim: int, empty: float) -> Ball:
    """Softmax along an axis; exact -inf scores have the weight 0, a row of nothing else has `empty` everywhere.

    Let p be the exact softmax of the midpoints. A score that is off by r_j makes its exponential off by a factor in
    [1 - a_j, 1 + a_j], a_j = e^(r_j) - 1 and what its own evaluation adds; the sum is then off by a factor in
    F in [1 - s, 1 + s], s = sum_j p_j a_j, and p'_j - p_j = p_j (f_j - F) / F with f_j - F = sum_k p_k (f_j - f_k). So
    |p'_j - p_j| <= p_j (s + |1 - 2 p_j| a_j) / (1 - s), and their sum, a mean distance from a mean, is at most the root
    of sum_j p_j a_j^2, divided by 1 - s. No p_j moves by more than 1.

    In a dtype each exponential is off by a factor of its own, as `exponentials_off` says. A weight and the sum of all
    are made of the same exponentials, so that none is above 1 by more than the sum's error and the exponentials'. A
    weight computed from the exact ones p~ is off by a factor in [(1 - own_j) / (1 + S), (1 + own_j) / (1 - S)],
    S = sum_k p~_k own_k.

    Scores that lie FAR below another, as masks by large numbers do, have weights below 2^-2000, whatever the rest is.
    """
    n = x.mid.shape[dim]
    is_masked = torch.isneginf(x.mid) & (x.radius == 0)
    spoilt = torch.isnan(x.radius) | (torch.isinf(x.mid) & ~is_masked)  # infinite, but not surely a mask
    spoilt = spoilt.any(dim, keepdim=True)
    top = torch.where(is_masked, -math.inf, x.mid).amax(dim, keepdim=True)
    sure = torch.where(is_masked, -math.inf, x.mid - x.radius * ENLARGE).amax(dim, keepdim=True)
    out = is_masked | (x.mid + x.radius * ENLARGE < sure - FAR * (1 + 16 * at.u))
    below = x.mid - top
    e = torch.where(out, 0.0, elementary.exp(torch.where(out, 0.0, below)))
    p = e / e.sum(dim, keepdim=True)
    r = torch.where(out, 0.0, x.radius)
    far = torch.where(out, 0.0, below.abs())
    beyond = OF_SUMS + 8 * ULPS * at.u + 4 * at.sums((ULPS + 2) * n + 16)  # how far above 1 a weight may be
    own = exponentials_off(at, far, r.amax(dim, keepdim=True), n)
    is_small = (r <= 1).all(dim, keepdim=True)
    safe = torch.where(is_small, r, 0.0)
    a = (safe * (1 + safe) * (1 + own) + own) * ENLARGE
    s = (p * a).sum(dim, keepdim=True) * (1 + gamma(n + 16)) * ENLARGE
    is_small = is_small & (s < 0.5)
    s = s.clamp(max=0.5)
    lost = 4 * (n + 2) * at.tiny
    rad = p * (a * (1 - 2 * p).abs() + 2 * own * p + s) / (1 - s) * ENLARGE + lost
    l1 = ((p * a.square()).sum(dim, keepdim=True) * (1 + gamma(n + 16))).sqrt() / (1 - s) * ENLARGE
    own = torch.where(out, 0.0, own)
    of_own = (p * own).sum(dim, keepdim=True) * (1 + gamma(n + 16))
    most = 1 + beyond if beyond < 1 else math.inf
    # both rows' sums are within `beyond` of 1, whatever the scores are
    l1 = torch.where(is_small, l1 + 2 * of_own + n * lost, torch.full_like(l1, math.inf)).clamp(max=2 * most + n * lost)
    rad = torch.where(is_small, rad.clamp(max=most), most)
    rad, p = torch.where(out, torch.where(is_masked, 0.0, lost), rad), torch.where(out, 0.0, p)
    rad = torch.where(torch.isnan(p) | spoilt, math.nan, rad)
    nothing = is_masked.all(dim, keepdim=True)
    in_softmax = (ULPS + 3) * (n + 1)  # roundings of an exponential, of each rescaling, and of sums
    rad = at.within_reach(torch.full_like(rad, 2.0 * n), in_softmax, rad)  # partial sums of up to n weights
    is_last = dim % x.mid.ndim == x.mid.ndim - 1
    found = Ball(torch.where(nothing, empty, p), rad, None, l1=l1 if is_last else None)
    local = torch.where(is_masked, torch.zeros_like(p), off_by_own(own, p + rad, dim) + lost)
    local = at.within_reach(torch.full_like(local, 2.0 * n), in_softmax, local)
    return at.record(found, (x,), local, lambda g: (spread_of(g, found, dim),))


def exponentials_off(at: Arithmetic, far: Tensor, r: Tensor, n: int) -> Tensor:
    """How far each exponential of n scores is off, as a share of it: of scores `far` below the top at the midpoint.

    In a dtype the arguments are rounded, the score's distance from the largest so far, its own among them, and, where
    a kernel rescales by later ones, the distance of each from the next: together they are the score's distance from the
    top, at most far + 2 r, `r` the largest radius of a score. Each of at most n rescalings multiplies and takes an
    exponential, ULPS u, and what of its argument is subnormal may be flushed.
    """
    own = elementary.exp_error() + U * far * ENLARGE + gamma(n + 4)
    if at.is_real:
        return own
    # twice what the arguments' roundings are: (1 + a)(1 + b) <= 1 + b + e^(2x) - 1 for 1 + a = e^x, b <= 1
    rounded = torch.expm1(2 * (at.u * (far + 2 * r) + (n + 2) * at.tiny))
    return (own + (rounded + at.sums((ULPS + 2) * n + 16)) * ENLARGE).clamp(max=1e300)


def off_by_own(own: Tensor, most: Tensor, dim: int) -> Tensor:
    """How far weights of at most `most` are off by their exponentials' shares: the sum's is a mean of theirs."""
    top = own.amax(dim, keepdim=True)
    mean = torch.minimum(top, (most * own).sum(dim, keepdim=True) * (1 + gamma(2 * own.shape[dim] + 16)))
    share = (own + mean) / (1 - mean.clamp(max=0.5)) * ENLARGE
    return torch.where(mean <= 0.5, most * share, math.inf)


def spread_of(slope: Ball, p: Ball, dim: int) -> Ball:
    """What softmax makes of slopes, p (g - sum of p g), for every p in its ball.

    The weights are at least 0 and sum to 1, so that g_j is at most (1 - p_j) (max g - min g) from their mean: no number
    is more than min(p_j, 1/4) times that. A mean of such numbers, over weights on a segment, is no more either.
    """
    mean_slope = total(SLOPES, times(SLOPES, p, slope), [dim], True)
    centred: Ball = times(SLOPES, p, plus(SLOPES, slope, negated(SLOPES, mean_slope)))
    low, high = slope.ends
    nothing = torch.full_like(low, math.inf)  # where the weight is surely 0
    low, high = torch.where(p.size > 0, low, nothing), torch.where(p.size > 0, high, -nothing)
    apart = (high.amax(dim, keepdim=True) - low.amin(dim, keepdim=True)).clamp(min=0) * ENLARGE
    most = torch.minimum((p.mid + p.radius) * ENLARGE, torch.full_like(p.mid, 0.25)) * apart * ENLARGE
    is_less = most < centred.size
    return Ball(torch.where(is_less, 0.0, centred.mid), torch.where(is_less, most, centred.radius))


@rule("aten._softmax.default", "aten.softmax.int")
def _softmax(at: Arithmetic, x: Computed, dim: int, *options: object) -> Ball:
    """Softmax; scores of exactly -inf have the weight 0, and a row of nothing else is NaN."""
    return softmax(at, as_float(at, x), dim, math.nan)


@rule("aten._safe_softmax.default")
def _safe_softmax(at: Arithmetic, x: Computed, dim: int, *options: object) -> Ball:
    """Softmax; scores of exactly -inf have the weight 0, and a row of nothing else is 0."""
    return softmax(at, as_float(at, x), dim, 0.0)


@rule("aten._log_softmax.default")
def log_softmax(at: Arithmetic, x: Ball, dim: int, *options: object) -> Ball:
    """x - max - log(sum of exponentials), each step in turn."""
    from verify.engine.rules.pointwise import amax, exp, log

    centred = plus(at, x, negated(at, amax(at, x, [dim], True)))
    return plus(at, centred, negated(at, log(at, total(at, exp(at, centred), [dim], True))))


@rule("aten.scaled_dot_product_attention.default", aside=(3,))
def attention(
    at: Arithmetic,
    q: Ball,
    k: Ball,
    v: Ball,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Ball:
    """softmax(q k^T / sqrt(d) + mask) v with the exact root of d; a row masked everywhere is 0.

    With `enable_gqa` each key and value is read by as many queries as there are more heads of those, one after another.
    """
    if enable_gqa:
        k, v = (repeated(at, x, q.mid.shape[-3]) for x in (k, v))
    weights = softmax(at, scores(at, q, k, mask, is_causal, scale), -1, 0.0)
    return undivided(at, weights, v, product(at, weights, v, more=4))


def undivided(at: Arithmetic, weights: Ball, v: Ball, out: Ball) -> Ball:
    """The mean of values, no number where their sum may overflow that is divided last: its weights may be 1 each."""
    if at.is_real:
        return out
    n = v.mid.shape[-2]
    size = (weights.size > 0).to(v.mid.dtype) @ v.size * (1 + gamma(n + 16))
    return widened(at, out, at.within_reach(size, (ULPS + 3) * (n + 1), torch.zeros_like(out.mid)))


def repeated(at: Arithmetic, x: Ball, heads: int) -> Ball:
    """Keys or values for so many heads of queries, each repeated in place."""
    whose = torch.arange(heads, device=x.mid.device) // (heads // x.mid.shape[-3])
    move = RULES["aten.index_select.default"]
    out: Ball = move(at, x, -3, whose)
    record_move(at, move, (x, -3, whose), {}, out)
    return out


def scores(
    at: Arithmetic,
    q: Ball,
    k: Ball,
    mask: Value | None,
    is_causal: bool,
    scale: float | None,
    multiply: Callable[..., Ball] = product,
) -> Ball:
    """q k^T times the scale (else 1 / sqrt(d)) plus the mask: exactly -inf where a truth value is false."""
    keys = at.record(turned(k), (k,), torch.zeros(()), lambda g: (turned(g),), is_same=True)
    found = multiply(at, q, keys, more=6)  # q and k may each be scaled by the root of the scale
    if scale is None:
        value = q.mid.new_tensor(1 / math.sqrt(q.mid.shape[-1]))
        factor = Ball(value, value * (4 * U + 4 * at.u))
    else:
        factor = at.number(scale, q.mid)
        if not at.is_real:  # its root, rounded, may scale both
            factor = Ball(factor.mid, factor.radius + 4 * at.u * factor.size)
    found = times(at, found, factor)
    if not at.is_real:  # what is scaled before may underflow, or be beyond the largest
        loud = (q.size + 1) @ (keys.size + 1) * factor.size.clamp(min=1)
        # at most seven roundings of each q k: the scale's and its root's in both, what is scaled by it, and the product
        loud = loud * (1 + at.own_sums(q.mid.shape[-1])) * (1 + at.u) ** 7 * ENLARGE
        found = widened(at, found, at.checked(loud, 4 * at.tiny * loud))
    n, m = found.mid.shape[-2:]
    if is_causal:
        mask = torch.ones(n, m, dtype=torch.bool, device=q.mid.device).tril()
    assert not isinstance(mask, Unsure), "refused at capture"
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return masked(at, found, mask)
    return found if mask is None else plus(at, found, as_ball(at, mask, q.mid))


def masked(at: Arithmetic, x: Ball, mask: Tensor) -> Ball:
    """The numbers where the mask is true, exactly -inf elsewhere.

    Kernels add -inf there, so that what may be no number stays so.
    """

    def kept(slope: Ball) -> tuple[Ball]:
        mid, rad = (torch.where(mask, part, torch.zeros_like(part)) for part in (slope.mid, slope.radius))
        return (Ball(mid, rad),)

    mid = torch.where(mask, x.mid, torch.full_like(x.mid, -math.inf))
    out = Ball(mid, torch.where(mask | torch.isnan(x.radius), x.radius, torch.zeros_like(mid)), None, infinite=True)
    return at.record(out, (x,), torch.zeros(()), kept, is_same=True)


@rule("aten.native_layer_norm.default")
def layer_norm(
    at: Arithmetic, x: Ball, shape: list[int], weight: Ball | None, bias: Ball | None, eps: float, *, least: float = 0.0
) -> tuple[Ball, None, None]:
    """LayerNorm over the last axis: (x - mean) / sqrt(variance + eps), times the weight, plus the bias.

    `least` is less than sqrt(variance + eps) of every vector that is asked about, where that is known from elsewhere.

    N(x) = (x - mean) / s with s = sqrt(var + eps) has the derivative (P - z z^T / d) / s, P the projection that
    centres, z = N(x): symmetric, eigenvalues in [0, 1/s]. s is 1/sqrt(d)-Lipschitz in the l2 norm. So over a ball of
    l2 radius rho about m, with s0 = s(m) - rho / sqrt(d) > 0, N moves by at most rho / s0 in the l2 norm, and its
    entry i by at most (r_i + t + Z_i tau) / s0: tau = rho / sqrt(d) bounds the mean of z . dx, t = min(mean r, tau)
    that of dx, and Z_i = (|N_i(m)| + (r_i + t) / s0) / (1 - tau / s0) bounds |z_i| on the way. No second-order term
    is left out: both are bounds along the whole segment.

    In a dtype the mean is within gamma_(d+2) of the mean of |x|, the variance within gamma_(4d+16) of the mean of x^2,
    Q, and the rest is rounded operation by operation, fused or not. With g = gamma_d and A the mean of |x|, A^2 <= Q:
    one pass is off by g Q for the squares, 2 g A^2 for the mean's square, and their rounding; two passes by g var and
    g^2 A^2; Welford's update by g var and, as each running mean is off by at most u sum |x_i| <= u d A and the
    distances from running means have the root mean square sqrt(2 var), by 2 u d A sqrt(2 var) <= 2.9 u d Q.
    """
    d = x.mid.shape[-1]
    m, r, root = x.mid, x.radius, math.sqrt(d)
    average, k = (pairwise_mean, d.bit_length()) if at.has_norms else (plain_mean, d)
    centre = average(m)
    size = m.abs().mean(-1, keepdim=True) * ENLARGE
    c = m - centre
    # each product, quotient and mean here may lose LEAST / 2 to underflow: three before c, then |y| s_error, over low
    c_error = gamma(k + 4) * size + U * c.abs() + 4 * LEAST
    variance = average(c.square())
    v_error = (2 * c.abs() * c_error + c_error.square()).mean(-1, keepdim=True) + gamma(k + 8) * variance + 8 * LEAST
    s, low, _ = deviation(variance, v_error, eps)
    y = c / s
    s_error = v_error / (s + low).clamp(min=1e-300) + 4 * U * s
    own = ((c_error + y.abs() * s_error) / low + 2 * U * y.abs()) * ENLARGE + 16 * LEAST
    rho = x.deviation(-1) if at.has_norms else length(r)
    tau = rho / root * ENLARGE + LEAST
    s0 = low - tau
    is_safe = (s0 > 0) & (tau < 0.5 * s0)
    least_s = least_deviation(x, eps).clamp(min=least)  # of every vector, where the ball says no more
    is_bounded = is_safe | (least_s > 0)
    s0 = torch.where(is_safe, s0, torch.where(is_bounded, least_s, torch.ones_like(s0)))
    t = torch.minimum(r.mean(-1, keepdim=True) * (1 + gamma(d + 4)) * ENLARGE, tau) + 2 * LEAST  # and z tau, below
    z = (y.abs() + own + (r + t) / s0) / torch.where(is_safe, 1 - tau / s0, torch.ones_like(tau)) * ENLARGE
    z = torch.where(is_safe, z, root + 1.0)
    moved = torch.minimum((r + t + z * tau) / s0, (rho / s0).expand_as(r)) * ENLARGE
    rounding = torch.zeros_like(own) if at.is_real else layer_norm_rounding(at, x.size, z, s0, d)
    local = own + rounding
    anything = (y.abs() + root + 1.0 + rounding) * ENLARGE  # |N_i| < sqrt(d), whatever x is
    anything = torch.where(is_bounded & torch.isfinite(rounding), anything, torch.full_like(anything, math.nan))
    rad = torch.where(is_safe, moved + local, anything)
    rad = torch.where(torch.isnan(rho), torch.full_like(rad, math.nan), rad)
    norm = None
    if at.has_norms:
        whole = torch.where(is_safe, rho / s0 + length(local), 2 * root + length(local))  # |N(x)| < sqrt(d) at both
        norm = Norm(torch.minimum(whole * ENLARGE, length(rad)))
    out = Ball(y, rad * ENLARGE, norm)
    if at.tape is not None:
        width = (s - s0).clamp(min=0) + s_error + 2 * tau
        width = torch.where(is_safe, width, torch.full_like(width, math.inf))
        local = torch.where(is_bounded, local * ENLARGE, torch.full_like(local, math.inf))
        at.record(out, (x,), local, lambda g: (normal_slopes(g, out, s, s0, width),))
    out = scaled(at, out, weight, bias)
    return (out if at.is_real else reordered(at, out, x, eps, weight, bias)), None, None


def scaled(at: Arithmetic, x: Ball, weight: Ball | None, bias: Ball | None) -> Ball:
    """w x + b, of those that there are."""
    x = x if weight is None else times(at, x, weight)
    return x if bias is None else plus(at, x, bias)


def reordered(at: Arithmetic, out: Ball, x: Ball, eps: float, weight: Ball | None, bias: Ball | None) -> Ball:
    """w N(x) + b in a dtype, widened to what fused kernels compute: x (w/s) + (b - mean w/s), rows along the last axis.

    What rounding x w/s and mean w/s adds is within what N(x) may be off by. b is rounded once more, with mean w/s
    subtracted, and so is the sum; w/s underflows only where it is small, and is multiplied by |x| + |mean|, `size`.
    It may overflow where w (x - mean)/s does not: then the sum is no number. The computed s is that of a variance off
    by at most a quarter, beyond which N(x) is unbounded, and within ULPS u of its root.
    """
    d = x.mid.shape[-1]
    square = x.size.square().mean(-1, keepdim=True) * (1 + gamma(d + 4))
    size = (x.size + x.size.mean(-1, keepdim=True) * (1 + gamma(d + 4))).reshape(out.mid.shape)
    ends = least_deviation(x, eps), deviation(square, 0.0, eps)[2]
    least, most = (end.expand_as(x.mid).reshape(out.mid.shape) for end in ends)
    scale, shift = (0.0 if part is None else part.size for part in (weight, bias))
    extra = 4 * at.u * out.size + 4 * at.u * shift + 4 * at.tiny
    if weight is not None:
        may_underflow = (weight.mid.abs() - weight.radius <= 4 * at.tiny * most) & (weight.size > 0)
        extra = extra + torch.where(may_underflow, 2 * at.tiny * size, torch.zeros_like(size))
    loudest = (
        2 * (1 + at.by_root(ULPS, 2)) * (1.0 if weight is None else scale) * (size + 1.0) / least * ENLARGE + shift
    )
    return widened(at, out, at.checked(loudest, extra.expand_as(out.mid)))


def least_deviation(x: Ball, eps: float) -> Tensor:
    """Less than s = sqrt(var + eps) of every row: of d numbers, two that are `apart` have var >= apart^2 / (2 d)."""
    low, high = x.ends
    apart = (low.amax(-1, keepdim=True) - high.amin(-1, keepdim=True)).clamp(min=0)
    _, of_eps, _ = deviation(torch.zeros_like(apart), 0.0, eps)
    return torch.maximum(apart / math.sqrt(2 * x.mid.shape[-1]) * (1 - 8 * U), of_eps)


def deviation(variance: Tensor, off: Tensor | float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """sqrt(variance + eps), and its ends for all variances within `off` of these, of which none is below 0.

    NaN for a negative eps, of which s may change faster than its row does, and at the lower end where squares are
    infinite. Sums are within 4 U of themselves, and so are roots; neither underflows.
    """
    eps = eps if eps >= 0 else math.nan
    least, total, most = (variance - off).clamp(min=0) + eps, variance + eps, variance + off + eps
    low = (least - 4 * U * total).clamp(min=0).sqrt() * (1 - 4 * U)
    return total.sqrt(), low, (most * (1 + 4 * U)).sqrt() * (1 + 4 * U)


def normal_slopes(slope: Ball, normal: Ball, s: Tensor, least: Tensor, width: Tensor) -> Ball:
    """What N makes of slopes: (P - z z^T / d) g / s', for every z in its ball and s' >= `least` within `width` of s.

    Two such matrices J differ by at most |1/s' - 1/s| and, as |z| <= sqrt(d), (2 sqrt(d) + |dz|) |dz| / (d s'), in the
    l2 norm, and none is longer than 1/s': J'g' - Jg = J'(g' - g) + (J' - J) g.
    """
    d = slope.mid.shape[-1]
    g, y = slope.mid, normal.mid
    mid = (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) / s
    sizes = g.abs() + g.abs().mean(-1, keepdim=True) + y.abs() * (g * y).abs().mean(-1, keepdim=True)
    # what underflows before the division by s: in the means, the products, and the mean product times |y| <= sqrt(d)
    rounding = (gamma(2 * d + 24) * sizes + (d + 16) * LEAST) / s + LEAST
    dz = length(normal.radius) if normal.norm is None else normal.norm.radius
    apart = (width / s + dz * (2 * math.sqrt(d) + dz) / d) / least
    far = (slope.deviation(-1) / least + apart * length(g)) * ENLARGE
    any_ = ((slope.deviation(-1) + length(g)) / least) * ENLARGE  # no such matrix is longer than 1/s'
    is_near = far < any_
    mid, far = torch.where(is_near, mid, 0.0), torch.where(is_near, far, any_)
    norm = Norm(far).plus(rounding)
    return Ball(mid, (far + rounding) * ENLARGE, norm)


def plain_mean(x: Tensor) -> Tensor:
    """The mean along the last axis, kept: d additions, in an order of torch's choice."""
    return x.mean(-1, keepdim=True)


def pairwise_mean(x: Tensor) -> Tensor:
    """The mean along the last axis, kept: neighbours in turn, so that each number takes part in log2(d) additions."""
    d = x.shape[-1]
    while x.shape[-1] > 1:
        half, is_odd = x.shape[-1] // 2, x.shape[-1] % 2
        joined = x[..., :half] + x[..., half : 2 * half]
        x = torch.cat([joined, x[..., 2 * half :]], -1) if is_odd else joined
    return x / d


def layer_norm_rounding(at: Arithmetic, size: Tensor, z: Tensor, s0: Tensor, d: int) -> Tensor:
    """What a dtype adds to (x - mean) / s, for every evaluation of the contract; infinite where s is lost in it."""
    mean_size = size.mean(-1, keepdim=True) * (1 + gamma(d + 4))
    square = size.square().mean(-1, keepdim=True) * (1 + gamma(d + 4))
    mean_error = at.sums(d + 2) * mean_size + at.lost_in_sums(d)
    var_error = at.off_in_variance(d) * square + at.lost_in_sums(4 * d)
    floor = s0.square()
    share = var_error / floor
    # 1/sqrt(V'): off by less than delta/V relatively where delta <= V/4; then the centring, a root, 1/root, a product
    relative = share + (1 + share) * at.by_root(ULPS, 6)
    relative = torch.where(share <= 0.25, relative, torch.full_like(share, math.inf))
    centre_error = (mean_error + 8 * at.u * (size + mean_size) + 4 * at.tiny) / s0
    local = centre_error * (1 + relative) + z * relative + 4 * at.tiny
    return at.within_reach(square.expand_as(local) * d, d, local * ENLARGE)


@rule("aten.native_group_norm.default")
def group_norm(
    at: Arithmetic, x: Ball, weight: Ball | None, bias: Ball | None, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Ball, None, None]:
    """GroupNorm: LayerNorm without weights over each group, then weight and bias by channel."""
    shape = x.mid.shape
    rows = Ball(x.mid.reshape(n, groups, -1), None if x.rad is None else x.rad.reshape(n, groups, -1))
    out, *_ = layer_norm(at, rows, [rows.mid.shape[-1]], None, None, eps)
    out = Ball(out.mid.reshape(shape), out.radius.reshape(shape))
    sides = [c] + [1] * (len(shape) - 2)
    weight, bias = (None if part is None else by_channel(part, sides) for part in (weight, bias))
    out = scaled(at, out, weight, bias)
    return (out if at.is_real else reordered(at, out, rows, eps, weight, bias)), None, None


def by_channel(x: Ball, sides: list[int]) -> Ball:
    """Weights or biases, one for each channel, as they are multiplied or added."""
    return Ball(x.mid.reshape(sides), None if x.rad is None else x.rad.reshape(sides))


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    at: Arithmetic, x: Ball, weight: Ball | None, bias: Ball | None, mean: Ball, var: Ball, momentum: float, eps: float
) -> tuple[Ball, None, None]:
    """BatchNorm by stored means and variances: x a + (b - mean a) with a = w / sqrt(var + eps).

    In a dtype it may be computed so, or as (x - mean) / sqrt(var + eps) w + b, the factors in any order: at most 10
    roundings and a root within ULPS u, of terms that add up to at most (|x| + |mean|) |a| + |b|. Two of the
    factors may overflow where all three do not.
    """
    real = replace(at, stored=None, accumulate=None)
    sides = [1, mean.mid.shape[0]] + [1] * (x.mid.ndim - 2)
    eps_read = at.number(eps, var.mid)  # it may be lost, where it is subnormal, and so may what it is added to
    under = plus(Arithmetic(), var, eps_read if at.is_real else Ball(eps_read.mid, eps_read.radius + at.tiny))
    inverse = rsqrt(Arithmetic(), under)
    scale = inverse if weight is None else times(Arithmetic(), weight, inverse)
    shift = negated(Arithmetic(), times(Arithmetic(), mean, scale))
    shift = shift if bias is None else plus(Arithmetic(), bias, shift)
    out = plus(real, times(real, x, by_channel(scale, sides)), by_channel(shift, sides))
    if at.is_real:
        return out, None, None
    a, centre, root, w, b = (
        torch.zeros(sides, dtype=x.mid.dtype, device=x.mid.device) if part is None else part.size.reshape(sides)
        for part in (scale, mean, inverse, weight, bias)
    )
    size = (x.size + centre) * a + b
    extra = at.by_root(ULPS, 10) * size + at.tiny * (4 + w + x.size + centre + root) * 2
    pairs = (x.size + centre) * torch.maximum(root, w)
    largest = torch.maximum(torch.maximum(size, pairs), torch.maximum(a, root).expand_as(size))
    return widened(at, out, at.checked(largest * ENLARGE, extra * ENLARGE)), None, None


@rule("aten._fused_rms_norm.default")
def rms_norm(at: Arithmetic, x: Ball, shape: list[int], weight: Ball | None, eps: float | None) -> tuple[Ball, None]:
    """RMSNorm: x / sqrt(mean of squares + eps), times the weight, each step in turn."""
    assert eps is not None, "refused at capture"
    axes = list(range(-len(shape), 0))
    squares = plus(at, mean(at, times(at, x, x), axes, True), at.number(eps, x.mid))
    scale = rsqrt(at, squares)
    out = times(at, x, scale)
    if not at.is_real:  # the squares and this product may read x in two forms
        out = widened(at, out, 2 * (at.u * x.size + at.tiny) * scale.size * ENLARGE)
    if weight is None:
        return out, None
    found = times(at, out, weight)
    if at.is_real:
        return found, None
    # kernels may multiply the weight by the scale or by x first: as many roundings, but products that may be lost
    pairs = weight.size * torch.maximum(x.size, scale.size) * ENLARGE
    lost = 2 * at.tiny * (x.size + scale.size)
    return widened(at, found, at.checked(pairs, lost.expand_as(found.mid))), None
