"""Separation accuracy by a support vector classifier, as a rigorous bracket.

The documents fit a linear separator on a training sample and take its accuracy on a test sample. Here both are laws:
the classifier minimises |w|^2 + C E[max(0, 1 - y (w . r + b))] over the training law, C = 1000, as both print it (their
texts say "squared hinge"). Cutting planes give a lower bound on the minimum; the objective is strongly convex in w, so
|w - w*|^2 is at most the gap. That bounds every score, and b* through the share of margins on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from verify.arithmetic.slack import Array, U
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import SEEN, HeadNumbers
from verify.tasks.count01.layer_norm.tables import column

C = 1000.0
ROUNDS = 150
FLOAT_SLACK = 1e-9  # relative; sums of at most 10^8 terms of error 2^-53 each stay below it
WIDEST = 0.02  # a wider bracket says too little


@dataclass(frozen=True)
class Bracket:
    """The classifier's accuracy lies between `low` and `high`; both None where the fit did not come close enough."""

    low: Fraction | None
    high: Fraction | None
    gap: float


def outputs_of(head: HeadNumbers, law: Law) -> tuple[Array, float]:
    """The head's outputs (N, d_h) and a radius for every entry."""
    parts, radius = [], 0.0
    for k in range(head.d_h):
        found = column(head, [head.values[t][k] for t in SEEN], law.counts)
        centre = found.centre.nearest()
        parts.append(found.values + centre)
        radius = max(radius, found.radius + 2 * U * abs(centre))
    return np.stack(parts, axis=1), radius


def svc(head: HeadNumbers, training: Law, test: Law, rounds: int = ROUNDS) -> Bracket:
    """The bracket of one head's separation accuracy: fitted on one law, judged on another."""
    seen, _ = outputs_of(head, training)
    y = np.where(training.has_more_ones, 1.0, -1.0)
    if not np.isfinite(seen).all() or training.weights is not None:
        return Bracket(None, None, float("inf"))
    centre = seen.mean(axis=0)
    w, b, gap = fit(seen - centre, y, rounds)
    if not gap < np.inf:
        return Bracket(None, None, gap)
    delta = float(np.sqrt(gap))
    spread = delta * np.linalg.norm(seen - centre, axis=1)
    b_low, b_high = intercepts((seen - centre) @ w, spread, y)
    tested, radius = outputs_of(head, test)
    score = (tested - centre) @ w
    slack = (
        delta * np.linalg.norm(tested - centre, axis=1) + FLOAT_SLACK * (1 + np.abs(score)) + radius * np.abs(w).sum()
    )
    is_four, is_five = score - slack + b_low >= 0, score + slack + b_high < 0
    due = test.has_more_ones
    low = test.weight_of(np.where(due, is_four, is_five))
    high = test.total - test.weight_of(np.where(due, is_five, is_four))
    found = Bracket(Fraction(low, test.total), Fraction(high, test.total), gap)
    return found if (high - low) / test.total <= WIDEST else Bracket(None, None, gap)


def fit(r: Array, y: Array, rounds: int) -> tuple[Array, float, float]:
    """(w, b, gap): a near-minimum of |w|^2 + C mean(max(0, 1 - y (w . r + b))), and how far above the least it is."""
    n, d = r.shape
    # |w*|^2 <= objective(0, 0) = C, and b* is where margins cross: within 1 + |w*| max |r|
    reach = 1 + np.sqrt(C) * float(np.linalg.norm(r, axis=1).max())
    slopes, offsets = np.empty((0, d + 1)), np.empty(0)
    best, at, low, x = np.inf, np.zeros(d + 1), -np.inf, np.zeros(d + 1)
    for step in range(rounds):
        violated = y * (r @ x[:d] + x[d]) < 1
        slope = -np.append(y[violated] @ r[violated], y[violated].sum()) * (C / n)
        offset = violated.sum() * (C / n)
        value = float(x[:d] @ x[:d] + slope @ x + offset)
        if value < best:
            best, at = value, x
        slopes, offsets = np.vstack([slopes, slope]), np.append(offsets, offset)
        x, bound = lowest_point(slopes, offsets, reach)
        low = max(low, bound)
        if best - low <= 1e-8 * best:
            break
        if step % 2:
            x = (x + at) / 2  # between the best point and the planes' lowest, where planes are missing
    return at[:d], float(at[d]), max(best - low, 0.0) + FLOAT_SLACK * (abs(best) + C)


def lowest_point(slopes: Array, offsets: Array, reach: float) -> tuple[Array, float]:
    """Finds where |w|^2 + (the largest plane) is about least over |b| <= reach, and a lower bound on that least value.

    Any shares p >= 0 of the planes with sum 1 give one: p . offsets - |p W|^2 / 4 - reach |p B|.
    """
    from scipy.optimize import minimize, nnls

    d = slopes.shape[1] - 1
    scale = max(1.0, float(np.abs(offsets).max()))
    W, B = slopes[:, :d], slopes[:, d]
    start = np.append(np.zeros(d + 1), offsets.max() / scale)
    found = minimize(
        lambda v: v[:d] @ v[:d] / scale + v[d + 1],
        start,
        jac=lambda v: np.concatenate([2 * v[:d] / scale, [0.0, 1.0]]),
        bounds=[(None, None)] * d + [(-reach, reach), (None, None)],
        constraints={
            "type": "ineq",
            "fun": lambda v: v[d + 1] - (slopes @ v[: d + 1] + offsets) / scale,
            "jac": lambda v: np.concatenate([-slopes / scale, np.ones((len(offsets), 1))], axis=1),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    x = found.x[: d + 1]
    planes = slopes @ x + offsets
    near = np.flatnonzero(planes >= planes.max() - 1e-5 * scale)
    A = np.concatenate([W[near].T, B[near][None], np.full((1, len(near)), scale)])
    p, _ = nnls(A, np.concatenate([-2 * x[:d], [0.0, scale]]))
    if not p.sum() > 0:
        return x, -np.inf
    p = p / p.sum()
    mixed = p @ W[near]
    return x, float(p @ offsets[near] - mixed @ mixed / 4 - reach * abs(p @ B[near]))


def intercepts(score: Array, spread: Array, y: Array) -> tuple[float, float]:
    """Bounds on b*, for w* within the gap: the objective's slope in b changes sign there.

    The slope is (triples n1 <= n0 with w . r + b > -1) - (triples n1 > n0 with w . r + b < 1), which grows with b.
    """
    more, rest = y > 0, y < 0
    grid = np.unique(np.concatenate([-1 - score[rest], 1 - score[more]]))

    def slope(b: float, sign: int) -> int:
        s = score + sign * (spread + 1e-9 * (1 + np.abs(score))) + b
        return int(np.count_nonzero(rest & (s > -1))) - int(np.count_nonzero(more & (s < 1)))

    reach = 2 * float(spread.max()) + 1.0
    low = _crossing(lambda b: slope(b, 1) >= 0, float(grid[0]) - reach, float(grid[-1]) + reach)
    high = _crossing(lambda b: slope(b, -1) > 0, float(grid[0]) - reach, float(grid[-1]) + reach)
    return low[0], high[1]


def _crossing(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """An interval of length about 10^-10 at whose lower end the condition fails and at whose upper end it holds."""
    if holds(low):
        return low, low
    for _ in range(60):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high
