"""How many dimensions even readings leave free: the kernel that counting tolerates, in exact rationals (W-18).

Counting 1 and 2 apart makes u_t = -(sum over s != t of n_ts u_s) with |n_ts| < 1/(2L - 3) for every u in a space U of
vectors that sum to 0. So (2L - 2) max|u| < sum|u| on U, and this bounds the dimension m of U.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

FINENESS = 256  # steps in which the point of contact of the quartic is tried


@dataclass(frozen=True)
class Quartic:
    """An even quartic above |y| on [0, most], which bounds the sum of a projection's entries.

    y <= a + b y^2 - c y^4 on [0, most], since a + b y^2 - c y^4 - y = (y - contact)^2 (e - 2 c contact y - c y^2),
    whose second factor falls and is not negative at `most`.
    """

    contact: Fraction
    most: Fraction
    c: Fraction

    @property
    def e(self) -> Fraction:
        return 1 / (2 * self.contact) - self.c * self.contact**2

    @property
    def a(self) -> Fraction:
        return self.contact**2 * self.e

    @property
    def b(self) -> Fraction:
        return self.e + 3 * self.c * self.contact**2

    @property
    def is_above(self) -> bool:
        """Whether the second factor is not negative on [0, most]: it falls there, so its end decides."""
        return self.c >= 0 and self.e - 2 * self.c * self.contact * self.most - self.c * self.most**2 >= 0

    def largest_sum(self, T: int, m: int) -> Fraction:
        """An upper bound on the sum of |R_ts| for projections R of rank m in R^T whose diagonal is at most `most`.

        The diagonal sums to m, the squares to m, the squares D2 of the diagonal to at least m^2/T; the fourth powers
        to at least 3 D2^2/(m (m + 2)), and those of the diagonal to at most most^2 D2. Off the diagonal the quartic
        bounds each entry; the result falls as D2 grows, so D2 = m^2/T bounds all.
        """
        D2 = Fraction(m * m, T)
        fourths = Fraction(3, m * (m + 2)) * D2**2 - self.most**2 * D2
        return m + T * (T - 1) * self.a + self.b * (m - D2) - self.c * fourths


def most_diagonal(T: int, L: int) -> Fraction:
    """What every diagonal entry of the projection onto U stays below: (T-1)/(T-1 + (2L-3)^2).

    u = R e_t has u_t = R_tt and sum of squares R_tt; (2L-3) u_t < sum over s != t of |u_s|, by Cauchy-Schwarz at most
    the root of (T-1) (R_tt - R_tt^2).

    >>> most_diagonal(32, 10)
    Fraction(31, 320)
    """
    return Fraction(T - 1, T - 1 + (2 * L - 3) ** 2)


def quartic(T: int, L: int, m: int) -> Quartic:
    """The quartic with the smallest bound on the sum, over points of contact on a grid.

    >>> found = quartic(32, 10, 3)
    >>> found.is_above, float(found.largest_sum(32, 3)) < 54
    (True, True)
    """
    most = most_diagonal(T, L)
    contacts = [Fraction(i, FINENESS) * most for i in range(1, FINENESS)]
    tried = [Quartic(y, most, c) for y in contacts for c in (Fraction(0), 1 / (2 * y * (y + most) ** 2))]
    return min(tried, key=lambda one: one.largest_sum(T, m))


def is_excluded(T: int, L: int, m: int) -> bool:
    """Whether no m-dimensional U is possible: by the trace, by balance (m = 1), or by a quartic.

    The diagonal of the projection sums to m. For m = 1, u sums to 0, so sum|u| <= 2 floor(T/2) max|u|. Else the sum of
    |R_ts| is above (2L-2) m, as each row's is above (2L-2) R_tt.

    >>> is_excluded(32, 10, 3), is_excluded(32, 10, 2), is_excluded(5, 3, 1)
    (True, False, True)
    """
    if m >= T * most_diagonal(T, L) or L - 1 >= T // 2:
        return True
    return m > 1 and quartic(T, L, m).largest_sum(T, m) <= (2 * L - 2) * m


def widest_kernel(T: int, L: int) -> int:
    """The largest dimension m of U that is not excluded; larger ones hold an excluded one.

    Claim: W-18.

    >>> [widest_kernel(T, L) for T, L in ((32, 10), (32, 17), (16, 5), (32, 2), (32, 1))]
    [2, 0, 3, 30, 31]
    """
    if L < 2:
        return T - 1
    low, high = 0, T - 1  # 0 is possible, T - 1 the dimension of all vectors that sum to 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if is_excluded(T, L, middle) else (middle, high)
    return low


def fewest_in_the_regime(model: str, T: int, L: int) -> int:
    """The least d for lin, lin+sftm, dot and bos whose neurons keep their sides on counts 1 and 2, or count by one.

    Claim: W-18: rank d in lin, quadratic forms of rank d(d+1)/2 in dot and bos.

    >>> fewest_in_the_regime("lin", 32, 10), fewest_in_the_regime("dot", 32, 10), fewest_in_the_regime("bos", 16, 5)
    (29, 8, 5)
    """
    rank = T - 1 - widest_kernel(T, L)
    if model in ("lin", "lin+sftm"):
        return max(1, rank)
    d = 1
    while d * (d + 1) // 2 < rank:
        d += 1
    return d
