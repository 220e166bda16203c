"""Tokens that occur again: verdicts against every sequence in fractions, and a fault that must be caught."""

import itertools
from fractions import Fraction
from unittest import mock

import torch
from verify.tasks.twice import proof
from verify.tasks.twice.model import orthonormal
from verify.tasks.twice.task import Twice

from verify.frame.decide import certify, exhaustive


def right_everywhere(module):
    E, w, b = ([[Fraction(x) for x in row] for row in W.reshape(-1, W.shape[-1]).tolist()] for W in module.parameters())
    for tokens in itertools.product(range(module.T), repeat=module.L):
        for t in tokens:
            total = sum(x * y for s in tokens for x, y in zip(E[t], E[s], strict=True))
            once, again = (w[0][c] * total + b[0][c] for c in range(2))
            if not (again > once if tokens.count(t) > 1 else once > again):
                return False
    return True


def mutated(seed, noise):
    module, g = orthonormal(T=3, L=3), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += noise * torch.randn(weight.shape, generator=g, dtype=weight.dtype)
    return module


def test_verdicts_are_those_of_enumeration():
    models = [mutated(seed, noise) for seed in range(12) for noise in (0.02, 0.2, 1)]
    right = [right_everywhere(module) for module in models]
    assert [bool(certify(Twice(module))) for module in models] == right and 5 < sum(right) < 31
    assert [bool(exhaustive(Twice(module))) for module in models] == right
    with mock.patch.object(proof, "vertices", lambda T, L: [(0,) * L]):
        assert [bool(certify(Twice(module))) for module in models] != right
