"""One attention layer in balls of many bits: its numbers somewhere within their radii, its logits on an input."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flint import arb, fmpq


def exact(x: Fraction) -> arb:
    return arb(fmpq(x.numerator, x.denominator))


def relu(z):
    return z if z > 0 else arb(0) if z < 0 else z.max(arb(0))


def half(z):
    return z / 2


def gelu(z):
    return half(z) * (1 + (z / arb(2).sqrt()).erf())


def sigmoid(z):
    return 1 / (1 + (-z).exp())


def gelu_tanh(z):
    return half(z) * (1 + ((2 / arb.pi()).sqrt() * (z + exact(Fraction(0.044715)) * z**3)).tanh())


FUNCTIONS = {
    "relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": lambda z: z * sigmoid(z), "tanh": lambda z: z.tanh(),
    "sigmoid": sigmoid, "softplus": lambda z: z if z > 20 else z.exp().log1p(), "square": lambda z: z * z,
    "elu": lambda z: z.max(arb(0)) + z.min(arb(0)).expm1(), "exp": lambda z: z.exp(), "sqrt": lambda z: z.sqrt(),
    "rsqrt": lambda z: 1 / z.sqrt(), "reciprocal": lambda z: 1 / z, "cube": lambda z: z * z * z,
}  # fmt: skip


def norm(z, eps, is_centred):
    """The normalised numbers, and 1 / s."""
    mean = sum(z, arb(0)) / len(z) if is_centred else arb(0)
    centred = [x - mean for x in z]
    s = (sum((x * x for x in centred), arb(0)) / len(z) + exact(Fraction(eps))).sqrt()
    return [x / s for x in centred], 1 / s


class Affine:
    """c + sum of A x by source: lists of arbs."""

    def __init__(self, constant, parts):
        self.constant, self.parts = constant, parts

    def __call__(self, results):
        found = list(self.constant)
        for source, rows in self.parts.items():
            for i, row in enumerate(rows):
                found[i] += sum((a * x for a, x in zip(row, results[source], strict=True)), arb(0))
        return found


@dataclass(frozen=True)
class Found:
    """On one input: 1 / Z of each head, by block arguments, results (the attention is -1) and 1 / s, and the logits."""

    zetas: list
    arguments: dict
    results: dict
    roots: dict
    logits: list


class Exact:
    """A layer of numbers: `weights[h][place][rank]`, `values[atom][place][rank]`, blocks (function, Affine, eps)."""

    def __init__(self, weights, values, head, blocks, logits):
        self.weights, self.values, self.head, self.blocks, self.logits = weights, values, head, blocks, logits

    def __call__(self, ranks):
        """What an input, one rank for each place, the fixed one too, makes of the layer."""

        def total(table):
            return sum((table[place][rank] for place, rank in enumerate(ranks)), Fraction(0))

        Z = [total(table) for table in self.weights]
        results = {-1: [exact(total(table) / Z[h]) for table, h in zip(self.values, self.head, strict=True)]}
        arguments, roots = {}, {}
        for b, (function, given, eps) in enumerate(self.blocks):
            z = arguments[b] = given(results)
            if function in ("norm", "rms"):
                results[b], roots[b] = norm(z, eps, function == "norm")
            else:
                results[b] = [FUNCTIONS[function](x) for x in z]
        return Found([exact(1 / z) for z in Z], arguments, results, roots, self.logits(results))
