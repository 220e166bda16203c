"""Sums of products: matrix products, linear layers, sums and means."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor

from verify.arithmetic.elementary import power_of_two
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, LOST, U, gamma
from verify.engine.balls import Arithmetic, Axes, Ball, Norm, Value, length, of_finite, parts
from verify.engine.rules.registry import as_ball, midpoint, rule

SQUARINGS = 8
SLOPES = Arithmetic(has_norms=True)  # what slopes are enclosed in


def spectral_norm(W: Tensor) -> Tensor:
    """An upper bound on the largest singular value of a matrix.

    The largest eigenvalue of G = W^T W is at most the 2^k-th root of the trace of G^(2^k). Each power is computed in
    float64; its rounding moves it by at most gamma |.||.| in the Frobenius norm, and four times that is added to the
    diagonal: the largest eigenvalue of what is computed is then at least the square of the one before, and none is
    negative. Powers of two keep the traces near 1. A bound by rows and columns, and the Frobenius norm, are taken where
    they are less.
    """
    size = W.abs()
    sides = size.sum(0).amax().sqrt() * size.sum(1).amax().sqrt()  # roots first, whose product LEAST / 2 is lost of
    plain = torch.minimum(length(W.flatten(), 0).squeeze(0), (sides + LEAST) * ENLARGE)
    k = min(W.shape)
    narrow = W if W.shape[1] == k else W.T
    scale = torch.where(plain > 0, plain, torch.ones_like(plain))
    power = raised(narrow / scale, max(W.shape))  # divided: each entry off by u, all of it by u of its Frobenius norm
    scales = []
    for _ in range(SQUARINGS):
        scales.append(torch.exp2(power.diagonal().sum().log2().ceil()))
        power = raised(power / scales[-1], k)
    root = power.diagonal().sum() * ENLARGE
    for factor in reversed(scales):
        root = root.sqrt() * factor * ENLARGE
    root = (root.sqrt() * scale + LEAST) * ENLARGE
    return torch.where(root < plain, root, plain)


def kept_norms(at: Arithmetic, W: Tensor, h: int) -> Tensor:
    """Upper bounds on the largest singular values of h equal parts of a matrix's columns, computed once where `kept`.

    A kept matrix is held too, so that no other takes its place in memory.
    """
    if at.kept is None or torch._C._functorch.is_batchedtensor(W):
        return torch.stack([spectral_norm(part) for part in W.chunk(h, -1)])
    key = (W.data_ptr(), W.shape, W.stride(), h)
    if key not in at.kept:
        at.kept[key] = (torch.stack([spectral_norm(part) for part in W.chunk(h, -1)]), W)
    return at.kept[key][0]


def raised(A: Tensor, terms: int) -> Tensor:
    """A^T A, made symmetric, with four times its rounding error on the diagonal."""
    slack = 4 * gamma(terms + 8) * length(A.flatten(), 0).squeeze(0).square()
    product = A.T @ A
    return (product + product.T) / 2 + slack * torch.eye(A.shape[1], dtype=A.dtype, device=A.device)


def product(at: Arithmetic, x: Ball, y: Ball, more: int = 0) -> Ball:
    """x @ y for (..., n, k) and (..., k, m); `more` extra roundings of each product."""
    k = x.mid.shape[-1]
    sizes, other, g = x.size, y.mid.abs(), at.own_sums(k + more)
    if at.is_real and not at.has_norms and at.tape is None:
        mid = x.mid @ y.mid
        return Ball(mid, of_finite(mid, at_once(at, x, y, g, sizes, other) * ENLARGE, x, y))
    size = sizes @ (other if y.rad is None else y.size)
    if at.is_real and at.has_norms:
        mid, local = careful_product(x.mid, y.mid)
    else:
        mid, local = x.mid @ y.mid, g * size
    spread = None
    if x.rad is not None:
        spread = x.rad @ other
    if y.rad is not None:
        by_y = sizes @ y.rad
        spread = by_y if spread is None else spread + by_y
    norm = None
    if at.has_norms and spread is not None:
        spread, norm = sharper(at, x, y, spread, sizes)
    enlarged = 1 + gamma(2 * k + 16)  # these products, too, are sums of k positive terms
    local = at.within_reach(size * enlarged, k + more, local * enlarged + at.lost_in_sums(k + more))
    rad = local if spread is None else (local + spread * enlarged) * ENLARGE
    if norm is not None:
        norm = norm.plus(local)

    def pull(slope: Ball) -> tuple[Ball | None, Ball | None]:
        by_x = None if x.rad is None else unbroadcast(product(SLOPES, slope, turned(y)), x.mid.shape)
        return by_x, None if y.rad is None else unbroadcast(product(SLOPES, turned(x), slope), y.mid.shape)

    return at.record(Ball(mid, of_finite(mid, rad * ENLARGE, x, y), norm), (x, y), local * ENLARGE, pull)


def at_once(at: Arithmetic, x: Ball, y: Ball, g: float, sizes: Tensor, other: Tensor) -> Tensor:
    """The radius of x @ y in as few products as it takes: (r_x + g |x|) |y|, and |x| r_y where y has a radius.

    `sizes` is |x| at its largest, and LOST makes up for what underflows in r_x + g |x|.
    """
    k = x.mid.shape[-1]
    off = g * sizes if x.rad is None else torch.add(x.rad, sizes, alpha=g)
    rad = (off + LOST) @ other
    if y.rad is not None:
        rad = rad + sizes @ y.rad
    return rad * (1 + gamma(2 * k + 16)) + at.lost_in_sums(k)


def turned(x: Ball) -> Ball:
    """The matrices transposed."""
    norm = x.norm
    if norm is not None:
        norm = Norm(norm.radius.transpose(-2, -1), -3 - norm.axis) if norm.axis in (-1, -2) else None
    return Ball(x.mid.transpose(-2, -1), None if x.rad is None else x.rad.transpose(-2, -1), norm, x.infinite)


def unbroadcast(x: Ball, shape: torch.Size) -> Ball:
    """The sums over the axes along which numbers of this shape were repeated."""
    if x.mid.shape == shape:
        return x
    lead = x.mid.ndim - len(shape)
    axes = [i for i in range(x.mid.ndim) if i < lead or (shape[i - lead] == 1 and x.mid.shape[i] > 1)]
    out: Ball = total(SLOPES, x, axes, True) if axes else x
    return Ball(out.mid.reshape(shape), out.radius.reshape(shape))


def careful_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x @ y off by little more than one rounding of each entry, and a bound on that: whatever order torch adds in.

    Each row of x and column of y is its leading b bits, relative to its largest entry, and a rest. The products of the
    leading parts are multiples of one power of two below 2^53 of it, however many are added: their sum is exact. The
    rests are below 2^-b of the largest entries, and so are the errors of their sums below gamma_k of that.
    """
    k = x.shape[-1]
    bits = (52 - math.ceil(math.log2(k + 1))) // 2
    (x_high, x_top), (y_high, y_top) = leading_bits(x, -1, bits), leading_bits(y, -2, bits)
    mid = x_high @ y_high + ((x - x_high) @ y + x_high @ (y - y_high))
    rests = x_top * y.abs().sum(-2, keepdim=True) + y_top * (x.abs() + x_top).sum(-1, keepdim=True)
    local = 2 * U * mid.abs() + gamma(2 * k + 8) * 2.0**-bits * rests
    plain = gamma(k + 4) * (x.abs() @ y.abs())
    in_range = (x_top > 2.0**-400) & (x_top < 2.0**400) & (y_top > 2.0**-400) & (y_top < 2.0**400)
    return torch.where(in_range, mid, x @ y), torch.where(in_range, local, plain) * ENLARGE


