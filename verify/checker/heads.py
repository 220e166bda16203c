"""Separability certificates of `verify heads`, re-checked from the stored numbers (docs/checker.md)."""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.boxes import Box, Row, all_positive
from verify.checker.exponentials import BITS, Sum, ball, scaled, sign_of, summed, times
from verify.checker.prompts import read_count01
from verify.checker.reading import MOST_DIGITS, NOT_CHECKABLE, Refusal, recorded, require
from verify.checker.records import (
    HeadsCertificate,
    JointCombination,
    JointRays,
    JointSeparator,
    Rays,
    SavedCombination,
    Separator,
)
from verify.checker.statement import certificate_of, compare
from verify.checker.table import OF_HEADS, walk

LINES = ((0, 4), (1,), (2,), (3,))  # the tokens whose weights are the coefficients of 1, n0, n1, n2
LABELS = ("majority-ones", "thesis")
BOXES = {"d-train": (0, 100, 100), "d-val": (101, 150, 150), "d-test": (151, 200, 200)}
NUMBER = "0|[1-9][0-9]*"  # neither sign nor leading zeros
FRACTION = f"(-?)({NUMBER})(?:/([1-9][0-9]*))?"

Constraint = tuple[Row, bool, bool]  # row of (1, n0, n1, n2), whether n1 > n0 there, whether strictly

Law = tuple[int, int, int] | None  # a box (lo, hi, M), or all of N^3


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("heads", weights, certificate, HeadsCertificate)
    heads, parameters = _heads(weights)
    trusted, law = walk(c, "heads"), _law(c["law"])
    due: dict[str, object] = {
        "task": "heads",
        "reading": "real",
        "parameters": parameters,
        "empty_prompt": "counts as n1 <= n0",
    }
    due |= _of_law(law) | {"complete": not c["open"]}
    compare(c, due)
    require(c["labels"] in LABELS, f"labels: must be one of {', '.join(LABELS)}")
    require(len(c["heads"]) == len(heads), f"heads: the file has {len(heads)}")
    for h, found in enumerate(c["heads"]):
        require(found["head"] == h, f"head {h}: is missing")
        trusted += _certified(heads, (h,), law, found["separable"], found["certificate"])
        trusted += _certified(heads, (h,), None, found["separable_unbounded"], found["certificate_unbounded"])
    for several in [*(c["pairs"] or []), *c["subsets"]]:
        trusted += _certified(heads, tuple(several["heads"]), law, several["separable"], several["certificate"])
    return "SEPARABILITY", list(dict.fromkeys(trusted))


def _of_law(law: Law) -> dict[str, str]:
    """How many triples a law has, and the law in words."""
    if law is None:
        return {"inputs": "infinite", "law_text": "all n0, n1, n2 >= 0"}
    lo, hi, M = law
    text = f"n0, n1 uniform in [{lo}, {hi}], n2 uniform in [0, {M}], independent"
    return {"inputs": str((hi - lo + 1) ** 2 * (M + 1)), "law_text": text}


def _law(name: str) -> Law:
    """The box (lo, hi, M), None for all of N^3."""
    if name == "unbounded":
        return None
    found = re.fullmatch(f"box:({NUMBER}):({NUMBER}):({NUMBER})", name)
    is_short = len(name) <= MOST_DIGITS
    box = BOXES.get(name) or (found and is_short and tuple(int(x) for x in found.groups()))
    require(bool(box), f"law: {name!r} is no box; only boxes and unbounded are re-checked", NOT_CHECKABLE)
    lo, hi, M = box  # type: ignore[misc]
    require(lo <= hi, f"law: {name!r} is empty")
    return lo, hi, M


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


def _certified(heads: list[RationalHead], named: tuple[int, ...], law: Law, said: object, c: object) -> list[str]:
    """Accepts one answer with its certificate, and returns what of it is trusted. Raises: Refusal."""
    where = f"heads {list(named)}, {'all of N^3' if law is None else f'box {law}'}"
    is_named = len(named) > 0 and all(type(h) is int and 0 <= h < len(heads) for h in named)
    require(is_named and len(set(named)) == len(named), f"{where}: must be different heads of the file")
    require(type(said) is bool, f"{where}: is open", NOT_CHECKABLE)
    if not isinstance(c, dict) or c.get("kind") not in [*OF_HEADS]:
        raise Refusal(f"{where}: has no certificate")
    kind, trusted = c["kind"], walk(c, f"heads, {c['kind']}")
    try:
        if kind == "one head":
            require(said is True and c["head"] in named, f"{where}: one head separates only where it does")
            return trusted + _certified(heads, (c["head"],), law, True, c["certificate"])
        checks: dict[tuple[str, object], Callable[[], bool]] = {
            ("separator", True): lambda: _separates(heads[named[0]], law, recorded(c, Separator)),
            ("tight", True): lambda: _touches(heads[named[0]], law, recorded(c, Rays)),
            ("gordan", False): lambda: _excludes(heads[named[0]], law, recorded(c, SavedCombination)),
            ("joint separator", True): lambda: _all_right(heads, named, law, recorded(c, JointSeparator)),
            ("joint gordan", False): lambda: _all_excluded(heads, named, law, recorded(c, JointCombination)),
            ("joint tight", True): lambda: _all_touch([heads[h] for h in named], law, recorded(c, JointRays)),
        }
        require((kind, said) in checks, f"{where}: separable={said} is not shown by {kind!r}")
        require(kind[:5] == "joint" or len(named) == 1, f"{where}: {kind!r} speaks of one head")
        require(kind[:5] != "joint" or c["heads"] == list(named), f"{where}: the certificate is of other heads")
        require(checks[kind, said](), f"{where}: the certificate {kind!r} does not hold")
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise Refusal(f"{where}: the certificate is malformed ({error})") from None
    return trusted


