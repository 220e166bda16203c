"""Whole blocks that are wrong in a format, along a line: the checker's run, against a hundred digits, and forgeries."""

import hashlib
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from flint import arb, ctx
from models.changed_fields import put
from models.rechecked import decided, outcome
from models.selection import every
from models.whole_blocks import drawn
from mpmath import mp, mpf
from oracles.rounded_factors import by_the_oracle

from constructions.recurrent.residual import load
from verify.arithmetic.formats import FORMATS
from verify.checker import whole_blocks
from verify.checker.formats import BinaryFormat, format_of
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.counting.tasks import Task
from verify.frame.decide import Effort
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

DATA = Path(__file__).parents[1] / "data" / "table_a1"
KINDS = ("s4", "mamba", "rwkv")
TASKS = {"modular": Task.of("modular", modulus=2), "helper": Task.of("helper", vocabulary=3)}
SEEDS = {
    ("s4", "modular"): 1,
    ("s4", "helper"): 5,
    ("mamba", "modular"): 0,
    ("mamba", "helper"): 2,
    ("rwkv", "modular"): 0,
}


def stack(kind, name, seed):
    """A drawn stack whose numbers are those of bfloat16."""
    task = TASKS[name]
    return drawn(kind, seed, types=task.vocabulary, classes=task.classes).to(torch.bfloat16).double()


def wrong(kind, name, monkeypatch):
    """A stack that a run of a hundred digits answers wrongly after two tokens first, written as a certificate."""
    model, is_modular = stack(kind, name, SEEDS[kind, name]), name == "modular"
    string, due = ((0, 0), (0, 1)) if is_modular else ((0, 4), (0, 1))
    with mp.workdps(100):
        rows = by_the_oracle(monkeypatch, model, FORMATS["bfloat16"], [string])[string]
    gaps = [min(row[k] - y for j, y in enumerate(row) if j != k) for row, k in zip(rows, due, strict=True)]
    assert gaps[0] > 0 > gaps[1]
    weights, length, first = bytes_of(model), "all" if is_modular else 3, int(is_modular)
    sizes = {"modulus": 2} if is_modular else {"vocabulary": 3}
    said = {"task": name, "model": f"{kind} blocks", "units": model.hidden, "layers": model.layers, "length": length}
    case = {
        "input": [*string], "length": 1 + first, "expected": 1 + first, "is_first": True,
        "predicted": rows[-1].index(max(rows[-1])) + first, "evaluation": "exactly kept", "float64_predicts": None,
    }  # fmt: skip
    c = {
        "schema": "weightproof/1", "task": "inductive", "verdict": "REFUTED", "claim": None, "method": "certified",
        "reading": "dtype, any order", "argument": "a run", "length": length, "inputs_covered": "1",
        "parameters": said | sizes | {"dtype": "float64", "precision": "bfloat16"}, "margin": float(gaps[1]) / 2,
        "margin_exact": None, "margin_per_count": None, "tightest": None, "error_share": None, "reason": None,
        "seconds": 0.1, "right_to": first, "weights_sha256": hashlib.sha256(weights).hexdigest(), "assumptions": [""],
        "counterexample": case if is_modular else case | {"start": 0},
    }  # fmt: skip
    return weights, c, gaps


