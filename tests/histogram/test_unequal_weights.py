"""How far unequal weights take differences, and how often neurons change sides: enumeration's are within the bounds."""

import copy
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import torch
from models.selection import first

from tests.histogram.test_moments import logits_times_D, model, tables
from tests.planted import planted
from verify.tasks.histogram import unequal_weights
from verify.tasks.histogram.moments import Moments
from verify.tasks.histogram.tabulating import CountReadout
from verify.tasks.histogram.unequal_weights import RARELY, TIMES

KINDS = ["lin", "lin+sftm"]
CHANGES = ["none", "on", "one", "drift"]
SEEDS = range(6)


def moment_of(order, values, x, own):
    """A moment of the sum over slots, in fractions, over all choices of slots and tokens."""
    total, (*others, last) = Fraction(0), map(Fraction, values)
    for chosen in combinations(range(len(x)), own):
        free = [s for s in range(len(x)) if s not in chosen]
        start = sum((Fraction(x[s]) * last for s in chosen), Fraction(0))
        for tokens in product(others, repeat=len(free)):
            total += (start + sum(Fraction(x[s]) * v for s, v in zip(free, tokens, strict=True))) ** order
    return total / comb(len(x), own) / len(others) ** (len(x) - own)


def moment_is_wrong(size=1.0):
    rng = np.random.default_rng(5)
    for own, slots in [(0, 3), (1, 3), (2, 4), (3, 3), (0, 1)]:
        values, x = rng.standard_normal((4, 2)) * size, rng.standard_normal((2, slots))
        for order, found in unequal_weights.roots_of_moments(values, x, own).items():
            due = [[moment_of(order, row, weights, own) for row in values.T.tolist()] for weights in x.tolist()]
            for p, j in product(range(2), range(2)):
                if not due[p][j] <= Fraction(float(found[p, j])) ** order <= due[p][j] * Fraction(1002, 1000) ** order:
                    return True
    return False


@pytest.mark.parametrize("size", [1.0, 1e-150, 1e150])
def test_moments_are_exact(size):
    assert not moment_is_wrong(size)


def test_moments_of_nothing():
    """Equal weights, and values of zero, take nothing away but rounding."""
    zero, some = np.zeros((3, 2)), np.ones((3, 2))
    for values, x in ((zero, np.ones((1, 4))), (some, np.zeros((1, 4)))):
        assert all((found < 1e-300).all() for found in unequal_weights.roots_of_moments(values, x, 1).values())


def test_markov():
    assert all(1 / times**order <= RARELY for order, times in TIMES.items()) and RARELY < 2e-4


@cache
def changed(seed, kind, how):
    """A model as it is; all neurons on; one neuron, which is mostly on; such a one, and other slots of more weight."""
    module = copy.deepcopy(model(seed, kind))
    with torch.no_grad():
        if how == "on":
            module.b_1 += 50
        if how == "drift" and kind == "lin":
            module.A += 0.05 * torch.arange(module.L)[:, None] * (1 - torch.eye(module.L))
        if how in ("one", "drift"):
            module.W_2[1:] = 0
            module.b_1 += 1
    return module


@cache
def cells(seed, kind, how):
    """Each cell, and of each position its inputs' differences, and forms at equal weights and as they are."""
    module, found = changed(seed, kind, how), []
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    for table in tables(module):
        values = table.values[[np.append(table.tokens, table.t).tolist().index(s) for s in range(module.T)]]
        for k in range(1, module.L):
            right, inputs = k - module.first_count, []
            for position in range(module.L):
                at = (sequences[:, position] == table.t) & (counts[:, position] == k)
                of = logits[at, position]
                held = values[np.delete(sequences[at], position, axis=1)]  # (inputs, slots, r)
                equal = table.exact[0].mid + table.slots.a[0] * held.sum(1)
                true = equal + table.shifts[position] + np.einsum("s,nsr->nr", table.slots.away[0][position], held)
                inputs.append((np.delete(of[:, [right]] - of, right, axis=1), equal, true))
            found.append((table, k, inputs))
    return found


def radius_is_wrong(seed, kind, how, order=8):
    """Whether the root of a moment of what differences are off by is above the radius for one such root."""
    for table, k, inputs in cells(seed, kind, how):
        readout = CountReadout.of(table, k)
        forms = np.concatenate([z for _, *both in inputs for z in both])
        is_on, is_off = (forms > 0).all(0), (forms < 0).all(0)
        is_on[-1], is_off[-1] = True, False
        radius = unequal_weights.usual_radius(table, readout, is_on, ~(is_on | is_off))
        for differences, equal, _ in inputs:
            z = np.hstack([np.maximum(equal[:, :-1], 0), equal[:, -1:]])
            off = ((differences - z @ readout.d.T) ** order).mean(0) ** (1 / order)
            if not (off <= radius + 1e-9).all():
                return True
    return False


