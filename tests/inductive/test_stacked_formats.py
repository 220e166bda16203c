"""Projections, LayerNorm and MLP heads round cells: in formats and by length, against sixty digits and torch's runs."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from models.selection import every, first
from mpmath import mpf
from oracles import stacked as oracle
from planted import planted
from test_recurrent_stacked import CASES, SHAPES, double, drawn, lists, mingru
from test_residual_formats import NAMED, as_fraction, plainly_rounded

from constructions.errors import BadInput
from constructions.recurrent.stacked import StackedModel
from tests.command import run
from verify.arithmetic.contract import EVERY, EXACTLY_KEPT
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.counting.tasks import Task
from verify.frame.clock import Deadline
from verify.frame.decide import Effort, certify
from verify.module import Automaton, certify_recurrence, followed
from verify.module.recurrence import Recurrence, StepGraph
from verify.tasks.recurrent.models import as_a_cell

ONE_TYPE = Task.of("selective", types=1, max_count=2)
FIRST, TWO_TYPES = Task.of("first-homogeneous"), Task.of("selective-modular", types=2, modulus=2)


def kept_exactly(monkeypatch, model, steps, fmt):
    """Logits of the run that keeps every result and rounds factors of matrix products; weights are of the format."""

    def factor(x):
        near = plainly_rounded(as_fraction(mpf(x)), fmt)
        return mpf(near.numerator) / near.denominator

    plain = oracle.affine
    with monkeypatch.context() as patch:
        patch.setattr(oracle, "affine", lambda W, x, b=None: plain(W, [factor(v) for v in x], b))
        return oracle.logits(lists(model), steps, activation=model.activation)


def ran(model, string):
    """Logits of torch's own run."""
    state, rows = model.start, []
    with torch.no_grad():
        for token in string:
            state, row = model(state, torch.tensor([token]))
            rows.append(row[0].double().tolist())
    return rows


def wrong_lengths(rows, answers):
    return [
        t
        for t, (row, right) in enumerate(zip(rows, answers, strict=True), 1)
        if right is not None and not all(row[right] > x for j, x in enumerate(row) if j != right)
    ]


@pytest.mark.parametrize(("seed", "name", "shape"), every(41, itertools.product(range(16), NAMED, SHAPES)))
def test_no_run_of_a_format_gainsays_a_verdict(seed, name, shape, monkeypatch):
    steps, due = 10, FIRST.answers((0,) * 10)
    fmt, model = FORMATS[name], drawn(seed, **shape).to(NAMED[name])
    known = [
        wrong_lengths(rows, due) for rows in (ran(model, (0,) * steps), kept_exactly(monkeypatch, model, steps, fmt))
    ]
    found = certify(as_a_cell(model, FIRST, steps), Rounded(fmt), Effort(budget=60))
    if found.verdict == "PROVED":
        assert known == [[], []] and found.inputs_covered == steps
        return
    assert all(wrong[0] > int(found.extra["right_to"]) for wrong in known if wrong)
    if known[1]:
        assert found.verdict == "REFUTED"
    if found.verdict == "REFUTED":
        case = found.counterexample
        at = case["length"]
        assert case["evaluation"] in (EVERY, EXACTLY_KEPT) and at == known[1][0]
        assert case["evaluation"] == EXACTLY_KEPT or at in known[0]
        assert bool(case.get("is_first")) == (at == found.extra["right_to"] + 1)


