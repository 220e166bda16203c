"""Gated decays on all strings by counts, real and with neurons: what holds, what is forged, and faults."""

import hashlib
from functools import cache
from itertools import product
from unittest import mock

import pytest
import torch
from flint import arb, ctx
from models.changed_fields import places, put
from models.rechecked import decided, outcome
from models.selection import every
from oracles.gated_strings import random_model, strings

from constructions.recurrent import gated
from tests.clocks import looks
from tests.planted import planted
from verify.checker import computed_strings, rounded
from verify.checker.computed_strings import EXACTLY, ComputedStrings
from verify.checker.computed_tables import StoredCell
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort
from verify.tasks.recurrent.counted import CountedStrings
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective

LENGTH, KINDS = 6, ("s4", "mamba", "rwkv")
MODULO, TO_5 = (Task.of("selective-modular", types=2, max_count=C, modulus=2) for C in (LENGTH, 5))
UP_TO = Task.of("selective", types=2, max_count=3)


def layered(kind, task=MODULO):
    return gated.layered(kind=kind, types=2, length=LENGTH, max_count=task.C, m=task.m)


CASES = {
    "s4": lambda: (layered("s4"), MODULO, "real"),
    "s4, up to a count": lambda: (layered("s4", UP_TO), UP_TO, "real"),
    "mamba": lambda: (layered("mamba"), MODULO, "real"),
    "rwkv without neurons": lambda: (gated.decays(kind="rwkv", m=2, s=4, N=5, types=2), TO_5, "real"),
    "s4, float32": lambda: (layered("s4"), MODULO, "float32"),
    "rwkv, float32": lambda: (layered("rwkv"), MODULO, "float32"),
}


@cache
def saved(name):
    model, task, precision = CASES[name]()
    return decided(Selective(model, task, LENGTH), precision, Effort(budget=looks(2000)))


def least(model, task):
    """The least margin of all judged answers, with 40 digits."""
    found = []
    for string, _, logits in strings(model, 2, LENGTH):
        n = string.count(string[-1])
        if n <= task.C:
            right = n if task.m is None else (n - 1) % task.m
            found.append(logits[right] - max(x for j, x in enumerate(logits) if j != right))
    return min(found)


@pytest.mark.parametrize("name", every(2, CASES))
def test_honest_certificates_hold_and_claim_no_more_than_any_string_shows(name):
    weights, c = saved(name)
    model, task, _ = CASES[name]()
    assert outcome(weights, c) == c["verdict"] == "PROVED" and c["sets_found"]["cases"] == 2 * task.C
    assert 0 < c["margin"] <= least(model, task)


@pytest.mark.parametrize("name", every(3, CASES))
def test_every_field_that_is_not_trusted_is_refused_when_it_is_changed(name):
    weights, c = saved(name)
    changed = [(path, put(c, path, new)) for path, new in places(c)]
    smaller = ("parameters", "max_count") if "selective-modular" in c["parameters"].values() else ()
    assert {path for path, x in changed if outcome(weights, x) == "PROVED"} <= {smaller}


def forged(name, model):
    """An honest certificate with the weights of another model, the digest made to fit."""
    weights = bytes_of(model)
    return weights, saved(name)[1] | {"weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": 2.0**-40}


def pushed(model, part, place, by):
    with torch.no_grad():
        dict(model.named_parameters())[part].view(-1)[place] += by
    return model


PUSHED = [
    ("s4", "cell.a", 0, -0.1), ("s4", "layer.U", 0, 1.0), ("s4", "layer.W", 0, 0.5), ("s4", "readout.weight", 0, 3.0),
    ("mamba", "cell.delta", 0, 3.0), ("mamba", "cell.B", 0, 1.0), ("rwkv without neurons", "readout.bias", 0, 9.0),
    ("rwkv without neurons", "cell.r", 0, -9.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "part", "place", "by"), PUSHED)
def test_other_weights_hold_where_every_string_is_right_alone(name, part, place, by):
    model, task, _ = CASES[name]()
    model = pushed(model, part, place, by)
    assert least(model, task) > 0 or outcome(*forged(name, model)) in (FAILS, NOT_CHECKABLE)


def lies(seeds):
    """Whether a state or a gap of a random network in exact arithmetic leaves what the checker says.

    With three types, each has several others.
    """
    for kind, seed, (K, has_layer) in product(KINDS, seeds, ((2, True), (3, False))):
        model = random_model(kind, seed, has_layer=has_layer, K=K)
        said = {"model": kind, "units": 3, "layers": 1, "dtype": "float64", "types": K, "max_count": 2}
        said |= {"task": "selective"} | ({"neurons": 4} if has_layer else {})
        with ctx.workprec(rounded.BITS):
            on = ComputedStrings(StoredCell.of(bytes_of(model), said, EXACTLY), EXACTLY, said)
            judged = [on._judged(t, 4) for t in range(K)]
            for string, state, logits in strings(model, K, 4):
                t, n = string[-1], string.count(string[-1])
                if n > 2:
                    continue
                gaps = on._gaps(t, judged[t][n], n)
                told = [(logits[n] - logits[j], ends) for j, ends in gaps.items()]
                told += zip(state, judged[t][n], strict=True)
                if any(arb(str(x), 1e-30) < low or arb(str(x), 1e-30) > high for x, (low, high) in told):
                    return True
    return False


def test_states_and_gaps_of_random_networks_stay_within_what_the_checker_says():
    assert not lies(range(2))


FAULTS = [
    (ComputedStrings, "_judged", "_join(later, n, self._step(other, ends))", "pass"),
    (ComputedStrings, "_judged", "(True, False)", "(True, True)"),
    (ComputedStrings, "_gaps", "U = [u if on else 0.0", "U = [0.0"),
    (ComputedStrings, "_gaps", "bool(a > 0) for", "bool(a < 0) for"),
    (ComputedStrings, "_gaps", "arb(0) if on else v", "arb(0)"),
    (ComputedStrings, "_gaps", "(s * r, s * r)", "(s, s)"),
    (computed_strings, "_around", "a.min(v.lower()), b.max(v.upper())", "a, b"),
    (computed_strings, "_product", "for b in y", "for b in y[:1]"),
    (computed_strings, "_join", "a.min(c), b.max(d)", "c, d"),
]


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), every(4, FAULTS))
def test_a_fault_in_what_the_checker_says_is_seen(owner, name, right, wrong):
    with planted(owner, name, right, wrong):
        assert lies(range(2))


PROVERS = [
    ("_margins", "low[rows, right] =", "low = np.abs(low); low[rows, right] ="),
    ("_reached", "range(length)", "range(most)"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), PROVERS)
def test_what_a_faulty_prover_proves_is_refused(name, right, wrong):
    """It takes the size of a margin for the margin, or leaves out strings that are longer than counts."""
    model = pushed(layered("s4", UP_TO), "cell.a", 0, -0.1)
    fault = planted(CountedStrings, name, right, wrong)
    with fault, mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        weights, c = decided(Selective(model, UP_TO, LENGTH), "real", Effort(budget=looks(2000)))
    assert least(model, UP_TO) <= 0 and c["verdict"] == "PROVED"
    assert outcome(weights, c) in (FAILS, NOT_CHECKABLE)
