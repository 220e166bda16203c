"""The last digits of a line packing: sequential linear programming on the largest overlaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from constructions.frames.line_systems import coherence
from constructions.model_arrays import Array

LARGEST_PROGRAM = 25_000  # nonzeros; beyond it one step takes seconds, and the search has come within 1e-4
LIMITS = {"maxiter": 20_000}


def polished(V: Array, iterations: int = 25, tolerance: float = 1e-13, told: Callable[[], None] | None = None) -> Array:
    """Moves unit vectors so that the largest |<v_i, v_j>| falls, until it no longer does.

    Each step minimises the largest linearised overlap over tangent moves within a trust region, and is `told` before.
    Shapes: (T, d) -> (T, d).

    >>> V = np.array([[1.0, 0.0], [0.6, 0.8], [-0.6, 0.8]])
    >>> round(coherence(polished(V)), 6)  # three lines in the plane
    0.5
    """
    M = coherence(V)
    radius = 0.005 * (1.0 - M)  # the overlaps start within a percent of their end
    for _ in range(iterations):
        if told is not None:
            told()
        step = _linear_step(V, M, radius)
        if step is None:
            break
        moved = V + step
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        reached = coherence(moved)
        if reached < M:
            gain, V, M, radius = M - reached, moved, reached, 2 * radius
            if gain < tolerance:
                break
        else:
            radius /= 8
            if radius < tolerance:
                break
    return V


def _linear_step(V: Array, M: float, radius: float) -> Array | None:
    """The tangent move that lowers all linearised overlaps most, entries within the radius in a tangent basis."""
    T, d = V.shape
    overlaps = V @ V.T
    i, j = np.nonzero(np.triu(np.abs(overlaps) > M - 4 * radius * d**0.5, 1))
    if len(i) * 2 * d > LARGEST_PROGRAM:
        return None
    tangents = _tangent_bases(V)
    sign = np.sign(overlaps[i, j])
    free = d - 1
    pairs = np.arange(len(i))
    along = np.arange(free)
    data = [
        sign[:, None] * np.einsum("ad,afd->af", V[j], tangents[i]),
        sign[:, None] * np.einsum("ad,afd->af", V[i], tangents[j]),
        -np.ones((len(i), 1)),
    ]
    columns = [i[:, None] * free + along, j[:, None] * free + along, np.full((len(i), 1), T * free)]
    rows = [np.broadcast_to(pairs[:, None], block.shape) for block in data]
    matrix = coo_array(
        (np.hstack(data).ravel(), (np.hstack(rows).ravel(), np.hstack(columns).ravel())),
        shape=(len(i), T * free + 1),
    )
    cost = np.zeros(T * free + 1)
    cost[-1] = 1.0
    bounds = [(-1.0, 1.0)] * (T * free) + [(None, None)]  # in units of the radius, the last relative to M
    slack = (M - np.abs(overlaps[i, j])) / radius
    solution = linprog(cost, A_ub=matrix.tocsc(), b_ub=slack, bounds=bounds, method="highs-ipm", options=LIMITS)
    if solution.x is None:
        return None
    coefficients = radius * solution.x[:-1].reshape(T, free)
    result: Array | None = np.einsum("tf,tfd->td", coefficients, tangents)
    return result


def _tangent_bases(V: Array) -> Array:
    """For each unit vector an orthonormal basis of its complement: the Householder reflection to an axis.

    Shapes: (T, d) -> (T, d - 1, d).
    """
    T, d = V.shape
    target = V.copy()
    target[:, 0] += np.where(V[:, 0] >= 0, 1.0, -1.0)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    reflections = np.eye(d) - 2 * target[:, :, None] * target[:, None, :]
    return reflections[:, 1:, :]