def leading_bits(x: Tensor, axis: int, bits: int) -> tuple[Tensor, Tensor]:
    """x rounded to `bits` bits below a power of two that no entry along the axis exceeds, and that power."""
    largest = x.abs().amax(axis, keepdim=True).clamp(2.0**-401, 2.0**401)
    exponent = torch.nan_to_num(largest.log2().floor() + 1).long()
    top = power_of_two(exponent)
    return torch.round(x * power_of_two(bits - exponent)) * power_of_two(exponent - bits), top


def sharper(at: Arithmetic, x: Ball, y: Ball, spread: Tensor, sizes: Tensor) -> tuple[Tensor, Norm | None]:
    """The spread of x @ y by Cauchy and Schwarz where that is less, and the l2 spread of its rows.

    Entry (i, j) moves by at most |dx_i| |y_j| + |x_i| |dy_j| with x_i a row, y_j a column, and x_i the moved one. A
    row moves by |dx_i| ||y|| where y is exact; else by sum_k |dx_ik| |y_k| + |x_ik| |dy_k| over the rows y_k.
    """
    dx, dy = x.deviation(-1), y.deviation(-2)
    rows, columns = length(sizes, -1), length(y.mid, -2)
    by_length = dx * columns if y.rad is None else dx * columns + rows * dy
    spread = torch.minimum(spread, by_length * ENLARGE)
    if x.l1 is not None:  # dx y + x' dy: the moved row's numbers sum to |x| + |dx| at most, in absolute values
        largest = y.mid.abs().amax(-2, keepdim=True)
        by_sum = x.l1 * largest
        if y.rad is not None:
            by_sum = by_sum + (x.mid.abs().sum(-1, keepdim=True) + x.l1) * y.rad.amax(-2, keepdim=True)
        spread = torch.minimum(spread, by_sum * (1 + gamma(x.mid.shape[-1] + 16)) * ENLARGE + LOST)
    enlarged = (1 + gamma(2 * x.mid.shape[-1] + 16)) * ENLARGE
    whole = length(spread, -1)
    if y.rad is None and y.mid.ndim == 2:

        def blocks(h: int) -> Tensor:
            of_each = kept_norms(at, y.mid, h)
            by_matrix = dx.unsqueeze(-2) * of_each.unsqueeze(-1) * ENLARGE
            return torch.minimum(by_matrix, length(parts(spread, h)))

        return spread, Norm(torch.minimum(dx * kept_norms(at, y.mid, 1)[0] * ENLARGE, whole), -1, blocks)
    lengths = length(y.mid, -1)
    moved = x.radius @ lengths
    if x.l1 is not None:
        moved = torch.minimum(moved, x.l1 * lengths.amax(-2, keepdim=True))
    if y.rad is not None:
        moved = moved + sizes @ y.deviation(-1)
    return spread, Norm(torch.minimum(moved * enlarged, whole), -1)


