"""Shares by counting multisets of nearly equal slots: enumeration's lie within them, and planted faults do not."""

from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions.histogram import HistogramTransformer
from tests.clocks import ENDLESS
from tests.histogram.test_moments import logits_times_D, model, tables
from tests.planted import planted
from verify.frame.clock import Budget
from verify.frame.decide import silent
from verify.tasks.histogram import bracket, loops, nearly_equal, prefixes
from verify.tasks.histogram.bracket import ShareBounds
from verify.tasks.histogram.moments import Behind, Moments
from verify.tasks.histogram.narrow import CellForms, Narrow
from verify.tasks.histogram.nearly_equal import CountedCell
from verify.tasks.histogram.orders import Orders
from verify.tasks.histogram.reduction import Reduction, mixing_weights
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Slots, Space, Table
from verify.tasks.histogram.unequal_weights import RARELY

KINDS = ["lin", "lin+sftm"]
SEEDS = range(6)
WIDE = 1000.0  # as a radius, above all differences
SOME, NONE = 0.1, 1e9  # of what a vector has on average: some vectors are looked at closer, or none


@pytest.fixture(autouse=True)
def short_leaves(monkeypatch):
    """Prefixes have tokens, and several parts, although models are small."""
    monkeypatch.setattr(prefixes, "IN_CACHE", 12)
    monkeypatch.setattr(nearly_equal, "A_LOOK", 5)
    prefixes.with_leaf.cache_clear()
    yield
    prefixes.with_leaf.cache_clear()


@cache
def cells(seed, kind):
    """Each cell with its table, its moments' bounds, and the share of each position's inputs that is wrong."""
    module, found = model(seed, kind), []
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    for table in tables(module):
        for k in range(1, module.L):
            at = (sequences == table.t) & (counts == k)
            right, wrong = k - module.first_count, []
            for position in range(module.L):
                of = logits[at[:, position], position]
                is_wrong = (np.delete(of[:, [right]] - of, right, axis=1) <= 0).any(1)
                wrong.append(Fraction(int(is_wrong.sum()), len(is_wrong)))
            found.append((table, k, Moments(table, [k]).behind(k), wrong))
    return found


def all_near(cell, radius):
    """The cell with all multisets near a tie within a radius."""
    return replace(cell, narrow=replace(cell.narrow, error=np.full_like(cell.narrow.error, radius)))


def broken(seed, kind, left_out=0.02, least=0.0, radius=None):
    """Whether a share is not within its bracket, or a rival's radius is free; how many brackets are a tenth wide.

    Multisets are near a tie within the radius, if there is one, and not only where they may be.
    """
    known = 0
    for table, k, behind, wrong in cells(seed, kind):
        cell = CountedCell.of(table, k, behind, left_out)
        if radius is not None:
            cell = all_near(cell, radius)
        shares = cell.shares(ENDLESS.deadline(), least)
        known += all(most - least <= Fraction(1, 10) for least, most in shares)
        is_within = all(least <= share <= most for share, (least, most) in zip(wrong, shares, strict=True))
        if cell.odd < RARELY * (2 * cell.narrow.W.shape[1] - 1) or not is_within:
            return True, known
    return False, known


@pytest.mark.parametrize("kind", KINDS)
def test_enumeration(kind):
    known = 0
    for seed in SEEDS:
        found, number = broken(seed, kind)
        assert not found, seed
        known += number
    assert known > 10


