"""Document A's experiments: what is kept of a trained model is what enumeration of all its sequences says."""

import dataclasses
import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import torch

from constructions.files import read_tensors
from constructions.histogram import HistogramTransformer
from constructions.partition_sampler import sample
from constructions.two_layers import TwoLayerTransformer, after
from tests.planted import planted
from verify.frame.experiment import GridSize, Result, Verdict
from verify.tasks.histogram import experiments, trained_confusion, trained_models, trained_two_layers

LAPTOP = GridSize.LAPTOP
DOCS = Path(__file__).parents[2] / "docs" / "experiments"
HALF = Fraction(1, 2)


def fewer_steps(monkeypatch, steps):
    usual = trained_models.recipe
    monkeypatch.setattr(trained_models, "recipe", lambda *of: dataclasses.replace(usual(*of), steps=steps))
    more = trained_two_layers.recipe
    monkeypatch.setattr(trained_two_layers, "recipe", lambda *of: dataclasses.replace(more(*of), steps=steps))


def every_sequence(T, L):
    x = torch.cartesian_prod(*[torch.arange(T)] * L)
    return x, (x[:, :, None] == x[:, None, :]).sum(-1) - 1


def test_the_ways_to_be_wrong_are_those_of_sampled_sequences(monkeypatch):
    """The matrix itself is compared with enumeration where it is computed; here what is read off it."""
    fewer_steps(monkeypatch, 40)
    result = trained_confusion.ConfusionTrial(LAPTOP, 2, 1).run().result
    assert all(low == high for low, high in result.exact.values())
    of = {law: ends[0] for law, ends in result.exact.items()}
    matrix = [[Fraction(x) for x in row] for row in result.shown["confusion"]["confusion"]]
    ties = sum(map(Fraction, result.shown["confusion"]["ties"]))
    assert of[trained_models.OWN] == sum(matrix[k][k] for k in range(5))
    assert of["too many"] == sum(matrix[k][c] for k, c in product(range(5), repeat=2) if c > k) > 0
    assert of["too many"] + of["too few"] + of[trained_models.OWN] + ties == 1
    assert len(result.shown["overlaps"]["same"]) == 8 and len(result.shown["overlaps"]["different"]) == 28
    trial = trained_confusion.ConfusionTrial(LAPTOP, 2, 1)
    _, module, _ = trained_models.trained(trial.model)
    x = sample(8, 5, 20_000, torch.Generator().manual_seed(3))
    more = module(x).argmax(-1) - ((x[:, :, None] == x[:, None, :]).sum(-1) - 1)
    assert abs(float((more > 0).double().mean()) - float(of["too many"])) < 0.02
    assert abs(float((more < 0).double().mean()) - float(of["too few"])) < 0.02
    same = (module.E @ module.E.T).diagonal().tolist()
    assert result.shown["overlaps"]["same"] == pytest.approx(same, abs=1e-4)


def test_what_is_undecided_may_be_either():
    from verify.tasks.histogram.confusion import Confusion

    table = [[Fraction(1, 4), Fraction(1, 8)], [Fraction(1, 16), Fraction(1, 4)]]
    found = Confusion("uniform", 1, table, [Fraction(1, 16), Fraction(0)], [Fraction(1, 4), Fraction(0)])
    assert trained_confusion.wrong_ways(found) == {
        "too many": (Fraction(1, 8), Fraction(3, 8)),
        "too few": (Fraction(1, 16), Fraction(5, 16)),
    }
    zero = Confusion("uniform", 0, [[Fraction(0), HALF, Fraction(0)], [HALF, *[Fraction(0)] * 2]], [0, 0], [0, 0])
    assert trained_confusion.wrong_ways(zero)["too few"] == (HALF, HALF), "classes that begin with the count 0"


