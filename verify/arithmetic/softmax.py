"""A softmax: its weights in balls of float64, in balls of any number of bits, and with every operation rounded.

In real arithmetic a row's exponentials are those of the scores less a reference, any number, which cancels in the
quotient; `weights` and `precise_weights` take the largest score, so that nothing overflows. What is left is on the
third: lemmas on what is computed, each with its statement and its proof.

A kernel subtracts the row's maximum, takes exponentials, sums them, and divides. What each step can be off by is here;
which scores there are, and what the weights multiply, is the tasks' own. The maximum is one number for the whole row,
so that whatever it is cancels in the quotient. u is the unit round-off of a format, tiny its smallest normal number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from flint import arb, ctx, fmpq

from verify.arithmetic import operations
from verify.arithmetic.any_order import NO_UNIT, RoundedArithmetic, power_at_or_below, times, unit_exponent
from verify.arithmetic.balls import Ball, ends, exponential, point
from verify.arithmetic.exact_reals import float_above, rational
from verify.arithmetic.formats import Format
from verify.arithmetic.operations import Operations
from verify.arithmetic.slack import ENLARGE, ENLARGE_LONG, FAINT, INFLATION, Array, U

ULPS = 4  # times u: exp, tanh and logistic are within 2 units in the last place, each at most 2 u of the result
Mask = np.ndarray | np.bool_ | bool
Number = TypeVar("Number", Array, arb)
SMALL_TAIL = 2.0**-6  # what all other keys weigh at most beside one
FORMATS_OF_A_SUM = 3  # the format, that of the accumulation, and one wider still


def weights(scores: Ball, is_there: np.ndarray | None = None, reference: Array | None = None) -> Ball:
    """exp(score - reference) of rows of scores, exactly 0 where a key is not there: NaN above e^64.

    The reference is any number of each row, the largest midpoint of the keys that are there where none is given.
    Divided by their sum, the weights are the softmax's.

    >>> weights(Ball.exact(np.array([[5.0, 5.0, 9.0]])), np.array([[True, True, False]])).mid.tolist()
    [[1.0, 1.0, 0.0]]
    """
    there = np.broadcast_to(True if is_there is None else is_there, scores.mid.shape)
    if reference is None:
        reference = np.where(there, scores.mid, -np.inf).max(-1, keepdims=True)
    apart = scores - point(reference)
    found = exponential(Ball(np.where(there, apart.mid, 0.0), np.where(there, apart.rad, 0.0)))
    return Ball(np.where(there, found.mid, 0.0), np.where(there, found.rad, 0.0))


def exponentials_between(low: Array, high: Array) -> tuple[Array, Array]:
    """Numbers at or below exp(low) and at or above exp(high), of arguments that are at most about 0."""
    return exponential(point(low)).lower, exponential(point(high)).upper


def precise_weights(scores: Sequence[arb]) -> list[arb]:
    """exp(score - reference), as `weights`, with the precision of the context.

    >>> [float(w) for w in precise_weights([arb(1000), arb(1000)])]
    [1.0, 1.0]
    """
    reference = max((score.mid() for score in scores), key=float)
    return [(score - reference).exp() for score in scores]


def nearest_weights(scores: Sequence[arb | fmpq]) -> Array:
    """The weights in 128 bits, each as the float nearest its ball's middle."""
    with ctx.workprec(128):
        return np.array([float(weight.mid()) for weight in precise_weights([arb(score) for score in scores])])


