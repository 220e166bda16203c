"""An adversary for the reading "dtype, any order", in whole numbers and with nothing from the certifier.

A number is an integer in units of 2^-UNIT. Every result is the one among those the reading
allows that hurts most: rounded, kept wider, rounded twice, flushed; every sum over all trees
where its terms are few.
What is returned is a margin that an evaluation within the reading has, so a certified margin above it is wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import product

import mpmath
import numpy as np

UNIT = 420
MOST_STATES = 700
FREE = -(10**6)  # the least exponent of what is kept wider


class Overflow(Exception):
    """A result beyond the largest number: no margin."""


def whole(x):
    n, d = float(x).as_integer_ratio()
    return (n << UNIT) // d


def nearest(n, scale, p, least, half_way_up=None):
    """n 2^-scale rounded to p bits, or to the spacing at the least exponent; ties to even, or outwards or inwards."""
    size = abs(n)
    quantum = max(size.bit_length() - 1 - scale, least) - p + 1
    cut = quantum + scale
    if cut <= 0:
        return n << (UNIT - scale) if scale <= UNIT else n >> (scale - UNIT)
    steps, rest = size >> cut, size & ((1 << cut) - 1)
    half = 1 << (cut - 1)
    if rest > half or (rest == half and (steps & 1 if half_way_up is None else half_way_up)):
        steps += 1
    shift = quantum + UNIT
    steps = steps << shift if shift >= 0 else steps >> -shift
    return steps if n > 0 else -steps


@lru_cache(maxsize=1 << 14)
def exponential(x):
    with mpmath.workprec(2 * UNIT):
        return int(mpmath.floor(mpmath.exp(mpmath.mpf(x) / mpmath.mpf(2) ** UNIT) * mpmath.mpf(2) ** UNIT))


@lru_cache(maxsize=64)
def root_of(d):
    return math.isqrt(d << (2 * UNIT))


def quotient(x, y):
    """x / y in units of 2^-(UNIT + 64), the last bit set where there is a remainder."""
    n, rest = divmod(abs(x) << (UNIT + 64), abs(y))
    n |= bool(rest)
    return n if (x > 0) == (y > 0) else -n


class Adversary:
    """Evaluations of a stored model, rounded already, that hurt one cell.

    `stores_softmax` stores each of softmax's steps; `wide` are the significands that a result may be kept with.
    """

    def __init__(self, stored, fmt, accumulate=None, stores_softmax=True, ties=False, wide=(0, 1, 3, 40)):
        self.stored, self.is_tf32 = stored, fmt.name == "tf32"
        p, least, largest = (24, -126, 2.0**128) if self.is_tf32 else (fmt.p, fmt.smallest_exponent, fmt.largest)
        self.p, self.least, self.largest, self.stores_softmax = p, least, whole(largest), stores_softmax
        self.tiny = 1 << (UNIT + least)
        self.inner = (p, least) if accumulate is None else (accumulate.p, accumulate.smallest_exponent)
        self.is_wider = accumulate is not None
        self.ties = ties
        self.kept = [2 * p + 2 + extra for extra in wide]
        names = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
        self.w = {
            name: np.vectorize(whole, otypes=[object])(getattr(stored, name))
            for name in names
            if getattr(stored, name) is not None
        }
        self.context = list(self.w["E"]) + ([self.w["e_BOS"]] if stored.e_BOS is not None else [])
        self.scores_found: dict = {}
        self.evaluations = 0

    # one result

    def _candidates(self, n, scale, p, least):
        found = [nearest(n, scale, p, least)]
        if self.ties:
            found += [nearest(n, scale, p, least, up) for up in (False, True)]
        if abs(n) < 1 << max(scale + least, 0):
            found.append(0)
        return found

    def _all(self, n, scale):
        """What a result may become as it is stored."""
        found = self._candidates(n, scale, self.p, self.least)
        for bits in self.kept:
            wide = nearest(n, scale, bits, FREE)
            found += [wide, *self._candidates(wide, UNIT, self.p, self.least)]
        return found

    def stored_result(self, n, scale, up):
        out = (max if up else min)(self._all(n, scale)) if n else 0
        if abs(out) > self.largest:
            raise Overflow
        return out

    def inner_result(self, n, scale, up):
        if not self.is_wider:
            return self.stored_result(n, scale, up)
        found = self._candidates(n, scale, *self.inner) if n else [0]
        found.append(n >> (scale - UNIT) if scale > UNIT else n)
        return (max if up else min)(found)

    def tensor(self, n, up):
        """What is stored of a result: it is kept once, so that one of the same format is rounded, or stays as it is."""
        if self.is_wider:
            return self.stored_result(n, UNIT, up)
        return (max if up else min)([n, *self._candidates(n, UNIT, self.p, self.least)]) if n else 0

    def as_factor(self, x):
        """What a number may be as a factor of a matrix product."""
        found = set(self._candidates(x, UNIT, self.p, self.least)) if x else {0}
        if self.is_tf32:
            found |= {nearest(y, UNIT, 11, -126, up) for y in list(found) for up in (None, False, True) if y}
        return found

    def as_read(self, x):
        return {x, 0} if abs(x) < self.tiny else {x}

    # sums

    def term(self, x, y, up, is_read):
        exact = [a * b for a in ([x] if is_read else self.as_factor(x)) for b in self.as_factor(y)]
        n = (max if up else min)(exact)
        return self.inner_result(n, 2 * UNIT, up)

    def total(self, terms, up):
        """The extreme sum over all trees, or over many."""
        groups = Counter(x for x in terms if x)
        if not groups:
            return 0
        values, counts = zip(*sorted(groups.items()), strict=True)
        unit = min((x & -x).bit_length() for x in values) - 1
        if (sum(abs(x) * c for x, c in groups.items()) >> unit) <= 1 << self.p and 1 << unit >= self.tiny:
            return sum(x * c for x, c in groups.items())
        if math.prod(c + 1 for c in counts) ** 2 > MOST_STATES * 8:
            return self._some_trees([x for x in terms if x], up)
        best: dict[tuple[int, ...], int] = {}
        better = max if up else min
        for state in product(*(range(c + 1) for c in counts)):
            size = sum(state)
            if size == 0:
                continue
            if size == 1:
                best[state] = values[state.index(1)]
                continue
            sums = {
                best[part] + best[tuple(a - b for a, b in zip(state, part, strict=True))]
                for part in product(*(range(c + 1) for c in state))
                if 0 < sum(part) <= size // 2
            }
            best[state] = self.inner_result(better(sums), UNIT, up)
        return best[counts]

    def _some_trees(self, terms, up):
        orders = [sorted(terms), sorted(terms)[::-1], sorted(terms, key=abs), sorted(terms, key=abs)[::-1]]
        found = []
        for order in orders:
            running = order[0]
            for x in order[1:]:
                running = self.inner_result(running + x, UNIT, up)
            found.append(running)
            while len(order) > 1:
                pairs = [order[i : i + 2] for i in range(0, len(order), 2)]
                order = [self.inner_result(sum(pair), UNIT, up) if len(pair) > 1 else pair[0] for pair in pairs]
            found.append(order[0])
        return (max if up else min)(found)

    def matrix(self, x, y, up, rest=None, is_read=False):
        """A matrix product's entry, with a term that is added afterwards or with the others; x may be factors."""
        terms = [self.term(a, b, up, is_read) for a, b in zip(x, y, strict=True) if a and b]
        out = self.tensor(self.total(terms, up), up)
        if rest is None:
            return out
        extreme = (max if up else min)(self.as_read(rest))
        found = [self.tensor(self.inner_result(out + extreme, UNIT, up), up)]
        found.append(self.tensor(self.total([*terms, extreme], up), up))
        return (max if up else min)(found)

    # the model

    def score(self, t, key, up):
        """The extreme score of a query and a key; the signs of what it is made of follow from real numbers."""
        if (t, key, up) not in self.scores_found:
            s = self.stored
            sign = 1 if up else -1
            x, y = s.E[t], s.E[key] if key < s.T else s.e_BOS
            by_query = sign * (y @ s.W_K)
            by_key = sign * (x @ s.W_Q)
            q = [self.matrix(self.w["E"][t], self.w["W_Q"][:, i], by_query[i] > 0) for i in range(s.d)]
            k = [self.matrix(self.context[key], self.w["W_K"][:, i], by_key[i] > 0) for i in range(s.d)]
            dot = self.matrix(q, k, up)
            root = root_of(s.d)
            found = []
            for bits in (self.inner[0], 300):
                rounded_root = nearest(root, UNIT, bits, FREE)
                n = quotient(dot, rounded_root) if dot else 0
                found.append(self.tensor(self.inner_result(n, UNIT + 64, up), up) if n else 0)
                for recip_bits in (self.inner[0], 300):
                    reciprocal = nearest(quotient(1 << UNIT, rounded_root), UNIT + 64, recip_bits, FREE)
                    n = dot * reciprocal
                    found.append(self.tensor(self.inner_result(n, 2 * UNIT, up), up) if n else 0)
            self.scores_found[t, key, up] = (max if up else min)(found)
        return self.scores_found[t, key, up]

    def exp(self, x, up):
        """exp to within two units in the last place of its value."""
        if x == 0:
            return 1 << UNIT
        p, least = (self.p, self.least) if self.stores_softmax or not self.is_wider else self.inner
        value = exponential(x)
        ulp = max(value.bit_length() - 1 - UNIT, least) - p + 1
        two = 1 << (ulp + 1 + UNIT)
        end = value + two if up else value - two
        inside = (end >> (ulp + UNIT)) << (ulp + UNIT)
        found = [end, inside if up else inside + (1 << (ulp + UNIT))]
        if value < self.tiny:
            found.append(0)
        return max((max if up else min)(found), 0)

    def softmax(self, scores, by_exponential, by_total, by_weight):
        keep = self.tensor if self.stores_softmax and self.is_wider else lambda x, up: x
        top = max(scores)
        exps = []
        for x, effect in zip(scores, by_exponential, strict=True):
            up = effect > 0
            exps.append(keep(self.exp(keep(self.inner_result(x - top, UNIT, up), up), up), up))
        total = keep(self.total(exps, by_total > 0), by_total > 0)
        return [
            self.tensor(self.inner_result(quotient(e, total), UNIT + 64, g > 0), g > 0) if e else 0
            for e, g in zip(exps, by_weight, strict=True)
        ]

    def margin(self, t, keys, position, right, rival, rng=None):
        """(right - rival) logit of token t that attends to these keys (T is BOS); rng flips some signs."""
        s = self.stored
        self.evaluations += 1
        X = np.array([s.E[key] if key < s.T else s.e_BOS for key in keys])
        real = s.A[position] if s.A is not None else s.E[t] @ s.W_Q @ (X @ s.W_K).T / math.sqrt(s.d)
        if s.is_softmax:
            real = np.exp(real - real.max())
            real = real / real.sum()
        g_hidden = s.W_2[:, rival] - s.W_2[:, right]  # what raises it hurts
        mixed = s.E[t] + real @ X
        is_on = mixed @ s.W_1 + s.b_1 > -1e-3
        g_mixed = s.W_1 @ (g_hidden * is_on)
        g_weight = X @ g_mixed
        mean = real @ g_weight
        g_exp = g_weight - mean if s.is_softmax else g_weight
        g_total = -mean
        if rng is not None:
            g_weight, g_exp = (g * rng.choice([1, 1, 1, -1], len(g)) for g in (g_weight, g_exp))
            g_total = g_total * rng.choice([1, -1])
        if s.A is not None:
            scores = list(self.w["A"][position])
            if not s.is_softmax:
                weights = scores
            else:
                scores = [(max if g > 0 else min)(self.as_read(x)) for x, g in zip(scores, g_exp, strict=True)]
        else:
            scores = [self.score(t, key, bool(g > 0)) for key, g in zip(keys, g_exp, strict=True)]
            weights = scores
        if s.is_softmax:
            weights = self.softmax(scores, g_exp, g_total, g_weight)
        columns = [[self.context[key][c] for key in keys] for c in range(s.d)]
        x = [self.matrix(weights, columns[c], g_mixed[c] > 0, self.w["E"][t][c]) for c in range(s.d)]
        hidden = [max(self.matrix(x, self.w["W_1"][:, j], g_hidden[j] > 0, self.w["b_1"][j]), 0) for j in range(s.p)]
        hidden = [(max if g > 0 else min)(self.as_factor(h)) for h, g in zip(hidden, g_hidden, strict=True)]
        low = self.matrix(hidden, self.w["W_2"][:, right], False, self.w["b_2"][right], is_read=True)
        high = self.matrix(hidden, self.w["W_2"][:, rival], True, self.w["b_2"][rival], is_read=True)
        return Fraction(low - high, 1 << UNIT)
