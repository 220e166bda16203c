"""Runs of tanh, LSTM and GRU cells in a format: whether each number is near what those before it give, in fractions."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from tests.oracles.rounded import fraction

FAR = 8  # units in the last place, of a function or of a result


class NearRun:
    """The numbers of one step after the other; `say(holds, what)` is told of each."""

    def __init__(self, tensors, kind, p, lowest, say):
        self.W = {name: [[Fraction(y) for y in row] for row in rows] for name, rows in tensors.items()}
        self.kind, self.u, self.tiny, self.say = kind, Fraction(1, 2**p), Fraction(2) ** lowest, say
        self.hidden, self.left = len(self.W["readout.weight"][0]), iter([])

    def take(self, exact, sizes):
        """The next numbers, each within so much of what it stands for."""
        found = []
        for x, size in zip(exact, sizes, strict=True):
            y = next(self.left, None)
            self.say(y is not None and abs(Fraction(y) - x) <= size * self.u * FAR + self.tiny, "a number of the run")
            found.append(Fraction(y))
        return found

    def sums(self, parts):
        """W x + b over the parts: the error of any order grows with the number of terms."""
        exact, sizes = [], []
        for i in range(len(parts[0][0])):
            terms = [w * y for W, x, b in parts for w, y in zip(W[i], x, strict=True)] + [b[i] for _, _, b in parts]
            exact.append(sum(terms))
            sizes.append(sum(map(abs, terms)) * len(terms))
        return self.take(exact, sizes)

    def function(self, f, x):
        with mpmath.workdps(60):
            exact = [mpmath.mpf(v.numerator) / v.denominator for v in x]
            found = [fraction(abs(y)) * (1 if y >= 0 else -1) if y else Fraction(0) for y in map(f, exact)]
        return self.take(found, map(abs, found))

    def results(self, f, *vectors):
        exact = [f(*row) for row in zip(*vectors, strict=True)]
        return self.take(exact, map(abs, exact))

    def step(self, state, token):
        H, W = self.hidden, self.W
        x = [Fraction(int(t == token)) for t in range(len(W["cell.weight_ih_l0"][0]))]

        def parts(k):
            cut = slice(k * H, k * H + H)
            own = [("ih", x), ("hh", state[:H])]
            return [(W[f"cell.weight_{of}_l0"][cut], y, W[f"cell.bias_{of}_l0"][0][cut]) for of, y in own]

        def sigmoid(v):
            return 1 / (1 + mpmath.exp(-v))

        if self.kind == "rnn":
            return self.function(mpmath.tanh, self.sums(parts(0)))
        if self.kind == "lstm":
            i, f, o = (self.function(sigmoid, self.sums(parts(k))) for k in (0, 1, 3))
            g = self.function(mpmath.tanh, self.sums(parts(2)))
            kept, new = self.results(Fraction.__mul__, f, state[H:]), self.results(Fraction.__mul__, i, g)
            c = self.results(Fraction.__add__, kept, new)
            return self.results(Fraction.__mul__, o, self.function(mpmath.tanh, c)) + c
        r, z = (self.function(sigmoid, self.sums(parts(k))) for k in (0, 1))
        of_h = self.results(Fraction.__mul__, r, self.sums(parts(2)[1:]))
        before = self.results(Fraction.__add__, self.sums(parts(2)[:1]), of_h)
        n, z_h = self.function(mpmath.tanh, before), list(zip(z, state, strict=True))
        (*listed,) = self.left  # 1 - z, two products and their sum; or n again, h - n, z (h - n) and their sum
        self.left = iter(listed)
        if all(abs(Fraction(y) - (1 - a)) <= self.u * FAR for y, a in zip(listed, z, strict=False)):
            kept = self.results(Fraction.__mul__, self.results(lambda a: 1 - a, z), n)
            return self.results(Fraction.__add__, kept, self.results(lambda both: both[0] * both[1], z_h))
        again = self.function(mpmath.tanh, before)
        apart = self.results(Fraction.__sub__, state, again)
        return self.results(Fraction.__add__, again, self.results(Fraction.__mul__, z, apart))

    def follow(self, run, tokens):
        """The logits that the run says, all of whose numbers are near."""
        state = [Fraction(0)] * self.hidden * (1 + (self.kind == "lstm"))
        self.say(len(run["numbers"]) == len(tokens), "the run's length")
        for row, token in zip(run["numbers"], tokens, strict=True):
            self.left = iter(row)
            state = self.step(state, token)
            self.say(next(self.left, None) is None, "a step's numbers")
        self.left = iter(run["logits"])
        return self.sums([(self.W["readout.weight"], state[: self.hidden], self.W["readout.bias"][0])])