@pytest.mark.parametrize("is_compiled", [False, True])
def test_fewer_are_looked_at_closer(is_compiled, monkeypatch):
    """By both loops, of which the compiled one may be absent: shares lie in brackets, wider the fewer are looked at."""
    if not is_compiled:
        monkeypatch.setattr(loops, "is_compiled", lambda: False)
    widths = [[], [], []]
    for seed in range(2):
        assert not broken(seed, "lin", least=SOME)[0]
        for table, k, behind, _ in cells(seed, "lin"):
            cell = all_near(CountedCell.of(table, k, behind, 0.02), WIDE)
            closer, some, plain = (cell.shares(ENDLESS.deadline(), least) for least in (0.0, SOME, NONE))
            for found, shares in zip(widths, (closer, some, plain), strict=True):
                found.append(float(sum(high - low for low, high in shares)))
            for inner, outer in ((closer, some), (some, plain)):
                for (low, high), (least, most) in zip(inner, outer, strict=True):
                    assert least <= low and high <= most
    assert sum(widths[0]) < sum(widths[1]) < sum(widths[2])


def test_both_loops_look_at_the_same(monkeypatch):
    """What is left near a tie, and counted as wrong, are the same whole numbers, whichever looks are asked for."""
    table, k, behind, _ = cells(1, "lin")[0]
    cell = all_near(CountedCell.of(table, k, behind, 0.02), WIDE)
    for least in (0.0, 0.1, 0.2, SOME, 0.8, NONE):
        with monkeypatch.context() as patch:
            compiled = cell.shares(ENDLESS.deadline(), least)
            patch.setattr(loops, "is_compiled", lambda: False)
            plain = cell.shares(ENDLESS.deadline(), least)
        for one, other in zip(compiled, plain, strict=True):
            assert [float(x) for x in one] == pytest.approx([float(x) for x in other], abs=1e-5)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_shares_of_orders_of_all_multisets(is_compiled, monkeypatch):
    """All are near a tie within a wide radius, and still brackets hold the shares, and are narrow here and there."""
    if not is_compiled:
        monkeypatch.setattr(loops, "is_compiled", lambda: False)
    found = [broken(1, kind, radius=WIDE) for kind in KINDS]
    assert not any(is_broken for is_broken, _ in found) and sum(known for _, known in found) > 5


@pytest.mark.parametrize("wrong", ["2 * Fraction(low) * (1", "Fraction(101, 100) * Fraction(low) * (1"])
def test_a_fault_in_what_orders_surely_have_wrong_is_found(wrong):
    """It takes a cell where nearly all orders are surely wrong."""
    with planted(CountedCell, "shares", "Fraction(low) * (1", wrong):
        assert any(broken(seed, "lin+sftm", radius=WIDE)[0] for seed in SEEDS)


@pytest.mark.parametrize("share", first(1, [0.1, 0.9]))
@pytest.mark.deep
def test_rivals_that_are_left_out(share):
    """They are few enough that some rival is left out somewhere, and what they may do is added."""
    assert not any(broken(seed, kind, share)[0] for seed in SEEDS for kind in KINDS)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind):
    for seed in range(60):
        assert not broken(seed, kind, 0.3 * (seed % 3))[0], seed


FAULTS = [
    (CountedCell, "of", "+ usual_radius(table, rows, is_on, is_bent)", ""),
    (CountedCell, "of", "- k)", "- k + 1)"),
    (CountedCell, "of", "(2 * len(rivals) - 1) * RARELY", "RARELY"),
    (CountedCell, "of", "crossing + (2", "(2"),
    (CountedCell, "of", "rivals], is_on", "rivals], 0 * is_on"),
    (CountedCell, "shares", "+ is_open", ""),
    (CountedCell, "shares", "prefixes.outer * found", "found"),
    (CountedCell, "shares", "surely - self.odd", "surely"),
    (CountedCell, "shares", "self.others + self.odd", "self.others"),
    (CountedCell, "shares", "self.others + self.odd", "self.odd"),
    (nearly_equal, "_rivals", "Fraction(float(most[i]))", "Fraction(0)"),
    (nearly_equal, "_rivals", "np.sort(by_share[~is_left_out])", "by_share[:0]"),
    (CountedCell, "of", "apart[0] = np.inf", "apart[0] = -np.inf"),
    (nearly_equal, "_sides", "behind.off <= behind.on", "behind.off > behind.on"),
    (nearly_equal, "_sides", "Fraction(float(x))", "Fraction(0)"),
    (CountedCell, "shares", "Fraction(high) * (1", "0 * Fraction(high) * (1"),
    (Orders, "judge", "is_near & ~is_ahead", "is_near & is_ahead"),
    (Orders, "judge", "multiple * sums[0] > apart", "multiple * sums[0] > -9"),
    (Orders, "judge", "lane), shares[0]", "lane), 0 * shares[0]"),
    (Orders, "judge", "lane), shares[1]", "lane), 0 * shares[1]"),
    (Orders, "judge", "weights[rows[0]] * f", "0 * f"),
    (Orders, "judge", "* f[rows[1]]", "* f[0]"),
    (Narrow, "in_parts", "readout * is_on[:, None]", "readout"),
    (Table, "in_order", "self.values[:-1][order]", "self.values[:-1][order // 2]"),
    (CellForms, "combined", "parts @ self.start", "np.zeros(len(parts))"),
]


