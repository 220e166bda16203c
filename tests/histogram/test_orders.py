"""In what share of a multiset's orders differences are ahead: enumeration's lie within, and planted faults do not."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.histogram.test_moments import logits_times_D, tables
from tests.histogram.test_unequal_weights import CHANGES, changed
from tests.planted import planted
from verify.tasks.histogram import prefixes
from verify.tasks.histogram.moments import _combined
from verify.tasks.histogram.narrow import LANES, Narrow
from verify.tasks.histogram.orders import Dominance, Orders
from verify.tasks.histogram.tabulating import CountReadout

KINDS = ["lin", "lin+sftm"]
SEEDS = range(4)


@pytest.fixture(autouse=True)
def short_leaves(monkeypatch):
    """Prefixes have tokens, although models are small."""
    monkeypatch.setattr(prefixes, "IN_CACHE", 12)
    prefixes.with_leaf.cache_clear()
    yield
    prefixes.with_leaf.cache_clear()


@cache
def cells(seed, kind, how):
    """Each cell, and all differences by position and the sorted tokens of its other slots."""
    module, found = changed(seed, kind, how), []
    sequences, logits = logits_times_D(module)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    for table in tables(module):
        for k in range(1, module.L):
            at, right, inputs = (sequences == table.t) & (counts == k), k - module.first_count, {}
            for position in range(module.L):
                of, held = logits[at[:, position], position], np.delete(sequences[at[:, position]], position, axis=1)
                differences = np.delete(of[:, [right]] - of, right, axis=1)
                for tokens, difference in zip(np.sort(held, axis=1).tolist(), differences, strict=True):
                    inputs.setdefault((position, *tokens), []).append(difference)
            found.append((table, k, inputs))
    return found


def is_exceeded(seed, kind, how):
    """Whether a larger share of some multiset's orders has a difference on one side of some number than it should."""
    rng = np.random.default_rng(seed)
    for table, k, inputs in cells(seed, kind, how):
        L, r = len(table.row.positions), len(table.start)
        reach = table.spread + table.form_error
        steps, m = table.steps(0).astype(float), table.stored.L - k
        is_on, is_off = table.start + m * steps.min(1) > reach, table.start + m * steps.max(1) < -reach
        is_on[-1], is_off[-1] = True, False
        is_bent, readout = ~(is_on | is_off), CountReadout.of(table, k)
        narrow = Narrow.in_parts(table, k, readout.d.T, is_on, is_bent)
        of, P = Orders.of(table, narrow, readout, is_on, is_bent), narrow.prefixes
        assert L == table.stored.L and r == len(is_on)
        rivals = np.arange(len(readout.d))
        for i, number in enumerate(P.leaves.tolist()):
            lanes = np.minimum(np.arange(LANES), number - 1)[None]
            near = (rng.random((1, LANES)) < 0.5) & (np.arange(LANES) < number)
            near[0, rng.integers(0, number)] = True
            sides = (x.repeat(len(rivals), 1) for x in of._sides(narrow, np.array([i]), lanes, near))
            held = of.larger[P.larger[[i]]] + of.smaller[P.smaller[[i]]]
            leaves = of.places[:, lanes].repeat(len(rivals), 1)
            R, S, moved, bent = of._spread(narrow.W, rivals, *sides, held, leaves)
            z = (narrow.larger[P.larger[i]] + narrow.smaller[P.smaller[i]])[:, None] + narrow.leaves[:, lanes[0]]
            neurons = is_bent.sum()
            computed = narrow.W.T @ np.maximum(z[:neurons], 0) + z[neurons:]
            for lane in np.flatnonzero(near[0]).tolist():
                tokens = table.tokens[P.tokens(np.array([i]), lanes[:, lane])[0]].tolist() + [table.t] * (k - 1)
                due = np.array([inputs[position, *sorted(tokens)] for position in range(L)])  # (L, orders, rivals)
                each = np.sort(due.reshape(-1, len(rivals)), axis=0)
                for at in {0, len(each) - 1, *rng.integers(0, len(each), 2).tolist()}:
                    number = each[at] + rng.choice([-2e-9, 2e-9])
                    f = (computed[:, lane] - number).astype(np.float32)
                    behind, ahead = of.shares(f, R[:, lane], moved + of.drift_each * S[:, [lane]], bent)
                    is_over = (
                        behind[:, :L] < (due < number - 1e-9).mean(1).T,
                        ahead[:, :L] < (due > number + 1e-9).mean(1).T,
                    )
                    if np.any(is_over):
                        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_enumeration(kind):
    assert not any(is_exceeded(seed, kind, how) for seed, how in product(SEEDS[:2], CHANGES))


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind):
    for seed in range(60):
        assert not any(is_exceeded(seed, kind, how) for how in CHANGES), seed