def constraints(law: Law) -> Sequence[Constraint]:
    """What a form must meet: at the corners of both sides' hulls, or the vertices and rays where law is None."""
    if law is None:
        more = [((1, 0, 1, 0), True), ((0, 1, 1, 0), False), ((0, 0, 1, 0), False), ((0, 0, 0, 1), False)]
        rest = [(1, 0, 0, 0), (0, 1, 1, 0), (0, 1, 0, 0), (0, 0, 0, 1)]
        return [(row, True, strict) for row, strict in more] + [(row, False, False) for row in rest]
    lo, hi, M = law
    corners = [(lo, lo + 1), (lo, hi), (hi - 1, hi)] * (hi > lo) + [(lo, lo), (hi, lo), (hi, hi)]
    return [((1, a, b, n2), b > a, b > a) for a, b in corners for n2 in {0, M}]


def _is_constraint(row: Sequence[int], is_more: object, law: Law) -> bool:
    """Whether every separator must meet this one: a triple of the law, or a listed vertex or ray of N^3."""
    ints = isinstance(row, list) and [type(x) for x in row] == [int] * 4 and type(is_more) is bool
    if not ints:
        return False
    if law is None and any(tuple(row) == r and is_more == m for r, m, _ in constraints(None)):
        return True
    one, a, b, n2 = row
    lo, hi, M = (0, max(a, b), n2) if law is None else law
    return bool(one == 1 and lo <= a <= hi and lo <= b <= hi and 0 <= n2 <= M and (b > a) == is_more)


def _separates(head: RationalHead, law: Law, c: Separator) -> bool:
    """A separator in numbers: the form's sign at every corner, exactly."""
    x = [_rational(v) for v in (*c["w"], c["b"])]
    require(len(x) == head.size, "separator: has another dimension")
    lines, _ = head.lines(x)
    for row, is_more, strict in constraints(law):
        sign = sign_of(scaled(lines, row)) * (1 if is_more else -1)
        if sign < 0 or (sign == 0 and is_more and strict):
            return False
    return True


def _turned(
    head: RationalHead, columns: Sequence[int], rows: Sequence[Sequence[int]], more: Sequence[bool], law: Law
) -> list[list[Sum]]:
    """The constraints' rows in the chosen entries of (w, b), turned so that all ask for "positive"."""
    good = isinstance(columns, list) and all(type(k) is int and 0 <= k < head.size for k in columns)
    require(good and len(set(columns)) == len(columns) > 0, "columns: must be different entries of (w, b)")
    require(len(rows) == len(more) and all(map(_is_constraint, rows, more, [law] * len(rows))), "rows: not constraints")
    form, out = head.form(columns), []
    for row, is_more in zip(rows, more, strict=True):
        columnwise = zip(*form, strict=True)
        out.append([scaled(column, [k if is_more else -k for k in row]) for column in columnwise])
    return out


def _touches(head: RationalHead, law: Law, c: Rays) -> bool:
    """A sum of forms that are each zero at r - 1 constraints: none breaks one, and each strict one is met by some."""
    missing = {i for i, (_, is_more, strict) in enumerate(constraints(law)) if is_more and strict}
    for ray in c["rays"]:
        require(ray["sign"] in (1, -1) and len(ray["rows"]) == len(c["columns"]) - 1, "rays: of another dimension")
        tight = _turned(head, c["columns"], ray["rows"], ray["more_ones"], law)
        for i, (row, is_more, _) in enumerate(constraints(law)):
            ((turned),) = _turned(head, c["columns"], [list(row)], [is_more], law)
            sign = _sign_of_determinant([turned, *tight]) * ray["sign"]
            if sign < 0:
                return False
            missing -= {i} if sign > 0 else set()
    return not missing


