"""The runs beside a proof, of every task: a wrong answer that no rounding explains ends the proof as a bug."""

import random
from unittest import mock

import numpy as np
import pytest
import torch
from models.selection import every

from constructions.recurrent import selective
from tests.models.doors import DOORS
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import Kernel, Real
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.certificate import Verdict
from verify.frame.decide import BUG, Decidable, Finding, Ran, certify
from verify.module.problem import ModuleProblem
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.task import DigitAddition
from verify.tasks.circuit.task import CircuitProblem
from verify.tasks.contextual.bidirectional.task import Bidirectional
from verify.tasks.contextual.positional.task import Positional
from verify.tasks.contextual.verdict import ContextualCounting
from verify.tasks.count01.verdict import Count01
from verify.tasks.histogram.problem import Histogram
from verify.tasks.inductive.task import Counting
from verify.tasks.parity.task import Parity
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

RINGS = Task.of("selective-modular", types=2, modulus=3)
TASKS = {
    "histogram": (Histogram, *DOORS["histogram"][1:]),
    "histogram rounded": (Histogram, *DOORS["histogram rounded"][1:]),
    "count01": (Count01, *DOORS["count01"][1:]),
    "contextual": (ContextualCounting, *DOORS["contextual"][1:]),
    "bidirectional": (Bidirectional, *DOORS["bidirectional"][1:]),
    "positional": (Positional, *DOORS["positional"][1:]),
    "circuit": (CircuitProblem, *DOORS["circuit"][1:]),
    "parity": (Parity, *DOORS["parity"][1:]),
    "modular": (ModularAddition, *DOORS["modular"][1:]),
    "addition": (DigitAddition, *DOORS["addition"][1:]),
    "inductive transformer": (Counting, *DOORS["inductive transformer"][1:]),
    "inductive recurrent": (Homogeneous, *DOORS["inductive recurrent"][1:]),
    "selective": (Selective, lambda: selective.rings(types=2, m=3), lambda m: certify(Selective(m, RINGS, None))),
    "module": (ModuleProblem, *DOORS["module"][1:]),
}


def everything_is_right(problem, reading, effort):
    return Finding.proved("planted", None)


@pytest.fixture
def time_to_draw(monkeypatch):
    """Runs beside a proof take a part of its time, and a planted proof takes none."""
    monkeypatch.setattr(decide, "BESIDE", 1000.0)
    monkeypatch.setattr(decide, "SAMPLES", 50)


@pytest.mark.parametrize("name", every(8, TASKS))
def test_a_planted_proof_of_a_wrong_module(name, monkeypatch, time_to_draw):
    """All numbers are drawn, and everything is said to be right."""
    kind, build, decided = TASKS[name]
    module, generator = build(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    monkeypatch.setattr(kind, "prove", everything_is_right)
    found = decided(module)
    assert found.verdict is Verdict.UNKNOWN and BUG in found.reason


@pytest.mark.parametrize("name", every(3, TASKS))
def test_a_right_module_stands(name, time_to_draw):
    _, build, decided = TASKS[name]
    with mock.patch.object(decide, "_ran_wrong", wraps=decide._ran_wrong) as beside:
        assert decided(build()).verdict is Verdict.PROVED
    problem = beside.call_args.args[0]
    assert isinstance(problem, Decidable)


@pytest.mark.parametrize("name", every(3, [name for name in TASKS if name != "histogram rounded"]))
def test_a_run_that_is_wrong_by_its_rounding_alone(name, monkeypatch, time_to_draw):
    """Every run is said to be wrong, and is right without roundings: of a proof in real arithmetic no contradiction."""
    kind, build, decided = TASKS[name]
    seen = []

    def tells(problem, item, answer):
        seen.append((item, answer))
        return False

    monkeypatch.setattr(kind, "look", lambda *_: OneRun())
    monkeypatch.setattr(kind, "runner", lambda *_: lambda batch: Ran.strictly(np.zeros((len(batch), 1))))
    with mock.patch.object(kind, "is_surely_wrong", tells):
        assert decided(build()).verdict is Verdict.PROVED and seen


@pytest.mark.parametrize("name", ["histogram", "parity", "modular", "addition"])
def test_a_right_answer_is_not_surely_wrong(name):
    """A run may get an answer wrong by its rounding: where real arithmetic is exact, it says so of each answer."""
    kind, build, decided = TASKS[name]
    with mock.patch.object(decide, "_ran_wrong", return_value=None) as asked:
        decided(build())
    problem, rng = asked.call_args.args[0], random.Random(0)
    for item in (problem.draw(rng) for _ in range(4)):
        answers = problem.runner(Kernel())([item]).is_wrong.shape[1]
        assert not any(problem.is_surely_wrong(item, answer) for answer in range(answers))


def test_long_inputs_are_not_run(monkeypatch, time_to_draw):
    """A run holds the square of its tokens."""
    kind, build, _ = TASKS["parity"]
    problem = kind(build())
    monkeypatch.setattr(decide, "LONGEST_BESIDE", problem.module.L - 1)
    monkeypatch.setattr(kind, "runner", lambda *_: pytest.fail)
    assert decide._ran_wrong(problem, Real(), 10.0) is None
