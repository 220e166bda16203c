"""Recurrent networks on all strings by saved ellipsoids round states: what holds, what is forged, and faults."""

import copy
import hashlib
from functools import cache
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every

from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import looks
from tests.planted import planted
from verify.checker import graphs_of_states
from verify.checker.graphs_of_states import GraphOfStates
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort
from verify.tasks.recurrent import lines, merged, sets
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective

FILE = Path(__file__).parents[1] / "data/recurrent_selective/rnn_K2_C2_seed3.safetensors"
TASK = Task.of("selective", types=2, max_count=2)
LENGTH = 9


def trained(*pushed):
    """A trained network, of which one number of a tensor is moved."""
    model = load(FILE)
    with torch.no_grad():
        for name, place, push in pushed:
            model.get_parameter(name).view(-1)[place] += push
    return Selective(model, TASK, None)


def certified(problem, precision, *, by_lines):
    """What ellipsoids alone show."""
    nothing = BlockProof(None, "not tried")
    with (
        mock.patch.object(sets, "closed", lambda *_: nothing),
        mock.patch.object(sets, "wrong_string", lambda *_: None),
        mock.patch.object(lines, "fits", lambda *_: by_lines),
        mock.patch.object(merged, "NEAR", (2.0**-4,)),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
    ):
        return decided(problem, precision, Effort(budget=looks(2000)))


CASES = {"lines": ("real", True), "lines, float32": ("float32", True), "a graph": ("real", False)}
SLOW = {"a graph", "lines, float32"}


@cache
def saved(name):
    precision, by_lines = CASES[name]
    return certified(trained(), precision, by_lines=by_lines)


def least(problem):
    """The least margin of judged answers to short strings, as torch computes it; the counts are plain Python."""
    strings = [*product((0, 1), repeat=LENGTH)]
    with torch.no_grad():
        logits, found = problem.model(torch.tensor(strings)).double().numpy(), []
    for string, rows in zip(strings, logits, strict=True):
        for t, row in enumerate(rows.tolist()):
            n = string[: t + 1].count(string[t])
            if n <= TASK.C:
                found.append(row[n] - max(x for j, x in enumerate(row) if j != n))
    return min(found)


