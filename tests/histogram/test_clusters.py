"""Complete linkage against scipy's, ties included; planted faults."""

from itertools import product

import numpy as np
import pytest
from planted import planted
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from verify.tasks.histogram import clusters


def points(seed):
    """Of five kinds: in general position, on a lattice, all the same, on axes, and in pairs."""
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(2, 30)), int(rng.integers(1, 12))
    return (
        rng.normal(size=(n, r)), rng.integers(0, 3, (n, r)).astype(float), np.zeros((n, r)),
        np.eye(n, n + 1) * rng.choice([1, 0.5, -0.5], (n, 1)), np.repeat(rng.normal(size=(n, r)), 2, axis=0),
    )[seed % 5]  # fmt: skip


def differ():
    found = ((clusters.merged(x), linkage(pdist(x), method="complete")[:, :2]) for x in map(points, range(150)))
    return sum(not np.array_equal(tree, due) for tree, due in found)


def test_the_tree_is_scipys():
    assert differ() == 0
    many = np.random.default_rng(0).normal(size=(clusters.FEW + 1, 3))
    assert np.array_equal(clusters.complete_linkage(many), clusters.merged(many))


def loses_points():
    """Whether a tree is none, or misses a point: distances that overflow, or are no numbers, are distances too."""
    for seed, size in product(range(20), [1.0, 1e200, np.inf, np.nan]):
        drawn = points(seed) + 1.0
        drawn[np.random.default_rng(seed).random(drawn.shape) < 0.5] *= size
        children = clusters.merged(drawn)
        if sorted(children.ravel().tolist()) != list(range(2 * len(drawn) - 2)):
            return True
    return False


def test_every_point_is_in_the_tree():
    assert not loses_points()
    with planted(clusters, "_distances", "np.fmin(np.sqrt(squares), FAR)", "np.sqrt(squares)"):
        assert loses_points()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("merged", "np.maximum(apart[x], apart[y])", "np.minimum(apart[x], apart[y])"),
        ("merged", "sorted(merges, key=lambda merge: merge[0])", "merges"),
        ("_distances", "** 2", "** 4"),
        ("_numbered", "sorted((cluster[dropped], cluster[last]))", "(cluster[dropped], cluster[last])"),
        ("_numbered", "cluster[last] = len(merges) + 1 + i", "cluster[last] = cluster[dropped]"),
    ],
)
def test_a_fault_gives_another_tree(name, right, wrong):
    with planted(clusters, name, right, wrong):
        assert differ() > 0