def plus(at: Arithmetic, x: Ball, y: Ball) -> Ball:
    """x + y; an exact infinity stays one."""
    mid = x.mid + y.mid
    rad = None
    if x.rad is not None or y.rad is not None:
        rad = x.radius + y.radius

    def pull(slope: Ball) -> tuple[Ball | None, Ball | None]:
        by_x = None if x.rad is None else unbroadcast(slope, x.mid.shape)
        return by_x, None if y.rad is None else unbroadcast(slope, y.mid.shape)

    norm = norm_of_sum(x, y, mid) if at.has_norms else None
    if not (x.infinite or y.infinite):
        return at.result(mid, rad, 1, norm, ((x, y), pull))
    out = at.result(mid, rad, 1, norm)
    assert out.rad is not None
    out = Ball(mid, of_finite(mid, out.rad, x, y), norm)
    is_exact = (torch.isinf(x.mid) & (x.radius == 0) & torch.isfinite(y.mid) & torch.isfinite(y.radius)) | (
        torch.isinf(y.mid) & (y.radius == 0) & torch.isfinite(x.mid) & torch.isfinite(x.radius)
    )
    found = Ball(mid, torch.where(is_exact, torch.zeros_like(mid), out.radius), None, infinite=True)
    local = at.result(mid, None, 1).radius
    finite = torch.where(
        is_exact, torch.zeros_like(mid), torch.maximum(local, out.radius - (0 if rad is None else rad))
    )
    return at.record(found, (x, y), finite * ENLARGE, pull)


def norm_of_sum(x: Ball, y: Ball, mid: Tensor) -> Norm | None:
    """The l2 spread of a sum along the last axis, where either summand keeps one."""
    moving = [b for b in (x, y) if b.rad is not None]
    if not any(b.norm is not None and b.norm.axis == -1 for b in moving):
        return None
    if any(b.mid.ndim == 0 or b.mid.shape[-1] != mid.shape[-1] for b in moving):
        return None
    total = reduce(torch.add, (b.deviation(-1) for b in moving)) * ENLARGE
    only = moving[0].norm if len(moving) == 1 and moving[0].mid.shape == mid.shape else None
    return Norm(total.expand(*mid.shape[:-1], 1), -1, None if only is None else only.blocks)