@pytest.mark.parametrize("order", TIMES)
@pytest.mark.parametrize("kind", first(1, KINDS))
def test_radius(kind, order, monkeypatch):
    monkeypatch.setattr(unequal_weights, "TIMES", {order: 1})
    assert not any(radius_is_wrong(seed, kind, how, order) for seed in SEEDS for how in CHANGES)


def test_the_less_of_both_multiples(monkeypatch):
    """A radius is never above that of one moment alone, and is less than either of them somewhere."""
    both, alone, less = dict(TIMES), [], 0
    for table, k, _ in cells(0, "lin", "none"):
        readout, is_bent = CountReadout.of(table, k), np.arange(len(table.start)) < len(table.start) - 1
        for chosen in ({8: both[8]}, {16: both[16]}, both):
            monkeypatch.setattr(unequal_weights, "TIMES", chosen)
            alone.append(unequal_weights.usual_radius(table, readout, ~is_bent, is_bent))
        *each, found = alone[-3:]
        assert all((found <= one).all() for one in each)
        less += (found < np.maximum(*each)).sum()
    assert less


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_many_radii_and_sides(kind, monkeypatch):
    monkeypatch.setattr(unequal_weights, "TIMES", {8: 1})
    for seed in range(60):
        assert not any(radius_is_wrong(seed, kind, how) for how in CHANGES) and not sides_are_wrong(seed, kind), seed


FAULTS = [
    ("usual_radius", "readout.d * is_bent / 2", "0"),
    ("usual_radius", "np.abs(shifts @ linear.T + drift * of_q)", "np.abs(shifts @ linear.T)"),
    ("usual_radius", "np.abs(shifts @ linear.T + drift * of_q)", "np.abs(drift * of_q)"),
    ("usual_radius", "(of_linear[moment] + ", "(0 * of_linear[moment] + "),
    ("usual_radius", "+= np.abs(shifts[:, is_bent] + drift * of_bent) @ d_bent.T", "+= 0"),
    ("usual_radius", "+ of_sizes[moment] @ d_bent.T", ""),
    ("usual_radius", ".max(0)\n", ".min(0)\n"),
    ("roots_of_moments", "/ comb(slots, own)", "/ comb(slots, own) ** 2"),
    ("roots_of_moments", "* factorial(moment)", ""),
    ("roots_of_moments", "before[:-1, : MOMENT + 1 - i] * by_own[i]", "before[:-1, : MOMENT + 1 - i] * by_others[i]"),
    ("roots_of_moments", "most * (size * largest)", "most * largest"),
    ("roots_of_moments", "most * (size * largest)", "most * size"),
    (
        "roots_of_moments",
        "found[own, moment] / comb(slots, own) * factorial(moment)",
        "(found[own, 4] / comb(slots, own) * 24) ** 2",
    ),
    (
        "usual_radius",
        "own, n = readout.k - 1, table.stored.L - readout.k",
        "own, n = readout.k, table.stored.L - readout.k - 1",
    ),
    ("usual_radius", "+ drift * of_bent", ""),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{right} -> {wrong}" for _, right, wrong in FAULTS])
def test_a_planted_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(unequal_weights, "TIMES", {8: 1})
    with planted(unequal_weights, *fault):
        assert moment_is_wrong() or any(radius_is_wrong(*case) for case in product(SEEDS, KINDS, CHANGES))


def sides_are_wrong(seed, kind):
    """Whether a neuron is positive, or negative, more often than is said; None where it says only always or never."""
    seen = False
    for table, k, inputs in cells(seed, kind, "none"):
        behind = Moments(table, [k]).behind(k)
        seen |= bool(((behind.on < 1) & (behind.on > 0) & (behind.off < 1) & (behind.off > 0)).any())
        for forms in (z for _, *both in inputs for z in both):
            if not ((forms > 0).mean(0) <= behind.on + 1e-12)[:-1].all():
                return True
            if not ((forms < 0).mean(0) <= behind.off + 1e-12)[:-1].all():
                return True
    return False if seen else None


@pytest.mark.parametrize("kind", KINDS)
def test_sides(kind):
    found = [sides_are_wrong(seed, kind) for seed in SEEDS]
    assert not any(found) and False in found


SIDES = [
    ("behind", "self._crossing(n, is_on)", "self._crossing(n, ~is_on)"),
    ("_crossing", "(at - slack)", "(at + slack)"),
    ("_crossing", "(at + slack)", "(at - slack)"),
    ("_crossing", "= found", "= found[::-1]"),
    ("_crossing", "start + n * grid.low", "start"),
]


@pytest.mark.parametrize("fault", SIDES, ids=[wrong for _, _, wrong in SIDES])
def test_a_fault_in_sides_is_found(fault):
    with planted(Moments, *fault):
        assert any(sides_are_wrong(seed, kind) for seed in SEEDS for kind in KINDS)