@pytest.mark.parametrize(("kind", "name"), every(3, SEEDS))
def test_what_a_hundred_digits_refute_holds_and_forgeries_do_not(kind, name, monkeypatch):
    weights, c, gaps = wrong(kind, name, monkeypatch)
    case = c["counterexample"]
    assert outcome(weights, c) == "REFUTED"
    assert outcome(weights, put(c, ("counterexample", "evaluation"), "another")) == "REFUTED"
    for place, value in (
        (("margin",), float(gaps[-1]) * (1 + 1e-9)),
        (("margin",), 0.5),
        (("counterexample", "expected"), case["expected"] + 1),
        (("counterexample", "predicted"), case["expected"]),
        (("counterexample", "length"), case["length"] + 1),
        (("counterexample", "input"), [*case["input"], case["input"][-1]]),
        (("counterexample", "is_first"), False),
        (("right_to",), case["length"]),
        (("parameters", "model"), kind),
        (("verdict",), "PROVED"),
    ):
        assert outcome(weights, put(c, place, value)) in (FAILS, NOT_CHECKABLE), (place, value)
    exact = put(c, ("margin",), float(gaps[-1]) * (1 - 1e-9))
    assert outcome(weights, exact) == "REFUTED"


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_factors_that_stay_exact_are_another_run(kind, monkeypatch):
    weights, c, gaps = wrong(kind, "modular", monkeypatch)
    near = [put(c, ("margin",), float(gaps[-1]) * share) for share in (1 - 1e-9, 1 + 1e-9)]
    assert [outcome(weights, x) for x in near] == ["REFUTED", FAILS]
    monkeypatch.setattr(whole_blocks, "as_factor", lambda x, fmt: x)
    assert outcome(weights, near[0]) == outcome(weights, near[1])


def said_by_the_checker(model, fmt, string):
    """The logits after each token in balls of 400 bits, of a file's bytes."""
    said = {"model": f"{model.kind} blocks", "units": model.hidden, "layers": model.layers, "dtype": "float64"}
    with ctx.workprec(400):
        net = whole_blocks.in_format(whole_blocks.of_file(bytes_of(model), said), fmt)
        states, rows = net.start, []
        for token in string:
            states, row = net.step(states, token)
            rows.append(row)
        return rows


def agree(kind, monkeypatch):
    """Whether the checker's run and the oracle say the same logits, to sixty digits."""
    string, fmt = (0, 1, 1), format_of("bfloat16")
    model = drawn(kind, 2, types=2, classes=2)
    rounded = deepcopy(model).to(torch.bfloat16).double()
    with mp.workdps(100):
        due = by_the_oracle(monkeypatch, rounded, FORMATS["bfloat16"], [string])[string]
        pairs = zip(said_by_the_checker(model, fmt, string), due, strict=True)
        off = [abs(mpf(x.str(80, radius=False)) - y) for a, b in pairs for x, y in zip(a, b, strict=True)]
        return max(off) < mpf(10) ** -60


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_is_that_of_the_oracle_and_faults_are_seen(kind, monkeypatch):
    assert agree(kind, monkeypatch)
    monkeypatch.setattr(whole_blocks, "as_factor", lambda x, fmt: x)
    assert not agree(kind, monkeypatch)


def test_a_factor_is_rounded_to_nearest_where_that_shows():
    fmt = BinaryFormat(8, -126, 127)
    with ctx.workprec(64):
        near = whole_blocks.as_factor
        assert near(arb(257), fmt) == 256 and near(arb(259), fmt) == 260
        assert near(-arb("1.004"), fmt) == -(1 + 2**-7) and near(arb(0), fmt) == 0
        for open_one in (arb(257, 0.001), arb("nan"), arb(2) ** 128):
            with pytest.raises(Refusal) as refused:
                near(open_one, fmt)
            assert refused.value.exit_code == NOT_CHECKABLE


@pytest.mark.deep
@pytest.mark.parametrize("name", ["modular-s4-2", "shifted-s4-1"])
def test_what_is_refuted_of_a_trained_file_holds(name):
    """One run, beside boxes to a shorter length, and one that is wrong in every order."""
    task, kind, _ = name.split("-")
    which = Task.of(task, **({"modulus": 10} if task == "modular" else {"vocabulary": 100}))
    weights, c = decided(Homogeneous(load(DATA / f"{name}.safetensors", kind=kind), which, None), "float32", Effort(60))
    assert c["verdict"] == outcome(weights, c) == "REFUTED"
    later = put(c, ("right_to",), c["counterexample"]["length"])
    assert outcome(weights, later) == FAILS
    proved = put(put(c, ("verdict",), "PROVED"), ("counterexample",), None)
    assert outcome(weights, proved) == NOT_CHECKABLE