def nearly_tied():
    """A network that always says 1, by 2^-30: right once, in real arithmetic, and a tie in float32."""
    model = StackedModel("lstm", hidden=2, shrunk=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
        model.head[0].bias.copy_(torch.tensor([1.0, 1.0 + 2.0**-30], dtype=torch.float64))
    return model


def test_a_margin_that_rounds_to_a_tie_is_refuted_in_the_format_alone():
    model, inexact = nearly_tied(), Rounded(FORMATS["float32"])
    assert certify(as_a_cell(model, FIRST, 1)).verdict == "PROVED"
    found = certify(as_a_cell(model, FIRST, 1), inexact)
    assert found.verdict == "REFUTED" and found.counterexample["is_first"]
    with planted(StepGraph, "read_in", "self._arithmetic(reading)", "self._arithmetic(REAL)"):
        assert certify(as_a_cell(model, FIRST, 1), inexact).verdict == "PROVED"


@pytest.mark.parametrize("name", first(1, ["float32", "bfloat16", "float64"]))
def test_all_strings_in_a_format_agree_with_torch(name):
    for seed in range(3):
        model = double(StackedModel("mingru", hidden=3, inputs=2, types=2, classes=2), seed).to(NAMED[name])
        with torch.no_grad():
            model.head[0].bias[seed % 2] += 2
        wrong = [
            string[:t]
            for string in itertools.product(range(2), repeat=4)
            for t in wrong_lengths(ran(model, string), TWO_TYPES.answers(string))
        ]
        found = certify(as_a_cell(model, TWO_TYPES, 4), Rounded(FORMATS[name]), Effort(budget=60))
        assert found.verdict != "PROVED" or not wrong
        assert found.verdict == "PROVED" or all(len(string) > found.extra["right_to"] for string in wrong)
        if found.verdict == "REFUTED" and found.counterexample["evaluation"] == EVERY:
            assert tuple(found.counterexample["input"]) in wrong


def counted(found):
    """Right, wrong and undecided at each length."""
    rows = []
    for part in found.extra["by_length"]:
        row = tuple(int(part[key]) for key in ("right", "wrong", "undecided"))
        rows += [row] * (part["last"] + 1 - part["first"])
    return rows


@pytest.mark.parametrize("shape", first(2, SHAPES))
def test_a_line_is_counted_as_sixty_digits_say(shape):
    model, steps = drawn(1, **shape), 30
    rows = oracle.logits(lists(model), steps, activation=model.activation)
    wrong = wrong_lengths(rows, FIRST.answers((0,) * steps))
    found = certify(as_a_cell(model, FIRST, steps, True), effort=Effort(budget=60))
    assert counted(found) == [(0, 1, 0) if t in wrong else (1, 0, 0) for t in range(1, steps + 1)]
    assert found.extra["first_wrong_length"] == min(wrong, default=None)


def test_strings_are_counted_as_sixty_digits_say():
    model = double(StackedModel("mingru", hidden=3, inputs=2, types=2, classes=2), 0)
    found, true = certify(as_a_cell(model, TWO_TYPES, 5, True), effort=Effort(budget=60)), []
    for n in range(1, 6):
        strings = list(itertools.product(range(2), repeat=n))
        wrong = sum(n in wrong_lengths(mingru(lists(model), s), TWO_TYPES.answers(s)) for s in strings)
        true.append((len(strings) - wrong, wrong, 0))
    assert counted(found) == true and any(wrong for _, wrong, _ in true)


def test_answers_that_are_not_judged_are_not_counted_as_right():
    """Over one type, too, as over several."""
    found = certify(as_a_cell(StackedModel("gru", hidden=2, classes=3), ONE_TYPE, 5, True))
    judged = [sum(row) for row in counted(found)]
    assert judged == [ONE_TYPE.number_judged(n) for n in range(1, 6)] == [1, 1, 0, 0, 0]


def test_the_command_takes_formats_and_counts(capsys, tmp_path):
    torch.save(double(CASES["proj_size"]()).state_dict(), tmp_path / "w.pt")
    base = ("inductive", "--weights", str(tmp_path / "w.pt"), "--model", "lstm", "--task", "modular", "--modulus", "3")
    code, out, _ = run(capsys, *base, "--precision", "float32", "--json")
    case = json.loads(out)["counterexample"]
    assert code == 1 and case["evaluation"] == EVERY and case["is_first"]
    code, out, _ = run(capsys, *base, "--by-length", "--length", "6", "--json")
    assert code == 1 and json.loads(out)["first_wrong_length"] == case["length"] == 1


class Parity(torch.nn.Module):
    """The sign of the state is turned by the token 1."""

    def forward(self, state, token):
        state = torch.tanh(4 * state * (1 - 2 * token))
        return state, torch.cat([state, -state], dim=1)


def test_a_cell_of_ones_own_is_decided_in_a_format():
    odd = Automaton(0, lambda state, token: (state + token) % 2, lambda state: state)
    asked = {"expected": odd, "vocabulary": 2, "length": 5}
    found = certify_recurrence(Parity().eval(), start=torch.ones(1, 1), reading="float32", **asked)
    assert found.verdict == "PROVED" and found.inputs_covered == 62
    for start in (1 + 2.0**-30, 1e-40):
        with pytest.raises(BadInput, match=r"no normal number of float32"):
            certify_recurrence(
                Parity().eval(), start=torch.full((1, 1), start, dtype=torch.float64), reading="float32", **asked
            )
    for wide in ("float33", "float16"):
        with pytest.raises(BadInput, match=f"accumulate='?{wide}"):
            certify_recurrence(Parity().eval(), start=torch.ones(1, 1), reading="bfloat16", accumulate=wide, **asked)


def test_infinity_less_infinity_is_no_margin_and_no_warning(monkeypatch):
    """As a beam meets them where a weight of float16 is beyond its largest number."""
    odd = Automaton(0, lambda state, token: (state + token) % 2, lambda state: state)
    graph = StepGraph(Parity().eval(), Recurrence(torch.ones(1, 1), odd, 2))
    shape = (graph.size + graph.classes,)
    monkeypatch.setattr(StepGraph, "enclosed", lambda self, mid, rad, tokens: np.full((2, len(tokens), *shape), np.inf))
    assert followed.wrong_string(graph, 2, Deadline.never()) is None
