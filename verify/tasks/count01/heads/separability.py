"""Whether one head separates n1 > n0 from n1 <= n0, on a law's triples or on all of N^3, with a certificate either way.

D(n) (w . r(n) + b) is a linear form in (1, n0, n1, n2), D > 0, whose coefficients are linear in (w, b). So a head
separates if and only if some (w, b) meets the constraints at the corners of the convex hull of each side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.arithmetic.exact_reals import Combination, Undecided, total
from verify.arithmetic.slack import Array
from verify.tasks.count01.layer_norm.cone import (
    BITS,
    Constraint,
    Constraints,
    RingPolynomial,
    Row,
    crossed,
    dependencies,
    determinant,
    rays_of,
    whitened,
)
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import HeadNumbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.task import BOS, EQUALS, ONE, TWO, ZERO

SEPARATOR, TIGHT, GORDAN = "separator", "tight", "gordan"
LINES = ((BOS, EQUALS), (ZERO,), (ONE,), (TWO,))  # the tokens of the coefficients of 1, n0, n1, n2
ROUNDED_TO = (12, 24, 53, 200, 800)  # bits of a separator's numbers, the fewest that do


@dataclass(frozen=True)
class Separability:
    """Yes with a separator, no with a combination of constraints that rules every separator out, or open (None).

    `w` and `b` are a separator in floats, for drawing; the certificate holds the exact one.
    """

    is_separable: bool | None
    certificate: dict[str, object] | None
    w: tuple[float, ...] | None = None
    b: float | None = None
    reason: str | None = None


def separability(head: HeadNumbers, law: Law) -> Separability:
    """Decides one head, exactly; None only where a sign of numbers with square roots does not show.

    >>> from constructions.count01 import documents
    >>> from verify.tasks.count01.layer_norm.laws import law_named
    >>> from verify.tasks.count01.layer_norm.numbers import model_numbers
    >>> separability(model_numbers(documents(5)).heads[0], law_named("box:0:9:9")).is_separable
    True
    """
    return decide(head, law.constraints())


def decide(head: HeadNumbers, constraints: Sequence[Constraint]) -> Separability:
    """Decides whether some (w, b) makes the head's form meet all constraints."""
    if not any(c.asks_strictly for c in constraints):
        return _separator([0] * head.d_h + [-1], 0)
    try:
        form = ReadoutForm(head, constraints)
        rows = form.rows(constraints)
        white, T = whitened(rows)
        rays = rays_of(white)
        return (
            _rounded(form, rows, rays, T)
            or _tight(form, rows, [ray[1] for ray in rays])
            or _gordan(form, rows, dependencies(white))
            or _tight(form, rows, list(combinations(range(len(constraints)), rows.size - 1)))
            or _gordan(form, rows, list(combinations(range(len(constraints)), rows.size + 1)))
            or Separability(None, None, reason="neither a separator nor a combination of constraints was confirmed")
        )
    except Undecided as error:
        return Separability(None, None, reason=str(error))


class ReadoutForm:
    """The coefficients of 1, n0, n1, n2 as linear functions of (w, b), in independent coordinates of (w, b).

    `columns` are those coordinates: the first d_h are w's, the last is b. The others add nothing to the forms.
    """

    def __init__(self, head: HeadNumbers, constraints: Sequence[Constraint]) -> None:
        self.head = head
        self.lines = [k for k in range(4) if any(c.row[k] for c in constraints)]
        self.columns = self._independent()

    def rows(self, constraints: Sequence[Constraint]) -> Constraints:
        return Constraints(constraints, self.balls, self.sums if self.head.is_rational else None)

    def balls(self, bits: int) -> list[list[arb]]:
        """The matrix (4, r), line by line."""
        with ctx.workprec(bits + 64):
            return [
                [
                    sum(
                        (self.head.weight(t, EQUALS, bits + 64) * self._point(t, k).ball(bits + 64) for t in line),
                        arb(0),
                    )
                    for k in self.columns
                ]
                for line in LINES
            ]

    def sums(self) -> list[list[Combination]]:
        """Returns the rows as sums of exponentials. Only for rational numbers."""
        weight = {t: self.head.exact_weight(t, EQUALS) for line in LINES for t in line}
        return [[total(weight[t] * self._point(t, k).value for t in line) for k in self.columns] for line in LINES]

    def _point(self, t: int, k: int) -> Surd:
        """Coordinate k of (v_t, 1)."""
        return self.head.values[t][k] if k < self.head.d_h else Surd.rational(1)

    def _independent(self) -> tuple[int, ...]:
        size = self.head.d_h + 1
        if not self.head.is_rational:
            return tuple(
                range(size)[-min(size, len(self.lines)) :]
            )  # if these depend, their rows do, and it stays open
        digits = [t for k in self.lines if k for t in LINES[k]]
        P = fmpq_mat(len(digits), size, [self._point(t, k).value for t in digits for k in range(size)])
        chosen = pivots(P)
        for k in range(size) if 0 in self.lines else ():
            if k not in chosen and not self._depends(P, chosen, k):
                return (*chosen, k)
        return chosen

    def _depends(self, P: fmpq_mat, chosen: tuple[int, ...], k: int) -> bool:
        """Whether, over P and the line of BOS and "=", coordinate k is a combination of the chosen ones."""
        kept = fmpq_mat(P.nrows(), len(chosen), [P[i, j] for i in range(P.nrows()) for j in chosen])
        rows = independent_rows(kept)
        square = fmpq_mat(len(rows), len(rows), [kept[i, j] for i in rows for j in range(len(chosen))])
        solved = square.inv() * fmpq_mat(len(rows), 1, [P[i, k] for i in rows]) if rows else fmpq_mat(0, 1)
        left: list[Combination] = []
        for t in LINES[0]:
            residue = self._point(t, k).value - sum(
                (self._point(t, j).value * solved[i, 0] for i, j in enumerate(chosen)), fmpq(0)
            )
            left.append(self.head.exact_weight(t, EQUALS) * residue)
        return total(left).is_zero


