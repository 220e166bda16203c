"""The engine as a second opinion on parity, Count01 and modular addition, built and with changed weights."""

import itertools
from pathlib import Path

import pytest
import torch
from models.selection import every, first
from safetensors.torch import load_file

from constructions import count01, modular, parity
from constructions.decoder import from_progress_measures
from tests.oracles import decoder_layouts
from verify import certify
from verify.arithmetic.readings import reading_of
from verify.frame.certificate import Verdict
from verify.frame.decide import certify as decided
from verify.module import ModuleProblem, Task, tokens
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import certify as certify_count01
from verify.tasks.parity.task import Parity

FILES = Path(__file__).parents[1] / "data" / "modular"
TRAINED = Path(__file__).parents[1] / "data" / "count01" / "a4_s1.safetensors"


def changed(model, name, index, by):
    with torch.no_grad():
        model.get_parameter(name)[index] += by
    return model


def odd(t):
    return (t.unsqueeze(2) == t.unsqueeze(1)).sum(2) % 2


@pytest.mark.parametrize("by", every(2, [0.0, -0.7]))
def test_parity(by):
    model = changed(parity.sawtooth(T=3, L=3), "W_2", (1, 0), by)
    special = decided(Parity(model))
    general = certify(model.eval(), inputs=tokens([3, 3, 3]), expected=odd, position=None, classes=range(2))
    assert special.verdict is general.verdict and (by != 0 or general.verdict is Verdict.PROVED)
    if general.verdict is Verdict.PROVED:
        assert general.margin == pytest.approx(special.margin, rel=1e-9)


def digits(n):
    """All strings of n digits between BOS and "="."""
    return tokens([[count01.BOS], *[[1, 2, 3]] * n, [count01.EQUALS]])


def answer(t):
    return torch.where((t == count01.ONE).sum(1) > (t == count01.ZERO).sum(1), count01.FOUR, count01.FIVE)


MODELS = {
    "uniform": count01.uniform,
    "documents": lambda: count01.documents(10),
    "as printed": lambda: count01.as_printed(10),
    "trained": lambda: count01.load(str(TRAINED)).double(),
}


@pytest.mark.parametrize("name", first(1, MODELS))
def test_count01(name):
    """After "=", on all strings of 3 digits: none is wrong where the task's verifier proves, as the engine counts."""
    model = MODELS[name]()
    found = certify(model.eval(), inputs=digits(3), expected=answer)
    wrong = {tuple(row.count(t) for t in (1, 2, 3)) for row in found.extra["wrong_inputs"]}
    assert found.verdict is not Verdict.UNKNOWN and (found.verdict is Verdict.PROVED) is (not wrong)
    special = certify_count01(model, "majority-ones", PromptDomain(max_length=3, is_semantic=True))
    assert special.verdict is Verdict.REFUTED or not wrong
    assert (name in ("uniform", "documents")) <= (special.verdict is Verdict.PROVED)


@pytest.mark.parametrize(
    ("build", "by"), first(1, [(modular.staircase, 0.4), (modular.pizza, 0.0), (modular.pizza, -2.0)])
)
def test_modular_addition(build, by):
    model = changed(build(P=5), "W_out", (0, 2), by)
    special = decided(ModularAddition(model, 5))
    general = certify(model.eval(), inputs=tokens([5, 5, [5]]), expected=lambda t: t[:, :2].sum(1) % 5)
    assert special.verdict is general.verdict
    counts = {name: value for name, value in general.extra["counts"].items() if name != "undecided"}
    assert counts == special.extra["counts"] and general.extra["counts"]["undecided"] == "0"


@pytest.mark.parametrize(("name", "wrong"), first(1, [("p13_some_pairs", 6), ("p13", 0)]))
def test_trained_adders_in_the_layout_of_the_grokking_checkpoints(name, wrong):
    """In real arithmetic and in float32, any order: every pair is decided, and as plain NumPy says."""
    weights = load_file(FILES / f"{name}.safetensors")
    plain, pairs = {k: v.double().numpy() for k, v in weights.items()}, list(itertools.product(range(13), repeat=2))
    said = [decoder_layouts.progress_measures(plain, [a, b, 13])[-1][:13].argmax() for a, b in pairs]
    failing = [[a, b, 13] for (a, b), c in zip(pairs, said, strict=True) if c != (a + b) % 13]
    task = Task(tokens([13, 13, [13]]), lambda t: t[:, :2].sum(1) % 13, classes=range(13))
    problem = ModuleProblem(from_progress_measures(weights), task)
    for reading in ("real", "float32"):
        found = decided(problem, reading_of(reading))
        assert found.extra["wrong_inputs"] == failing and len(failing) == wrong
        assert found.extra["counts"] == {"right": str(169 - wrong), "wrong": str(wrong), "undecided": "0"}
