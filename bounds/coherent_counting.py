"""Fewer dimensions than tokens: the coherence that counting tolerates, and the sizes that follow."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from bounds.counting import L, T

M, d, alpha, u, eps, kappa = sympy.symbols("M d alpha u epsilon kappa", positive=True)
X = 2 * L - 3


@dataclass(frozen=True)
class DimensionBound:
    """The coherence M has to stay strictly below `threshold`; `printed` and `if_attained` are the resulting least d.

    With the Welch bound M^2 >= (T - d)/(d (T - 1)), M < 1/x is possible only for d > T x^2/(T - 1 + x^2). Strict
    means floor + 1; the document prints the ceiling, which is one less exactly where the fraction is an integer. So
    `if_attained` suffices where vectors attain the lower bound on the coherence there, which mostly none do, and it is
    not necessary: counting asks for less than low coherence (W-2).
    """

    models: str
    claim: str
    threshold: sympy.Expr
    printed: sympy.Expr
    if_attained: sympy.Expr

    def at(self, expression: sympy.Expr, **values: int) -> sympy.Expr:
        """One of the formulas at given T and L, for example at(bound.printed, T=32, L=10)."""
        return expression.subs({T: values["T"], L: values["L"]})


def welch_fraction(x_squared: sympy.Expr) -> sympy.Expr:
    """T x^2/(T - 1 + x^2): the d at which the Welch bound equals 1/x.

    >>> welch_fraction(X**2).subs({T: 50, L: 5})
    25
    """
    return T * x_squared / (T - 1 + x_squared)


def lin() -> DimensionBound:
    """lin and lin+sftm with p = T: M < 1/(2L - 3).

    Claim: A-4.4 (App. C.2.1, eq. 43-44); valid for L >= 4.

    >>> bound = lin()
    >>> bound.at(bound.printed, T=32, L=10), bound.at(bound.printed, T=50, L=5), bound.at(bound.if_attained, T=50, L=5)
    (29, 25, 26)
    """
    fraction = welch_fraction(X**2)
    return DimensionBound("lin, lin+sftm; p=T", "A-4.4", 1 / X, sympy.ceiling(fraction), sympy.floor(fraction) + 1)


def dot_one_neuron() -> DimensionBound:
    """dot and bos with p = 1: M < 1/(2L-3) - (2L-4)/(2L-3) alpha^2 in d - 1 dimensions, alpha to 0.

    Claim: A-4.4 (App. C.2.2, eq. 54-56).

    >>> bound = dot_one_neuron()
    >>> bound.at(bound.printed, T=32, L=10)
    30
    """
    fraction = welch_fraction(X**2)
    return DimensionBound(
        "dot, bos; p=1",
        "A-4.4",
        1 / X - (2 * L - 4) / X * alpha**2,
        sympy.ceiling(fraction) + 1,
        sympy.floor(fraction) + 2,
    )


def dot_inventory() -> DimensionBound:
    """dot and bos with p = T: M < 1/sqrt(L - 1).

    Claim: A-4.4 (App. C.2.3, eq. 65-66). The document evaluates its formula at T = 32, L = 10 as 7; it gives 8.

    >>> bound = dot_inventory()
    >>> bound.at(bound.printed, T=32, L=10)
    8
    """
    fraction = welch_fraction(L - 1)
    return DimensionBound(
        "dot, bos; p=T", "A-4.4", 1 / sympy.sqrt(L - 1), sympy.ceiling(fraction), sympy.floor(fraction) + 1
    )


def softmax_relation() -> DimensionBound:
    """bos+sftm with p = 1 on the binary code: d = ceil(log2(T + 1)) + 2, whatever L is; with W-3, d = 3.

    Claim: A-4.5 (eq. 87), where T = 32 is evaluated as 7; the formula gives 8.

    >>> bound = softmax_relation()
    >>> bound.at(bound.printed, T=32, L=10), bound.at(bound.if_attained, T=32, L=10)
    (8, 3)
    """
    return DimensionBound(
        "bos+sftm; p=1",
        "A-4.5, W-3",
        sympy.Integer(1),
        sympy.ceiling(sympy.log(T + 1, 2)) + 2,
        sympy.Min(3, T),
    )


def softmax_inventory() -> DimensionBound:
    """dot+sftm with p = T: d = ceil(log2(T + 1)) is stated; App. C.3.2 only says that the proof is analogous.

    Claim: A-C.3.2. It is not: with no BOS token to compare with, sharp attention removes the count itself. What a
    code needs is the gap of constructions.codes.search, and no formula in T and L is known for it, so `if_attained`
    is the orthonormal d = T.

    >>> bound = softmax_inventory()
    >>> bound.at(bound.printed, T=32, L=10)
    6
    """
    return DimensionBound("dot+sftm; p=T", "A-C.3.2", sympy.Integer(1), sympy.ceiling(sympy.log(T + 1, 2)), T)


BOUNDS = (lin, dot_one_neuron, dot_inventory, softmax_relation, softmax_inventory)


def epsilon_binary() -> sympy.Expr:
    """1 minus the largest overlap of the binary code with d' digits.

    Claim: A-4.5 (eq. 72); the requirement is an overlap below 1 - eps, where eq. 69 prints 1 + eps.

    >>> epsilon_binary().subs(d, 2)
    1 - sqrt(2)/2
    """
    return 1 - sympy.sqrt(1 - 1 / d)


def epsilon_quarter_circle() -> sympy.Expr:
    """1 minus the largest overlap of the d = 4 code for odd T: about 1/(2 T^2), where a rate of 1/T is printed.

    Claim: A-rem (remark to App. C.3.1).

    >>> sympy.limit(epsilon_quarter_circle() * T**2, T, sympy.oo)
    1/2
    """
    return 1 - sympy.sqrt(T**2 - 1) / T


def epsilon_circle() -> sympy.Expr:
    """1 minus the largest overlap of T equal angles.

    Claim: W-3.

    >>> epsilon_circle().subs(T, 4)
    1
    """
    return 1 - sympy.cos(2 * sympy.pi / T)


def kappa_equation() -> sympy.Expr:
    """dist(kappa) in u = e^kappa; its nontrivial root is the least inverse temperature of the printed argument.

    Claim: A-4.5 (eq. 86): (L-1) u^(1-eps) - u - (L-2) = 0.

    >>> kappa_equation().subs({u: 1})
    0
    """
    return (L - 1) * u ** (1 - eps) - u - (L - 2)


def kappa_root(length: int, epsilon: float) -> float:
    """The nontrivial root of the equation above as kappa = log(u), in floating point.

    >>> round(kappa_root(10, 1 - 0.9807852804032304))
    114
    """
    import math

    # with y = e^-kappa: (L - 1) y^eps - 1 - (L - 2) y = 0, positive between 0 and the root's kappa
    low, high = 1e-9, math.log(2.0 * length) / epsilon
    for _ in range(200):
        middle = (low + high) / 2
        if (length - 1) * math.exp(-epsilon * middle) - 1 - (length - 2) * math.exp(-middle) > 0:
            low = middle
        else:
            high = middle
    return high


def rank_bound_lin(length: int, tokens: int) -> int:
    """Least d for inventory counting with one neuron per token in lin: rank of an approximate identity.

    After scaling each neuron, V = E W_1 is I + c 1^T + N with |N| <= 1/(2L-3) off the diagonal, so
    rank(V) + 1 >= rank(I + N) >= (trace)^2/(Frobenius norm)^2 >= T/(1 + (T-1)/(2L-3)^2).

    Claim: W-6.

    >>> rank_bound_lin(10, 32)
    28
    """
    ratio = rank_of_approximate_identity(length, tokens)
    return max(1, int(sympy.ceiling(ratio)) - 1)


def rank_bound_dot(length: int, tokens: int) -> int:
    """The same for dot: the readings are quadratic forms in e_s, a space of dimension d(d+1)/2.

    Claim: W-6.

    >>> rank_bound_dot(10, 32)
    7
    """
    needed = rank_bound_lin(length, tokens)
    dimension = 1
    while dimension * (dimension + 1) // 2 < needed:
        dimension += 1
    return dimension


def rank_of_approximate_identity(length: int, tokens: int) -> sympy.Rational:
    """T/(1 + (T-1) r^2) with the relative spread r = 1/(2L-3) that counting tolerates (L >= 3).

    >>> rank_of_approximate_identity(10, 32)
    289/10
    """
    if length < 3:
        return sympy.Integer(1)
    x = sympy.Integer(2 * length - 3)
    return tokens * x**2 / (tokens - 1 + x**2)
