"""A budget that has begun: what comes before a search is a part of it, and a search asks the clock between pieces."""

import pytest
from clocks import looks

from constructions.circuits.circuit import decompose
from constructions.regular_language import parity, unroll
from verify.frame.clock import Budget, TimeIsUp
from verify.frame.decide import Effort


class Jumps:
    """A clock that stands still until it is moved."""

    now = 0.0

    def __call__(self):
        return self.now


def test_seconds_that_went_before_the_search_are_gone():
    clock = Jumps()
    effort = Effort(Budget(3.0, clock)).begun()
    clock.now = 2.0
    assert effort.deadline().left() == 1.0 and effort.share(1 / 2).seconds == 0.5
    assert effort.begun().deadline().left() == 1.0
    clock.now = 4.0
    assert effort.deadline().is_up() and effort.share(1 / 2).seconds == 0.0
    assert effort.left(effort.deadline()).seconds == 0.0


def test_steps_are_each_search_s_own():
    budget = Budget.counting(2)
    assert budget.begun() is budget
    until = budget.building()
    assert not any(until.is_up() for _ in range(9)) and not budget.deadline().is_up()


@pytest.mark.parametrize("build", [lambda between: unroll(parity(), 3000, between),
                                   lambda between: decompose(unroll(parity(), 3000).circuit, between)])  # fmt: skip
def test_a_circuit_that_is_built_asks_the_clock_between_pieces(build):
    build(looks(10**6).building().check)
    with pytest.raises(TimeIsUp):
        build(looks(3).building().check)
