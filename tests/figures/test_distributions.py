"""Figures of what heads add to logits, and of groups of heads: what is drawn is what the module computes."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.selection import every

from constructions.count01 import EOS, EQUALS, FIVE, FOUR, load
from tests.planted import planted
from verify.tasks.count01.heads import distributions
from verify.tasks.count01.heads.dissect import HeadsQuestion, dissect
from verify.tasks.count01.heads.distributions import added, contributions, drawn_aucs, separating_by_size, subsets
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers

MODEL = str(Path(__file__).parents[1] / "data" / "count01" / "a4_s1.safetensors")
LAW = law_named("box:0:3:2")


def difference():
    """How far the heads' parts, residual and bias are from the logits of the module's own run, at most."""
    model, worst = load(MODEL).double(), 0.0
    found = distributions.added(model, LAW)
    with torch.no_grad():
        fixed = model.b_out + (model.E[EQUALS] @ model.W_out if model.has_skip else 0)
        for i, (n0, n1, n2) in enumerate(LAW.triples.tolist()):
            logits = model.next_logits(torch.tensor([0] + [1] * n0 + [2] * n1 + [3] * n2 + [4]))
            rest = (logits - fixed)[[FOUR, FIVE, EOS]].numpy()
            worst = max(worst, np.abs(found[:, i].sum(axis=0) - rest).max())
    return worst


def test_heads_add_up_to_the_logits():
    assert difference() < 1e-9
    with planted(distributions, "added", "W_out[:, [FOUR, FIVE, EOS]]", "W_out[:, [FIVE, FOUR, EOS]]"):
        assert difference() > 1e-3


def test_medians_are_drawn_by_head_and_class():
    axes = contributions(load(MODEL), LAW).axes
    found, more = added(load(MODEL), LAW), LAW.has_more_ones
    for i, panel in enumerate(axes):
        marks = [line.get_ydata() for line in panel.get_lines() if len(line.get_ydata())]
        wanted = [np.median(found[:, chosen, i], axis=1) for chosen in (more, ~more)]
        assert np.allclose(marks, wanted)


def test_groups_by_size_are_those_of_the_dissection():
    model = load(MODEL)
    data = dissect(model, HeadsQuestion(LAW, all_subsets=True)).data
    aucs = drawn_aucs(model_numbers(model), LAW, "majority-ones", 0)
    assert aucs[0] == [Fraction(head["auc"]) for head in data["heads"]]
    assert aucs[1] == [Fraction(pair["auc"]) for pair in data["pairs"]] and [len(x) for x in aucs] == [4, 6, 4, 1]
    learned, auc, separable = subsets(model, LAW, "majority-ones").axes
    middle = [float(Fraction(row["median"])) for row in data["all_subsets"]["by_size"]]
    assert learned.get_lines()[0].get_ydata().tolist() == middle
    alone = [head["separable"] for head in data["heads"]]
    pairs = [pair["separable"] for pair in data["pairs"]]
    shares = separable.get_lines()[0].get_ydata().tolist()
    assert shares[:3] == [0, sum(alone) / 4, sum(pairs) / 6]
    assert separating_by_size(2, [0, None, 1, 1]) == [0, Fraction(1, 2), 1]


@pytest.mark.parametrize("kind", every(2, ["contributions", "subsets"]))
def test_the_command(capsys, tmp_path, kind):
    place = tmp_path / "a.svg"
    assert run(capsys, "figure", kind, MODEL, "--law", "box:0:3:2", "--out", str(place))[0] == 0 and place.exists()
    for wrong in (["--law", "unbounded"], ["--law", "nothing"]):
        code, _, err = run(capsys, "figure", kind, MODEL, *wrong, "--out", str(tmp_path / "b.svg"))
        assert code == 2 and err.count("\n") == 1
