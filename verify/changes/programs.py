"""Linear programmes over a readout: the least change that keeps some inputs right, and a bound on every change.

A readout X (p + 1, C) is right by delta on an input with hidden numbers h, last one 1, right class y and rival c where
h . (X_y - X_c) >= delta: such a pair of an input and a rival is a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sparse
from flint import arb, ctx
from scipy.optimize import OptimizeResult, linprog

from verify.arithmetic.exact_reals import float_below
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline

PER_PAIR = 40  # cuts of one pair of classes that are added in a round
TOLERANCE = 1e-9  # by which a solver may miss a cut, relative to the cut's largest number
BITS = 512


@dataclass
class Cuts:
    """Pairs of an input and a rival. Shapes: h (m, p + 1), right (m,), rival (m,), question (m,)."""

    h: Array
    right: np.ndarray
    rival: np.ndarray
    question: np.ndarray
    seen: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def none(cls, columns: int) -> Cuts:
        whole = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, columns)), whole, whole, whole)

    def __len__(self) -> int:
        return len(self.h)

    def add(self, H: Array, right: np.ndarray, pairs: np.ndarray) -> int:
        """Takes pairs (k, 2) of a question and a rival that are not yet there; returns how many."""
        new = np.array([pair for pair in map(tuple, pairs.tolist()) if pair not in self.seen], dtype=np.int64)
        if not len(new):
            return 0
        self.seen |= set(map(tuple, new.tolist()))
        self.h = np.vstack([self.h, H[new[:, 0]]])
        self.right = np.append(self.right, right[new[:, 0]])
        self.rival, self.question = np.append(self.rival, new[:, 1]), np.append(self.question, new[:, 0])
        return len(new)

    def rows(self, C: int) -> Array:
        """The cuts as vectors (m, (p + 1) C) over the readout's numbers, scaled to a largest number of 1."""
        m, n = self.h.shape
        found = np.zeros((m, n, C))
        i = np.arange(m)
        found[i, :, self.right] = self.h
        found[i, :, self.rival] -= self.h
        return found.reshape(m, n * C) / self.size[:, None]

    @property
    def size(self) -> Array:
        found: Array = np.abs(self.h).max(1, initial=1e-300)
        return found


def needed(H: Array, right: np.ndarray, size: Array, unit: float) -> Array:
    """What a cut must be right by (n, C): the rounding of readouts of this size (p + 1, C), each relative by `unit`."""
    of_class = unit * (np.abs(H) @ size)
    own = np.take_along_axis(of_class, right[:, None], 1)
    return own + of_class


def gaps(H: Array, right: np.ndarray, X: Array) -> Array:
    """By how much the right class is above each other one (n, C), infinite for itself."""
    logits = H @ X
    found = np.take_along_axis(logits, right[:, None], 1) - logits
    np.put_along_axis(found, right[:, None], np.inf, 1)
    return found


def shortage(H: Array, right: np.ndarray, X: Array, size: Array, unit: float) -> Array:
    """By how much the closest gap of each question is above what it needs (n,); below 0 where it is short."""
    found: Array = (gaps(H, right, X) - needed(H, right, size, unit)).min(1)
    return found


def worst(short: Array, right: np.ndarray, per_pair: int = PER_PAIR) -> np.ndarray:
    """Of pairs of a question and a rival with a number below 0, the least of each pair of classes: (k, 2)."""
    found = []
    C = short.shape[1]
    for y in np.unique(right):
        own = np.flatnonzero(right == y)
        for c in range(C):
            column = short[own, c]
            below = np.flatnonzero(column < 0)
            if len(below) > per_pair:
                below = below[np.argpartition(column[below], per_pair)[:per_pair]]
            found += [(int(own[i]), c) for i in below]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Relaxed:
    """The least change that satisfies some cuts: the readout, its largest change, and the cuts' multipliers."""

    X: Array
    t: float
    multipliers: Array


def least_change(cuts: Cuts, X: Array, unit: float, t: float, until: Deadline | None = None) -> Relaxed | None:
    """The readout closest to X, by the largest change, that is right by what rounding may take; None if none is found.

    Rounding takes at most unit sum |a| |x| <= unit sum |a| (|X| + t) of a cut a, where t is at least the change.
    """
    a, x = cuts.rows(X.shape[1]), X.ravel()
    m, n = a.shape
    slack = unit * (np.abs(a) @ (np.abs(x) + t)) + (TOLERANCE if unit else 0.0)
    one, eye = np.ones((n, 1)), sparse.identity(n)
    A = sparse.vstack([sparse.csr_matrix(np.hstack([-a, np.zeros((m, 1))])), sparse.hstack([eye, -one]),
                       sparse.hstack([-eye, -one])])  # fmt: skip
    found = solved(
        np.append(np.zeros(n), 1.0), A.tocsr(), np.concatenate([a @ x - slack, np.zeros(2 * n)]),
        [(None, None)] * n + [(0, None)], until,
    )  # fmt: skip
    if found is None:
        return None
    return Relaxed((x + found.x[:-1]).reshape(X.shape), float(found.x[-1]), np.maximum(-found.ineqlin.marginals[:m], 0))


METHODS = ("highs", "highs-ds", "highs-ipm")  # the next is tried where one gives up
MANY = 2000  # rows from which interior points come first: the simplex stalls where many cuts meet
OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def solved(cost: Array, A: object, b: Array, bounds: object, until: Deadline | None = None) -> OptimizeResult | None:
    """What HiGHS finds for min cost . x, A x <= b; None where it finds none, not in time, or a number is none."""
    numbers = A.data if isinstance(A, sparse.csr_matrix) else np.asarray(A)
    if not all(np.isfinite(x).all() for x in (cost, numbers, b)):
        return None
    for method in METHODS[::-1] if len(b) >= MANY else METHODS:
        limit = {} if until is None else {"time_limit": max(0.0, until.left())}
        found = linprog(cost, A_ub=A, b_ub=b, bounds=bounds, method=method, options=OPTIONS | limit)
        if found.status == 0:
            return found
        if found.status in (2, 3):  # infeasible or unbounded
            return None
    return None


def bound_on_every_change(
    hidden: Sequence[Sequence[arb]], right: Sequence[int], rival: Sequence[int], multipliers: Array, X: Array
) -> float:
    """A lower bound on the largest change of every right readout X + V, whatever the multipliers, all at least 0.

    Proof. Right means a_i . (X + V) > 0 for each cut a_i, so that with s = sum y_i a_i, y >= 0, there is
    s . V >= -s . X; and s . V is at most max |V| times the sum of |s|. Evaluated in balls, so that no rounding is lost.
    """
    with ctx.workprec(BITS):
        columns = [[arb(0)] * len(X) for _ in range(X.shape[1])]
        for h, y, c, multiplier in zip(hidden, right, rival, multipliers.tolist(), strict=True):
            for j, value in enumerate(h):
                term = value * multiplier
                columns[y][j] += term
                columns[c][j] -= term
        size = sum((abs(s) for column in columns for s in column), arb(0))
        gain = sum((-s * float(x) for column, of in zip(columns, X.T, strict=True)
                    for s, x in zip(column, of, strict=True)), arb(0))  # fmt: skip
        return max(0.0, float_below(gain / size)) if size > 0 else 0.0
