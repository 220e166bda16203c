"""Rounding and a rounded forward pass in plain Python fractions, for tests."""

from __future__ import annotations

from fractions import Fraction

import mpmath


def nearest(x, fmt):
    """The number of the format nearest to a fraction, ties to even."""
    if not x:
        return 0.0
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, fmt.smallest_exponent) - fmt.p + 1)
    result = round(x / quantum) * quantum  # Python rounds fractions half to even
    if abs(result) > Fraction(fmt.largest):
        beyond = fmt.largest if fmt.saturates else float("inf")
        return beyond if result > 0 else -beyond
    return float(result)


def fraction(x):
    """A positive mpmath number as it is."""
    significand, exponent = x.man_exp
    return Fraction(int(significand)) * Fraction(2) ** int(exponent)


class LeftToRight:
    """Every operation rounded to one format, sums from left to right, fused or not."""

    def __init__(self, fmt, is_fused):
        self.fmt, self.is_fused = fmt, is_fused

    def near(self, x):
        return Fraction(nearest(Fraction(x), self.fmt))

    def dot(self, x, y):
        total = self.near(x[0] * y[0])
        for a, b in zip(x[1:], y[1:], strict=True):
            total = self.near(total + a * b) if self.is_fused else self.near(total + self.near(a * b))
        return total

    def product(self, rows, columns):
        return [[self.dot(row, column) for column in columns] for row in rows]

    def exp(self, x):
        with mpmath.workdps(60):
            return self.near(fraction(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)))

    def softmax(self, row):
        e = [self.exp(self.near(score - max(row))) for score in row]
        total = self.dot(e, [Fraction(1)] * len(e))
        return [self.near(x / total) for x in e]

    def logits(self, module, sequence):
        """Logits (L, C) as fractions."""
        W = {
            name: [[self.near(v) for v in row] for row in value.double().reshape(-1, value.shape[-1]).tolist()]
            for name, value in module.state_dict().items()
        }

        def transposed(rows):
            return [list(column) for column in zip(*rows, strict=True)]

        x = [W["E"][t] for t in sequence]
        context = W["e_BOS"] + x if module.has_bos else x
        if module.is_linear:
            mixing = W["A"]
        else:
            queries, keys = (self.product(v, transposed(W[name])) for v, name in ((x, "W_Q"), (context, "W_K")))
            with mpmath.workdps(60):
                root = self.near(fraction(mpmath.sqrt(module.d)))
            mixing = [[self.near(score / root) for score in row] for row in self.product(queries, keys)]
        if module.is_softmax:
            mixing = [self.softmax(row) for row in mixing]
        mixed = self.sums(x, self.product(mixing, transposed(context)))
        hidden = self.sums(self.product(mixed, transposed(W["W_1"])), W["b_1"] * len(x))
        hidden = [[max(v, Fraction(0)) for v in row] for row in hidden]
        return self.sums(self.product(hidden, transposed(W["W_2"])), W["b_2"] * len(x))

    def sums(self, X, Y):
        return [[self.near(a + b) for a, b in zip(x, y, strict=True)] for x, y in zip(X, Y, strict=True)]
