"""Whether several heads separate together, by witnesses in balls and exact numbers (docs/checker.md)."""

from collections.abc import Sequence
from functools import reduce
from itertools import product

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.boxes import Box, Row, all_positive
from verify.checker.determinants import sign_of_determinant
from verify.checker.exponentials import BITS, Sum, scaled, summed, times
from verify.checker.rational_heads import LINES, Law, RationalHead, is_constraint, rational
from verify.checker.reading import require
from verify.checker.records import JointCombination, JointRays, JointSeparator


def all_excluded(heads: list[RationalHead], named: tuple[int, ...], law: Law, c: JointCombination) -> bool:
    """d + 2 triples whose turned outputs (r, 1) have a positive combination that is zero: signs of determinants."""
    rows, more = c["rows"], c["more_ones"]
    size = sum(heads[h].size - 1 for h in named) + 1
    require(len(rows) == len(more) == size + 1, "rows: must be d + 2 triples")
    require(
        all(is_constraint([1, *row], m, law) for row, m in zip(rows, more, strict=True)), "rows: not triples of the law"
    )
    for bits in BITS:
        with ctx.workprec(bits):
            Z = [_outputs(heads, named, row, 1 if m else -1, bits) for row, m in zip(rows, more, strict=True)]
            minors = [arb_mat([z for i, z in enumerate(Z) if i != k]).det() * (-1) ** k for k in range(len(Z))]
        if all(x > 0 for x in minors) or all(x < 0 for x in minors):
            return any(more)
    return False


def all_touch(heads: list[RationalHead], law: Law, c: JointRays) -> bool:
    """On N^3: a separator each of whose rays is zero at d coefficients of the polynomials of both sides.

    With the smaller count and the difference as variables no coefficient has the wrong sign, and the constant one of
    n1 > n0 is positive for some ray.
    """
    require(law is None, "joint tight: is of all of N^3")
    sides = [_polynomials(heads, is_more) for is_more in (True, False)]
    some = range(len(heads) + 1)
    powers = [(i, j, k) for i in some for j in some for k in some if i + j + k <= len(heads)]
    Z = [[scaled([q[p]], [turn]) for q in side] for side, turn in zip(sides, (1, -1), strict=True) for p in powers]
    is_met = False
    for ray in c["rays"]:
        rows = ray["rows"]
        good = all(type(i) is int and 0 <= i < len(Z) for i in rows) and len(rows) == len(Z[0]) - 1
        require(good and ray["sign"] in (1, -1), "rays: of another dimension")
        tight = [Z[i] for i in rows]
        signs = [sign_of_determinant([z, *tight]) * ray["sign"] for i, z in enumerate(Z) if i not in rows]
        if min(signs) < 0:
            return False
        is_met = is_met or (0 not in rows and signs[0] > 0)
    return is_met


def _polynomials(heads: list[RationalHead], is_more: bool) -> list[dict[Row, Sum]]:
    """For each entry of (w, b): its polynomial in (smaller count, difference, n2), times all normalisers."""
    D = [_linear([summed((head.scores[t], fmpq(1)) for t in line) for line in LINES], is_more) for head in heads]
    out = []
    for h, head in enumerate(heads):
        for k in range(head.size - 1):
            N = _linear([summed((head.scores[t], head.points[t][k]) for t in line) for line in LINES], is_more)
            out.append(reduce(_multiplied, [x for g, x in enumerate(D) if g != h], N))
    return [*out, reduce(_multiplied, D)]


def _linear(lines: list[Sum], is_more: bool) -> dict[Row, Sum]:
    c, n0, n1, n2 = lines
    both, more = summed([*n0.items(), *n1.items()]), n1 if is_more else n0
    constant = summed([*c.items(), *n1.items()]) if is_more else c
    return {(0, 0, 0): constant, (1, 0, 0): both, (0, 1, 0): more, (0, 0, 1): n2}


def _multiplied(a: dict[Row, Sum], b: dict[Row, Sum]) -> dict[Row, Sum]:
    out: dict[Row, Sum] = {}
    for (p, x), (q, y) in product(a.items(), b.items()):
        power = tuple(i + j for i, j in zip(p, q, strict=True))
        out[power] = summed([*out.get(power, {}).items(), *times(x, y).items()])
    return out


def _outputs(heads: list[RationalHead], named: tuple[int, ...], n: Sequence[int], sign: int, bits: int) -> list[arb]:
    """The heads' outputs on one triple, then 1, all times a sign, in balls."""
    out = []
    for h in named:
        w = [arb(heads[h].scores[t]).exp() * k for t, k in zip((0, 1, 2, 3, 4), (1, *n, 1), strict=True)]
        D = sum(w, arb(0))
        for k in range(heads[h].size - 1):
            out.append(sign * sum((x * arb(heads[h].points[t][k]) for t, x in enumerate(w)), arb(0)) / D)
    return [*out, arb(sign)]


def all_right(heads: list[RationalHead], named: tuple[int, ...], law: Law, c: JointSeparator) -> bool:
    """A separator of several heads on every triple of a box: each head's quotient is extreme at a box's corners."""
    require(law is not None and len(c["w"]) == len(named), "joint separator: is of a box and has a part per head")
    assert law is not None
    forms, b = [], rational(c["b"])
    for h, part in zip(named, c["w"], strict=True):
        x = [rational(v) for v in part]
        require(len(x) == heads[h].size - 1, "joint separator: has another dimension")
        forms.append(heads[h].lines([*x, fmpq(0)]))
    lo, hi, M = law
    box = Box(lo, hi, 0, M)
    turned = [([scaled([x], [-1]) for x in N], D) for N, D in forms]
    return all_positive(forms, b, box, True) and all_positive(turned, -b, box, False)
