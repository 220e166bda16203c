"""Constraints on linear forms in (1, n0, n1, n2), and determinants whose signs decide whether a form meets them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.exact_reals import Combination, Undecided
from verify.arithmetic.rings import R
from verify.arithmetic.slack import Array

if TYPE_CHECKING:
    from flint import arb, arb_mat

Row = tuple[int, int, int, int]
BITS = (128, 512, 2048)


@dataclass(frozen=True)
class Constraint:
    """A form is to be positive at `row` where it speaks of n1 > n0, and at most zero where it does not.

    A ray (first entry 0) of the side n1 > n0 asks only that it is not negative.
    """

    row: Row
    is_more_ones: bool
    is_strict: bool = True

    @property
    def sign(self) -> int:
        return 1 if self.is_more_ones else -1

    @property
    def asks_strictly(self) -> bool:
        return self.is_more_ones and self.is_strict


def determinant(rows: Sequence[Sequence[R]]) -> R:
    """The determinant of a square matrix over any ring, by the first column's cofactors."""
    if len(rows) == 1:
        return rows[0][0]
    minors = [determinant([other[1:] for j, other in enumerate(rows) if j != i]) for i in range(len(rows))]
    terms = [
        row[0] * minor * (1 if i % 2 == 0 else -1) for i, (row, minor) in enumerate(zip(rows, minors, strict=True))
    ]
    return sum(terms[1:], terms[0])


def crossed(rows: Sequence[Sequence[R]], size: int) -> Sequence[R | int]:
    """The vector x of `size` entries with x . z = det(z, rows...), zero at every row."""
    if not rows:
        return [1] * size  # one dimension: the form itself
    return [
        determinant([[x for i, x in enumerate(row) if i != k] for row in rows]) * (1 if k % 2 == 0 else -1)
        for k in range(size)
    ]


class RingPolynomial(Protocol):
    """A polynomial in the entries of rows, over any ring."""

    def __call__(self, rows: Sequence[Sequence[R]], /) -> R: ...


