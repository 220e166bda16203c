"""A trace that takes longer than a repair may is left out, which the repair says; steps do not depend on seconds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from clocks import endless

from constructions.inductive import positioned
from verify.changes import repair as repairs
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort
from verify.tasks.inductive import changing
from verify.tasks.recurrent.changing import TRACED, changeable, load

pytestmark = pytest.mark.deep  # two traces take seconds
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def network():
    """One that was right, with a readout that is not, up to a length beyond that of its first trace."""
    model = load(str(DATA / "recurrent/gru_seed2_stop0.5.safetensors"))
    with torch.no_grad():
        model.readout.bias[3] += 5.0
    return changeable(model, length=TRACED + 1)


def test_verdicts_that_trace_say_how_long_it_takes(network):
    assert network.decision_takes == 0  # it is decided without its graph
    of_the_engine = changing.load(str(DATA / "inductive/vanilla_nope_l4.safetensors"))
    assert changing.changeable(*of_the_engine, length=8).decision_takes > 0
    one_layer = positioned(K=2, C=2, positions=4), Task.of("selective", types=2, max_count=2)
    assert changing.changeable(*one_layer, length=3).decision_takes == 0


def test_a_bound_is_left_out_where_its_trace_does_not_fit(network):
    assert network.trace_takes > 0
    cut = repairs.repair(replace(network, trace_takes=9.0), None, Effort(endless(3.0)))
    assert cut and cut.at_least == 0.0 and "hidden_graph" not in vars(network)
    traced = "the model is traced at 17 tokens, which takes about 9 s"
    assert cut.reason == f"no bound on every repair: the budget of 3 s ends before {traced}"
    for effort in (Effort(endless(10.0)), Effort(Budget.counting(1000, 3.0))):
        whole = repairs.repair(replace(network, trace_takes=9.0), None, effort)
        assert whole and whole.reason is None and 0 < whole.at_least <= min(whole.change, cut.change)


def test_a_trace_that_took_all_the_time_is_named(network):
    now = [0.0]
    effort = Effort(Budget(3.0, lambda: now[0])).begun()
    now[0] = 12.0
    assert repairs.repair(network, None, effort).reason == "the budget of 3 s ended; tracing alone took 12.0 s"
