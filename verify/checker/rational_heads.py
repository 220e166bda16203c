"""A head of a Count01 model in fractions, and what a form that separates its outputs must meet (docs/checker.md)."""

import re
from collections.abc import Sequence

from flint import fmpq, fmpq_mat

from verify.checker.boxes import Row
from verify.checker.exponentials import Sum, summed
from verify.checker.reading import MOST_DIGITS, require

LINES = ((0, 4), (1,), (2,), (3,))  # the tokens whose weights are the coefficients of 1, n0, n1, n2
NUMBER = "0|[1-9][0-9]*"  # neither sign nor leading zeros
FRACTION = f"(-?)({NUMBER})(?:/([1-9][0-9]*))?"
Constraint = tuple[Row, bool, bool]  # row of (1, n0, n1, n2), whether n1 > n0 there, whether strictly
Law = tuple[int, int, int] | None  # a box (lo, hi, M), or all of N^3


class RationalHead:
    """One head at "=": rational scores and value vectors of the tokens, each vector with a last entry 1."""

    def __init__(self, E: fmpq_mat, W_Q: fmpq_mat, W_K: fmpq_mat, W_V: fmpq_mat) -> None:
        scores, values = (E * W_Q) * (E * W_K).transpose(), E * W_V
        self.size = values.ncols() + 1
        self.scores = [scores[4, t] for t in range(8)]
        self.points = [[values[t, k] for k in range(self.size - 1)] + [fmpq(1)] for t in range(8)]

    def form(self, columns: Sequence[int]) -> list[list[Sum]]:
        """The coefficients of 1, n0, n1, n2 in D (w . r + b), as linear functions of the chosen entries of (w, b)."""
        return [[summed((self.scores[t], self.points[t][k]) for t in line) for k in columns] for line in LINES]

    def lines(self, x: Sequence[fmpq]) -> tuple[list[Sum], list[Sum]]:
        """The coefficients of D x . (r, 1) and of D."""
        scored = [sum((a * v for a, v in zip(x, self.points[t], strict=True)), fmpq(0)) for t in range(8)]
        return (
            [summed((self.scores[t], scored[t]) for t in line) for line in LINES],
            [summed((self.scores[t], fmpq(1)) for t in line) for line in LINES],
        )


def constraints(law: Law) -> Sequence[Constraint]:
    """What a form must meet: at the corners of both sides' hulls, or the vertices and rays where law is None."""
    if law is None:
        more = [((1, 0, 1, 0), True), ((0, 1, 1, 0), False), ((0, 0, 1, 0), False), ((0, 0, 0, 1), False)]
        rest = [(1, 0, 0, 0), (0, 1, 1, 0), (0, 1, 0, 0), (0, 0, 0, 1)]
        return [(row, True, strict) for row, strict in more] + [(row, False, False) for row in rest]
    lo, hi, M = law
    corners = [(lo, lo + 1), (lo, hi), (hi - 1, hi)] * (hi > lo) + [(lo, lo), (hi, lo), (hi, hi)]
    return [((1, a, b, n2), b > a, b > a) for a, b in corners for n2 in {0, M}]


def is_constraint(row: Sequence[int], is_more: object, law: Law) -> bool:
    """Whether every separator must meet this one: a triple of the law, or a listed vertex or ray of N^3."""
    ints = isinstance(row, list) and [type(x) for x in row] == [int] * 4 and type(is_more) is bool
    if not ints:
        return False
    if law is None and any(tuple(row) == r and is_more == m for r, m, _ in constraints(None)):
        return True
    one, a, b, n2 = row
    lo, hi, M = (0, max(a, b), n2) if law is None else law
    return bool(one == 1 and lo <= a <= hi and lo <= b <= hi and 0 <= n2 <= M and (b > a) == is_more)


def rational(text: object) -> fmpq:
    found = re.fullmatch(FRACTION, text) if isinstance(text, str) and len(text) <= 2 * MOST_DIGITS else None
    require(found is not None, "a number of a separator is no fraction")
    sign, numerator, denominator = found.groups()  # type: ignore[union-attr]
    return fmpq(int(sign + numerator), int(denominator or 1))
