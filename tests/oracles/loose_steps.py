"""Steps of recurrent cells as the reading "dtype, any order" may compute them: each choice is drawn, in fractions."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from tests.oracles.rounded import fraction, nearest
from verify.arithmetic.formats import FORMATS, Format

DIGITS = 400


class LooseSteps:
    """A network of rounded weights {name: rows}; results are rounded, kept with 2p + 2 bits or more, or flushed.

    Where sums have a `wider` format, matrix products and biases are one such sum, or are stored before they are added.
    """

    def __init__(self, tensors, kind, activation, fmt, draw, wider=None):
        self.kind, self.activation, self.fmt, self.draw, self.wider = kind, activation, fmt, draw, wider
        self.W = {name: [[self.near(Fraction(x)) for x in row] for row in rows] for name, rows in tensors.items()}
        self.hidden = len(self.W["readout.weight"][0])

    def near(self, x):
        return Fraction(nearest(x, self.fmt))

    def stored(self, x):
        return self.result(self.result(x, self.wider) if self.wider and self.draw.random() < 0.5 else x)

    def result(self, x, fmt=None):
        fmt = fmt or self.fmt
        way = self.draw.randrange(4)
        if way == 0 and abs(x) < Fraction(fmt.tiny):
            return Fraction(0)
        if way < 2:
            return Fraction(nearest(x, fmt))
        bits = 2 * fmt.p + 2 + self.draw.choice([0, 1, 30])
        kept = Fraction(nearest(x, Format("kept", bits, -1000, 2.0**1000))) if bits <= 53 else x
        return kept if way == 2 else Fraction(nearest(kept, fmt))

    def read(self, x):
        """As one operation reads it: kept as it is, or rounded."""
        return x if self.draw.random() < 0.5 else self.near(x)

    def total(self, row, x, added):
        """One sum in the format."""
        return self.in_order([*zip(row, x, strict=True), *((Fraction(1), b) for b in added)], self.fmt)

    def in_order(self, terms, fmt):
        """A sum of products and stored numbers in a drawn order; what is fused is not rounded as a product."""
        nodes = [("product", w, y) for w, y in terms if w and (w != 1 or y)] or [("product", Fraction(0), Fraction(0))]
        while len(nodes) > 1:
            self.draw.shuffle(nodes)
            a, b = nodes.pop(), nodes.pop()
            left = a[1] * a[2] if a[0] == "product" and self.draw.random() < 0.3 else self.value(a, fmt)  # fused
            nodes.append(("sum", self.result(left + self.value(b, fmt), fmt), None))
        return self.value(nodes[0], fmt)

    def value(self, node, fmt):
        if node[0] == "sum":
            return node[1]
        return node[2] if node[1] == 1 else self.result(node[1] * node[2], fmt)

    def linear(self, rows, parts):
        """Each row of the sum of W x + b over the parts, factors rounded."""
        return [self.row([self.terms(W[i], x, b[i]) for W, x, b in parts]) for i in rows]

    def terms(self, row, x, bias):
        return [(w, self.near(y)) for w, y in zip(row, x, strict=True)], [(Fraction(1), bias)]

    def row(self, parts):
        whole = [term for products, bias in parts for term in products + bias]
        if self.wider is None:
            return self.in_order(whole, self.fmt)
        if self.draw.random() < 0.3:
            return self.stored(self.in_order(whole, self.wider))
        groups = [group for part in parts for group in ([sum(part, [])] if self.draw.random() < 0.5 else part)]
        found = [(Fraction(1), self.stored(self.in_order(group, self.wider))) for group in groups]
        return self.in_order(found, self.fmt)

    def function(self, f, x):
        found = []
        for v in x:
            v = self.read(v)
            with mpmath.workprec(DIGITS):
                y = f(mpmath.mpf(v.numerator) / v.denominator)
                exact = fraction(abs(y)) * (1 if y >= 0 else -1) if y else Fraction(0)
            e = abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length() - 1
            place = Fraction(2) ** (e - self.fmt.p + 1) if exact else Fraction(0)
            off = exact + place * Fraction(self.draw.choice([-2, -1, 0, 1, 2, self.draw.random() * 4 - 2]))
            found.append(off if self.draw.random() < 0.5 else self.near(off))
        return found

    def each(self, f, *vectors):
        return [self.stored(f(*(self.read(v) for v in row))) for row in zip(*vectors, strict=True)]

    def start(self):
        return [Fraction(0)] * self.hidden * (1 + (self.kind == "lstm"))

    def step(self, state, token=0):
        H, W = self.hidden, self.W
        x = [Fraction(int(t == token)) for t in range(len(W["cell.weight_ih_l0"][0]))]
        parts = [
            (W["cell.weight_ih_l0"], x, W["cell.bias_ih_l0"][0]),
            (W["cell.weight_hh_l0"], state[:H], W["cell.bias_hh_l0"][0]),
        ]

        def gate(k, which=slice(0, 2)):
            return self.linear(range(k * H, k * H + H), parts[which])

        def sigmoid(v):
            return 1 / (1 + mpmath.exp(-v))

        if self.kind == "rnn":
            a = gate(0)
            return self.function(mpmath.tanh, a) if self.activation == "tanh" else [max(v, Fraction(0)) for v in a]
        if self.kind == "lstm":
            i, f, o = (self.function(sigmoid, gate(k)) for k in (0, 1, 3))
            g, times = self.function(mpmath.tanh, gate(2)), lambda a, b: a * b
            c = self.each(lambda a, b: a + b, self.each(times, f, state[H:]), self.each(times, i, g))
            return self.each(times, o, self.function(mpmath.tanh, c)) + c
        r, z = (self.function(sigmoid, gate(k)) for k in (0, 1))
        add, times = (lambda a, b: a + b), (lambda a, b: a * b)
        n = self.function(mpmath.tanh, self.each(add, gate(2, slice(0, 1)), self.each(times, r, gate(2, slice(1, 2)))))
        if self.draw.random() < 0.5:
            rest = self.each(lambda a: 1 - a, z)
            return self.each(add, self.each(times, rest, n), self.each(times, z, state))
        return self.each(add, n, self.each(times, z, self.each(lambda a, b: a - b, state, n)))

    def logits(self, state, token=0):
        part = (self.W["readout.weight"], state[: self.hidden], self.W["readout.bias"][0])
        return self.linear(range(len(part[0])), [part])


def loose_steps(model, fmt, draw, wider=None):
    rows = {name: value.double().reshape(-1, value.shape[-1]).tolist() for name, value in model.state_dict().items()}
    return LooseSteps(rows, model.kind, model.activation, FORMATS[fmt], draw, FORMATS.get(wider))
