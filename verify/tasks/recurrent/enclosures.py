"""Vectors of balls, balls with derivatives, and bounds on rounding: what `network.step` computes proofs with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from verify.arithmetic.any_order import STORED, RoundedArithmetic
from verify.arithmetic.balls import Ball, point, relu
from verify.arithmetic.formats import Format
from verify.arithmetic.polynomials import exp, exp_error
from verify.arithmetic.slack import ENLARGE, ENLARGE_LONG, INFLATION, OF_MANY, Array, U, gamma
from verify.arithmetic.softmax import ULPS
from verify.tasks.recurrent.network import BallVector

LEAST = 2.0**-100  # radii of sigmoid and tanh are at least this, far more than what their products lose to underflow
FAR = 1e6  # in place of an infinite end
REACH = 700.0  # beyond it a sigmoid is 0 or 1, off by less than LEAST


def sigmoid(x: Ball) -> Ball:
    """1 / (1 + e^-x): e / (1 + e) is off by exp's error and three roundings; |f'| <= f (1 - f) + |f''| r <= 1/4."""
    e = exp(-np.minimum(np.abs(x.mid), REACH))
    low = e / (1 + e)
    mid = np.where(x.mid >= 0, 1 - low, low)
    own = exp_error() * low + 4 * U + LEAST
    slope = np.minimum(low * (1 - low) + 2 * own + 0.0963 * x.rad, 0.25)
    rad = np.minimum((own + slope * x.rad) * ENLARGE, 1.0)
    return Ball(np.where(np.isfinite(x.mid), mid, 0.5), np.where(np.isfinite(x.mid), rad, 1.0))


def tanh(x: Ball) -> Ball:
    """2 sigmoid(2 x) - 1; |f'| <= 1 - f^2 + 0.77 r <= 1."""
    at_mid = sigmoid(point(2 * x.mid))
    mid = 2 * at_mid.mid - 1
    own = 2 * at_mid.rad + 2 * U
    slope = np.minimum(1 - mid * mid + 4 * own + 0.77 * x.rad, 1.0)
    return Ball(mid, np.minimum((own + slope * x.rad) * ENLARGE, 2.0))


def end(x: Ball, sign: int) -> Ball:
    """The lower or the upper ends, as points; a lost ball's are far out."""
    at = x.lower if sign < 0 else x.upper
    return Ball(np.where(np.isfinite(at), at, sign * FAR), np.where(np.isfinite(at), 0.0, np.inf))


ONE = Ball(np.asarray(1.0), np.asarray(0.0))


class Balls:
    """Vectors of balls along the last axis."""

    def linear(self, W: Array, x: Ball | Array, b: Array, terms: Array) -> Ball:
        vector = x if isinstance(x, Ball) else Ball.exact(x)
        return vector @ Ball.exact(W.T) + Ball.exact(b)

    def known(self, x: BallVector) -> Ball:
        exact = Ball.exact(x.near.mid)
        return Ball(exact.mid, (exact.rad + x.near.rad) * ENLARGE)

    def whole(self, x: Ball, y: Ball) -> Ball:
        return x + y

    def add(self, x: Ball, y: Ball) -> Ball:
        return x + y

    def multiply(self, x: Ball, y: Ball) -> Ball:
        return x * y

    def blend(self, z: Ball, n: Ball, h: Ball) -> Ball:
        return (ONE - z) * n + z * h

    def tanh(self, x: Ball) -> Ball:
        return tanh(x)

    def sigmoid(self, x: Ball) -> Ball:
        return sigmoid(x)

    def relu(self, x: Ball) -> Ball:
        return relu(x)

    def cut(self, x: Ball, start: int, stop: int) -> Ball:
        return x[..., start:stop]


@dataclass(frozen=True)
class Dual:
    """Values (T, k) at all points x of a set, their derivatives (T, k, N) by x there, and the values at its centre."""

    value: Ball
    slope: Ball
    centre: Ball


