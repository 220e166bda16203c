"""A circuit transformer in plain Python floats: every operation rounded, or kept wider, in any order, at random."""

from __future__ import annotations

import math


class LooseMachine:
    """Scalar arithmetic in a format of at most 24 bits, within what "dtype, any order" allows.

    `drift` pulls every choice up (1), down (-1) or nowhere (0): which of the allowed results an operation has.
    Products and sums inside a matrix product are in `inner`; what it returns is stored in `fmt`.
    """

    def __init__(self, fmt, inner, rng, drift=0):
        self.fmt, self.inner, self.rng, self.drift = fmt, inner, rng, drift

    def near(self, x, fmt):
        if x == 0 or not math.isfinite(x):
            return x
        exponent = max(math.frexp(x)[1] - 1, fmt.smallest_exponent)
        return math.ldexp(round(math.ldexp(x, fmt.p - 1 - exponent)), exponent - fmt.p + 1)

    def chosen(self, options):
        if self.drift:
            return max(options) if self.drift > 0 else min(options)
        return self.rng.choice(options)

    def result(self, x, fmt):
        """To nearest, or as a Python float; numbers below the normal ones perhaps flushed."""
        options = [self.near(x, fmt), x] if self.rng.random() < 0.5 else [self.near(x, fmt)]
        if 0 < abs(x) < fmt.tiny:
            options.append(0.0)
        return self.chosen(options)

    def stored(self, x):
        return self.result(x, self.fmt)

    def factor(self, x):
        return self.near(x, self.fmt)

    def sum(self, terms):
        terms = list(terms)
        order = self.rng.choice(["shuffled", "ascending", "descending"])
        self.rng.shuffle(terms) if order == "shuffled" else terms.sort(key=abs, reverse=order == "descending")
        while len(terms) > 1:
            i = self.rng.randrange(len(terms) - 1) if order == "shuffled" else 0
            terms[i : i + 2] = [self.result(terms[i] + terms[i + 1], self.inner)]
        return terms[0] if terms else 0.0

    def dot(self, x, y, added=()):
        """x y and added terms: in one sum, or added after it is stored."""
        products = [self.factor(a) * self.factor(b) for a, b in zip(x, y, strict=True)]
        if self.rng.random() < 0.5:
            products = [self.result(a, self.inner) for a in products]  # else they are fused
        terms = [a for a in products if a]
        if self.rng.random() < 0.5:
            return self.stored(self.sum([*terms, *(a for a in added if a)]))
        total, added = self.stored(self.sum(terms)), list(added)
        self.rng.shuffle(added)
        for a in added:
            total = self.stored(self.result(total + a, self.inner)) if a and total else total + a
        return total

    def plus(self, a, b):
        return self.stored(self.result(a + b, self.inner)) if a and b else a + b

    def times(self, x, W, *added):
        columns = len(W[0])
        return [self.dot(x, [row[j] for row in W], [a[j] for a in added]) for j in range(columns)]

    def exp(self, x):
        if x == 0:
            return 1.0
        e = math.exp(x)
        if e < self.fmt.tiny:
            return self.chosen([0.0, e, 2 * e if 2 * e < self.fmt.tiny else e])
        unit = 2.0 ** (math.frexp(e)[1] - self.fmt.p)
        return self.chosen([e - 2 * unit, e, e + 2 * unit]) if e > 2 * unit else e

    def head(self, q, keys, values):
        scores = [self.dot(q, k) for k in keys]
        top = max(scores)
        e = [self.exp(self.stored(self.result(s - top, self.inner))) for s in scores]
        total = self.sum(e)
        if self.rng.random() < 0.5:
            total = self.stored(total)
        return self.dot([self.stored(self.result(x / total, self.inner)) for x in e], values)

    def readouts(self, W, tokens, g=3):
        """Coordinate g at every position after both layers, by weights that are numbers of the format."""
        x = [[self.plus(a, b) for a, b in zip(W["E"][t], P, strict=True)] for t, P in zip(tokens, W["P"], strict=False)]
        for layer in range(2):
            w = {name.rsplit(".", 1)[1]: value for name, value in W.items() if name.startswith(f"layers.{layer}.")}
            q, k = ([self.times(row, w[name]) for row in x] for name in ("W_Q", "W_K"))
            v = [self.times(row, w["W_V"])[0] for row in x]
            mixed = [self.head(q[p], k[: p + 1], v[: p + 1]) for p in range(len(x))]
            y = [self.times([m], w["W_O"], row) for m, row in zip(mixed, x, strict=True)]
            h = [[max(0.0, a) for a in self.times(row, w["W_1"], w["b_1"])] for row in y]
            x = [self.times(a, w["W_2"], row, w["b_2"]) for a, row in zip(h, y, strict=True)]
        return [row[g] for row in x]
