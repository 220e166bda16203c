"""What float64 rounds away where error bounds are computed: gamma_n, and every constant that covers it, derived once.

Float64 rounds to nearest: one operation without underflow is off by at most U relative to its exact result, and a
chain of n operations on numbers of one sign by a factor of at most (1 + U)^n <= 1 + gamma_n. So a bound that is built
from positive terms by n operations is safe once it is multiplied by 1 + gamma_n. The factors below are far larger than
that for the number of operations that they stand for; which is taken where only says how many operations there are.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

U = 2.0**-53  # the unit round-off of float64
ENLARGE = 1 + 2.0**-48  # 2^-48 = 32 U > gamma_30: up to 30 operations on a radius
ENLARGE_LONG = 1 + 2.0**-40  # 2^-40 = 8192 U > gamma_4000: up to 4000 operations on positive numbers
INFLATION = 1 + 2.0**-30  # 2^-30 = 2^23 U: sums of up to 2^22 positive terms, expm1, log1p and exp among the operations
OF_FEW = 2.0**-50  # 8 U > gamma_7: up to 7 operations, relative to the sum of the absolute values that go in
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
