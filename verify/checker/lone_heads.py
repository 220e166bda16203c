"""Whether one head separates, by witnesses in exact numbers (docs/checker.md)."""

from collections.abc import Sequence

from flint import fmpq_mat

from verify.checker.determinants import sign_of_determinant
from verify.checker.exponentials import Sum, scaled, sign_of
from verify.checker.rational_heads import LINES, Law, RationalHead, constraints, is_constraint, rational
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import Rays, SavedCombination, Separator


def separates(head: RationalHead, law: Law, c: Separator) -> bool:
    """A separator in numbers: the form's sign at every corner, exactly."""
    x = [rational(v) for v in (*c["w"], c["b"])]
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
    require(len(rows) == len(more) and all(map(is_constraint, rows, more, [law] * len(rows))), "rows: not constraints")
    form, out = head.form(columns), []
    for row, is_more in zip(rows, more, strict=True):
        columnwise = zip(*form, strict=True)
        out.append([scaled(column, [k if is_more else -k for k in row]) for column in columnwise])
    return out


def touches(head: RationalHead, law: Law, c: Rays) -> bool:
    """A sum of forms that are each zero at r - 1 constraints: none breaks one, and each strict one is met by some."""
    missing = {i for i, (_, is_more, strict) in enumerate(constraints(law)) if is_more and strict}
    for ray in c["rays"]:
        require(ray["sign"] in (1, -1) and len(ray["rows"]) == len(c["columns"]) - 1, "rays: of another dimension")
        tight = _turned(head, c["columns"], ray["rows"], ray["more_ones"], law)
        for i, (row, is_more, _) in enumerate(constraints(law)):
            ((turned),) = _turned(head, c["columns"], [list(row)], [is_more], law)
            sign = sign_of_determinant([turned, *tight]) * ray["sign"]
            if sign < 0:
                return False
            missing -= {i} if sign > 0 else set()
    return not missing


def excludes(head: RationalHead, law: Law, c: SavedCombination) -> bool:
    """A nonnegative combination of constraints that is zero, with a positive part at one that asks strictly."""
    columns, rows, more = c["columns"], c["rows"], c["more_ones"]
    Z = _turned(head, columns, rows, more, law)
    require(len(rows) == len(columns) + 1, "rows: must be one more than columns")
    _require_spanning(head, columns, rows)
    signs = [
        sign_of_determinant([z for i, z in enumerate(Z) if i != k]) * (1 if k % 2 == 0 else -1)
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