@pytest.mark.parametrize(
    "fault", every(3, ((fault,) for fault in FAULTS)), ids=[f"{right} -> {wrong}" for _, _, right, wrong in FAULTS]
)
def test_a_planted_fault_is_found(fault, monkeypatch):
    left_out = 99 if fault[-1] in ("Fraction(0)", "self.odd") and fault[1] != "_sides" else 0.02
    is_crossed = fault[1] in ("shares", "_sides") or fault[-1] == "(2"
    monkeypatch.setattr(nearly_equal, "CROSSING", 0.5 if is_crossed else 0.002)
    if fault[0] is Orders:
        monkeypatch.setattr(loops, "is_compiled", lambda: False)
    with planted(*fault):
        least = NONE if fault[2] == "+ is_open" else 0.0
        assert any(broken(seed, kind, left_out, least)[0] for seed, kind in product(SEEDS, KINDS))


def misweighed(monkeypatch):
    """Of how many batches of prefixes near a tie the shares are not those of each prefix times its weight.

    Prefixes of one batch have the same weight in models that can be enumerated, so that theirs are drawn here.
    """
    judge, rng, found = Orders.judge, np.random.default_rng(5), []

    def weighed(self, narrow, at, differences, near, weights, f):
        def share(of, within=True):
            return judge(self, narrow, at, differences, near & within, of, f)

        if near.any(1).sum() > 1:
            drawn, rows = rng.uniform(1, 9, len(at)), np.eye(len(at), dtype=bool)[:, :, None]
            alone = sum(w * share(np.ones(len(at)), row) for w, row in zip(drawn, rows, strict=True))
            found.append(not np.allclose(share(drawn), alone))
        return judge(self, narrow, at, differences, near, weights, f)

    with monkeypatch.context() as patch:
        patch.setattr(Orders, "judge", weighed)
        patch.setattr(loops, "is_compiled", lambda: False)
        patch.setattr(nearly_equal, "A_LOOK", 1 << 22)
        patch.setattr(prefixes, "IN_CACHE", 3)
        prefixes.with_leaf.cache_clear()
        assert not broken(0, "lin", radius=WIDE)[0]
    assert len(found) > 2
    return sum(found)


