"""An effort counts steps: a search that it ends says the same on a machine of any speed."""

import json
import time

import pytest
import torch
from command import run
from models.selection import first as from_first

from constructions.checkpoint import load
from tests.histogram.test_checkpoint import TRAINED
from verify.frame.clock import Budget
from verify.tasks.histogram.proof import certify


@pytest.fixture
def faulty():
    module = load(TRAINED)
    with torch.no_grad():
        module.b_2[3] -= 12.0
    return module


def without_time(certificate):
    return {key: value for key, value in json.loads(certificate.to_json()).items() if key != "seconds"}


@pytest.mark.parametrize("steps", from_first(1, [10, 1, 30]))
def test_the_same_steps_on_a_machine_of_another_speed(steps, faulty, monkeypatch):
    first, honest = without_time(certify(faulty, budget=Budget.counting(steps))), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: 1000 * honest())
    assert without_time(certify(faulty, budget=Budget.counting(steps))) == first


@pytest.mark.deep
def test_more_steps_narrow_the_bracket(faulty):
    low, high = zip(*(certify(faulty, budget=Budget.counting(steps)).error_share for steps in (4, 40)), strict=True)
    assert low[0] <= low[1] <= high[1] <= high[0] and high[1] - low[1] < high[0] - low[0]


@pytest.mark.parametrize(
    "options, says",
    [
        (["--effort", "0"], "effort=0: must be at least 1 step"),
        (["--effort", "-3"], "effort=-3"),
        (["--effort", "1.5"], "'1.5' is not an integer"),
        (["--effort", "3", "--budget", "inf"], "with an effort"),
        (["--effort", "3", "--budget", "nan"], "number of seconds"),
        (["--effort", "3", "--method", "exhaustive"], "take more than the effort of 3 steps"),
    ],
)
def test_bad_efforts_are_one_line(options, says, capsys):
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "6", "--L", "8", *options)
    assert code == 2 and not out and says in err and err.count("\n") == 1


def test_an_effort_that_suffices(capsys):
    code, out, _ = run(capsys, "parity", "--T", "3", "--L", "3", "--effort", "5", "--json")
    assert code == 0 and json.loads(out)["verdict"] == "PROVED"


def test_a_reason_names_the_effort():
    assert (str(Budget(2.5)), str(Budget.counting(7))) == ("budget of 2.5 s", "effort of 7 steps")
