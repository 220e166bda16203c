"""A LayerNorm's parts, in numbers whose operations are exact or hold what they stand for.

Rationals, fractions, arrays of them, balls of many bits: any of them can be the entries. What rounding does to a
LayerNorm is bounded by the engine, and where rows share errors by the transformers of inductive counting.
"""

from __future__ import annotations

from collections.abc import Sequence

from verify.arithmetic.rings import F


def centred(x: Sequence[F]) -> list[F]:
    """The entries of a row less their mean.

    >>> from fractions import Fraction
    >>> [str(part) for part in centred([Fraction(1), Fraction(2)])]
    ['-1/2', '1/2']
    """
    mean = sum(x[1:], x[0]) / len(x)
    return [entry - mean for entry in x]


def squared_deviation(x: Sequence[F], eps: F) -> F:
    """The variance of the entries plus eps, the square of what a LayerNorm divides by.

    >>> from fractions import Fraction
    >>> str(squared_deviation([Fraction(1), Fraction(2)], Fraction(1, 4)))
    '1/2'
    """
    squares = [part * part for part in centred(x)]
    return sum(squares[1:], squares[0]) / len(x) + eps
