"""The machine code for tables of quotients says what torch says of the same numbers, and planted faults do not."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
import torch

from tests.planted import planted
from verify.arithmetic.machine_code import is_compiled
from verify.reduction import quotients
from verify.reduction.chords import LANES, Loop, _function
from verify.reduction.quotients import TURNS, Entries, Quotients, Tables

SHAPES = [(1, 1), (1, 7), (3, 8), (2, 9)]  # heads, functions


def drawn(heads, functions, seed=0):
    """Cells of sets of several sizes, and functions of their atoms."""
    rng = torch.Generator().manual_seed(seed)
    each, places, tokens, cells = 3, 3, 5, 4
    head = torch.arange(heads).repeat_interleave(each)
    w = torch.rand(heads, places, tokens, generator=rng, dtype=torch.float64) ** 4 + 1e-3
    x = torch.randn(heads * each, places, tokens, generator=rng, dtype=torch.float64) * w[head]
    tables = Tables(w, 1e-16 * w, x, 1e-16 * x.abs(), head, torch.full((len(head),), 9.0, dtype=torch.float64))
    masks = np.random.default_rng(seed).random((cells, places, tokens)) < 0.6
    masks[..., 0] |= ~masks.any(-1)
    found = Quotients(tables, Entries.of(masks))
    return found, torch.randn(cells, functions, heads * each, generator=rng, dtype=torch.float64)


def apart(heads, functions, turns):
    """By how much what machine code says differs from torch's, relative to its size, of the same mu."""
    given, u = drawn(heads, functions)
    found = given._chords(u, given.middles(u), turns)
    other = given._chords_in_torch(u, found.mu, 0)
    assert [x.shape for x in found] == [x.shape for x in other]
    return max(float((x - y).abs().max() / (y.abs().max() + 1)) for x, y in zip(found, other, strict=True))


def above_least(heads, functions):
    """By how much mu is above and below the least quotients of each head, found by listing all inputs of a cell."""
    given, u = drawn(heads, functions)
    mu, products, w = given._chords(u, given.middles(u), TURNS).mu, given.products(u), given.w.transpose(0, 1)
    slots = [range(slot.start, slot.stop) for slot in given.slots]
    quotient = [
        products[..., list(at)].sum(-1) / w[..., list(at)].sum(-1).unsqueeze(-1) for at in itertools.product(*slots)
    ]
    off = mu - torch.stack(quotient).amin(0)
    return float(off.max()), float(-off.min())


needs_machine_code = pytest.mark.skipif(not is_compiled(), reason="llvmlite makes the machine code")


@needs_machine_code
@pytest.mark.parametrize("turns", [0, TURNS])
@pytest.mark.parametrize("heads, functions", SHAPES)
def test_machine_code_says_what_torch_says(heads, functions, turns):
    assert apart(heads, functions, turns) < 1e-13


@needs_machine_code
@pytest.mark.parametrize("heads, functions", SHAPES)
def test_least_quotients_are_found_and_a_little_below(heads, functions):
    above, below = above_least(heads, functions)
    assert above < 0 and below < 1e-10


@pytest.mark.parametrize("way", [pytest.param("machine code", marks=needs_machine_code), "torch"])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("entry", range(3))
def test_a_table_with_what_is_no_finite_number_bounds_nothing(way, number, entry):
    """Also where it is not the least entry, which a minimum passes over."""
    with mock.patch.object(quotients, "is_compiled", lambda: way != "torch"):
        given, u = drawn(2, 3)
        given.rows[1, entry, 4] = number  # an atom of the second head
        zero = torch.zeros(u.shape[:2], dtype=torch.float64)
        low = given.least(u, zero, zero).low
    assert not bool((low[1] > -math.inf).any()) and bool(torch.isfinite(low[[0, 2, 3]]).all())


FAULTS = [
    ("_head", "a = self.least_of(self.most_of(a, few), many)", "a = few"),
    ("_head", "self.set(self.a, at_head, a)", "self.set(self.a, at_head, few)"),
    ("_head", "do.fsub(do.fmul(few, high), do.fmul(many, low))", "do.fadd(do.fmul(few, high), do.fmul(many, low))"),
    ("_head", "self.set(self.mu, at_head, mu)", "self.set(self.mu, at_head, few)"),
    ("_head", "do.store(self.least_of(x, do.load(least)), least)", "do.store(x, least)"),
    ("_head", "do.store(self.most_of(x, do.load(most)), most)", "do.store(x, most)"),
    ("_head", "ends[0], self.size(ends[0])", "ends[0], ends[0]"),
    ("_head", "ends[1], self.size(ends[1])", "ends[1], ends[1]"),
    ("_head", "self.get(room, at), self.get(combined, at)", "self.get(room, at), self.splat(0.0)"),
    ("_cell", "do.store(self.least_of(x, self.do.load(least)), least)", "do.store(x, least)"),
    ("_cell", "self.set(self.combined, self.at((cell, self.entries), (entry, self.width), first), x)",
     "self.set(self.combined, self.at((cell, self.entries), (entry, self.width), first), self.splat(0.0))"),
    ("_cell", "self.splat(0.0))\n    with self.over(self.number_of(0), self.heads)",
     "self.splat(0.1))\n    with self.over(self.number_of(0), self.heads)"),
    ("_products", "begin, end = self.load", "end, begin = self.load"),
    ("_less", "self.do.fneg(mu)", "mu"),
    ("_weight", "self.do.add(self.atoms, head)", "self.atoms"),
    ("least_of", "self.is_less(x, y), x, y", "self.is_less(x, y), y, x"),
    ("most_of", "self.is_less(y, x), x, y", "self.is_less(y, x), y, x"),
    ("over_places", "self.do.add(place, self.number_of(1))", "self.do.add(place, self.number_of(0))"),
]  # fmt: skip


@pytest.fixture
def _made_again():
    """Machine code that other tests do not use."""
    _function.cache_clear()
    yield
    _function.cache_clear()


@needs_machine_code
@pytest.mark.usefixtures("_made_again")
@pytest.mark.parametrize("name, right, wrong", [pytest.param(*fault, marks=() if i < 1 else pytest.mark.deep)
                                                for i, fault in enumerate(FAULTS)])  # fmt: skip
def test_a_fault_in_the_machine_code_is_caught(name, right, wrong):
    with planted(Loop, name, right, wrong):
        assert any(not apart(3, LANES + 1, turns) < 1e-9 for turns in (0, TURNS))


@needs_machine_code
@pytest.mark.usefixtures("_made_again")
def test_machine_code_that_forgets_what_is_no_number_is_caught():
    with planted(Loop, "_cell", "do.fadd(self.do.load(total), self.do.load(other))", "do.load(total)"):
        given, u = drawn(2, 3)
        given.rows[1, 0, 4] = math.inf
        assert not bool(given._chords(u, given.middles(u), 0).total[1].isnan().all())