@dataclass(frozen=True)
class Arguments:
    """What computed exponentials are of, in rows of computed scores (.., keys) that may be anything in their balls.

    Let m be the maximum of those of a row's keys that take part. For each of them the computed s - m is within `off` of
    (the midpoint of s) - m, and in `distance` of 0; it is 0, and its exponential 1, where `is_top`.
    """

    off: Array
    distance: Array
    is_top: np.ndarray

    @classmethod
    def of(cls, scores: Ball, at: RoundedArithmetic, is_there: Mask = True, is_always: Mask = False) -> Arguments:
        """Follows the subtraction of any number m that no score of the row exceeds and one of them equals.

        Keys may take part where `is_there`, and do where `is_always`. Proof. s - m is between -distance and 0, where
        distance is the largest end of a score less the least of s. Rounding it costs at most u times the power of two
        at or below it, and the smallest normal number. It costs nothing where s is known, as is each score that may be
        m, and their differences are numbers of the format; only scores that are below no other for sure may be m. A
        score that is known, and that no other can exceed, is m.
        """
        there = np.broadcast_to(is_there, scores.mid.shape)
        low, high = ends(scores)
        top = np.where(there, high, -np.inf).max(-1, keepdims=True)
        distance = np.where(there, (top - low) * ENLARGE, 0.0)
        may_be_top = there & (high >= np.where(there & is_always, low, -np.inf).max(-1, keepdims=True))
        is_known = (~may_be_top | (scores.rad == 0)).all(-1, keepdims=True) & (scores.rad == 0)
        unit = unit_exponent(scores.mid)
        unit = np.minimum(unit, np.where(may_be_top, unit, NO_UNIT).min(-1, keepdims=True))
        once = at.once * power_at_or_below(distance * (1 + at.inner.u)) + at.stored.tiny
        rounding = np.where(is_known & at.is_representable(distance, unit), 0.0, once)
        is_top = there & (scores.rad == 0) & (scores.mid == top)
        off = np.where(is_top, 0.0, (scores.rad + rounding) * ENLARGE if at.rounds else scores.rad)
        return cls(off, distance, is_top)


def exponential_error(distance: Array, fmt: Format) -> Array:
    """The relative error of exp at arguments down to -distance: 4 u, or 1 where the result may be subnormal.

    Proof. A unit in the last place of a normal number x is at most 2 u x, and exp is within 2 of them. Below the normal
    numbers the contract puts the result between 0 and twice the exact value. exp(-distance - 1) >= tiny leaves a factor
    of e for the error of the argument.
    """
    return np.where(distance + 1 > -np.log(fmt.tiny), 1.0, ULPS * fmt.u)


def errors_by_units(found: Arguments, scores: Ball, exponentials: Ball, own: np.ndarray, fmt: Format) -> Array:
    """The relative error of each computed exponential of rows (n, keys), sharper than 4 u where its exponent is known.

    The exact ones are `exponentials`, of the midpoints of the scores less the largest of their row; what is computed
    is off up to one factor for a row. `found` is what the computed ones are of, `own` (n,) a key of each row that
    always takes part, and what is lost below the normal numbers is not in it.

    Proof. exp is within 2 units in the last place, each 2 u times the power of two at or below the value y: ULPS u
    times that power over y. It is at most 1, and known where all y of a ball are in one binade. Let m be the maximum
    that is subtracted, and t the largest midpoint, the own key's. Then m exceeds t at most by what the largest end of a
    score does, and is as far below at most: the own score is. So y is off exp(midpoint - t) by a factor of at most
    e^moved, moved = off + |m - t|. It is below 1, or exact. In all (1 + a) e^off - 1 <= e^(a + off) - 1, a the error of
    exp.

    >>> from verify.arithmetic.formats import FORMATS
    >>> scores, fmt = Ball.exact(np.array([[0.0, -1.0, -2.0]])), FORMATS["bfloat16"]
    >>> found = Arguments.of(scores, RoundedArithmetic.of(fmt), is_always=np.array([[True, False, False]]))
    >>> (errors_by_units(found, scores, weights(scores), np.array([0]), fmt) / fmt.u).round(3).tolist()
    [[0.0, 2.733, 3.721]]
    """
    own_score, largest = scores.mid[np.arange(len(own)), own][:, None], scores.mid.max(1, keepdims=True)
    moved = found.off + (scores.upper.max(1, keepdims=True) - largest)
    low, high = exponentials.lower * np.exp(-moved), exponentials.upper * np.exp(moved) * INFLATION
    unit = power_at_or_below(np.minimum(high, 1 - U)) / low * INFLATION
    unit = np.where((own_score == largest) & (low > 0) & (unit < 1), unit, 1.0)
    return np.where(found.is_top, 0.0, np.expm1(ULPS * fmt.u * unit + found.off) * INFLATION)