class Duals:
    """Vectors with derivatives by x, |x - centre| <= reach; the chain rule in balls holds at every point of the set.

    Shapes: reach (T,). A value is also within |slope| reach of that at the centre, by the mean value theorem: sums take
    the narrower of both, as boxes forget how their sides depend on each other.
    """

    def __init__(self, reach: Array, size: int) -> None:
        self._reach, self._size = reach, size

    def _sum(self, x: Dual) -> Dual:
        norm: Array = np.sqrt((x.slope.magnitude**2).sum(-1)) * (1 + gamma(self._size + 8)) + LEAST  # squares underflow
        size = norm * self._reach[:, None]
        rad = (x.centre.rad + size * ENLARGE + LEAST) * ENLARGE
        is_narrower = rad < x.value.rad
        value = Ball(np.where(is_narrower, x.centre.mid, x.value.mid), np.where(is_narrower, rad, x.value.rad))
        return Dual(value, x.slope, x.centre)

    def linear(self, W: Array, x: Dual | Array, b: Array, terms: Array) -> Dual:
        if isinstance(x, Dual):
            value, centre = (Balls().linear(W, part, b, terms) for part in (x.value, x.centre))
            return self._sum(Dual(value, Ball.exact(W) @ x.slope, centre))
        value = Balls().linear(W, x, b, terms)
        zeros = np.zeros((len(self._reach), len(W), self._size))
        whole = Ball(*(np.broadcast_to(part, zeros.shape[:-1]) for part in (value.mid, value.rad)))
        return Dual(whole, Ball(zeros, zeros), whole)

    def known(self, x: BallVector) -> Dual:
        zeros = np.zeros((len(self._reach), len(x.balls), self._size))
        value = Ball(*(np.broadcast_to(part, zeros.shape[:-1]) for part in astuple(Balls().known(x))))
        return Dual(value, Ball(zeros, zeros), value)

    def whole(self, x: Dual, y: Dual) -> Dual:
        return self.add(x, y)

    def add(self, x: Dual, y: Dual) -> Dual:
        return self._sum(Dual(x.value + y.value, x.slope + y.slope, x.centre + y.centre))

    def multiply(self, x: Dual, y: Dual) -> Dual:
        slope = x.value[..., None] * y.slope + y.value[..., None] * x.slope
        return Dual(x.value * y.value, slope, x.centre * y.centre)

    def blend(self, z: Dual, n: Dual, h: Dual) -> Dual:
        rest = Dual(ONE - z.value, -z.slope, ONE - z.centre)
        return self.add(self.multiply(rest, n), self.multiply(z, h))

    def tanh(self, x: Dual) -> Dual:
        y = Ball.between(tanh(end(x.value, -1)).lower, tanh(end(x.value, 1)).upper)
        return Dual(y, (ONE - y * y)[..., None] * x.slope, tanh(x.centre))

    def sigmoid(self, x: Dual) -> Dual:
        y = Ball.between(sigmoid(end(x.value, -1)).lower, sigmoid(end(x.value, 1)).upper)
        return Dual(y, (y * (ONE - y))[..., None] * x.slope, sigmoid(x.centre))

    def relu(self, x: Dual) -> Dual:
        """The slope is 1 above 0, 0 below, and anything from 0 to 1 where the box has both (the mean value theorem).

        A value that is no number may be above 0.
        """
        low, high = (x.value.lower > 0).astype(float), (~(x.value.upper <= 0)).astype(float)
        return Dual(relu(x.value), Ball.between(low, high)[..., None] * x.slope, relu(x.centre))

    def cut(self, x: Dual, start: int, stop: int) -> Dual:
        return Dual(x.value[..., start:stop], x.slope[..., start:stop, :], x.centre[..., start:stop])


def least_margins(V: Array, b: Array, h: Ball, right: np.ndarray, off: Array | None = None) -> Array:
    """A lower bound on (right logit) - (largest other) of rows h of what V reads; `off` bounds what is computed.

    Rows of V are subtracted first, so that what two logits share of h cancels. Shapes: h (S, k), right (S,), off
    (S, classes).
    """
    rows, found = np.arange(len(right)), np.full(len(right), np.inf)
    for j in range(len(b)):
        products = (point(V[right]) - point(V[j])) * h
        gap = (products[..., None, :] @ point(np.ones((V.shape[1], 1))))[..., 0, 0]
        low = (gap + (point(b[right]) - point(b[j]))).lower
        if off is not None:
            low = np.nextafter(low - (off[rows, right] + off[:, j]) * ENLARGE_LONG, -np.inf)
        found = np.where(right == j, found, np.minimum(found, np.where(np.isnan(low), -np.inf, low)))
    return found


