"""Wide networks: rings are made before one is entered, and long lines are asked for ever."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import endless, looks
from tests.planted import planted
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import proof, search
from verify.tasks.recurrent.chain import Rules
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Followed
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous


def wide(seed, bias=0.0):
    """Sixty-four tanh units, of which one swings and the others hardly see each other; `bias` moves the answer."""
    rng, model = np.random.default_rng(seed), RecurrentModel("rnn", hidden=64, classes=2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.as_tensor(rng.normal(size=(64, 64)) * 0.02))
        model.cell.weight_hh_l0[0] = 0.0
        model.cell.weight_hh_l0[0, 0] = -3.0
        model.cell.bias_ih_l0[:] = 0.1
        model.readout.weight[0] = torch.as_tensor(rng.normal(size=64) * 0.01)
        model.readout.weight[0, 0], model.readout.bias[0] = 1.0, bias
    return model


def asked_of(model, length):
    return certify(Homogeneous(model, Task.of("modular", modulus=2), length), None, Effort(budget=endless()))


@pytest.mark.parametrize(("seed", "bias"), [(1, 0.0), pytest.param(2, 2.0, marks=pytest.mark.deep)])
def test_a_long_line_of_a_wide_network_is_what_it_is_for_ever(seed, bias):
    for_ever, long, short = (asked_of(wide(seed, bias), n) for n in (None, 10**6, 40))
    assert for_ever.verdict is long.verdict is short.verdict is (Verdict.REFUTED if bias else Verdict.PROVED)
    if bias:
        assert for_ever.counterexample["length"] == long.counterexample["length"] == short.counterexample["length"]
    else:
        assert long.margin == for_ever.margin <= short.margin and long.tightest["length"] <= 10**6
        assert "invariant" in for_ever.extra and "invariant" not in long.extra


@pytest.mark.parametrize(("length", "wrong"), [(5000, None), (5999, None), (6000, 6000), (7000, 6000)])
def test_what_is_wrong_beyond_a_length_does_not_count(length, wrong):
    net, line = Network.of(wide(1)), OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)
    known = OrbitOutcome(5999, 0.25, 5998, 6000, -0.5, 1, reason="a float64 run is wrong there")
    with mock.patch.object(proof, "for_ever", lambda *rest: known):
        found = proof.finite(net, line, length, Rules(), endless())
    assert found.wrong_at == wrong and found.margin == 0.25 and found.invariant is None
    assert (found.right_to, found.tightest) == (min(length, 5999), min(length, 5998))
    assert (found.wrong_by, found.predicted) == ((-0.5, 1) if wrong else (None, None))


def test_what_is_known_for_ever_is_kept_where_the_walk_knows_less():
    """Nothing is said of a wrong answer beyond the length; a walk that decides, or that comes further, stands."""
    net, line = Network.of(wide(1)), OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)
    known = OrbitOutcome(4500, 0.25, 4400, 6000, -0.5, 1, reason="one answer is unsure")
    walks = {right: Followed(right_to=right, margin=0.5, stuck="time is up") for right in (0, 4600)}
    walks[5000] = Followed(right_to=5000, margin=0.5)
    for right, walked in walks.items():
        with mock.patch.multiple(proof, for_ever=lambda *rest: known, followed=lambda *rest, walked=walked: walked):
            found = proof.finite(net, line, 5000, Rules(), endless())
        assert (found.right_to, found.wrong_at, found.wrong_by) == (max(right, 4500), None, None)
        assert found.margin == (0.25 if right == 0 else 0.5)
        assert found.reason == (None if right == 5000 else "time is up")


def test_what_tubes_show_for_ever_is_not_said_of_ellipsoids():
    net, line = Network.of(wide(1)), OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)
    with mock.patch.object(proof, "for_ever", lambda *rest: OrbitOutcome(None, 0.25, 9000, turn=2)):
        found = proof.finite(net, line, 5000, Rules(), endless())
    assert (found.argument, found.turn, found.right_to, found.tightest) == (None, 2, 5000, 5000)


def test_answers_that_repeat_are_those_of_the_line_and_go_on():
    line = OrbitQuestion((3,), 0, lambda t: [5, 7, 0, 1, 2, 0][t - 1], 3, 2)
    assert [line.repeating().expected(t) for t in range(1, 12)] == [5, 7, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_the_ring_that_is_entered_first_is_tried_first():
    """And all rings, of several rates, are those of the other order."""
    model, line = wide(1), OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)
    net, until = Network.of(model), endless().deadline()
    states = proof.first_states(net, line, until)
    cycle = search.find_cycle(net, 0, states, 2, until)
    rings = list(proof._rings(net, line, cycle, Rules(), until))
    ordered = proof._first_entered(rings, line, cycle, states)
    entries = [proof._float_entry(ring, states, cycle.start, 1) for ring in ordered]
    assert entries == sorted(entries) and {id(x) for x in ordered} <= {id(x) for x in rings} and len(ordered) > 3


def test_lengths_that_a_short_run_shows_are_kept_when_time_is_up():
    """Four trained layers: before their rings are looked for, 128 tokens are followed in balls."""
    model = load(Path(__file__).parents[1] / "data" / "table_a1" / "modular-lstm-4.safetensors")

    def right_to():
        found = certify(Homogeneous(model, Task.of("modular"), None), effort=Effort(budget=looks(150)))
        assert found.verdict is Verdict.UNKNOWN
        return found.extra["right_to"]

    assert right_to() >= 70
    with planted(proof, "_further", "return other", "return found"):
        assert right_to() < 70
