"""One attention layer drawn at random, numbers somewhere within radii, of any scale and with much cancellation."""

from fractions import Fraction

import numpy as np
import torch

from tests.oracles.exact_layer import Affine as ExactAffine
from tests.oracles.exact_layer import Exact, exact
from verify.engine.balls import Ball
from verify.engine.one_layer.layer import Affine, Block, Layer

PLACES, RANKS = 2, 2


def above(x):
    """A float that is at least a fraction."""
    found = float(x)
    return found if Fraction(found) >= x else float(np.nextafter(found, np.inf))


class Drawn:
    """A layer in balls, and the same layer of exact numbers within them."""

    def __init__(self, seed, blocks, heads=2, atoms=2, classes=2, scales=(0,), radius=True, faint=0):
        self.rng = np.random.default_rng(seed)
        self.scales, self.radius = scales, radius
        rng = self.rng
        self.n_atoms = heads * atoms
        shape = (heads, PLACES + 1, RANKS)
        w = np.exp(-rng.random(shape) * rng.choice([1.0, 5.0])) * 2.0**faint
        w_mid, w_rad, w_true = self.near(w, least=0)
        head = np.repeat(np.arange(heads), atoms)
        v = self.number((self.n_atoms, *shape[1:]))
        for first in range(0, self.n_atoms, atoms):  # atoms that nearly cancel
            if rng.random() < 0.5:
                v[first + 1 : first + atoms] = v[first] * (1 + rng.normal(size=shape[1:]) * 2.0 ** -rng.integers(1, 50))
        x_true = [[[Fraction(v[k, p, r]) * w_true[head[k]][p][r] for r in range(RANKS)] for p in range(PLACES + 1)]
                  for k in range(self.n_atoms)]  # fmt: skip
        x_mid = np.array([[[float(x) for x in row] for row in table] for table in x_true])
        x_rad = np.array([[[above(abs(x - Fraction(m))) for x, m in zip(row, mids, strict=True)]
                           for row, mids in zip(table, other, strict=True)]
                          for table, other in zip(x_true, x_mid, strict=True)])  # fmt: skip
        self.sources = {-1: self.n_atoms}
        built, own = [], []
        for b, (function, size) in enumerate(blocks):
            given, true = self.affine(size)
            eps = float(rng.choice([1e-5, 1e-12, 1.0]))
            built.append(Block(function, given, eps))
            own.append((function, true, eps))
            self.sources[b] = size
        logits, true = self.affine(classes)
        self.layer = Layer(
            tuple(range(PLACES)), ball(w_mid, w_rad), ball(x_mid, x_rad), torch.from_numpy(head),
            torch.from_numpy(np.abs(v).max((1, 2))), tuple(built), logits,
        )  # fmt: skip
        self.exact = Exact(w_true, x_true, head.tolist(), own, true)

    def number(self, shape):
        return self.rng.normal(size=shape) * 2.0 ** self.rng.choice(self.scales)

    def near(self, x, least=None):
        """Middles, radii, and numbers as far away as the radii allow, or at the middle."""
        share = self.rng.choice([0.0, 2.0**-53, 2.0**-40, 2.0**-10]) if self.radius else 0.0
        rad = np.abs(x) * share * self.rng.random(x.shape)
        sign = self.rng.integers(-1, 2, x.shape)
        true = np.empty(x.shape, dtype=object)
        for at in np.ndindex(*x.shape):
            true[at] = Fraction(x[at]) + int(sign[at]) * Fraction(rad[at])
            if least is not None:
                true[at] = max(Fraction(least), true[at])
        return x, rad, true.tolist()

    def affine(self, size):
        """An affine map of some of the results so far, those of the last block among them."""
        last = max(self.sources)
        constant = self.near(self.number((size,)) * self.rng.choice([0.0, 1.0]))
        parts, own = {}, {}
        for source, width in self.sources.items():
            if source != last and self.rng.random() < 0.5:
                continue
            A = self.number((size, width))
            if self.rng.random() < 0.5:  # columns that nearly cancel
                A[:, 1:] = -A[:, :1] * (1 + self.rng.normal(size=(size, width - 1)) * 2.0 ** -self.rng.integers(1, 50))
            if self.rng.random() < 0.3:  # and rows
                A[1:] = A[:1] * (1 + self.rng.normal(size=(size - 1, width)) * 2.0 ** -self.rng.integers(1, 50))
            mid, rad, true = self.near(A)
            parts[source] = ball(mid, rad)
            own[source] = [[exact(x) for x in row] for row in true]
        mid, rad, true = constant
        return Affine(ball(mid, rad), parts), ExactAffine([exact(x) for x in true], own)


def ball(mid, rad):
    return Ball(torch.from_numpy(np.ascontiguousarray(mid)), torch.from_numpy(np.ascontiguousarray(rad)))
