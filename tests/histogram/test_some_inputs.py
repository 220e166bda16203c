"""Inputs that are run before a search: what is found is wrong by enumeration, and planted faults find what is right."""

from functools import cache

import torch
from models.random_models import random_model
from oracles.histogram import wrong_pairs

from constructions import relation_counting
from constructions.histogram import HistogramTransformer
from tests.clocks import ENDLESS
from tests.planted import planted
from verify.tasks.histogram import some_inputs
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.stored import StoredModel

SEEDS = range(24)


@cache
def wrong(seed):
    return {(tuple(sequence), position) for sequence, position in wrong_pairs(random_model(seed))}


def found(module):
    stored, smallest = StoredModel.of(module), Smallest()
    some_inputs.run_some(stored, ExactForward(stored), smallest, ENDLESS.deadline())
    return smallest.candidate


def outcomes():
    """Of each model: whether it was refuted, and whether by an input that is right."""
    for seed in SEEDS:
        candidate = found(random_model(seed))
        is_wrong = candidate is not None and (candidate.tokens, candidate.position) in wrong(seed)
        yield candidate is not None, candidate is not None and not is_wrong


def test_what_is_found_is_wrong_and_most_wrong_models_are_found(monkeypatch):
    monkeypatch.setattr(some_inputs, "MOST", 2 * some_inputs.AT_ONCE)
    refuted, mistaken = zip(*outcomes(), strict=True)
    assert not any(mistaken)
    assert sum(refuted) >= 0.9 * sum(bool(wrong(seed)) for seed in SEEDS) > 5


def seen_as_a_tie():
    """The right logit is larger by 2^-60, which a run in float64 rounds away."""
    module = HistogramTransformer("dot", T=2, L=1, d=1, p=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.E[:], module.W_1[:], module.W_2[:] = 1.0, 1.0, 1.0
        module.b_2[0] = 2.0**-60
    return module


def test_what_rounding_makes_a_tie_is_judged_exactly():
    assert found(seen_as_a_tie()) is None and not wrong_pairs(seen_as_a_tie())
    with planted(some_inputs, "run_some", "not exact.judge(sequence, position).is_right", "True"):
        assert found(seen_as_a_tie()) is not None


def test_the_inputs_that_are_judged_are_those_that_look_worst(monkeypatch):
    monkeypatch.setattr(some_inputs, "MOST", some_inputs.AT_ONCE)
    with planted(some_inputs, "run_some", "np.argsort(np.where", "np.argsort(-np.where"):
        assert sum(refuted for refuted, _ in outcomes()) < 0.9 * sum(bool(wrong(seed)) for seed in SEEDS)


def test_a_model_that_counts_is_not_refuted(monkeypatch):
    monkeypatch.setattr(some_inputs, "MOST", some_inputs.AT_ONCE)
    assert found(relation_counting.bos_sftm(T=8, L=5)) is None
