"""Count01, the documents' construction: the separating value, the exact decision, its limits, its margins.

The formulas are sympy expressions in N and the counts n0, n1, n2; the functions that return integers
evaluate them with balls, doubling the precision until the answer is certain.
"""

from __future__ import annotations

import sympy as sp
from flint import arb, ctx

N, n0, n1, n2 = sp.symbols("N n0 n1 n2", nonnegative=True)
e = sp.E


def separating_value(N: sp.Expr | int = N) -> sp.Expr:
    """a, the value of y at n0 = n1 when nothing else is attended to.

    Claim: D, App. A; E, Sec. 5.3 (both name it with n for N and say that y >= a is n0 >= n1; it is n1 >= n0).

    >>> separating_value(10).evalf(6)
    10.7311
    """
    return (e * (N + 1) + N) / (1 + e)


def head_output(N: sp.Expr | int = N) -> sp.Expr:
    """y at "=": the weighted mean of the embeddings.

    Claim: D, App. A, before the approximation.

    >>> head_output(10).subs({n0: 0, n1: 0, n2: 0}) == e / (1 + e)
    True
    """
    numerator = sp.exp(N) * (n0 * N + n1 * e * (N + 1)) + e
    return numerator / (1 + n0 * sp.exp(N) + n1 * sp.exp(N + 1) + n2 + e)


def decision(N: sp.Expr | int = N) -> sp.Expr:
    """The form that is positive exactly when y > a: linear in n1 - n0 and n2, unbounded in n0 and n1.

    Claim: D-1 (ours, sharpening "n2 << e^N"): (n1 - n0) e^(N+1) / (1+e) > a (1 + n2 + e) - e.

    >>> normaliser = 1 + n0 * sp.exp(7) + n1 * sp.exp(8) + n2 + e
    >>> gap = (head_output(7) - separating_value(7)) * normaliser - decision(7)
    >>> sp.expand(sp.cancel(gap * (1 + e)))
    0
    """
    return (n1 - n0) * sp.exp(N + 1) / (1 + e) - separating_value(N) * (1 + n2 + e) + e


def noise_threshold(N: sp.Expr | int = N) -> sp.Expr:
    """The n2 at which the decision is zero for n1 = n0 + 1: every smaller n2 is right for all n0, n1.

    Claim: D-1 (ours). Where n1 <= n0 the decision is negative for every n2, so ties cost nothing.

    >>> noise_threshold(10).evalf(8)
    1497.0987
    """
    return (sp.exp(N + 1) / (1 + e) + e) / separating_value(N) - 1 - e


def answer_margin(N: sp.Expr | int = N) -> sp.Expr:
    """y - a at n1 = n0 + 1: the margin over the tokens with logit 0; over the other answer it is twice that.

    Claim: D-1 (ours).

    >>> answer_margin(10).subs({n0: 0, n2: 0}).evalf(4)
    0.2683
    """
    return (head_output(N) - separating_value(N)).subs(n1, n0 + 1)


def eos_margin(y: sp.Expr | int, N: sp.Expr | int = N, skip: bool = True) -> sp.Expr:
    """Logit of EOS minus that of the answer with the positive column, after 4 or 5, at head output y.

    Claim: D, App. A, second task, with the residual N^2 that is printed without it. EOS over the tokens with
    logit 0 is `eos_logit`.

    >>> sp.expand(eos_margin(0, skip=True) - (3 * N**2 - 12 * (N + 1) + separating_value() + 1))
    0
    """
    stream = y + N**2 if skip else sp.sympify(y)
    return eos_logit(y, N, skip) - (stream - separating_value(N) - (1 if skip else 0))


def eos_logit(y: sp.Expr | int, N: sp.Expr | int = N, skip: bool = True) -> sp.Expr:
    """Logit of EOS after 4 or 5 at head output y: 4 (N^2 + y) - 12 (N+1) with the skip connection.

    Claim: D, App. A, second task; printed as 4 N^2 - 12 (N+1) at y = N^2, where it is 8 N^2 - 12 (N+1).

    >>> sp.expand(eos_logit(N**2))
    8*N**2 - 12*N - 12
    """
    return 4 * (y + N**2 if skip else sp.sympify(y)) - 12 * (N + 1)


def largest_noise(N: int) -> int:
    """The exact largest n2 for which the answer is right for all n0, n1; -1 where even 0 is too much.

    Claim: D-1 (ours).
    Raises: ValueError for N < 1.

    >>> [largest_noise(N) for N in (2, 3, 10, 15, 20)]
    [-1, 0, 1497, 151915, 17108827]
    """
    if N < 1:
        raise ValueError(f"N={N}: must be at least 1")
    return _largest_integer_below(noise_threshold(N))


