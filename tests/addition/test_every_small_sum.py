"""Verdicts against enumeration for every base and number of digits with at most 10^6 pairs, and P up to 127."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from models.selection import every

from bounds.modular import neurons_needed
from constructions import addition, modular
from constructions.adder.digits import Digits
from tests.oracles import all_sums
from verify.frame.decide import certify
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.task import DigitAddition

MOST = 10**6
BUILDS = (addition.one_head, addition.two_heads, addition.two_layers)
SIZES = [(B, n) for B in (*range(2, 101), 317, 1000) for n in range(1, 10) if B ** (2 * n) <= MOST]
QUICK = [size for size in SIZES if size[0] ** (2 * size[1]) <= 300 and size[0] % 3 == 2]
NEAR = 1e-6  # of a tie: float64 may say either
LEVELS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-2)


def enumerated(problem):
    """(margin, pair) blocks of all sums in their order, each margin the least of the answer's digits."""
    if isinstance(problem, ModularAddition):
        pairs = list(problem.inputs())
        return [(problem.run(pairs).min(axis=1), pairs)]
    n, B = problem.sums.n, problem.sums.B
    blocks = all_sums.margins(problem.model, n, B)
    return ((margins.min(axis=0).flatten(), Block(a, B**n)) for a, margins in blocks)


class Block:
    """The pairs of some first numbers with all second ones."""

    def __init__(self, first, size):
        self.first, self.size = first, size

    def __getitem__(self, i):
        return int(self.first[i // self.size]), int(i % self.size)


def tally(problem):
    """How many pairs are wrong, the least margin, the least distance from a tie, and the first wrong pair."""
    wrong, least, nearest, first = 0, np.inf, np.inf, None
    for margins, pairs in enumerated(problem):
        is_wrong = ~(margins > 0)
        wrong += int(is_wrong.sum())
        least, nearest = min(least, margins.min()), min(nearest, np.abs(margins).min())
        if first is None and is_wrong.any():
            first = pairs[int(is_wrong.argmax())]
    return wrong, least, nearest, first


def mutated(model, rng):
    """One stored number changed, by little or by much."""
    with torch.no_grad():
        W = rng.choice([W for W in model.parameters() if W.numel()])
        W[tuple(rng.randrange(s) for s in W.shape)] += rng.choice([0.01, -0.03, 0.3, -1.0, 2.0])
    return model


def trained_like(model, rng):
    """Every stored number that is not zero a little off, as after training: scores still depend on positions alone."""
    level, g = rng.choice(LEVELS), torch.Generator().manual_seed(rng.randrange(10**9))
    with torch.no_grad():
        for W in model.parameters():
            W *= 1 + level * torch.randn(W.shape, generator=g, dtype=W.dtype)
    return model


def compare(problem):
    """The verdict, after every pair agreed with it: the number of wrong pairs and the first one, if it has them."""
    found = certify(problem)
    wrong, least, nearest, first = tally(problem)
    if found.verdict == "PROVED":
        assert wrong == 0 and found.margin <= least + NEAR
    elif found.verdict == "REFUTED":
        assert wrong > 0 or nearest < NEAR
        if nearest > NEAR:
            assert int(found.extra.get("counts", {}).get("wrong", wrong)) == wrong
            if found.counterexample.get("is_smallest"):
                named = list(first) if isinstance(problem, ModularAddition) else problem.name(first)
                assert found.counterexample["input"] == named
    return found.verdict


def sums_of(B, n, seed, builds=BUILDS, changes=(mutated, trained_like)):
    """The constructions, which add at these sizes, and what becomes of them by one changed number and by noise."""
    rng, sums = random.Random(seed), Digits(n, B)
    for build in builds:
        assert compare(DigitAddition(build(n=n, B=B), sums)) == "PROVED", (build.__name__, B, n)
        for change in changes:
            compare(DigitAddition(change(build(n=n, B=B), rng), sums))


@pytest.mark.parametrize("size", every(6, [(size,) for size in QUICK]))
def test_small_sums(size):
    sums_of(*size, seed=0)


@pytest.mark.deep
@pytest.mark.parametrize("size", [size for size in SIZES if size not in QUICK])
def test_every_sum_with_at_most_a_million_pairs(size):
    """All constructions up to base 100; beyond, one of them; in base 1000, where a proof takes a minute, unchanged."""
    if size[0] <= 100:
        sums_of(*size, seed=1)
    else:
        sums_of(*size, seed=1, builds=BUILDS[:1], changes=() if size[0] == 1000 else (mutated, trained_like))


def test_the_oracle_is_what_torch_runs():
    """Margins of all pairs by shared prefixes, and by the module: also where scores depend on digits."""
    rng = random.Random(3)
    for build in BUILDS:
        for change in (mutated, trained_like, dense):
            model = change(build(n=2, B=3), rng)
            problem = DigitAddition(model, Digits(2, 3))
            found = np.concatenate([margins.reshape(3, -1).T for _, margins in all_sums.margins(model, 2, 3)])
            assert np.allclose(found, problem.run(list(problem.inputs())), atol=1e-9)


def dense(model, rng):
    """Every stored number a little off, those that are zero as well."""
    g = torch.Generator().manual_seed(rng.randrange(10**9))
    with torch.no_grad():
        for W in model.parameters():
            W += 0.1 * torch.randn(W.shape, generator=g, dtype=W.dtype)
    return model


def moduli_of(P, seed):
    rng = random.Random(seed)
    builds = [lambda: modular.staircase(P=P)]
    if P % 2:
        builds.append(lambda: modular.pizza(P=P, m=neurons_needed(P)))
    if P > 2:
        builds.append(lambda: modular.clock(P=P, frequencies=tuple(range(1, (P + 1) // 2))[:3]))
    if P in modular.ONE_NEURON:
        builds.append(lambda: modular.one_neuron(P=P))
    for build in builds:
        assert compare(ModularAddition(build(), P)) == "PROVED"
    for change in (mutated, trained_like, dense):
        assert compare(ModularAddition(change(rng.choice(builds)(), rng), P)) != "UNKNOWN"


@pytest.mark.parametrize("P", [2, 3, 4, 6, 17, 31])
def test_small_moduli(P):
    moduli_of(P, seed=P)


@pytest.mark.deep
@pytest.mark.parametrize("P", range(2, 128))
def test_every_modulus_to_127(P):
    moduli_of(P, seed=100 + P)
