"""Lines whose turns change the state steadily: certificates against runs in fractions, forgeries and planted faults."""

import copy
import hashlib
import json
import random
from fractions import Fraction

import pytest
import torch
from models import judged_crafted
from models.crafted import blank, crafted
from models.rechecked import outcome
from models.selection import every, first

from constructions.recurrent.linear import LinearModel
from tests.planted import planted
from verify.arithmetic.readings import Real
from verify.checker import linear, steady
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame.decide import certify
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

RUN = 60  # tokens of a run in fractions
CRAFTED = [(29, "REFUTED"), (365, "PROVED"), (21, "PROVED"), (23, "REFUTED"), (137, "PROVED"), (384, "REFUTED")]


def certified(model, task, length=None):
    found, weights = certify(Homogeneous(model, task, length), Real()), bytes_of(model)
    return weights, json.loads(found.about(weights).to_json())


@pytest.mark.parametrize(("seed", "verdict"), every(2, CRAFTED))
def test_steady_turns_hold(seed, verdict):
    case = crafted(seed)
    found, weights = judged_crafted.decided(case, "real", 2000), bytes_of(case.model)
    c = json.loads(found.about(weights).to_json())
    assert c["leaps"][-1]["turns"] is None and found.verdict.value == outcome(weights, c) == verdict
    assert outcome(weights, {x: c[x] for x in c if x != "leaps"}) in (NOT_CHECKABLE, FAILS, verdict)


def drawn(seed):
    """A network of few small numbers, right after one token: sums, decays and swings, or ReLUs, which change sides."""
    draw = random.Random(seed)
    small = [x / 8 for x in range(-8, 9)]
    B, V = ([draw.choice(small) for _ in "01"] for _ in "01")
    h = B if seed % 2 else [max(0.0, x) for x in B]
    b = [-sum(v * x for v, x in zip(V, h, strict=True)) - draw.choice([0.0625, 0.5]), 0.0]
    A = [
        [draw.choice([1.0, 0.5, 0.75, 1.125, -1.0]), 0.0],
        [draw.choice([0.0, 0.25, -0.5]), draw.choice([1.0, 1.0, -1.0])],
    ]
    numbers = [torch.tensor(x, dtype=torch.float64) for x in (A, B, [V, [0.0, 0.0]], b)]
    if seed % 2:
        return LinearModel("ssm", *numbers)
    model = blank("rnn", 2, 2, "relu")
    with torch.no_grad():
        places = (model.cell.weight_hh_l0, model.cell.bias_hh_l0, model.readout.weight, model.readout.bias)
        for place, x in zip(places, numbers, strict=True):
            place.copy_(x)
    return model


def margins_of(model):
    """(right logit) - (the other) of the first-token task, after each of RUN tokens, in fractions."""
    if isinstance(model, LinearModel):
        numbers = (model.cell.A, model.cell.B, model.readout.weight, model.readout.bias)
    else:
        cell, added = model.cell, model.cell.bias_ih_l0 + model.cell.weight_ih_l0[:, 0]
        numbers = (cell.weight_hh_l0, cell.bias_hh_l0 + added, model.readout.weight, model.readout.bias)
    A, B, V, b = ([[Fraction(x) for x in row] for row in y.detach().reshape(len(y), -1).tolist()] for y in numbers)
    h, found = [Fraction(0)] * len(A), []
    for t in range(1, RUN + 1):
        h = [sum(w * x for w, x in zip(row, h, strict=True)) + y for row, (y,) in zip(A, B, strict=True)]
        h = h if isinstance(model, LinearModel) else [max(Fraction(0), x) for x in h]
        zero, one = (sum(w * x for w, x in zip(row, h, strict=True)) + y for row, (y,) in zip(V, b, strict=True))
        found.append(one - zero if t == 1 else zero - one)
    return found


BLANK = {
    "schema": "weightproof/1", "claim": None, "task": "inductive", "reading": "real", "method": "certified",
    "argument": "forged", "margin_exact": None, "margin_per_count": None, "assumptions": [], "error_share": None,
    "reason": None, "seconds": 0.0, "length": "all",
}  # fmt: skip