def test_the_orders_of_each_prefix_have_its_weight(monkeypatch):
    assert misweighed(monkeypatch) == 0
    with planted(Orders, "judge", "weights[rows[0]]", "weights[0]"):
        assert misweighed(monkeypatch) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_sums_in_parts(kind):
    """In float32 they are within their error of float64's, whichever neurons are on, bent or left out."""
    rng = np.random.default_rng(2)
    for table, k, *_ in cells(1, kind) + cells(2, kind):
        side = rng.integers(0, 3, len(table.start))
        is_on, is_bent, readout = (side == 0), (side == 1), table.space.differences(k)
        is_on[-1], is_bent[-1] = True, False
        narrow, forms = Narrow.in_parts(table, k, readout, is_on, is_bent), CellForms.of(table, k)
        for i in range(narrow.prefixes.number):
            u = narrow.larger[narrow.prefixes.larger[i]] + narrow.smaller[narrow.prefixes.smaller[i]]
            leaves = np.arange(narrow.prefixes.leaves[i])
            z, neurons = u[:, None] + narrow.leaves[:, leaves], is_bent.sum()
            found = narrow.W.T @ np.maximum(z[:neurons], 0) + z[neurons:]
            tokens = narrow.prefixes.tokens(np.full(len(leaves), i), leaves)
            exact = forms.start + forms.steps[:, tokens].sum(2).T
            due = (exact * is_on + np.maximum(exact, 0) * is_bent) @ readout
            assert (np.abs(found.T - due) <= narrow.error).all()
            assert (narrow.error < 1e-3).all()


def test_time_that_is_up():
    """All is open of a cell that is not counted at all, and what is not counted of one that is in part."""
    assert not any(cut_short_is_broken(seed) for seed in SEEDS)


def cut_short_is_broken(seed):
    """Whether some share is not in its bracket after one, two, ... looks, or a bracket gets no narrower with more."""
    for table, k, behind, wrong in cells(seed, "lin"):
        cell, widths = CountedCell.of(table, k, behind, 0.02), []
        for looks in range(1, 4):
            shares = cell.shares(Budget.counting(looks).deadline())
            if not all(least <= share <= most for share, (least, most) in zip(wrong, shares, strict=True)):
                return True
            widths.append(sum(most - least for least, most in shares))
        if widths != sorted(widths, reverse=True) or cell.shares(Budget(0.0).deadline()) != [(0, 1)] * table.stored.L:
            return True
    return False


@pytest.mark.parametrize("wrong", ["0, 0 * prefixes", "1, prefixes"])
def test_a_fault_in_what_is_cut_short_is_found(wrong):
    with planted(CountedCell, "shares", "0, prefixes", wrong):
        assert any(cut_short_is_broken(seed) for seed in SEEDS)


def test_what_is_known_is_only_narrowed():
    module = model(1, "lin")
    bounds, table = ShareBounds(Reduction(StoredModel.of(module))), tables(module)[0]
    for least, most in ((0.1, 0.9), (0.2, 1.0), (0.0, 0.7)):
        bounds._narrow(table, 1, [(Fraction(least), Fraction(most))] * len(table.row.positions))
    assert set(bounds.shares.values()) == {(Fraction(0.2), Fraction(0.7))}


@pytest.mark.parametrize("kind", first(1, KINDS))
@pytest.mark.deep
def test_rows_are_bounded_together(kind):
    """Each position's share is within what all rows together are known to be wrong on, where weights are close."""
    joined = 0
    for seed in SEEDS:
        module = model(seed, kind)
        reduction = Reduction(StoredModel.of(module))
        bounds, counts = ShareBounds(reduction), list(range(1, module.L))
        given = [(row, t, counts) for row in reduction.rows for t in range(module.T)]
        together = bracket.as_one_row(given, reduction)
        assert sorted({p for row, *_ in together for p in row.positions}) == list(range(module.L))
        joined += len(together) < len(given)
        bounds.find(given, ENDLESS.deadline(), silent)
        for table, k, _, wrong in cells(seed, kind):
            for position, share in enumerate(wrong):
                least, most = bounds.shares.get((position, table.t, k), (0, 1))
                assert least <= share <= most, (seed, position)
    assert joined > 0


