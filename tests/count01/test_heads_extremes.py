"""Heads whose outputs are constant, depend on one another, or are beyond what floats hold: a verdict, never a crash."""

import json

import pytest
import torch
from models.selection import first

from constructions.count01 import Count01Transformer, save
from verify.commands.cli import main
from verify.tasks.count01.heads.dissect import HeadsQuestion, dissect
from verify.tasks.count01.layer_norm.laws import law_named

BOX = "box:0:3:2"


def model(heads=1, d=2, d_h=1, seed=0, **scales):
    """Weights drawn at random, those that are named multiplied by a number."""
    found, generator = Count01Transformer(heads=heads, d=d, d_h=d_h), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(drawn * scales.get(name, 1.0))
    return found


CONSTANT = [{"E": 0.0}, {"W_V": 0.0}, {"E": 0.0, "W_out": 0.0, "b_out": 0.0}, {"W_V": 0.0, "W_Q": 0.0}]


@pytest.mark.parametrize("law", first(1, [BOX, "box:0:1:0", "unbounded"]))
@pytest.mark.parametrize("scales", CONSTANT, ids=str)
def test_heads_with_a_constant_output_separate_nothing(scales, law):
    """A number that is the same on every triple cannot tell n1 > n0 from the rest, where both are there."""
    for heads, d_h in ((1, 1), (2, 1), (1, 3)):
        found = dissect(model(heads, d_h=d_h, **scales), HeadsQuestion(law_named(law)))
        assert [head["separable"] for head in found.data["heads"]] == [False] * heads
        assert all(pair["separable"] is not True for pair in found.data["pairs"])


@pytest.mark.parametrize("law", ["box:0:0:2", "box:1:1:0"])
def test_where_no_triple_has_more_ones_a_constant_separates(law):
    found = dissect(model(W_V=0.0), HeadsQuestion(law_named(law)))
    assert found.data["heads"][0]["separable"] is True


EXTREME = [
    {"W_V": 1e300, "E": 1e5},
    {"W_V": 1e300, "W_O": 1e300},
    {"W_V": 1e-300, "E": 1e-20},
    {"W_V": 1e-320},
    {"b_out": 1e308, "W_out": 1e300},
    {"W_Q": 1e10, "W_K": 1e-10, "W_V": 1e308},
]


@pytest.mark.parametrize("heads", first(1, [2, 3]))
@pytest.mark.parametrize("scales", EXTREME, ids=str)
def test_outputs_beyond_floats_are_no_crash(scales, heads, tmp_path, capsys):
    path = tmp_path / "weights.safetensors"
    save(model(heads, seed=heads, **scales), str(path))
    code = main(["heads", str(path), "--law", BOX, "--json"])
    said = capsys.readouterr()
    assert code in (0, 3), said.err
    data = json.loads(said.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["complete"] is (code == 0)


def test_dependent_constraints_are_no_crash():
    """Values of one size in every dimension: the forms of (w, b) depend on one another."""
    for seed in range(2):
        found = model(2, d=1, d_h=2, seed=seed)
        with torch.no_grad():
            found.W_V[1] = found.W_V[0] * 3
            found.E[2] = found.E[1]
        answer = dissect(found, HeadsQuestion(law_named(BOX)))
        assert all(head["separable"] is not True for head in answer.data["heads"])
