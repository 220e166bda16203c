"""One-dimensional heads of Count01 in closed form: which attention ratios w01 = w0/w1, w02 = w0/w2 separate a box.

The head's weights of BOS and "=" are zero, as in the documents' interventions (D, Sec. 5.4; E, Fig. 8), so a threshold
x on the output asks that n0 w01 (v_0 - x) + n1 (v_1 - x) + n2 (w01 / w02) (v_2 - x) is positive exactly where n1 > n0.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from flint import fmpq, fmpq_mat

if TYPE_CHECKING:
    import sympy as sp

Number = Fraction | int


def symbols() -> tuple[sp.Symbol, ...]:
    """w01, v_0, v_1, v_2, hi and M, which the formulas are about.

    >>> symbols()
    (w01, v_0, v_1, v_2, hi, M)
    """
    import sympy as sp  # which those who ask for numbers do not load

    return tuple(sp.symbols("w01 v_0 v_1 v_2 hi M", real=True))


def balance() -> sp.Expr:
    """x*, the output where n0 = n1 and n2 = 0: the only threshold that treats all such inputs alike.

    Claim: H-2 (ours). E, Sec. 5.4 prints (w0 v_0 + w1 v_1) / 2 for it, without the division by w0 + w1.

    >>> balance()
    (v_0*w01 + v_1)/(w01 + 1)
    """
    w01, v_0, v_1, *_ = symbols()
    return (w01 * v_0 + v_1) / (1 + w01)


def least_w02_below() -> sp.Expr:
    """What w02 must exceed where v_2 < x* and v_1 > v_0; the box's low and high do not matter.

    Claim: H-2 (ours). The threshold is x*, and (k, k+1, M) must stay above it.

    >>> least_w02_below()
    M*(v_1 - v_2 + w01*(v_0 - v_2))/(-v_0 + v_1)
    """
    w01, v_0, v_1, v_2, _, M = symbols()
    return M * (w01 * (v_0 - v_2) + (v_1 - v_2)) / (v_1 - v_0)


def least_lo_w02_above() -> sp.Expr:
    """What lo * w02 must exceed where v_2 > x* and v_1 > v_0.

    Claim: H-2 (ours). The threshold moves from x* by e; (lo, lo, M) asks for a large e, (hi-1, hi, 0) for a small one.

    >>> least_lo_w02_above().subs({symbols()[3]: balance()}).simplify()
    -M*w01/(w01 + 1)
    """
    w01, v_0, v_1, v_2, high, M = symbols()
    g = v_2 - balance()
    return M * (g * ((1 + w01) * (high - 1) + 1) / (v_1 - v_0) - w01 / (1 + w01))


def least_w02(w01: Number, values: tuple[Number, Number, Number], box: tuple[int, int, int]) -> Fraction | None:
    """The number that w02 must exceed for a head with this w01 to separate the box (lo, hi, M); None where none is.

    Claim: H-2 (ours), in rationals. Negative means that every ratio works.
    Raises: ValueError for a w01 that is not positive, or a box without n1 > n0.

    >>> least_w02(1, (-1, 1, -1), (151, 200, 200)), least_w02(1, (-1, 1, 3), (0, 20, 1))
    (Fraction(200, 1), None)
    >>> least_w02(1, (-1, 1, 0), (0, 9, 9))
    Fraction(-1, 1)
    """
    r, (lo, hi, noise) = Fraction(w01), box
    if not (r > 0 and 0 <= lo < hi and noise >= 0):
        raise ValueError(f"w01={w01}, box={box}: the ratio must be positive, and 0 <= lo < hi, M >= 0")
    a, b, c = (Fraction(v) for v in values)
    if a == b:
        return None
    if b < a:
        a, b, c = -a, -b, -c
    delta, g = b - a, c - (r * a + b) / (1 + r)
    if g == 0 or noise == 0:
        return Fraction(-1)
    if g < 0:
        return noise * (r * (a - c) + (b - c)) / delta
    least = noise * (g * ((1 + r) * (hi - 1) + 1) / delta - r / (1 + r))
    if lo == 0:
        return Fraction(-1) if least < 0 else None
    return least / lo


def separates(ratios: tuple[Number, Number], values: tuple[Number, Number, Number], box: tuple[int, int, int]) -> bool:
    """Whether a head with ratios (w01, w02) and values (v_0, v_1, v_2) separates the box (lo, hi, M), exactly.

    Claim: H-2 (ours), in rationals.
    Raises: ValueError for ratios that are not positive, or a box without n1 > n0.

    >>> separates((1, 11), (-1, 1, 3), (10, 20, 1)), separates((1, 1), (-1, 1, 3), (10, 20, 200))
    (True, False)
    """
    if not ratios[1] > 0:
        raise ValueError(f"ratios={ratios}: must be positive")
    least = least_w02(ratios[0], values, box)
    return least is not None and ratios[1] > least


def separates_everything(values: Sequence[Sequence[Number]]) -> bool:
    """Whether a head that attends uniformly separates all of N^3, by its value vectors of 0, 1, 2, BOS and "=".

    With s_t = w . v_t + b the score times the normaliser is s_BOS + s_= + n0 s_0 + n1 s_1 + n2 s_2. It is positive
    exactly where n1 > n0 if and only if it is a positive multiple of n1 - n0 + kappa with -1 < kappa <= 0. The first
    three equations are linear in (w, b); kappa is one number on their solutions, or any.

    Claim: H-1 (ours), in rationals.

    >>> separates_everything([[-1], [1], [0], [0], [0]]), separates_everything([[-1], [1], [1], [0], [0]])
    (True, False)
    >>> separates_everything([[-1, 0], [1, 0], [0, 1], [-1, 0], [0, 0]])  # kappa = -1
    False
    """
    rows = [[*(fmpq(*Fraction(x).as_integer_ratio()) for x in vector), fmpq(1)] for vector in values]
    n, constant = len(rows[0]), [a + b for a, b in zip(rows[3], rows[4], strict=True)]
    reduced, rank = fmpq_mat([[*row, due] for row, due in zip(rows[:3], (-1, 1, 0), strict=True)]).rref()
    pivots = [next(j for j in range(n + 1) if reduced[i, j] != 0) for i in range(rank)]
    if n in pivots:
        return False
    if fmpq_mat([*rows[:3], constant]).rref()[1] > rank:
        return True
    kappa = sum((constant[j] * reduced[i, n] for i, j in enumerate(pivots)), fmpq(0))
    return bool(-1 < kappa <= 0)


def latex() -> dict[str, str]:
    """The formulas of this page as LaTeX, by name.

    >>> sorted(latex())
    ['balance', 'least_lo_w02_above', 'least_w02_below']
    """
    import sympy as sp

    formulas = {"balance": balance(), "least_w02_below": least_w02_below(), "least_lo_w02_above": least_lo_w02_above()}
    return {name: sp.latex(formula) for name, formula in formulas.items()}
