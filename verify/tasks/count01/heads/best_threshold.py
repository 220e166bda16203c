"""The largest accuracy that any threshold on a one-dimensional head reaches, at given attention ratios, exactly.

The documents fit a classifier at each ratio and print its accuracy (D, Fig. 8 and 9; E, Fig. 8). Here the classifier is
the best there is: outputs are fractions of integers, ordered by their digits, and every cut between them is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.tasks.count01.layer_norm.laws import Law

Integers = NDArray[np.int64]
DIGIT, DIGITS = 20, 6  # outputs are floors to 120 bits
LARGEST = 1 << 42  # of a normaliser: two different outputs then differ by more than 2^-84


def best_share(w01: Fraction, w02: Fraction | None, values: Sequence[Fraction], law: Law) -> Fraction:
    """The share of a box that the best threshold on the head's output answers rightly; w02 None is infinite.

    Claim: E, Sec. 5.4 expects A_s(H) <= A_s(H') for H in H'; that holds of this share, not of an SVC's.
    BOS and "=" are zeroed; a triple without attention, such as (0, 0, 0), counts as answered rightly.
    Raises: BadInput for ratios or values whose integers are too large, or a law that is no box.

    >>> from verify.tasks.count01.layer_norm.laws import law_named
    >>> best_share(Fraction(1), None, [Fraction(-1), Fraction(1), Fraction(0)], law_named("box:0:5:9"))
    Fraction(1, 1)
    """
    if not law.is_uniform:
        raise BadInput(f"law={law.name}: must be a box, such as box:0:200:200")
    if w02 is None:
        law = replace(law, noise=0)  # 2s change nothing
    N, D = _outputs(w01, w02, values, law)
    seen = D > 0
    more = law.has_more_ones[seen]
    above, below = _right_by_cut(_keys(N[seen], D[seen]), more)
    return Fraction(int(max(above.max(), below.max())) + int((~seen).sum()), law.size)


def _outputs(w01: Fraction, w02: Fraction | None, values: Sequence[Fraction], law: Law) -> tuple[Integers, Integers]:
    """Integers N, D of every triple with output N / D times a constant."""
    weights = [w01, Fraction(1), Fraction(0) if w02 is None else w01 / w02]
    w = _whole(weights)
    v = _whole(list(values))
    counts = law.triples.astype(np.int64)
    if (law.high + law.noise) * sum(w) >= LARGEST or LARGEST * max(map(abs, v)) >= 1 << 62:
        raise BadInput(f"ratios={w01},{w02}, values={list(map(str, values))}: take numbers of fewer digits")
    return counts @ np.array([a * b for a, b in zip(w, v, strict=True)], dtype=np.int64), counts @ np.array(w)


def _whole(numbers: Sequence[Fraction]) -> list[int]:
    """The numbers times their least common denominator."""
    scale = lcm(*(x.denominator for x in numbers))
    return [int(x * scale) for x in numbers]


def _keys(N: Integers, D: Integers) -> Integers:
    """(DIGITS + 1, n): the digits of N / D, the first one whole; equal exactly where the fractions are."""
    digits, rest = [N // D], N % D
    for _ in range(DIGITS):
        rest = rest << DIGIT
        digits.append(rest // D)
        rest = rest % D
    return np.stack(digits)


def _right_by_cut(keys: Integers, more: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """How many are right with n1 > n0 said above each cut, and said below it."""
    order = np.lexsort(keys[::-1])
    sorted_keys, sorted_more = keys[:, order], more[order]
    is_cut = np.ones(len(order) + 1, dtype=bool)
    is_cut[1:-1] = (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)
    ones = np.concatenate([[0], np.cumsum(sorted_more)])
    rest = np.arange(len(order) + 1) - ones
    above = rest + (ones[-1] - ones)
    return above[is_cut], (len(order) - above)[is_cut]
