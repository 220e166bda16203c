"""A search whose time is up ends within a few further pieces of work: its clock counts them, and nothing else."""

from contextlib import suppress
from unittest import mock

import pytest

from constructions.checkpoint import load
from constructions.circuit_simulation_arrays import build
from constructions.circuits import machine
from constructions.circuits.circuit import decompose
from constructions.regular_language import from_regex, unroll
from tests.histogram.test_checkpoint import TRAINED
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget, Deadline
from verify.tasks.circuit import dtype, proof, rounding, steps
from verify.tasks.histogram import branch_and_bound
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.rounded.cells import cell_margins
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.stored import StoredModel

FEW, MORE = 3, 6  # pieces of work until the time is up, and at most so many after it


def histogram(budget):
    certify(load(TRAINED), budget=budget)


def histogram_in_a_format(budget):
    reduction = RoundedReduction(StoredModel.of(load(TRAINED), None), RoundedArithmetic.of(FORMATS["float32"], None))
    cell_margins(reduction, budget.deadline().is_up)


def circuit_in_bits(budget):
    circuit = decompose(unroll(from_regex("0*1", "01"), 8).circuit)
    proof.certify(build(circuit.circuit, s=2), circuit, budget=budget)


def circuit_in_a_format(budget):
    circuit = decompose(unroll(from_regex("0*1", "01"), 8).circuit)
    dtype.certify(build(circuit.circuit, s=3), circuit, fmt=FORMATS["float32"], budget=budget)


SEARCHES = (
    (histogram, branch_and_bound.RegionSearch, "run"),
    (histogram_in_a_format, branch_and_bound.RegionSearch, "run"),
    (circuit_in_bits, steps.Steps, "stream"),
    (circuit_in_a_format, rounding.RoundedSteps, "stream"),
)


class Overrun(Exception):
    """A search that went on for too long."""


def pieces_of_work(decide, place, name, few):
    """How often a search did this, where its time was up after the first `few`; it is stopped after MORE others."""
    done, work = [], getattr(place, name)

    def counted(*given, **named):
        done.append(name)
        if len(done) > few + MORE:
            raise Overrun
        return work(*given, **named)

    clock = lambda: 0.0 if len(done) < few else 100.0  # noqa: E731
    with (
        mock.patch.object(place, name, counted),
        mock.patch.object(steps, "BLOCK", 1),
        suppress(Overrun),
    ):
        decide(Budget(30.0, clock))
    return len(done)


@pytest.mark.parametrize(("decide", "place", "name"), SEARCHES, ids=[search[0].__name__ for search in SEARCHES])
def test_a_search_ends_when_its_time_is_up(decide, place, name, monkeypatch):
    assert FEW <= pieces_of_work(decide, place, name, FEW) <= FEW + MORE
    monkeypatch.setattr(Deadline, "is_up", lambda deadline: False)  # the fault: a deadline that does not come
    assert pieces_of_work(decide, place, name, FEW) > FEW + MORE


def refuted_in_one_bit(budget):
    """A built circuit in one bit, whose fault a run shows."""
    circuit = decompose(unroll(from_regex("0*1", "01"), 8).circuit)
    return proof.certify(build(circuit.circuit, s=1), circuit, budget=budget)


def test_a_run_that_shows_a_fault_takes_no_clock_where_it_is_short():
    assert refuted_in_one_bit(Budget(1e-9, lambda: 0.0)).verdict is Verdict.REFUTED


def test_a_long_run_that_shows_a_fault_ends_with_the_time():
    """Positions one by one: the clock jumps at the third."""
    positions = []

    def attend(cache, *given):
        positions.append(cache)
        return attended(cache, *given)

    attended = machine._Cache.attend
    with (
        mock.patch.object(machine.ConstantBitMachine, "after_right", lambda *_: None),
        mock.patch.object(machine._Cache, "attend", attend),
    ):
        found = refuted_in_one_bit(Budget(1.0, lambda: 0.0 if len(positions) < FEW else 2.0))
    assert found.verdict is Verdict.UNKNOWN and "the budget ended while an input that shows it was run" in found.reason
    assert len(positions) <= FEW + MORE


@pytest.mark.parametrize(("late", "verdict"), [(0.0, Verdict.REFUTED), (2.0, Verdict.UNKNOWN)])
def test_all_pairs_of_positions_are_looked_at_only_while_there_is_time(late, verdict):
    asked = []
    with mock.patch.object(machine, "alive_pairs", lambda *_: asked.append(1)):
        assert refuted_in_one_bit(Budget(1.0, lambda: late if asked else 0.0)).verdict is verdict
    assert asked
