"""Lines that creep up to a length in a format: drawn evaluations against boxes, forged certificates, planted faults."""

import copy
import json
import random
from fractions import Fraction
from functools import cache
from unittest import mock

import pytest
import torch
from flint import arb, ctx, fmpq
from models.crafted import blank, crafted
from models.judged_crafted import decided
from models.rechecked import outcome
from models.selection import first
from test_checker_computed_creeps import claim

from tests.oracles.loose_steps import LooseSteps
from tests.oracles.rounded import nearest
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import creeping_pieces, formats, rounded
from verify.checker.computed_creeps import ComputedCreeps
from verify.checker.creeping_pieces import CreepingLine, Piece
from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.kept_runs import KEPT
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.recurrent import due_of, network, point, step
from verify.checker.rounded import ComputedBalls, Rounding, rounding_of_step, stored_in
from verify.checker.rounded_lines import EVERY, is_wrong
from verify.tasks.recurrent.models import bytes_of

CRAFTED = [
    (480, "float32", EVERY), (461, "float64", EVERY), (347, "float32", EVERY),
    (384, "float64", EVERY), (61, "float32", EVERY), (400, "float64", EVERY),
    (404, "float64", EVERY), (377, "float32", EVERY), (233, "float64", None), (289, "float64", EVERY),
    (20, "float64", EVERY),
]  # fmt: skip


@cache
def found(seed, name):
    case = crafted(seed)
    weights = bytes_of(case.model)
    return weights, json.loads(decided(case, name, 2000).about(weights).to_json()), case.task.m


def moved_to(c, n, m):
    """The same certificate with another wrong length, said not to be the first."""
    moved = copy.deepcopy(c)
    expected = (n - 1) % m + 1 if m else int(n == 1)
    case = moved["counterexample"] | {"length": n, "input": f"token 0, {n} times", "expected": expected}
    return moved | {"counterexample": case | {"is_first": False, "evaluation": EVERY}, "right_to": 0}


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "name", "evaluation"), CRAFTED)
def test_lengths_hold_that_are_wrong_late_and_no_right_one_does(seed, name, evaluation):
    weights, c, m = found(seed, name)
    assert outcome(weights, c) == "REFUTED" and c["counterexample"].get("evaluation") == evaluation
    assert outcome(weights, moved_to(c, c["right_to"], m)) in (FAILS, NOT_CHECKABLE)
    assert outcome(weights, c | {"margin": 64 * c["margin"] - 1.0}) in (FAILS, NOT_CHECKABLE)
    if evaluation is None:
        return
    case = c["counterexample"]
    changes = [{"run": {"kept": [1.0]}}, {"right_to": c["right_to"] + 10**12}, {"length": case["length"] - 1}]
    others = [("is_first", not case["is_first"]), ("evaluation", "low, " + KEPT), ("expected", 7), ("length", 1)]
    changes += [{"counterexample": case | {key: value}} for key, value in others]
    for change in changes:
        assert outcome(weights, c | change) in (FAILS, NOT_CHECKABLE), change


# ---- drawn evaluations of what creeps


class OneSided(LooseSteps):
    """Functions are all as high, or as low, as they may be."""

    def function(self, f, x):
        side, choice = self.side, self.draw.choice
        with mock.patch.object(self.draw, "choice", lambda of: 2 * side if len(of) == 6 else choice(of)):
            return super().function(f, x)


def rows_of(model):
    return {name: x.double().reshape(-1, x.shape[-1]).tolist() for name, x in model.state_dict().items()}


def creeps(draw, kind):
    """Unit 0 swings, or gates of an LSTM are open; unit 1 creeps, and in some sees the other one, or itself."""
    model = blank(kind, 2, 2)
    sees, rate = draw.choice([0.0, 0.125, -0.25]), 2.0 ** -draw.randint(2, 6)
    with torch.no_grad():
        W, b = model.cell.weight_hh_l0, model.cell.bias_ih_l0
        if kind == "rnn":
            W.copy_(torch.tensor([[-4.0, 0.0], [sees, 1 - rate]]))
            b.copy_(torch.tensor([0.1, rate]))
        else:
            gates, weights = b.view(-1, 2), W.view(-1, 2, 2)
            slow = torch.logit(torch.tensor(1 - rate).double()).item()
            gates[:, 0] = torch.tensor([6.0, -6.0, 0.1] if kind == "gru" else [6.0, -6.0, 0.1, 6.0])
            gates[:, 1] = torch.tensor([0.5, slow, 0.25] if kind == "gru" else [-1.0, slow, 0.5, 1.0])
            weights[2, 0, 0], weights[1, 1, 0] = -4.0, sees
            weights[0, 1, 1] = draw.choice([0.0, 0.25])
        model.readout.weight.copy_(torch.tensor([[2.0, -0.5], [-2.0, 0.5]]))
    return model


