"""What float64 rounds away where error bounds are computed: gamma_n, and every constant that covers it, derived once.

Float64 rounds to nearest. The one model of rounding in this house is

    fl(x op y) = (x op y) (1 + e) + f,   |e| <= U,   |f| <= LEAST / 2,   e f = 0,

where f is 0 for sums and differences, which never underflow inexactly, and where the result is a normal number. So a
chain of n operations on numbers of one sign is off by a factor of at most (1 + U)^n <= 1 + gamma_n, and by LEAST / 2
for each product, quotient and root in it (times what multiplies it afterwards). A bound that is built from positive
terms by n operations is safe once it is multiplied by 1 + gamma_n and the absolute term is added. The factors below are
far larger than that for the number of operations that they stand for; which is taken where only says how many
operations there are. No bound may leave the absolute term out because numbers "are never that small".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Place = (
    SupportsIndex
    | slice
    | EllipsisType
    | None
    | NDArray[np.intp]
    | NDArray[np.int64]
    | NDArray[np.bool_]
    | Sequence[int]
)
Index = Place | tuple[Place, ...]

U = 2.0**-53  # the unit round-off of float64
LEAST = 2.0**-1074  # the smallest positive number of float64: twice what one product, quotient or root can underflow by
NORMAL = 2.0**-1022  # the smallest normal number: a result of at least this size has not underflowed
FAINT = 64 * LEAST  # what up to 128 products, quotients and roots lose to underflow, none of them multiplied up since
LOST_BY_MANY = 2.0**-1060  # 2^14 LEAST: as FAINT, up to 2^15 of them, in units of what multiplies them afterwards
LOST = 2.0**-1000  # far more than underflow takes from a result whose terms are multiplied up by 2^50 at most
ENLARGE = 1 + 2.0**-48  # 2^-48 = 32 U > gamma_30: up to 30 operations on a radius
OF_FEW = 2.0**-50  # 8 U > gamma_7: up to 7 operations, relative to the sum of the absolute values that go in
OF_MANY = 2.0**-40  # 8192 U > gamma_4000: as OF_FEW, up to 4000 operations; absolutely, of numbers of size 1 at most
OF_SUMS = 2.0**-30  # 2^23 U: sums of up to 2^22 positive terms, expm1, log1p and exp among the operations
ENLARGE_LONG = 1 + OF_MANY  # an upper bound by positive numbers; a lower one is multiplied by 1 - OF_MANY
INFLATION = 1 + OF_SUMS  # as ENLARGE_LONG
LARGEST_NU = 0.25  # n u beyond which gamma_n is no useful bound, and taken as infinite


@overload
def gamma(n: float, u: float = U) -> float: ...


@overload
def gamma(n: Array, u: float = U) -> Array: ...


def gamma(n: float | Array, u: float = U) -> float | Array:
    """Bounds the relative error of n roundings, each of unit round-off u: n u / (1 - n u), a little enlarged.

    By induction (1 + u)^n - 1 <= n u / (1 - n u) for n u < 1, and 1 - (1 + u)^-n and (1 - u)^-n - 1 are no larger, so
    that it covers products, quotients, and sums in any order relative to the sum of absolute values. Its own three
    operations are within ENLARGE. Infinite once n u > 1/4.

    >>> gamma(4) >= (1 + U)**4 - 1, gamma(1e16), gamma(np.array([1.0, 200.0]), 2.0**-8).round(4).tolist()
    (True, inf, [0.0039, inf])
    """
    if not isinstance(n, np.ndarray):
        return n * u / (1 - n * u) * ENLARGE if n * u <= LARGEST_NU else math.inf
    nu = np.minimum(n * u, LARGEST_NU)
    return np.where(n * u > LARGEST_NU, np.inf, nu / (1 - nu) * ENLARGE)


def lost_to_underflow(x: Array, y: Array) -> Array:
    """Bounds |f| of the products x y, entry by entry: LEAST where one may have underflowed, 0 where none can have.

    Proof. A product by 0 is exact. One whose computed size is above NORMAL was rounded as a normal number, since
    rounding is monotone and NORMAL is a number.

    >>> lost_to_underflow(np.array([0.0, 1e-200, 3.0]), np.array([1e-300, 1e-200, 0.1])).tolist()
    [0.0, 5e-324, 0.0]
    """
    may = (np.abs(x * y) <= NORMAL) & (x != 0) & (y != 0)
    return np.where(may, LEAST, 0.0)


def lost_in_a_product(x: Array, y: Array) -> float:
    """Bounds what one entry of the matrix product x @ y loses to underflow: LEAST for each term, 0 where none can.

    Proof. A term that is not 0 is at least the product of the smallest sizes that are not 0 in x and in y. Where that
    is above NORMAL no term underflows, and sums never do.

    >>> [lost_in_a_product(np.eye(3), np.full((3, 2), size)) / LEAST for size in (1e-320, 1.0)]
    [3.0, 0.0]
    """
    least = [float(np.abs(z).min(initial=np.inf, where=z != 0)) for z in (x, y)]
    return 0.0 if least[0] * least[1] > NORMAL else x.shape[-1] * LEAST


def quotient_below(x: Array, y: Array) -> Array:
    """A lower bound on x / y, where x is at least 0, y above it, and one of them off by U of itself; at least 0.

    Proof. Five roundings are within 1 - 8 U, and where the quotient is no normal number it is off by at most LEAST / 2.
    """
    return np.maximum(x / y * (1 - 4 * U) - LEAST, 0.0)


def quotient_above(x: Array, y: Array) -> Array:
    """An upper bound on x / y, as `quotient_below`; 0 where x is."""
    return x / y * (1 + 4 * U) + np.where(x == 0, 0.0, LEAST)


def underflow(is_some: np.ndarray | np.bool, operations: int) -> np.ndarray:
    """What so many products, quotients and roots lose to underflow in float64, none of them multiplied up since.

    Nothing where not `is_some`: operations on zeros are exact. The bound is twice what they lose, so that it holds for
    as many more on the way to a bound on the error. The bits of the float k LEAST are those of the whole number k,
    for k up to 2^52, and a product of whole numbers takes a hundredth of the time of one that is subnormal.
    """
    return np.asarray(np.asarray(is_some, np.int64) * operations).view(np.float64)
