"""Trained heads and sums of digits: what is kept of a trial is what enumeration by an oracle says of its weights."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from oracles.heads import EQUALS, FIVE, FOUR, Oracle

from constructions.adder.digits import Digits
from constructions.count01 import save
from verify.frame.experiment import GridSize, Verdict
from verify.tasks.addition import experiments as addition
from verify.tasks.count01 import noisy_majority, trained_heads
from verify.tasks.count01.heads import classified, svc
from verify.tasks.count01.heads.classified import FittedHead

LAPTOP = GridSize.LAPTOP
SMALL = noisy_majority.DocumentStrings(
    "box:2:7:6", "majority-ones", noisy_majority.counted, (0, 4, 5), (2, 5, 5), (2, 7, 6)
)
HALF = Fraction(1, 2)


def fewer_steps(monkeypatch, steps):
    for room in (noisy_majority, trained_heads, addition):
        usual = room.recipe
        monkeypatch.setattr(room, "recipe", lambda *of, usual=usual: replace(usual(*of), steps=steps))


def oracle(tmp_path, weights):
    place = tmp_path / "weights.safetensors"
    place.write_bytes(weights)
    return Oracle(str(place))


def counts_in(case):
    return [int(count) for count in re.findall(r"= (\d+)", case["input"])]


@pytest.mark.parametrize("labels", ["majority-ones", "thesis"])
def test_a_heads_share_is_that_of_all_triples(tmp_path, monkeypatch, labels):
    """Its classifier, as it was fitted, answers every triple of a small law; the oracle says what it reads."""
    of, lines = replace(SMALL, labels=labels), []

    def noted(seen, y, rounds):
        lines.append((seen, *svc_fit(seen, y, rounds)))
        return lines[-1][1:]

    svc_fit = svc.fit
    monkeypatch.setattr(svc, "fit", noted)
    module, sets = noisy_majority.prepared(3, 3, torch.Generator().manual_seed(4), of, d_h=1)
    found = classified.fitted_heads(module, sets, of)
    save(module, str(tmp_path / "model.safetensors"))
    given = Oracle(str(tmp_path / "model.safetensors"))
    triples = np.array(list(product(range(2, 8), range(2, 8), range(7))))
    more = triples[:, 1] > triples[:, 0]
    for h, (head, (seen, w, b, _)) in enumerate(zip(found, lines, strict=True)):
        training = given.outputs(h, sets[0].numpy())
        assert np.allclose(seen, training - training.mean(axis=0)), "it is fitted to the training set"
        score = (given.outputs(h, triples) - training.mean(axis=0)) @ w + b
        assert abs(score).min() > 1e-9, "no triple is near a tie here"
        right = (score > 0) == more
        assert head.share == Fraction(int(right.sum()), len(triples)) < 1
        wrong = triples[~right][0].tolist()
        assert counts_in(head.wrong) == wrong
        due = 4 if (wrong[1] > wrong[0]) is (labels == "majority-ones") else 5
        assert head.wrong["expected"] == str(due) and head.wrong["predicted"] == str(9 - due)
        tested = sets[-1].numpy()
        said = (given.outputs(h, tested) - training.mean(axis=0)) @ w + b > 0
        assert head.right == int((said == (tested[:, 1] > tested[:, 0])).sum())
        assert head.is_separable is False or _separates(given.outputs(h, triples)[:, 0], more)


def _separates(scores, more):
    """Whether some threshold on one number does, either way round."""
    return scores[more].min() > scores[~more].max() or scores[more].max() < scores[~more].min()


def test_heads_are_counted_one_by_one():
    good, perfect = FittedHead(10, Fraction(99, 100), True, {"input": "x"}), FittedHead(10, Fraction(1), True)
    bad, unknown = FittedHead(4, HALF, False, {"input": "y"}), FittedHead(9, None, None)
    found = trained_heads.of_heads([good, perfect, bad, unknown], {"heads": 4}, 10)
    assert found.sampled == (33, 40) and found.verdict is Verdict.REFUTED and found.wrong == {"head": 0, "input": "x"}
    quarter = Fraction(1, 4)
    assert found.exact["successful"] == (HALF, 3 * quarter) and found.exact["perfect"] == (quarter, HALF)
    assert found.exact["separable"] == (HALF, 3 * quarter)
    assert found.exact["d-test"] == (Fraction(249, 400), Fraction(349, 400))
    assert trained_heads.of_heads([perfect, perfect], {}, 10).verdict is Verdict.PROVED
    assert trained_heads.of_heads([perfect, unknown], {}, 10).verdict is Verdict.UNKNOWN
    row = [trained_heads.of_heads([each], {"d": 2, "heads": 1}, 10) for each in (good, perfect, bad)]
    (line,) = trained_heads.counted([*row, found])
    assert line.startswith(
        "d = 2, 3 heads that were trained alone: the classifiers of 2 are right on at least 98 % of all triples (the "
        "samples say this of 2), and those of 1 on all of them. The outputs of 2 can be separated"
    )


@pytest.mark.parametrize(
    ("reads", "d", "heads"),
    [(trained_heads.NORM, 4, 1), pytest.param(trained_heads.PLAIN, 4, 16, marks=pytest.mark.deep)],
)
def test_the_share_of_ds_triples_is_that_of_all(tmp_path, monkeypatch, reads, d, heads):
    """All 502,500 triples of D's test set, by the oracle in float64."""
    fewer_steps(monkeypatch, 60)
    trained = trained_heads.SizeTrial(LAPTOP, reads, d, heads, 1).run()
    given = oracle(tmp_path, trained.weights)
    triples = np.array(list(product(range(151, 201), range(151, 201), range(201))))
    logits = given.logits(triples, range(given.heads))
    due = np.where(triples[:, 1] > triples[:, 0], FOUR, FIVE)
    right = logits.argmax(1) == due
    low, high = trained.result.exact["d-test"]
    assert low == high == Fraction(int(right.sum()), len(triples)) < 1
    assert counts_in(trained.result.wrong) == triples[~right][0].tolist()
    assert given.W["W_Q"].shape == (heads, d, max(1, d // heads)) and ("norm_weight" in given.W) is (
        reads == "LayerNorm(x)"
    )


@pytest.mark.deep
@pytest.mark.parametrize("heads", [1, 3])
def test_one_head_has_no_output_matrix_and_many_have(tmp_path, monkeypatch, heads):
    fewer_steps(monkeypatch, 30)
    trained = trained_heads.ManyHeadsTrial(LAPTOP, heads, 0).run()
    given = oracle(tmp_path, trained.weights)
    assert given.W["W_O"].shape == (heads, 2, 2) and (given.W["W_O"] == np.eye(2)).all() is np.bool_(heads == 1)
    low, high = trained.result.exact["classifiers"]
    assert 0 < low <= high < 1 and set(trained.result.exact) == {"e-lengths", "classifiers", "separable"}


@pytest.mark.deep
def test_minimal_heads_are_trained_on_ds_strings(monkeypatch):
    fewer_steps(monkeypatch, 30)
    trial = trained_heads.MinimalHeadTrial(LAPTOP, 2, 2, 0)
    trained = trial.run()
    assert trained.training["steps"] == 30 and trained.result.sampled[1] == 2 * 1500
    assert trained.result.wrong["head"] in (0, 1) and trained.result == trial.run().result
    n = noisy_majority.counted(151, 200, 200, 4000, torch.Generator().manual_seed(0))
    assert n[:, :2].min() == 151 and n.max() == 200 and n[:, 2].min() == 0
    due = noisy_majority.due_of(torch.tensor([[3, 4, 9], [4, 4, 0]]), "majority-ones")
    assert due.tolist() == [FOUR, FIVE] and EQUALS == 4


@pytest.mark.deep
@pytest.mark.parametrize(("n", "B", "steps"), [(2, 3, 150), pytest.param(3, 2, 60, marks=pytest.mark.deep)])
def test_the_share_of_pairs_is_that_of_all(tmp_path, monkeypatch, n, B, steps):
    """Every pair is written out in plain Python and run in float64; all digits of its sum must be right."""
    from constructions.adder.transformer import load

    fewer_steps(monkeypatch, steps)
    trained = addition.AdditionTrial(LAPTOP, n, B, 0).run()
    (tmp_path / "adder.safetensors").write_bytes(trained.weights)
    module, sums = load(str(tmp_path / "adder.safetensors"))[0].double(), Digits(n, B)
    right = {}
    for a, b in product(range(B**n), repeat=2):
        digits = [(a + b) // B**j % B for j in range(n, -1, -1)]
        tokens = [*sums.prompt(a, b), *digits[:-1]]
        right[tuple(tokens)] = module(torch.tensor([tokens]))[0, -n - 1 :].argmax(-1).tolist() == digits
    low, high = trained.result.exact[addition.PAIRS]
    assert low == high == Fraction(sum(right.values()), B ** (2 * n)) and 0 < low < 1
    assert right[tuple(trained.result.wrong["input"])] is False and trained.result.verdict is Verdict.REFUTED
    seen, held_out = addition.sets(sums, 0)
    both = {tuple(pair) for pair in torch.cat([seen, held_out]).tolist()}
    assert len(both) == len(seen) + len(held_out) == B ** (2 * n) and trained.result.sampled[1] == len(held_out)
    expected = sum(right[tuple(tokens)] for tokens in addition.written(sums, held_out)[0].tolist())
    assert trained.result.sampled[0] == expected


@pytest.mark.deep
def test_pairs_that_are_too_many_are_drawn_and_not_decided_one_by_one(monkeypatch):
    """A model of more pairs than are listed is refuted by one of them, and nothing is said of how many are right."""
    fewer_steps(monkeypatch, 3)
    monkeypatch.setattr(addition, "MOST_LISTED", 80)
    trained = addition.AdditionTrial(LAPTOP, 2, 3, 0).run()
    assert trained.result.verdict is Verdict.REFUTED
    assert trained.result.exact[addition.PAIRS] == (0, 1 - Fraction(1, 81)) and trained.result.sampled[1] == 10_000