def pivots(P: fmpq_mat) -> tuple[int, ...]:
    """The columns that do not depend on those after them: b's is always among them."""
    rows, size = P.nrows(), P.ncols()
    turned = fmpq_mat(rows, size, [P[i, size - 1 - k] for i in range(rows) for k in range(size)])
    reduced, rank = turned.rref()
    leading = [next(k for k in range(size) if reduced[i, k] != 0) for i in range(rank)]
    return tuple(sorted(size - 1 - k for k in leading))


def independent_rows(P: fmpq_mat) -> list[int]:
    """Indices of rows that are a basis of all rows."""
    reduced, rank = P.transpose().rref()
    return [next(k for k in range(P.nrows()) if reduced[i, k] != 0) for i in range(rank)]


def _rounded(
    form: ReadoutForm, rows: Constraints, rays: list[tuple[float, tuple[int, ...], Array]], T: arb_mat
) -> Separability | None:
    """A separator of few bits from the middle of the cone; None where none is confirmed."""
    middle = sum((ray[2] for ray in rays), start=rays[0][2] * 0) if rays else None
    if middle is None or not float(abs(middle).max()) > 0:
        return None
    size = rows.size
    with ctx.workprec(BITS[1]):
        x = [sum((T[k, i] * float(middle[i]) for i in range(size)), arb(0)) for k in range(size)]
        largest = max((abs(v).mid() for v in x), key=float)
        if not largest > 0:
            return None
        x = [v / largest for v in x]
    for bits in ROUNDED_TO:
        with ctx.workprec(BITS[1] + bits):
            X = [int((v * 2**bits).mid().floor().unique_fmpz()) for v in x]
        if any(X) and _holds(rows, X):
            full = [0] * (form.head.d_h + 1)
            for k, value in zip(form.columns, X, strict=True):
                full[k] = value
            return _separator(full, bits)
    return None


def _holds(rows: Constraints, X: Sequence[int]) -> bool:
    """Whether the separator X meets every constraint: positive, or at least zero where nothing strict is asked."""

    def score(i: int) -> RingPolynomial:
        return lambda Z: sum((z * k for z, k in zip(Z[i][1:], X[1:], strict=True)), Z[i][0] * X[0])

    signs = ((rows.sign(score(i)), constraint) for i, constraint in enumerate(rows.constraints))
    return all(sign > 0 or (sign == 0 and not constraint.asks_strictly) for sign, constraint in signs)


def _separator(X: list[int], bits: int) -> Separability:
    numbers = [Fraction(k, 2**bits) for k in X]
    *w, b = numbers
    certificate: dict[str, object] = {"kind": SEPARATOR, "w": [str(x) for x in w], "b": str(b)}
    return separated(certificate, numbers)


def separated(certificate: dict[str, object], numbers: Sequence[Fraction | float]) -> Separability:
    """The answer yes; the separator's floats, w and then b, only where all of them are finite."""
    try:
        *w, b = (float(x) for x in numbers)
    except OverflowError:
        return Separability(True, certificate)
    if not all(map(math.isfinite, (*w, b))):
        return Separability(True, certificate)
    return Separability(True, certificate, tuple(w), b)


