"""Many heads at once: their forms in the counts as floats with radii, and what follows for all of them by few products.

What floats leave open is decided head by head, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Undecided, rational
from verify.arithmetic.slack import ENLARGE, LEAST, LOST, Array, U, gamma
from verify.tasks.count01.heads.separability import separability
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import SEEN, HeadNumbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.layer_norm.tables import BITS
from verify.tasks.count01.task import EQUALS

Integers = NDArray[np.int64]
# The weight and the point are nearest floats, the product is rounded, and the two of BOS and "=" are added: gamma_4.
OF_LINES = 8 * U
NO_SLOPE = 1e-300  # stands for a coefficient 0 of n2, and is part of its radius
CELLS_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 250  # heads whose constraints are decided in one go


@dataclass(frozen=True)
class HeadForms:
    """Heads as forms: D(n) (w . r(n) + b) has the coefficients lines[h] @ (w, b) at 1, n0, n1, n2, and D > 0.

    Shapes: lines, radii (heads, 4, d_h + 1); every line is within its radius of the stored head's.
    """

    heads: tuple[HeadNumbers, ...]
    lines: Array
    radii: Array

    @classmethod
    def of(cls, heads: Sequence[HeadNumbers]) -> HeadForms:
        """The forms of heads of one dimension.

        >>> from constructions.count01 import uniform
        >>> from verify.tasks.count01.layer_norm.numbers import model_numbers
        >>> HeadForms.of(model_numbers(uniform()).heads).lines[0].tolist()  # the values of 0, 1 and 2 are -1, 1 and 0
        [[-0.5, 2.0], [-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
        """
        weights = np.array([head.nearest_weights(EQUALS, SEEN) for head in heads])[:, :, None]
        points = np.array([[[*(v.nearest() for v in head.values[t]), 1.0] for t in SEEN] for head in heads])
        parts, sizes = weights * points, weights * np.abs(points)
        lost = 4 * LEAST * (1 + np.abs(points))  # a weight and a product that underflow
        radii = (OF_LINES * _by_digit(sizes) + _by_digit(lost)) * ENLARGE
        return cls(tuple(heads), _by_digit(parts), radii)

    def coefficients(self, separators: Array) -> tuple[Array, Array]:
        """Coefficients (heads, 4) of each head's form with its own separator (w, b), and their radii."""
        x = np.abs(separators)[:, :, None]
        found = (self.lines @ separators[:, :, None])[..., 0]
        rounded = gamma(separators.shape[1] + 1) * (np.abs(self.lines) @ x)[..., 0]
        radius = ((self.radii @ x)[..., 0] + rounded) * ENLARGE + LOST
        return found, radius


def _by_digit(parts: Array) -> Array:
    """What BOS and "=" add together, and each digit."""
    return np.stack([parts[:, 0] + parts[:, 4], parts[:, 1], parts[:, 2], parts[:, 3]], axis=1)


def right_triples(forms: HeadForms, separators: Array, law: Law) -> list[int]:
    """How many triples of a box each head's own separator (w, b) tells rightly, positive where n1 > n0: exactly.

    Raises: BadInput for a law that is no box; Undecided for a triple that is too close to a tie.
    """
    check_box(law)
    low, high = right_between(forms, separators, law)
    open_ones = np.flatnonzero(low < high)
    found: list[int] = low.tolist()
    for h in open_ones.tolist():
        found[h] = right_by_digits(forms.heads[h], separators[h].tolist(), law)
    return found


def check_box(law: Law) -> None:
    """Raises BadInput for a law that is no box."""
    if not law.is_uniform:
        raise BadInput(f"law={law.name}: must be a box, such as d-test or box:0:200:200")


def right_between(forms: HeadForms, separators: Array, law: Law) -> tuple[Integers, Integers]:
    """Bounds on the number of right triples, by floats.

    For each (n0, n1) the form is c + s n2: its sign is known but for the n2 within a slack of the zero -c / s.
    """
    found, radius = forms.coefficients(separators)
    n = np.array([1.0, law.high, law.high, law.noise])
    slope = np.where(found[:, 3] == 0, NO_SLOPE, found[:, 3])
    slack = ((radius + 8 * U * np.abs(found)) @ n + NO_SLOPE * (1 + law.noise)) * ENLARGE
    digits = np.arange(law.low, law.high + 1, dtype=float)
    n0, n1 = np.meshgrid(digits, digits, indexing="ij")
    low, high = np.empty(len(found), dtype=np.int64), np.empty(len(found), dtype=np.int64)
    step = max(1, CELLS_AT_ONCE // n0.size)
    for start in range(0, len(found), step):
        part = slice(start, start + step)
        c = found[part, :, None, None]
        # the sign is that of the slope where n2 is beyond the zero, the other one before it
        zero = -(c[:, 0] + c[:, 1] * n0 + c[:, 2] * n1) / slope[part, None, None]
        width = (slack[part] / np.abs(slope[part]))[:, None, None]
        before = np.clip(np.ceil(_less(_less(zero) - width)), 0, law.noise + 1)
        beyond = law.noise + 1 - np.clip(np.floor(_more(_more(zero) + width)) + 1, 0, law.noise + 1)
        rises = slope[part, None, None] > 0
        positive, negative = np.where(rises, beyond, before), np.where(rises, before, beyond)
        surely, surely_not = np.where(n1 > n0, positive, negative), np.where(n1 > n0, negative, positive)
        low[part] = surely.sum(axis=(1, 2))
        high[part] = law.size - surely_not.sum(axis=(1, 2))
    known = np.isfinite(found).all(axis=1) & np.isfinite(slack)
    return np.where(known, low, 0), np.where(known, high, law.size)


def _more(x: Array) -> Array:
    """Above x by more than four roundings."""
    return np.where(x > 0, x * (1 + 8 * U), x * (1 - 8 * U))


def _less(x: Array) -> Array:
    return -_more(-x)


def right_by_digits(head: HeadNumbers, separator: Sequence[float], law: Law) -> int:
    """How many triples of a box a separator tells rightly, with as many digits as it takes.

    Raises: Undecided where 2^13 bits do not tell a triple from a tie.
    """
    for bits in BITS[1:]:
        with ctx.workprec(bits):
            found = _counted(_coefficients(head, separator, bits), law)
        if found is not None:
            return found
    raise Undecided(f"a head's separator: {BITS[-1]} bits do not tell a triple from a tie")


def _coefficients(head: HeadNumbers, separator: Sequence[float], bits: int) -> list[arb]:
    *w, b = (arb(x) for x in separator)
    part = []
    for t in SEEN:
        scored = sum((x * v.ball(bits) for x, v in zip(w, head.values[t], strict=True)), b)
        part.append(head.weight(t, EQUALS, bits) * scored)
    return [part[0] + part[4], *part[1:4]]


def _counted(c: Sequence[arb], law: Law) -> int | None:
    """The number of right triples of the form c; None where a sign does not show."""
    if not (c[3] > 0 or c[3] < 0):
        return None
    right = 0
    for n0 in range(law.low, law.high + 1):
        for n1 in range(law.low, law.high + 1):
            zero = -(c[0] + c[1] * n0 + c[2] * n1) / c[3]
            before = 0 if zero < 0 else law.noise + 1 if zero > law.noise else None
            if before is None:
                beyond = zero.ceil().unique_fmpz()
                if zero.contains_integer() or beyond is None:
                    return None
                before = int(beyond)
            positive = law.noise + 1 - before if c[3] > 0 else before
            right += positive if n1 > n0 else law.noise + 1 - positive
    return right


@dataclass(frozen=True)
class _Rows:
    """The constraints of a law as rows (heads, c, 3), each turned so that it asks for "positive", with radii."""

    values: Array
    radii: Array
    asks_strictly: NDArray[np.bool_]

    @classmethod
    def of(cls, forms: HeadForms, law: Law, part: slice) -> _Rows:
        constraints = law.constraints()
        turned = np.array([[c.sign * k for k in c.row] for c in constraints], dtype=float)
        values = turned @ forms.lines[part]
        rounded = gamma(6) * (np.abs(turned) @ np.abs(forms.lines[part]))
        radii = (np.abs(turned) @ forms.radii[part] + rounded) * ENLARGE + LOST
        return cls(values, radii, np.array([c.asks_strictly for c in constraints]))

    @cached_property
    def met(self) -> NDArray[np.bool_]:
        """Which heads have a separator: one that is likely meets every constraint strictly, its error left out."""
        x = _middle(self.values)[..., None]
        size = (self.radii + gamma(4) * np.abs(self.values)) @ np.abs(x)
        return np.asarray((self.values @ x > size * ENLARGE + LOST).all(axis=(1, 2)))

    @cached_property
    def ruled_out(self) -> NDArray[np.bool_]:
        """Which heads have none: four constraints, a strict one among them, with a positive combination to zero.

        Proof. Its coefficients are the minors with alternating signs (Cramer), here of one sign and not zero. Rows off
        by R change a determinant by at most perm(|Z| + R) - perm(|Z|), as it is linear in every row.
        """
        count = self.values.shape[1]
        three = list(combinations(range(count), 3))
        at, Z, R = np.array(three), self.values, self.radii
        found = _expanded(Z, at, -1)
        outer, inner = _expanded(np.abs(Z) + R, at, 1), _expanded(np.abs(Z), at, 1)
        radius = (np.maximum(outer - inner, 0) + 64 * U * outer) * ENLARGE + LOST
        sign = (found > radius).astype(int) - (found < -radius).astype(int)
        place: dict[tuple[int, ...], int] = {chosen: i for i, chosen in enumerate(three)}
        four = [s for s in combinations(range(count), 4) if self.asks_strictly[list(s)].any()]
        minors = [[place[(*s[:k], *s[k + 1 :])] for s in four] for k in range(4)]
        signs = np.stack([sign[:, minor] * (1, -1)[k % 2] for k, minor in enumerate(minors)])
        excluded: NDArray[np.bool_] = (np.abs(signs.sum(axis=0)) == 4).any(axis=1)
        return excluded


def _middle(Z: Array) -> Array:
    """The sum (heads, 3) of the likely extreme rays of {x: Z x >= 0}, 0 where there are none; only a guide."""
    pairs = np.array(list(combinations(range(Z.shape[1]), 2)))
    scaled = Z / np.maximum(np.abs(Z).max(axis=2, keepdims=True), 1e-300)
    rays = np.cross(scaled[:, pairs[:, 0]], scaled[:, pairs[:, 1]])
    rays /= np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), 1e-300)
    products = rays @ scaled.transpose(0, 2, 1)
    fits = [(sign * products > -1e-9).all(axis=2) for sign in (1, -1)]
    found: Array = (rays * (fits[0].astype(float) - fits[1])[..., None]).sum(axis=1)
    return found


def _expanded(Z: Array, at: Integers, sign: int) -> Array:
    """The determinants of all chosen three rows (sign -1), or their permanents (sign 1)."""
    (a, b, c), (d, e, f), (g, h, i) = (np.moveaxis(Z[:, at[:, k]], 2, 0) for k in range(3))
    found: Array = a * (e * i + sign * f * h) + sign * b * (d * i + sign * f * g) + c * (d * h + sign * e * g)
    return found


def separating(forms: HeadForms, law: Law) -> list[bool | None]:
    """Whether some linear separator tells every triple of a law, head by head; None where that stays open.

    Two-dimensional heads are decided in floats with radii where these suffice; all others by the exact cone.
    """
    found: list[bool | None] = []
    for start in range(0, len(forms.heads), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        heads = forms.heads[part]
        yes = no = np.zeros(len(heads), dtype=bool)
        if forms.lines.shape[2] == 3:
            with np.errstate(all="ignore"):  # NaN shows nothing
                rows = _Rows.of(forms, law, part)
                yes, no = rows.met, rows.ruled_out
        known = zip(heads, yes.tolist(), no.tolist(), strict=True)
        found += [True if a else False if b else separability(head, law).is_separable for head, a, b in known]
    return found


def exact_heads(scores: Array, values: Array) -> list[HeadNumbers]:
    """Heads by their scores (heads, 5) and values (heads, 5, d_h) of BOS, 0, 1, 2 and "=", as floats say exactly."""

    def row(numbers: Array) -> list[Surd]:
        return [Surd.rational(rational(x)) for x in numbers.tolist()]

    return [
        HeadNumbers({EQUALS: row(score)}, [row(point) for point in value], [])
        for score, value in zip(scores, values, strict=True)
    ]
