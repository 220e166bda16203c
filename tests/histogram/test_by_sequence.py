"""Sequences of one position by themselves, and what is near a tie: enumeration's findings, and planted faults."""

from functools import cache

import numpy as np
import pytest
import torch
from models.random_models import random_model, trained_like
from models.selection import every
from oracles.histogram import differs

from tests.clocks import ENDLESS
from verify.tasks.histogram import by_sequence
from verify.tasks.histogram.branch_and_bound import RegionSearch
from verify.tasks.histogram.by_sequence import Fillings
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Table

SIZES = [(4, 4), (3, 5), (5, 3)]


@cache
def model(seed, kind):
    """Trained-like weights; every fourth model has coefficients so small and so large that attention is all or none."""
    T, L = SIZES[seed % 3]
    module = trained_like(seed, kind, T, L, p=2 + seed % 4, steps=15)
    if seed % 4 == 0 and kind.endswith("+sftm"):
        with torch.no_grad():
            (module.A if kind.startswith("lin") else module.W_Q).mul_(40.0)
    return module


@pytest.mark.parametrize("kind", every(2, ["lin", "lin+sftm", "bos+sftm", "dot+sftm"]))
def test_shares_and_smallest_counterexamples(kind):
    for seed in (0, 3, 4):
        assert differs(model(seed, kind), certify(model(seed, kind), budget=ENDLESS)) is None, seed


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, 400, 50))
@pytest.mark.parametrize("kind", ["lin", "lin+sftm", "dot+sftm", "bos+sftm", "random"])
def test_many_shares(kind, start):
    for seed in range(start, start + 50):
        module = random_model(seed) if kind == "random" else model(seed, kind)
        assert differs(module, certify(module, budget=ENDLESS)) is None, seed


def test_sequences_are_chosen_where_every_slot_has_its_own_weight(monkeypatch):
    seen = []
    decide = by_sequence.decide
    monkeypatch.setattr(by_sequence, "decide", lambda *args: seen.append(1) or decide(*args))
    certify(model(0, "lin"))
    assert seen
    rows = Reduction(StoredModel.of(model(0, "lin"))).rows
    assert all(by_sequence.is_by_sequence(row, 4, 4, 9) for row in rows)
    assert not by_sequence.is_by_sequence(rows[0], 99, 4, 9)
    assert not by_sequence.is_by_sequence(Reduction(StoredModel.of(model(0, "dot"))).rows[0], 4, 4, 9)


def shifted(method):
    """Every own count is taken for that of the next query token."""

    def init(self, T, L):
        method(self, T, L)
        self.of_count = self.of_count[1:] + self.of_count[:1]

    return init


def last_of_all(method):
    def init(self, T, L):
        method(self, T, L)
        self.distinct = [-distinct for distinct in self.distinct]

    return init


def no_tie(method):
    """What may be right, near a tie, is taken for right."""

    def singly(self, points, readout):
        _, most, D = method(self, points, readout)
        return most, most, D

    return singly


def wrong(method):
    """What is near a tie is taken for wrong."""
    return lambda self, points, readout: (-np.ones((len(points), len(readout.d))),) * 2 + (np.ones(len(points)),)


FAULTS = [
    (Fillings, "__init__", shifted, "lin"),
    (Fillings, "__init__", last_of_all, "lin"),
    (Table, "singly", wrong, "bos+sftm"),
    (Table, "singly", no_tie, "random"),
]


@pytest.mark.parametrize(("owner", "name", "fault", "kind"), FAULTS, ids=["counts", "smallest", "wrong", "ties"])
def test_a_planted_fault_is_found(owner, name, fault, kind, monkeypatch):
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    by_sequence.fillings_of.cache_clear()
    models = (random_model(seed) if kind == "random" else model(seed, kind) for seed in range(60))
    found = any(is_broken(module) for module in models)
    by_sequence.fillings_of.cache_clear()
    assert found


def is_broken(module):
    try:
        return differs(module, certify(module, budget=ENDLESS)) is not None
    except AssertionError:  # the search and the exact forward pass disagree
        return True


def test_no_further_tie_is_judged_exactly_when_the_time_is_up(monkeypatch):
    stored = StoredModel.of(model(0, "dot"))
    search = RegionSearch(reduction := Reduction(stored), ExactForward(stored), reduction.rows[0], 0, [1, 2, 3])
    roots = [part for parts in search.pending.values() for part in parts]
    search.pending, over = {}, iter([False, True, True, True])
    monkeypatch.setattr(search, "_judge_exactly", lambda point: judged.append(point))
    monkeypatch.setattr(search, "_is_over", lambda: next(over))
    judged = []
    for points in roots:
        search._decide_points(points)
    assert len(judged) == 1
    kept = [part for parts in search.pending.values() for part in parts]
    assert sum(map(search.counting.exactly, kept + judged)) == sum(map(search.counting.exactly, roots))
