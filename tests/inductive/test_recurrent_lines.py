"""Ellipsoids along lines of one type's tokens: against runs, with planted faults, and a string that is wrong late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from oracles.recurrent_strings import gap

from constructions.recurrent.model import load
from tests.clocks import ENDLESS
from tests.planted import planted
from verify.counting.tasks import Task
from verify.tasks.recurrent import lines, sets
from verify.tasks.recurrent.chain import Ellipsoids
from verify.tasks.recurrent.lines import TokenLines
from verify.tasks.recurrent.network import Network, float_step

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"
TASK = Task.of("selective", types=2, max_count=2)
LONG = 60


def trained(name):
    return sets.Trained(Network.of(load(DATA / f"{name}.safetensors")), TASK, None)


def along(net, states, y):
    """The states after 0..LONG y's from each: (LONG + 1, n, N)."""
    found = [states]
    for _ in range(LONG):
        found.append(float_step(net, found[-1], y))
    return np.array(found)


def zero(asked):
    """The start alone."""
    N = asked.net.size
    return Ellipsoids.of(np.zeros((1, N)), np.zeros((1, N, N)))


def outside(name, y):
    """The least margin that is proved, and how many states of y..y and y..y z y..y are in none of the ellipsoids."""
    asked, kept = TokenLines(trained(name), y, 4, 0.002), []
    closed = TokenLines.closed
    with mock.patch.object(TokenLines, "closed", lambda *given: kept.append(closed(*given)) or kept[-1]):
        proof = asked.prove(ENDLESS.deadline())
    count, states = 0, np.zeros((1, asked.net.size))
    for held, _ in (held for held in kept if not isinstance(held, str)):
        states = along(asked.net, states, y).reshape(-1, asked.net.size)
        inverse = np.linalg.inv(held.shapes * held.scales[:, None, None] + 1e-9 * np.eye(asked.net.size))
        with np.errstate(all="ignore"):
            for state in states:
                off = np.linalg.norm((inverse @ (state - held.centres)[..., None])[..., 0], axis=-1)
                count += not off.min() <= 1 + 1e-6
        states = float_step(asked.net, states, asked.z)
    return proof.margin, count


def test_states_of_all_lines_are_held():
    margin, count = outside("rnn_K2_C2_seed1", 0)
    assert count == 0 and margin > 1
    with (
        planted(TokenLines, "moved", "image.mid * scales[..., None]", "0 * image.mid"),
        mock.patch.object(lines, "ROUNDS", 1),
    ):
        assert outside("rnn_K2_C2_seed1", 0) == (None, 0)  # floats that find worse ellipsoids prove nothing
        for fault in (
            (
                "onto",
                "excess(self.net, token, here, after[places], self.rules, is_joint=True, image=image)",
                "np.zeros(len(here))",
            ),
            ("closed", "if not (over[out] <= 1).all():", "if False:"),
        ):
            with planted(TokenLines, *fault), planted(TokenLines, "prove", "if not (over <= 1).all():", "if False:"):
                assert outside("rnn_K2_C2_seed1", 0)[1] > 0, fault
    with planted(TokenLines, "enters", "found[near] = np.where(over <= 1, place[near], -1)", "found = place"):
        assert outside("rnn_K2_C2_seed1", 0)[1] > 0
    smaller = "Ellipsoids.joined(*held, *(enlarged(ring, -40) for ring in rings))"
    with planted(TokenLines, "closed", "Ellipsoids.joined(*held, *rings)", smaller):
        assert outside("rnn_K2_C2_seed1", 0)[1] > 0


def test_states_are_one_only_where_an_ellipsoid_holds_the_images_of_all():
    asked = TokenLines(trained("rnn_K2_C2_seed1"), 0, 0, 0.05)
    held, _ = asked.closed(
        asked.gathered(asked.closed(zero(asked), ENDLESS.deadline())[0], asked.z)[0], ENDLESS.deadline()
    )
    after, _ = asked.step(held, 0)
    joint, places = asked.met(held, after, 7)
    assert len(joint) < len(held) == len(places) and places.min() == 7 and places.max() == 6 + len(joint)
    with (
        planted(TokenLines, "onto", "join(list(Q[places == k]))", "Q[places == k][0]"),
        mock.patch.object(lines, "ROUNDS", 1),
    ):
        assert asked.met(held, after, 7)[0] is after
        with planted(TokenLines, "met", " and (over <= 1).all()", ""):
            assert len(asked.met(held, after, 7)[0]) == len(joint)


def test_counts_modulo_m_are_judged_by_their_class():
    """Class n - 1 stands for the count n: a network that says n is wrong, and one whose classes are moved is right."""
    asked = replace(trained("rnn_K2_C2_seed1"), task=Task.of("selective-modular", types=2, modulus=3, max_count=2))
    assert TokenLines(asked, 0, 4, 0.002).prove(ENDLESS.deadline()).reason is not None
    moved = replace(asked.net, V=np.roll(asked.net.V, -1, axis=0), b=np.roll(asked.net.b, -1))
    assert TokenLines(replace(asked, net=moved), 0, 4, 0.002).prove(ENDLESS.deadline()).margin > 1


@pytest.mark.deep
def test_a_string_that_is_wrong_late_is_not_proved():
    string = (0, *[1] * 38, 0)
    assert gap(load(DATA / "gru_K2_C2_seed1.safetensors"), string, 2) < 0
    assert TokenLines(trained("gru_K2_C2_seed1"), 1, 0, 0.01).prove(ENDLESS.deadline()).reason is not None


@pytest.mark.deep
def test_a_trained_lstm_is_proved_on_all_strings():
    asked = trained("lstm_K2_C2_seed0")
    proof = lines.closed(asked, ENDLESS.deadline())
    assert proof.reason is None and 3 < proof.margin < 3.5
    net = asked.net
    for y in (0, 1):
        once = float_step(net, along(net, np.zeros((1, net.size)), y).reshape(-1, net.size), 1 - y)
        twice = float_step(net, along(net, once, y).reshape(-1, net.size), 1 - y)
        for states, right in ((once, 1), (twice, 2)):
            logits = states[:, net.read] @ net.V.T + net.b
            rest = np.delete(logits, right, axis=1).max(1)
            assert (logits[:, right] - rest).min() > proof.margin - 1e-9
