"""Decoders whose ReLU neurons were made steep GELUs: proved, and run on every string and shift, soft ones as well."""

import itertools
import math

import pytest
import torch
from command import as_json, run
from models.selection import every, first
from oracles.inductive import right

from constructions.errors import BadInput
from constructions.inductive import ape, positioned, selective, sine, spe, started, unmarked, with_layernorm
from constructions.inductive.curved import STEEP, steep_for
from constructions.inductive.modules import curved
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, decide
from verify.tasks.inductive.task import Counting

N, P = 6, 8
MODULAR = Task.of("modular", modulus=2)
COUNTS = Task.of("selective", types=2, max_count=3)
RESIDUES = Task.of("selective-modular", types=2, max_count=4, modulus=2)
DISTINCT = Task.of("selective", types=2, max_count=3, distinct_start=True)
LAYER = {"layernorm": False, "positions": P}
FAMILIES = {  # a task, and its decoder of ReLU neurons
    "C-T4": (MODULAR, lambda: spe(task="modular", N=N, m=2, positions=P)),
    "C-T4, LayerNorm": (MODULAR, lambda: with_layernorm(spe(task="modular", N=N, m=2, positions=P))),
    "C-T5": (MODULAR, lambda: ape(task="modular", N=N, m=2, positions=P)),
    "C-T6": (MODULAR, lambda: sine(task="modular", N=N, m=2, positions=P, layernorm=False)),
    "C-T3": (RESIDUES, lambda: selective(K=2, C=4, m=2, **LAYER)),
    "C-T3, one type": (MODULAR, lambda: selective(K=1, C=N, m=2, **LAYER)),
    "C-T7": (RESIDUES, lambda: unmarked(K=2, C=4, m=2, pe="spe", N=P, **LAYER)),
    "C-T7, distinct": (DISTINCT, lambda: unmarked(K=2, C=3, m=None, pe="nope", N=N, **LAYER)),
    "C-T10": (COUNTS, lambda: positioned(K=2, C=3, pe="ape", **LAYER)),
}  # fmt: skip


def least_margin(model, task, n):
    """The least margin of torch's own runs in float64, on every string of the task at every shift."""
    types = task.K or 1
    strings = [s for s in itertools.product(range(types), repeat=n) if not task.has_distinct_start or s[0] != s[1]]
    dues, least = [right(task.name, s, m=task.m, C=task.C) for s in strings], math.inf
    shifts = 1 if model.pe == "nope" else P - n + 1 - model.has_bos
    for shift in range(shifts):
        logits = model(torch.tensor(strings), shift=shift).detach()
        for row, due in zip(logits, dues, strict=True):
            for said, answer in zip(row, due, strict=True):
                if answer is not None:
                    others = [x for j, x in enumerate(said.tolist()) if j != answer]
                    least = min(least, float(said[answer]) - max(others))
    return least


def outcome(name, steep, kind, reading=None):
    """Whether the decoder was proved, after comparing with all runs."""
    task, build = FAMILIES[name]
    model = curved(build(), kind, steep)
    found = decide(Counting(model, task, N, None), reading or Real(), "certified", Effort(20.0 if steep > 9 else 0.5))
    least = least_margin(model, task, N)
    if found.verdict is Verdict.PROVED:
        assert least > 0 and float(found.margin) <= least + 1e-9 * (1 + least), (name, steep, kind)
    if found.verdict is Verdict.REFUTED:
        assert least <= 1e-12, (name, steep, kind)
    return found.verdict


@pytest.mark.parametrize("kind", first(1, ["gelu", "gelu_tanh"]))
@pytest.mark.parametrize("name", every(2, FAMILIES))
def test_steep_neurons_are_proved_and_soft_ones_judged_as_they_run(name, kind):
    steep = STEEP if name.startswith(("C-T4", "C-T5", "C-T6")) else steep_for(P)
    assert outcome(name, steep, kind) is Verdict.PROVED
    for soft in () if name == "C-T7" else (1, 4):  # of two layers: seconds, and no proof
        outcome(name, soft, kind)


@pytest.mark.parametrize("name", first(1, ["C-T4", "C-T3", "C-T5"]))
def test_in_float32(name):
    assert outcome(name, steep_for(P), "gelu", reading_of("float32")) is Verdict.PROVED


@pytest.mark.parametrize("name", ["C-T3", "C-T4"])
def test_neurons_that_are_too_soft_are_refuted(name):
    assert outcome(name, 1, "gelu") is Verdict.REFUTED


def test_what_cannot_be_made_steep():
    for activation, steep in (("relu", 64), ("gelu", 3), ("gelu", 0.5), ("gelu", math.inf)):
        with pytest.raises(BadInput, match="activation|steep"):
            curved(spe(task="modular", N=4, m=2), activation, steep)
    for model in (curved(spe(task="modular", N=4, m=2), "gelu", 2), started(task="shifted", M=4)):
        with pytest.raises(BadInput, match="ReLU neurons"):
            curved(model, "gelu", 2)


def test_the_command_says_its_claim(capsys):
    sizes = ("--modulus", "3", "--positions", "12", "--length", "9", "--activation", "gelu")
    code, found = as_json(capsys, "inductive", "--task", "modular", "--pe", "spe", *sizes)
    assert (code, found["verdict"], found["claim"]) == (0, "PROVED", "C-T13")
    assert found["parameters"]["activation"] == "gelu"
    for options, code in (
        ("--task modular --bos", 3),
        ("--task shifted", 2),
        ("--task modular --pe ape --as-printed", 2),
        ("--task modular --pe nope", 2),
    ):
        assert run(capsys, "inductive", *options.split(), "--activation", "gelu")[0] == code
