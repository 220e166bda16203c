"""The constructions are PROVED at the sizes the propositions speak of, and the misprint is REFUTED."""

import math

import numpy as np
import pytest
import torch
from models.random_models import random_model
from models.selection import every, first

from constructions import inventory_counting, relation_counting
from constructions.histogram import DTYPES
from verify.frame.certificate import Verdict
from verify.tasks.histogram import vertices
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel

RELATION = [relation_counting.dot, relation_counting.bos, relation_counting.bos_sftm, relation_counting.zero_bos]
INVENTORY = [
    inventory_counting.lin,
    inventory_counting.lin_sftm,
    inventory_counting.dot_sftm,
    inventory_counting.dot,
    inventory_counting.bos,
    inventory_counting.bos_sftm,
]


def name(build):
    return f"{build.__module__.split('.')[1]}.{build.__name__}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("build", RELATION + INVENTORY, ids=name)
@pytest.mark.parametrize(("T", "L", "d"), first(2, [(2, 1, 2), (3, 7, 5), (32, 10, 32), (2, 2, 2), (100, 50, 128)]))
def test_constructions_are_proved(build, T, L, d, dtype):
    certificate = certify(build(T=T, L=L, d=d, dtype=dtype))
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == T**L
    assert certificate.margin > 0
    assert len(certificate.margin_per_count) == L
    assert certificate.counterexample is None


@pytest.mark.parametrize("T", first(1, [500, 1000]))
@pytest.mark.parametrize("build", first(1, RELATION[:3]))
def test_relation_counting_at_a_thousand(build, T):
    certificate = certify(build(T=T, L=1000, d=T))
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == T**1000


@pytest.mark.parametrize("build", first(2, INVENTORY))
def test_inventory_counting_at_two_hundred(build):
    certificate = certify(build(T=200, L=100, d=200))
    assert certificate.verdict is Verdict.PROVED
    assert certificate.inputs_covered == 200**100


@pytest.mark.parametrize("build", every(2, INVENTORY) + first(0, RELATION), ids=name)
def test_random_basis_and_padding(build):
    p = 40 if build in INVENTORY else 7
    certificate = certify(build(T=32, L=10, d=45, p=p, basis="random", seed=3))
    assert certificate.verdict is Verdict.PROVED


@pytest.mark.parametrize("build", RELATION, ids=name)
def test_random_basis_and_padding_of_small_models(build):
    assert certify(build(T=8, L=4, d=12, p=3, basis="random", seed=3)).verdict is Verdict.PROVED


AS_PRINTED = [
    pytest.param(build, marks=pytest.mark.deep) if build is relation_counting.bos else build for build in RELATION
] + INVENTORY


@pytest.mark.parametrize("build", AS_PRINTED, ids=name)
def test_as_printed(build):
    """Everything that is printed works in float64, except the bias of B.2.3."""
    certificate = certify(build(T=32, L=10, dtype=torch.float64, as_printed=True))
    if build is not relation_counting.bos:
        assert certificate.verdict is Verdict.PROVED
        return
    assert certificate.verdict is Verdict.REFUTED
    found = certificate.counterexample
    assert found["tokens"] == [0] * 9 + [1] and found["expected"] == 9
    assert found["predicted"] == found["module_predicts"] == 10
    assert found["is_smallest"]
    # right exactly where the neuron saturates at the last class: the constant sequences
    wrong = int(certificate.extra["wrong_pairs"])
    assert wrong == 10 * (32**10 - 32)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("build", every(2, RELATION + INVENTORY), ids=name)
def test_every_dtype_is_decided(build, dtype):
    certificate = certify(build(T=32, L=10, dtype=dtype))
    assert certificate.verdict in (Verdict.PROVED, Verdict.REFUTED)


def test_exact_margin_of_a_dyadic_model():
    certificate = certify(inventory_counting.lin(T=32, L=10))
    assert certificate.margin_exact == "1/32"
    assert math.isclose(certificate.margin, 1 / 32, rel_tol=1e-9)
    assert certificate.margin <= 1 / 32


def test_shorter_sequences_than_the_model_was_built_for():
    """With dot and p = T the count is read whatever L is, so shorter sequences are counted too."""
    module = inventory_counting.dot(T=6, L=10)
    assert certify(module, L=4).verdict is Verdict.PROVED


@pytest.mark.parametrize("seeds", first(1, [range(60), range(60, 600)]))
def test_neurons_that_are_off_at_all_counts_change_no_bit(seeds, monkeypatch):
    """Margins, tightest cells and open cells are the same where all neurons are looked at, at every count."""
    models = [random_model(seed) for seed in seeds]
    models += [build(T=7, L=5, d=8, p=8) for build in (inventory_counting.lin, inventory_counting.dot_sftm)]
    alone, used = vertices.neuron_alone, []

    def watched(*args):
        used.append(alone(*args))
        return used[-1]

    for module in models:
        found = []
        for method in (watched, lambda *args: None):
            monkeypatch.setattr(vertices, "neuron_alone", method)
            cells = vertices.decide_cells(Reduction(StoredModel.of(module)))
            tightest = {way: (cell.margin, cell.t, cell.k) for way, cell in cells.tightest.items()}
            found.append((cells.margin_per_count.tobytes(), tightest, cells.open))
        assert found[0] == found[1]
    assert any(one is not None for one in used) and any(one is None for one in used)


def test_parts_of_any_size_decide_the_same(monkeypatch):
    """Many tokens at once, or one: the same open cells, and the same margins but for roundings of their bounds."""
    models = [random_model(seed) for seed in range(20)]
    models += [build(T=7, L=5, d=8, p=9) for build in (inventory_counting.lin, inventory_counting.dot_sftm)]
    for module in models:
        found = []
        for numbers in (1, 100, 1 << 21):
            monkeypatch.setattr(vertices, "CHUNK", numbers)
            monkeypatch.setattr(vertices, "IN_CACHE", numbers)
            cells = vertices.decide_cells(Reduction(StoredModel.of(module)))
            found.append((cells.margin_per_count, cells.open))
        for margins, are_open in found:
            assert are_open == found[0][1] and np.allclose(margins, found[0][0], rtol=1e-12, atol=0)


def test_neurons_of_zeros_leave_a_model_proved():
    """Their range is 0, and not up to the next number."""
    assert certify(inventory_counting.lin(T=5, L=4, d=6, p=8, basis="random", seed=1)).argument == "vertices"