def smallest_N(noise: int) -> int:
    """The smallest N that is right for all n0, n1 and every n2 <= noise (the threshold grows with N >= 1).

    Claim: D-1 (ours).
    Raises: ValueError for noise < 0.

    >>> [smallest_N(noise) for noise in (0, 200, 1497, 1498, 17108827)]
    [3, 8, 10, 11, 20]
    """
    if noise < 0:
        raise ValueError(f"noise={noise}: must be at least 0")
    size = 1
    while largest_noise(size) < noise:
        size += 1
    return size


def smallest_N_for_eos() -> int:
    """The smallest N for which EOS follows 4 and 5 whatever precedes, by the skip connection alone (y >= 0).

    Claim: D-1 (ours): 4 N^2 > 12 (N+1) and 3 N^2 > 12 (N+1) - a - 1.

    >>> smallest_N_for_eos()
    5
    """
    size = 1
    while not (_is_positive(eos_logit(0, size)) and _is_positive(eos_margin(0, size))):
        size += 1
    return size


def tables(N: int, labels: str = "majority-ones", skip: bool = True) -> dict[str, sp.Matrix]:
    """The exact weights, E, W_out and b_out, in the order BOS 0 1 2 = 4 5 EOS.

    Claim: D, App. A with eight columns and eps = 0.

    >>> tables(10)["b_out"][5]
    -(10 + 11*E)/(1 + E) - 1
    """
    threshold = separating_value(N) + (1 if skip else 0)
    sign = 1 if labels == "majority-ones" else -1
    return {
        "E": sp.Matrix([0, N, N + 1, 0, 1, N**2, N**2, 0]),
        "W_out": sp.Matrix([0, 0, 0, 0, 0, sign, -sign, 4]),
        "b_out": sp.Matrix([0, 0, 0, 0, 0, -sign * threshold, sign * threshold, -12 * (N + 1)]),
    }


def latex() -> dict[str, str]:
    """The formulas of this page as LaTeX, by name.

    >>> sorted(latex())
    ['answer_margin', 'decision', 'eos_logit', 'noise_threshold', 'separating_value']
    """
    y = sp.Symbol("y")
    return {
        "separating_value": sp.latex(separating_value()),
        "decision": sp.latex(decision()),
        "noise_threshold": sp.latex(noise_threshold()),
        "answer_margin": sp.latex(answer_margin()),
        "eos_logit": sp.latex(eos_logit(y)),
    }


def ball(expression: sp.Expr, bits: int) -> arb:
    """An enclosure of a closed expression in rationals and powers of e.

    >>> 3 < ball(e + 1, 64) < 4
    True
    """
    with ctx.workprec(bits):
        return _ball(sp.sympify(expression))


def _ball(x: sp.Expr) -> arb:
    if x.is_Integer:
        return arb(int(x))
    if x.is_Rational:
        return arb(int(x.p)) / int(x.q)
    if x is sp.E:
        return arb(1).exp()
    if isinstance(x, sp.exp):
        return _ball(x.exp).exp()
    if x.is_Add:
        return sum((_ball(term) for term in x.args), arb(0))
    if x.is_Mul:
        out = arb(1)
        for factor in x.args:
            out *= _ball(factor)
        return out
    if x.is_Pow and x.exp.is_Integer:
        return _ball(x.base) ** int(x.exp)
    raise TypeError(f"{x}: not a closed expression in rationals and powers of e")


def _largest_integer_below(x: sp.Expr) -> int:
    """The largest integer < x, or -1 where x < 0, for an x >= 0 that is no integer.

    `noise_threshold` is none for N >= 2: e would be a root of a rational polynomial of degree N + 1; at
    N = 1 it is -1.
    """
    bits = 64
    while True:
        value = ball(x, bits)
        with ctx.workprec(bits):  # the floor of a long number needs as many bits as the number
            floor = value.floor().unique_fmpz()
        if value < 0:
            return -1
        if floor is not None and value > 0:
            return int(floor)
        bits *= 2


def _is_positive(x: sp.Expr) -> bool:
    """Decides the sign of a non-zero closed expression; a zero rational is decided too."""
    if sp.sympify(x).is_Rational:
        return bool(x > 0)
    bits = 64
    while True:
        value = ball(x, bits)
        if value > 0 or value < 0:
            return bool(value > 0)
        bits *= 2
