"""Certificates about whole blocks of S4, Mamba and RWKV: what holds, what is forged, and faults in the checker."""

import hashlib
from functools import cache

import pytest
import torch
from flint import ctx
from models.changed_fields import put
from models.rechecked import decided, outcome
from models.selection import every
from models.whole_blocks import drawn
from mpmath import mp, mpf
from oracles.residual_blocks import logits

from tests.planted import planted
from verify.checker import block_steps, whole_blocks
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE
from verify.counting.tasks import Task
from verify.frame.decide import Effort
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

TASKS = {
    "modular": Task.of("modular", modulus=2),
    "helper": Task.of("helper", vocabulary=3),
    "selective": Task.of("selective", types=2, max_count=2),
    "selective-modular": Task.of("selective-modular", types=2, max_count=2, modulus=2),
}
SEEDS = {"s4": 4, "mamba": 0, "rwkv": 1}
CASES = [(kind, task) for task in TASKS for kind in SEEDS]


def problem(kind, name, length=None, seed=None):
    task = TASKS[name]
    model = drawn(kind, SEEDS[kind] if seed is None else seed, types=task.vocabulary, classes=task.classes)
    return (Homogeneous if task.is_homogeneous else Selective)(model, task, length)


@cache
def saved(kind, name, length=None, seed=None):
    return decided(problem(kind, name, length, seed), "real", Effort(budget=60))


@pytest.mark.parametrize(("kind", "name"), every(5, CASES))
def test_what_is_refuted_holds_and_forgeries_do_not(kind, name):
    weights, c = saved(kind, name)
    assert c["verdict"] == outcome(weights, c) == "REFUTED"
    case = c["counterexample"]
    for place, value in (
        (("margin",), c["margin"] - 1e-6),
        (("margin",), 0.5),
        (("counterexample", "expected"), case["expected"] + 1),
        (("counterexample", "predicted"), case["expected"]),
        (("counterexample", "length"), case["length"] + 1),
        (("counterexample", "input"), [*case["input"], case["input"][-1]]),
        (("parameters", "layers"), 1),
        (("parameters", "units"), 5),
        (("parameters", "dtype"), "float32"),
        (("parameters", "model"), f"{next(x for x in SEEDS if x != kind)} blocks"),
        (("parameters", "model"), kind),
        (("verdict",), "PROVED"),
        (("weights_sha256",), "0" * 64),
    ):
        assert outcome(weights, put(c, place, value)) in (FAILS, UNREADABLE, NOT_CHECKABLE), (place, value)


@pytest.mark.parametrize("kind", every(3, SEEDS))
def test_what_is_proved_up_to_a_length_holds_and_no_further(kind):
    """The first length at which a drawn stack is wrong is beyond 1."""
    for seed in range(20):
        _, c = saved(kind, "modular", None, seed)
        if c["counterexample"]["length"] > 1:
            break
    n = c["counterexample"]["length"]
    weights, c = saved(kind, "modular", n - 1, seed)
    assert c["verdict"] == outcome(weights, c) == "PROVED"
    longer = put(put(put(c, ("length",), n), ("parameters", "length"), n), ("inputs_covered",), str(n))
    assert outcome(weights, longer) == FAILS
    assert outcome(weights, put(c, ("margin",), c["margin"] * 1.01)) == FAILS
    for_ever = put(put(put(c, ("length",), "all"), ("parameters", "length"), "all"), ("inputs_covered",), "infinite")
    assert outcome(weights, for_ever) == NOT_CHECKABLE


def said_by_the_checker(model, string):
    """The logits after a string, in balls of 400 bits, of a file's bytes."""
    said = {"model": f"{model.kind} blocks", "units": model.hidden, "layers": model.layers, "dtype": "float64"}
    with ctx.workprec(400):
        net = whole_blocks.of_file(bytes_of(model), said)
        states = net.start
        for token in string:
            states, row = net.step(states, token)
        return row


def agree(model, string):
    """Whether the checker's step and the oracle say the same logits, to sixty digits."""
    with mp.workdps(100):
        pairs = zip(said_by_the_checker(model, string), logits(model, string)[-1], strict=True)
        return all(abs(mpf(x.str(80, radius=False)) - y) < mpf(10) ** -60 for x, y in pairs)


@pytest.mark.parametrize("kind", SEEDS)
def test_a_step_is_that_of_the_sums_over_all_tokens(kind):
    assert agree(drawn(kind, 2, types=3, classes=3), (0, 2, 1, 1))


@pytest.mark.parametrize(
    ("kind", "function", "line", "fault"),
    [
        ("s4", "_s4_step", "- (C[0] * q", "+ (C[0] * q"),
        ("s4", "_s4_step", "(cos - 1) * rate", "cos * rate"),
        ("mamba", "_mamba_step", "u.exp().log1p()", "u.exp()"),
        ("mamba", "_mamba_step", "i * window + 1 :", "i * window :"),
        ("rwkv", "_time_mixed", "64 * EPS", "EPS"),
        ("rwkv", "_time_mixed", "keep[i] * S", "S"),
        ("rwkv", "_between", "u + (v - u) * s", "v + (u - v) * s"),
    ],
)
def test_a_fault_in_the_checkers_step_is_seen(kind, function, line, fault, monkeypatch):
    with planted(block_steps, function, line, fault):
        step = next((x for x, own in block_steps.STEPS.items() if own.__name__ == function), None)
        if step is not None:
            monkeypatch.setitem(block_steps.STEPS, step, getattr(block_steps, function))
        try:
            assert not agree(drawn(kind, 2, types=3, classes=3), (0, 2, 1, 1))
        except ValueError:  # windows of other lengths
            assert "window" in line


@pytest.mark.parametrize("kind", every(3, SEEDS))
def test_other_numbers_are_judged_as_what_they_are(kind):
    """Any tensor changed, and the digest made to fit: what is said to hold is true of the changed numbers."""
    weights, c = saved(kind, "modular")
    model, string, refused = problem(kind, "modular").model, c["counterexample"]["input"], 0
    wrong = c["counterexample"]["predicted"] - 1
    for value in model.parameters():
        kept = value.clone()
        with torch.no_grad():
            value += 0.3
            changed = bytes_of(model)
            row = logits(model, string)[-1]
            value.copy_(kept)
        found = outcome(changed, c | {"weights_sha256": hashlib.sha256(changed).hexdigest()})
        refused += found != "REFUTED"
        assert found != "REFUTED" or row[1 - wrong] - row[wrong] <= c["margin"]
    assert refused > 3