class Constraints:
    """The constraints' rows in r coordinates of (w, b), each sign already turned so that all ask for "positive".

    `at` gives them as balls of so many bits, `exact` as sums of exponentials, None where the numbers are no such.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        at: Callable[[int], list[list[arb]]],
        exact: Callable[[], list[list[Combination]]] | None,
    ) -> None:
        self.constraints, self._at, self._exact = tuple(constraints), at, exact
        self._balls: dict[int, list[list[arb]]] = {}
        self._sums: list[list[Combination]] | None = None

    def balls(self, bits: int) -> list[list[arb]]:
        if bits not in self._balls:
            self._balls[bits] = self._turned(self._at(bits))
        return self._balls[bits]

    def sums(self) -> list[list[Combination]]:
        if self._exact is None:
            raise Undecided("a sign that 2048 bits do not show, of numbers that are no sums of exponentials")
        if self._sums is None:
            self._sums = self._turned(self._exact())
        return self._sums

    def _turned(self, form: list[list[R]]) -> list[list[R]]:
        """Row . form for every constraint: form is the matrix (4, r) of the coefficients of 1, n0, n1, n2."""
        out = []
        for c in self.constraints:
            terms = [[x * (c.sign * k) for x in line] for k, line in zip(c.row, form, strict=True) if k]
            out.append([sum(column[1:], column[0]) for column in zip(*terms, strict=True)])
        return out

    def sign(self, polynomial: RingPolynomial) -> int:
        """The sign of a polynomial in the rows' entries: balls first, then exactly.

        Raises: Undecided where neither shows it.
        """
        from flint import ctx

        for bits in BITS:
            with ctx.workprec(bits):
                ball = polynomial(self.balls(bits))
            if ball > 0:
                return 1
            if ball < 0:
                return -1
        return int(polynomial(self.sums()).sign())

    @property
    def size(self) -> int:
        return len(self.balls(BITS[0])[0])


def whitened(rows: Constraints) -> tuple[Array, arb_mat]:
    """The rows in coordinates in which r of them are the unit vectors, as floats, and those coordinates' matrix.

    Only a guide: what it suggests is shown by `Constraints.sign`.
    Raises: Undecided where no r of them are shown to be independent.
    """
    from flint import arb_mat, ctx

    with ctx.workprec(BITS[1]):
        Z = rows.balls(BITS[1])
        scaled = [[x / max(abs(y).mid() for y in row) if any(y != 0 for y in row) else x for x in row] for row in Z]
        basis = _spread(scaled, rows.size)
        try:
            T = arb_mat([scaled[i] for i in basis]).inv()
        except ZeroDivisionError:
            raise Undecided("the constraints may depend on one another, in all the bits that are tried") from None
        white = arb_mat(scaled) * T
        found = np.array([[float(white[i, k].mid()) for k in range(rows.size)] for i in range(len(Z))])
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-300), T


def _spread(rows: list[list[arb]], r: int) -> list[int]:
    """The indices of r rows that span a large volume, by elimination with the largest pivot."""
    left, chosen = [list(row) for row in rows], []
    for _ in range(r):
        _, i, k = max(
            (abs(float(x.mid())) if i not in chosen else -1.0, i, k)
            for i, row in enumerate(left)
            for k, x in enumerate(row)
        )
        chosen.append(i)
        pivot = left[i]
        left = [
            row
            if j in chosen
            else [
                x - p * (row[k] / pivot[k]) if l != k else x * 0
                for l, (x, p) in enumerate(zip(row, pivot, strict=True))
            ]
            for j, row in enumerate(left)
        ]
    return chosen


def chosen_rows(white: Array, k: int) -> NDArray[np.int64]:
    """All sets of k rows, one in each row: of no rows there is one set, of more than there are none.

    >>> [chosen_rows(np.ones((2, 1)), k).shape for k in (0, 1, 3)]
    [(1, 0), (2, 1), (0, 3)]
    """
    found = list(combinations(range(len(white)), k))
    return np.array(found, dtype=np.int64).reshape(len(found), k)


def rays_of(white: Array) -> list[tuple[float, tuple[int, ...], Array]]:
    """The likely extreme rays of {x: Z x >= 0}: (least product, the rows that are zero on it, the ray)."""
    r = white.shape[1]
    sets = chosen_rows(white, r - 1)
    with np.errstate(divide="ignore"):  # numpy warns of singular matrices, whose determinant is rightly 0
        minors = [(-1) ** k * np.linalg.det(np.delete(white[sets], k, axis=2)) for k in range(r)]
    found = np.stack(minors, axis=1)
    lengths = np.linalg.norm(found, axis=1)
    is_ray = lengths > 1e-12
    rays, sets = found[is_ray] / lengths[is_ray, None], sets[is_ray]
    products = rays @ white.T
    out = []
    for sign, least in ((1, products.min(axis=1)), (-1, -products.max(axis=1))):
        for i in np.flatnonzero(least > -1e-7):
            out.append((float(least[i]), tuple(int(k) for k in sets[i]), sign * rays[i]))
    return sorted(out, key=lambda ray: -ray[0])


def dependencies(white: Array) -> list[tuple[int, ...]]:
    """Sets of r + 1 rows with a likely nonnegative combination to zero, the most balanced first."""
    r = white.shape[1]
    sets = chosen_rows(white, r + 1)
    with np.errstate(divide="ignore"):
        minors = [(-1) ** k * np.linalg.det(white[np.delete(sets, k, axis=1)]) for k in range(r + 1)]
    found = np.stack(minors, axis=1)
    largest = np.abs(found).max(axis=1)
    turned = found * np.sign(found[np.arange(len(found)), np.abs(found).argmax(axis=1)])[:, None]
    worst = turned.min(axis=1) / np.maximum(largest, 1e-300)
    order = np.argsort(-worst)
    return [tuple(int(i) for i in sets[k]) for k in order if largest[k] > 0 and worst[k] > -1e-6]
