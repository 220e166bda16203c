"""What rounding may do to LayerNorm in a format: its mean, its divisor, and each number (docs/checker.md)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.roundoff import Reach, Roundoff

ULPS = 8  # unit round-offs by which a computed function may be off, GELU and SiLU in |x|


def gamma(n: int, u: arb) -> arb:
    """The share n u / (1 - n u), which is above (1 + u)^n - 1; no number where n u is not below 1."""
    return n * u / (1 - n * u) if n * u < 1 else arb("nan")


class Deviations(NamedTuple):
    """Of a row x: the computed mean is within `off` of `centre`, and 1 / sqrt(variance + eps) is in `inverse`."""

    centre: arb
    off: arb
    inverse: arb
    sizes: list[arb]  # |x| + |mean|


class LayerNormRoundings:
    """Bounds in a format, of which growth(n) is (1 + u)^n - 1."""

    fmt: BinaryFormat
    growth: Callable[[int], arb]
    eps: float | fmpq

    def _hold(self, size: arb) -> None:
        require(self.fmt.holds(size.upper()), "a number may overflow in the format", NOT_CHECKABLE)

    def _spread(self, row: Sequence[arb]) -> Deviations:
        """The mean is within (d + 2) roundings of that of |x|, the variance within 4 d + 16 of that of the squares."""
        d, tiny, sizes = len(row), self.fmt.tiny, [abs(x).upper() for x in row]
        require(bool(self.growth(4 * d + 16) < 0.25), "a LayerNorm is too far off in the format", NOT_CHECKABLE)
        centre, about, squares = sum(row, arb(0)) / d, sum(sizes, arb(0)) / d, sum((y * y for y in sizes), arb(0)) / d
        off = (gamma(d + 2, self.fmt.u) * about + (d + 4) * tiny).upper()
        variance = sum(((x - centre) * (x - centre) for x in row), arb(0)) / d
        variance += arb(0, (gamma(4 * d + 16, self.fmt.u) * squares + 8 * (d + 2) * tiny).upper())
        inner = variance + arb(self.eps)
        inner += arb(0, (self.growth(3) * abs(inner) + 4 * tiny).upper())
        inverse = 1 / inner.sqrt()
        inverse += arb(0, (inverse * (self.growth(2) + ULPS * self.fmt.u * (1 + self.growth(2)))).upper())
        require(bool(inverse > 0), "a variance may be 0 in the format", NOT_CHECKABLE)
        self._hold(4 * (1 + d) * squares + off)
        return Deviations(centre, off, inverse, [y + (abs(centre) + off).upper() for y in sizes])

    def _rounded(self, spread: Deviations, size: arb, weight: arb, bias: arb) -> arb:
        """What rounding (x - mean) / s, times the weight, plus the bias, may do, or x (w / s) + (b - mean w / s).

        Six roundings as a factor, and two of the mean and of 1 / s, which may be read rounded or kept.
        """
        r, w, b = spread.inverse.upper(), abs(weight), abs(bias)
        off = self.growth(8) * size * r * w + self.growth(4) * b
        off += 16 * self.fmt.tiny * (1 + r) * (1 + w) * (1 + size)
        self._hold(4 * (1 + size) * (1 + r) * (1 + w) + b + off)
        return off.upper()


class NormedRows(LayerNormRoundings):
    """Exact rows behind a LayerNorm that a format computes. `norm` are its gain, its bias and its epsilon."""

    def __init__(self, on: Roundoff, norm: Sequence[fmpq_mat]) -> None:
        self.fmt, self.growth = on.fmt, on.fmt.growth
        self.gain, self.bias = (part.entries() for part in norm[:2])
        self.eps = norm[2][0, 0]

    def reach(self, E: fmpq_mat) -> Reach:
        """The exact number and the computed one, but for its last roundings, are in one ball."""
        sizes, errors = list[list[arb]](), list[list[arb]]()
        for row in E.tolist():
            of = self._spread([arb(x) for x in row])
            parts = zip(row, of.sizes, map(arb, self.gain), map(arb, self.bias), strict=True)
            found = [
                ((x - of.centre + arb(0, of.off)) * of.inverse * a + b, self._rounded(of, size, a, b))
                for x, size, a, b in parts
            ]
            sizes.append([(abs(y) + e).upper() for y, e in found])
            errors.append([(2 * y.rad() + e).upper() for y, e in found])
        return Reach(arb_mat(sizes), arb_mat(errors))
