"""The exact ceilings of accuracy under document C's laws, as fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial, gcd

from flint import fmpz_poly


def constant_answer(labels: Iterable[int]) -> Fraction:
    """The share of positions that the best constant answer gets right.

    Claim: C-I1 (ours).

    >>> constant_answer(range(1, 51)), constant_answer((t - 1) % 10 for t in range(1, 52))
    (Fraction(1, 50), Fraction(2, 17))
    """
    counts = Counter(labels)
    return Fraction(max(counts.values()), sum(counts.values()))


def lengths_that_print(percent: str, modulus: int | None, longest: int = 200) -> tuple[int, ...]:
    """The lengths at which the best constant answer, in percent and rounded as printed, is this number.

    >>> lengths_that_print("2.0", None), lengths_that_print("11.8", 10)
    ((49, 50, 51), (17, 34, 51))
    """
    digits = len(percent.partition(".")[2])
    printed, half = Fraction(percent), Fraction(1, 2 * 10**digits)
    found = (n for n in range(1, longest + 1) if abs(100 * _homogeneous(n, modulus) - printed) <= half)
    return tuple(found)


def _homogeneous(n: int, modulus: int | None) -> Fraction:
    return constant_answer((t - 1) % modulus if modulus else t for t in range(1, n + 1))


def equal_prefix(K: int, C: int, n: int, modulus: int | None = None) -> Fraction:
    """The ceiling of a model that answers alike on a prefix a^r, whatever r is.

    Law: K counts uniform on 0..C given that their sum is n, all arrangements alike.
    Of r positions with one answer at most ceil(r / m) are right, one if there is no modulus.
    Claim: C-I2 (ours).

    >>> print(round(float(100 * equal_prefix(10, 10, 50)), 4), round(float(100 * equal_prefix(10, 10, 64, 4)), 4))
    99.7247 99.8146
    """
    _check(K, C, n)
    others, total = _tuples(K - 1, C), _tuples(K, C)[n]
    ways = {c: int(others[n - c]) for c in range(min(C, n) + 1) if n - c <= others.degree()}
    wrong = Fraction(0)
    for r in _wrong_positions(min(C, n), modulus):  # c tokens of n are the first r in C(n - r, c - r) of C(n, c) ways
        wrong += sum((Fraction(w * comb(n - r, c - r), comb(n, c)) for c, w in ways.items() if c >= r), Fraction(0))
    return 1 - K * wrong / (int(total) * n)


def equal_prefix_independent(K: int, n: int, modulus: int | None = None) -> Fraction:
    """The same ceiling where each token is one of K types, drawn alone.

    >>> print(round(float(100 * equal_prefix_independent(10, 50)), 4))
    99.7778
    """
    wrong = sum((Fraction(1, K ** (r - 1)) for r in _wrong_positions(n, modulus)), Fraction(0))
    return 1 - wrong / n


def _wrong_positions(longest: int, modulus: int | None) -> Iterator[int]:
    """The lengths r of a prefix of equal tokens whose last position adds nothing to what is right."""
    return (r for r in range(2, longest + 1) if modulus is None or r % modulus != 1 % modulus)


def proportions(K: int, C: int, n: int, first: int = 1, modulus: int | None = None) -> Fraction:
    """The ceiling of a model that sees the current token and the proportions of the types so far, and nothing else.

    Law: as in `equal_prefix`; positions first..n are judged. Count vectors on one ray through 0 get one answer.
    Claim: C-I3 (ours).

    >>> proportions(1, 4, 4), proportions(2, 2, 4)
    (Fraction(1, 4), Fraction(3, 4))
    """
    _check(K, C, n)
    if not 1 <= first <= n:
        raise ValueError(f"first={first}: must be from 1 to n={n}")
    total, lost = int(_tuples(K, C)[n]), Fraction(0)
    for u in _rays(K, C // 2, n // 2):
        shares = {g: _share(tuple(g * x for x in u), C, n) for g in range(1, C // u[0] + 1) if first <= g * sum(u) <= n}
        lost += _orders(u, K) * sum((_lost(part, u, shares, modulus) for part in u if part), Fraction(0))
    return 1 - lost / (total * (n - first + 1))


def _lost(part: int, u: tuple[int, ...], shares: dict[int, Fraction], modulus: int | None) -> Fraction:
    """What one answer for all multiples of u loses where the current token has `part` of u."""
    by_label: dict[int, Fraction] = {}
    for g, share in shares.items():
        label = g * part if modulus is None else (g * part - 1) % modulus
        by_label[label] = by_label.get(label, Fraction(0)) + share
    if not by_label:
        return Fraction(0)
    return Fraction(part, sum(u)) * (sum(by_label.values(), Fraction(0)) - max(by_label.values()))


def _share(v: tuple[int, ...], C: int, n: int) -> Fraction:
    """The number of count vectors c times the chance that the first |v| tokens have counts v, summed over c."""
    product = fmpz_poly([1])
    for count in v:
        product *= _holding(count, C)
    return Fraction(int(product[n]), comb(n, sum(v)))


def _rays(K: int, largest: int, most: int) -> Iterator[tuple[int, ...]]:
    """Falling tuples of K parts up to `largest`, of sum 1..most, without a common divisor."""

    def parts(left: int, top: int, places: int) -> Iterator[tuple[int, ...]]:
        if not places:
            yield ()
            return
        for x in range(min(top, left), -1, -1):
            for rest in parts(left - x, x, places - 1):
                yield (x, *rest)

    return (u for u in parts(most, largest, K) if gcd(*u) == 1)


def _orders(u: tuple[int, ...], K: int) -> int:
    found = factorial(K)
    for repeated in Counter(u).values():
        found //= factorial(repeated)
    return found


@lru_cache(maxsize=64)
def _holding(count: int, C: int) -> fmpz_poly:
    """sum over c = count..C of binomial(c, count) x^c."""
    return fmpz_poly([comb(c, count) for c in range(C + 1)])


def _tuples(K: int, C: int) -> fmpz_poly:
    """Its coefficient of x^s is the number of K-tuples from 0..C with sum s."""
    return fmpz_poly([1] * (C + 1)) ** K


def _check(K: int, C: int, n: int) -> None:
    if K < 1 or C < 1 or not 1 <= n <= K * C:
        raise ValueError(f"K={K}, C={C}, n={n}: counts up to C of K types reach every sum from 1 to K C")
