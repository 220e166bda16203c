"""Recurrent networks on tasks with number words: what holds, what is forged, and faults in prover and checker."""

import hashlib
import json
from functools import cache
from pathlib import Path

import pytest
import torch
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every

from constructions.recurrent import counters, gated, holding
from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import looks
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import rounded_lines, worded
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, Refusal
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent.kinds import module_of
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

M = 3


def held(task, *, off=0.0, row=2, token=2, words=M):
    """An LSTM that counts from a word on, one of whose gates reads one token differently."""
    model = module_of(holding.starting(task, M=words))
    with torch.no_grad():
        model.cell.weight_ih_l0[row, token] += off
    return Homogeneous(model, Task.of(task, vocabulary=words), None)


def added(task):
    return Homogeneous(module_of(counters.adder(task, M=M)), Task.of(task, vocabulary=M), None)


def faded(task, kind="rwkv"):
    return Homogeneous(module_of(gated.starting(kind=kind, task=task, M=M)), Task.of(task, vocabulary=M), None)


def next_word(off=0.0):
    """A ReLU unit for each token, that of a adds up; class j is nearest to what is counted, or to the next word."""
    model = RecurrentModel("rnn", hidden=M + 2, inputs=M + 2, classes=M + 1, activation="relu", dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_ih_l0.copy_(torch.eye(M + 2))
        model.cell.weight_hh_l0[M + 1, M + 1] = 1.0
        said = torch.tensor([*range(1, M + 2), 1.0], dtype=torch.float64)
        j = torch.arange(M + 1, dtype=torch.float64)
        model.readout.weight.copy_(torch.outer(j, said))
        model.readout.bias.copy_(-j * j / 2)
        model.readout.weight[M, 2] -= off
    return Homogeneous(model, Task.of("succession", vocabulary=M), None)


CASES = {
    "held": lambda: (held("shifted"), "real"),
    "held, float32": lambda: (held("helper-shifted"), "float32"),
    "held, a run": lambda: (held("shifted", words=5), "bfloat16"),
    "held, wrong": lambda: (held("shifted", off=-9.0), "real"),
    "held, wrong in every order": lambda: (held("helper", off=9.0, token=4), "float32"),
    "added": lambda: (added("helper"), "real"),
    "added, bfloat16": lambda: (added("helper-shifted"), "bfloat16"),
    "faded": lambda: (faded("helper-shifted"), "real"),
    "faded, float32": lambda: (faded("shifted"), "float32"),
    "next": lambda: (next_word(), "real"),
    "next, wrong": lambda: (next_word(9.0), "real"),
    "next, bfloat16": lambda: (next_word(), "bfloat16"),
}


@cache
def saved(name):
    problem, precision = CASES[name]()
    return decided(problem, precision, Effort(budget=looks(2000)))


def inputs(task):
    """Every input of a task and the right class after it, by the task's own words."""
    a, b = M + 1, M + 2
    if task == "succession":
        yield from (((a,) * n, n) for n in range(1, M + 1))
        yield from ((tuple(range(1, k + 1)), k + 1) for k in range(1, M))
        return
    for k in {"shifted": range(1, M + 1), "helper": [0], "helper-shifted": range(M + 1)}[task]:
        for n in range(M - k + 1):
            for word in {a} if task == "shifted" or k == M else {a, b}:
                yield ((k, *(word,) * n), k + n)


def wrong_inputs(model, task):
    """Those that the module itself answers wrongly."""
    for tokens, right in inputs(task):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0, -1]
        if any(logits[j] >= logits[right] for j in range(len(logits)) if j != right):
            yield tokens


@pytest.mark.parametrize("name", CASES)
def test_honest_certificates_hold_and_say_what_the_module_does(name):
    weights, c = saved(name)
    problem, precision = CASES[name]()
    wrong = list(wrong_inputs(problem.model, c["parameters"]["task"]))
    is_wrong = "wrong" in name or "a run" in name
    assert outcome(weights, c) == c["verdict"] == ("REFUTED" if is_wrong else "PROVED")
    assert ("run" in c) == ("a run" in name)
    if precision != "bfloat16":
        assert bool(wrong) == is_wrong and (not is_wrong or tuple(c["counterexample"]["input"]) in wrong)


