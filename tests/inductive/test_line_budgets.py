"""Transformers that are decided line by line end where the clock says so, and say then nothing that is not so."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from constructions.inductive import started
from tests.clocks import endless, looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, Rounded
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.tasks.inductive import engine_runs
from verify.tasks.inductive.task import Counting


def moved(model, share):
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weights in model.parameters():
            weights += share * torch.randn(weights.shape, generator=drawn, dtype=weights.dtype)
    return model


def problem(share):
    model = started(task="helper-shifted", M=3, pe="ape", layernorm=True, positions=6)
    return Counting(moved(model, share), Task.of("helper-shifted", vocabulary=3))


def holds(cut, whole):
    """Whether what is said after a part of the time is true beside what is said after all of it."""
    if cut.verdict.value != "UNKNOWN":
        assert cut.verdict is whole.verdict
    if cut.counterexample is not None and cut.counterexample["is_smallest"]:
        assert cut.counterexample["input"] == whole.counterexample["input"]
    assert (cut.extra["length"] or 0) <= (whole.extra["length"] or 0) or whole.verdict.value == "PROVED"
    for name, (low, high) in cut.extra["accuracy"].items():
        least, most = map(Fraction, whole.extra["accuracy"][name])
        assert Fraction(low) <= least <= most <= Fraction(high)
    assert cut.extra["accuracy"].keys() == whole.extra["accuracy"].keys()
    return cut.verdict.value


@pytest.mark.parametrize(
    ("share", "known", "numbers"),
    [
        (0.03, "REFUTED", (2,)),
        pytest.param(1e-12, "PROVED", range(1, 30), marks=pytest.mark.deep),
        pytest.param(0.03, "REFUTED", range(1, 30), marks=pytest.mark.deep),
        pytest.param(0.2, "REFUTED", range(1, 30), marks=pytest.mark.deep),
    ],
)
def test_time_that_is_up_at_any_look_says_nothing_wrong(share, known, numbers, monkeypatch):
    monkeypatch.setattr(engine_runs, "at_once", lambda graph: 2)  # rows of one piece of the work
    asked = problem(share)
    whole = certify(asked, Real(), Effort(endless()))
    assert whole.verdict.value == known
    found = [holds(certify(asked, Real(), Effort(looks(number))), whole) for number in numbers]
    assert "UNKNOWN" in found or share > 0.1


@pytest.mark.deep
def test_an_effort_ends_at_the_same_place():
    asked = problem(0.03)
    for reading in (Real(), Rounded(FORMATS["float32"])):
        first, second = (certify(asked, reading, Effort(Budget.counting(2))) for _ in range(2))
        assert {**first.to_dict(), "seconds": 0} == {**second.to_dict(), "seconds": 0}
