"""How long one head with RoPE and BOS counts modulo m without an MLP: lengths that no coefficients reach, in balls.

At length n BOS has the share 1 / (1 + n e^-(g(n) - s)), g a sum of the head's waves and s the score of a for itself.
Logits are affine in the share, so each answer is right in an interval of it: one answer, `top`, in the highest and
another, `bottom`, in the lowest. So g(n) - ln n is above some T where n has the answer `top` and below it elsewhere,
and below some T' where n has `bottom` and above it elsewhere. Weights y >= 0 of these conditions, with as much weight
on one side of T as on the other, and of T', bound how far all of them can hold: neither T nor T' is left in their sum,
and each coefficient of g gives at most W times what the weights leave of its wave.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx

from bounds.sine_readout import BITS, waves

Array = np.ndarray[Any, np.dtype[np.float64]]


def is_impossible(d: int, N: int, W: float, m: int = 10) -> bool:
    """Whether no head of d dimensions, all coefficients of its score for BOS at most W, counts modulo m up to N.

    The scores of a for itself are equal at all distances. False where it is not shown.
    Claim: C-I7 (ours).
    Raises: ValueError for an odd d, or a size that is not positive.

    >>> is_impossible(4, 20, 1.0, m=3), is_impossible(16, 10, 10.0, m=3)
    (True, False)
    """
    return all(slack(d, N, W, m, pair) < 0 for pair in pairs(N, m))


def pairs(N: int, m: int) -> Iterator[tuple[int, int]]:
    """Each choice of the answers that have the highest and the lowest share, among those that lengths 1..N have.

    >>> list(pairs(3, 2))
    [(0, 1), (1, 0)]
    """
    return permutations(range(min(N, m)), 2)


def slack(d: int, N: int, W: float, m: int, pair: tuple[int, int]) -> float:
    """An upper bound on the least slack of all conditions, over all coefficients up to W: below 0 they cannot all hold.

    Raises: ValueError for an odd d, or a size that is not positive.

    >>> slack(2, 60, 1.0, 10, (0, 1)) < 0 < slack(8, 4, 1.0, 10, (0, 1))
    True
    """
    if d < 2 or d % 2:
        raise ValueError(f"d={d}: must be even and at least 2")
    if N < 2 or m < 2 or not 0 < W < float("inf"):
        raise ValueError(f"N={N}, m={m}, W={W}: must be at least 2, at least 2, and positive")
    signs = _signs(N, m, pair)
    weights = _weights(d, signs, W)
    with ctx.workprec(BITS):
        moved, total = [arb(0)] * N, arb(0)
        for sign, row in zip(signs, weights, strict=True):
            above = sum((arb(float(y)) for s, y in zip(sign, row, strict=True) if s > 0), arb(0))
            below = sum((arb(float(y)) for s, y in zip(sign, row, strict=True) if s < 0), arb(0))
            if not (above > 0 and below > 0):
                continue
            for n in range(N):
                moved[n] += arb(float(row[n])) if sign[n] > 0 else -arb(float(row[n])) * above / below
            total += 2 * above
        if not total > 0:
            return float("inf")
        left = arb_mat([moved]) * waves(d, N)
        reach = W * sum((abs(left[0, k]) for k in range(d)), arb(0))
        drift = sum((moved[n] * arb(n + 1).log() for n in range(N)), arb(0))
        return float(((reach - drift) / total).upper())


def _signs(N: int, m: int, pair: tuple[int, int]) -> list[Array]:
    """For each of the two thresholds, 1 where g(n) - ln n is to be above it, -1 where below: n = 1..N."""
    answers = np.arange(N) % m
    top, bottom = pair
    return [np.where(answers == top, 1.0, -1.0), np.where(answers == bottom, -1.0, 1.0)]


def _weights(d: int, signs: list[Array], W: float) -> Array:
    """Weights of the conditions, (2, N), that nearly show the least slack: only hints, in float64."""
    from scipy.optimize import linprog

    N = len(signs[0])
    x = np.array([[float(v.mid()) for v in row] for row in waves(d, N, 64).tolist()])
    rows, limits = [], []
    for threshold, sign in enumerate(signs):
        ends = np.zeros((N, 2))
        ends[:, threshold] = sign
        rows.append(np.hstack([-sign[:, None] * x, ends, np.ones((N, 1))]))
        limits.append(-sign * np.log(np.arange(1, N + 1)))
    found = linprog(
        np.r_[np.zeros(d + 2), -1.0],
        A_ub=np.vstack(rows),
        b_ub=np.concatenate(limits),
        bounds=[(-W, W)] * d + [(None, None)] * 3,
        method="highs",
    )
    if found.x is None:
        return np.zeros((2, N))
    weights: Array = np.maximum(-found.ineqlin.marginals, 0.0).reshape(2, N)
    return weights