def line_of(model, name):
    """The checker's line in every order."""
    said, fmt = claim(model, name, 1.0, 2)["parameters"], BinaryFormat(*NAMED[name])
    net, due = stored_in(network(bytes_of(model), said), fmt), due_of(2, said)
    return CreepingLine(ComputedCreeps(net, fmt, due, arb(0)), 2)


def exactly(x):
    return arb(fmpq(x.numerator, x.denominator))


def is_outside(seed, tokens=21):
    """Whether a state, or a difference of logits, of a drawn evaluation lies outside of what is said."""
    draw, kind = random.Random(seed), ("lstm", "gru", "rnn")[seed % 3]
    model, name = creeps(draw, kind), draw.choice(["float16", "float32"])
    run = OneSided(rows_of(model), kind, "tanh", FORMATS[name], draw)
    run.side = draw.choice([-1, 1])
    state = run.start()
    for _ in range(tokens):
        state = run.step(state)
    logits = run.logits(state)
    with ctx.workprec(256):
        line = line_of(model, name)
        line.left = 10**9
        box = line._after(tokens, 2, 2, is_judged=False)
        low, high = line.on.gaps(box, 0, "here")[1]
        is_in = all(a <= exactly(x) <= b for x, a, b in zip(state, *box, strict=True))
        return not (is_in and low <= exactly(logits[0] - logits[1]) <= high)


@pytest.mark.parametrize("seed", first(1, range(2, 400)))
def test_drawn_evaluations_stay_within_the_pieces(seed):
    assert not is_outside(seed)


def is_off(seed, ulps=2):
    """Whether a drawn computed step is farther from the exact one than it is said to be, functions being off by so many
    units in the last place.
    """
    draw, kind = random.Random(seed), ("gru", "lstm", "rnn")[seed % 3]
    run = OneSided(rows_of(model := creeps(draw, kind)), kind, "tanh", FORMATS["bfloat16"], draw)
    run.side, state = ulps / 2 * draw.choice([-1, 1]), [Fraction(draw.randint(-64, 64), 64) for _ in range(4)]
    with ctx.workprec(256), mock.patch.object(formats, "ULPS", 2 * ulps):
        on, box = line_of(model, "bfloat16").on, [exactly(x) for x in state[: 2 + 2 * (kind == "lstm")]]
        near, off = step(on.net, point(box)).value, rounding_of_step(on.net, box, on.fmt)
        found = [run.step(state[: len(box)]) for _ in range(8)]
        return any(abs(exactly(x) - y) > e for one in found for x, y, e in zip(one, near, off, strict=True))


def is_sum_off():
    """Whether 1 and a number below its last bit add up to something farther from their sum than is said."""
    fmt, x = FORMATS["bfloat16"], Fraction(3, 2**10)
    one = [ComputedBalls([exactly(y)], [arb(0)]) for y in (Fraction(1), x)]
    said = Rounding(BinaryFormat(*NAMED["bfloat16"])).add(*one).error[0]
    return abs(exactly(Fraction(nearest(1 + x, fmt)) - 1 - x)) > said


@pytest.mark.parametrize("start", first(1, range(0, 1200, 4)))
def test_drawn_steps_are_no_farther_off_than_is_said(start):
    assert not any(map(is_off, range(start, start + 4)))


# ---- lengths between


def late(push=4.0):
    """A sum of units that overtake each other: right, wrong for some tokens, and right again."""
    model = blank("rnn", 2, 2)
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(torch.tensor([[0.875, 0.0], [0.0, 1 - 2.0**-6]]))
        model.cell.bias_ih_l0.copy_(torch.tensor([0.03125, 2.0**-7]))
        model.readout.weight.copy_(torch.tensor([[-push, push], [0.0, 0.0]]))
        model.readout.bias.copy_(torch.tensor([0.4203125, 0.0]))
    return model


def is_right_to(n, margin=0.0):
    """Whether the first class is said to win up to n tokens, but for the first one's due class."""
    model = late()
    with ctx.workprec(256):
        line = line_of(model, "float32")
        line.on.due, line.on.least, line.period = lambda t: 0, arb(margin), 1
        with mock.patch.object(creeping_pieces, "PIECES", (4,)):
            try:
                line.right_to(n)
            except Refusal:
                return False
    return True