def computed_ends(low: Number, high: Number, fmt: Format, lost: Number, gained: Number) -> tuple[Number, Number]:
    """Bounds what exp computes for numbers between two ends: within 4 u of them, and below the normal ones further off.

    All are in one unit, tiny the smallest normal number in it: it loses at most `lost` = tiny there, and gains at most
    `gained`, tiny or the larger of 4 u tiny and min(high, tiny). Proof. A unit in the last place of a normal number x
    is at most 2 u x, and exp is within 2 of them; below the normal ones a unit is 2 u tiny, and 4 u <= 1. There the
    contract may say instead that the result is between 0 and 2 x, and it may be flushed: then (1 - 4 u) x < tiny.
    """
    return low * (1 - ULPS * fmt.u) - lost, high * (1 + ULPS * fmt.u) + gained


def computed_between(
    scores: Ball, reference: Array, at: RoundedArithmetic, is_always: Mask = False
) -> tuple[Array, Array]:
    """Ends of exp(score - reference) and of all that is computed for it, up to one factor for a row.

    Each key may take part, and does where `is_always`. The ends are 0 and infinity where nothing is known.

    Proof. Let m be the maximum that is subtracted. A computed exponential is that of an argument within `off` of
    (midpoint - m), computed; divided by exp(reference - m), of one within `off` of (midpoint - reference), and the
    smallest normal number becomes tiny exp(m - reference), where m is at most the largest end of a score.

    >>> low, high = computed_between(Ball.exact(np.array([[0.0, -1.0]])), np.zeros((1, 1)), RoundedArithmetic.real())
    >>> low.round(6).tolist(), high.round(6).tolist()
    ([[1.0, 0.367879]], [[1.0, 0.367879]])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        found = Arguments.of(scores, at, is_always=is_always)
        apart = point(scores.mid) - point(reference)
        arguments = Ball(apart.mid, (apart.rad + found.off) * ENLARGE)
        low, high = exponentials_between(arguments.lower, arguments.upper)
        low, high = low / INFLATION, high * INFLATION
        if at.rounds:
            assert at.inner is at.stored, "one format"
            most = ends(scores)[1].max(-1, keepdims=True) - reference
            tiny = at.stored.tiny * np.exp(most) * INFLATION
            gained = np.maximum(ULPS * at.stored.u * tiny, np.minimum(high, tiny))
            least, largest = computed_ends(low, high, at.stored, tiny, gained)
            low, high = np.where(found.is_top, low, least), np.where(found.is_top, high, largest)
        is_known = ~(np.isnan(low) | np.isnan(high))
    return np.where(is_known, np.maximum(low, 0.0), 0.0), np.where(is_known, high, np.inf)


def exponential_errors(
    distance: Fraction, radius: Fraction, offset: Fraction, at: RoundedArithmetic
) -> tuple[float, float]:
    """The relative error of the computed exp(distance + r), |r| <= radius, and its absolute error times exp(offset).

    Proof. exp(distance + r) is off exp(distance) by a factor in [1/g, g], g = e^radius, hence by at most g - 1
    relatively; the computed one by 4 u of that, at most 4 u g, u that of sums, and where it is then stored in a format
    of fewer bits by v of that. Where it is subnormal it is off by at most 2 tiny: two units there, or flushed to zero.
    In balls of 96 bits, whose upper ends are returned.
    """
    with ctx.workprec(96):
        grow = arb(rational(radius)).exp()
        v = arb(0) if at.inner is at.stored else arb(at.stored.u)
        relative = (grow - 1) + ((1 + ULPS * arb(at.inner.u)) * (1 + v) - 1) * grow
        value = arb(rational(distance)).exp()
        absolute = value * relative + 2 * arb(at.stored.tiny)
        return float_above(absolute / value), float_above(absolute * arb(rational(offset)).exp())


def computed_exponentials(at: RoundedArithmetic, total: Array, others: Array) -> Array:
    """A bound on the sum of so many computed exponentials from `total`, that of the exact ones.

    Proof. Each is within 4 u of its value, or below the smallest normal number between 0 and twice it: then its value
    is at most tiny, up to the rounding of its argument, so that what is added is at most twice the smaller of `total`
    and `others` tiny.
    """
    tiny = at.stored.tiny
    doubled = np.minimum(total, others * tiny)
    result: Array = (total * (1 + ULPS * at.stored.u) * np.exp(tiny) + 2 * doubled) * INFLATION
    return result


def partial_sums(least: Array, N: int) -> Array:
    """The largest sum of partial sums, over the sum, of N numbers between `least` and 1 in any order (shape of least).

    Each addition is off by at most u of its result, which is a partial sum; so u times this bounds the relative error
    of the total, to first order. Proof of the formula. Each number counts once for each partial sum that it is in, so
    that the largest come first. The quotient is linear-fractional in each number, hence extreme at its ends: some are
    1, the rest `least`.
    """
    place = np.arange(1, N + 1)
    largest = np.zeros_like(least)
    for ones in range(1, N + 1):
        sums = np.minimum(place, ones) + np.maximum(place - ones, 0) * least[..., None]
        largest = np.maximum(largest, sums[..., 1:].sum(-1) / sums[..., -1])
    return largest * INFLATION


def total_error(
    at: RoundedArithmetic,
    terms: Array | float,
    ones: Array | float = 1.0,
    others: Array | float = np.inf,
    has_ones: np.ndarray | bool = False,
    stored: int = 0,
    is_one_format: bool = False,
) -> Array:
    """The relative error of a total of `terms` exponentials, and of as many roundings to be `stored`.

    Where has_ones, at least one and at most `ones` are exactly 1, and the others sum up to at most `others`. Proof. As
    any sum it is off by the growth of terms - 1 roundings. With ones, follow a summation tree whose formats hold the
    whole numbers up to its length. A partial sum of m ones is m + x, x >= 0, and stays at least m: rounding is
    monotone, and m is representable. So rounding to nearest at most doubles x, in any number of formats; there are
    terms - 1 additions, and one result. Flushing takes nothing from m, and no more than x.

    Where a sum keeps to one format, x is doubled less often. Where m + x is the larger summand and its binade is kept,
    x is kept as well. The other cases happen at most log2(J + 1) + 1 times on the way up, for J ones, and once when a
    small term meets its first 1; before that small terms sum up with a relative error below 1 (terms u < 1/2). So the
    computed total lies between J and J + 16 (J + 1)^2 times the others.
    """
    n, J = np.asarray(terms, dtype=float), np.maximum(np.asarray(ones, dtype=float), 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        doubled = np.ldexp(others, np.minimum(n, 1 << 20).astype(int))  # of one 1, the fewest
        is_short = is_one_format & (at.inner is at.stored) & (2.0**at.stored.p > 2 * J) & (n * at.stored.u < 0.5)
        doubled = np.fmin(doubled, np.where(is_short, 16 * (J + 1) ** 2 * others / J, np.inf))
    doubled = doubled * INFLATION + np.where(np.asarray(others) == 0, 0.0, FAINT)
    excess = np.where(has_ones & (n <= 2.0**at.stored.p), doubled, np.inf)
    return np.fmin(excess, at.growth(np.maximum(n - 1, 0), stored))


def small_sum(at: RoundedArithmetic, size: Array, terms: Array) -> Array:
    """A bound on every computed partial sum of numbers whose absolute values sum to `size`.

    Proof. Either all partial sums are below half the smallest number of the format, so that rounding to it makes them
    zero and only roundings that keep 2p + 2 bits are left, or each rounding lets them grow.

    With it, the sum of one large term z that is a number of the format and of small ones is off by at most
    2^FORMATS_OF_A_SUM times the small ones, whatever their number and order. Its partial results are in at most three
    formats, each holding the numbers of the one before. Follow the partial sum that contains z, and let b be the last
    one that was a number of the coarsest format. Rounding y to nearest moves it by at most |y - b|, as b could have
    been chosen; so the sum of the small terms since b is at most doubled, and the same within the other two formats. It
    is off by more only if z itself is no number of the format, or where the partial sum may be flushed to zero: then by
    the smallest normal number, once. What follows starts at zero, and from one zero to the next a sum is off by its
    small terms.
    """
    wider = np.expm1(terms * np.log1p(2.0 ** -(2 * at.inner.p + 2)))
    kept = size * (1 + wider) * INFLATION
    grown = (size + terms * at.inner.eta) * (1 + at.growth(terms, 0)) * INFLATION
    return np.where(kept < at.inner.eta / 2, kept, grown)


def quotient_error(total: Array, rest: Array | float = 0.0) -> Array:
    """The relative error of a quotient whose divisor is off by `total` and everything else by `rest`.

    Proof. (1 + r) / (1 + t) - 1 = (r - t) / (1 + t), and |t| <= total <= 1/4; no bound is given beyond.
    """
    both = rest + total
    found = both / (1 - np.minimum(total, 0.25)) * ENLARGE + np.where(both == 0, 0.0, FAINT)
    return np.where(total <= 0.25, found, np.inf)


def error_beside_one(
    total: Array, n: int, at: Operations, value: Array, noise: Array | float, largest: Array | float
) -> Array:
    """How far a computed mean of the values of n keys is from v, where one key has nearly all weight.

    That key's score s is the largest, its value is within `noise` of v, a number of the format, and at most `value` in
    size; `total` bounds the sum of e^(s_j - s) over the others, whose values are at most `largest` in size. Infinite
    where the tail exceeds SMALL_TAIL; what products lose to underflow is not in it. Each exponential is within 8 u, and
    exp(0) = 1; weights are divided before values are multiplied.

    Proof. Let T bound the others' computed exponentials and their partial sums: each is rounded 2 n + 4 times at most.
    A rounded sum of two numbers is off by no more than either, and rounding goes no further from a number of the format
    than it is. So the weights' sum is between 1 and 1 + 2T, stored at most 1 + 4T, and the key's weight, by a quotient
    or by a reciprocal and a product with 1, within 8T of 1. Its product doubles the distance from v, at most 8T value +
    noise; a sum with the others adds twice what they are, each weight at most twice its exponential; and the stored
    mean doubles all.

    >>> error_beside_one(np.array([2.0**-10]), 8, Operations(), np.array([1.0]), 0.0, 1.0).round(4).tolist()
    [0.0469]
    """
    growth = (1 + at.u) ** (2 * n + 4) * (1 + 2 * operations.ULPS * at.u) * ENLARGE_LONG
    tail = (total * growth + (0.0 if at.is_real else 4 * n * at.tiny)) * ENLARGE_LONG
    tail = np.where(tail <= SMALL_TAIL, tail, np.inf)
    result: Array = 4 * (10 * tail * value + noise) + 8 * tail * largest
    return result


def shares(scores: Ball, at: RoundedArithmetic) -> Ball:
    """Every weight of rows of scores, all of which take part, exact or as computed: exponentials over their sum.

    Proof. Both have one factor in common, which the quotient loses. The exponential of the maximum is 1, so that the
    computed total is at least 1, and what flushing takes from it is relative to that as well: once for each partial
    sum. The quotient is one operation, or a reciprocal and a product with it, which is exact where that is with 1.

    >>> from verify.arithmetic.formats import FORMATS
    >>> shares(Ball.exact(np.zeros((1, 4))), RoundedArithmetic.of(FORMATS["float16"])).mid.round(6).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    N, is_top = scores.mid.shape[-1], Arguments.of(scores, at, is_always=True).is_top
    low, high = computed_between(scores, scores.mid.max(-1, keepdims=True), at, is_always=True)
    e = Ball.between(np.where(is_top, 1.0, low), np.where(is_top, 1.0, high))
    is_uniform, ones = is_top.all(-1, keepdims=True), is_top.sum(-1, keepdims=True)
    others = np.where(is_top, 0.0, high).sum(-1, keepdims=True) * INFLATION
    off = total_error(at, N, ones, others, ones > 0) + np.where(is_uniform, 0.0, at.underflow(N))
    total = e @ point(np.ones((N, 1)))
    found = e / Ball(total.mid, (total.rad + times(off, total.magnitude)) * INFLATION)
    rounding = times(np.where(is_uniform, 0.0, at.once), found.magnitude)
    return at.result(Ball(found.mid, (found.rad + rounding) * INFLATION))
