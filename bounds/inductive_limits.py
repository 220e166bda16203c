"""How long one scalar counts modulo m, and the first two lengths that one rounded reciprocal confuses."""

from __future__ import annotations

import sympy as sp

m, s, p = sp.symbols("m s p", integer=True, positive=True)


def longest() -> sp.Expr:
    """N(m, s): the longest modular-m string where each logit difference changes its sign at most s times.

    Claim: C-I5 (ours). On t = 1..N the right classes t mod m take turns. Of two classes that are right u and v times,
    right by turns, the difference has u + v - 1 sign changes. The two most frequent classes of N = q m + r occur
    2q, 2q + 1 or 2q + 2 times for r = 0, r = 1 or r >= 2. So s = 2k - 1 allows q <= k, r = 0, and s = 2k allows r = 1.

    >>> [longest().subs({m: 10, s: changes}) for changes in (1, 2, 3, 19)]
    [10, 11, 20, 100]
    """
    return sp.Piecewise((m * (s + 1) / 2, sp.Eq(sp.Mod(s, 2), 1)), (m * s / 2 + 1, True))


def longest_with_changes(modulus: int, changes: int) -> int:
    """N(m, s) of whole numbers.

    >>> longest_with_changes(4, 5), longest_with_changes(4, 6)
    (12, 13)
    """
    _check(modulus=modulus, changes=changes)
    return modulus * (changes + 1) // 2 if changes % 2 else modulus * changes // 2 + 1


def longest_with_neurons(modulus: int, neurons: int) -> int:
    """N(m, p + 1): p ReLU neurons on one scalar bend each logit difference p times, so p + 1 sign changes at most.

    Claim: C-I5 (ours). The scalar is monotone in the length and reaches the neurons and the readout affinely.

    >>> [longest_with_neurons(10, neurons) for neurons in (0, 8, 18, 198)]
    [10, 50, 100, 1000]
    """
    return longest_with_changes(modulus, neurons + 1)


def fewest_neurons(modulus: int, length: int) -> int:
    """The least p with N(m, p + 1) >= length.

    >>> [fewest_neurons(10, length) for length in (10, 50, 100, 101, 102, 1000)]
    [0, 8, 18, 19, 20, 198]
    """
    _check(modulus=modulus, changes=1)
    if length < 1:
        raise ValueError(f"length={length}: must be at least 1")
    teeth, rest = divmod(length - 1, modulus)  # whole teeth before the last one, which holds rest + 1 lengths
    return 0 if not teeth else 2 * teeth - (rest == 0)


def first_equal_reciprocals(bits: int) -> int:
    """The first n for which 1/n and 1/(n + 1), rounded to nearest with so many significand bits, are equal.

    Claim: C-I6 (ours). In the binade 2^e < n <= 2^(e+1) the spacing of reciprocals is 2^-(e + bits), so that
    n (n + 1) > 2^(e + bits) is necessary, which e = bits - 1 is the first to allow. From there on f(n) = 2^(e + bits)/n
    falls by less than 1 a step, so round(f(n)) + n never falls, and rises where two neighbours are equal: bisection.

    >>> [first_equal_reciprocals(bits) for bits in (8, 11, 24)]
    [190, 1464, 11864338]
    """
    if bits < 3:
        raise ValueError(f"bits={bits}: must be at least 3")
    e = bits - 1
    scale = 1 << (e + bits)

    def level(n: int) -> int:
        return _nearest(scale, n) + n

    low = _root(scale)  # n (n + 1) <= 2^(e + bits) below: the reciprocals differ
    high = 1 << bits
    start = level(low)
    if level(high) == start:
        raise AssertionError("the last two of a binade are equal at the latest")
    while high - low > 1:
        middle = (low + high) // 2
        if level(middle) == start:
            low = middle
        else:
            high = middle
    return low


def _nearest(a: int, n: int) -> int:
    """a / n rounded to the nearest integer, ties to even."""
    quotient, rest = divmod(a, n)
    return quotient + (2 * rest > n or (2 * rest == n and quotient % 2 == 1))


def _root(a: int) -> int:
    """The least n with n (n + 1) > a."""
    from math import isqrt

    n = isqrt(a)
    return n if n * (n + 1) > a else n + 1


def _check(*, modulus: int, changes: int) -> None:
    if modulus < 2:
        raise ValueError(f"modulus={modulus}: must be at least 2")
    if changes < 1:
        raise ValueError(f"changes={changes}: must be at least 1")