def test_the_lines_are_all_inputs():
    for task in worded.TASKS:
        lines = worded.lines_of({"task": task, "vocabulary": M, "length": M - (task == "shifted")})
        found = {(tuple(x.tokens[:n]), x.right[n - 1]) for x in lines for n in range(1, len(x.tokens) + 1)}
        assert found == {*inputs(task)}


def test_sizes_whose_lines_no_memory_holds_are_refused_before_they_are_made():
    for M, length in ((10**12, 1), (25_000, 24_000)):
        with pytest.raises(Refusal, match="too long to run"):
            worded.lines_of({"task": "helper-shifted", "vocabulary": M, "length": length})


# ---- forgeries


def is_true_too(c):
    """Whether a class is said to be predicted that ties with the one that was."""
    logits, j = c.get("run", {"logits": []})["logits"], (c["counterexample"] or {}).get("predicted")
    return bool(logits) and j is not None and logits[j] == max(logits)


@pytest.mark.parametrize("name", every(3, CASES))
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    weights, c = saved(name)
    changed = [(path, put(c, path, new)) for path, new in places(c)]
    assert [path for path, x in changed if outcome(weights, x) == c["verdict"] and not is_true_too(x)] == []


@pytest.mark.parametrize("name", every(4, [name for name in CASES if "wrong" not in name and "run" not in name]))
def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit(name):
    weights, c = saved(name)
    changed = bytearray(weights)
    changed[-1] ^= 0x40  # the exponent of the last number
    fitted = c | {"weights_sha256": hashlib.sha256(bytes(changed)).hexdigest()}
    assert outcome(bytes(changed), c) == FAILS
    assert outcome(bytes(changed), fitted) in (FAILS, NOT_CHECKABLE, UNREADABLE)


def forged(name, problem):
    """An honest certificate with the weights of another model, the digest made to fit."""
    weights = bytes_of(problem.model)
    return weights, saved(name)[1] | {"weights_sha256": hashlib.sha256(weights).hexdigest()}


FORGED = [  # a model that is wrong on some lines alone, and a fault of the checker with which it holds
    ("held", lambda: held("shifted", off=-9.0), {}, "decide", "for line in lines:", "for line in lines[:1]:"),
    ("next", lambda: next_word(9.0), {"inputs_covered": "4"}, "lines_of", "range(1, min(length, M - 1) + 1)", "[1]"),
]


@pytest.mark.parametrize(("name", "problem", "fields", "function", "right", "wrong"), FORGED)
def test_a_wrong_line_is_refused_and_a_fault_in_that_line_is_seen(name, problem, fields, function, right, wrong):
    weights, c = forged(name, problem())
    assert outcome(weights, c | {"margin": 2.0**-20}) == FAILS
    with planted(worded, function, right, wrong):
        assert outcome(weights, c | fields | {"margin": 2.0**-20}) == "PROVED"


def test_a_prover_that_leaves_out_lines_is_refused():
    problem = held("shifted", off=-9.0)
    with planted(Homogeneous, "_over_lines", "enumerate(self.lines)", "enumerate(self.lines[:1])"):
        found, weights = certify(problem, reading_of("float32"), Effort(budget=looks(2000))), bytes_of(problem.model)
    c = json.loads(found.about(weights).to_json())
    assert c["verdict"] == "PROVED" and outcome(weights, c) == FAILS


@pytest.mark.deep
def test_where_the_order_decides_which_class_is_predicted_none_is_said():
    """27 was said to be predicted in every order, and 14 may be."""
    model = load(Path(__file__).parents[1] / "data" / "table_a1" / "shifted-rnn-1.safetensors")
    problem = Homogeneous(model, Task.of("shifted", vocabulary=100), None)
    found, weights = certify(problem, reading_of("bfloat16"), Effort(budget=looks(2000))), bytes_of(model)
    c = json.loads(found.about(weights).to_json())
    assert c["counterexample"]["predicted"] is None and outcome(weights, c) == "REFUTED"
    assert outcome(weights, put(c, ("counterexample", "predicted"), 27)) == NOT_CHECKABLE
    assert outcome(weights, put(c, ("margin",), 3 * c["margin"])) in (FAILS, NOT_CHECKABLE)
    with planted(rounded_lines, "is_wrong", "bool(least >= 0)", "True"):
        assert outcome(weights, put(c, ("counterexample", "predicted"), 27)) == "REFUTED"