def test_figure_5_has_the_models_of_figure_1():
    """Kept results of the two agree where they speak of the same models."""
    first, fifth = (json.loads((DOCS / f"A-Fig-{n}.json").read_text("utf-8"))["results"] for n in (1, 5))
    of = {tuple(each["settings"][key] for key in ("model", "d", "p", "seed")): each for each in first}
    for each in fifth:
        twin = of["dot", each["settings"]["d"], 8, each["settings"]["seed"]]
        assert each["verdict"] == twin["verdict"] and each["sampled"] == twin["sampled"]
        assert all(each["exact"][law] == twin["exact"][law] for law in experiments.LAWS)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("model", "layers"),
    [("lin", 2), *(pytest.param(*of, marks=pytest.mark.deep) for of in (("bos+sftm", 2), ("dot", 1), ("bos", 2)))],
)
def test_shares_of_layers_are_those_of_all_sequences(tmp_path, monkeypatch, model, layers):
    fewer_steps(monkeypatch, 10)
    trained = trained_two_layers.LayersTrial(LAPTOP, model, layers, 4, 3, 1).run()
    (tmp_path / "weights.safetensors").write_bytes(trained.weights)
    T, L = trained_two_layers.ALPHABET[LAPTOP]
    kind = HistogramTransformer if layers == 1 else TwoLayerTransformer
    module = kind(model, T=T, L=L, d=4, p=3)
    module.load_state_dict(read_tensors(str(tmp_path / "weights.safetensors"), "weightproof.layers")[0])
    x, due = every_sequence(T, L)
    right = module.double()(x).argmax(-1) == due
    low, high = trained.result.exact["uniform"]
    assert low == high == Fraction(int(right.sum()), right.numel()) < 1
    case = trained.result.wrong
    at = case["position"]
    tokens = torch.tensor([case["input"]])
    assert module(tokens)[0, at].argmax() + 1 == case["predicted"] != case["expected"]
    assert case["expected"] == case["input"].count(case["input"][at])


@pytest.mark.deep
def test_layers_that_count_are_proved_and_planted_faults_are_seen():
    """A construction handed on by a second layer; one in which a class is answered wrongly; a position left out."""
    from constructions.relation_counting import dot

    module = after(dot(T=3, L=3, d=3)).double().eval()
    assert trained_two_layers.judged(module, 3, 3, 30.0) == (None, (1, 1))
    with torch.no_grad():
        module.second.b_2[2] += 100.0
    wrong, share = trained_two_layers.judged(module, 3, 3, 30.0)
    assert wrong["predicted"] == 3 and share == (Fraction(1, 9),) * 2  # three equal tokens: 3 of 27 sequences
    one = 'right, undecided = right + int(counts["right"]), undecided + int(counts["undecided"])'
    with planted(trained_two_layers, "judged", one, 'right, undecided = int(counts["right"]), 0'):
        assert trained_two_layers.judged(module, 3, 3, 30.0)[1] != share


def result(model, d, seed, right, layers=None):
    settings = {"model": model, "d": d, "p": 2, **({"layers": layers} if layers else {}), "seed": seed}
    ends = right if isinstance(right, tuple) else (right, right)
    return Result(settings, (1, 2), Verdict.REFUTED, {"uniform": ends}, {"input": [0]})


def test_means_and_best_models():
    found = [
        result("lin", 1, 0, HALF),
        result("lin", 1, 1, (Fraction(1, 4), Fraction(3, 4))),
        result("dot", 1, 0, HALF),
    ]
    of = experiments.mean_and_best(found)
    assert of.rows == (("lin", 1, 2, 2, "37.5 to 62.5", "50 to 75"), ("dot", 1, 2, 1, "50", "50"))
    assert experiments.bests(found) == [found[0], found[2]]


def test_two_layers_less_one():
    found = [result("lin", 1, seed, share, layers) for layers, seed, share in
             ((1, 0, HALF), (1, 1, HALF), (2, 0, Fraction(3, 4)), (2, 1, Fraction(1, 3)))]  # fmt: skip
    assert trained_two_layers.gained(found).rows == (("lin", 1, 2, "50", "54.1666", "+4.17"),)
    first, second = trained_two_layers.compared(found)
    assert first.startswith("seed 0: two layers are right on more pairs than one layer in 1 of 1 comparisons")
    assert "fewer in 0; PROVED are 0 models" in first and "in 0 of 1 comparisons, and on fewer in 1; " in second
    open_share = [found[0], result("lin", 1, 0, (HALF, Fraction(1)), 2)]
    assert trained_two_layers.gained(open_share).rows == (("lin", 1, 2, "50", "50 to 100", None),)
    assert trained_two_layers.drawing(found).axes[0].get_title() == "one layer"
