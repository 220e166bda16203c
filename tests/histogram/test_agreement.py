"""Certified verdicts and exact error shares equal enumeration in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from models.histogram_runs import exhaustive
from models.random_models import random_model, trained_like
from models.selection import every, first
from oracles.histogram import all_wrong_pairs, forward, smallest, weights_of

from constructions.histogram import MODELS
from tests.clocks import ENDLESS
from verify.frame.certificate import Verdict
from verify.tasks.histogram.proof import certify

RANDOM_MODELS, CHUNK = 500, 125


def check_against_enumeration(module, **options):
    certificate = certify(module, budget=ENDLESS, **options)
    wrong = all_wrong_pairs(module)
    if not wrong:
        assert certificate.verdict is Verdict.PROVED
        check_margin(module, certificate)
        return
    assert certificate.verdict is Verdict.REFUTED
    share = Fraction(len(wrong), module.L * module.T**module.L)
    assert certificate.error_share == (share, share)
    assert certificate.extra["wrong_pairs"] == str(len(wrong))
    found = certificate.counterexample
    assert (tuple(found["tokens"]), found["position"]) == smallest(wrong)
    assert found["is_smallest"]


def check_margin(module, certificate):
    """The certified margin is below the smallest one that occurs, and so is the one of every count."""
    sequences = np.array(np.meshgrid(*[range(module.T)] * module.L)).reshape(module.L, -1).T
    logits = forward(module, weights_of(module), sequences)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    right = (counts - module.first_count)[..., None]
    at_right = np.take_along_axis(logits, right, -1)[..., 0]
    np.put_along_axis(logits, right, -np.inf, -1)
    margin = at_right - logits.max(-1)
    slack = 1e-9 * (1 + abs(at_right).max())
    for k in range(1, module.L + 1):
        assert certificate.margin_per_count[k - 1] <= margin[counts == k].min() + slack
    if certificate.tightest is not None:
        tokens, position = certificate.tightest["tokens"], certificate.tightest["position"]
        assert tokens.count(tokens[position]) == certificate.tightest["expected"]


@pytest.mark.parametrize(
    ("start", "models"), first(1, [(0, 30), *((i, CHUNK) for i in range(0, RANDOM_MODELS, CHUNK))])
)
@pytest.mark.deep
def test_random_and_mutated_models(start, models):
    for seed in range(start, start + models):
        check_against_enumeration(random_model(seed))


@pytest.mark.deep
@pytest.mark.parametrize("start", range(RANDOM_MODELS, 240 * RANDOM_MODELS, CHUNK))
def test_many_more_random_models(start):
    for seed in range(start, start + CHUNK):
        check_against_enumeration(random_model(seed))


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 30)]))
@pytest.mark.parametrize("kind", every(3, MODELS))
def test_trained_like_models(kind, seeds):
    """Nearly right models with neurons that are on for some multisets only: branch and bound has to work."""
    for seed in seeds:
        T, L = [(4, 5), (6, 4), (3, 6)][seed % 3]
        check_against_enumeration(trained_like(seed, kind, T, L, p=1 + seed % 6))


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 8)]))
@pytest.mark.parametrize("kind", every(2, MODELS))
def test_the_torch_module_agrees_away_from_ties(kind, seeds):
    """An independent path: the torch module itself in float64 on every sequence."""
    for seed in seeds:
        module = trained_like(seed, kind, 4, 4, p=5).double()
        certified, run = certify(module), exhaustive(module)
        assert certified.verdict == run.verdict
        assert certified.error_share == run.error_share or certified.verdict is Verdict.PROVED


def test_ties_are_settled():
    """All logits equal everywhere: wrong on every input, by exact arithmetic."""
    for kind in MODELS:
        from constructions.histogram import HistogramTransformer

        module = HistogramTransformer(kind, T=3, L=4, d=3, p=2)
        with torch.no_grad():
            module.E.copy_(torch.eye(3))
            module.W_1.fill_(1.0)
        certificate = certify(module)
        assert certificate.verdict is Verdict.REFUTED
        assert certificate.error_share == (1, 1)
        assert certificate.counterexample["is_tie"]
        assert certificate.margin == 0.0


def test_an_exact_tie_of_exponentials_is_settled():
    """dot+sftm with equal scores: the tie is between sums of exponentials, and floating point cannot tell."""
    from constructions import inventory_counting

    module = inventory_counting.dot_sftm(T=3, L=3, dtype=torch.float64, as_printed=True)
    with torch.no_grad():
        # gamma at count L is exactly 1 (its only weight is e^1 / e^1): put the last threshold right there
        module.b_2[2] = module.b_2[1] - (module.W_2[0, 2] - module.W_2[0, 1])
    certificate = certify(module)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.counterexample["tokens"] == [0, 0, 0]
    assert certificate.counterexample["is_tie"] and certificate.margin_exact == "0"
    assert math.isclose(float(certificate.error_share[0]), 3 / 27)
