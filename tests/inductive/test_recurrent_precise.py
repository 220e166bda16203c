"""One line followed in balls of growing precision: against runs with 120 digits, and where ellipsoids end."""

from __future__ import annotations

from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import arb
from models.recurrent import random_network
from oracles.recurrent_digits import margins

from constructions.recurrent.model import RecurrentModel
from tests.clocks import endless, looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.clock import Deadline
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import precise, proof
from verify.tasks.recurrent.task import Homogeneous

STEPS, DEEP = 120, pytest.mark.deep


def posed(model, modulus, length):
    return Homogeneous(model, Task.of("modular", modulus=modulus), length)


def decided(model, modulus, length, reading=None):
    return certify(posed(model, modulus, length), reading, Effort(budget=endless()))


def followed(model, modulus, steps):
    """The line as digits alone follow it."""
    line = posed(model, modulus, steps)._line(tuple([0] * steps))
    return precise.follow(proof.Network.of(model), line, steps, Deadline.never())


def compare(seeds):
    wrong_ones = 0
    for seed in seeds:
        model, modulus = random_network(seed)
        found, true = followed(model, modulus, STEPS), margins(model, modulus, STEPS)
        wrong = next((t for t, margin in enumerate(true, 1) if margin <= 0), None)
        assert found.wrong_at == wrong and found.stuck is None, seed
        if wrong is not None:
            assert true[wrong - 1] <= found.wrong_by <= 0, seed
        assert found.right_to == (STEPS if wrong is None else wrong - 1), seed
        assert mpmath.mpf(found.margin) <= min([mpmath.inf, *true[: found.right_to]]), seed
        wrong_ones += wrong is not None
    assert 0 < wrong_ones < len(seeds)


def test_equal_rows_of_the_readout_are_a_tie_and_wrong():
    model, modulus = random_network(0)
    with torch.no_grad():
        for rows in (model.readout.weight, model.readout.bias):
            rows[1] = rows[0]
    found = followed(model, modulus, STEPS)
    assert found.stuck is None and found.wrong_at is not None and found.wrong_by <= 0
    assert found.wrong_at == next(t for t, margin in enumerate(margins(model, modulus, STEPS), 1) if margin <= 0)


@pytest.mark.parametrize("seeds", [range(9), pytest.param(range(9, 500), marks=DEEP)], ids=["few", "many"])
def test_a_line_is_what_120_digits_say(seeds):
    compare(seeds)


PLANTED = {
    "linear": lambda right: (
        lambda self, W, x, b, terms=None: [
            y - c for y, c in zip(right(self, W, x, b), self.exactly[id(W), id(b)][1], strict=True)
        ]
    ),
    "sigmoid": lambda right: lambda self, x: [1 - y for y in right(self, x)],
    "blend": lambda right: lambda self, z, n, h: right(self, z, h, n),
    "add": lambda right: lambda self, x, y: right(self, x, x),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name):
    wrong = PLANTED[name](getattr(precise.Digits, name))
    with mock.patch.object(precise.Digits, name, wrong), pytest.raises(AssertionError):
        compare(range(16))


def swinging(doublings, *, is_late):
    """Swings between its two classes; one unit doubles what it starts with, until it drowns the other or not."""
    model = RecurrentModel("rnn", hidden=2, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.tensor([[-4.0, 0.0], [0.0, 2.0]]))
        model.cell.bias_ih_l0.copy_(torch.tensor([0.1, 2.0**-doublings], dtype=torch.float64))
        model.readout.weight.copy_(torch.tensor([[1.0, -10.0], [-1.0, 0.0]] if is_late else [[1.0, 0.0], [-1.0, 0.0]]))
    return model


@pytest.mark.parametrize("length", [None, 700], ids=["all", "700"])
def test_what_grows_is_followed_with_digits(length):
    """Each step doubles what is unknown of a state: ellipsoids end, and the first wrong length is found."""
    model = swinging(300, is_late=True)
    wrong = next(t for t, margin in enumerate(margins(model, 2, 400), 1) if margin <= 0)
    found = decided(model, 2, length)
    assert wrong > 280 and found.verdict is Verdict.REFUTED and found.argument.startswith("balls of ")
    assert found.counterexample["length"] == wrong and found.counterexample["is_first"]
    assert found.extra["right_to"] == wrong - 1


def test_a_length_is_proved_where_ellipsoids_end():
    found, true = decided(swinging(300, is_late=True), 2, 250), margins(swinging(300, is_late=True), 2, 250)
    assert found.verdict is Verdict.PROVED and found.argument == "balls of 128 bits round the state after every token"
    assert 0 < mpmath.mpf(found.margin) <= min(true) and found.tightest["length"] == true.index(min(true)) + 1


def test_more_bits_where_a_margin_is_small():
    """Two units that differ by about 2^-400 beside numbers near 1 are no tie, and 128 bits cannot tell."""
    model = swinging(10, is_late=False)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.bias_ih_l0[:] = 0.5
        model.cell.bias_hh_l0[0] = 2.0**-400
        model.readout.weight.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))
    found = followed(model, 2, 1)
    assert found.bits == 512 and 1e-121 < found.margin < 1e-120 and found.right_to == 1


def test_a_tie_is_wrong_or_open_and_never_right():
    model = swinging(10, is_late=False)
    with torch.no_grad():
        model.readout.weight.zero_()
    assert followed(model, 2, 5).wrong_at == 1


@pytest.mark.deep
def test_other_readings_are_left_to_the_ellipsoids():
    with mock.patch.object(proof, "follow") as follow:
        found = decided(swinging(300, is_late=True), 2, 250, Rounded(FORMATS["float32"]))
    assert found.verdict is Verdict.UNKNOWN and not follow.called


def test_time_ends_it_with_what_is_known():
    model = swinging(300, is_late=True)
    line = posed(model, 2, None)._line((0,))
    found = precise.follow(proof.Network.of(model), line, 10**9, looks(100).deadline())
    assert 90 < found.right_to < 100 and found.stuck == f"time is up after {found.right_to} tokens"


def test_no_class_is_said_where_either_of_two_may_be_the_largest():
    """What the balls of both differences have in common is a wrong answer, whichever it is."""
    near, far = (arb(-1, 0.1), 0), (arb(-0.95, 0.1), 2)
    assert precise.bounds([near, far])[2] is None and precise.bounds([near, (arb(-0.5, 0.1), 2)])[2] == 0
    assert precise.bounds([near])[2] == 0 and precise.bounds([(arb(-1), 0), (arb(-1), 2)])[2] in (0, 2)
    assert precise.bounds([near, (arb(3), 2)])[2] == 0 and precise.bounds([(arb(3), 2)])[2] is None


@pytest.mark.parametrize("seed", range(40))
def test_the_closest_differences_bound_all(seed):
    """Wide balls, many of which overlap: what is left out never has the least difference."""
    rng = np.random.default_rng(seed)
    logits = [arb(*map(float, pair)) for pair in np.stack([rng.normal(size=9), rng.random(9) ** 3], axis=1)]
    logits[0] = logits[0] + 4 * (seed % 2)
    gaps = [(logits[0] - x, other) for other, x in enumerate(logits) if other]
    found, due = (precise.bounds(some) for some in (precise.closest(logits, 0), gaps))
    lowest = min(float((logits[0].lower() - x.upper()).mid()) for x in logits[1:])
    assert found[:2] == due[:2] and abs(found[0] - lowest) < 1e-6
    assert due[2] in (None, found[2])  # which logit is the largest is known where the right one's error is left out