def _excludes(head: RationalHead, law: Law, c: SavedCombination) -> bool:
    """A nonnegative combination of constraints that is zero, with a positive part at one that asks strictly."""
    columns, rows, more = c["columns"], c["rows"], c["more_ones"]
    Z = _turned(head, columns, rows, more, law)
    require(len(rows) == len(columns) + 1, "rows: must be one more than columns")
    _require_spanning(head, columns, rows)
    signs = [
        _sign_of_determinant([z for i, z in enumerate(Z) if i != k]) * (1 if k % 2 == 0 else -1)
        for k in range(len(rows))
    ]
    strict = [s != 0 and row[0] == 1 and is_more for s, row, is_more in zip(signs, rows, more, strict=True)]
    return not {1, -1} <= set(signs) and any(strict)


def _require_spanning(head: RationalHead, columns: Sequence[int], rows: Sequence[Sequence[int]]) -> None:
    """The other entries of (w, b) add no forms: over the tokens that the rows speak of, they depend on the chosen."""
    tokens = [t for k, line in enumerate(LINES) if any(row[k] for row in rows) for t in line]
    whole = fmpq_mat([[head.points[t][k] for k in range(head.size)] for t in tokens])
    kept = fmpq_mat([[head.points[t][k] for k in columns] for t in tokens])
    spans = whole.rank() == kept.rank()
    require(spans, "columns: that the others depend on them takes more than their rank to see", NOT_CHECKABLE)


def _all_excluded(heads: list[RationalHead], named: tuple[int, ...], law: Law, c: JointCombination) -> bool:
    """d + 2 triples whose turned outputs (r, 1) have a positive combination that is zero: signs of determinants."""
    rows, more = c["rows"], c["more_ones"]
    size = sum(heads[h].size - 1 for h in named) + 1
    require(len(rows) == len(more) == size + 1, "rows: must be d + 2 triples")
    require(
        all(_is_constraint([1, *row], m, law) for row, m in zip(rows, more, strict=True)),
        "rows: not triples of the law",
    )
    for bits in BITS:
        with ctx.workprec(bits):
            Z = [_outputs(heads, named, row, 1 if m else -1, bits) for row, m in zip(rows, more, strict=True)]
            minors = [arb_mat([z for i, z in enumerate(Z) if i != k]).det() * (-1) ** k for k in range(len(Z))]
        if all(x > 0 for x in minors) or all(x < 0 for x in minors):
            return any(more)
    return False


def _all_touch(heads: list[RationalHead], law: Law, c: JointRays) -> bool:
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
        signs = [_sign_of_determinant([z, *tight]) * ray["sign"] for i, z in enumerate(Z) if i not in rows]
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


def _all_right(heads: list[RationalHead], named: tuple[int, ...], law: Law, c: JointSeparator) -> bool:
    """A separator of several heads on every triple of a box: each head's quotient is extreme at a box's corners."""
    require(law is not None and len(c["w"]) == len(named), "joint separator: is of a box and has a part per head")
    assert law is not None
    forms, b = [], _rational(c["b"])
    for h, part in zip(named, c["w"], strict=True):
        x = [_rational(v) for v in part]
        require(len(x) == heads[h].size - 1, "joint separator: has another dimension")
        forms.append(heads[h].lines([*x, fmpq(0)]))
    lo, hi, M = law
    box = Box(lo, hi, 0, M)
    turned = [([scaled([x], [-1]) for x in N], D) for N, D in forms]
    return all_positive(forms, b, box, True) and all_positive(turned, -b, box, False)


def _sign_of_determinant(rows: list[list[Sum]]) -> int:
    """By balls, and exactly where they do not show it."""
    if not rows:
        return 1
    for bits in BITS[:2]:
        with ctx.workprec(bits):
            value = arb_mat([[ball(x, bits) for x in row] for row in rows]).det()
        if value > 0 or value < 0:
            return 1 if value > 0 else -1
    return sign_of(_determinant(rows))


def _determinant(rows: list[list[Sum]]) -> Sum:
    if not rows:
        return {fmpq(0): fmpq(1)}
    out: Sum = {}
    for i, row in enumerate(rows):
        minor = _determinant([other[1:] for j, other in enumerate(rows) if j != i])
        term = times(row[0], minor)
        out = summed([*out.items(), *((x, c if i % 2 == 0 else -c) for x, c in term.items())])
    return out


def _rational(text: object) -> fmpq:
    found = re.fullmatch(FRACTION, text) if isinstance(text, str) and len(text) <= 2 * MOST_DIGITS else None
    require(found is not None, "a number of a separator is no fraction")
    sign, numerator, denominator = found.groups()  # type: ignore[union-attr]
    return fmpq(int(sign + numerator), int(denominator or 1))


def _heads(data: bytes) -> tuple[list[RationalHead], dict[str, object]]:
    """The heads of a file, and what its certificate says of them."""
    numbers, sizes = read_count01(data)
    require("norm" not in numbers, "weights: layer norm is beyond plain Count01 models", NOT_CHECKABLE)
    E, parts = numbers["E"][0], zip(*(numbers[name] for name in ("W_Q", "W_K", "W_V")), strict=True)
    return [RationalHead(E, *part) for part in parts], sizes | {"norm": False}
