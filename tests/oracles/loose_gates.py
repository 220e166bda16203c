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
        self.states = len(self.W["layer.W"][0]) if "layer.W" in self.W else self.hidden

    def start(self):
        return [Fraction(0)] * self.states

    def step(self, h, token=0):
        cell = self.cell
        if self.kind in ("ssm", "decay"):
            return self.linear(range(self.hidden), [(cell["A"], h, cell["B"][0])])
        if self.kind == "s4" and "omega" in cell:
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
        elif self.kind == "s4":
            return cell["a"][0], cell["u"][token]
        else:
            rates = self.function(mpmath.exp, cell["w"][token])
            added = self.each(times, cell["k"][token], cell["v"][token])
        return self.function(mpmath.exp, [-x for x in rates]), added

    def logits(self, h, token=0):
        read = {"mamba": "C", "rwkv": "r", "s4": "c"}.get(self.kind)
        seen = h if read not in self.cell else self.each(times, self.cell[read][token if read != "c" else 0], h)
        if "layer.W" in self.W:
            sums = self.linear(range(self.hidden), [(self.W["layer.W"], seen, self.W["layer.U"][token])])
            seen = [max(x, Fraction(0)) for x in sums]
        return super().logits(seen)
