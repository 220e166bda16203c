"""Searches end by the clock that is handed in, and read no other."""

import ast
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from constructions.errors import BadInput
from tests.clocks import endless, looks
from verify.arithmetic.readings import Kernel
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import Effort, Ran, run_some

ROOT = Path(__file__).parents[2]
MEASURING = {"verify/frame/clock.py", "verify/frame/decide.py", "verify/report/progress.py", "verify/claims/running.py"}
CLOCKS = {"perf_counter", "monotonic", "process_time", "time_ns"}


def files_that_read_the_time():
    for path in sorted((ROOT / "verify").rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in CLOCKS):
            continue
        if CLOCKS & {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}:
            yield str(path.relative_to(ROOT))


def test_only_measurements_read_the_machine_s_clock():
    """Commands say how long they took, and `decide` writes it into certificates; no search is among them."""
    found = set(files_that_read_the_time())
    assert {
        path for path in found if not path.startswith("verify/commands/") and not path.endswith("/command.py")
    } == MEASURING


def test_a_deadline_is_its_clock_s():
    deadline = looks(4, seconds=2.0).deadline()  # the first look, at 0 s; each further one takes half a second
    assert [deadline.is_up() for _ in range(5)] == [False, False, False, True, True]
    assert looks(4, seconds=2.0).deadline(0.5).at == 1.0
    deadline = looks(10, seconds=10.0).deadline()
    assert deadline.part(0.5).at == 1 + 9 / 2 and deadline.left() == 8 and deadline.moved_to(3).at == 3
    assert not endless().deadline().is_up() and not Deadline.never().is_up()
    assert endless(0.0).deadline().is_up() and Budget(0).deadline().is_up()


@pytest.mark.parametrize("bad", [-1, float("nan"), True, "1", None])
def test_what_is_no_number_of_seconds_is_refused(bad):
    for given in (bad, Budget(bad)):
        with pytest.raises(BadInput, match="number of seconds"):
            Budget.of(given)


def test_a_run_of_samples_ends_with_its_time():
    """Items of many lengths: one batch is always run, and none after the time is up, whatever its length."""
    problem, ran = mock.Mock(), []
    problem.runner.return_value = lambda part: ran.append(len(part[0])) or Ran.strictly(np.ones((len(part), 1)))
    items = [(0,) * n for n in range(1, 9)]
    assert run_some(problem, Kernel(), Effort(budget=0), items).extra == {"samples": 1} and ran == [1]
    assert run_some(problem, Kernel(), Effort(budget=looks(3)), items).extra == {"samples": 3}
    assert run_some(problem, Kernel(), Effort(budget=endless()), items).extra == {"samples": 8}


def test_searches_share_seconds_and_each_has_its_steps():
    """Whatever part of its share a search takes, all of them keep the budget; steps do not depend on the others."""
    for takes in (0.0, 0.3, 1.0):
        now, given = [0.0], []
        for effort in Effort(Budget(12.0, lambda now=now: now[0])).shares(4):
            given.append(effort.seconds)
            now[0] += takes * effort.seconds
        assert now[0] <= 12 * (1 + 1e-12) and given[0] == 3 and given == sorted(given)
        assert given[-1] == pytest.approx(12 - now[0] + takes * given[-1])
    efforts = list(Effort(Budget.counting(7)).shares(3))
    assert [effort.limit.steps for effort in efforts] == [7, 7, 7]
    assert [[effort.deadline().is_up() for _ in range(2)] for effort in efforts] == [[False, False]] * 3
