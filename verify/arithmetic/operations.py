"""What one operation of a reading may be off by, as numbers: of balls of tensors and of rows of arrays alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify.arithmetic.formats import Format
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LOST, gamma

ULPS = 8  # a dtype's elementary functions are within this many u of their value (GELU and SiLU: of |x|)


@dataclass(frozen=True)
class Operations:
    """Float64's own rounding, and in a dtype the rounding that the reading allows; `stored` is None in real arithmetic.

    >>> Operations().sums(10), Operations().is_real
    (0.0, True)
    """

    stored: Format | None = None
    accumulate: Format | None = None

    @property
    def is_real(self) -> bool:
        return self.stored is None

    @property
    def u(self) -> float:
        """A stored result's relative error in the dtype: rounded once, or kept with 2p + 2 bits and rounded later."""
        if self.stored is None:
            return 0.0
        return self.stored.u + (1 + self.stored.u) * 2.0 ** -(2 * self.stored.p + 2)

    def by_root(self, ulps: int, roundings: int) -> float:
        """The relative error of what is divided by a root within `ulps` u of its value; infinite where that may be 0.

        Proof. A divisor off by t <= ulps u leaves 1 / (1 - t). What is rounded under the root counts once, the root
        itself twice, as 1 / (1 - u) <= (1 + u)^2, and what follows once each.
        """
        off = ulps * self.u
        return ((1 + self.u) ** roundings / (1 - off) - 1) * ENLARGE if off < 1 else math.inf

    @property
    def tiny(self) -> float:
        """What one result can lose by underflow."""
        return LOST if self.stored is None else self.stored.tiny + LOST

    def sums(self, k: int) -> float:
        """The relative error of the dtype's sums of k products, in any order, fused or not, stored afterwards."""
        if self.stored is None:
            return 0.0
        inner = self.accumulate or self.stored
        kept = (k + 2) * 2.0 ** -(2 * inner.p + 2)  # results kept wider and rounded later
        return gamma(k + 2, inner.u) * (1 + kept) + kept + (0.0 if self.accumulate is None else 2 * self.u)

    def off_in_mean(self, k: int) -> float:
        """The relative error of the dtype's mean of k numbers, of the mean of their absolute values.

        In steps, where sums are in a wider format, the sum, 1/k and their product are rounded to the dtype: once more
        than `sums` counts.
        """
        return self.sums(k + 2) + (0.0 if self.accumulate is None else self.u)

    def off_in_variance(self, k: int) -> float:
        """How far a variance of k numbers is off in a dtype, as a share of the mean of their squares.

        Sums are off by gamma_(4k+16), and by twice gamma_(2k+8). In steps, where they are in a wider format, results
        are rounded that its sums do not count. Of one pass these are a square, the sum of all, and its quotient; the
        mean's sum and quotient, twice each in its square, which is rounded itself; the difference, and what corrects
        the divisor: ten. Squares and mean may read their numbers in two forms, each squared: four more.
        """
        in_steps = 0.0 if self.accumulate is None else ((1 + self.u) ** 14 - 1) * ENLARGE
        return min(self.sums(4 * k + 16), 2 * self.sums(2 * k + 8)) + in_steps

    def own_sums(self, k: int) -> float:
        """Float64's error and the dtype's together."""
        return gamma(k + 4) + self.sums(k)

    def lost_in_sums(self, k: int) -> float:
        """What underflow can take away from a sum of k products: each product, and each partial sum, once."""
        return 2 * (k + 2) * self.tiny * (1 + min(self.sums(k), 1e300))