@dataclass(frozen=True)
class Off:
    """Exact values lie in the balls, and computed ones within `error` of the exact ones (..., k)."""

    value: Ball
    error: Array

    @property
    def size(self) -> Array:
        """At most this are exact and computed values."""
        return (self.value.magnitude + self.error) * INFLATION

    @property
    def least(self) -> Array:
        """At least this are the absolute values of exact and computed ones, and of all numbers between them."""
        return np.maximum(np.abs(self.value.mid) - (self.value.rad + self.error) * INFLATION, 0.0)


class Roundings:
    """How far computed vectors are from exact ones when every operation rounds, in any order.

    Stored numbers are weights, biases and what the tokens read: a subnormal one may be read as zero.
    |f(x + e) - f(x)| <= s |e| with s the largest slope between the two; slopes of tanh and sigmoid are largest at the
    number nearest to 0. What float64 rounds of a slope, three roundings of numbers of at most 1, is below 2^-40.

    `of_sets` asks only where computed numbers may be at any point of a set, not how far they are from exact ones. Both
    functions grow, so that their values at the ends of what the argument may be computed as hold all others, and a
    slope that is steep in the middle of a set costs nothing at its ends.
    """

    def __init__(self, at: RoundedArithmetic, factor: Format | None = None, *, of_sets: bool = False) -> None:
        self._at, self._factor, self._of_sets = at, factor, of_sets

    @classmethod
    def of_factors(cls, fmt: Format) -> Roundings:
        """Those of one evaluation: every result is kept exactly, and what becomes a factor of a matrix product is
        rounded to the format, to nearest.
        """
        return cls(RoundedArithmetic.real(), fmt)

    @property
    def largest(self) -> float:
        """The largest number that is not infinite."""
        return self._at.stored.largest

    def linear(self, W: Array, x: Off | Array, b: Array, terms: Array) -> Off:
        """Each of n > 1 terms is rounded at most n times: as a product, and in at most n - 1 sums.

        That holds too where the sum is one of two parts that are added later, once each is stored (see `whole`). A
        kernel that keeps partial results with more bits rounds them less, and the sum once, when it is stored. Where
        sums have a wider format, a product may be stored before it is added to the other part and to either bias.
        """
        at = self._at
        vector = self._as_factor(x) if isinstance(x, Off) else self.stored(x)
        size, k = np.abs(W).T, W.shape[1]
        total = (vector.size @ size + np.abs(b)) * INFLATION
        relative = at.growth(np.maximum(terms, 2), STORED)
        if at.operand is not at.stored:  # both factors are rounded first
            relative += (2 * at.operand.u + at.operand.u**2) * (1 + relative)
        error = vector.error @ size + relative * total + at.underflow(2 * k + 2, STORED) * (1 + relative)
        error = error + vector.size @ at.flush_loss(W).T + at.flush_loss(b)
        return self._checked(Balls().linear(W, vector.value, b, terms), error, total + error)

    def _as_factor(self, x: Off) -> Off:
        if self._factor is None:
            return x
        rounding = self._factor.u * x.size + self._factor.tiny
        return Off(x.value, np.where(x.size <= self._factor.largest, (x.error + rounding) * INFLATION, np.inf))

    def stored(self, x: Array) -> Off:
        """A stored vector as it is read, whose numbers are those of the format."""
        return Off(Ball.exact(x), self._at.flush_loss(x))

    def held(self, x: Ball) -> Off:
        """Computed numbers of which each operation may read another form: flushed or not, and, where what is kept is
        not what a factor is, rounded first or not.
        """
        size, at = x.magnitude, self._at
        form = Off(x, np.zeros_like(size))
        flushed = np.where(form.least < at.stored.tiny, np.minimum(size, at.stored.tiny), 0.0)
        return self._kept(Off(x, flushed)) if at.rounds_factors or at.inner is not at.stored else Off(x, flushed)

    def _kept(self, x: Off) -> Off:
        """Numbers that may have more bits here than where they are factors."""
        return Off(x.value, (x.error + self._at.once * x.size) * INFLATION)

    def known(self, x: BallVector) -> Off:
        """Numbers whose balls hold all that they may be computed as."""
        return Off(Balls().known(x), np.zeros_like(x.near.mid))

    def whole(self, x: Off, y: Off) -> Off:
        """The sum of both parts is one of the roundings that each part already counts: the other part has a term.

        Where it has none, it is 0, and adding it is exact.
        """
        return self._checked(x.value + y.value, x.error + y.error, x.size + y.size)

    def add(self, x: Off, y: Off) -> Off:
        whole, error = x.value + y.value, x.error + y.error
        return self._result(whole, error, np.minimum(x.size + y.size, (whole.magnitude + error) * INFLATION))

    def multiply(self, x: Off, y: Off) -> Off:
        return self._result(x.value * y.value, x.error * y.size + y.error * x.size, x.size * y.size)

    def blend(self, z: Off, n: Off, h: Off) -> Off:
        """As (1 - z) n + z h, or as n + z (h - n): kernels do either.

        What either rounds is bounded at the computed z, n and h, and apart from it what their errors make of the exact
        blend: z (h - n) + n moves by at most dz |h - n| + |1 - z| dn + |z| dh, at some z, n and h between. This h may
        be kept with more bits than the same h has as a factor.
        """
        h = self._kept(h)
        held = [Off(Ball(x.value.mid, (x.value.rad + x.error) * INFLATION), np.zeros_like(x.error)) for x in (z, n, h)]
        one = self._blend_one(*held)
        other = self._blend_other(*held)
        rest, apart = (ONE - held[0].value).magnitude, (held[2].value - held[1].value).magnitude
        moved = (z.error * apart + rest * n.error + z.size * h.error) * INFLATION
        exact = (ONE - z.value) * n.value + z.value * h.value
        return Off(exact, (np.maximum(one.error, other.error) + moved) * INFLATION)

    def _blend_one(self, z: Off, n: Off, h: Off) -> Off:
        rest = ONE - z.value
        first = self.multiply(self._result(rest, z.error, rest.magnitude), n)
        return self.add(first, self.multiply(self._reread(z), h))

    def _blend_other(self, z: Off, n: Off, h: Off) -> Off:
        again = self._reread(n)
        return self.add(n, self.multiply(z, self.add(h, Off(-again.value, again.error))))

    def _reread(self, x: Off) -> Off:
        """What another operation has just read: where sums have a wider format, one may read it kept, one rounded.

        In one format the product that reads it counts two roundings for its own one, and the other is this.
        """
        return x if self._at.inner is self._at.stored else self._kept(x)

    def tanh(self, x: Off) -> Off:
        if self._of_sets:
            return self._between_ends(tanh, x)
        at_least = np.maximum(tanh(point(x.least)).lower, 0.0)
        return self._function(tanh(x.value), x.error * np.minimum(1 - at_least**2 + OF_MANY, 1.0))

    def sigmoid(self, x: Off) -> Off:
        if self._of_sets:
            return self._between_ends(sigmoid, x)
        at_least = np.maximum(sigmoid(point(x.least)).lower, 0.5)
        return self._function(
            sigmoid(x.value), x.error * np.minimum(at_least * (1 - at_least) * INFLATION + OF_MANY, 0.25)
        )

    def relu(self, x: Off) -> Off:
        return Off(relu(x.value), x.error)

    def cut(self, x: Off, start: int, stop: int) -> Off:
        return Off(x.value[..., start:stop], x.error[..., start:stop])

    def _between_ends(self, function: Callable[[Ball], Ball], x: Off) -> Off:
        """The values at all numbers that an argument may be computed as, and what is rounded of them."""
        low, high = np.nextafter(x.value.lower - x.error, -np.inf), np.nextafter(x.value.upper + x.error, np.inf)
        value = Ball.between(function(Ball.exact(low)).lower, function(Ball.exact(high)).upper)
        return self._function(value, np.where(np.isfinite(x.error), 0.0, np.inf))

    def _function(self, value: Ball, error: Array) -> Off:
        u = self._at.stored.u
        size = np.minimum(value.magnitude, 1.0) + error
        return self._checked(value, error + (ULPS + 1) * u * (1 + ULPS * u) * size + self._at.stored.tiny, size)

    def _result(self, value: Ball, error: Array, size: Array) -> Off:
        """One operation whose exact result, from the computed operands, is at most `size`."""
        return self._checked(value, error + float(self._at.growth(2)) * size + float(self._at.underflow(1)), size)

    def _checked(self, value: Ball, error: Array, size: Array) -> Off:
        """The error is infinite where a computed value may overflow."""
        is_safe = (size + error) * INFLATION <= self._at.stored.largest
        return Off(value, np.where(is_safe, error * INFLATION, np.inf))
