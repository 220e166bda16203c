"""Means and variances of logit differences: enumeration's shares lie within their bounds, and planted faults do not."""

import json
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from models.random_models import almost_two_weights
from models.selection import every
from oracles.histogram import forward, weights_of, wrong_pairs

from constructions import checkpoint
from verify.checker.fields import check
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.tasks.histogram import bracket, by_cost, by_sequence, moments, record
from verify.tasks.histogram.best_first import Queue
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.merging import merged_row, normalised
from verify.tasks.histogram.moments import Detail, Given, Moments, ReadoutRows, StepSums
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import CountReadout, Space, Table

KINDS = ["lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm"]
SIZES = [(4, 4), (3, 5), (5, 3)]


@cache
def model(seed, kind):
    """Trained-like weights; the mixing weights of all slots are almost one."""
    return almost_two_weights(seed, kind, *SIZES[seed % 3]).double()


def row_of(reduction):
    """All positions as one row, and all slots as one group."""
    if not reduction.stored.is_linear:
        return reduction.rows[0]
    positions = tuple(range(reduction.stored.L))
    slots = tuple((tuple(m for m in positions if m != position),) for position in positions)
    return merged_row(positions, slots, normalised(reduction))


def tables(module):
    reduction = Reduction(StoredModel.of(module))
    row, space = row_of(reduction), Space(reduction.stored)
    return [Table(reduction, row, t, space) for t in range(module.T)]


@cache
def logits_times_D(module):
    """All sequences and D times the logits of their positions, in float64."""
    sequences, w = np.array(list(product(range(module.T), repeat=module.L))), weights_of(module)
    logits = forward(module, w, sequences)
    x = w["E"][sequences]
    if not module.model.endswith("+sftm"):
        return sequences, logits
    if module.is_linear:
        return sequences, logits  # the table's D is 1: a row of several positions has normalised weights
    context = x
    if module.model.startswith("bos"):
        context = np.concatenate([np.broadcast_to(w["e_BOS"], (len(x), 1, x.shape[-1])), x], axis=1)
    scores = (w["E"] @ w["W_Q"]) @ (np.vstack([w["E"], *([w["e_BOS"]] if "e_BOS" in w else [])]) @ w["W_K"]).T
    scores = scores / np.sqrt(module.d)
    mine = (x @ w["W_Q"]) @ (context @ w["W_K"]).transpose(0, 2, 1) / np.sqrt(module.d)
    D = np.exp(mine - scores.max(1)[sequences][..., None]).sum(-1)
    return sequences, logits * D[..., None]


def broken(module):
    """The first bound that enumeration does not lie within, if any."""
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    wrong = {(sequence, position) for sequence, position in wrong_pairs(module)}
    is_wrong = np.array([[(tuple(s), i) in wrong for i in range(module.L)] for s in sequences.tolist()])
    for table in tables(module):
        ks = list(range(1, module.L))
        found = Moments(table, ks)
        for k in ks:
            chosen = (sequences == table.t) & (counts == k)
            least, most = found.wrong(k)
            for position in range(module.L):
                at = chosen[:, position]
                if not least <= is_wrong[at, position].mean() <= most:
                    return "share"
                readout, n = CountReadout.of(table, k), module.L - k
                f = logits[at, position, k - module.first_count][:, None] - logits[at, position]
                f = np.delete(f, k - module.first_count, axis=1)
                rows = ReadoutRows(readout.d, readout.error[:, 0], np.arange(len(readout.d)), np.zeros(len(readout.d)))
                is_on, is_bent = found._sides(n)
                mean, off, variance = found._moments(rows, n, is_on, is_bent)
                apart = found._apart(rows, n, is_on, is_bent)
                rounding = 1e-9 * (1 + np.abs(f).max(initial=0))
                if not (np.abs(f.mean(0) - mean) <= off + apart + rows.error + rounding).all():
                    return "mean"
                if not (f.std(0) <= np.sqrt(variance) + apart + rows.error + rounding).all():
                    return "variance"
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_means_variances_and_shares(kind):
    assert broken(model(KINDS.index(kind), kind)) is None


SETTINGS = [(16, 1), (64, 2), (1 << 14, 1), (1 << 10, 8)]


