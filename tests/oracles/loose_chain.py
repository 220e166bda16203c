"""Chains of thought as the reading "dtype, any order" may compute them: each choice is drawn, in fractions."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from tests.oracles.rounded import fraction, nearest
from verify.arithmetic.formats import Format


class LooseChain:
    """Rounded weights {name: rows}; results are rounded, kept wider, or flushed.

    `lean` +1 or -1 takes the larger or the smaller of all results that are allowed, 0 draws one of them. Factors may be
    rounded to a format of fewer bits, half-way cases either way; stored numbers below the normal ones may be flushed.
    """

    def __init__(self, W, fmt, inner, draw, lean, few=None):
        self.W = {name: [[Fraction(x) for x in row] for row in rows] for name, rows in W.items()}
        self.fmt, self.inner, self.draw, self.lean, self.few = fmt, inner, draw, lean, few
        self.wide = Format("kept", max(2 * fmt.p + 2, inner.p + 2), -1000, 2.0**1000)

    def near(self, x, fmt):
        found = Fraction(nearest(x, fmt))
        return [found, Fraction(0)] if abs(found) < Fraction(fmt.tiny) else [found]

    def one_of(self, found):
        if self.lean == 0:
            return self.draw.choice(found)
        return max(found) if self.lean > 0 else min(found)

    def result(self, x):
        """A product or a partial sum."""
        return self.one_of([*self.near(x, self.inner), Fraction(nearest(x, self.wide))])

    def stored(self, x):
        return self.one_of([x, *self.near(x, self.fmt)])

    def read(self, x):
        return self.one_of(self.near(x, self.fmt))

    def factor(self, x):
        x = self.read(x)
        if self.few is None or x == 0:
            return x
        beside = abs(x) / 2**60
        return self.one_of([x, *(y for e in (-beside, beside) for y in self.near(x + e, self.few))])

    def tree(self, terms):
        """A sum of numbers, or of pairs that are multiplied first or fused, in a drawn order."""
        nodes = list(terms)
        if self.draw.random() < 0.5:
            self.draw.shuffle(nodes)
        while len(nodes) > 1:
            i = self.draw.randrange(len(nodes) - 1)
            a, b = nodes[i : i + 2]
            if isinstance(a, tuple) and self.draw.random() < 0.5:
                a = a[0] * a[1]  # fused
            nodes[i : i + 2] = [self.result(self.value(a) + self.value(b))]
        return self.value(nodes[0]) if nodes else Fraction(0)

    def value(self, node):
        return self.result(node[0] * node[1]) if isinstance(node, tuple) else node

    def total(self, terms, *added):
        """Added numbers are terms of the sum, or come after it is stored."""
        terms, added = [(x, w) for x, w in terms if x and w], [a for a in added if a]
        while added and terms and self.draw.random() < 0.5:
            terms = [self.stored(self.tree([*terms, *([added.pop()] if self.draw.random() < 0.5 else [])]))]
        together = [*terms, *added]
        if len(together) == 1 and not isinstance(together[0], tuple):
            return together[0]
        return self.stored(self.tree(together))

    def linear(self, x, name, *added):
        x = [self.factor(v) for v in x]
        W = [[self.factor(w) for w in row] for row in self.W[name]]
        return [self.total([*zip(x, column, strict=True)], *(a[j] for a in added))
                for j, column in enumerate(zip(*W, strict=True))]  # fmt: skip

    def exponential(self, x):
        if x == 0:
            return Fraction(1)
        with mpmath.workprec(200):
            exact = fraction(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator))
        if exact < Fraction(self.inner.tiny):
            return self.one_of([Fraction(0), exact, 2 * exact])
        e = exact.numerator.bit_length() - exact.denominator.bit_length() - 1
        e += exact >= Fraction(2) ** (e + 1)
        place = Fraction(2) ** (e - self.inner.p + 1)
        return self.one_of([exact - 2 * place, exact, exact + 2 * place])

    def mixed(self, scores, values):
        top = max(scores)
        e = [self.exponential(self.result(s - top)) for s in scores]
        e = [self.stored(x) for x in e] if self.draw.random() < 0.5 else e
        total = self.tree(e)
        total = self.stored(total) if self.draw.random() < 0.5 else total
        if self.draw.random() < 0.5:
            shares = [self.result(x / total) for x in e]
        else:
            inverse = self.result(1 / total)
            shares = [self.result(x * inverse) for x in e]
        pairs = [(self.factor(x), self.factor(v)) for x, v in zip(shares, values, strict=True)]
        return self.total(pairs)

    def run(self, tokens):
        """The coordinate that says the next token, at each position."""
        x = [[self.total([], self.read(a), self.read(b)) for a, b in zip(self.W["E"][t], row, strict=True)]
             for t, row in zip(tokens, self.W["P"], strict=False)]  # fmt: skip
        for i in range(2):
            of = f"layers.{i}."
            q, k, v = ([self.linear(row, of + name) for row in x] for name in ("W_Q", "W_K", "W_V"))
            after = []
            for p, row in enumerate(x):
                read = [[self.factor(y) for y in k[j]] for j in range(p + 1)]
                query = [self.factor(y) for y in q[p]]
                scores = [self.total([*zip(query, key, strict=True)]) for key in read]
                mixed = self.mixed(scores, [v[j][0] for j in range(p + 1)])
                y = self.linear([mixed], of + "W_O", row)
                b_1, b_2 = ([self.read(b) for b in self.W[of + name][0]] for name in ("b_1", "b_2"))
                hidden = [max(z, Fraction(0)) for z in self.linear(y, of + "W_1", b_1)]
                after.append(self.linear(hidden, of + "W_2", b_2, y))
            x = after
        return [row[3] for row in x]