NAMES = [pytest.param(name, marks=pytest.mark.deep if name in SLOW else ()) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_honest_certificates_hold_and_claim_no_more_than_the_module_shows(name):
    weights, c = saved(name)
    assert outcome(weights, c) == c["verdict"] == "PROVED"
    assert len(c["sets_found"]["graphs"]) == (1 if name == "a graph" else 2)
    assert 0 < c["margin"] <= least(trained()) + 1e-6
    assert outcome(weights, c | {"margin": 1.01 * least(trained())}) in (FAILS, NOT_CHECKABLE)


def test_counts_modulo_m_that_are_judged_up_to_the_largest_hold():
    """A network that always says 1 is right modulo 2 where no count is above 1, and its proof shows no more."""
    task = Task.of("selective-modular", types=2, max_count=1, modulus=2)
    torch.manual_seed(0)
    model = RecurrentModel("rnn", inputs=2, hidden=2, classes=2).double()
    with torch.no_grad():
        model.readout.bias.copy_(torch.tensor([4.0, 0.0]))
    weights, c = certified(Selective(model, task, None), "real", by_lines=True)
    assert c["sets_found"]["graphs"] and outcome(weights, c) == c["verdict"] == "PROVED"
    c["parameters"]["max_count"] = 2
    assert outcome(weights, c) in (FAILS, NOT_CHECKABLE)


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    """But for the margin, which may be far larger than what the prover's bounds on roundings leave."""
    weights, c = saved(name)
    changed = [(path, put(c, path, new)) for path, new in places(c) if path != ("margin",)]
    assert [path for path, x in changed if outcome(weights, x) == "PROVED"] == []


def smaller(graph):
    graph["exponents"][1] -= 40


def away(graph):
    graph["centres"][2][0] += 2.0**-3


def started_elsewhere(graph):
    graph["centres"][0][0] += 2.0**-60


def astray(graph):
    graph["then"][1] = graph["then"][0]


def nowhere(graph):
    graph["then"][1][graph["judged"][0]] = graph["then"][1][1 - graph["judged"][0]]  # with the count before


def unlisted(graph):
    graph["then"].pop()


def wide(graph):
    graph["exponents"][1:] = [60] * (len(graph["exponents"]) - 1)


FORGED = (smaller, away, started_elsewhere, astray, nowhere, unlisted, wide)


def forged(change, name="lines"):
    weights, c = saved(name)
    found = copy.deepcopy(c)
    change(found["sets_found"]["graphs"][0])
    return weights, found


@pytest.mark.parametrize("change", FORGED)
def test_forged_ellipsoids_are_refused(change):
    assert outcome(*forged(change)) in (FAILS, NOT_CHECKABLE)


@pytest.mark.parametrize("judged", [[0], [], [0, 1], [2], [1]])
def test_each_type_is_judged_by_one_graph(judged):
    weights, c = saved("lines")
    found = copy.deepcopy(c)
    found["sets_found"]["graphs"][0]["judged"] = judged
    assert outcome(weights, found) in (("PROVED",) if found == c else (FAILS, NOT_CHECKABLE))


FAULTS = [
    (started_elsewhere, "all(x == 0 for x in self.centres[0])", "True"),
    (smaller, "self._leads(i, token, j)", "pass"),
    (nowhere, "if (j, counts) not in met", "if all(j != k for k, _ in met)"),
]


@pytest.mark.parametrize(("change", "right", "wrong"), FAULTS)
def test_a_fault_in_that_line_is_seen(change, right, wrong):
    """A count that is believed hides what comes after: the steps are not asked there, but are in other graphs."""
    with planted(GraphOfStates, "check", right, wrong), mock.patch.object(graphs_of_states, "leads", lambda *_: None):
        assert outcome(*forged(change)) == "PROVED"


PUSHED = [("readout.bias", 0, 9.0), ("cell.weight_hh_l0", 3, 2.0), ("cell.weight_ih_l0", 2, -3.0)]


@pytest.mark.parametrize(("name", "place", "push"), PUSHED)
def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit(name, place, push):
    weights = bytes_of(trained((name, place, push)).model)
    fitted = {"weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": 2.0**-40}
    assert outcome(weights, saved("lines")[1] | fitted) in (FAILS, NOT_CHECKABLE)


@pytest.mark.deep
def test_a_prover_that_believes_its_floats_is_refused():
    """Its ellipsoids are half as large as their images, and the lemma is not asked."""
    halves = planted(lines.TokenLines, "moved", "image.mid * scales[..., None]", "image.mid * scales[..., None] / 2")
    believes = planted(lines.TokenLines, "onto", "return after, over", "return after, 0.0 * over")
    with halves, believes, mock.patch.object(lines, "ROUNDS", 1):
        weights, c = certified(trained(), "real", by_lines=True)
    assert (
        c["verdict"] == "PROVED"
        and len(c["sets_found"]["graphs"]) == 2
        and outcome(weights, c) in (FAILS, NOT_CHECKABLE)
    )


def test_a_prover_whose_lines_meet_elsewhere_is_refused():
    assert outcome(*saved("lines")) == "PROVED"
    with planted(lines.TokenLines, "met", "return joint, number + places", "return joint, number + places // 2"):
        weights, c = certified(trained(), "real", by_lines=True)
    assert c["verdict"] == "PROVED" and outcome(weights, c) in (FAILS, NOT_CHECKABLE)


def test_a_proof_in_real_arithmetic_is_none_in_a_format():
    weights, c = saved("lines")
    said = {"reading": "dtype, any order", "parameters": c["parameters"] | {"precision": "float32"}}
    assert outcome(weights, c | said) in (FAILS, NOT_CHECKABLE)
    with planted(GraphOfStates, "_rounding", "self.fmt is EXACTLY", "True"):
        assert outcome(weights, c | said) == "PROVED"


def test_a_margin_beyond_the_slopes_is_seen():
    weights, c = saved("lines")
    with planted(GraphOfStates, "_wins_by_slopes", "return False", "return True"):
        assert outcome(weights, c | {"margin": 2 * least(trained())}) == "PROVED"


def test_ellipsoids_that_are_not_saved_are_not_checkable():
    weights, c = saved("lines")
    assert outcome(weights, c | {"sets_found": {"sets": c["sets_found"]["sets"], "graphs": []}}) == NOT_CHECKABLE


@pytest.mark.parametrize("name", every(1, ["lines"]))
def test_random_strings_stay_in_what_is_saved(name):
    """The net is followed by torch, the graph by its list: each state is in the ellipsoid that it leads to."""
    graph, model = saved(name)[1]["sets_found"]["graphs"][0], trained().model.double()
    for string in product((0, 1), repeat=5):
        node, h = 0, torch.zeros(1, 1, model.hidden, dtype=torch.float64)
        for token in string:
            node = graph["then"][node][token]
            if node < 0:
                break
            x = torch.nn.functional.one_hot(torch.tensor([[token]]), 2).double()
            with torch.no_grad():
                h = model.cell(x, h)[1]
            rows = [row + [0.0] * (model.hidden - len(row)) for row in graph["shapes"][node]]
            L = torch.tensor(rows, dtype=torch.float64) * 2.0 ** graph["exponents"][node]
            off = torch.linalg.solve(L, h.view(-1) - torch.tensor(graph["centres"][node], dtype=torch.float64))
            assert off.norm() <= 1 + 1e-6