def forged(draw, c, margins):
    """Another certificate: a verdict, a length, a margin, and turns at once from somewhere on."""
    new = copy.deepcopy(c)
    after, turn = draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 2, 3])
    new["leaps"] = [{"after": after, "turn": turn, "turns": None}]
    if draw.random() < 0.4:
        n = draw.randint(1, 8)
        new["leaps"] = [
            {"after": after, "turn": turn, "turns": n},
            {"after": after + n * turn, "turn": 1, "turns": None},
        ]
    new.pop("repeats", None)
    wrong = next((t for t, x in enumerate(margins, 1) if x <= 0), None)
    if draw.random() < 0.5:
        n = draw.choice([wrong or 9, (wrong or 9) + draw.choice([-1, 1, 2])])
        if not 1 < n <= RUN:
            n = 9
        case = {
            "input": [0] * n,
            "length": n,
            "expected": 0,
            "predicted": 1,
            "is_first": True,
            "float64_predicts": None,
        }
        at = float(margins[n - 1]) if margins[n - 1] <= 0 else -0.125
        new |= {"verdict": "REFUTED", "counterexample": case, "margin": at + draw.choice([0.0, 0.0, -0.125]),
                "inputs_covered": "1", "right_to": n - 1, "tightest": None}  # fmt: skip
        return new
    least = float(max(min(margins), Fraction(1, 64)))
    length = draw.choice(["all", "all", draw.randint(2, RUN)])
    new["parameters"]["length"] = new["length"] = length
    covered = "infinite" if length == "all" else str(length)
    return new | {"verdict": "PROVED", "counterexample": None, "margin": least * draw.choice([1.0, 0.5, 1.25]),
                  "inputs_covered": covered, "tightest": None}  # fmt: skip


def is_true(c, margins):
    """Whether what is said holds as far as the line is run."""
    if c["verdict"] == "REFUTED":
        n = c["counterexample"]["length"]
        return min(margins[: n - 1]) > 0 >= margins[n - 1] and margins[n - 1] <= Fraction(c["margin"])
    last = RUN if c["length"] == "all" else c["length"]
    return min(margins[:last]) >= Fraction(c["margin"])


def sweep(seeds):
    """How many forgeries hold that are true, and which are false."""
    true, false = 0, []
    for seed in seeds:
        model, draw = drawn(seed), random.Random(seed)
        weights, margins = bytes_of(model), margins_of(model)
        if min(margins[:3]) <= 0:
            continue
        c = BLANK | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
        kind = "ssm" if seed % 2 else "rnn"
        about = {
            "model": kind,
            "units": 2,
            "layers": 1,
            "dtype": "float64",
            "task": "first-homogeneous",
            "length": "all",
        }
        c["parameters"] = about | ({} if seed % 2 else {"activation": "relu"})
        for _ in range(6):
            new = forged(draw, c, margins)
            if outcome(weights, new) == new["verdict"]:
                true += is_true(new, margins)
                false += [] if is_true(new, margins) else [(seed, new)]
    return true, false


@pytest.mark.parametrize("seeds", first(1, [range(20), range(20, 2000)]))
def test_forgeries_that_hold_are_true(seeds):
    true, false = sweep(seeds)
    assert true > 0 and false == []


def swing(push, decay=0.5):
    """1, 0, 1, 0, .. shows the parity; a decay times `push` is taken from what is shown on even lengths."""
    numbers = ([[decay, 0.0], [0.0, -1.0]], [1.0, 1.0], [[push, 2.0], [0.0, 0.0]], [-1.0, 0.0])
    return LinearModel("ssm", *(torch.tensor(x, dtype=torch.float64) for x in numbers))


def falling():
    """One ReLU counts, one counts down to 0 after five tokens, and one is on at the first: right for ever by .5."""
    model = blank("rnn", 3, 2, "relu")
    with torch.no_grad():
        model.cell.weight_hh_l0[:, 0] = torch.tensor([1.0, -1.0, -2.0])
        model.cell.bias_hh_l0[:] = torch.tensor([1.0, 4.0, 1.0])
        model.readout.weight[0] = torch.tensor([0.0, 1.0, -10.0])
        model.readout.bias[0] = 0.5
    return model


def wrong_at(n, margin, expected, predicted):
    case = {"input": [0] * n, "length": n, "expected": expected, "predicted": predicted, "is_first": True}
    return {"verdict": "REFUTED", "counterexample": case | {"float64_predicts": None}, "margin": margin,
            "inputs_covered": "1", "right_to": n - 1, "tightest": None}  # fmt: skip


