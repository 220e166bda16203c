"""Shares by counting multisets of nearly equal slots: enumeration's lie within them, and planted faults do not."""

from fractions import Fraction

import numpy as np
import pytest

from tests.clocks import ENDLESS
from tests.histogram.test_moments import logits_times_D, model, tables
from tests.planted import planted
from verify.tasks.histogram import nearly_equal, prefixes
from verify.tasks.histogram.bracket import ShareBounds
from verify.tasks.histogram.moments import Moments
from verify.tasks.histogram.nearly_equal import CountedCell
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import CountReadout, Table

KINDS = ["lin", "lin+sftm"]
SEEDS = range(6)


@pytest.fixture(autouse=True)
def short_leaves(monkeypatch):
    """Prefixes have tokens, and several parts, although models are small."""
    monkeypatch.setattr(prefixes, "IN_CACHE", 12)
    monkeypatch.setattr(nearly_equal, "A_LOOK", 5)
    prefixes.prefixes_of.cache_clear()
    yield
    prefixes.prefixes_of.cache_clear()


def cells(module):
    """Each cell with its table, and of each position its inputs' differences (inputs, C - 1)."""
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    for table in tables(module):
        for k in range(1, module.L):
            right, found = k - module.first_count, {}
            for position in range(module.L):
                at = (sequences[:, position] == table.t) & (counts[:, position] == k)
                of = logits[at, position]
                found[position] = np.delete(of[:, [right]] - of, right, axis=1), sequences[at]
            yield table, k, found


def broken(module):
    """What is not as enumeration says, None where all is; and how many shares are known within a tenth."""
    known = 0
    for table, k, positions in cells(module):
        cell = CountedCell.of(table, k, Moments(table, [k]).behind(k))
        least, most = cell.share(ENDLESS.deadline())
        known += most - least <= Fraction(1, 10)
        radius, readout = table.radius_of_all(CountReadout.of(table, k)), CountReadout.of(table, k)
        for position, (differences, sequences) in positions.items():
            if not least <= Fraction(int((differences <= 0).any(1).sum()), len(differences)) <= most:
                return "share", known
            others = np.delete(sequences, position, axis=1)
            values = table.values[[np.append(table.tokens, table.t).tolist().index(s) for s in range(module.T)]]
            z = table.exact[0].mid + table.slots.a[0] * values[others].sum(1)
            z[:, :-1] = np.maximum(z[:, :-1], 0)
            if not (np.abs(differences - z @ readout.d.T) <= radius + 1e-9).all():
                return "radius", known
    return None, known


@pytest.mark.parametrize("kind", KINDS)
def test_enumeration(kind):
    known = 0
    for seed in SEEDS:
        found, number = broken(model(seed, kind))
        assert found is None, seed
        known += number
    assert known > 10


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_rivals_that_are_left_out(share, monkeypatch):
    """They are few enough that some rival is left out somewhere, and what they may do is added."""
    monkeypatch.setattr(nearly_equal, "LEFT_OUT", share)
    assert all(broken(model(seed, kind))[0] is None for seed in SEEDS for kind in KINDS)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind, monkeypatch):
    for seed in range(60):
        monkeypatch.setattr(nearly_equal, "LEFT_OUT", 0.3 * (seed % 3))
        assert broken(model(seed, kind))[0] is None, seed


FAULTS = [
    (Table, "radius_of_all", "apart * most(self.values - centre)", "0"),
    (Table, "radius_of_all", "drift * np.maximum", "0 * np.maximum"),
    (Table, "radius_of_all", "found + most(self.shifts)", "found"),
    (Table, "radius_of_all", "~(is_on | is_off)", "is_off"),
    (Table, "radius_of_all", "self.stored.L - readout.k", "0"),
    (CountedCell, "of", "+ radius", ""),
    (CountedCell, "of", "- k)", "- k + 1)"),
    (CountedCell, "share", "+ is_open", ""),
    (CountedCell, "share", "prefixes.outer * found", "found"),
    (nearly_equal, "_rivals", "Fraction(float(most[i]))", "Fraction(0)"),
    (nearly_equal, "_rivals", "np.delete(order, others)", "np.setdiff1d(order, others)"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[right for _, _, right, _ in FAULTS])
def test_a_planted_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(nearly_equal, "LEFT_OUT", 99 if fault[0] is nearly_equal else 0.02)
    with planted(*fault):
        assert any(broken(model(seed, kind))[0] for seed in SEEDS for kind in KINDS)


def test_time_that_is_up():
    """Nothing is known of a cell whose counting did not come to an end."""
    table, k, _ = next(cells(model(0, "lin")))
    cell, over = CountedCell.of(table, k, Moments(table, [k]).behind(k)), ENDLESS.deadline().moved_to(0.0)
    assert cell.share(over) == (0, 1)


def test_what_is_known_is_only_narrowed():
    module = model(1, "lin")
    bounds, table = ShareBounds(Reduction(StoredModel.of(module))), tables(module)[0]
    for least, most in ((0.1, 0.9), (0.2, 1.0), (0.0, 0.7)):
        bounds._narrow(table, 1, Fraction(least), Fraction(most))
    assert set(bounds.shares.values()) == {(Fraction(0.2), Fraction(0.7))}
