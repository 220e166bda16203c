"""Whether several heads together separate n1 > n0 from n1 <= n0 on all of N^3.

(w . r + b) times all normalisers is a polynomial in the counts. On each side write the larger count as the smaller one
plus a difference: if no coefficient there has the wrong sign, and the constant one of n1 > n0 is positive, the sign is
right everywhere. The coefficients are linear in (w, b), so that is a linear programme again. It is sufficient; where
it has no solution, and no triples rule every separator out, the answer stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import comb

import numpy as np
from flint import arb, ctx

from verify.arithmetic.exact_reals import Combination, Undecided
from verify.arithmetic.rings import R
from verify.tasks.count01.heads.separability import LINES, Separability, confirmed
from verify.tasks.count01.layer_norm.cone import Constraint, Constraints, rays_of, whitened
from verify.tasks.count01.layer_norm.laws import ListedTriples
from verify.tasks.count01.layer_norm.numbers import HeadNumbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.task import EQUALS

JOINT_TIGHT = "joint tight"
MOST_RAYS = 20_000  # sets of coefficients that are looked at
SPREAD = (0, 1, 2, 3, 5, 9, 20, 50, 200, 1000, 10_000)

Powers = tuple[int, int, int]
Polynomial = dict[Powers, R]
Weighted = Callable[[HeadNumbers, int, Surd], R]  # of a token: weight times value


def spread_triples() -> ListedTriples:
    """Triples of all sizes, near the boundary and far from it: what rules a separator out here does so on N^3."""
    found = [
        (low, low + more, n2) if is_more else (low + more, low, n2)
        for low in SPREAD
        for more in SPREAD
        for n2 in SPREAD
        for is_more in (True, False)
        if more or not is_more
    ]
    return ListedTriples(np.array(found, dtype=np.int64))


def positive_polynomial(heads: Sequence[HeadNumbers], named: Sequence[int]) -> Separability:
    """Yes, with coefficients that are zero on each ray of a separator; open where the programme has no solution."""
    try:
        rows = coefficient_rows(heads)
        reason = "no combination of the heads has coefficients of one sign on each side, which would suffice"
        if comb(len(rows.constraints), rows.size - 1) > MOST_RAYS:
            return Separability(None, None, reason="too many heads or dimensions to decide on all of N^3")
        white, _ = whitened(rows)
        chosen = confirmed(rows, [ray[1] for ray in rays_of(white)])
    except (Undecided, ZeroDivisionError) as error:
        return Separability(None, None, reason=str(error))
    if chosen is None:
        return Separability(None, None, reason=reason)
    rays = [{"rows": list(tight), "sign": sign} for tight, sign in chosen]
    return Separability(True, {"kind": JOINT_TIGHT, "heads": list(named), "rays": rays})


def coefficient_rows(heads: Sequence[HeadNumbers]) -> Constraints:
    """The coefficients of both sides, in the lexicographic order of their powers; n1 > n0 comes first.

    In the coordinates (w of the first head, ..., b), each one is asked to be at least 0 on n1 > n0, at most 0 on the
    other side, and the constant one of n1 > n0 to be positive.
    """
    order = powers(len(heads))
    is_rational = all(head.is_rational for head in heads)

    def lines(at: Weighted[R]) -> list[list[R]]:
        return [[column[p] for column in side] for side in _sides(heads, at) for p in order]

    def balls(bits: int) -> list[list[arb]]:
        with ctx.workprec(bits + 64):
            return lines(_balls_at(bits + 64))

    size = 2 * len(order)
    constraints = [
        Constraint(tuple(int(i == k) for i in range(size)), k < len(order), is_strict=k == 0)  # type: ignore[arg-type]
        for k in range(size)
    ]
    return Constraints(constraints, balls, (lambda: lines(_exact)) if is_rational else None)


def powers(degree: int) -> list[Powers]:
    """Powers of (smaller count, difference, n2) up to a degree.

    >>> powers(1)
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    """
    some = range(degree + 1)
    return [(i, j, k) for i in some for j in some for k in some if i + j + k <= degree]


def _balls_at(bits: int) -> Weighted[arb]:
    """Balls of weight times value."""

    def at(head: HeadNumbers, t: int, value: Surd) -> arb:
        return head.weight(t, EQUALS, bits) * value.ball(bits)

    return at


def _exact(head: HeadNumbers, t: int, value: Surd) -> Combination:
    """Exact combinations of exponentials."""
    return head.exact_weight(t, EQUALS) * value.value


def _sides(heads: Sequence[HeadNumbers], at: Weighted[R]) -> list[list[Polynomial[R]]]:
    """For each side, the polynomial of every coordinate of (w, b)."""
    out = []
    for is_more in (True, False):
        D = [_linear(head, None, at, is_more=is_more) for head in heads]
        columns = []
        for h, head in enumerate(heads):
            rest = [x for g, x in enumerate(D) if g != h]
            for k in range(head.d_h):
                columns.append(reduce(times, rest, _linear(head, k, at, is_more=is_more)))
        columns.append(reduce(times, D[1:], D[0]))
        out.append(columns)
    return out


def _linear(head: HeadNumbers, k: int | None, at: Weighted[R], *, is_more: bool) -> Polynomial[R]:
    """The normaliser, or coordinate k's numerator, in (smaller count, difference, n2)."""
    constant, n0, n1, n2 = (
        _added([at(head, t, Surd.rational(1) if k is None else head.values[t][k]) for t in line]) for line in LINES
    )
    if is_more:  # n0 = s, n1 = s + 1 + difference
        return {(0, 0, 0): constant + n1, (1, 0, 0): n0 + n1, (0, 1, 0): n1, (0, 0, 1): n2}
    return {(0, 0, 0): constant, (1, 0, 0): n0 + n1, (0, 1, 0): n0, (0, 0, 1): n2}


def _added(terms: list[R]) -> R:
    return sum(terms[1:], terms[0])


def times(a: Polynomial[R], b: Polynomial[R]) -> Polynomial[R]:
    """The product of two polynomials over any ring."""
    out: dict[Powers, list[R]] = {}
    for p, x in a.items():
        for q, y in b.items():
            out.setdefault((p[0] + q[0], p[1] + q[1], p[2] + q[2]), []).append(x * y)
    return {p: _added(terms) for p, terms in out.items()}
