"""The proof for parity: pre-activations are linear forms in counts, extreme where all other tokens are equal.

In a dtype the same forms hold what any order of evaluation can compute. What rounding takes from a sum is at most a
share of the sum of its absolute terms, which is a form in counts as well, so it goes into the radii of the same tables.
And where all terms are multiples of a unit, and the positive ones and the negative ones each come to at most 2^p units,
every partial sum lies between the two and is a number of the format, so that no order loses anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.any_order import NO_UNIT, RoundedArithmetic, absolute_product, times, unit_exponent
from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import INFLATION, Array, U
from verify.arithmetic.stored import finite, fractions, numbers
from verify.reduction.domains import Counts, Forms
from verify.reduction.leaf import leaf

if TYPE_CHECKING:
    from constructions.model_arrays import ModelArrays
    from constructions.parity import ParityTransformer
    from verify.frame.clock import Deadline

    Model = ParityTransformer | ModelArrays

NAMES = ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
AT_ONCE = 1 << 18  # neurons of so many counts at a time
REAL = RoundedArithmetic.real()


@dataclass(frozen=True)
class Stored:
    """The stored numbers as balls. Shapes: E (T, d), W_Q and W_K (d, d), W_1 (d, p), b_1 (p,), W_2 (p, 2), b_2 (2,)."""

    E: Ball
    W_Q: Ball
    W_K: Ball
    W_1: Ball
    b_1: Ball
    W_2: Ball
    b_2: Ball

    @classmethod
    def of(cls, module: Model) -> Stored:
        """Raises: BadInput for a weight that is not finite, or of a dtype that float64 does not hold."""
        return cls(*(Ball.exact(finite(name, getattr(module, name))) for name in NAMES))


def unfit(module: Model, at: RoundedArithmetic) -> str | None:
    """Why weights that are rounded to a format cannot be judged in it, if they cannot."""
    for name in NAMES:
        W = numbers(getattr(module, name))
        if not np.isfinite(W).all():
            return f"{name} holds numbers beyond the largest of {at.stored.name}"
        if at.flush_loss(W).any():
            return f"{name} holds numbers that are subnormal in {at.stored.name}, and may be read as zero"
    return None


def margins(stored: Stored, L: int, at: RoundedArithmetic = REAL, until: Deadline | None = None) -> np.ndarray:
    """A lower bound on the margin of every token t at every own count k: shape (T, L), the tokens begun by `until`.

    A pre-activation is e_t W_1 + b_1 plus k times the term of t itself plus one term for each other slot: a form in the
    counts of the other tokens, whose sum is L - k. (Odd logit) - (even logit) is a sum of ReLUs of such forms, whose
    range `leaf` bounds. Its lower end is the margin of an odd count, and less its upper end that of an even one; what
    a dtype may round of the readout is taken from both.
    """
    T, p = stored.E.mid.shape[0], stored.b_1.mid.shape[0]
    E, W_1, W_2 = map(at.as_operand, (stored.E, stored.W_1, stored.W_2))
    scores = at.as_operand(at.product(at.product(E, stored.W_Q), at.product(E, stored.W_K).T))  # (T, T)
    features = E @ W_1  # (T, p)
    odd = W_2[:, 1:2] - W_2[:, 0:1]
    bias = stored.b_2[1:2] - stored.b_2[0:1]
    out = np.empty((T, L))
    for t in range(T):
        if until is not None and until.is_up():
            return out[:t]
        off = FormErrors.of(stored, scores[t], t, L, at)
        terms = wider(scores[t][:, None] * features, off.of_slots)  # (T, p)
        alone = wider(features[t][None] + stored.b_1[None], off.of_own)
        others = terms[np.arange(T) != t] if T > 1 else Ball.exact(np.zeros((1, p)))
        for start in range(0, L, max(1, AT_ONCE // p)):
            k = np.arange(start + 1.0, min(L, start + max(1, AT_ONCE // p)) + 1)
            domain = Counts(L - k, is_full=True)
            forms = Forms(alone + Ball.exact(k)[:, None] * terms[t][None], others)  # (k, p)
            difference = (leaf(domain, forms, odd).range + bias)[:, 0]
            least = np.where(k % 2 == 1, difference.lower, -difference.upper)
            out[t, start : start + len(k)] = below(least, of_readout(stored, domain, forms, off.unit, at))
    if T == 1:  # no other token: only k = L occurs
        out[:, : L - 1] = np.inf
    return out


def wider(x: Ball, more: Array) -> Ball:
    """The balls with larger radii."""
    return Ball(x.mid, (x.rad + more) * INFLATION)


@dataclass(frozen=True)
class FormErrors:
    """How far computed pre-activations are off their forms: for each slot that holds s (T, p), and besides (p,).

    `unit` is log2 of a number of which computed ones are multiples and exact; -NO_UNIT where there is an error.
    All errors are infinite where a sum may leave the format.
    """

    of_slots: Array
    of_own: Array
    unit: np.ndarray

    @classmethod
    def of(cls, stored: Stored, scores: Ball, t: int, L: int, at: RoundedArithmetic) -> FormErrors:
        """The stream of token t is e_t plus one product of score and token for each of L slots; W_1 and b_1 read it.

        A product of the stream is rounded, added to up to L others, and kept, stored or taken as a factor, three times
        at most where it is; one of the reading likewise, of d others and b_1. Where the sums are exact, it is itself.

        For a reading it is enough that its positive terms come to at most 2^p units. Rounding is monotone, and so is a
        tree of sums in its terms: if no partial sum is below -2^p units, all are exact; the first that is, is rounded
        to -2^p units or less, with which the whole tree comes to zero or less, as it does in real numbers.
        """
        E, W_1 = at.as_operand(stored.E), at.as_operand(stored.W_1)
        size, weights = times(scores.magnitude[:, None], E.magnitude), W_1.magnitude  # (T, d), (d, p)
        own, bias = stored.E.magnitude[t], stored.b_1.magnitude
        most = (L * size.max(0) + own) * INFLATION
        is_known = ((scores.rad[:, None] == 0) & (E.rad == 0)) | (size == 0)
        unit = np.where(size > 0, unit_exponent(scores.mid)[:, None] + unit_exponent(E.mid), NO_UNIT)
        stream_unit = np.minimum(unit.min(0), unit_exponent(stored.E.mid[t]))
        is_known_stream = is_known.all(0) & (stored.E.rad[t] == 0)
        stream = Sums.of(most, most, stream_unit, is_known_stream, np.full(len(most), L + 1), at)

        read_slots = absolute_product(size, weights)
        read_own = (absolute_product(own[None], weights)[0] + bias) * INFLATION
        is_read = (most > 0)[:, None] & (weights > 0)
        unit = np.where(is_read, stream_unit[:, None] + unit_exponent(W_1.mid), NO_UNIT)
        read_unit = np.minimum(unit.min(0), unit_exponent(stored.b_1.mid))
        is_known = ((stream.is_exact[:, None] & (W_1.rad == 0)) | ~is_read).all(0) & (stored.b_1.rad == 0)
        most_read = (L * read_slots.max(0) + read_own) * INFLATION
        parts = L * _positive(scores.mid[:, None] * E.mid, W_1.mid).max(0)
        parts = parts + _positive(stored.E.mid[t][None], W_1.mid)[0]
        within = (parts + np.maximum(stored.b_1.mid, 0.0)) * INFLATION
        reads = Sums.of(most_read, within, read_unit, is_known, is_read.sum(0) + 1, at)

        def inherited(x: Array) -> Array:
            return times(1 + reads.growth, absolute_product(x, weights))

        of_slots = inherited(size * stream.growth) + times(reads.growth, read_slots)
        of_own = inherited((own * stream.growth + stream.lost)[None])[0] + times(reads.growth, read_own) + reads.lost
        is_exact = reads.is_exact
        is_finite = bool(stream.stays.all() and reads.stays.all() and np.isfinite(scores.rad).all())
        beyond = 0.0 if is_finite else np.inf
        return cls(
            np.where(is_exact, 0.0, of_slots * INFLATION) + beyond,
            np.where(is_exact, 0.0, of_own * INFLATION) + beyond,
            np.where(is_exact, read_unit, -NO_UNIT),
        )


def _positive(x: Array, W: Array) -> Array:
    """The positive parts of the products in x W, added up."""
    parts = [absolute_product(np.maximum(sign * x, 0.0), np.maximum(sign * W, 0.0)) for sign in (1, -1)]
    return (parts[0] + parts[1]) * INFLATION


@dataclass(frozen=True)
class Sums:
    """What rounding does to sums: nothing where `is_exact`; else `growth` of their terms' sizes, and `lost` besides.

    `stays` says that no partial sum overflows.
    """

    is_exact: np.ndarray
    growth: Array
    lost: Array
    stays: np.ndarray

    @classmethod
    def of(
        cls,
        size: Array,
        within: Array,
        unit: np.ndarray,
        is_known: np.ndarray,
        terms: np.ndarray,
        at: RoundedArithmetic,
    ) -> Sums:
        """Of sums of so many terms whose absolute values come to at most `size`, and that are then factors.

        Neither the positive terms nor the negative ones come to more than `within`; or the positive ones do not, and
        all that is read of a sum is its positive part.
        """
        is_exact = is_known & at.is_representable(within, unit) & at.fits_operand(within, unit)
        growth = np.where(is_exact, 0.0, at.growth_of_products(terms + 3, 3))
        lost = np.where(is_exact | (size == 0), 0.0, times(at.underflow(2 * terms + 1), 1 + growth))
        stays = (size * (1 + growth) + lost) * INFLATION <= at.stored.largest
        return cls(is_exact, growth, lost, stays)


def of_readout(stored: Stored, domain: Counts, forms: Forms[Ball], unit: np.ndarray, at: RoundedArithmetic) -> Array:
    """How far (odd logit) - (even logit) can be computed off, of neurons whose forms are given, by count.

    A sum of exact terms that is stored in the format of its partial sums has no error; in a narrower one, only what is
    stored of it with b_2 and without has. Infinite where a partial sum may leave the format.
    """
    W, b, is_plain = at.as_operand(stored.W_2), stored.b_2, at.inner is at.stored
    high = np.maximum(domain.range(forms).upper, 0.0)  # (k, p)
    weights = (W.magnitude, np.maximum(W.mid, 0.0), np.maximum(-W.mid, 0.0))
    size, positive, negative = np.split(absolute_product(high, np.hstack(weights)), 3, axis=1)  # (k, 2)
    size = (size + b.magnitude) * INFLATION
    within = np.maximum(positive + np.maximum(b.mid, 0.0), negative + np.maximum(-b.mid, 0.0)) * INFLATION
    is_read = (high > 0)[..., None] & (W.magnitude > 0)  # (k, p, 2)
    units = np.where(is_read, unit[:, None] + unit_exponent(W.mid), NO_UNIT).min(1)
    is_known = (~is_read | (W.rad == 0)).all(1) & (b.rad == 0)
    is_exact = is_known & at.is_exact_sum(within, np.minimum(units, unit_exponent(b.mid)))
    terms = is_read.sum(1) + 1
    growth = at.growth_of_products(terms + 3, 3)
    error = times(growth, size) + times(at.underflow(2 * terms + 1), 1 + growth)
    read = np.zeros_like(size) if is_plain else leaf(domain, forms, W).range.magnitude
    of_stored = 0.0 if is_plain else (at.growth(1, 3) * (read + np.abs(b.mid)) + at.underflow(4)) * INFLATION
    error = np.where(is_exact, of_stored, error * INFLATION)
    found: Array = np.where((size + error) * INFLATION <= at.stored.largest, error, np.inf).sum(1) * INFLATION
    return found


def below(x: Array, error: Array) -> Array:
    """A lower bound on x - error: the error itself where there is none."""
    return np.where(error == 0, x, x - error - 4 * U * (np.abs(x) + error))


def vertices(T: int, L: int, t: int, k: int) -> Iterator[tuple[int, ...]]:
    """The sequences of token t, k times, first, with one other token in all other places."""
    for s in range(T):
        if s != t or k == L:
            yield (t,) * k + (s,) * (L - k)


def bags(T: int, L: int, t: int, k: int) -> Iterator[tuple[int, ...]]:
    """The sequences of token t, k times, first, with every bag of other tokens after it."""
    for others in combinations_with_replacement([s for s in range(T) if s != t], L - k):
        yield (t,) * k + others


def number_of_bags(T: int, L: int, k: int) -> int:
    """How many bags of other tokens there are beside k equal ones."""
    return comb(T - 1 + L - k - 1, L - k) if k < L else 1


def exact_margin(module: Model, tokens: tuple[int, ...], position: int) -> Fraction:
    """(logit of the right class) - (the other) at one position, in rational arithmetic."""
    E, W_Q, W_K, W_1, b_1, W_2, b_2 = (fractions(getattr(module, name)) for name in NAMES)
    x = E[list(tokens)]
    mixed = x[position] + (x @ (W_K @ (x[position] @ W_Q))) @ x
    hidden = [max(z, Fraction(0)) for z in mixed @ W_1 + b_1]
    logits = np.array(hidden, dtype=object) @ W_2 + b_2
    difference: Fraction = logits[1] - logits[0]
    return difference if tokens.count(tokens[position]) % 2 else -difference
