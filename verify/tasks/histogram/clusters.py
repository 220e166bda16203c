"""Clusters of points by complete linkage, as scipy.cluster.hierarchy makes them, without loading it for a few points.

Two clusters are as far apart as their points that are farthest apart. Chains of nearest neighbours end in two clusters
that are nearest to each other, and these are merged (Murtagh 1983); the merges are then told by increasing distance.
"""

from __future__ import annotations

import numpy as np

from verify.arithmetic.slack import Array

FEW = 64  # points: a tree for each of so many tokens takes as long as loading scipy's clusters does
FAR = float(np.finfo(float).max)


def complete_linkage(points: Array) -> np.ndarray:
    """The two clusters of each merge, the smaller number first: points are 0 to n - 1, merge i makes cluster n + i.

    Shapes: points (n, r); returns (n - 1, 2).

    >>> complete_linkage(np.array([[0.0], [5.0], [1.0], [7.0]])).tolist()
    [[0, 2], [1, 3], [4, 5]]
    """
    if len(points) > FEW:
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist

        return np.asarray(linkage(pdist(points), method="complete")[:, :2].astype(int))
    return merged(points)


def merged(points: Array) -> np.ndarray:
    """The same, in a few array operations for each merge; infinity tells what is gone, and is no distance."""
    apart, merges, chain = _distances(points), [], list[int]()
    for _ in range(len(points) - 1):
        if not chain:
            chain = [int(np.isfinite(apart).any(1).argmax())]
        while True:
            x = chain[-1]
            y = int(apart[x].argmin())
            if len(chain) > 1 and not apart[x, y] < apart[x, chain[-2]]:
                break
            chain.append(y)
        y, x = sorted((chain.pop(), chain.pop()))
        merges.append((float(apart[x, y]), y, x))
        apart[x] = apart[:, x] = np.where(np.isfinite(apart[x]), np.maximum(apart[x], apart[y]), np.inf)
        apart[y] = apart[:, y] = np.inf
    return _numbered(sorted(merges, key=lambda merge: merge[0]))


def _distances(points: Array) -> Array:
    """The distance of each two points, FAR where that is not a number of float64; infinity of a point to itself."""
    squares = np.zeros((len(points), len(points)))
    with np.errstate(over="ignore", invalid="ignore"):
        for coordinate in points.T:
            squares += (coordinate[:, None] - coordinate) ** 2
    apart: Array = np.fmin(np.sqrt(squares), FAR)
    np.fill_diagonal(apart, np.inf)
    return apart


def _numbered(merges: list[tuple[float, int, int]]) -> np.ndarray:
    """The merges of clusters that are named by their last point, in numbers of clusters; parts come before wholes."""
    cluster = list(range(len(merges) + 1))
    found = np.empty((len(merges), 2), dtype=int)
    for i, (_, dropped, last) in enumerate(merges):
        found[i] = sorted((cluster[dropped], cluster[last]))
        cluster[last] = len(merges) + 1 + i
    return found