def is_joined_wrongly(seed, kind):
    """Whether a cell is lost, or a row has not all other slots with their weights; None where no rows are joined."""
    module = model(seed, kind)
    reduction, L = Reduction(StoredModel.of(module)), module.L
    weights = module.A.detach().numpy()
    if kind == "lin+sftm":
        weights = np.exp(weights) / np.exp(weights).sum(1, keepdims=True)
    single = [(row, t, [1 + (t + i) % L]) for i, row in enumerate(reduction.rows) for t in range(module.T)]
    given = [cell for cell in single if cell[1] or cell[0] is not reduction.rows[0]]  # tokens of different positions
    for _ in range(2):  # the second time as rows of many positions
        together = bracket.as_one_row(given, reduction)
        if len(together) == len(single) - 1:
            return None
        held, due = (
            {(p, t, k) for row, t, counts in cells for p in row.positions for k in counts}
            for cells in (together, given)
        )
        if not due <= held:
            return True
        for row, *_ in together:
            slots = Slots(row)
            for position, (own,), away in zip(row.positions, row.slots, slots.away[0], strict=True):
                others = [m for m in range(L) if m != position]
                if [*own] != others or not np.allclose(slots.a[0] + away, weights[position][others]):
                    return True
        given = together
    return False


def test_rows_are_joined(monkeypatch):
    monkeypatch.setattr(bracket, "CLOSE", 9.0)
    found = [is_joined_wrongly(seed, kind) for seed in SEEDS for kind in KINDS]
    assert True not in found and False in found


ROWS = [
    ("positions.update(row.positions)", "positions.update(row.positions[:1])"),
    ("own.update(counts)", "own.update(counts[:1])"),
    ("if m != position]", "if m != L - 1 - position]"),
    ("slots[position] for position in positions)", "slots[max(positions)] for position in positions)"),
    ("rows[tuple(sorted(positions))]", "rows[max(rows)]"),
    ("normalised(reduction)", "mixing_weights(reduction.stored)"),
]


@pytest.mark.parametrize("fault", ROWS, ids=[wrong for _, wrong in ROWS])
def test_a_fault_in_joined_rows_is_found(fault, monkeypatch):
    monkeypatch.setattr(bracket, "CLOSE", 9.0)
    monkeypatch.setattr(bracket, "mixing_weights", mixing_weights, raising=False)
    with planted(bracket, "as_one_row", *fault):
        assert any(is_joined_wrongly(seed, kind) for seed in SEEDS for kind in KINDS)


def test_moments_that_take_long():
    """A cell is left out whose moments alone would take minutes, whatever the clock says."""
    module = HistogramTransformer("lin", T=3, L=200, d=3, p=2, dtype=torch.float64)
    with torch.no_grad():
        module.A.copy_(0.1 + torch.eye(200) + 1e-5 * torch.arange(200))
    reduction = Reduction(StoredModel.of(module))
    [(row, *_), *_] = bracket.as_one_row([(row, 0, [70]) for row in reduction.rows], reduction)
    table = Table(reduction, row, 0, Space(reduction.stored))
    nothing = np.zeros(3)
    behind = Behind(np.arange(199), np.ones(199), 0.0, nothing, nothing, np.zeros(199))
    assert CountedCell.of(table, 70, behind, 0.0) is None


@pytest.mark.parametrize("shape", [(nearly_equal.MOST_TERMS + 1, 2), (2, nearly_equal.MOST_TERMS + 1)])
def test_sums_of_many_terms_are_not_bounded_in_float32(shape):
    """Neither of many tokens nor of many neurons: a radius has room for so many roundings only."""
    table, k, behind, _ = cells(0, "lin")[0]
    large = copy(table)
    large.values = np.zeros(shape)
    assert CountedCell.of(table, k, behind, 0.02) is not None
    assert CountedCell.of(large, k, behind, 0.02) is None


AS_THOUGHT = dict(bracket.LOOKS)
FAR_LONGER = {least: 5 * times / 1.6 for least, times in bracket.LOOKS}


