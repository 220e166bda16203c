"""Every multiset decided by itself: the shares and smallest counterexamples of enumeration, and planted faults."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import factorial, prod
from pathlib import Path

import numpy as np
import pytest
import torch
from models.random_models import almost_two_weights
from models.selection import every, first
from oracles.histogram import CLOSE, differs, forward, weights_of

from constructions import relation_counting
from constructions.checkpoint import load
from constructions.histogram import HistogramTransformer
from tests.clocks import ENDLESS
from verify.frame.certificate import Verdict
from verify.tasks.histogram import by_cost, by_sequence, merging, tabulating
from verify.tasks.histogram.blocks import BlockPart, Near
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.multisets import Multisets
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import CountReadout, Slots, Space, Table

DATA = Path(__file__).parents[1] / "data"
SIZES = [(4, 4), (3, 5), (5, 3)]
KINDS = ["lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm"]


@cache
def model(seed, kind):
    """Trained-like weights; in a mixing matrix two values, off by a little, and every third has two rows alike."""
    module = almost_two_weights(seed, kind, *SIZES[seed % 3])
    if module.is_linear and seed % 4 == 0:
        with torch.no_grad():
            module.A[0, -1] += 1.0
    return module


@pytest.fixture
def merged(monkeypatch):
    """Slots are merged as coarsely as they can be, and positions whose weights are close too; no single ones."""
    monkeypatch.setattr(by_cost, "FEW", 0)
    monkeypatch.setattr(by_cost, "WORTH", 1)
    monkeypatch.setattr(by_sequence, "MOST_SEQUENCES", 0)
    monkeypatch.setattr(by_cost, "NEAR", 0.02)


@pytest.mark.parametrize("models", first(1, [2, 4]))
@pytest.mark.parametrize("kind", KINDS)
def test_shares_and_smallest_counterexamples(kind, models, merged):
    for seed in range(models):
        assert differs(model(seed, kind), certify(model(seed, kind), budget=ENDLESS)) is None, seed


@pytest.mark.parametrize(("small", "block"), [(0, 40), (1 << 22, 1 << 17)])
def test_in_parts_of_any_size(small, block, merged, monkeypatch):
    monkeypatch.setattr(tabulating, "SMALL", small)
    monkeypatch.setattr(tabulating, "BLOCK", block)
    for seed in range(3):
        assert differs(model(seed, "lin"), certify(model(seed, "lin"), budget=ENDLESS)) is None, seed


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", range(100, 700, 100))
def test_many_shares(kind, start, merged):
    for seed in range(start, start + 100):
        assert differs(model(seed, kind), certify(model(seed, kind), budget=ENDLESS)) is None, seed


def test_multisets():
    multisets = Multisets(3, 4, 4)
    for m in range(5):
        tokens = multisets.tokens(m, np.arange(multisets.number(m)))
        assert len({tuple(row) for row in tokens.tolist()}) == multisets.number(m)
        assert multisets.arrangements[m].sum() == 3**m
        assert multisets.distinct[m].tolist() == [len(set(row)) for row in tokens.tolist()]
        steps = np.array([[1.0, 10.0, 100.0]])
        sums = multisets.sums(steps, m)
        assert sums[m][0].tolist() == [float(sum(10**u for u in row)) for row in tokens.tolist()]


@pytest.mark.parametrize(("T", "L"), [(2, 80), (3, 55)])
def test_more_sequences_than_64_bits_count(T, L):
    module = relation_counting.dot(T=T, L=L, d=T, dtype=torch.float64)
    with torch.no_grad():
        module.b_2[5] += 3
        module.E += 0.01 * torch.randn(module.E.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wrong, weights = 0, weights_of(module)
    for counts in product(range(L + 1), repeat=T):
        if sum(counts) == L:
            sequence = np.repeat(np.arange(T), counts)
            logits = forward(module, weights, sequence[None])[0]
            every, right = np.arange(L), np.array(counts)[sequence] - 1
            at_right = logits[every, right]
            logits[every, right] = -np.inf
            margin = at_right - logits.max(-1)
            assert (np.abs(margin) > CLOSE).all()
            wrong += factorial(L) // prod(map(factorial, counts)) * int((margin < 0).sum())
    share = Fraction(wrong, L * T**L)
    assert 0 < share < 1 and certify(module, budget=ENDLESS).error_share == (share, share)


def equal_weights(method):
    def init(self, *args):
        method(self, *args)
        self.apart = [0 * apart for apart in self.apart]
        self.drift = 0 * self.drift

    return init


def first_position(method):
    def init(self, *args):
        method(self, *args)
        self.shifts = 0 * self.shifts
        self.spread = 0 * self.spread

    return init


def no_bends(method):
    """Neurons never change sides."""
    return lambda self, z, i, d: (np.zeros(len(i)), np.zeros(len(i)))


FAULTS = [
    (Slots, "__init__", equal_weights),
    (Table, "__init__", first_position),
    (Table, "radius", lambda method: lambda self, low, high, readout: readout.error),
    (Table, "_bends", no_bends),
    (BlockPart, "pairs", lambda method: lambda self, chosen: int(chosen.sum())),
    (CountReadout, "of", lambda method: lambda table, k: method(table, min(k + 1, table.stored.L))),
]


@pytest.mark.parametrize(
    ("owner", "name", "fault"), every(3, FAULTS), ids=["weights", "positions", "radius", "sides", "orders", "class"]
)
def test_a_planted_fault_is_found(owner, name, fault, merged, monkeypatch):
    monkeypatch.setattr(by_cost, "CLOSENESS", (0.5,))
    monkeypatch.setattr(by_cost, "NEAR", 0.2)
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    assert any(is_broken(model(seed, "lin")) for seed in range(40))


def looked_at(table, k):
    """The forms and differences of all multisets with own count k, as the table computes them."""
    readout, found = CountReadout.of(table, k), []
    for levels in table._levels(k):
        for part in table._parts(table._block(levels), table._last(levels), readout):
            near = Near()
            nothing = np.full_like(part.radius, np.inf)  # decides nothing: all multisets are near a tie
            table._judge(replace(part, radius=nothing), readout, tabulating.Tabulated(), Smallest(), near)
            found.append(near.joined()[1:3])
    z, difference = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return z, difference, table.form_error[:, None], readout.error


def test_float32_is_off_by_at_most_its_bound(merged, monkeypatch):
    seen = []
    for seed in (0, 2, 3):
        reduction = Reduction(StoredModel.of(model(seed, "lin")))
        row = max(merging.merged_rows(reduction), key=lambda merged: len(merged.members)).row
        for k in range(1, reduction.stored.L):
            monkeypatch.setattr(Table, "_dtype", lambda table: np.float32)
            narrow = looked_at(Table(reduction, row, 0, Space(reduction.stored)), k)
            monkeypatch.setattr(Table, "_dtype", lambda table: np.float64)
            wide = looked_at(Table(reduction, row, 0, Space(reduction.stored)), k)
            for at, error in ((0, 2), (1, 3)):
                off = np.abs(narrow[at] - wide[at])
                assert (off <= narrow[error] + wide[error]).all()
                seen.append((off > 100 * wide[error]).any())
    assert all(seen)  # a bound for float64 alone would not hold


def is_broken(module: HistogramTransformer) -> bool:
    try:
        return differs(module, certify(module, budget=ENDLESS)) is not None
    except AssertionError:  # the search and the exact forward pass disagree
        return True


def test_a_trained_and_proved_model():
    """Trained by tests/tools/train_histogram.py lin+sftm --T 8 --L 5 --d 32 --p 32 --steps 2500, seed 0."""
    certificate = certify(load(DATA / "trained_lin_sftm_T8_L5_d32_p32.safetensors"))
    assert certificate.verdict is Verdict.PROVED and 3.98 < certificate.margin < 3.99
