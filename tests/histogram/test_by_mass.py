"""Multisets that hold most sequences first: all of them give what enumeration finds, some of them bracket it."""

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations
from types import SimpleNamespace

import pytest
from models.random_models import almost_two_weights
from oracles.histogram import differs, wrong_pairs

from tests.clocks import ENDLESS
from verify.tasks.histogram import by_cost, by_mass, by_sequence, tabulating
from verify.tasks.histogram.by_mass import ByMass, Unit, number_of
from verify.tasks.histogram.proof import certify

KINDS = ["lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm"]
SIZES = [(4, 4), (3, 5), (5, 3)]


@cache
def model(seed, kind):
    """Trained-like weights; the mixing weights of each position are almost two."""
    return almost_two_weights(seed, kind, *SIZES[seed % 3])


@pytest.fixture(autouse=True)
def mass(monkeypatch):
    """No search before, the smallest tables, and all slots in one group."""
    for name, value in {"AFFORDABLE": 0, "FOR_A_COMPARISON": 0, "FEW": 0, "WORTH": 1, "NEAR": 0.2}.items():
        monkeypatch.setattr(by_cost, name, value)
    monkeypatch.setattr(by_cost, "CLOSENESS", (9.0,))
    monkeypatch.setattr(by_sequence, "MOST_SEQUENCES", 0)
    monkeypatch.setattr(by_mass, "SMALL", 0)
    monkeypatch.setattr(by_mass, "FIRSTS", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_all_multisets(kind):
    for seed in [2] if kind == "lin" else [0, 1]:
        assert differs(model(seed, kind), certify(model(seed, kind), budget=ENDLESS)) is None, seed


def brackets(module, monkeypatch):
    """The brackets on the share that come of more and more units."""
    whole = ByMass.of.__func__
    for number in (1, 5, 25, 60):

        def some(cls, *args, number=number):
            found = whole(cls, *args)
            return cls(found.reduction, found.units[:number])

        monkeypatch.setattr(ByMass, "of", classmethod(some))
        monkeypatch.setattr(ByMass, "reach", lambda self, seconds: 1 << 60)
        yield certify(module, budget=5).error_share


@pytest.mark.parametrize("kind", ["lin", "bos"])
def test_some_multisets_bracket_the_share(kind, monkeypatch):
    module, before = model(1, kind), 1
    share = Fraction(len(wrong_pairs(module)), module.L * module.T**module.L)
    for low, high in brackets(module, monkeypatch):
        assert low <= share <= high and high - low <= before
        before = high - low
    assert before < 0.9


def test_what_is_left_near_a_tie_is_open_where_it_is_too_much(monkeypatch):
    """Every multiset is near a tie where rounding may be anything."""
    monkeypatch.setattr(tabulating, "gamma", lambda n: 1e9)
    monkeypatch.setattr(by_mass, "LEFT", 3)
    module = model(0, "dot")
    share = Fraction(len(wrong_pairs(module)), module.L * module.T**module.L)
    low, high = certify(module, budget=5).error_share
    assert low <= share <= high and high - low > 0.5


def test_the_number_of_multisets_with_repeats():
    for S, m in ((3, 4), (5, 3), (2, 5), (4, 0)):
        counted = {}
        for multiset in combinations_with_replacement(range(S), m):
            repeats = tuple(sorted((n for n in map(multiset.count, set(multiset)) if n > 1), reverse=True))
            counted[repeats] = counted.get(repeats, 0) + 1
        for repeats, number in counted.items():
            assert number_of(S, m, repeats) == number
        units = list(Unit.all_of(SimpleNamespace(positions=(0,)), 0, 2, S, m + 2))
        assert {unit.repeats: unit.number for unit in units} == counted
        assert sum(unit.number * unit.ways for unit in units) == (m + 1) * S**m


def in_every_order(method):
    """Repeated tokens of one multiplicity in every order, so that multisets come twice."""
    return lambda S, repeats: permutations(range(S), len(repeats))


FAULTS = [
    (by_mass, "_repeated", in_every_order),
    (by_mass, "_largest", lambda method: lambda S, small, singles: list(method(S, small, singles))[1:] or [(S, None)]),
    (tabulating.Slots, "__init__", lambda method: lambda self, row: equal_weights(method, self, row)),
    (tabulating.Table, "radius", lambda method: lambda self, low, high, readout: readout.error),
]


def equal_weights(method, slots, row):
    method(slots, row)
    slots.apart, slots.drift = [0 * apart for apart in slots.apart], 0 * slots.drift


@pytest.mark.parametrize(("owner", "name", "fault"), FAULTS, ids=["orders", "sets", "weights", "radius"])
def test_a_planted_fault_is_found(owner, name, fault, monkeypatch):
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    assert any(is_broken(model(seed, "lin")) for seed in range(20))


def is_broken(module):
    try:
        return differs(module, certify(module, budget=ENDLESS)) is not None
    except (AssertionError, TypeError, IndexError):
        return True