def looks_in_time(monkeypatch, seconds, each=FAR_LONGER):
    """By which looks those of 40 cells are counted that can be in so much time, where these take so long."""
    now, asked = [0.0], []

    class Cell:
        def shares(self, deadline, least):
            now[0] += each[least]
            asked.append(least)
            return [(Fraction(0), Fraction(1, 2))]

    monkeypatch.setattr(bracket, "seconds_to_count", lambda *_: 1.0)
    monkeypatch.setattr(CountedCell, "of", lambda *_: Cell())
    bounds = ShareBounds(Reduction(StoredModel.of(model(0, "lin"))))
    monkeypatch.setattr(bounds, "_worth", lambda *_: 1)
    monkeypatch.setattr(bounds, "_narrow", lambda *_: None)
    bounds._count([(None, 1, None)] * 40, Budget(seconds, lambda: now[0]).deadline())
    return asked


@pytest.mark.parametrize("seconds", [90.0, 120.0, 180.0, 300.0])
def test_closer_looks_leave_time_for_all_cells(seconds, monkeypatch):
    """However much longer they take than was thought; where there is time enough, all is looked at closer."""
    looks = looks_in_time(monkeypatch, seconds)
    assert len(looks) == 40
    assert set(looks) == {0.0} or seconds < 300


@pytest.mark.parametrize("seconds", [28.0, 32.0, 38.0, 44.0, 50.0])
def test_cells_are_looked_at_alike(seconds, monkeypatch):
    """One look of all, or two that follow each other, but for what time is left over in the end."""
    looks = looks_in_time(monkeypatch, seconds, AS_THOUGHT)
    assert len(looks) == 40 and len(set(looks[:30])) <= 2 and looks[0] < bracket.LOOKS[-1][0]
    assert bracket.FOR_COUNTING * seconds - 1.6 < sum(AS_THOUGHT[look] for look in looks) < seconds


def looks_of_two_paces(monkeypatch):
    """Own counts and looks of cells in 30 seconds, of which those of count 2 take longer than was thought."""
    now, asked = [0.0], []

    class Cell:
        def __init__(self, k):
            self.k = k

        def shares(self, deadline, least):
            now[0] += AS_THOUGHT[least] * (3.0 if self.k == 2 else 0.5)
            asked.append((self.k, least))
            return [(Fraction(0), Fraction(1, 2))]

    monkeypatch.setattr(bracket, "seconds_to_count", lambda *_: 1.0)
    monkeypatch.setattr(CountedCell, "of", lambda table, k, *_: Cell(k))
    bounds = ShareBounds(Reduction(StoredModel.of(model(0, "lin"))))
    monkeypatch.setattr(bounds, "_worth", lambda _, k: 3 - k)
    monkeypatch.setattr(bounds, "_narrow", lambda *_: None)
    bounds._count(
        [(None, 1, i) for i in range(20)] + [(None, 2, i) for i in range(5)], Budget(30.0, lambda: now[0]).deadline()
    )
    return asked


def is_by_own_pace(asked):
    """Whether own counts take turns, and slow ones do not keep others from being looked at closer."""
    in_turn = [k for k, _ in asked] == [1, 2] * 5 + [1] * 15
    return in_turn and all(look < 0.3 for k, look in asked[2:])


def test_each_own_count_has_a_pace_of_its_own(monkeypatch):
    assert is_by_own_pace(looks_of_two_paces(monkeypatch))


PACES = [("pace[k] = taken", "pace[:] = taken"), ("zip_longest(*of_count)", "zip_longest(*of_count[::-1])")]


@pytest.mark.parametrize(("right", "wrong"), PACES)
def test_a_pace_of_all_is_found(right, wrong, monkeypatch):
    with planted(ShareBounds, "_count", right, wrong):
        assert not is_by_own_pace(looks_of_two_paces(monkeypatch))


def test_closer_looks_that_take_no_end_are_found(monkeypatch):
    with planted(bracket, "how_close", "times * rest < left", "True"):
        assert len(looks_in_time(monkeypatch, 90.0)) < 40