def proved(margin, length="all"):
    covered = "infinite" if length == "all" else str(length)
    return {"verdict": "PROVED", "counterexample": None, "margin": margin, "inputs_covered": covered, "length": length}


TURNS, SWING, FIRST = steady.SteadyTurns, Task.of("modular", modulus=2), Task.of("first-homogeneous")
NO_FACTOR = "is_steady = self.factor > 0 and now == self.e * self.factor"
SIXTEENTH = "self.factor, is_steady = fmpq(1, 16), True"
AT_6 = wrong_at(6, -0.5, 0, 1)
FORGED = {  # the model, its task, what is said, turns, and the fault by which it holds
    "limit": (swing(0.25), SWING, proved(0.52), [2, 2], TURNS, "_lowest", " + form.c1 / (1 - self.factor)", ""),
    "for ever": (swing(0.0625, 1.0), SWING, proved(0.25), [2, 2], TURNS, "_lowest", "elif last is None:",
                 "elif last is None and self.factor == 1:\n            yield form, form.c0\n        elif not last:"),
    "sum": (swing(0.501), SWING, wrong_at(8, -0.03, 2, 1), [2, 2], TURNS, "_sum", "if self.factor == 1", "if True"),
    "last": (swing(0.501), SWING, proved(2.0**-10, 10), [2, 2], TURNS, "_lowest", "// self.k", "// self.k - 1"),
    "margin": (swing(0.25), SWING, proved(0.6), [2, 2], TURNS, "win", "is_at_least(lowest, least)", "True"),
    "factor": (swing(0.28, 0.75), SWING, proved(0.05), [2, 2], TURNS, "__init__", NO_FACTOR, SIXTEENTH),
    "side": (falling(), FIRST, AT_6, [2, 1], TURNS, "keep_sides", "is_at_least(lowest, fmpq(0))", "True"),
    "last side": (falling(), FIRST, AT_6, [2, 1], linear._Walk, "last_gaps", "turns.keep_sides(n - self.t)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_fails_but_for_a_fault(name):
    model, task, said, (after, turn), *fault = FORGED[name]
    weights, c = certified(model, task)
    new = (
        c
        | said
        | {
            "leaps": [{"after": after, "turn": turn, "turns": None}],
            "parameters": c["parameters"] | {"length": said.get("length", "all")},
        }
    )
    new.pop("repeats", None)
    if said["verdict"] == "PROVED":
        new.pop("right_to", None)
    assert outcome(weights, new) == FAILS
    with planted(*fault):
        assert outcome(weights, new) == said["verdict"]


def relus(A, B, V, b):
    """h' = ReLU(A h + B), logits V h + b and 0."""
    model = blank("rnn", len(B), 2, "relu")
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(torch.tensor(A))
        model.cell.bias_hh_l0.copy_(torch.tensor(B))
        model.readout.weight[0], model.readout.bias[0] = torch.tensor(V), b
    return model


def test_a_state_comes_again_after_turns_at_once():
    """A ReLU counts to 100 beside a swing, and another one sets it back: leaps lie between a state and its return."""
    saw = relus([[1.0, -300.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]], [1.0, -100.0, 1.0], [0.0, 0.0, 2.0], -1.0)
    weights, c = certified(saw, SWING)
    assert c["repeats"][0] < c["leaps"][0]["after"] < c["repeats"][1] and outcome(weights, c) == "PROVED"
    assert outcome(weights, c | {"repeats": [c["repeats"][0], c["repeats"][1] - 2]}) == FAILS


def test_a_state_that_is_not_reached_does_not_come_again():
    """States of period 3 from 0 on, and turns of 2 from 0 without an end: right three times, and then wrong."""
    three = relus([[0.0, -1.0, -3.0], [2.0, -3.0, -3.0], [0.0, 1.0, 0.0]], [2.0, 1.0, -2.0], [1.0, -1.0, 0.0], 0.5)
    weights, c = certified(three, SWING)
    assert (c["verdict"], c["counterexample"]["length"]) == ("REFUTED", 4)
    new = c | proved(0.25) | {"tightest": None, "repeats": [1, 3], "leaps": [{"after": 0, "turn": 2, "turns": None}]}
    del new["right_to"]
    assert outcome(weights, new) == FAILS
    with planted(linear._Walk, "reached", "self.run(leaps, t) is None", "self.run(leaps, t) or True"):
        assert outcome(weights, new) == "PROVED"
