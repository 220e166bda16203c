"""Regions of multisets, and the ways to split one: what branch and bound divides the inputs into.

A region fixes, for a query token t with own count k, how many slots of each group hold t and how many hold
a token of each cluster of other tokens. Clusters come from a binary tree, so a region is split by sharing
out one cluster's slots between its two halves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from verify.tasks.histogram.clusters import complete_linkage
from verify.tasks.histogram.record import FIRST, Record
from verify.tasks.histogram.stored import Array, StoredModel


@dataclass
class Regions:
    """A batch of regions: own count k, slots per group that hold t, slots per group and cluster.

    Shapes: k (B,), own (B, G), counts (B, G, Q). `free` (B, G) marks groups that are not shared out yet
    between t and the others; `wrong` (B,) marks regions known to be wrong throughout; `rivals` (B, C) the classes
    that are not known to lose by far; `part` (B,) is each region's number in the record of splits.
    """

    k: np.ndarray
    own: np.ndarray
    counts: np.ndarray
    free: np.ndarray
    wrong: np.ndarray
    rivals: np.ndarray
    part: np.ndarray

    def __len__(self) -> int:
        return len(self.k)

    def __getitem__(self, index: np.ndarray | slice) -> Regions:
        return Regions(*(getattr(self, name)[index] for name in COLUMNS))

    @classmethod
    def join(cls, parts: list[Regions]) -> Regions:
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))

    @property
    def nbytes(self) -> int:
        return int(self.counts.nbytes + self.own.nbytes + self.rivals.nbytes)

    @property
    def level(self) -> np.ndarray:
        """A lower bound on the number of distinct tokens in any sequence of the region."""
        result: np.ndarray = 1 + (self.counts > 0).sum(-1).max(-1, initial=0)
        return result


COLUMNS = tuple(field.name for field in fields(Regions))


class Tree:
    """A binary tree of token clusters: leaves 0..S-1, then one node per merge, the root last."""

    def __init__(self, points: Array) -> None:
        S = len(points)
        self.S, self.Q = S, 2 * S - 1
        self.children = np.full((self.Q, 2), -1)
        if S > 1:
            self.children[S:] = complete_linkage(points)
        self.members: list[list[int]] = [[s] for s in range(S)]
        for left, right in self.children[S:]:
            self.members.append(self.members[left] + self.members[right])
        self.size = np.array([len(m) for m in self.members])

    @property
    def clusters(self) -> list[list[int]]:
        """The two nodes that each merge joins."""
        found: list[list[int]] = self.children[self.S :].tolist()
        return found

    def least(self, leaves: Array) -> Array:
        """Minimum over each cluster along the last axis: (..., S) to (..., Q)."""
        out = np.empty((self.Q, *leaves.shape[:-1]))
        out[: self.S] = np.moveaxis(leaves, -1, 0)
        for node in range(self.S, self.Q):
            left, right = self.children[node]
            np.minimum(out[left], out[right], out=out[node])
        return np.moveaxis(out, 0, -1)


def roots(stored: StoredModel, counts: list[int], tree: Tree, G: int) -> Regions:
    """One region for each own count, nothing shared out yet."""
    Q, L = tree.Q, stored.L
    k = np.array(counts, dtype=np.int32)
    B, slots = len(k), np.int16 if L < 1 << 15 else np.int32
    roots = Regions(
        k,
        np.zeros((B, G), dtype=slots),
        np.zeros((B, G, Q), dtype=slots),
        np.full((B, G), G > 1),
        np.zeros(B, dtype=bool),
        np.arange(stored.classes) != (k - stored.first_count)[:, None],
        np.full(B, -1, dtype=np.int64),
    )
    if G == 1:
        roots.own[:, 0] = k - 1
        roots.counts[:, 0, -1] = L - k
    return roots


def halves(regions: Regions, tree: Tree, g: np.ndarray, node: np.ndarray, record: Record) -> Regions:
    """Every way to share out cluster `node`'s slots in group g between its two halves."""
    i = np.arange(len(regions))
    n = regions.counts[i, g, node].astype(int)
    parent = np.repeat(i, n + 1)
    first = np.arange(len(parent)) - np.repeat(np.cumsum(n + 1) - (n + 1), n + 1)
    parts = regions[parent]
    groups = regions.own.shape[1]
    parts.part = record.split(regions.part, FIRST + groups + g * tree.Q + node, n + 1)
    left, right = tree.children[node[parent]].T
    j, group = np.arange(len(parent)), g[parent]
    parts.counts[j, group, node[parent]] = 0
    parts.counts[j, group, left] += first.astype(parts.counts.dtype)
    parts.counts[j, group, right] += (n[parent] - first).astype(parts.counts.dtype)
    return parts


def share_out_group(regions: Regions, tree: Tree, sizes: np.ndarray, a: Array, record: Record) -> Regions:
    """Every way to give the heaviest free group its number of slots that hold t."""
    impact = np.where(regions.free, (np.abs(a) * sizes)[None] + 1e-300, -1.0)
    g = impact.argmax(1)
    missing = regions.k - 1 - regions.own.sum(1)
    i = np.arange(len(regions))
    elsewhere = (regions.free * sizes).sum(1) - sizes[g]
    fewest = np.maximum(0, missing - elsewhere)
    most = np.minimum(sizes[g], missing)
    n = most - fewest + 1
    parent = np.repeat(i, n)
    own = np.arange(len(parent)) - np.repeat(np.cumsum(n) - n, n) + fewest[parent]
    parts = regions[parent]
    parts.part = record.split(regions.part, FIRST + g, n)
    j, group = np.arange(len(parent)), g[parent]
    parts.own[j, group] = own
    parts.counts[j, group, tree.Q - 1] = sizes[group] - own
    parts.free[j, group] = False
    return parts
