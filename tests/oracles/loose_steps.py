"""Steps of recurrent cells as the reading "dtype, any order" may compute them: each choice is drawn, in fractions."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from tests.oracles.rounded import fraction, nearest
from verify.arithmetic.formats import FORMATS, Format

DIGITS = 400


class LooseSteps:
    """A network of rounded weights {name: rows}; results are rounded, kept with 2p + 2 bits or more, or flushed."""

    def __init__(self, tensors, kind, activation, fmt, draw):
        self.kind, self.activation, self.fmt, self.draw = kind, activation, fmt, draw
        self.W = {name: [[self.near(Fraction(x)) for x in row] for row in rows] for name, rows in tensors.items()}
        self.hidden = len(self.W["readout.weight"][0])

    def near(self, x):
        return Fraction(nearest(x, self.fmt))

    def result(self, x):
        way = self.draw.randrange(4)
        if way == 0 and abs(x) < Fraction(self.fmt.tiny):
            return Fraction(0)
        if way < 2:
            return self.near(x)
        bits = 2 * self.fmt.p + 2 + self.draw.choice([0, 1, 30])
        kept = Fraction(nearest(x, Format("kept", bits, -1000, 2.0**1000))) if bits <= 53 else x
        return kept if way == 2 else self.near(kept)

    def read(self, x):
        """As one operation reads it: kept as it is, or rounded."""
        return x if self.draw.random() < 0.5 else self.near(x)

    def total(self, row, x, added):
        terms = [(w, y) for w, y in zip(row, x, strict=True) if w] + [(Fraction(1), b) for b in added if b]
        nodes = [("product", w, y) for w, y in terms] or [("product", Fraction(0), Fraction(0))]
        while len(nodes) > 1:
            self.draw.shuffle(nodes)
            a, b = nodes.pop(), nodes.pop()
            left = a[1] * a[2] if a[0] == "product" and self.draw.random() < 0.3 else self.value(a)  # fused
            nodes.append(("sum", self.result(left + self.value(b)), None))
        return self.value(nodes[0])

    def value(self, node):
        if node[0] == "sum":
            return node[1]
        return node[2] if node[1] == 1 else self.result(node[1] * node[2])

    def linear(self, rows, parts):
        """Each row of the sum of W x + b over the parts, factors rounded."""
        found = []
        for i in rows:
            row = [w for W, x, b in parts for w in W[i]]
            x = [self.near(y) for _, x, _ in parts for y in x]
            found.append(self.total(row, x, [b[i] for _, _, b in parts]))
        return found

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
        return [self.result(f(*(self.read(v) for v in row))) for row in zip(*vectors, strict=True)]

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


def loose_steps(model, fmt, draw):
    rows = {name: value.double().reshape(-1, value.shape[-1]).tolist() for name, value in model.state_dict().items()}
    return LooseSteps(rows, model.kind, model.activation, FORMATS[fmt], draw)