@rule("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def mm(at: Arithmetic, x: Ball, y: Ball) -> Ball:
    """A matrix product: sums of k products in any order, off by gamma_k times the sums of their absolute values."""
    return product(at, as_ball(at, x, midpoint(y)), as_ball(at, y, midpoint(x)))


@rule("aten.mv.default")
def mv(at: Arithmetic, x: Ball, y: Ball) -> Ball:
    """A matrix times a vector, as a matrix product."""
    column = Ball(y.mid.unsqueeze(-1), None if y.rad is None else y.rad.unsqueeze(-1))
    out = product(at, x, column)
    return Ball(out.mid.squeeze(-1), out.radius.squeeze(-1))


@rule("aten.dot.default")
def dot(at: Arithmetic, x: Ball, y: Ball) -> Ball:
    """An inner product, as a matrix product."""
    row = Ball(x.mid.unsqueeze(0), None if x.rad is None else x.rad.unsqueeze(0))
    out = mv(at, row, y)
    return Ball(out.mid.squeeze(0), out.radius.squeeze(0))


def reshaped(x: Ball, shape: tuple[int, ...]) -> Ball:
    """The same numbers, without their norm."""
    return Ball(x.mid.reshape(shape), None if x.rad is None else x.rad.reshape(shape), None, x.infinite)


@rule("aten.linear.default")
def linear(at: Arithmetic, x: Ball, weight: Ball, bias: Ball | None = None) -> Ball:
    """x W^T + b, the bias added afterwards or as one more term of the sum."""
    if x.mid.ndim == 1:
        row = at.record(reshaped(x, (1, -1)), (x,), torch.zeros(()), lambda g: (reshaped(g, (-1,)),), is_same=True)
        out = linear(at, row, weight, bias)
        return at.record(reshaped(out, (-1,)), (out,), torch.zeros(()), lambda g: (reshaped(g, (1, -1)),), is_same=True)
    out = product(at, x, turned(weight), more=2)
    return out if bias is None else biased(at, out, bias, x, turned(weight))


def biased(at: Arithmetic, products: Ball, bias: Ball, x: Ball, y: Ball, factor: float = 1) -> Ball:
    """Sums of k products, x y times a factor, and a bias.

    In a dtype it may be the first term, which all k roundings are relative to, and with which any part of the sum may
    overflow.
    """
    out, k = plus(at, products, bias), x.mid.shape[-1]
    if at.is_real:
        return out
    share, most = at.sums(k + 2), max(1.0, abs(factor))
    size = (most * (x.size @ y.size) * (1 + gamma(2 * k + 16)) + bias.size) * (1 + share) * ENLARGE
    return widened(at, out, at.checked(size, (share * bias.size).expand(out.mid.shape)))


def widened(at: Arithmetic, x: Ball, by: Tensor) -> Ball:
    """The ball with a larger radius, and the norm that goes with it."""
    out = Ball(x.mid, (x.radius + by) * ENLARGE, None if x.norm is None else x.norm.plus(by), x.infinite)
    return at.record(out, (x,), by, lambda slope: (slope,), is_same=True)


@rule("aten.addmm.default", "aten.baddbmm.default")
def addmm(at: Arithmetic, bias: Ball, x: Ball, y: Ball, *, beta: float = 1, alpha: float = 1) -> Ball:
    """beta b + alpha x y, the bias added afterwards or as one more term of the sum."""
    out = product(at, x, y, more=4)
    if alpha != 1:
        out = times(at, out, at.number(alpha, out.mid))
    if beta != 1:
        bias = times(at, bias, at.number(beta, out.mid))
    return biased(at, out, bias, x, y, alpha)


def times(at: Arithmetic, x: Ball, y: Ball) -> Ball:
    """x y, number by number."""
    mid, rad = x.mid * y.mid, None
    if x.rad is not None:
        rad = x.rad * y.size
    if y.rad is not None:
        by_y = x.mid.abs() * y.rad
        rad = by_y if rad is None else rad + by_y
    norm = None
    if at.has_norms and x.norm is not None and x.norm.axis == -1 and x.mid.shape[-1] == mid.shape[-1]:
        largest = y.size if y.mid.ndim == 0 else y.size.amax(-1, keepdim=True)
        moved = x.norm.radius * largest if y.rad is None else x.norm.radius * largest + length(x.mid.abs() * y.rad)
        norm = Norm((moved * ENLARGE).expand(*mid.shape[:-1], 1))

    def pull(slope: Ball) -> tuple[Ball | None, Ball | None]:
        by_x = None if x.rad is None else unbroadcast(times(SLOPES, slope, y), x.mid.shape)
        return by_x, None if y.rad is None else unbroadcast(times(SLOPES, slope, x), y.mid.shape)

    if x.infinite or y.infinite:
        rad = of_finite(mid, torch.zeros_like(mid) if rad is None else rad, x, y)
    return at.result(mid, None if rad is None else rad * ENLARGE, 1, norm, ((x, y), pull))


@rule("aten.sum.default", "aten.sum.dim_IntList")
def total(at: Arithmetic, x: Value, dims: Axes = None, keepdim: bool = False, **options: object) -> Ball:
    """A sum of k numbers in any order, off by gamma_k times the sum of their absolute values."""
    ball = as_ball(at, x, midpoint(x))
    axes = list(range(ball.mid.ndim)) if not dims else [dims] if isinstance(dims, int) else list(dims)
    k = reduce(lambda n, axis: n * int(ball.mid.shape[axis]), axes, 1)
    if not axes:
        return ball
    mid, size = ball.mid.sum(axes, keepdim), ball.size.sum(axes, keepdim)
    size = size * (1 + gamma(k + 16))
    local = at.within_reach(size, k, at.own_sums(k) * size + at.lost_in_sums(k))
    spread = 0.0 if ball.rad is None else ball.rad.sum(axes, keepdim) * (1 + gamma(k + 16))
    kept = [1 if i in {a % ball.mid.ndim for a in axes} else n for i, n in enumerate(ball.mid.shape)]

    def pull(slope: Ball) -> tuple[Ball]:
        mid, rad = (part.reshape(kept).expand(ball.mid.shape) for part in (slope.mid, slope.radius))
        return (Ball(mid, rad),)

    return at.record(Ball(mid, of_finite(mid, (local + spread) * ENLARGE, ball)), (ball,), local * ENLARGE, pull)


@rule("aten.mean.default", "aten.mean.dim")
def mean(at: Arithmetic, x: Value, dims: Axes = None, keepdim: bool = False, **options: object) -> Ball:
    """A mean of k numbers: their sum in any order, divided by k or times 1/k."""
    ball = as_ball(at, x, midpoint(x))
    out = total(at, ball, dims, keepdim)
    k = ball.mid.numel() // max(1, out.mid.numel())
    inverse = Ball(torch.full_like(out.mid, 1 / k), torch.full_like(out.mid, 2 * U / k))
    return at.result(
        out.mid / k, out.radius / k * ENLARGE, 3, None, ((out,), lambda slope: (times(SLOPES, slope, inverse),))
    )


@rule("aten.cumsum.default")
def cumsum(at: Arithmetic, x: Value, dim: int, **options: object) -> Ball:
    """Sums of the first 1, 2, ... numbers along an axis, each in any order."""
    ball = as_ball(at, x, midpoint(x))
    k = int(ball.mid.shape[dim])
    size = ball.size.cumsum(dim)
    size = size * (1 + gamma(k + 16))
    local = at.within_reach(size, k, at.own_sums(k) * size + at.lost_in_sums(k))
    spread = 0.0 if ball.rad is None else ball.rad.cumsum(dim) * (1 + gamma(k + 16))
    mid = ball.mid.cumsum(dim)
    return Ball(mid, of_finite(mid, (local + spread) * ENLARGE, ball))


@rule("aten.var.correction")
def variance(at: Arithmetic, x: Ball, dim: Axes = None, *, correction: float | None = 1, keepdim: bool = False) -> Ball:
    """A variance: the mean, then the sum of squared distances, divided.

    In a dtype it is within gamma_(4k+16) of the mean of x^2, which one pass, two passes and Welford's update keep: see
    LayerNorm.
    """
    axes = list(range(x.mid.ndim)) if not dim else [dim] if isinstance(dim, int) else list(dim)
    centred = plus(at, x, negated(at, mean(at, x, axes, True)))
    squares = times(at, centred, centred)
    out = total(at, squares, axes, keepdim)
    k = x.mid.numel() // max(1, out.mid.numel())
    divisor = float(k - (1 if correction is None else correction))
    found = at.result(out.mid / divisor, out.radius / divisor * ENLARGE, 3)
    if at.is_real:
        return found
    square = x.size.square().sum(axes, keepdim) * (1 + gamma(k + 16))
    off = at.off_in_variance(k) * square / abs(divisor) + at.lost_in_sums(4 * k)
    return widened(at, found, at.within_reach(square, k, off * ENLARGE))


def negated(at: Arithmetic, x: Ball) -> Ball:
    out = Ball(-x.mid, x.rad, x.norm, x.infinite)
    return at.record(out, (x,), torch.zeros_like(x.mid), lambda slope: (negated(SLOPES, slope),), is_same=True)
