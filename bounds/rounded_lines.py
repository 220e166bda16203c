"""How many number words a readout by lines tells apart in p bits: a number that any order of rounding allows, and one
that rounding each operation does not.

The built decoder of C-T1 without LayerNorm: over N = n + 1 tokens its head computes w, the share 1/N rounded, and
t = 1 + (k - 1 - c) w, with a rounding each; the logits are j t - (j^2/2) w, where j and K = k + n - c count from c, the
centre of the lines. J is the largest |j|.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt


def largest_right(bits: int, *, is_centred: bool) -> int:
    """The largest M with every k a^n, k + n <= M, shown to be right in any order, fused or not; 0 for none.

    In units of w, t is within a = u ((M/(1 - u) + J)(1 + u) + J) of K. A logit is a sum of two rounded products: its
    error is at most u (1 + u) (2 J^2 + 2 J a) at j = K, and a^2/2 u (1 + u) more at its neighbours, whose lines are
    1/2 - a below. Lines further off are lower by more than their errors grow. So all is right where
    1/2 - a > u (1 + u) (4 J^2 + 4 J a + a^2/2): about M^2 < 2^(p-1) with centred lines, M^2 < 2^(p-3) with plain ones.
    Claim: C-I6 (ours).
    Raises: ValueError for fewer than 2 bits.

    >>> [largest_right(bits, is_centred=True) for bits in (8, 11, 24)]
    [10, 30, 2894]
    >>> [largest_right(bits, is_centred=False) for bits in (8, 11, 24)]
    [5, 15, 1447]
    """
    _check(bits)
    low, high = 0, 2 ** (bits + 1)
    while high - low > 1:
        M = (low + high) // 2
        low, high = (M, high) if slack(M, bits, is_centred=is_centred) > 0 else (low, M)
    return low


def slack(M: int, bits: int, *, is_centred: bool) -> Fraction:
    """A lower bound on the margins in units of w: positive where M number words are told apart in so many bits.

    >>> slack(100, 24, is_centred=True) > Fraction(49, 100)
    True
    """
    u, J = Fraction(1, 2**bits), farthest(M, is_centred=is_centred)
    a = u * ((M / (1 - u) + J) * (1 + u) + J)
    return Fraction(1, 2) - a - u * (1 + u) * (4 * J * J + 4 * J * a + a * a / 2)


def farthest(M: int, *, is_centred: bool) -> int:
    """J, the largest |j| of the lines of the numbers 0..M, through 0 or through M // 2.

    >>> farthest(9, is_centred=True), farthest(9, is_centred=False)
    (5, 9)
    """
    return M - M // 2 if is_centred else M


def first_wrong(bits: int, *, is_centred: bool) -> int:
    """The least M, and all beyond, for which some number word alone is a tie where each operation is rounded.

    Let K be odd and K^2 between 2^p and 2^(p+1). With n = 0, w = 1 and t = K are exact. K^2 is halfway between two
    numbers and goes to the even one, K^2 - 1; so does K^2/2, to (K^2 - 1)/2. The logit of K is then (K^2 - 1)/2, which
    (K - 1) K - (K - 1)^2/2 is too, without rounding: the line of K is no higher than that of K - 1.
    Claim: C-I6 (ours).
    Raises: ValueError for fewer than 5 bits, where no such K need exist.

    >>> [first_wrong(bits, is_centred=True) for bits in (8, 11, 24)]
    [33, 93, 8193]
    >>> [first_wrong(bits, is_centred=False) for bits in (8, 11, 24)]
    [17, 47, 4097]
    """
    _check(bits, least=5)
    K = isqrt(2**bits) + 1
    K += 1 - K % 2
    return 2 * K - 1 if is_centred else K


def _check(bits: int, least: int = 2) -> None:
    if bits < least:
        raise ValueError(f"bits={bits}: must be at least {least}")
