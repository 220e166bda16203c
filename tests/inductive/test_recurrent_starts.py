"""Tasks of several lines: the first wrong length, and how far all is right, are those of a run of every start."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch

from constructions.recurrent import counters, gated, holding
from constructions.recurrent.model import as_bytes
from tests.clocks import endless, looks
from tests.planted import planted
from verify.arithmetic.readings import Kernel, Real, reading_of
from verify.commands.cli import main
from verify.counting.tasks import STARTED, Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent.task import Homogeneous

M = 3
BUILT = {
    "rnn": lambda task: counters.adder(task, M=M),
    "lstm": lambda task: holding.starting(task, M=M),
    "rwkv": lambda task: gated.starting(kind="rwkv", task=task, M=M),
}


def changed(kind, task, seed, by):
    """A network that is right, each of whose numbers is moved a little."""
    torch.manual_seed(seed)
    model = BUILT[kind](task)
    with torch.no_grad():
        for p in model.parameters():
            p += by * p.abs().clamp(0.05, 4) * torch.randn_like(p)
    return model


def without_the_4():
    """Never says 4: start 1 is wrong first at length 3, start 2 at length 2, start 4 at once."""
    model = counters.adder("shifted", M=9)
    with torch.no_grad():
        model.readout.bias[4] -= 100.0
    return model


def run_of_all(model, task, dtype=torch.float64):
    """The first length at which some line is wrong in torch's run, None for none, and how near to 0 a margin is."""
    first, nearest, model = None, float("inf"), model.to(dtype)
    for line in task.lines(task.longest(None)):
        logits = model(torch.tensor([line.tokens]))[0].double()
        for t, due in enumerate(task.answers(line.tokens), 1):
            others = logits[t - 1].clone()
            others[due] = -torch.inf
            margin = float(logits[t - 1, due] - others.max())
            nearest, n = min(nearest, abs(margin)), t - line.leading
            if margin <= 0 and (first is None or n < first):
                first = n
    return first, nearest


def off(found, first):
    """What a certificate says of the whole task that no run of all lines bears out."""
    right, case = found.extra.get("right_to", -1), found.counterexample
    yield first is not None and right >= first, "right where a start is wrong"
    if case is None:
        yield found.verdict is Verdict.PROVED and first is not None, "proved, and wrong"
        return
    yield first is None or case["length"] < first, "wrong where all is right"
    yield bool(case.get("is_first")) and case["length"] != first, "first, and another start is wrong earlier"
    yield bool(case.get("is_first")) and right != case["length"] - 1, "first, and not right up to there"


def certificates(seeds, by=(0.03, 0.2)):
    """What is decided of small networks in real arithmetic, the first wrong length, and the network."""
    for kind, name, seed, size in product(BUILT, STARTED, seeds, by):
        task = Task.of(name, vocabulary=M)
        model = changed(kind, name, seed, size)
        first, nearest = run_of_all(model, task)
        if nearest > 1e-9:
            yield certify(Homogeneous(model, task, None), effort=Effort(budget=endless())), first, (model, task)


def test_the_first_wrong_length_is_that_of_all_starts():
    at = set()
    for found, first, _ in certificates(range(2)):
        assert not [what for is_off, what in off(found, first) if is_off]
        assert (found.verdict is Verdict.PROVED) == (first is None)
        assert first is None or (found.counterexample["is_first"] and found.counterexample["length"] == first)
        at.add(first)
    assert {None, 0, 1, 2} <= at


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("_over_lines", "line if len(line) < shorter else line[: int(shorter) - 1]", "() if shorter < 99 else line"),
        ("_over_lines", "line[: int(shorter) - 1]", "line[: int(shorter) - 2]"),
        ("_length", "t - int(self.which.name in STARTED)", "t"),
    ],
)
def test_what_is_said_of_one_start_alone_is_caught(name, right, wrong):
    with planted(Homogeneous, name, right, wrong):
        task, model = Task.of("shifted", vocabulary=9), without_the_4()
        first, _ = run_of_all(model, task)
        assert any(is_off for is_off, _ in off(certify(Homogeneous(model, task, None)), first))


def test_in_a_dtype_no_start_is_wrong_as_far_as_all_runs_are_said_to_be_right():
    said = set()
    for (kind, name), seed in product((("rnn", "shifted"), ("lstm", "helper")), range(1)):
        task, model = Task.of(name, vocabulary=M), changed(kind, name, seed, 0.1)
        found = certify(Homogeneous(model, task, None), reading_of("bfloat16"), Effort(budget=endless()))
        first, _ = run_of_all(model, task, torch.bfloat16)  # one run that the reading allows
        right, case = found.extra.get("right_to", -1), found.counterexample
        assert first is None or (right < first and found.verdict is not Verdict.PROVED)
        assert case is None or case.get("is_first", False) == (right == case["length"] - 1)
        said.add((found.verdict, bool(case and case.get("is_first"))))
    assert (Verdict.REFUTED, True) in said


def test_runs_bit_by_bit_say_it_of_all_starts():
    for kind, name, seed in product(("rnn", "lstm"), STARTED, range(3)):
        task, model = Task.of(name, vocabulary=M), changed(kind, name, seed, 0.1)
        first, _ = run_of_all(model, task)
        found = certify(Homogeneous(model, task, None), Kernel(), Effort(budget=endless()))
        assert (found.verdict is Verdict.PROVED) == (first is None)
        assert not [what for is_off, what in off(found, first) if is_off]


def test_what_is_open_holds_for_the_start_of_which_least_is_known():
    """Planted: time is up early; a start of which nothing is known leaves no length at all."""
    task = Task.of("helper-shifted", vocabulary=M)
    model = BUILT["lstm"]("helper-shifted")
    found = certify(Homogeneous(model, task, None), Real(), Effort(budget=looks(6)))
    assert found.verdict is Verdict.UNKNOWN and found.extra.get("right_to", -1) < M - 1
    assert ("right_to" in found.extra) == ("right up to length" in found.reason)


def test_the_printed_sentence_and_the_json_say_it(capsys, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(as_bytes(without_the_4()))
    asked = ["inductive", "--task", "shifted", "--model", "rnn", "--activation", "relu", "--vocabulary", "9"]
    code = main([*asked, "--weights", str(tmp_path / "a.safetensors"), "--json"])
    found = json.loads(capsys.readouterr().out)
    case = found["counterexample"]
    assert code == 1 and (case["start"], case["length"], case["is_first"]) == (4, 0, True)
    assert "right_to" not in found  # no length is shorter
