"""The run of whole blocks that keeps every result exactly and rounds factors of matrix products, with 100 digits."""

from __future__ import annotations

from fractions import Fraction

from mpmath import mpf
from oracles import residual_blocks


def plainly_rounded(x, fmt):
    """A fraction rounded to p bits, ties to even, by whole numbers."""
    if x == 0:
        return x
    size, e = abs(x), 0
    while size >= Fraction(2) ** (e + 1):
        e += 1
    while size < Fraction(2) ** e:
        e -= 1
    unit = Fraction(2) ** (max(e, fmt.smallest_exponent) - fmt.p + 1)
    return round(x / unit) * unit


def as_fraction(x):
    """An mpf as the fraction that it is."""
    sign, man, power, _ = x._mpf_
    return (-1) ** sign * Fraction(int(man)) * Fraction(2) ** int(power)


def by_the_oracle(monkeypatch, model, fmt, strings):
    """Logits after each token of the run that keeps every result, in sums over all tokens with a hundred digits.

    Factors of matrix products are rounded before; weights are numbers of the format.
    """

    def factor(x):
        near = plainly_rounded(as_fraction(x), fmt)
        return mpf(near.numerator) / near.denominator

    times, left = residual_blocks.times, residual_blocks.left
    with monkeypatch.context() as patch:
        patch.setattr(residual_blocks, "times", lambda W, x, b=None: times(W, [factor(v) for v in x], b))
        patch.setattr(residual_blocks, "left", lambda x, W: left([factor(v) for v in x], W))
        return {string: residual_blocks.logits(model, string) for string in strings}
