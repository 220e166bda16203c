"""Steps of gated decays, rotations and state spaces as "dtype, any order" may compute them: each choice is drawn."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from tests.oracles.loose_steps import LooseSteps


def softplus(x):
    return mpmath.log1p(mpmath.exp(x))


def times(a, b):
    return a * b


class LooseGates(LooseSteps):
    """A network of one layer whose states are linear in those before; exp, softplus, cos and sin are computed anew."""

    def __init__(self, tensors, kind, fmt, draw):
        super().__init__(tensors, kind, None, fmt, draw)
        self.cell = {name.rpartition(".")[2]: rows for name, rows in self.W.items() if "cell" in name}

    def start(self):
        return [Fraction(0)] * self.hidden

    def step(self, h, token=0):
        cell = self.cell
        if self.kind in ("ssm", "decay"):
            return self.linear(range(self.hidden), [(cell["A"], h, cell["B"][0])])
        if self.kind == "s4":
            c, s = (self.function(f, cell["omega"][0])[0] for f in (mpmath.cos, mpmath.sin))
            x, y = ([self.read(v) for v in h] for _ in range(2))
            rows = [self.read(c), -self.read(s)], [self.read(s), self.read(c)]
            return [self.total(rows[0], x, [Fraction(1)]), self.total(rows[1], y, [])]
        keep, added = self.gates(token)
        if self.draw.random() < 0.5:
            return self.each(lambda f, x, a: f * x + a, keep, h, added)
        return self.each(lambda x, a: x + a, self.each(times, keep, h), added)

    def gates(self, token):
        """What a token keeps of each state, and adds to it."""
        cell = self.cell
        if self.kind == "mamba":
            steps = self.function(softplus, cell["delta"][token])
            rates = self.each(times, steps, self.function(mpmath.exp, cell["A"][0]))
            added = self.each(times, steps, cell["B"][token])
        else:
            rates = self.function(mpmath.exp, cell["w"][token])
            added = self.each(times, cell["k"][token], cell["v"][token])
        return self.function(mpmath.exp, [-x for x in rates]), added

    def logits(self, h, token=0):
        read = {"mamba": "C", "rwkv": "r"}.get(self.kind)
        seen = h if read is None else self.each(times, self.cell[read][token], h)
        return super().logits(seen)