FAULTS = [
    (Orders, "of", "(d * is_on) @ rows", "0 * d @ rows"),
    (Orders, "of", "larger[:, len(table.tokens)] += own", "pass"),
    (Orders, "of", "_in_vectors(shifts)", "0 * _in_vectors(shifts)"),
    (Orders, "of", "_in_vectors(drift[None])", "0 * _in_vectors(drift[None])"),
    (Orders, "of", "table.spread[is_bent] + ", "0 * "),
    (Orders, "_sides", "z > reach", "z > -reach"),
    (Orders, "_sides", "z < -reach", "z < reach"),
    (Orders, "_sides", ".all(2)", ".any(2)"),
    (Orders, "_sides", "0.5)).astype", "0)).astype"),
    (Orders, "_sides", "self.reach[:, None] * np.float32(0.5)", "0 * self.reach[:, None]"),
    (Orders, "of", "(x - x.mean(1, keepdims=True)) ** 2", "0 * x"),
    (Orders, "of", "/ max(1, slots - 1)", "/ slots**3"),
    (Orders, "of", "drift[None] / max(1, slots)", "0 * drift[None]"),
    (Orders, "_spread", "W * alpha", "W"),
    (Orders, "_spread", "(np.abs(W) * beta)", "0 * (np.abs(W) * beta)"),
    (Orders, "_spread", "self.drift * centre", "0 * centre"),
    (Orders, "_spread", "(held * away**2)", "0 * (held * away**2)"),
    (Orders, "_spread", "(of_leaf**2)", "0 * (of_leaf**2)"),
    (Orders, "_spread", "of_leaf.sum(0), shift", "0 * of_leaf.sum(0), shift"),
    (Orders, "shares", "f[:, None] + moved", "f[:, None] - moved"),
    (Orders, "shares", "g - off, variance), ", "g + off, variance), "),
    (Orders, "shares", "-g - off", "g - off"),
    (Orders, "shares", "bent[:, None], f", "0 * bent[:, None], f"),
    (Orders, "shares", "self.variance * R[:, None]", "0 * self.variance * R[:, None]"),
    (Orders, "_cantelli", "square > self.last * variance", "square > variance / 2"),
    (Orders, "_cantelli", "m > 0", "m > -9"),
    (Orders, "_cantelli", "variance / (variance + square)", "variance / (variance + 4 * square)"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{right} -> {wrong}" for *_, right, wrong in FAULTS])
def test_a_planted_fault_is_found(fault):
    with planted(*fault):
        assert any(is_exceeded(*case) for case in product(SEEDS, KINDS, CHANGES))


def test_one_difference_by_another():
    """Where the first is positive and what is left of another one too, that is: in all combinations that are drawn."""
    rng, seen = np.random.default_rng(4), 0
    for _ in range(40):
        f = rng.standard_normal((50, 1)) * rng.standard_normal(5) + 0.3 * rng.standard_normal((50, 5)) + 0.5
        order, base, y = _combined(f)
        assert sorted(order) == list(range(5)) and (y >= 0).all() and y[0] == 0 and set(base.tolist()) <= {0, 1}
        assert (base[:2] == 0).all()
        ordered = f[:, order]
        rest = ordered - y * ordered[:, base]
        ratio = lambda x: x.mean(0) / x.std(0)  # noqa: E731
        assert (ratio(rest) >= ratio(ordered) - 1e-9).all()
        seen += int((y > 0).sum())
    assert seen > 20


def test_no_multiple_is_flushed_to_zero():
    """One that float32 does not hold as a normal number, or that is too large or no number, is not taken off."""
    table, k, _ = cells(1, "lin", "none")[0]
    r, readout = len(table.start), CountReadout.of(table, k)
    narrow = Narrow.in_parts(table, k, readout.d.T, np.zeros(r, bool), np.ones(r, bool))
    for multiple, kept in ((2.0**-127, 0), (2.0**-150, 0), (2.0**-99, 2.0**-99), (2.0**41, 0), (np.nan, 0), (-1, 0)):
        of = Dominance.of(narrow, np.full(len(readout.d), multiple))
        assert of.multiple[0] == 0 and (of.multiple[1:] == kept).all() and len(of.multiple) > 1


def test_dominance_is_of_the_readouts():
    """What is taken off in float32 is taken off the readout, with both errors; the first stays as it is."""
    table, k, _ = cells(1, "lin", "none")[0]
    readout = CountReadout.of(table, k)
    ones = np.ones(len(readout.d), dtype=np.float32)
    of = Dominance(0.5 * ones, ones).readout(readout)
    assert np.allclose(of.d, readout.d - readout.d[0] / 2) and np.allclose(
        of.error, readout.error + readout.error[0] / 2
    )
