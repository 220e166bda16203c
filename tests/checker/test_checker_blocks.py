"""Recurrent networks on all strings by boxes of the units that see one type: what holds, what is forged, and faults."""

import copy
import hashlib
from functools import cache
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every

from constructions.recurrent import holding
from constructions.recurrent.selective import thermometer
from tests.clocks import looks
from tests.planted import planted
from verify.checker import blocks
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort
from verify.tasks.recurrent import separate, sets
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective

LENGTH = 6


def rings(length=None, *, types=2, **pushed):
    """Rings of LSTM units, of which one number of each named tensor is moved: (place, by how much)."""
    model = holding.rings(types=types, m=2)
    with torch.no_grad():
        for name, (place, push) in pushed.items():
            model.get_parameter(name.replace("__", ".")).view(-1)[place] += push
    return Selective(model, Task.of("selective-modular", types=types, modulus=2, max_count=LENGTH), length)


def signs():
    return Selective(thermometer(types=2, max_count=2), Task.of("selective", types=2, max_count=2), None)


CASES = {
    "real": lambda: (rings(), "real"),
    "float32": lambda: (rings(types=3), "float32"),
    "up to a length": lambda: (rings(9), "float64"),
    "up to a count": lambda: (signs(), "float32"),
    "up to a count, p8": lambda: (signs(), "p8"),
}


def certified(problem, precision):
    return decided(problem, precision, Effort(budget=looks(2000)))


@cache
def saved(name):
    return certified(*CASES[name]())


def least(problem, length=LENGTH):
    """The least margin of judged answers to strings, as torch computes it; the counts are plain Python."""
    strings = [*product(range(problem.K), repeat=length)]
    with torch.no_grad():
        logits, found = problem.model(torch.tensor(strings)).double().numpy(), []
    for string, rows in zip(strings, logits, strict=True):
        for t, row in enumerate(rows):
            n, C = string[: t + 1].count(string[t]), problem.which.C
            right = (n - 1) % 2 if problem.which.m else n if n <= C else None
            if right is not None:
                found.append(row[right] - np.delete(row, right).max())
    return min(found)


@pytest.mark.parametrize("name", CASES)
def test_honest_certificates_hold_and_claim_no_more_than_the_module_shows(name):
    weights, c = saved(name)
    assert outcome(weights, c) == c["verdict"] == "PROVED" and "window" not in c["sets_found"]
    assert 0 < c["margin"] <= least(CASES[name]()[0]) + 1e-6


@pytest.mark.parametrize("name", every(4, CASES))
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    """But for the largest count modulo m: the boxes are of all counts."""
    weights, c = saved(name)
    changed = [
        (path, put(c, path, new))
        for path, new in places(c)
        if path[-1] != "max_count" or name.startswith("up to a count")
    ]
    of_sets = [(path, new) for path in ("sets", "low", "high") for new in (1, 7, [], [[[0.0]]], [[0.0]])]
    changed += [(path, put(c, ("sets_found", path), new)) for path, new in of_sets if c["sets_found"][path] != new]
    assert [path for path, x in changed if outcome(weights, x) == "PROVED"] == []


def shrunk(found):
    found["high"][1][2] = found["low"][1][2]


def away(found):
    for end in (found["low"], found["high"]):
        end[1][0] = [x + 1.0 for x in end[1][0]]


def widened(found):
    for name, x in (("low", -200.0), ("high", 200.0)):
        found[name] = [[[x] * len(row) for row in block] for block in found[name]]


def swapped(found):
    for end in (found["low"], found["high"]):
        end[0][1], end[0][2] = end[0][2], end[0][1]


@pytest.mark.parametrize("change", (shrunk, away, widened, swapped))
def test_forged_boxes_are_refused(change):
    weights, c = saved("real")
    found = copy.deepcopy(c)
    change(found["sets_found"])
    assert outcome(weights, found) == FAILS


FAULTS = [
    (shrunk, "_closed", "is_within(on.step(box, token), boxes[_next(due, case, token)])", "True"),
    (widened, "proved", "gap >= margin", "True"),
]


@pytest.mark.parametrize(("change", "name", "right", "wrong"), FAULTS)
def test_a_fault_in_that_line_is_seen(change, name, right, wrong):
    weights, c = saved("real")
    found = copy.deepcopy(c)
    change(found["sets_found"])
    with planted(blocks, name, right, wrong), mock.patch.object(blocks, "is_within", lambda *_: change is widened):
        assert outcome(weights, found) == (FAILS if change is shrunk else "PROVED")


def forged(problem, margin=2.0**-20):
    """An honest certificate with the weights of another model, the digest made to fit."""
    weights = bytes_of(problem.model)
    return weights, saved("real")[1] | {"weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": margin}


PUSHED = [("readout__bias", 0, 30.0), ("cell__weight_hh_l0", 162, -32.0), ("cell__bias_ih_l0", 2, -80.0),
          ("cell__weight_ih_l0", 36, 60.0), ("readout__weight", 2, -2.1)]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "push"), PUSHED)
def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit(name, place, push):
    problem = rings(**{name: (place, push)})
    assert least(problem) <= 0 and outcome(*forged(problem)) in (FAILS, NOT_CHECKABLE)


def test_a_unit_that_sees_another_type_through_a_third_is_no_block():
    problem = rings(cell__weight_hh_l0=(2 * 9 * 9 + 5, 1e-9))
    assert problem.model.hidden == 9 and outcome(*forged(problem)) == NOT_CHECKABLE
    with planted(blocks, "_units", "max(map(len, seen)) <= 1", "True"):
        assert outcome(*forged(problem)) != NOT_CHECKABLE


PROVERS = [
    (separate, "_block", "[[1.0], [0.0]]", "[[1.0], [1.0]]"),
    (
        sets,
        "_closed",
        "np.maximum.at(grown_high, goes[known, x], ends[1])",
        "np.maximum.at(grown_high, goes[known, x], ends[0])",
    ),
]


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), PROVERS)
def test_a_prover_with_a_fault_is_refused(owner, name, right, wrong):
    """Its blocks read every token as their own, or hold the least of each step; what boxes show is believed."""
    unchecked = mock.patch.object(decide, "_compared", lambda finding, *_: finding)
    of_margin = mock.patch.object(sets.Trained, "margins", lambda self, ends, right: np.ones(len(right)))
    with planted(owner, name, right, wrong), unchecked, of_margin:
        weights, c = certified(rings(), "float32")
    assert c["verdict"] == "PROVED" and "low" in c["sets_found"] and outcome(weights, c) == FAILS


def test_boxes_that_are_not_saved_are_not_checkable():
    weights, c = saved("real")
    assert outcome(weights, c | {"sets_found": {"sets": c["sets_found"]["sets"]}}) == NOT_CHECKABLE
