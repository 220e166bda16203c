"""Strings with regions as one evaluation of a format computes them, every rounding by hand, in fractions.

Each result is rounded to nearest, ties to even, or kept with 2p + 2 bits; results below the smallest normal number may
be flushed; sums go in any order, products may be fused into them. What is drawn differs from step to step.
"""

from fractions import Fraction

import mpmath

TOKENS = "01[]"
BOS = 4


def nearest(x, p):
    """The number with p significant bits next to x, ties to even."""
    if x == 0:
        return Fraction(0)
    size = abs(x)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e
    unit = Fraction(2) ** (e - p + 1)
    return round(x / unit) * unit


class Evaluation:
    """A format of p bits with the smallest normal number 2^least; what is left open is drawn."""

    def __init__(self, rng, p, least, few=None):
        self.rng, self.p, self.tiny, self.few = rng, p, Fraction(2) ** least, few
        self.keeps, self.fuses, self.flushes = rng.random() * rng.randint(0, 1), rng.randint(0, 1), rng.randint(0, 1)

    def once(self, x):
        found = nearest(x, 2 * self.p + 2 if self.rng.random() < self.keeps else self.p)
        return Fraction(0) if abs(found) < self.tiny and self.flushes else found

    def factor(self, x):
        """What a product reads: a number that was kept may be rounded now."""
        found = self.once(x)
        return nearest(found, self.few) if self.few and self.rng.random() < 0.7 else found

    def total(self, xs):
        """A sum in a drawn order."""
        xs = [x for x in xs if x != 0]
        while len(xs) > 1:
            x, y = (xs.pop(self.rng.randrange(len(xs))) for _ in "xy")
            xs.append(self.once(x + y))
        return xs[0] if xs else Fraction(0)

    def times(self, x, y):
        found = self.factor(x) * self.factor(y)
        return found if self.fuses else self.once(found)

    def row(self, x, W, *added):
        """x W and what is added, all of one sum."""
        return [self.total([*map(self.times, x, column), *(part[j] for part in added)])
                for j, column in enumerate(zip(*W, strict=True))]  # fmt: skip

    def exp(self, x):
        """Within 2 units in the last place, and 1 of 0; below the normal numbers from 0 to twice the value."""
        if x == 0:
            return Fraction(1)
        with mpmath.workdps(60):
            found = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
            exact = Fraction(int(mpmath.ldexp(found, 400))) / Fraction(2) ** 400
        if exact < self.tiny:
            return exact * self.rng.choice([0, 1, Fraction(3, 2), 2])
        last = Fraction(2) ** (-self.p) * exact  # half a unit, or less
        return self.once(exact + last * Fraction(self.rng.uniform(-3, 3)))

    def attend(self, q, keys, values):
        """Normalised before or after the values are weighed, by a quotient or a reciprocal."""
        scores = [self.total(list(map(self.times, q, key))) for key in keys]
        top = max(scores)
        top = self.once(top) if self.rng.random() < 0.5 else top
        weights = [self.exp(self.once(self.once(s) - top)) for s in scores]
        total, way = self.total(weights), self.rng.randrange(3)

        def divided(x):
            return self.once(x / total) if way != 1 else self.once(x * self.once(1 / total))

        columns = zip(*values, strict=True)
        if way == 2:
            return [divided(self.total([self.times(w, v) for w, v in zip(weights, column, strict=True)]))
                    for column in columns]  # fmt: skip
        shares = [divided(w) for w in weights]
        return [self.total([self.times(w, v) for w, v in zip(shares, column, strict=True)]) for column in columns]


def logits(on, W, text, is_causal=True, has_bos=True):
    """For each prompt the logits of a string; W are rows of fractions, with positions where it has them."""
    tokens = [BOS] * has_bos + [TOKENS.index(c) for c in text]
    x = [W["E"][t] for t in tokens]
    if "positions" in W:
        x = [[on.once(a + b) if a and b else a + b for a, b in zip(y, W["positions"][j], strict=True)]
             for j, y in enumerate(x)]  # fmt: skip
    q, k, v = ([on.row(y, W[name]) for y in x] for name in ("W_Q", "W_K", "W_V"))
    if "cosines" in W:
        q, k = ([_turned(on, y, W, j) for j, y in enumerate(side)] for side in (q, k))
    stream = []
    for i, y in enumerate(x):
        last = i + 1 if is_causal else len(x)
        y = on.row(on.attend(q[i], k[:last], v[:last]), W["W_O"], y)
        hidden = [max(Fraction(0), z) for z in on.row(y, W["W_1"], W["b_1"][0])]
        stream.append(on.row(hidden, W["W_2"], W["b_2"][0], y))
    keys, values = ([on.row(y, W[name]) for y in stream] for name in ("U_K", "U_V"))
    out = []
    for prompt in W["P"]:
        z = on.attend(on.row(prompt, W["U_Q"]), keys, values)
        if "W_3" in W:
            hidden = [max(Fraction(0), y) for y in on.row(z, W["W_3"], W["b_3"][0])]
            z = on.row(hidden, W["W_4"], W["b_4"][0], z)
        out.append(on.row(z, W["W_out"], W["b_out"][0]))
    return out


def _turned(on, x, W, j):
    """Pairs turned by the angle of a place."""
    found = []
    for i, (a, b) in enumerate(zip(x[::2], x[1::2], strict=True)):
        c, s = W["cosines"][j][i], W["sines"][j][i]
        found += [on.total([on.times(a, c), on.times(b, -s)]), on.total([on.times(a, s), on.times(b, c)])]
    return found
