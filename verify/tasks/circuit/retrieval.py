"""Which keys survive the rounded exponential of which queries, by hashing addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from constructions.constant_bits.arithmetic import FixedPoint, Ints
from verify.arithmetic.balls import Ball

Indices = NDArray[np.int64]
MAX_LANE_PAIRS = 4096  # different (query, key) values of one lane that are tried one by one
MAX_OPERATIONS = 10**10  # additions of the table of pairs: about a minute
MAX_PAIRS = 20_000_000  # surviving pairs that are listed: about 500 MiB


class TooManyPairs(Exception):
    """The pairs can be neither hashed nor listed within the limits."""


V = TypeVar("V", Ints, Ball)


@dataclass(frozen=True)
class PlacedVectors(Generic[V]):
    """Query or key vectors, each of one position; a position has several where they depend on tokens.

    Shapes: vectors (R, 2k), position (R,).
    """

    vectors: V
    position: Indices


def surviving_pairs(
    bits: FixedPoint, queries: PlacedVectors[Ints], keys: PlacedVectors[Ints]
) -> tuple[Indices, Indices]:
    """All (query row, key row) with a key at or before the query's position and a nonzero exponential.

    The list is complete and exact: near-linear by `addresses` where the lanes allow it, else by the whole
    table of pairs in blocks.
    Raises: TooManyPairs beyond the limits.
    """
    if not len(queries.position) or not len(keys.position):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes = addresses(bits, queries.vectors, keys.vectors)
    if codes is None:
        return _table(bits, queries, keys)
    return pairs_of_equal_codes(queries.position, codes[0], keys.position, codes[1])


def addresses(bits: FixedPoint, q: Ints, k: Ints) -> tuple[Indices, Indices] | None:
    """A code per query and per key such that exactly the pairs of equal codes survive; None if unknown.

    The score is a fold over lanes (pairs of coordinates, as the construction has them) of the map
    h -> [[h + q_1 k_1] + q_2 k_2], which is monotone in h and takes few forms, one per pair of different
    values in the lane. From the one score `alive` that all agreeing pairs have so far, the lane's best
    forms lead to the next; all other pairs stay at or below `dead`, the largest score that a pair can have
    once it has disagreed. If at the end exp(alive) is not 0 and exp(dead) is, the pairs that agree in every
    lane are exactly the survivors. For the theorem's weights alive is 0 and dead is -B_s.
    """
    alive, dead = 0, None
    code_q, code_k = np.zeros(len(q), np.int64), np.zeros(len(k), np.int64)
    radix_product = 1
    for j in range(0, q.shape[1], 2):
        q_values, q_which = _distinct(q[:, j : j + 2])
        k_values, k_which = _distinct(k[:, j : j + 2])
        if len(q_values) * len(k_values) > MAX_LANE_PAIRS:
            return None
        reached = _lane(bits, alive, q_values, k_values)
        classes = classes_of(reached == reached.max())
        if classes is None:
            return None
        radix = int(max(classes[0].max(), classes[1].max())) + 1
        radix_product *= radix
        if radix_product >= 2**62:
            return None
        code_q, code_k = code_q * radix + classes[0][q_which], code_k * radix + classes[1][k_which]
        below = [int(reached[reached < reached.max()].max())] if (reached < reached.max()).any() else []
        if dead is not None:
            below.append(int(_lane(bits, dead, q_values, k_values).max()))
        alive, dead = int(reached.max()), max(below, default=None)
    if alive <= bits.vanishing or (dead is not None and dead > bits.vanishing):
        return None
    return code_q, code_k


def _distinct(pairs: Ints) -> tuple[Ints, Indices]:
    """The different rows of an (R, 2) array, and which of them each row is."""
    packed = (pairs[:, 0].astype(np.int64) << 32) + pairs[:, 1]
    values = np.unique(packed)  # few, so that looking them up is faster than the sort that gives places as well
    first = (values + (1 << 31)) >> 32
    different = np.stack([first, values - (first << 32)], axis=1).astype(pairs.dtype)
    return different, np.searchsorted(values, packed)


def _lane(bits: FixedPoint, h: int, q: Ints, k: Ints) -> Ints:
    """[[h + q_1 k_1] + q_2 k_2] for every pair of different values: (len(q), len(k))."""
    start = np.full((len(q), len(k)), h, bits.dtype)
    first = bits.add(start, bits.multiply(q[:, None, 0], k[None, :, 0]))
    return bits.add(first, bits.multiply(q[:, None, 1], k[None, :, 1]))


def classes_of(agrees: NDArray[np.bool_]) -> tuple[Indices, Indices] | None:
    """Classes of query and key values with agrees = (same class), if the relation has that form.

    Query values that agree with nothing get class 0, key values that agree with nothing class 1.
    """
    class_of_k = np.full(agrees.shape[1], 1, np.int64)
    class_of_q = np.zeros(agrees.shape[0], np.int64)
    patterns: dict[bytes, int] = {}
    for i, row in enumerate(agrees):
        if not row.any():
            continue
        if row.tobytes() not in patterns:
            if (class_of_k[row] != 1).any():
                return None  # overlaps another class without being it
            patterns[row.tobytes()] = 2 + len(patterns)
            class_of_k[row] = patterns[row.tobytes()]
        class_of_q[i] = patterns[row.tobytes()]
    return class_of_q, class_of_k


def pairs_of_equal_codes(
    q_position: Indices, code_q: Indices, k_position: Indices, code_k: Indices
) -> tuple[Indices, Indices]:
    """All pairs of equal codes with the key at or before the query, by one sort of (code, position)."""
    size = int(max(q_position.max(initial=0), k_position.max(initial=0))) + 1
    ranks = np.unique(np.concatenate([code_q, code_k]), return_inverse=True)[1]
    rank_q, rank_k = ranks[: len(code_q)], ranks[len(code_q) :]
    place = rank_k * size + k_position
    order = np.argsort(place, kind="stable")
    place = place[order]
    start = np.searchsorted(place, rank_q * size, side="left")
    stop = np.searchsorted(place, rank_q * size + q_position, side="right")
    count = stop - start
    if int(count.sum()) > MAX_PAIRS:
        raise TooManyPairs
    query = np.repeat(np.arange(len(code_q)), count)
    within = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    return query, order[np.repeat(start, count) + within]


def _table(bits: FixedPoint, queries: PlacedVectors[Ints], keys: PlacedVectors[Ints]) -> tuple[Indices, Indices]:
    """Every pair's score, a block of queries at a time: quadratic, for weights that have no addresses."""
    if len(queries.position) * len(keys.position) * queries.vectors.shape[1] > MAX_OPERATIONS:
        raise TooManyPairs
    block = max(1, 2**22 // max(1, len(keys.position)))
    found: list[tuple[Indices, Indices]] = []
    listed = 0
    for start in range(0, len(queries.position), block):
        q = queries.vectors[start : start + block]
        scores = np.zeros((len(q), len(keys.position)), bits.dtype)
        for j in range(q.shape[1]):
            scores += bits.multiply(q[:, j, None], keys.vectors[None, :, j])
            bits.saturate(scores)
        is_earlier = keys.position[None, :] <= queries.position[start : start + block, None]
        query, key = np.nonzero((scores > bits.vanishing) & is_earlier)
        listed += len(query)
        if listed > MAX_PAIRS:
            raise TooManyPairs
        found.append((query + start, key))
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([query for query, _ in found] or [none]),
        np.concatenate([key for _, key in found] or [none]),
    )
