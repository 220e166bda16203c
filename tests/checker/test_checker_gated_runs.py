"""Wrong runs of gated decays and state spaces whose numbers are saved: each of them moved, other runs, and faults."""

import copy
import json
import math

import pytest
from models.certificates import honest
from models.rechecked import outcome

from tests.planted import planted
from verify.checker.computed_tables import StoredCell
from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.gated_runs import GatedRun
from verify.checker.reading import FAILS, NOT_CHECKABLE

NAMES = ["rwkv, wrong in a run, bfloat16", "ssm, wrong in a run, bfloat16"]
BFLOAT16 = BinaryFormat(*NAMED["bfloat16"])


def saved(name):
    weights, text = honest(name)
    return weights, json.loads(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_that_is_moved_is_refused(name):
    weights, c = saved(name)
    assert outcome(weights, c) == "REFUTED"
    for t, row in enumerate((*c["run"]["numbers"], c["run"]["logits"])):
        for i in range(len(row)):
            changed = copy.deepcopy(c)
            rows = [*changed["run"]["numbers"], changed["run"]["logits"]]
            rows[t][i] = math.nextafter(rows[t][i], math.inf) + 2.0**-5 * abs(rows[t][i])
            assert outcome(weights, changed) in (FAILS, NOT_CHECKABLE), (t, i)
    for change in ({"length": c["counterexample"]["length"] - 1}, {"predicted": 9}):
        assert outcome(weights, c | {"counterexample": c["counterexample"] | change}) == FAILS
    assert outcome(weights, c | {"margin": c["margin"] - 1.0}) == FAILS


def other_run(c, weights, changed):
    """A run of 60 tokens or fewer that is wrong, of other tables: what is kept, added and read times these factors."""
    net = StoredCell.of(weights, c["parameters"], BFLOAT16)
    (w,), (k,), (v,), (r,) = (net.rows[name] for name in "wkvr")
    of = list(changed)
    keep = [math.exp(-math.exp(x)) * of[0] for x in w]
    add, read = [x * y * of[1] for x, y in zip(k, v, strict=True)], [x * of[2] for x in r]
    h, numbers = [0.0] * len(w), []
    for t in range(1, 61):
        products = [f * x for f, x in zip(keep, h, strict=True)]
        h = [x + a for x, a in zip(products, add, strict=True)]
        y = [x * z for x, z in zip(read, h, strict=True)]
        numbers.append([*keep, *add, *r, *products, *h, *y])
        logits = []
        for row, bias in zip(net.V, net.b, strict=True):
            total = 0.0
            for a, x in zip(row, y, strict=True):
                total += a * BFLOAT16.nearest(x)
            logits.append(total + bias)
        right = int(t == 1)
        margin = logits[right] - logits[1 - right]
        if margin <= 0:
            case = c["counterexample"] | {"length": t, "input": [0] * t, "expected": right, "predicted": 1 - right,
                                          "is_first": False}  # fmt: skip
            return c | {"counterexample": case, "right_to": 0, "margin": margin, "inputs_covered": "1",
                        "run": {"numbers": numbers, "logits": logits}}  # fmt: skip
    return None


FAULTS = [
    ((1.5, 1.0, 1.0), GatedRun, "_kept", "self.on.are_near(keep, found)", "pass"),
    ((1.0, 8.0, 1.0), GatedRun, "_added", 'return self.on.times(rows["k"][0], rows["v"][0])',
     "return self.on.take(len(add))"),
    ((1.0, 1.0, 4.0), GatedRun, "follow", "y = on.times(read, h)", "y = on.take(len(read))"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_runs_of_other_tables_are_refused_and_a_fault_in_that_line_is_seen(fault):
    factors, *of = fault
    weights, c = saved(NAMES[0])
    forged = [x for s in (1.0, -1.0, 0.5) if (x := other_run(c, weights, [f if f == 1 else f * s for f in factors]))]
    assert forged and {outcome(weights, x) for x in forged} == {FAILS}
    with planted(*of):
        assert "REFUTED" in {outcome(weights, x) for x in forged}
