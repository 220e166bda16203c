"""Orbits that creep: first wrong lengths far away, against closed forms with 100 digits and runs of every token."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import acb, arb, arb_poly
from models.crafted import crafted
from models.selection import every
from oracles.recurrent_digits import margins
from oracles.slow_units import first_wrong

from constructions.recurrent import diagonal
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import RecurrentModel
from tests.clocks import endless, looks
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import slow, tubes
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous

LINE = OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)


def swinging(*, keep, add, push, is_seen=0.0):
    """An LSTM whose first unit swings between its two classes; the second creeps, and pushes towards the other one.

    `keep` is the bias of its forget gate, `add` that of what it adds, and `is_seen` its weight in the first unit.
    """
    model = RecurrentModel("lstm", hidden=2, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        gates, weights = model.cell.bias_ih_l0.view(4, 2), model.cell.weight_hh_l0.view(4, 2, 2)
        gates[:, 0] = torch.tensor([6.0, -6.0, 0.1, 6.0])
        gates[:, 1] = torch.tensor([0.5, keep, add, 0.25])
        weights[2, 0] = torch.tensor([-4.0, is_seen])
        weights[3, 1, 0] = 0.5
        model.readout.weight.copy_(torch.tensor([[2.0, -push], [-2.0, push]]))
    return model


def crept(model, steps=None, line=LINE):
    return slow.creep(Network.of(model), line, 2, 0, steps, endless().deadline())


FAR = {
    "10^3": {"keep": 8.0, "add": 1e-3, "push": 8.0},
    "10^6": {"keep": 16.0, "add": 1e-6, "push": 8.0},
    "10^9": {"keep": 25.0, "add": 1e-9, "push": 8.0},
    "10^12": {"keep": 32.0, "add": 1e-12, "push": 8.0},
    "for ever": {"keep": 12.0, "add": 1e-6, "push": 8.0},
    "for ever, saturated": {"keep": 14.0, "add": 1e-3, "push": 0.5},
}


@lru_cache
def truth(name):
    return first_wrong(swinging(**FAR[name]), 2)


@pytest.mark.parametrize("name", every(3, FAR))
def test_the_first_wrong_length_is_that_of_a_closed_form(name):
    found = crept(swinging(**FAR[name]))
    assert found.wrong_at == truth(name) and found.stuck is None
    if found.wrong_at is None:
        assert found.entered is not None and found.margin > 0
    else:
        assert found.right_to == found.wrong_at - 1 and found.wrong_by <= 0 < found.margin
        assert 10.0 ** int(name.removeprefix("10^")) / 10 < found.wrong_at < 10.0 ** int(name.removeprefix("10^")) * 100


def test_the_task_says_it_and_shows_the_line_in_words():
    model = swinging(**FAR["10^9"])
    found = certify(Homogeneous(model, Task.of("modular", modulus=2), None), None, Effort(budget=endless()))
    assert found.verdict is Verdict.REFUTED and found.argument.startswith("tubes round polynomials")
    assert found.counterexample["length"] == truth("10^9") and found.counterexample["is_first"]
    assert found.counterexample["input"] == f"token 0, {truth('10^9')} times"


def test_a_sigmoid_of_a_complex_ball_holds_its_values():
    """Also where the ball is so wide that e^-a may be anything, and far out."""
    g, told = np.random.default_rng(0), 0
    for _ in range(300):
        c, r, tall = g.uniform(-9, 9), g.uniform(0, 4), g.uniform(0, 9)
        found = tubes.logistic(acb(arb(c, r), arb(0, tall)))
        if found.is_finite():
            value = 1 / (1 + np.exp(-complex(c + g.uniform(-r, r), g.uniform(-tall, tall))))
            off = found - acb(value.real, value.imag)
            assert abs(off.real).lower() < 1e-12 and abs(off.imag).lower() < 1e-12
            told += 1
    assert 100 < told < 300


def test_the_page_names_the_length_of_the_closed_form():
    page = (Path(__file__).parents[2] / "docs" / "recurrent.md").read_text()
    assert f"{truth('10^12'):,}" in page


def test_a_length_before_the_first_wrong_one_is_proved():
    model, wrong = swinging(**FAR["10^6"]), truth("10^6")
    before, there = crept(model, wrong - 1), crept(model, wrong)
    assert before.right_to == wrong - 1 and before.wrong_at is None and before.stuck is None
    assert there.wrong_at == wrong


def turning_wrong(model, modulus):
    """The first wrong length of h' = l h + 1 for a complex l, in closed form with 60 digits, by bisection in turns."""
    with mpmath.mp.workdps(60):
        (c, _), (s, _) = model.cell.A.tolist()
        rate = mpmath.mpc(c, s)
        V, b = model.readout.weight.tolist(), model.readout.bias.tolist()

        def is_right(t):
            h = (1 - rate**t) / (1 - rate)
            logits = [x * h.real + y * h.imag + z for (x, y), z in zip(V, b, strict=True)]
            return logits.index(max(logits)) == (t - 1) % modulus

        found = []
        for r in range(1, modulus + 1):
            low, high = 0, 1
            while is_right(r + modulus * high):
                low, high = high, 2 * high
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if is_right(r + modulus * middle) else (low, middle)
            found.append(r + modulus * high)
        return min(found)


