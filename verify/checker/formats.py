"""Floating point formats for the checker: numbers rounded once, and how far sums in any order can be off."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from flint import arb, arb_mat

from verify.checker.reading import FAILS, NOT_CHECKABLE, require

NAMED = {"float64": (53, -1022, 1023), "float32": (24, -126, 127), "bfloat16": (8, -126, 127), "float16": (11, -14, 15)}
BESIDE = 2000  # bits below a number: what is so near to a half-way case is rounded to one side of it
ULPS = 4  # unit round-offs of a computed function: two units in the last place, which are at most so many


@dataclass(frozen=True)
class BinaryFormat:
    """p significand bits, exponents from `least` to `most`; factors of matrix products may have fewer bits."""

    p: int
    least: int
    most: int
    factors: int | None = None
    keeps_subnormals: bool = False

    @property
    def of_one_run(self) -> "BinaryFormat":
        """The format in one evaluation, which may keep stored numbers below the normal ones."""
        return replace(self, keeps_subnormals=True)

    @cached_property
    def u(self) -> arb:
        return arb(2) ** -self.p

    @cached_property
    def tiny(self) -> arb:
        """The smallest normal number, below which results may be flushed to zero."""
        return arb(2) ** self.least

    @cached_property
    def largest(self) -> arb:
        return arb(2) ** (self.most + 1) * (1 - self.u)

    def nearest(self, x: float) -> float:
        """Rounds to nearest, ties to even."""
        found = self.closest(*scaled(x))
        is_proof = not self.keeps_subnormals  # a run may well be wrong since a weight is infinite
        require(math.isfinite(found), f"a weight of {x} overflows", FAILS if is_proof else NOT_CHECKABLE)
        return found

    def closest(self, n: int, k: int) -> float:
        """n / 2^k rounded to nearest, ties to even; infinity beyond the largest number."""
        size = abs(n)
        shift = max(size.bit_length() - 1 - k, self.least) - self.p + 1 + k  # of the last bit that is kept
        if shift > 0:
            steps, rest = divmod(size, 1 << shift)
            half = 1 << shift - 1
            size, k = steps + (rest > half or (rest == half and steps % 2 == 1)), k - shift
        found = math.ldexp(size, -k) if size.bit_length() - 1 - k <= self.most else math.inf
        return -found if n < 0 else found

    def of_ball(self, y: arb) -> float | None:
        """What all of a ball is rounded to, None where that does not show."""
        if not y.is_finite():
            return None
        ends = [(int(mantissa), int(exponent)) for mantissa, exponent in (y.lower().man_exp(), y.upper().man_exp())]
        low, high = (self.closest(m << max(0, e), max(0, -e)) for m, e in ends)
        return low if low == high else None

    def factor(self, x: float) -> float:
        """A number as a matrix product reads it, rounded to nearest, ties to even."""
        if self.factors is None or not math.isfinite(x):
            return x
        return BinaryFormat(self.factors, self.least, self.most).closest(*scaled(x))

    def as_factor(self, x: float) -> list[float]:
        """What a number may be as a factor: itself, or rounded to fewer bits, half-way cases either way."""
        if self.factors is None or not math.isfinite(x):
            return [x]
        few, (n, k) = BinaryFormat(self.factors, self.least, self.most), scaled(x)
        return [x, *(few.closest((n << BESIDE) + e, k + BESIDE) for e in (-1, 1))]

    def of_weights(self, rows: list[list[float]]) -> list[list[float]]:
        """Weights as they are rounded once; in all evaluations none is subnormal, as those may be flushed or kept."""
        found = [[self.nearest(x) for x in row] for row in rows]
        is_normal = all(x == 0 or abs(x) >= 2.0**self.least for row in found for x in row)
        require(is_normal or self.keeps_subnormals, "a weight is below the smallest normal number", NOT_CHECKABLE)
        return found

    def growth(self, n: int) -> arb:
        """(1 + u)^n - 1: what n roundings do to a term."""
        return (1 + self.u) ** n - 1

    def of_sum(self, size: arb, terms: int, columns: int) -> arb:
        """How far a sum in any order is off whose terms add up to `size` in absolute values.

        Each of n > 1 terms is rounded at most n times, as a product and in n - 1 sums; every result may be flushed.
        """
        growth = self.growth(max(terms, 2))
        return (growth * size + (2 * columns + 2) * self.tiny * (1 + growth)).upper()

    def unit(self, size: arb) -> arb:
        """A unit in the last place of numbers of at most this size."""
        require(size.is_finite(), "a computed number may overflow", NOT_CHECKABLE)
        mantissa, exponent = size.upper().man_exp()
        top = int(exponent) + int(mantissa).bit_length() if mantissa else self.least
        return arb(2) ** (max(top, self.least + 1) - self.p)

    def of_values(self, size: arb) -> arb:
        """How far a function is off whose value is at most `size`: two units in the last place, and half of one where
        it is rounded; or it is flushed."""
        two = ULPS / 2 * self.unit(size)
        return (two + self.unit(size + two) / 2 + self.tiny).upper()

    def of_function(self, size: arb) -> arb:
        """The same by a share of the value, less than 1, so that what is left of a value grows with it."""
        require(self.p > 2, "functions of numbers of 2 bits are not followed", NOT_CHECKABLE)
        return ((ULPS + 1) * self.u * (1 + ULPS * self.u) * size + self.tiny).upper()

    def beyond(self, end: arb, other: arb) -> arb:
        """How far beyond an end any value between both is computed: by a share of the end, or by as much as any is."""
        return self.of_function(abs(end)).min(self.of_values(abs(end).max(abs(other))))

    @cached_property
    def once(self) -> arb:
        """The share by which one operation is off: kept with 2p + 2 bits, rounded, or both."""
        return (1 + self.u) * (1 + self.u**2 / 4) - 1

    def of_result(self, size: arb) -> arb:
        """How far one operation is off."""
        return (self.once * size + self.tiny).upper()

    def apart(self, size: arb) -> arb:
        """How far two readings of a result of at most `size` are apart, one rounded and one kept.

        Of the exact result these are off by u and u^2 / 4 of it, and (u + u^2 / 4) / (1 - u^2 / 4) < u (1 + u).
        """
        return (self.u * (1 + self.u) * size + self.tiny).upper()

    def holds(self, size: arb) -> bool:
        """Whether results of at most this size never overflow."""
        return bool(size <= self.largest)


TF32 = BinaryFormat(*NAMED["float32"], factors=11)


def as_factors(fmt: BinaryFormat, x: arb_mat) -> arb_mat:
    """Balls of numbers as a matrix product reads them: in tf32 rounded to 11 bits, or not at all."""
    return x if fmt.factors is None else arb_mat([[y + arb(0, _rounded(fmt, y)) for y in row] for row in x.table()])


def _rounded(fmt: BinaryFormat, x: arb) -> arb:
    """By how much a factor may differ from a number: nothing where that has few bits."""
    if x.is_exact() and arb(float(x)) == x:
        return abs(x - arb(fmt.factor(float(x)))).upper()
    return ((abs(x) + fmt.tiny) * arb(2) ** -int(fmt.factors or 0)).upper()


def scaled(x: float) -> tuple[int, int]:
    """(n, k) with x = n / 2^k."""
    n, d = x.as_integer_ratio()
    return n, d.bit_length() - 1


def format_of(name: object) -> BinaryFormat | None:
    """A format by its name: "p12" and "12-bit significand" have so many bits and the exponents of float32."""
    if not isinstance(name, str) or name in NAMED:
        return BinaryFormat(*NAMED[name]) if isinstance(name, str) else None
    bits = re.fullmatch("p([1-9][0-9]?)|([1-9][0-9]?)-bit significand", name)
    p = int(bits[1] or bits[2]) if bits else 0
    return BinaryFormat(p, -126, 127) if 2 <= p <= 53 else None


def inner_format(fmt: BinaryFormat, accumulate: object, kept: object) -> BinaryFormat:
    """Inside matrix products and softmax of one run: that of sums, or one of 2p + 2 bits in which results are kept."""
    inner, wider = format_of(accumulate), format_of(kept)
    is_kept = wider is not None and wider.p >= 2 * fmt.p + 2 and wider.least <= fmt.least and wider.most >= fmt.most
    require(kept is None or is_kept and inner is None, "run_as: results are not kept with 2p + 2 bits")
    return wider or inner or fmt


def in_words(name: str) -> str:
    """How assumptions name a format."""
    return f"{name[1:]}-bit significand" if re.fullmatch("p[0-9]+", name) else name


def named(said: Mapping[str, object], *, may_accumulate: bool = False) -> BinaryFormat:
    """The format of a certificate in the reading "dtype, any order". Raises: Refusal for one that is not checked."""
    name, is_one = said.get("precision"), "accumulate" not in said
    require(is_one or may_accumulate, "parameters: sums in a wider format are not checked", NOT_CHECKABLE)
    found = None if "-" in str(name) else format_of(name)
    require(found is not None, f"parameters: the precision {name!r} is not checked", NOT_CHECKABLE)
    assert found is not None
    return found


def of_sums(said: Mapping[str, object], fmt: BinaryFormat) -> BinaryFormat | None:
    """The wider format of sums within matrix products, None where it is that of all."""
    if said.get("accumulate") is None:
        return None
    found = format_of(said["accumulate"])
    is_wider = found is not None and found.p >= fmt.p and found.least <= fmt.least and found.most >= fmt.most
    require(is_wider, f"parameters: sums in {said['accumulate']!r} are not checked", NOT_CHECKABLE)
    return found
