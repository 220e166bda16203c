"""What each head is worth: exact Shapley values, and E's halving of heads by any criterion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb

from verify.tasks.count01.heads.separability import Separability
from verify.tasks.count01.heads.subsets import mask, members


def shapley(values: Sequence[int], scale: int = 1) -> list[Fraction]:
    """The Shapley value of each of a players, where subset S (bit i: player i) is worth values[S] / scale.

    Claim: E, Def. 5.3, which asks v(empty) = 0; only differences enter, so any v(empty) will do: the values
        sum to v(all) - v(empty).
    Raises: ValueError unless there are 2^a values.

    >>> shapley([0, 0, 0, 1])  # both are needed
    [Fraction(1, 2), Fraction(1, 2)]
    """
    a = len(values).bit_length() - 1
    if len(values) != 1 << a:
        raise ValueError(f"{len(values)} values: must be 2^a, one per subset")
    out = []
    for i in range(a):
        gained = [0] * a
        for S in range(1 << a):
            if not S >> i & 1:
                gained[S.bit_count()] += values[S | 1 << i] - values[S]
        out.append(sum((Fraction(gain, comb(a - 1, k)) for k, gain in enumerate(gained)), Fraction(0)) / a / scale)
    return out


def restricted(values: Sequence[int], players: Sequence[int]) -> list[int]:
    """The game in which only these players are there, in their order."""
    return [values[mask(tuple(players[i] for i in members(S)))] for S in range(1 << len(players))]


Worth = Callable[[tuple[int, ...]], Sequence[Fraction]]


def halved(a: int, worth: Worth) -> list[tuple[int, ...]]:
    """The heads left after each halving: half of them with the least worth among those left drop out (E, Sec. 5.5).

    `worth` gives the heads' worth among themselves; of equals the first stays; an odd number keeps the larger half.

    >>> halved(4, lambda heads: [Fraction(h) for h in heads])
    [(0, 1, 2, 3), (2, 3), (3,)]
    """
    left = tuple(range(a))
    out = [left]
    while len(left) > 1:
        value = dict(zip(left, worth(left), strict=True))
        kept = sorted(left, key=lambda h: (-value[h], h))[: -(-len(left) // 2)]
        left = tuple(sorted(kept))
        out.append(left)
    return out


def separating_subsets(a: int, decide: Callable[[tuple[int, ...]], Separability]) -> tuple[list[int | None], int]:
    """Which subsets separate (1, 0, None where open), and how many were decided one by one.

    A subset with a separating part separates, and a part of one that does not separate does not.
    """
    found: list[int | None] = [None] * (1 << a)
    is_known, asked = bytearray(1 << a), 0
    found[0], is_known[0] = 0, 1
    by_size = sorted(range(1, 1 << a), key=lambda S: (S.bit_count(), S))
    for S in by_size:
        parts = [S & ~(1 << i) for i in members(S)]
        if any(found[part] == 1 for part in parts):
            found[S], is_known[S] = 1, 1
        if is_known[S]:
            continue
        asked += 1
        answer = decide(members(S)).is_separable
        found[S], is_known[S] = None if answer is None else int(answer), 1
        if answer is False:
            continue
        if answer is None and any(found[part] is None for part in parts):
            continue
    return found, asked
