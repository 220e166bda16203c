"""Softmax, attention and norms in a format of floats, as all kernels of the contract compute them: docs/checker.md."""

import math

from flint import arb, fmpq

from verify.checker.arrays import FLOAT, TRUTH, Array, each, product_of, refuse
from verify.checker.formats import BinaryFormat
from verify.checker.layer_norm import ULPS, gamma
from verify.checker.moved import ZERO, MovedArray
from verify.checker.moves import transposed
from verify.checker.operations import ADDED, OPERATIONS, TIMES, mean, shared, where
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.rounded_results import FUNCTIONS, NO_NUMBER, RoundedResults

MOST_SCORES = 1 << 12


class RoundedKernels(RoundedResults):
    """Operations that are several steps, between which a kernel may round or not."""

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat, are_kept: bool, is_one_norm: bool) -> None:
        super().__init__(fmt, inner, are_kept)
        self.is_one_norm = is_one_norm  # LayerNorm is one operation in the inner format

    def softmax(self, x: object, dim: int, empty: arb) -> MovedArray:
        """Each exponential is of a score less the largest so far, and is rescaled at most n times by later ones.

        All arguments together are the score's distance from the largest, of which each is off by a rounding; then come
        at most n + 1 exponentials, n + 1 products, the sums, in which 2 n roundings more are met, and one that stores.
        One exponential is nearly 1, so that the sum is at least 1/4, and what underflows in n exponentials is divided
        by that; sum and quotient are stored.
        """
        x = self.read(x)
        n = x.mid.shape[dim] if x.mid.shape else 1
        require(n <= MOST_SCORES, "program: a softmax over too many scores", NOT_CHECKABLE)
        inside = (1 + ULPS * self.inner.u) ** (n + 1) * (1 + self.v) ** (3 * n + 4) * (1 + self.u)
        small = 2 * (n + 2) * self.fmt.tiny

        def share(distance: arb) -> arb:
            return (self.u * distance + small).exp() * inside - 1

        found = self.errors.softmax(x, dim, share, empty)
        lost = 4 * (self.fmt.tiny + (2 * n + 4) * self.inner.tiny)
        return self.left(found, found.size, 0, 2, each(lambda p: lost * (1 + n * p), found.size))

    def attention(
        self, q: object, k: object, v: object, mask: object = None, dropout: float = 0.0, is_causal: bool = False, *,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> MovedArray:  # fmt: skip
        """Softmax of q k^T scale + mask, times v. Queries and keys may each be scaled, and weights divided last."""
        if float(dropout) != 0 or is_causal and (mask is not None or scale is not None and not scale >= 2.0**-126):
            refuse("such an attention")
        q, k, v = self.read(q), self.read(k), self.read(v)
        if enable_gqa:
            k, v = (self.errors.linear(lambda a: shared(a, q.mid.shape[-3]), x) for x in (k, v))
        d, (m, n) = q.mid.shape[-1], (q.mid.shape[-2], k.mid.shape[-2])
        scores = self.read(self.matrices(q, k, by_keys, 7, 2))
        factor = self.number(1 / arb(d).sqrt() if scale is None else scale)
        loud = TIMES(by_keys(ADDED(q.size, 1), ADDED(k.size, 1)), each(lambda f: f.max(arb(1)), factor.size))
        lost = each(lambda size: 4 * self.fmt.tiny * size, loud)  # where a scaled number underflows
        scores = self.times(TIMES, scores, factor, 1, 4, lost)  # its root, rounded, may scale both
        scores = self.within(scores, loud, d + 8)
        if is_causal:
            mask = Array(TRUTH, (m, n), [[j <= i for i in range(m) for j in range(n)]])
        if isinstance(mask, Array) and mask.kind == TRUTH:
            scores = self.errors.linear(ADDED, scores, MovedArray(where(mask, 0.0, -math.inf), {}))
        elif mask is not None:
            scores = self.plus(self.read(scores), self.read(mask))
        weights = self.softmax(scores, -1, ZERO)
        undivided = each(lambda w: 1 + 0 * w if w != 0 else w, weights.size)
        found = self.matrices(weights, v, product_of, 3, 2)
        return self.within(found, product_of(undivided, v.size), (ULPS + 3) * (n + 1))

    def layer_norm(
        self, x: object, sizes: list[int], weight: object, bias: object, eps: float | fmpq
    ) -> tuple[MovedArray]:
        """(x - mean) / s w + b, or x (w / s) + (b - mean w / s), with s^2 = variance + eps.

        The mean is within gamma_(d+2) of the mean of |x|, the variance within gamma_(4d+16) of the mean of x^2, and
        eight roundings are relative to (|x| + |mean|) |w| / s + |b|, those of the root ULPS more.
        """
        again, x = x, self.read(x)
        if [*x.mid.shape[-1:]] != sizes:
            refuse("a norm over several axes")
        d, errors = x.mid.shape[-1], self.errors
        w, tiny, stored = (self.v, self.inner.tiny, 0) if self.is_one_norm else (self.u, self.fmt.tiny, 2)

        def off_by(found: MovedArray, size: Array, n: int) -> MovedArray:
            return self.left(found, size, 0, stored, each(lambda v: gamma(n, w) * v + 2 * n * tiny, size))

        average = average_of(x.size)
        centre = off_by(errors.linear(average_of, x), average, d + 2)  # one for the row
        centred = errors.linear(lambda a: ADDED(a, OPERATIONS["neg"](average_of(a))), x)
        squares = errors.linear(average_of, errors.product(TIMES, centred, centred))
        square = average_of(TIMES(x.size, x.size))
        variance = off_by(squares, square, 4 * d + 16)
        variance = self.within(variance, TIMES(ADDED(square, 1), d), 4 * d + 16)
        inverse = errors.function(*FUNCTIONS["rsqrt"], errors.linear(ADDED, variance, self.number(eps)))
        of_root = self.of_function(self.inner.u if self.is_one_norm else self.fmt.u, w, 5)
        inverse = errors.widened(inverse, each(lambda v: (of_root * v).upper(), inverse.size))
        x = x if self.is_one_norm else self.read(again)  # one operation reads x once
        off_centre = errors.linear(lambda a, b: ADDED(a, OPERATIONS["neg"](b)), x, centre)
        found, scale = errors.product(TIMES, off_centre, inverse), MovedArray(Array(FLOAT, (), [[arb(1)]]), {})
        shift = MovedArray(Array(FLOAT, (), [[ZERO]]), {})
        if weight is not None:
            scale = self.read(weight)
            found = errors.product(TIMES, found, scale)
        if bias is not None:
            shift = self.read(bias)
            found = errors.linear(ADDED, found, shift)

        def off(v: arb, m: arb, s: arb, W: arb, b: arb) -> arb:
            loud = 2 * (1 + v + m) * (1 + s) * (1 + W) + b
            lost = 2 * tiny * (4 + v + m + W * (1 + s))
            e = ((1 + w) ** (4 if W == 1 and b == 0 else 8) - 1) * ((v + m) * s * W + b) + lost
            return e.upper() if loud <= self.fmt.largest else NO_NUMBER

        return (errors.widened(found, each(off, x.size, centre.size, inverse.size, scale.size, shift.size)),)

    def rms_norm(self, x: object, sizes: list[int], weight: object = None, eps: object = None) -> tuple[MovedArray]:
        """Each step in turn, which need not read x alike; the weight multiplied by the scale or by x first."""
        again, x, d = x, self.read(x), sizes[-1]
        if [*x.mid.shape[-1:]] != sizes or eps is None:
            refuse("a norm over several axes, or without eps")
        squares = self.read(self.times(TIMES, x, x))
        average = self.left(self.errors.linear(average_of, squares), average_of(squares.size), d, 3)
        average = self.within(average, TIMES(average_of(squares.size), d), d)
        scale = self.read(self.function("rsqrt", self.read(self.plus(self.read(average), self.number(eps))), 4))
        x = self.read(again)
        found = self.times(TIMES, x, scale)
        if weight is None:
            return (found,)
        W = self.read(weight)
        found = self.times(TIMES, self.read(found), W)
        pairs = each(lambda v, s, w: w * v.max(s), x.size, scale.size, W.size)
        lost = each(lambda v, s: 2 * self.fmt.tiny * (v + s), x.size, scale.size)
        return (self.within(self.left(found, found.size, 0, 0, lost), pairs, 1),)


def by_keys(x: Array, y: Array) -> Array:
    return product_of(x, transposed(y, -2, -1))


def average_of(x: Array) -> Array:
    """The mean along the last axis, kept."""
    return mean(x, -1, True)
