"""Recurrent networks on all strings up to a length, and one wrong string: what holds, what is forged, and faults."""

import hashlib
import json
from functools import cache
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every

from constructions.recurrent import gated, holding
from constructions.recurrent.model import load
from tests.clocks import looks
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import one_string
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import sets
from verify.tasks.recurrent.kinds import module_of
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"
LENGTH = 4


def trained(name, length=LENGTH, *, push=0.0, token=1):
    """A trained network, of whose numbers a few are moved."""
    model = load(DATA / f"{name}.safetensors")
    with torch.no_grad():
        model.cell.weight_ih_l0[:, token] += push
    return Selective(model, Task.of("selective", types=2, max_count=2), length)


def kept(kind, push=0.0):
    """A gated cell with two types, whose second state is read at the first type's token, too."""
    model = module_of(gated.counters(kind=kind, types=2, max_count=2))
    with torch.no_grad():
        model.cell.r[0, 1] = 2.0**-8 + push
    return Selective(model, Task.of("selective", types=2, max_count=2), 6)


def held():
    model = module_of(holding.counters(types=2, max_count=2))
    return Selective(model, Task.of("selective", types=2, max_count=2), LENGTH)


CASES = {
    "trained": lambda: (trained("rnn_K2_C2_seed1"), "real"),
    "trained, float32": lambda: (trained("rnn_K2_C2_seed3", 3), "float32"),
    "trained, gru": lambda: (trained("gru_K2_C2_seed1"), "real"),
    "trained, lstm, float64": lambda: (trained("lstm_K2_C2_seed0", 3), "float64"),
    "held, float32": lambda: (held(), "float32"),
    "trained, wrong": lambda: (trained("rnn_K2_C2_seed1", push=2.0), "real"),
    "gated, wrong": lambda: (kept("rwkv", 2.0), "real"),
}


@cache
def saved(name):
    problem, precision = CASES[name]()
    return decided(problem, precision, Effort(budget=looks(2000)))


def wrong_strings(model, length):
    """The strings whose last answer the module itself has wrong."""
    for n in range(1, length + 1):
        for string in product((0, 1), repeat=n):
            count = string.count(string[-1])
            with torch.no_grad():
                logits = model(torch.tensor([string]))[0, -1]
            if count <= 2 and any(logits[j] >= logits[count] for j in range(len(logits)) if j != count):
                yield string


@pytest.mark.parametrize("name", CASES)
def test_honest_certificates_hold_and_say_what_the_module_does(name):
    weights, c = saved(name)
    problem, _ = CASES[name]()
    wrong = [*wrong_strings(problem.model, problem.length)]
    assert outcome(weights, c) == c["verdict"] == ("REFUTED" if wrong else "PROVED")
    assert bool(wrong) == ("wrong" in name) and c["argument"] in (one_string.EACH, one_string.ARGUMENT)
    assert not wrong or tuple(c["counterexample"]["input"]) in wrong


@pytest.mark.parametrize("name", every(3, CASES))
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    weights, c = saved(name)
    changed = [(path, put(c, path, new)) for path, new in places(c)]
    assert [path for path, x in changed if outcome(weights, x) == c["verdict"]] == []


def forged(name, problem):
    """An honest certificate with the weights of another model, the digest made to fit."""
    weights = bytes_of(problem.model)
    return weights, saved(name)[1] | {"weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": 2.0**-20}


FAULTS = [
    ("open_ones.append((later, after, n + 1))", "pass"),
    ("due.types if n < length", "1 if n < length"),
    ("due.of(after[token])", "None"),
]


@pytest.mark.parametrize(("right", "wrong"), FAULTS)
def test_a_wrong_string_is_refused_and_a_fault_in_that_line_is_seen(right, wrong):
    weights, c = forged("trained", trained("rnn_K2_C2_seed1", push=2.0))
    assert outcome(weights, c) == FAILS
    with planted(one_string, "all_right", right, wrong):
        assert outcome(weights, c) == "PROVED"


def test_a_string_that_is_not_the_first_is_refused():
    """That of 40 tokens is: all shorter ones in which an answer is judged are few."""
    weights, c = saved("trained, wrong")
    case = {"input": [0, 0, 1], "length": 3, "expected": 1, "predicted": 2, "is_first": True}
    later = c | {"counterexample": case, "right_to": 2, "margin": -(2.0**-20)}
    assert outcome(weights, later) == FAILS
    with planted(one_string, "_refuted", "if is_first:", "if False:"):
        assert outcome(weights, later) == "REFUTED"


def test_a_prover_that_judges_no_second_token_is_refused():
    problem = trained("rnn_K2_C2_seed1", push=2.0)
    fault = planted(sets, "up_to", "range(trained.K)", "range(1)")
    with fault, mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        found, weights = certify(problem, reading_of("float32"), Effort(budget=looks(2000))), bytes_of(problem.model)
    c = json.loads(found.about(weights).to_json())
    assert c["verdict"] == "PROVED" and outcome(weights, c) in (FAILS, NOT_CHECKABLE)