def test_lengths_between_that_are_wrong_are_not_passed_over():
    run = OneSided(rows_of(late()), "rnn", "tanh", FORMATS["float32"], random.Random(1))
    run.side, state, found = 1, run.start(), []
    for _ in range(60):
        state = run.step(state)
        logits = run.logits(state)
        found.append(float(logits[0] - logits[1]))
    wrong = next(t for t, x in enumerate(found, 1) if x <= 0)
    assert 3 < wrong < 20 and found[-1] > 0
    assert is_right_to(wrong - 1) and not is_right_to(60)
    assert not is_right_to(wrong - 1, min(found[: wrong - 1]) + 1e-3)


# ---- one small certificate


def overtaken(n=40, margin=-1e-3, **changes):
    """A swing that a unit that creeps makes wrong, a certificate of that, and what is said of it."""
    model = creeps(random.Random(0), "rnn")
    with torch.no_grad():
        model.readout.weight[0, 1] = -13.0
    c = claim(model, "float32", margin, 2)
    case = {"input": f"token 0, {n} times", "length": n, "expected": (n - 1) % 2 + 1, "predicted": 2, "is_first": False,
            "float64_predicts": None, "evaluation": EVERY}  # fmt: skip
    c |= {
        "verdict": "REFUTED",
        "inputs_covered": "1",
        "tightest": None,
        "right_to": 1,
        "counterexample": case | changes,
    }
    with mock.patch.object(creeping_pieces, "PIECES", (4,)):
        return outcome(bytes_of(model), c)


def test_a_length_is_wrong_where_every_drawn_evaluation_is():
    assert overtaken(41) == "REFUTED"
    assert overtaken(40, predicted=1) == FAILS  # which is right
    assert overtaken(3) == FAILS
    assert overtaken(41, -9.0) == overtaken(41, expected=2) == FAILS
    assert overtaken(41, evaluation="each sigmoid twice as high, " + KEPT) == NOT_CHECKABLE
    with mock.patch.multiple(rounded, SHORT=1, LONG=1):
        assert overtaken(41) == "REFUTED"
        with mock.patch.object(creeping_pieces, "MOST_WORK", 100):
            assert overtaken(41) == NOT_CHECKABLE


def test_a_class_that_may_win_is_no_lie_where_another_surely_does_not():
    ends = {1: (arb(0.5), arb(0.625)), 2: (arb(-5), arb(0.75))}
    for margin, code in ((0.0, NOT_CHECKABLE), (-5.5, FAILS)):
        with pytest.raises(Refusal) as refusal:
            is_wrong(lambda right: ends, 0, margin, -1, "length 1")
        assert refusal.value.exit_code == code
    is_wrong(lambda right: ends, 0, 0.625, -1, "length 1")


def is_any(probe, *seeds):
    return lambda: any(map(probe, seeds))


FAULTS = [
    (CreepingLine, "_after", "self._win(piece, t, k, q)", "pass", lambda: is_right_to(60)),
    (Piece, "between", "a * (many if a < 0 else few)", "a * many", lambda: is_right_to(60)),
    (CreepingLine, "_piece", "if j != c), own)", "if j != c), arb(0))", is_any(is_outside, 1)),
    (CreepingLine, "_piece", "abs(slope[c, j]) * w", "0 * w", is_any(is_outside, 9, 10)),
    (Piece, "between", "far * one.max(other)", "0 * far", is_any(is_outside, 0)),
    (CreepingLine, "_win", "[(0, q - 1)]", "[(0, 0)]", lambda: is_right_to(60)),
    (ComputedCreeps, "step", "rounding_of_step(self.net, box.hull, self.fmt)", "[arb(0)] * self.net.size",
     is_any(is_outside, 0)),
    (Rounding, "blend", "dz * abs(x - y)", "0 * dz", is_any(lambda seed: is_off(seed, 32), *range(0, 48, 3))),
    (Rounding, "blend", "dn * abs(1 - v)", "0 * dn", is_any(is_off, 15)),
    (Rounding, "add", "self.fmt.of_result(", "0 * (", is_sum_off),
]  # fmt: skip


@pytest.mark.parametrize("number", first(1, range(len(FAULTS))))
def test_a_part_that_is_wrong_is_found(number):
    owner, name, right, wrong, is_found = FAULTS[number]
    assert not is_found()
    with planted(owner, name, right, wrong):
        assert is_found()
