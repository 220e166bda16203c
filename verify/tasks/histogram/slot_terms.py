"""What a slot adds to the linear forms of each query token: given as numbers, or made from attention where needed.

Of T tokens and p neurons there are T T p terms, and most proofs ask for no more than the least and the largest of each
form. Those are found in blocks that stay in the cache, in eight passes over the numbers of a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic.balls import Ball, stack_last
from verify.arithmetic.slack import FAINT, LEAST, Array, U

BLOCK = 1 << 15  # numbers of a working array
ENLARGE_FEW = 1 + 2.0**-49  # 16 U > gamma_14: up to 14 operations on a radius


class Terms(ABC):
    """The terms of a slot by query token, by the token that it holds, and by linear form; the last form is D."""

    @property
    @abstractmethod
    def ball(self) -> Ball:
        """All of them: (queries or 1, T, r)."""

    @abstractmethod
    def at(self, query: np.ndarray, coordinate: np.ndarray) -> Ball:
        """Some queries' terms of one linear form each: (n, T)."""

    @abstractmethod
    def ends(self, tokens: np.ndarray) -> tuple[Array, Array]:
        """The least and the largest term of a slot that does not hold the query's own token: (queries, r) each."""


@dataclass(frozen=True)
class GivenTerms(Terms):
    """Terms that are given; one leading row where they are the same for all queries."""

    terms: Ball

    @property
    def ball(self) -> Ball:
        return self.terms

    def at(self, query: np.ndarray, coordinate: np.ndarray) -> Ball:
        return self.terms[query, :, coordinate]

    def ends(self, tokens: np.ndarray) -> tuple[Array, Array]:
        lower, upper = self.terms.lower, self.terms.upper
        if len(lower) == 1:  # leaves out the token by the two extremes
            return _least_without(lower[0], tokens), -_least_without(-upper[0], tokens)
        return _ends_without(lower, upper, tokens)


@dataclass(frozen=True)
class Attended(Terms):
    """Terms (weight of the token) times (its features), with softmax (features + the query's residual).

    Shapes: weight (queries, T), features (T, p), residual (queries, p), None without softmax, where D is no sum.
    """

    weight: Ball
    features: Ball
    residual: Ball | None

    def first(self, T: int) -> Attended:
        """The terms of the first T tokens."""
        return Attended(self.weight[:, :T], self.features[:T], self.residual)

    @cached_property
    def ball(self) -> Ball:
        weight, values = self.weight[..., None], self.features[None]
        if self.residual is not None:
            values = values + self.residual[:, None]
        return stack_last(weight * values, self._of_D(weight))

    def _of_D(self, weight: Ball) -> Ball:
        if self.residual is not None:
            return weight
        return Ball(np.zeros(weight.mid.shape), np.zeros(weight.mid.shape))

    def of_token(self, query: np.ndarray, token: np.ndarray) -> Ball:
        """The terms of a slot that holds one token for each of some queries: (n, r)."""
        weight, values = self.weight[query, token][..., None], self.features[token]
        if self.residual is not None:
            values = values + self.residual[query]
        return stack_last(weight * values, self._of_D(weight))

    def at(self, query: np.ndarray, coordinate: np.ndarray) -> Ball:
        p, weight = self.features.mid.shape[1], self.weight[query]
        neuron = np.where(coordinate < 0, p, coordinate)
        is_D, neuron = (neuron == p)[:, None], np.minimum(neuron, p - 1)
        values = self.features[:, neuron].T
        if self.residual is not None:
            values = values + self.residual[query, neuron][:, None]
        of_neuron, of_D = weight * values, self._of_D(weight)
        return Ball(np.where(is_D, of_D.mid, of_neuron.mid), np.where(is_D, of_D.rad, of_neuron.rad))

    def ends(self, tokens: np.ndarray) -> tuple[Array, Array]:
        (n, T), p = self.weight.mid.shape, self.features.mid.shape[1]
        least, most = np.full((n, p + 1), np.inf), np.full((n, p + 1), -np.inf)
        D = self._of_D(self.weight)
        least[:, p], most[:, p] = _ends_without(D.lower, D.upper, tokens)
        queries, others = max(1, BLOCK // (T * p)), max(1, BLOCK // p)
        for i in range(0, n, queries):
            for s in range(0, T, others):
                self._widen(slice(i, i + queries), slice(s, s + others), tokens, least[:, :p], most[:, :p])
        # rounding to nearest is monotone, so the least difference of all is next to the least of the exact ones; what
        # its products lose to underflow is less than FAINT, or than the next number is away
        least[:, :p] = np.nextafter(least[:, :p] - FAINT, -np.inf)
        most[:, :p] = np.nextafter(most[:, :p] + FAINT, np.inf)
        return least, most

    def _widen(self, i: slice, s: slice, tokens: np.ndarray, least: Array, most: Array) -> None:
        """Takes the terms of some queries and tokens into the ends found so far.

        With v = features, known to r, a term w v is off by at most (|w| + rad w) r, (rad w) |v| and U |w v|: together
        |v| a + r b. A residual that is added first makes v off by U |v| as well. U |w| may underflow before it is
        multiplied by |v|: that is what LEAST is for.
        """
        w, rad, v, r = self.weight.mid[i, s], self.weight.rad[i, s], self.features.mid[None, s], self.features.rad[s]
        b = (np.abs(w) + rad) * ENLARGE_FEW
        a = (rad + U * np.abs(w) + LEAST * (b > 0)) * ENLARGE_FEW
        if self.residual is not None:
            a, v = a + U * b, v + self.residual.mid[i, None]
        error = np.abs(v) * a[..., None]
        if self.residual is not None and self.residual.rad[i].any():
            error += (r + self.residual.rad[i, None]) * b[..., None]
        elif r.any():
            error += r * b[..., None]
        term = v * w[..., None]
        own = np.flatnonzero((tokens[i] >= s.start) & (tokens[i] < s.stop))
        low = term - error
        low[own, tokens[i][own] - s.start] = np.inf
        np.minimum(least[i], low.min(1), out=least[i])
        high = np.add(term, error, out=low)
        high[own, tokens[i][own] - s.start] = -np.inf
        np.maximum(most[i], high.max(1), out=most[i])


def _ends_without(lower: Array, upper: Array, tokens: np.ndarray) -> tuple[Array, Array]:
    """The least and the largest number of each row (n, T, ...) but for the row's own token; overwrites that one."""
    n = np.arange(len(tokens))
    lower[n, tokens], upper[n, tokens] = np.inf, -np.inf
    return lower.min(1), upper.max(1)


def _least_without(x: Array, tokens: np.ndarray) -> Array:
    """min over s != t of x[s], for each t, propagating NaN."""
    least_at, columns = x.argmin(0), np.arange(x.shape[1])
    first, others = x[least_at, columns], x.copy()
    others[least_at, columns] = np.inf
    second = others.min(0)
    is_own = np.equal(least_at[None, :], tokens[:, None])
    least = np.where(is_own, second[None], first[None])
    has_nan = np.asarray(np.isnan(x).any(0))
    return np.where(has_nan[None], np.nan, least)
