"""Accuracies, AUC and Shapley values of heads, against brute force over every triple."""

import tracemalloc
from fractions import Fraction
from itertools import combinations, permutations
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch

from constructions.count01 import Count01Transformer, load, save
from tests.oracles.heads import FIVE, FOUR, Oracle, box
from verify.tasks.count01.heads.auc import Auc
from verify.tasks.count01.heads.shapley import shapley
from verify.tasks.count01.heads.subsets import all_subsets, mask
from verify.tasks.count01.layer_norm.accuracy import Learned, whole_model
from verify.tasks.count01.layer_norm.counting import wrong_after_equals, wrong_where_due
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers
from verify.tasks.count01.layer_norm.syntax import Syntax

MODELS = Path(__file__).parents[1] / "data" / "count01"
ONES = "majority-ones"


def numbers(name):
    return model_numbers(load(str(MODELS / f"{name}.safetensors")))


@pytest.mark.deep
def test_every_triple_of_the_documents_test_box_agrees():
    model, oracle, law = numbers("a4_s1"), Oracle(MODELS / "a4_s1.safetensors"), law_named("d-test")
    triples = box(151, 200, 200)
    assert np.array_equal(law.triples, triples)
    learned, syntax = Learned(model, law, ONES), Syntax(model, law, ONES)
    assert int(whole_model(model, law, ONES).right.sum()) == oracle.whole_right(triples)
    for heads in [(0, 1, 2, 3)]:
        assert int(learned.answers(heads).right.sum()) == oracle.learned_right(triples, heads)
    assert syntax.accuracy((0,), law) == Fraction(oracle.eos_right(triples, (0,)), len(triples))


@pytest.mark.deep
def test_every_subset_of_four_heads_agrees_on_every_triple():
    model, oracle, law = numbers("a4_s1"), Oracle(MODELS / "a4_s1.safetensors"), law_named("d-test")
    triples, learned = box(151, 200, 200), Learned(model, law, ONES)
    for heads in (heads for k in range(5) for heads in combinations(range(4), k)):
        assert int(learned.answers(heads).right.sum()) == oracle.learned_right(triples, heads)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["a16_s0", "a16_s2"])
def test_sixteen_heads_agree_on_every_triple(name):
    model, oracle, law = numbers(name), Oracle(MODELS / f"{name}.safetensors"), law_named("d-test")
    triples = box(151, 200, 200)
    learned = Learned(model, law, ONES)
    assert int(whole_model(model, law, ONES).right.sum()) == oracle.whole_right(triples)
    for heads in [(h,) for h in range(16)] + [(0, 8), (5, 10, 11, 12), tuple(range(16))]:
        assert int(learned.answers(heads).right.sum()) == oracle.learned_right(triples, heads)


def test_all_subsets_auc_and_syntax_agree_on_a_small_box():
    model, oracle, law = numbers("a4_s0"), Oracle(MODELS / "a4_s0.safetensors"), law_named("box:3:9:12")
    triples = box(3, 9, 12)
    missed = sum(len(wrong_where_due(model, law.domain, ONES, last)) for last in (FOUR, FIVE))
    assert missed == len(triples) - oracle.eos_right(triples, range(4))
    table, auc, syntax = all_subsets(model, law, ONES), Auc(model, law, ONES), Syntax(model, law, ONES)
    for k in range(5):
        for heads in combinations(range(4), k):
            assert table.right[mask(heads)] == oracle.learned_right(triples, heads)
            assert syntax.accuracy(heads, law) == Fraction(oracle.eos_right(triples, heads), len(triples))
            if heads:
                assert auc.of(heads) == Fraction(*oracle.auc(triples, heads))


