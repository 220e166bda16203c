"""Recurrent networks on all strings by saved sets of states: what holds, what is forged, and faults."""

import copy
import hashlib
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
import torch
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every, first

from constructions.recurrent.model import load
from tests.clocks import looks
from tests.planted import planted
from verify.checker import closed_sets
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort
from verify.tasks.recurrent import sets
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective

DATA = Path(__file__).parents[1] / "data" / "recurrent_selective"


def trained(types=3, length=None, *, push=0.0):
    """A trained network, of whose readout one number is moved."""
    model = load(DATA / {3: "rnn_K3_C1_seed1.safetensors", 2: "rnn_K2_C2_seed1.safetensors"}[types])
    with torch.no_grad():
        model.readout.bias[0] += push
    return Selective(model, Task.of("selective", types=types, max_count=4 - types), length)


CASES = {
    "real": lambda: (trained(), "real"),
    "bfloat16": lambda: (trained(), "bfloat16"),
    "two types, float32": lambda: (trained(2), "float32"),
    "up to a length": lambda: (trained(3, 100), "real"),
}


def certified(problem, precision):
    return decided(problem, precision, Effort(budget=looks(2000)))


@cache
def saved(name):
    return certified(*CASES[name]())


@pytest.mark.parametrize("name", every(2, CASES))
def test_honest_certificates_hold(name):
    weights, c = saved(name)
    assert outcome(weights, c) == c["verdict"] == "PROVED" and c["sets_found"]["low"]


@pytest.mark.parametrize("name", first(0, CASES))
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    weights, c = saved(name)
    changed = [(path, put(c, path, new)) for path, new in places(c)]
    of_sets = [(path, new) for path in ("window", "sets", "low", "high") for new in (1, 7, [], [[0.0]])]
    changed += [(path, put(c, ("sets_found", path), new)) for path, new in of_sets if c["sets_found"][path] != new]
    assert [path for path, x in changed if outcome(weights, x) == "PROVED"] == []


def moved(change):
    """A certificate whose boxes are others."""
    weights, c = saved("real")
    found = copy.deepcopy(c)
    change(found["sets_found"])
    return weights, found


def shrunk(found):
    found["high"][2] = found["low"][2]


def away(found):
    found["low"][0] = [x + 1.0 for x in found["low"][0]]
    found["high"][0] = [x + 1.0 for x in found["high"][0]]


def widened(found):
    found["low"], found["high"] = ([[x] * len(row) for row in found["low"]] for x in (-2.0, 2.0))


FAULTS = [
    (shrunk, {}, "is_within(on.step(boxes[i], token), boxes[after])", "True"),
    (away, {}, "is_within([(fmpq(0), fmpq(0))] * net.size, boxes[0])", "boxes"),
    (widened, {}, "gap >= margin", "True"),
]


@pytest.mark.parametrize(("change", "fields", "right", "wrong"), FAULTS)
def test_forged_boxes_are_refused_and_a_fault_in_that_line_is_seen(change, fields, right, wrong):
    weights, c = moved(change)
    assert outcome(weights, c) in (FAILS, NOT_CHECKABLE)
    with planted(closed_sets, "proved", right, wrong):
        assert change is away or outcome(weights, c) == "PROVED"


def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit():
    weights = bytes_of(trained(push=30.0).model)
    fitted = {"weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": 2.0**-20}
    assert outcome(weights, saved("real")[1] | fitted) in (FAILS, NOT_CHECKABLE)


def test_a_prover_whose_boxes_are_not_closed_is_refused():
    fault = planted(sets, "_closed", "(grown_low >= low).all() and (grown_high <= high).all() and", "")
    with fault, mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        weights, c = certified(trained(), "float32")
    assert c["verdict"] == "PROVED" and "low" in c["sets_found"] and outcome(weights, c) in (FAILS, NOT_CHECKABLE)


def test_boxes_that_are_not_saved_are_not_checkable():
    weights, c = saved("real")
    found = {name: c["sets_found"][name] for name in ("window", "sets")}
    assert outcome(weights, c | {"sets_found": found}) == NOT_CHECKABLE