@pytest.mark.deep
@pytest.mark.parametrize(("modulus", "off"), [(10, 1e-6), (10, 1e-9), (3, -1e-9), (4, 1e-11)])
def test_a_rotation_that_is_off_is_refuted_where_it_leaves_its_sector(modulus, off):
    """Its matrix is stored in float64, so that it also grows or shrinks by about 10^-17 a token."""
    angle, built = 2 * math.pi / modulus + off, diagonal.rotation(m=modulus, dtype=torch.float64)
    c, s = math.cos(angle), math.sin(angle)
    A, B = (torch.tensor(x, dtype=torch.float64) for x in ([[c, -s], [s, c]], [1.0, 0.0]))
    model = LinearModel("ssm", A, B, built.readout.weight.data.clone(), built.readout.bias.data.clone())
    found = certify(Homogeneous(model, Task.of("modular", modulus=modulus), None), None, Effort(budget=endless()))
    assert found.counterexample["length"] == turning_wrong(model, modulus) > 10_000


def float_run(model, steps):
    """(right logit) - (other one) after every token, in numpy."""
    cell, sigmoid = {k: v.double().numpy() for k, v in model.cell.named_parameters()}, lambda x: 1 / (1 + np.exp(-x))
    V, b = model.readout.weight.numpy(), model.readout.bias.numpy()
    h, c, found = np.zeros(2), np.zeros(2), []
    for t in range(steps):
        a = cell["weight_ih_l0"][:, 0] + cell["bias_ih_l0"] + cell["weight_hh_l0"] @ h + cell["bias_hh_l0"]
        i, f, g, o = a.reshape(4, 2)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        z = V @ h + b
        found.append(z[t % 2] - z[1 - t % 2])
    return np.array(found)


@pytest.mark.deep
@pytest.mark.parametrize("is_seen", [0.5, -1.5])
def test_a_unit_that_pushes_back_is_followed(is_seen):
    """No closed form: the swing that it changes changes what it adds."""
    model = swinging(keep=11.0, add=2e-4, push=8.0, is_seen=is_seen)
    found, run = crept(model), float_run(model, 20_000)
    wrong = int((run <= 0).argmax()) + 1
    assert wrong > 2000 and abs(run[wrong - 1]) > 1e-9 and found.wrong_at == wrong
    assert found.margin <= run[: wrong - 1].min() + 1e-9 and run[wrong - 1] <= found.wrong_by + 1e-9


def test_a_tanh_unit_passes_a_narrow_gate():
    """h' = tanh(h + 10^-5) creeps by 10^-5 a token, and its swing partner is pushed over after thousands."""
    model = RecurrentModel("rnn", hidden=2, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.tensor([[-4.0, 0.0], [0.0, 1.0]]))
        model.cell.bias_ih_l0.copy_(torch.tensor([0.1, 1e-5], dtype=torch.float64))
        model.readout.weight.copy_(torch.tensor([[1.0, -200.0], [-1.0, 0.0]]))
    wrong = next(t for t, margin in enumerate(margins(model, 2, 2000), 1) if margin <= 0)
    assert wrong > 500 and crept(model).wrong_at == wrong


def test_what_grows_or_swings_otherwise_does_not_creep():
    model = swinging(keep=16.0, add=1e-6, push=8.0)
    with torch.no_grad():
        model.cell.bias_ih_l0[2 + 1] = 0.0  # forgets half a turn
    found = crept(model)
    assert found.entered is not None  # it settles at once
    with torch.no_grad():
        model.cell.weight_hh_l0[4, 0] = -1.0  # a swing that dies out
    found = crept(model)
    assert found is None or found.wrong_at is not None or found.stuck is not None


@pytest.mark.parametrize("looked", [215, 240])
def test_time_ends_it_with_what_is_known(looked):
    found = slow.creep(Network.of(swinging(**FAR["for ever"])), LINE, 2, 0, None, looks(looked).deadline())
    assert found.stuck.startswith("time is up after") and found.wrong_at is None and found.right_to > 100


def bent(*args):
    """A segment whose slow unit goes astray, by a millionth at its end."""
    found = bent.right(*args)
    if found is None:
        return None
    return slow.Segment([[*P[:3], P[3] + arb_poly([1e-6, 1e-6])] for P in found.P], found.turns)


bent.right = slow.fit


@pytest.mark.deep
def test_polynomials_that_go_astray_are_found():
    """Nothing is said then; where what a step is off is not bounded, something wrong is."""
    model, wrong = swinging(**FAR["10^6"]), truth("10^6")
    with mock.patch.multiple(slow, fit=bent, GUARD=1e-8, MOST_WALKED=64):
        assert crept(model).wrong_at is None
        with mock.patch.object(slow, "off_step", lambda *args: [arb(0)] * 4):
            assert crept(model).wrong_at not in (None, wrong)


def test_a_fixed_point_that_is_none_proves_nothing():
    """The limit's tube is checked by what a whole turn does to its centre."""
    model = swinging(**FAR["10^6"])  # its limit is wrong
    with mock.patch.object(slow.Creeping, "_fixed", lambda self, until: self.x):
        assert crept(model).wrong_at == truth("10^6")


@pytest.mark.parametrize(
    ("length", "verdict"), every(2, [(832_520, "PROVED"), (832_521, "REFUTED"), (10**6, "REFUTED")])
)
def test_the_first_token_is_told_up_to_a_length_that_no_run_reaches(length, verdict):
    """Answers repeat from the second token on, whether the line ends or not."""
    case = crafted(215)
    found = certify(Homogeneous(case.model, case.task, length), effort=Effort(budget=looks(500)))
    assert case.oracle() == 832_521 and found.verdict.value == verdict
    assert verdict == "PROVED" or found.counterexample["length"] == 832_521