@pytest.mark.deep
def test_a_model_that_is_perfect_on_samples_is_wrong_on_sixteen_triples():
    model, law = numbers("a16_s2"), law_named("d-test")
    wrong, accuracy = wrong_after_equals(model, law, ONES)
    assert len(wrong) == 16 and accuracy == Fraction(502500 - 16, 502500)
    g = np.random.default_rng(0)
    drawn = np.column_stack([g.integers(151, 201, (1500, 2)), g.integers(0, 201, 1500)])
    logits = Oracle(MODELS / "a16_s2.safetensors").logits(drawn, range(16))
    assert (logits.argmax(axis=1) == np.where(drawn[:, 1] > drawn[:, 0], 4 + 1, 5 + 1)).all()


def test_constant_answers_are_right_on_49_and_51_percent():
    law = law_named("d-test")
    found = Learned(numbers("a16_s2"), law, ONES).answers(()).accuracy(law)
    assert found == (Fraction(49, 100),) * 2 or found == (Fraction(51, 100),) * 2


def test_multiplicities_are_made_in_one_piece():
    law = law_named("box:0:30:40")
    triples = law.triples
    tracemalloc.start()
    counts = law.counts
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts[:, 1:4].tolist() == triples.tolist() and (counts[:, [0, 4]] == 1).all()
    assert held < 1.1 * counts.nbytes


@pytest.mark.deep
def test_the_law_of_lengths_weighs_strings():
    law = law_named("e-lengths")
    assert int(sum(law.weights)) == law.total
    assert law.size == len(law.triples) == comb(203, 3) - comb(153, 3)
    i = int(np.flatnonzero((law.triples == (151, 0, 0)).all(axis=1))[0])
    assert Fraction(law.weights[i], law.total) == Fraction(1, 50) / 3**151


def test_the_labels_of_the_thesis_exchange_the_answers():
    law, model = law_named("box:0:6:4"), numbers("a4_s0")
    ones, thesis = (whole_model(model, law, labels).right for labels in (ONES, "thesis"))
    assert not (ones & thesis).any()


def test_shapley_values_are_those_of_all_orders_and_sum_up():
    table = all_subsets(numbers("a4_s3"), law_named("box:0:12:9"), ONES)
    values = shapley(table.right, table.total)
    assert sum(values) == table.accuracy(15) - table.accuracy(0)
    gains = [Fraction(0)] * 4
    for order in permutations(range(4)):
        for place, h in enumerate(order):
            before = mask(order[:place])
            gains[h] += table.accuracy(before | 1 << h) - table.accuracy(before)
    assert values == [gain / 24 for gain in gains]


def test_weights_beyond_floats_are_settled_by_digits(tmp_path):
    """BOS and = weigh e^-600 of the digits: where there are none, a float's normaliser would be lost."""
    model = Count01Transformer(d=8, heads=2, d_h=1)
    with torch.no_grad():
        model.E.copy_(torch.eye(8))
        model.W_Q[:, 4, 0] = 1
        model.W_K[0, :, 0] = torch.tensor([-600.0, 0, 0.25, 0.5, -600, 0, 0, 0])
        model.W_K[1, :, 0] = torch.tensor([-600.0, 0.5, 0, -1, -601, 0, 0, 0])
        model.W_V[:, :, 0] = torch.tensor([[-0.3, -1, 1, 0.1, 0.2, 0, 0, 0], [0.4, 0.7, -1.1, 0.3, -0.2, 0, 0, 0]])
        model.W_O[:, 0, 0] = 1
        model.W_out[0, 5], model.W_out[0, 6], model.b_out[5] = 1, -1, 0.0625
    save(model, str(tmp_path / "m.safetensors"))
    oracle, law, triples = Oracle(tmp_path / "m.safetensors"), law_named("box:0:2:3"), box(0, 2, 3)
    found = model_numbers(model)
    learned, auc, table = Learned(found, law, ONES), Auc(found, law, ONES), all_subsets(found, law, ONES)
    for heads in ((0,), (1,), (0, 1)):
        right = oracle.learned_right(triples, heads)
        assert int(learned.answers(heads).right.sum()) == right == table.right[mask(heads)]
    assert auc.of((0, 1)) == Fraction(*oracle.auc(triples, (0, 1)))
