"""Lower bounds on the coherence M of T unit vectors in R^d, and the least d they leave open."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from bounds.counting import T

d = sympy.symbols("d", integer=True, positive=True)


@dataclass(frozen=True)
class CoherenceBound:
    """One inequality M >= `expression`, valid where `holds`, from `source`; both in the symbols T and d."""

    name: str
    expression: sympy.Expr
    holds: sympy.Basic
    source: str

    def is_valid(self, T: int, d: int) -> bool:
        """Whether the bound speaks about T unit vectors in R^d."""
        return bool(_substituted(self.holds, T, d))

    def at(self, T: int, d: int) -> sympy.Expr:
        """The exact value of the bound.

        Raises: ValueError outside the bound's range.
        """
        if not self.is_valid(T, d):
            raise ValueError(f"T={T}, d={d}: the {self.name} bound holds only for {self.holds}")
        return sympy.sqrtdenest(sympy.sqrt(_substituted(self.expression**2, T, d)))

    @property
    def latex(self) -> str:
        """The inequality with its range, for a page."""
        return rf"M \geq {sympy.latex(self.expression)} \quad \text{{for }} {sympy.latex(self.holds)}"


def welch() -> CoherenceBound:
    """The trace bound: the Gram matrix has rank d and trace T.

    Claim: A-4.4 (App. C.2, eq. 33), Welch 1974; it bounds M from below, the document's last step calls it an upper
    bound. Equality needs an equiangular tight frame, hence T <= d(d+1)/2 over the reals (the document: d^2).

    >>> welch().at(T=6, d=3)
    sqrt(5)/5
    """
    return CoherenceBound(
        "Welch", sympy.sqrt((T - d) / (d * (T - 1))), sympy.And(sympy.Gt(T, d), sympy.Gt(T, 1)), "Welch 1974"
    )


def orthoplex() -> CoherenceBound:
    """The second bound of Rankin, applied to the projections v v^T - I/d in a space of dimension (d-1)(d+2)/2.

    Claim: Rankin 1955; Conway, Hardin, Sloane, Experiment. Math. 5 (1996): M >= 1/sqrt(d) for T > d(d+1)/2.

    >>> orthoplex().at(T=144, d=16)
    1/4
    """
    return CoherenceBound("orthoplex", 1 / sympy.sqrt(d), _beyond_gerzon(), "Rankin 1955, Conway-Hardin-Sloane 1996")


def levenshtein() -> CoherenceBound:
    """The linear programming bound of degree three for real lines.

    Claim: Levenshtein 1982; Delsarte, Goethals, Seidel 1977 at equality; for T > d(d+1)/2.

    >>> levenshtein().at(T=120, d=8)
    1/2
    """
    numerator, denominator = 3 * T - d**2 - 2 * d, (d + 2) * (T - d)
    return CoherenceBound("Levenshtein", sympy.sqrt(numerator / denominator), _beyond_gerzon(), "Levenshtein 1982")


def plane() -> CoherenceBound:
    """Lines of the plane: some two neighbours are at most pi / T apart, and equal angles attain it.

    Claim: elementary, T >= 2 and d = 2.

    >>> plane().at(T=4, d=2)
    sqrt(2)/2
    """
    return CoherenceBound("plane", sympy.cos(sympy.pi / T), sympy.And(sympy.Eq(d, 2), sympy.Ge(T, 2)), "elementary")


def orthogonality() -> CoherenceBound:
    """No overlap at all is possible up to T = d, and M is never negative.

    Claim: elementary.

    >>> orthogonality().at(T=3, d=5)
    0
    """
    return CoherenceBound("orthogonality", sympy.Integer(0), sympy.true, "elementary")


def all_bounds() -> tuple[CoherenceBound, ...]:
    """Every lower bound of this module.

    >>> [bound.name for bound in all_bounds()]
    ['orthogonality', 'Welch', 'orthoplex', 'Levenshtein', 'plane']
    """
    return (orthogonality(), welch(), orthoplex(), levenshtein(), plane())


def gerzon() -> sympy.Expr:
    """The most equiangular lines that R^d can hold: their projections are independent symmetric matrices.

    Claim: Gerzon, in Lemmens & Seidel, J. Algebra 24 (1973): T <= d(d+1)/2.

    >>> gerzon().subs(d, 7)
    28
    """
    return d * (d + 1) / 2


def best_known_lower_bound(T: int, d: int) -> tuple[sympy.Expr, CoherenceBound]:
    """The largest valid bound at (T, d), exact, and which one it is.

    Raises: ValueError when T < 1 or d < 1.

    >>> value, bound = best_known_lower_bound(T=32, d=8)
    >>> value, bound.name
    (sqrt(93)/31, 'Welch')
    """
    if T < 1 or d < 1:
        raise ValueError(f"T={T}, d={d}: both must be at least 1")
    values = [(bound.at(T, d), bound) for bound in all_bounds() if bound.is_valid(T, d)]
    best = values[0]
    for candidate in values[1:]:
        if _is_below(best[0], candidate[0]):
            best = candidate
    return best


def least_d(T: int, M: sympy.Expr | int) -> int:
    """The least d at which no bound here rules out T unit vectors of coherence strictly below M.

    Claim: A-4.4 corrected: where the formula for d is an integer the bound equals M, and a strict threshold needs one
    more dimension. Every smaller d is impossible; whether this one is possible is another question.
    Raises: ValueError when T < 1 or M is not an exact positive number.

    >>> least_d(T=32, M=sympy.Rational(1, 17)), least_d(T=50, M=sympy.Rational(1, 7))
    (29, 26)
    """
    M = sympy.sympify(M)
    if T < 1 or M.has(sympy.Float) or not M.is_number or not M.is_positive:
        raise ValueError(f"T={T}, M={M}: T must be at least 1 and M an exact positive number, such as Rational(1, 17)")
    return next(size for size in range(1, T + 1) if _is_below(best_known_lower_bound(T, size)[0], M))


def _beyond_gerzon() -> sympy.Basic:
    return sympy.Gt(T, gerzon())


def _substituted(expression: sympy.Basic, T_value: int, d_value: int) -> sympy.Basic:
    return expression.subs({T: T_value, d: d_value})


def _is_below(x: sympy.Expr, y: sympy.Expr) -> bool:
    """x < y for nonnegative exact numbers, through their squares where those are rational."""
    squares = x**2, y**2
    if all(square.is_Rational for square in squares):
        return bool(squares[0] < squares[1])
    difference = sympy.simplify(y - x)
    assert difference.is_positive is not None, "an exact number whose sign sympy cannot tell"
    return bool(difference.is_positive)
