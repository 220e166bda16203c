"""What a slot adds to the linear forms of each query token: given as numbers, or made from attention where needed.

Of T tokens and p neurons there are T T p terms, and most proofs ask for no more than the least and the largest of each
form. Those are found in blocks that stay in the cache, in eight passes over the numbers of a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from verify.arithmetic.balls import Ball, ends, joined, point
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
    def ends(self, tokens: np.ndarray, columns: np.ndarray | None = None) -> tuple[Array, Array]:
        """The least and the largest term of a slot that does not hold the query's own token: (queries, r) each.

        With `columns` (queries,) those of one neuron for each query, and of D: (queries, 2).
        """

    @abstractmethod
    def around(self, tokens: np.ndarray) -> tuple[Array, Array]:
        """Numbers at or below and at or above the ends of all forms, at the cost of a few passes over (queries, r)."""


@dataclass(frozen=True)
class GivenTerms(Terms):
    """Terms that are given; one leading row where they are the same for all queries."""

    terms: Ball

    @property
    def ball(self) -> Ball:
        return self.terms

    def at(self, query: np.ndarray, coordinate: np.ndarray) -> Ball:
        return self.terms[query, :, coordinate]

    @cached_property
    def _two_least(self) -> tuple[TwoLeast, TwoLeast]:
        """Of terms that are the same for all queries: of their lower ends, and of their upper ones times -1."""
        low, high = ends(self.terms[0])
        return TwoLeast.of(low), TwoLeast.of(-high)

    def ends(self, tokens: np.ndarray, columns: np.ndarray | None = None) -> tuple[Array, Array]:
        if len(self.terms.mid) == 1:  # leaves out the token by the two extremes
            low, high = self._two_least
            least, most = low.without(tokens), -high.without(tokens)
        else:
            least, most = _ends_without(*ends(self.terms), tokens)
        return (least, most) if columns is None else (of_columns(least, columns), of_columns(most, columns))

    def around(self, tokens: np.ndarray) -> tuple[Array, Array]:
        return self.ends(tokens)


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
        return joined(weight * values, self._of_D(weight))

    def _of_D(self, weight: Ball) -> Ball:
        if self.residual is not None:
            return weight
        return point(np.zeros(weight.mid.shape))

    def of_token(self, query: np.ndarray, token: np.ndarray) -> Ball:
        """The terms of a slot that holds one token for each of some queries: (n, r)."""
        weight, values = self.weight[query, token][..., None], self.features[token]
        if self.residual is not None:
            values = values + self.residual[query]
        return joined(weight * values, self._of_D(weight))

    def at(self, query: np.ndarray, coordinate: np.ndarray) -> Ball:
        p, weight = self.features.mid.shape[1], self.weight[query]
        neuron = np.where(coordinate < 0, p, coordinate)
        is_D, neuron = (neuron == p)[:, None], np.minimum(neuron, p - 1)
        values = self.features[:, neuron].T
        if self.residual is not None:
            values = values + self.residual[query, neuron][:, None]
        of_neuron, of_D = weight * values, self._of_D(weight)
        return Ball(np.where(is_D, of_D.mid, of_neuron.mid), np.where(is_D, of_D.rad, of_neuron.rad))

    def ends(self, tokens: np.ndarray, columns: np.ndarray | None = None) -> tuple[Array, Array]:
        (n, T), p = self.weight.mid.shape, self.features.mid.shape[1] if columns is None else 1
        least, most = np.full((n, p + 1), np.inf), np.full((n, p + 1), -np.inf)
        least[:, p], most[:, p] = self._ends_of_D(tokens)
        queries, others = max(1, BLOCK // (T * p)), max(1, BLOCK // p)
        for i in range(0, n, queries):
            for s in range(0, T, others):
                part = slice(i, i + queries), slice(s, s + others)
                self._widen(*part, tokens, columns, least[:, :p], most[:, :p])
        # rounding to nearest is monotone, so the least difference of all is next to the least of the exact ones; what
        # its products lose to underflow is less than FAINT, or than the next number is away
        least[:, :p] = np.nextafter(least[:, :p] - FAINT, -np.inf)
        most[:, :p] = np.nextafter(most[:, :p] + FAINT, np.inf)
        return least, most

    def _ends_of_D(self, tokens: np.ndarray) -> tuple[Array, Array]:
        return _ends_without(*ends(self._of_D(self.weight)), tokens)

    def around(self, tokens: np.ndarray) -> tuple[Array, Array]:
        """Proof. A term is w x, of a weight w between two ends and a value x between two: least and greatest at two of
        the four pairs of ends. The values' ends are the features' next to the residual, rounded to the next number; so
        are the products, which makes up for a rounding of U, of underflow as well.
        """
        (w_low, w_high), D = _ends_without(self.weight.lower, self.weight.upper, tokens), self._ends_of_D(tokens)
        x_low, x_high = (
            TwoLeast.of(self.features.lower).without(tokens),
            -TwoLeast.of(-self.features.upper).without(tokens),
        )
        if self.residual is not None:
            x_low = np.nextafter(x_low + self.residual.lower, -np.inf)
            x_high = np.nextafter(x_high + self.residual.upper, np.inf)
        pairs = [w[:, None] * x for w in (w_low, w_high) for x in (x_low, x_high)]
        least, most = np.nextafter(np.minimum.reduce(pairs), -np.inf), np.nextafter(np.maximum.reduce(pairs), np.inf)
        return np.column_stack([least, D[0]]), np.column_stack([most, D[1]])

    def _widen(
        self, i: slice, s: slice, tokens: np.ndarray, columns: np.ndarray | None, least: Array, most: Array
    ) -> None:
        """Takes the terms of some queries and tokens into the ends found so far.

        With v = features, known to r, a term w v is off by at most (|w| + rad w) r, (rad w) |v| and U |w v|: together
        |v| a + r b. A residual that is added first makes v off by U |v| as well. U |w| may underflow before it is
        multiplied by |v|: that is what LEAST is for.
        """
        w, rad, residual = self.weight.mid[i, s], self.weight.rad[i, s], self.residual
        if columns is None:
            v, r, added = (
                self.features.mid[None, s],
                self.features.rad[None, s],
                None if residual is None else residual[i, None],
            )
        else:
            of = columns[i, None]
            v, r = (x[s, columns[i]].T[..., None] for x in (self.features.mid, self.features.rad))
            added = None if residual is None else residual[np.arange(len(tokens))[i, None], of][..., None]
        b = (np.abs(w) + rad) * ENLARGE_FEW
        a = (rad + U * np.abs(w) + LEAST * (b > 0)) * ENLARGE_FEW
        if added is not None:
            a, v = a + U * b, v + added.mid
        error = np.abs(v) * a[..., None]
        if added is not None and added.rad.any():
            error += (r + added.rad) * b[..., None]
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


@dataclass(frozen=True)
class TwoLeast:
    """The least number of each column of x (T, r), which row has it, and the least of the other rows: (r,) each."""

    at: np.ndarray
    first: Array
    second: Array

    @classmethod
    def of(cls, x: Array) -> TwoLeast:
        """NaN where a column has one."""
        at, columns = x.argmin(0), np.arange(x.shape[1])
        first, others = x[at, columns], x.copy()  # argmin finds a NaN first
        others[at, columns] = np.inf
        return cls(at, first, np.where(np.isnan(first), np.nan, others.min(0)))

    def without(self, tokens: np.ndarray) -> Array:
        """min over s != t of x[s], for each t of the tokens: (n, r)."""
        return np.where(self.at == tokens[:, None], self.second, self.first)


def of_columns(x: Array, columns: np.ndarray) -> Array:
    """One number of each row of x (n, r), and its last: (n, 2)."""
    return np.stack([x[np.arange(len(x)), columns], x[:, -1]], axis=1)
