"""Single operations on numbers of a format, each rounded once, in whole numbers (docs/checker.md)."""

import math

from flint import arb, ctx

from verify.checker.formats import BinaryFormat, scaled
from verify.checker.reading import NOT_CHECKABLE, require

MOST_OPERATIONS = 20_000_000


def quotient(n: int, d: int) -> tuple[int, int]:
    """A number over a power of two on the same side as n / d of all that 53 bits can tell apart."""
    k = max(0, d.bit_length() - n.bit_length() + 60)
    q, rest = divmod(n << k, d)
    return 2 * q + (rest > 0), k + 1


def power(x: float) -> tuple[int, int]:
    """The same of e^x, which for no x other than 0 is a fraction."""
    if x < -2000:
        return 1, 4000  # less than all formats' smallest numbers
    k, bits = 64 + max(0, int(-1.5 * x)), 256
    while True:
        with ctx.workprec(bits):
            below = (arb(x).exp() * arb(2) ** k).floor().unique_fmpz()
        if below is not None:
            return 2 * int(below) + 1, k + 1
        bits *= 2


class RoundedOperations:
    """Sums, products, quotients and e^x, rounded to nearest in the inner format, subnormal results flushed or kept."""

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat, flush: bool) -> None:
        self.fmt, self.inner, self.flush, self.left = fmt, inner, flush, MOST_OPERATIONS

    def rounded(self, n: int, k: int, fmt: BinaryFormat) -> float:
        """n / 2^k, rounded once."""
        found = fmt.closest(n, k)
        return 0.0 if self.flush and abs(found) < 2.0**fmt.least else found

    def add(self, x: float, y: float) -> float:
        return self.fused(x, 1.0, y)

    def times(self, x: float, y: float) -> float:
        return self.fused(x, y, 0.0)

    def fused(self, x: float, y: float, z: float) -> float:
        """x y + z."""
        self.left -= 1
        require(self.left > 0, "the evaluation is too long to be run again", NOT_CHECKABLE)
        if not all(map(math.isfinite, (x, y, z))):
            return z if math.isfinite(x) and math.isfinite(y) else x * y + z  # a finite product moves no infinity
        (a, i), (b, j), (c, k) = scaled(x), scaled(y), scaled(z)
        most = max(i + j, k)
        return self.rounded((a * b << most - i - j) + (c << most - k), most, self.inner)

    def divide(self, x: float, y: float) -> float:
        if not (math.isfinite(x) and math.isfinite(y)):
            return x / y
        (a, i), (b, j) = scaled(abs(x)), scaled(abs(y))
        found = self.rounded(*quotient(a << j, b << i), self.inner)
        return -found if (x < 0) != (y < 0) else found

    def root(self, x: float) -> float:
        """The root of a number that is not below 0."""
        n, k = scaled(x)
        wide = n << 240 + k % 2
        below = math.isqrt(wide)
        return self.rounded(2 * below + (below**2 != wide), 121 + (k + k % 2) // 2, self.inner)

    def exp(self, x: float) -> float:
        if x == 0 or x > 2000 or not math.isfinite(x):
            return 1.0 if x == 0 else math.inf if x > 0 else 0.0 if x < 0 else x
        return self.rounded(*power(x), self.inner)

    def tensor(self, x: float) -> float:
        """A result as it is stored."""
        return self.rounded(*scaled(x), self.fmt) if math.isfinite(x) else x
