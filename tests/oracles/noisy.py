"""A step of a recurrent network in a format: every result rounded, in a random order, functions a little off."""

from __future__ import annotations

import numpy as np

from verify.arithmetic.rounding import rounded
from verify.tasks.recurrent.network import Floats


class Noisy(Floats):
    """float64, and every result then rounded to a format, up or down as a coin says."""

    def __init__(self, fmt, rng):
        self.fmt, self.rng = fmt, rng

    def near(self, x):
        return rounded(x, self.fmt)

    def linear(self, W, x, b, terms):
        terms = self.near(x[..., None, :] * W)
        total = self.near(b)
        for k in self.rng.permutation(W.shape[1]):
            total = self.near(total + terms[..., k])
        return total

    def add(self, x, y):
        return self.near(x + y)

    whole = add

    def multiply(self, x, y):
        return self.near(x * y)

    def blend(self, z, n, h):
        if self.rng.random() < 0.5:
            return self.near(n + self.near(z * self.near(h - n)))
        return self.near(self.near(self.near(1 - z) * n) + self.near(z * h))

    def tanh(self, x):
        return self.near(np.tanh(x) * (1 + self.rng.choice([-1, 0, 1]) * 2 * self.fmt.u))

    def sigmoid(self, x):
        return self.near(super().sigmoid(x) * (1 + self.rng.choice([-1, 0, 1]) * 2 * self.fmt.u))
