"""Multisets by prefixes, compiled and by numpy: enumeration, tables of all multisets, scaled weights, faults."""

import threading
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from itertools import combinations_with_replacement, count
from math import comb, factorial, prod

import numpy as np
import pytest
import torch
from models.random_models import random_model, trained_like
from models.selection import first
from oracles.histogram import differs

from constructions import relation_counting
from constructions.histogram import HistogramTransformer
from tests.clocks import ENDLESS, looks
from tests.histogram.test_scaled_weights import drawn_model, exactly
from tests.planted import planted
from verify.frame.clock import Deadline
from verify.tasks.histogram import by_cost, by_prefix, loops, narrow, on_device, prefixes
from verify.tasks.histogram.by_prefix import ByPrefix
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.narrow import Narrow
from verify.tasks.histogram.orders import Dominance, Orders
from verify.tasks.histogram.prefixes import Prefixes, with_leaf
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import CountReadout, Space, Table, Tabulated

KINDS = ["dot", "bos", "dot+sftm", "bos+sftm"]
SIZES = [(4, 4), (3, 5), (5, 3), (2, 6)]
COMPILED = pytest.param("compiled", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="weightproof[fast]"))
LOOPS = ["numpy", COMPILED]
ALSO_TORCH = [*LOOPS, "torch"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Every cell is decided by prefixes, in small parts, with leaves of few tokens."""
    monkeypatch.setattr(by_cost, "FOR_LOOPS", -1)
    monkeypatch.setattr(by_cost, "has_fast_loop", lambda: True)
    monkeypatch.setattr(by_prefix, "FIRST_LOOK", 4)
    monkeypatch.setattr(by_prefix, "A_LOOK", 40)
    monkeypatch.setattr(by_prefix, "UNSUITED", 0)
    monkeypatch.setattr(prefixes, "IN_CACHE", 12)
    with_leaf.cache_clear()
    yield
    with_leaf.cache_clear()


@pytest.fixture
def loop(request, monkeypatch):
    """The loop that is named."""
    monkeypatch.setattr(loops, "is_compiled", lambda: request.param == "compiled")
    if request.param == "torch":
        monkeypatch.setattr(by_prefix, "is_compiled", lambda: False)
        monkeypatch.setattr(by_prefix, "device_at_hand", lambda: torch.device("cpu"))
        monkeypatch.setattr(by_prefix, "WORTH", -1)
        monkeypatch.setattr(by_prefix, "DEVICE_LOOK", 60)
        monkeypatch.setattr(on_device, "WORK", 100)
    return request.param


@cache
def model(seed):
    """Trained-like weights of a model whose slots have equal weights."""
    T, L = SIZES[seed % 4]
    return trained_like(seed, KINDS[seed // 4 % 4], T, L, p=2 + seed % 5, steps=15)


@pytest.mark.parametrize("loop", ALSO_TORCH, indirect=True)
@pytest.mark.parametrize("models", first(1, [8, 200]))
def test_enumeration(models, loop):
    for seed in range(models):
        assert differs(model(seed), certify(model(seed), budget=ENDLESS)) is None, seed


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@pytest.mark.parametrize("models", first(1, [12, 1200]))
def test_random_models_with_ties(models, loop):
    for seed in range(models):
        module = random_model(seed)
        if not module.is_linear:
            assert differs(module, certify(module, budget=ENDLESS)) is None, seed


def gaussian(seed):
    """A model of 4 to 9 tokens in 4 to 8 places, too large for enumeration."""
    g = torch.Generator().manual_seed(seed)
    T, L, p = (int(torch.randint(low, high, (1,), generator=g)) for low, high in ((4, 10), (4, 9), (1, 20)))
    module = HistogramTransformer(KINDS[seed % 4], T=T, L=L, d=int(torch.randint(1, 9, (1,), generator=g)), p=p)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) * parameter.shape[0] ** -0.5)
        module.b_2[0] += 4.0 * (seed % 3)
    return module


@pytest.mark.parametrize("loop", ALSO_TORCH, indirect=True)
@pytest.mark.parametrize("models", first(1, [3, 500]))
@pytest.mark.deep
def test_tables_of_all_multisets_give_the_same(models, loop, monkeypatch):
    monkeypatch.setattr(prefixes, "IN_CACHE", 500)
    for seed in range(models):
        found = certify(gaussian(seed), budget=ENDLESS)
        with monkeypatch.context() as patch:
            patch.setattr(by_cost, "FOR_LOOPS", 1 << 60)
            due = certify(gaussian(seed), budget=ENDLESS)
        assert found.error_share == due.error_share and found.counterexample == due.counterexample, seed
        assert found.verdict is due.verdict and found.extra["wrong_pairs"] == due.extra["wrong_pairs"], seed


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_margins_of_proved_cells(loop):
    """Where no input of a cell is wrong, its smallest margin is that of a table of all multisets."""
    cells = 0
    for seed in count():
        reduction = Reduction(StoredModel.of(gaussian(seed)))
        for t in range(reduction.stored.T):
            table = Table(reduction, reduction.rows[0], t, Space(reduction.stored))
            for k in range(1, reduction.stored.L):
                due, cell = Tabulated(), Narrow.of(table, k)
                table.decide(k, due, Smallest())
                if cell is None or due.wrong_pairs or due.left:
                    continue
                by = ByPrefix(table, k, cell, Smallest(), np.inf)
                assert by.run(Deadline.never(), lambda share: None) and not by.found.wrong_pairs
                assert by.found.margins[k] == pytest.approx(due.margins[k], rel=1e-9)
                known = ByPrefix(table, k, cell, Smallest(), due.margins[k] / 2)
                assert known.run(Deadline.never(), lambda share: None) and not known.near
                cells += 1
        if cells >= 8:
            return


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@pytest.mark.parametrize("models", first(1, [24, 2000]))
def test_scaled_layers(models, loop):
    """Weights times powers of two, down to 2^-1000 and up to 2^1000, against fractions."""
    for seed in range(models):
        module = drawn_model(seed)
        if module.is_linear:
            continue
        margins = exactly(module)
        wrong = sum(margin <= 0 for margin in margins.values())
        found = certify(module, budget=ENDLESS)
        assert (found.verdict.value == "PROVED") <= (not wrong) and (found.verdict.value == "REFUTED") <= (wrong > 0)
        if found.error_share is not None:
            low, high = (Fraction(share) * len(margins) for share in found.error_share)
            assert low <= wrong <= high, seed


def scaled(seed):
    """Gaussian weights, layers times powers of two that float32 can just hold, or not."""
    module, rng = gaussian(seed), np.random.default_rng([7, seed])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2.0 ** int(rng.integers(-60, 25)))
    return module.double()


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 300)]))
def test_every_difference_is_within_its_radius(seeds):
    with np.errstate(all="ignore"):  # as where proofs are made: overflow decides nothing
        check_differences(seeds)


def check_differences(seeds):
    """The float32 differences of all multisets against those of float64 and what it rounds away itself."""
    seen = []
    for seed in seeds:
        for module in (gaussian(seed), scaled(seed)):
            reduction = Reduction(StoredModel.of(module))
            table = Table(reduction, reduction.rows[0], seed % module.T, Space(reduction.stored))
            k = 1 + seed % (module.L - 1)
            cell, readout = Narrow.of(table, k), CountReadout.of(table, k)
            if cell is None:
                continue
            P, W = cell.prefixes, cell.W
            i = np.repeat(np.arange(P.number), P.leaves)
            j = np.concatenate([np.arange(n) for n in P.leaves])
            points = by_prefix.CellMultisets(k, len(i), (P.tokens(i, j),))
            low, high, D = table.singly(points, readout)
            forms = cell.larger[P.larger[i]] + cell.smaller[P.smaller[i]] + cell.leaves[:, j].T
            forms[:, :-1] = np.maximum(forms[:, :-1], 0)
            for order in (slice(None), slice(None, None, -1)):
                computed = np.zeros((len(i), W.shape[1]), dtype=np.float32)
                for row in np.arange(len(W))[order]:
                    computed += forms[:, [row]] * W[row]
                error = cell.error.astype(np.float64)
                assert (computed - error <= high).all() and (computed + error >= low).all(), seed
                own = (high - low).max() / 2
                seen.append(bool((np.abs(computed - (low + high) / 2) > 4 * own).any()))
            assert (forms[:, -1] + cell.D_error >= D * (1 - 1e-9) - cell.D_error).all()
    assert sum(seen) > len(seen) / 4  # a radius of float64 alone would not hold


def test_prefixes_and_leaves_are_all_multisets_with_all_their_orders():
    for S, m in ((1, 3), (3, 5), (4, 4), (5, 1), (3, 0)):
        for leaf in range(min(m, 1), m + 1):
            P, seen = Prefixes(S, m, leaf, m), []
            for i in range(P.number):
                j = np.arange(P.leaves[i])
                for at, tokens in zip(j, P.tokens(np.full(len(j), i), j).tolist(), strict=True):
                    seen.append(tuple(tokens))
                    orders = factorial(m) // prod(map(factorial, Counter(tokens).values()))
                    assert int(P.outer[i]) * int(P.orders(i)[at]) == orders == P.pairs(np.array([i]), np.array([at]))
                    shares = at >= P.unshared[i]
                    distinct = P.distinct[i] + P.multisets.distinct[leaf][at] - shares
                    assert distinct == len(set(tokens))
            assert sorted(seen) == sorted(combinations_with_replacement(range(S), m))
            assert P.until[-1] == len(seen) == comb(S + m - 1, m)


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@pytest.mark.parametrize(("T", "L"), first(1, [(2, 80), (3, 55)]))
def test_more_sequences_than_64_bits_count(T, L, loop):
    module = relation_counting.dot(T=T, L=L, d=T, dtype=torch.float64)
    with torch.no_grad():
        module.b_2[5] += 3
        module.E += 0.01 * torch.randn(module.E.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = certify(module, budget=ENDLESS)
    by_cost.FOR_LOOPS = 1 << 60
    assert found.error_share == certify(module, budget=ENDLESS).error_share and 0 < found.error_share[0] < 1


def drawn_asked(rng, r, rivals, counts_near=False):
    """A loop's task with forms and weights that are drawn, and a threshold that some are below."""
    P = Prefixes(int(rng.integers(1, 8)), int(rng.integers(2, 7)), 2, 8)
    single = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    n, forms, neurons = P.multisets.number(2), r + (rivals - 1) * counts_near, r - counts_near
    leaves = np.pad(single(forms, n), ((0, 0), (0, 2 * loops.LANES)))
    large, small = (single(P.multisets.number(half), forms) for half in reversed(P.halves))
    large[:, -1] += 0 if counts_near else 9
    W = single(neurons, rivals) + np.float32(0.5)
    cell = Narrow(P, large, small, leaves, W, np.full(rivals, 0.3, dtype=np.float32), np.full(forms, 0.1))
    limit, counted = rng.integers(-1, 3, P.number).astype(np.int32), np.zeros(P.number, dtype=np.int64)
    wrong, entries = np.zeros(P.number, dtype=np.int64), np.zeros((loops.room(cell) + 30, 4), dtype=np.int32)
    asked = loops.LoopAsked(cell, 0, P.number, np.float32(0.05), np.float32(0.1), limit, wrong, entries)
    if not counts_near:
        return asked
    orders, weights = drawn_orders(rng, cell), rng.integers(1, 9, P.number).astype(np.float64)
    return replace(asked, closer=loops.Closer(orders, counted, weights, np.zeros((2, len(orders.variance)))))


def drawn_orders(rng, cell):
    """Orders that bound some differences further than the cell's error, with one or two vectors of tokens."""
    P, (neurons, rivals), tokens = cell.prefixes, cell.W.shape, 16 * int(rng.integers(1, 3))
    single = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    held = [rng.integers(0, 3, (P.multisets.number(half), tokens)).astype(np.float32) for half in reversed(P.halves)]
    places = rng.integers(0, tokens, (P.leaf, cell.leaves.shape[1])).astype(np.int32)
    above = Dominance(*np.abs(single(2, rivals)))
    values, shifts = 0.01 * single(neurons + rivals, tokens), 0.01 * single(neurons + rivals, 16)
    reach, rest = (0.02 * np.abs(single(n)) for n in (neurons, rivals))
    variance = np.abs(single(16))
    return Orders(
        reach,
        values,
        shifts,
        0.1 * single(16),
        *held,
        places,
        rest,
        variance,
        0.1 * single(16),
        np.float32(4),
        np.float32(0.3),
        above,
        int(rng.integers(1, 4)),
    )


def fresh(asked):
    """The same task, of which nothing is written yet."""
    of = asked.closer
    closer = of and replace(of, near=np.zeros_like(of.near), shares=np.zeros_like(of.shares))
    return replace(asked, wrong=np.zeros_like(asked.wrong), closer=closer)


def said(loop, asked):
    """What a loop says: sums of the wrong, and of the near where they are counted, and each multiset of its entries."""
    found, begin = set(), 0
    while begin < asked.last:
        begin, number = loop(replace(asked, first=begin))
        for p, j, bits, kind in asked.entries[:number].tolist():
            found |= {(p, j + lane, kind) for lane in range(loops.LANES) if bits >> lane & 1}
    return asked.wrong.tolist() + ([] if asked.closer is None else asked.closer.near.tolist()), found


def compiled(asked):
    narrow, closer = asked.narrow, asked.closer
    shape = None if closer is None else loops.LoopShape.of(narrow, closer.orders)
    return loops._compiled(len(narrow.leaves), narrow.W.shape[1], shape)


@pytest.mark.skipif(not find_spec("llvmlite"), reason="weightproof[fast]")
@pytest.mark.parametrize("shapes", first(1, [range(4), range(4, 120)]))
def test_both_loops_say_the_same(shapes, monkeypatch):
    seen, uncertain = set(), 0
    for seed in shapes:
        rng = np.random.default_rng([3, seed])
        asked = drawn_asked(rng, int(rng.integers(1, 40)), int(rng.integers(1, 25)), seed % 4 == 3)
        due = said(loops.in_numpy, asked)
        for features in ("avx512f", "none"):
            loops._compiled.cache_clear()
            monkeypatch.setattr(loops, "has_wide_registers", lambda features=features: features == "avx512f")
            again = fresh(asked)
            assert said(compiled(asked), again) == due, seed
            if asked.closer is not None:
                assert np.allclose(again.closer.shares, asked.closer.shares, rtol=1e-4, atol=1e-3), seed
                low, high = asked.closer.shares
                uncertain += int((low < high).any())
        seen |= {kind for _, _, kind in due[1]} | {"wrong" for total in due[0] if total}
    loops._compiled.cache_clear()
    assert uncertain
    assert seen == {loops.NEAR, loops.WRONG, "wrong"}


def device_differs():
    """The first drawn task on which a device says other than numpy, None where there is none."""
    seen, loop = set(), on_device.DeviceLoop(torch.device("cpu"))
    for seed in range(20):
        rng = np.random.default_rng([3, seed])
        asked = drawn_asked(rng, int(rng.integers(1, 40)), int(rng.integers(1, 25)), seed % 4 == 3)
        if asked.closer is not None:
            closer = asked.closer
            asked = replace(asked, closer=replace(closer, orders=replace(closer.orders, least=np.inf)))
        due = said(loops.in_numpy, asked)
        if said(loop, fresh(asked)) != due:
            return seed
        seen |= {kind for _, _, kind in due[1]} | {"wrong" for total in due[0] if total}
    assert seen == {loops.NEAR, loops.WRONG, "wrong"}
    return None


def test_a_device_says_what_numpy_says():
    assert device_differs() is None


DEVICE_FAULTS = [
    ("__call__", "torch.where(near, ways, 0)", "torch.where(wrong, ways, 0)"),
    ("_judge", "z[:neurons].clamp_(min=0)", ""),
    ("_judge", "differences + z[neurons:]", "differences"),
    ("_judge", "differences - error[:, None, None]", "differences"),
    ("_judge", "differences + error[:, None, None]", "differences"),
    ("_judge", "+ float(asked.rest)", ""),
    ("_judge", "float(asked.slope) * D", "0 * D"),
    ("_judge", "<= limit", "< limit"),
    ("_judge", "f_from[:, None] +", "0 * f_from[:, None] +"),
    ("_load", "narrow is not self.narrow", "not self.tables"),
    ("_parts", "chosen[leaves == n]", "chosen[leaves <= n]"),
]


@pytest.mark.parametrize("fault", DEVICE_FAULTS, ids=[right for _, right, _ in DEVICE_FAULTS])
def test_a_fault_on_a_device_is_found(fault):
    with planted(on_device.DeviceLoop, *fault):
        try:
            assert device_differs() is not None
        except IndexError:  # tables of another cell
            assert fault[0] == "_load"


def test_no_device_with_fewer_bits(monkeypatch):
    """One is at hand only where it multiplies in float32."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    keeps = [True]
    monkeypatch.setattr(on_device, "keeps_all_bits", lambda device: keeps[0])
    assert on_device.device_at_hand() == torch.device("cuda")
    with monkeypatch.context() as patch:
        patch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "1")
        assert on_device.device_at_hand() is None
    with monkeypatch.context() as patch:
        patch.setattr(on_device, "lowered", lambda fmt: ["torch.get_float32_matmul_precision() is 'high'"])
        assert on_device.device_at_hand() is None
    keeps[0] = False
    assert on_device.device_at_hand() is None


def test_bits_that_a_product_loses_are_seen():
    cpu = torch.device("cpu")
    assert on_device.keeps_all_bits(cpu)
    with torch.autocast("cpu", torch.bfloat16):
        assert not on_device.keeps_all_bits(cpu)


def test_threads_give_what_one_gives(monkeypatch):
    if not find_spec("llvmlite"):
        pytest.skip("weightproof[fast]")
    found = []
    for number in (1, 2, 8):
        monkeypatch.setattr(by_prefix, "threads", lambda number=number: number)
        certificates = [certify(gaussian(seed), budget=ENDLESS) for seed in range(3)]
        found.append([(one.error_share, one.counterexample) for one in certificates])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
@pytest.mark.parametrize("number", [1, 2])
def test_an_interruption_leaves_no_thread(number, loop, monkeypatch):
    monkeypatch.setattr(by_prefix, "threads", lambda: number)

    def interrupt(share):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        certify(gaussian(1), budget=ENDLESS, progress=interrupt)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("loop", ALSO_TORCH, indirect=True)
def test_time_that_is_up(loop):
    """Whenever time ends, the share lies in the bracket."""
    module = gaussian(4)
    due = certify(module, budget=ENDLESS).error_share
    brackets = [certify(module, budget=looks(number)).error_share for number in (3, 30, 300)]
    assert all(low <= due[0] <= high for low, high in brackets) and len(set(brackets)) > 2


FAULTS = [
    (Narrow, "of_forms", "start[:, None] + sums[large]", "sums[large]"),
    (Prefixes, "outer", "comb(self.m, a + self.leaf)", "comb(self.m, self.leaf)"),
    (Prefixes, "leaves", "self.least + 1", "self.least"),
    (Prefixes, "_f", "// among[c]", ""),
    (Prefixes, "unshared", "if not self.size", "if True"),
    (ByPrefix, "_limit", "most + 1 -", "most - 1 -"),
    (ByPrefix, "_decide", "+= wrong * self.each", "+= wrong"),
    (ByPrefix, "_add_smallest", "least <= best.distinct", "least < best.distinct"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[name for _, name, *_ in FAULTS])
def test_a_planted_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(loops, "is_compiled", lambda: False)
    monkeypatch.setattr(prefixes, "IN_CACHE", 0)
    with planted(*fault):
        with_leaf.cache_clear()
        assert is_broken(one_count_wrong()) or any(is_broken(model(seed)) for seed in range(8))


@cache
def one_count_wrong():
    """Only tokens that occur once are counted wrong: the smallest input is none of the first query token."""
    module = relation_counting.dot(T=3, L=4, d=3)
    with torch.no_grad():
        module.b_2[0] -= 9.0
    return module


@pytest.mark.parametrize("fault", [None, (ByPrefix, "_look_closer", "* self.each", "")])
def test_everything_near_a_tie(fault, monkeypatch):
    """Nothing is decided in float32: all multisets are looked at closer."""
    monkeypatch.setattr(loops, "is_compiled", lambda: False)
    monkeypatch.setattr(narrow, "above", lambda x: np.full(x.shape, np.float32(1e30)))
    monkeypatch.setattr(by_prefix, "AT_ONCE", 30)
    with planted(*fault) if fault else nullcontext():
        assert any(is_broken(model(seed)) for seed in (0, 4, 8, 12)) is bool(fault)


def test_a_radius_of_float64_alone_is_found():
    right = "(off @ size + gamma32(r + 4) * (most @ size))"
    with planted(Narrow, "of_forms", right, "(table.form_error @ size)"), pytest.raises(AssertionError):
        check_differences(range(6))


def is_broken(module):
    try:
        return differs(module, certify(module, budget=ENDLESS)) is not None
    except Exception:  # shapes do not fit any more
        return True
