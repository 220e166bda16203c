"""The linear programme of a readout: the point of a cube at which the least of some linear forms is largest.

It is scipy.optimize.linprog for tens of numbers, which needs less time than loading that takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constructions.model_arrays import Array

EXCHANGES = 50  # of columns, for each row and number, after which the search gives up
STEEP = 5  # how many of them take the steepest column
PIVOT = 1e-9  # the least number that an exchange divides by
NOISE = 1e-12  # what rounding leaves of a zero where forms are of size 1


def maximin(rows: Array) -> tuple[Array, float] | None:
    """Returns x in [-1, 1]^n that makes min(rows @ x) largest, and that minimum, or None where rounding hides it.

    By duality the largest minimum is the least |rows^T s|_1 over shares s >= 0 of sum 1. The simplex method moves s:
    with rows^T s = u - v, a basis has n + 1 of all shares, u and v, and its prices are the x and the minimum sought.
    Shapes: rows (m, n), at least one of each; x (n,).

    >>> x, least = maximin(np.array([[1.0, 0.0], [0.5, 1.0]]))
    >>> x.tolist(), least
    ([1.0, 1.0], 1.0)
    """
    m, n = rows.shape
    columns = np.zeros((n + 1, m + 2 * n))  # of shares, u and v
    columns[:n, :m], columns[n, :m] = rows.T / (abs(rows).max() or 1.0), 1
    columns[:n, m:] = np.hstack([-np.eye(n), np.eye(n)])
    cost = np.append(np.zeros(m), np.ones(2 * n))
    basis = np.append(np.where(columns[:n, 0] >= 0, m, m + n) + np.arange(n), 0)  # one share alone
    try:
        for step in range(EXCHANGES * (m + n)):
            prices = np.linalg.solve(columns[:, basis].T, cost[basis])
            reduced = cost - prices @ columns
            if reduced.min() >= -NOISE:
                x = np.clip(-prices[:n], -1, 1)
                return x, float((rows @ x).min())
            is_steep = step < STEEP * (m + n)
            entering = int(np.argmin(reduced) if is_steep else np.argmax(reduced < -NOISE))
            basis[_leaving(columns, basis, entering, is_steep)] = entering
    except np.linalg.LinAlgError:  # the columns of a basis cannot be told from dependent ones
        return None
    return None


def _leaving(columns: Array, basis: NDArray[np.int64], entering: int, is_steep: bool) -> int:
    """Returns the place in a basis that a column takes: of those that reach 0 first, the largest pivot.

    Where steps no longer gain the first column leaves, as the first enters: by Bland's rule such steps end.
    Raises: LinAlgError where all pivots are too small.
    """
    solved = np.linalg.solve(columns[:, basis], np.stack([columns[:, entering], np.eye(len(basis))[-1]], axis=1))
    moved, value = solved.T
    pivots = np.flatnonzero(moved > PIVOT)
    if len(pivots) == 0:
        raise np.linalg.LinAlgError("no pivot")
    ratios = np.maximum(value[pivots], 0) / moved[pivots]
    ties = pivots[ratios <= ratios.min() + NOISE]
    return int(ties[np.argmax(moved[ties]) if is_steep else np.argmin(basis[ties])])


def largest_least(rows: Array) -> Array:
    """Returns the x of `maximin`, by scipy's linear programmes where rounding hides it.

    >>> largest_least(np.array([[2.0, -1.0]])).tolist()
    [1.0, -1.0]
    """
    found = maximin(rows)
    if found is not None:
        return found[0]
    from scipy.optimize import linprog  # which takes as long to load as a whole command

    m, n = rows.shape
    forms, cost = np.hstack([-rows, np.ones((m, 1))]), np.append(np.zeros(n), -1.0)
    solved = linprog(cost, A_ub=forms, b_ub=np.zeros(m), bounds=[(-1, 1)] * n + [(None, None)], method="highs")
    x: Array = solved.x[:-1]
    return x
