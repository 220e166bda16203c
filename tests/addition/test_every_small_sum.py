"""Verdicts against enumeration for every base and number of digits with at most 10^6 pairs, and P up to 127."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from bounds.modular import neurons_needed
from constructions import addition, modular
from constructions.adder.digits import Digits
from verify.addition.task import DigitAddition
from verify.decide import certify
from verify.modular.task import ModularAddition

MOST = 10**6
SIZES = [(B, n) for B in (*range(2, 33), 50, 100, 317, 1000) for n in range(1, 10) if B ** (2 * n) <= MOST]
QUICK = [size for size in SIZES if size[0] ** (2 * size[1]) <= 1300 and size[0] % 3 == 2]
AT_ONCE = 20_000


def enumerated(problem, pairs):
    """How many pairs are wrong, and the least margin, by torch in float64."""
    wrong, least = 0, np.inf
    for start in range(0, len(pairs), AT_ONCE):
        margins = problem.run(pairs[start : start + AT_ONCE])
        wrong += int((~(margins > 0)).any(1).sum())
        least = min(least, float(np.nan_to_num(margins, nan=-np.inf).min()))
    return wrong, least


def mutated(model, rng):
    """One stored number changed, by little or by much."""
    with torch.no_grad():
        W = rng.choice([W for W in model.parameters() if W.numel()])
        W[tuple(rng.randrange(s) for s in W.shape)] += rng.choice([0.01, -0.03, 0.3, -1.0, 2.0])
    return model


def compare(problem):
    """The verdict, after the run of every pair agreed with it: with the exact count of wrong pairs, if it has one."""
    found = certify(problem)
    wrong, least = enumerated(problem, list(problem.inputs()))
    if found.verdict == "PROVED":
        assert wrong == 0 and found.margin <= least + 1e-6
    elif found.verdict == "REFUTED":
        assert wrong > 0 or abs(least) < 1e-6
        if abs(least) > 1e-6 and "counts" in found.extra:
            assert int(found.extra["counts"]["wrong"]) == wrong
    return found.verdict


def sums_of(B, n, seed):
    """The constructions that add at these sizes as they stand, and two of them with a changed weight."""
    rng = random.Random(seed)
    sums = Digits(n, B)
    for build in (addition.one_head, addition.two_heads, addition.two_layers):
        assert compare(DigitAddition(build(n=n, B=B), sums)) == "PROVED", (build.__name__, B, n)
    for build in (addition.one_head, addition.two_layers):
        compare(DigitAddition(mutated(build(n=n, B=B), rng), sums))


@pytest.mark.parametrize("size", QUICK)
def test_small_sums(size):
    sums_of(*size, seed=0)


@pytest.mark.deep
@pytest.mark.parametrize("size", [size for size in SIZES if size not in QUICK])
def test_every_sum_with_at_most_a_million_pairs(size):
    """All constructions up to 70,000 pairs; beyond, one of them, which runs for a minute."""
    B, n = size
    if B ** (2 * n) <= 70_000:
        sums_of(B, n, seed=1)
    else:
        build = (addition.one_head, addition.two_heads, addition.two_layers)[(B + n) % 3]
        assert compare(DigitAddition(build(n=n, B=B), Digits(n, B))) == "PROVED"


def moduli_of(P, seed):
    rng = random.Random(seed)
    models = [modular.staircase(P=P)]
    if P % 2:
        models.append(modular.pizza(P=P, m=neurons_needed(P)))
    if P > 2:
        models.append(modular.clock(P=P, frequencies=tuple(range(1, (P + 1) // 2))[:3]))
    for model in models:
        assert compare(ModularAddition(model, P)) == "PROVED"
    assert compare(ModularAddition(mutated(rng.choice(models), rng), P)) != "UNKNOWN"


@pytest.mark.parametrize("P", [2, 3, 4, 6, 17, 31])
def test_small_moduli(P):
    moduli_of(P, seed=P)


@pytest.mark.deep
@pytest.mark.parametrize("P", range(2, 128))
def test_every_modulus_to_127(P):
    moduli_of(P, seed=100 + P)