@pytest.mark.deep
@pytest.mark.parametrize(("grid", "given"), SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_means_variances_and_shares(kind, grid, given, monkeypatch):
    monkeypatch.setattr(moments.Moments.__init__, "__defaults__", (Detail(grid, 1 << 22),))
    monkeypatch.setattr(moments, "MOST_GIVEN", given)
    for seed in range(40):
        assert broken(model(seed, kind)) is None, seed


def test_variances_given_all_tokens_are_exact():
    """With all tokens given and a fine grid the bound is the variance, so that it cannot be too wide to test."""
    module = model(0, "dot")
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    table = tables(module)[1]
    found, k = Moments(table, [1, 2]), 2
    readout, n = CountReadout.of(table, k), module.L - k
    rows = ReadoutRows(readout.d, readout.error[:, 0], np.arange(len(readout.d)), np.zeros(len(readout.d)))
    mean, _, variance = found._moments(rows, n, *found._sides(n))
    at = (sequences[:, 0] == 1) & (counts[:, 0] == k)
    f = np.delete(logits[at, 0, [k - 1]][:, None] - logits[at, 0], k - 1, axis=1)
    assert np.allclose(mean, f.mean(0), rtol=1e-2) and np.allclose(variance, f.var(0), rtol=1e-2)


def without(name):
    """A fault that leaves out what a method bounds."""
    return lambda method: lambda self, *args: 0 * method(self, *args)


def one_part_less(method):
    """The part of most tokens is left out of the variances of what is read out."""
    return lambda self, side: method(self, side) if side < 0 else 0.9 * method(self, side)


FAULTS = [
    (Moments, "_apart", without("apart")),
    (Moments, "_of_weights", without("weights")),
    (Moments, "_variances", without("rest")),
    (Given, "first", one_part_less),
    (StepSums, "thresholds", lambda method: lambda self, *args: (method(self, *args)[0] + 1, method(self, *args)[1])),
]


@pytest.mark.parametrize(
    ("owner", "name", "fault"), every(3, FAULTS), ids=["apart", "weights", "rest", "parts", "threshold"]
)
def test_a_planted_fault_is_found(owner, name, fault, monkeypatch):
    detail = Detail(1 << 12 if name != "_apart" else 16, 1 << 22)
    monkeypatch.setattr(moments.Moments.__init__, "__defaults__", (detail,))
    monkeypatch.setattr(moments, "MOST_GIVEN", 1 if name == "_variances" else 8)
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    assert any(broken(model(seed, kind)) for kind in ("dot", "lin") for seed in range(12))


@pytest.mark.parametrize("kind", ["lin", "dot+sftm"])
def test_the_bracket_of_a_model_of_which_nothing_else_is_decided(kind, monkeypatch):
    for name in ("AFFORDABLE", "FOR_A_COMPARISON", "FEW"):
        monkeypatch.setattr(by_cost, name, 0)
    monkeypatch.setattr(by_cost, "CLOSENESS", (9.0,))
    monkeypatch.setattr(by_cost, "NEAR", 0.2)
    monkeypatch.setattr(by_sequence, "MOST_SEQUENCES", 0)
    monkeypatch.setattr(by_cost, "run_some", lambda *args: None)
    monkeypatch.setattr(Queue, "_is_over", lambda self: True)
    module = model(0, kind)
    share = Fraction(len(wrong_pairs(module)), module.L * module.T**module.L)
    certificate = certify(module, budget=4)
    low, high = certificate.error_share
    assert low <= share <= high < 1 and certificate.extra["tree"]["reason"] == record.BY_VARIANCES
    assert certificate.verdict is Verdict.UNKNOWN  # no wrong input is known, and no right one


def test_what_a_search_leaves_open_is_counted_once_at_its_end(monkeypatch):
    """Counting it takes seconds where many parts are left, after the time is over. A queue runs twice."""
    counted, count = [], RegionSearch.open_pairs
    monkeypatch.setattr(RegionSearch, "open_pairs", lambda self: counted.append(self) or count(self))
    monkeypatch.setattr(Queue, "_report", lambda self: None)
    monkeypatch.setattr(by_cost, "AFFORDABLE", 0)
    module = checkpoint.load(Path(__file__).parents[1] / "data/trained_bos_T4_L3_d4_p8.safetensors")
    certify(module, budget=Budget.counting(60))
    assert 0 < len(counted) <= 2 * len({*map(id, counted)})


def test_the_checker_takes_the_bracket_of_a_refuted_model_on_trust(monkeypatch):
    monkeypatch.setattr(by_cost, "AFFORDABLE", 0)
    whole = bracket.ShareBounds.narrowed
    monkeypatch.setattr(bracket.ShareBounds, "narrowed", lambda self, *args: (whole(self, *args)[0], args[-1] - 1))
    monkeypatch.setattr(Queue, "_is_over", lambda self: self.smallest.candidate is not None)
    module = model(0, "dot")
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    certificate = certify(module, budget=2).about(weights).to_json()
    assert json.loads(certificate)["tree"]["reason"] == record.BY_VARIANCES
    verdict, trusted = check(weights, certificate.encode())
    assert verdict == "REFUTED" and {"error_share", "is_smallest"} <= {*trusted}


def test_a_bracket_without_width_says_how_many_pairs_are_wrong(monkeypatch):
    monkeypatch.setattr(by_cost, "AFFORDABLE", 0)
    module = model(0, "dot")
    wrong = len(wrong_pairs(module))
    monkeypatch.setattr(bracket.ShareBounds, "narrowed", lambda self, *args: (wrong, wrong))
    monkeypatch.setattr(Queue, "_is_over", lambda self: self.smallest.candidate is not None)
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    certificate = certify(module, budget=2).about(weights)
    assert certificate.extra["wrong_pairs"] == str(wrong)
    check(weights, certificate.to_json().encode())
