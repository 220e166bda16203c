"""Searches of recurrent networks end where the clock says so: each loop asks it, and leaves off early."""

from __future__ import annotations

from constructions.recurrent import counters
from tests.clocks import endless, looks
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.tasks.recurrent import computed, grid, search
from verify.tasks.recurrent.chain import Rules
from verify.tasks.recurrent.network import Network, orbit
from verify.tasks.recurrent.proof import OrbitQuestion, for_ever

NET = Network.of(counters.cycle(m=5))
LINE = OrbitQuestion((), 0, lambda t: (t - 1) % 5, 5)


def test_orbits_and_cycles_leave_off():
    assert len(orbit(NET, [0] * 2000, until=looks(3).deadline())) < 200
    states = orbit(NET, [0] * 400)
    assert search.find_cycle(NET, 0, states, 5, endless().deadline()) is not None
    for number in (1, 2, 4):
        assert search.find_cycle(NET, 0, states, 5, looks(number).deadline()) is None


def test_ellipsoids_leave_off():
    states = orbit(NET, [0] * 400)
    cycle = search.find_cycle(NET, 0, states, 5, endless().deadline())
    start = states[:1].T * 0 + 0.0 * states[0]
    for growth in (1.0, 1.3):
        chain = search.along(NET, 0, states, start, Rules(), growth, looks(3).deadline())
        assert 1 <= len(chain) < 200
    assert search.along_cycle(NET, 0, cycle, looks(3).deadline()) is None
    assert search.round_cycle(NET, 0, cycle, Rules(), 0.9, looks(3).deadline()) is None


def test_boxes_and_runs_leave_off():
    at = RoundedArithmetic.of(FORMATS["float32"])
    found = grid.Boxes(NET.rounded(at.stored), LINE, at).follow(None, looks(4).deadline())
    assert found.right_to < 8 and "time is up" in found.stuck
    late = OrbitQuestion((), 0, lambda t: (t - 1) % 5, 5, 10**6)  # no state comes again before
    assert computed.run(NET.rounded(at.stored), late, None, at, looks(4).deadline()).steps < 100


def test_a_proof_whose_time_is_up_before_the_first_token_is_open():
    for rules in (Rules(), Rules(RoundedArithmetic.of(FORMATS["float32"]))):
        found = for_ever(NET, LINE, rules, looks(1))
        assert found.right_to == 0 and found.wrong_at is None
