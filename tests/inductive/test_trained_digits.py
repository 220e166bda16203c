"""What the table of trained networks is compared with: runs of 100 digits, against slower ones and every string."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from oracles import gated_strings, recurrent_strings

from constructions.recurrent.model import RecurrentModel, load
from tests.oracles import recurrent_far as far
from tests.tools import write_trained
from tests.tools.train_counters import LINES
from verify.counting.tasks import Task

LATE = Path(__file__).parents[1] / "data" / "recurrent"
SELECTIVE = Task.of("selective", types=2, max_count=2)


def cell(kind, **sizes):
    torch.manual_seed(3)
    return RecurrentModel(kind, hidden=3, classes=3, **sizes)


MODELS = {
    "rnn": lambda: cell("rnn", inputs=2),
    "gru": lambda: cell("gru", inputs=2, types=2),
    "lstm": lambda: cell("lstm", inputs=2, layers=2),
} | {kind: lambda kind=kind: gated_strings.random_model(kind, 3, has_layer=False) for kind in ("mamba", "rwkv", "s4")}


@pytest.mark.parametrize("kind", MODELS)
def test_a_string_is_what_runs_of_single_numbers_say(kind):
    model, tokens = MODELS[kind](), (0, 1, 1, 0, 1)
    net = far.Network(model)
    for right in range(3):
        said = float(far.last_gap(net, tokens, right))
        assert said == pytest.approx(float(recurrent_strings.gap(model, tokens, right)), rel=1e-14)


def test_many_tokens_at_once_are_digit_for_digit_those_one_by_one():
    """Of a counter modulo 10, whose state comes again after ten tokens."""
    net = far.Network(load(LATE / "rnn_seed10_stop0.25.safetensors"))
    state, states = net.start, list[object]()
    with far.ctx.workdps(far.DIGITS):
        for _ in range(1043):
            state = net.after(state, 0)
            states.append(state)
        assert states[-1] == states[-11] != states[-2]
        for n in (1, 2, 400, 1037, 1043):
            assert net.after_many(net.start, 0, n) == states[n - 1]


@pytest.mark.parametrize(("name", "wrong"), [("lstm_seed6_stop0.25", 151), ("rnn_seed10_stop0.25", None)])
def test_a_line_is_left_where_its_state_comes_again_and_not_before_it_is_wrong(name, wrong):
    assert far.line_wrong(far.Network(load(LATE / f"{name}.safetensors")), 10) == wrong


@pytest.mark.parametrize(("task", "length"), [(SELECTIVE, 8), (Task.of("selective-modular", types=2, modulus=3), 5)])
def test_every_judged_string_is_run_once(task, length, monkeypatch):
    net, asked = far.Network(MODELS["rwkv"]()), list[int]()
    monkeypatch.setattr(net, "gap", lambda state, token, right: asked.append(right) or 1)
    ran = far.every(net, task, 100)
    assert ran["to"] == length and ran["wrong"] is None and len(asked) == ran["inputs"]
    assert ran["inputs"] == sum(task.number_judged(n) for n in range(1, length + 1))


def test_the_first_wrong_length_is_that_of_the_first_wrong_string():
    model, task = MODELS["lstm"](), SELECTIVE
    net = far.Network(model)
    wrong = far.every(net, task)["wrong"]
    for n in itertools.count(1):
        judged = [(s, right) for s in task.strings(n) if (right := task.answers(s)[-1]) is not None]
        if any(recurrent_strings.gap(model, s, right) <= 0 for s, right in judged):
            break
    assert wrong == n


@pytest.mark.parametrize("seed", range(2))
def test_a_drawn_string_ends_in_a_judged_answer_and_is_run_as_every_string_is(seed):
    model = MODELS["gru"]()
    tokens = far.drawn(SELECTIVE, seed, 25)
    due = SELECTIVE.answers(tuple(tokens))
    assert len(tokens) == 25 and due[-1] == 2
    wrong = [
        n for n, right in enumerate(due, 1)
        if right is not None and recurrent_strings.gap(model, tokens[:n], right) <= 0
    ]  # fmt: skip
    assert far.string_wrong(far.Network(model), SELECTIVE, tokens) == min(wrong, default=None)


def ran(wrong, to=20, drawn=()):
    return {"wrong": wrong, "to": to, "drawn": [*drawn]}


@pytest.mark.parametrize(
    ("verdict", "case", "right_to", "runs", "agrees"),
    [
        ("PROVED", None, None, ran(None, drawn=[None]), True),
        ("PROVED", None, None, ran(5), False),
        ("PROVED", None, None, ran(None, drawn=[None, 90]), False),
        ("UNKNOWN", None, 9, ran(10, drawn=[70]), True),
        ("UNKNOWN", None, 9, ran(9), False),
        ("UNKNOWN", None, 9, ran(None, drawn=[9]), False),
        ("REFUTED", {"length": 12}, 7, ran(8), True),
        ("REFUTED", {"length": 12}, 7, ran(7), False),
        ("REFUTED", {"length": 12, "is_first": True}, 11, ran(12), True),
        ("REFUTED", {"length": 12, "is_first": True}, None, ran(11), False),
        ("REFUTED", {"length": 12, "is_first": True}, None, ran(None), False),
        ("REFUTED", {"length": 12, "is_first": True}, None, ran(None, to=8, drawn=[11]), False),
        ("REFUTED", {"length": 12, "is_first": True}, None, ran(None, to=8, drawn=[30]), True),
    ],
)
def test_runs_gainsay_a_verdict(verdict, case, right_to, runs, agrees):
    found = {"verdict": verdict, "counterexample": case, "right_to": right_to}
    assert write_trained.agree(found, runs) is agrees


def test_a_string_that_is_right_is_no_counterexample():
    net, (line,) = far.Network(MODELS["rwkv"]()), [x for x in LINES if x.name == "rnn16_sel"]
    wrong = far.every(net, SELECTIVE)["wrong"]
    found = {"verdict": "REFUTED", "right_to": 0, "counterexample": {"length": wrong, "input": None}}
    failed = set[bool]()
    for tokens in SELECTIVE.strings(wrong):
        right = SELECTIVE.answers(tokens)[-1]
        if right is None:
            continue
        found["counterexample"]["input"] = tokens
        try:
            write_trained.check(net, line, found, ran(None))
            failed.add(False)
        except AssertionError:
            failed.add(True)
            assert far.last_gap(net, tokens, right) > 0
    assert False in failed


@pytest.mark.deep
def test_networks_are_trained_decided_checked_and_run_and_only_what_is_missing(tmp_path, capsys):
    names = ["lstm8_mod10", "mamba16_mod10", "rwkv8_sel"]
    write_trained.main(tmp_path, names)
    first = capsys.readouterr().out
    table = [line for line in first.splitlines() if line.startswith("|")]
    assert [row.split(" | ")[4] for row in table] == ["PROVED", "REFUTED", "REFUTED"]
    assert all(row.endswith("| holds |") for row in table) and "right to 100,000" in table[0]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.*")}
    write_trained.main(tmp_path, names)
    assert [x for x in capsys.readouterr().out.splitlines() if x.startswith("|")] == table
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.*")} == times
    kept = tmp_path / "rwkv8_sel.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"verdict": "PROVED", "counterexample": None}))
    with pytest.raises(AssertionError, match="rwkv8_sel"):
        write_trained.main(tmp_path, names)