def _tight(form: ReadoutForm, rows: Constraints, candidates: Sequence[tuple[int, ...]]) -> Separability | None:
    """A separator as a sum of extreme rays, each the form that is zero at r - 1 constraints; exact without numbers."""
    chosen = confirmed(rows, candidates)
    if chosen is None:
        return None
    with ctx.workprec(BITS[1]):
        Z, x = rows.balls(BITS[1]), [arb(0)] * rows.size
        for tight, sign in chosen:
            ray = crossed([Z[i] for i in tight], rows.size)
            largest = max((abs(arb(v)).mid() for v in ray), key=float)
            x = [a + arb(v) * sign / largest for a, v in zip(x, ray, strict=True)]
    full = [0.0] * (form.head.d_h + 1)
    for k, v in zip(form.columns, x, strict=True):
        full[k] = float(v.mid())
    certificate: dict[str, object] = {
        "kind": TIGHT,
        "columns": list(form.columns),
        "rays": [
            {
                "rows": [list(rows.constraints[i].row) for i in tight],
                "more_ones": [rows.constraints[i].is_more_ones for i in tight],
                "sign": sign,
            }
            for tight, sign in chosen
        ],
    }
    return separated(certificate, full)


def confirmed(rows: Constraints, candidates: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]] | None:
    """Extreme rays, each with its sign, whose sum meets every constraint; None where the candidates do not suffice."""
    chosen: list[tuple[tuple[int, ...], int]] = []
    missing = {i for i, c in enumerate(rows.constraints) if c.asks_strictly}
    for tight in candidates:
        found = _ray(rows, tight)
        if found is not None and missing & found[1]:
            chosen.append((tight, found[0]))
            missing -= found[1]
        if not missing:
            return chosen
    return None


def _ray(rows: Constraints, tight: tuple[int, ...]) -> tuple[int, set[int]] | None:
    """The sign that makes the form zero at `tight` meet all weak constraints, and the strict ones it meets."""
    orientation, met = 0, set[int]()
    zero = {_direction(rows.constraints[i].row) for i in tight}
    for i, constraint in enumerate(rows.constraints):
        if _direction(constraint.row) in zero:
            continue
        sign = rows.sign(lambda Z, i=i: determinant([Z[i], *(Z[j] for j in tight)]))
        if sign and orientation and sign != orientation:
            return None
        orientation = orientation or sign
        if sign and constraint.asks_strictly:
            met.add(i)
    return (orientation, met) if orientation else None


def _direction(row: Row) -> Row:
    """The row up to its sign."""
    return max(row, (-row[0], -row[1], -row[2], -row[3]))


def _gordan(form: ReadoutForm, rows: Constraints, candidates: Sequence[tuple[int, ...]]) -> Separability | None:
    """The answer no, with the constraints that rule every separator out."""
    support = ruled_out(rows, candidates)
    return None if support is None else Separability(False, _combination(form, rows, support))


def ruled_out(rows: Constraints, candidates: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Constraints of which a nonnegative combination is zero, with a positive part at one that asks strictly."""

    def minor(others: list[int]) -> RingPolynomial:
        return lambda Z: determinant([Z[i] for i in others])

    for support in candidates:
        signs: list[int] = []
        for k in range(len(support)):
            sign = rows.sign(minor([i for i in support if i != support[k]]))
            signs.append(sign if k % 2 == 0 else -sign)
            if {1, -1} <= set(signs):
                break
        if {1, -1} <= set(signs):
            continue
        if any(s and rows.constraints[i].asks_strictly for s, i in zip(signs, support, strict=True)):
            return support
    return None


def _combination(form: ReadoutForm, rows: Constraints, support: tuple[int, ...]) -> dict[str, object]:
    """The certificate, with the combination's shares as floats for readers."""
    with ctx.workprec(BITS[1]):
        Z = rows.balls(BITS[1])
        parts = [abs(determinant([Z[i] for i in support if i != j])) for j in support]
        whole = sum(parts[1:], parts[0])
        found = [float((p / whole).mid()) for p in parts]
        shares = [x if math.isfinite(x) else None for x in found]
    return {
        "kind": GORDAN,
        "columns": list(form.columns),
        "rows": [list(rows.constraints[i].row) for i in support],
        "more_ones": [rows.constraints[i].is_more_ones for i in support],
        "shares": shares,
    }


def kappa(head: HeadNumbers) -> arb | None:
    """The constant of the only form with n1 - n0 + kappa for d_h = 2: it separates N^3 if and only if -1 < kappa <= 0.

    None where no such form is, or more than one.
    """
    form = ReadoutForm(head, [Constraint((1, 1, 1, 1), True)])
    if len(form.columns) != 3:
        return None
    with ctx.workprec(BITS[1]):
        c, *lines = form.balls(BITS[1])
        x = crossed([[a + b for a, b in zip(lines[0], lines[1], strict=True)], lines[2]], 3)
        ones = sum((a * b for a, b in zip(lines[1][1:], x[1:], strict=True)), lines[1][0] * x[0])
        constant = sum((a * b for a, b in zip(c[1:], x[1:], strict=True)), c[0] * x[0])
        return constant / ones
