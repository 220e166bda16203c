"""Ends of all evaluations of gated decays at once: the least and the most of each operation, in fractions.

Every result that is allowed grows with what it is made of: rounded to nearest, kept with 2p + 2 bits or rounded after
that, or flushed. So the ends are reached from the ends before.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath

DIGITS = 60


def power(x):
    """k with 2^k <= x < 2^(k + 1)."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    return k if Fraction(2) ** k <= x else k - 1


class Hulls:
    """p bits, and exponents from `least`."""

    def __init__(self, p, least):
        self.p, self.least, self.tiny = p, least, Fraction(2) ** least

    def unit(self, x):
        """A unit in the last place."""
        return Fraction(2) ** (max(power(abs(x)), self.least) - self.p + 1)

    def most(self, x):
        """The most that x may be computed and read as; what is below zero and small may be flushed."""
        if x == 0:
            return x
        fine = self.unit(x) / 2 ** (self.p + 2)  # of 2p + 2 bits, with which or more a result may be kept
        kept = min(x + abs(x) / 2 ** (2 * self.p + 2), (x / fine).__ceil__() * fine)
        unit = self.unit(kept)
        found = max(kept, (kept / unit + Fraction(1, 2)).__floor__() * unit)
        return Fraction(0) if -self.tiny < found < 0 or -self.tiny < x < 0 else found

    def result(self, low, high):
        return -self.most(-low), self.most(high)

    def plus(self, x, y):
        return self.result(x[0] + y[0], x[1] + y[1])

    def times(self, x, y):
        corners = [a * b for a in x for b in y]
        return self.result(min(corners), max(corners))

    def function(self, f, x):
        """An increasing function with values above zero, two units in the last place off, which jump at powers of 2."""
        with mpmath.workdps(DIGITS):
            low, high = (Fraction(*map(int, _ratio(f(mpmath.mpf(v.numerator) / v.denominator)))) for v in x)
        jumps = [Fraction(2) ** k for k in range(power(low) + 1, power(high) + 1)]
        return self.result(min(y - 2 * self.unit(y) for y in (low, *jumps)), high + 2 * self.unit(high))

    def gates(self, cell, kind, token=0):
        """What a token keeps of each state, and adds to it."""
        row = {name: [(Fraction(x),) * 2 for x in rows[min(token, len(rows) - 1)]] for name, rows in cell.items()}

        def faded(x):
            return self.function(mpmath.exp, (-x[1], -x[0]))

        if kind == "s4":
            return row["a"], row["u"]
        if kind == "rwkv":
            added = [self.times(*pair) for pair in zip(row["k"], row["v"], strict=True)]
            return [faded(self.function(mpmath.exp, x)) for x in row["w"]], added
        steps = [self.function(lambda v: mpmath.log1p(mpmath.exp(v)), x) for x in row["delta"]]
        rates = [self.function(mpmath.exp, x) for x in row["A"]]
        return [faded(self.times(*pair)) for pair in zip(steps, rates, strict=True)], [
            self.times(*pair) for pair in zip(steps, row["B"], strict=True)
        ]

    def step(self, keep, added, h):
        return [self.plus(self.times(f, x), a) for f, x, a in zip(keep, h, added, strict=True)]


def _ratio(x):
    mantissa, exponent = x.man_exp
    return (int(mantissa) << max(exponent, 0), 1 << max(-exponent, 0))
