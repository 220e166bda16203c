"""Repaired weights are proved at precisions at which the printed ones fail; the printed ones are still there."""

from __future__ import annotations

import pytest
import torch

from constructions import inventory_counting, relation_counting
from constructions.readout import rounding_cost, staircase, staircase_at
from verify.certificate import Verdict
from verify.formats import FORMATS, format_named
from verify.histogram_dtype import certify

SIZES = {"T": 32, "L": 10, "dtype": torch.float64}
# builder, bits that suffice for ours
GAINS = [
    (relation_counting.dot, 8),
    (relation_counting.zero_bos, 8),
    (inventory_counting.lin, 6),
    (inventory_counting.lin_sftm, 9),
    (relation_counting.bos_sftm, 11),
]


def verdict(module, name, **options):
    return certify(module, fmt=format_named(name), **options).verdict


def fewest_bits(module):
    return next(p for p in range(5, 54) if verdict(module, f"p{p}", budget=0.0) is Verdict.PROVED)


@pytest.mark.parametrize(("build", "enough"), GAINS)
def test_fewer_bits_suffice(build, enough):
    ours, printed = fewest_bits(build(**SIZES)), fewest_bits(build(**SIZES, as_printed=True))
    assert ours <= enough and ours < printed


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_dot_with_one_neuron_passes_sixteen_bits_where_the_printed_weights_fail(name):
    assert verdict(relation_counting.dot(**SIZES), name) is Verdict.PROVED
    printed = certify(relation_counting.dot(**SIZES, as_printed=True), fmt=FORMATS[name], budget=5)
    assert printed.verdict is Verdict.REFUTED


def test_the_printed_weights_are_the_documents():
    model = relation_counting.dot(T=4, L=3, as_printed=True)
    assert model.b_1.item() == -(1 + 3 * (4 + 2))
    assert torch.allclose(model.E, torch.eye(4) + 1)
    assert relation_counting.bos_sftm(T=4, L=3, as_printed=True).b_1.item() == -1


@pytest.mark.parametrize("basis", ["standard", "random"])
@pytest.mark.parametrize("build", [relation_counting.dot, relation_counting.bos_sftm])
def test_scores_and_tags(build, basis):
    """Scores are those of orthonormal tokens, and every token has the component 1 along the direction read."""
    model = build(T=5, L=3, d=7, dtype=torch.float64, basis=basis)
    scores = model.E @ model.W_Q @ model.W_K.T @ model.E.T / 7**0.5
    assert torch.allclose(scores, torch.eye(5, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(model.E @ model.W_1[:, 0], torch.ones(5, dtype=torch.float64), atol=1e-12)
    if model.has_bos:
        assert torch.allclose(model.e_BOS @ model.W_1[:, 0], torch.tensor(5.0, dtype=torch.float64), atol=1e-12)
        keys = model.E @ model.W_Q @ model.W_K.T @ model.e_BOS / 7**0.5
        assert torch.allclose(keys, torch.ones(5, dtype=torch.float64), atol=1e-12)


def test_the_staircase_costs_no_more_than_any_other_centre():
    gamma = [2.7 * k / (1.7 * k + 10) for k in range(1, 11)]
    thresholds = [(a + b) / 2 for a, b in zip(gamma, gamma[1:], strict=False)]
    chosen = rounding_cost(gamma, *staircase(gamma, torch.float64))
    slopes, intercepts = staircase_at(thresholds, False, torch.float64)
    for c in range(10):
        assert chosen <= rounding_cost(gamma, slopes - slopes[c], intercepts - intercepts[c]) * (1 + 1e-9)
    assert chosen < rounding_cost(gamma, slopes, intercepts) / 3
