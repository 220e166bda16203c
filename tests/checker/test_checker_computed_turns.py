"""State spaces and rotations in a format at any length, in every order: certificates, drawn evaluations, and faults."""

import copy
import json
import math
import random

import pytest
import torch
from flint import acb_mat, arb, ctx
from models.crafted import crafted
from models.judged_crafted import decided
from models.rechecked import outcome
from models.selection import first
from test_checker_computed_gates import FlushedGates, OneSided, _are_in, stored

from constructions.recurrent.linear import LinearModel, RotationModel
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import computed_turns, turning
from verify.checker.computed_turns import ComputedTurns
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.tasks.recurrent.models import bytes_of

CRAFTED = [(450, "float64"), (183, "float64"), (80, "float64"), (278, "float64"), (89, "float64"), (50, "float32")]
CRAFTED += [(488, "bfloat16"), (377, "float32")]  # a run that is named, and a tanh unit that creeps


def moved_to(c, n, m):
    """The same certificate with another wrong length, said not to be the first."""
    found = copy.deepcopy(c)
    case = found["counterexample"] | {"length": n, "input": f"token 0, {n} times", "expected": (n - 1) % m + 1}
    return found | {"counterexample": case | {"is_first": False}, "right_to": 0}


@pytest.mark.parametrize(("seed", "name"), first(1, CRAFTED))
def test_lengths_hold_that_are_wrong_in_every_order_and_no_right_one_does(seed, name):
    case = crafted(seed)
    found, weights = decided(case, name, 2000), bytes_of(case.model)
    c = json.loads(found.about(weights).to_json())
    assert outcome(weights, c) == "REFUTED"
    for n in (c["right_to"], c["right_to"] - 1, c["right_to"] // 2):
        assert outcome(weights, moved_to(c, n, case.task.m)) in (FAILS, NOT_CHECKABLE)
    assert outcome(weights, c | {"margin": c["margin"] - 1.0}) in (FAILS, NOT_CHECKABLE)
    assert outcome(weights, c | {"run": {"kept": [1.0]}}) in (FAILS, NOT_CHECKABLE)


def network(seed):
    """A rotation by an angle, or by a matrix beside a sum that fades or grows."""
    g, draw = torch.Generator().manual_seed(seed), random.Random(seed)
    d, angle = 2 + seed % 2, draw.uniform(0.3, 2.8)
    V, b = (torch.randn(size, generator=g, dtype=torch.float64) for size in ((3, d), (3,)))
    if seed % 4 == 0:
        return RotationModel(torch.tensor([angle], dtype=torch.float64), V, b), "s4"
    r = draw.choice([1.0, 0.75, 1.015625])
    A = torch.zeros(d, d, dtype=torch.float64)
    A[:2, :2] = r * torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
    A[2:, 2:], A[2:, 0] = draw.choice([0.9375, 1.0625]), 0.125
    return LinearModel("ssm", A, torch.randn(d, generator=g, dtype=torch.float64), V, b), "ssm"


def inside(seed, steps=9):
    """Whether drawn evaluations in float16 stay within what is said of one length, and of all of a place in a turn."""
    model, kind = network(seed)
    units = 1 if kind == "s4" else model.hidden
    said = {"model": kind, "units": units, "layers": 1, "dtype": "float64", "precision": "float16"}
    draws = [random.Random(seed), OneSided(0), OneSided(4)]
    with ctx.workprec(computed_turns.BITS):
        of = computed_turns._of_angle if kind == "s4" else computed_turns._of_matrix
        A, B, errors, shown, _ = of(bytes_of(model), said)
        states = ComputedTurns(A, B, errors, shown, 3, steps)
        runs = [FlushedGates(stored(model), kind, FORMATS["float16"], x) for x in draws]
        here = [run.start() for run in runs]
        told = [states.ends(r, r + 6, 3, 0) for r in (1, 2, 3)]
        for t in range(1, steps + 1):
            here = [run.step(x) for run, x in zip(runs, here, strict=True)]
            exact = states.states.values(t, t, 1)
            for x in here:
                off = [abs(arb(y.numerator) / y.denominator - z) for y, z in zip(x, exact, strict=True)]
                if any(y > z + 4 * FORMATS["float16"].tiny for y, z in zip(off, states.off, strict=True)):
                    return False
            for found in (states.ends(t, t, 1, 0), told[(t - 1) % 3]):
                if not all(_are_in(run.logits(x), found, 0) for run, x in zip(runs, here, strict=True)):
                    return False
    return True


def test_drawn_evaluations_stay_within_what_is_said():
    assert all(map(inside, range(8)))


def pushed(seed, steps=60):
    """Whether a state that is pushed off, step by step, to where it is off already stays as near as is said."""
    g, draw = torch.Generator().manual_seed(seed), random.Random(seed)
    model, _ = network(4 * seed + 1 + seed % 2)
    A = model.cell.A * draw.choice([1.0, 1.0, 1.015625])
    d = len(A)
    S = torch.eye(d).double()
    S[0, 1] = draw.choice([0.0, 0.0, 2.0, -2.0])
    A = S @ A @ torch.linalg.inv(S)
    B = torch.randn(d, generator=g, dtype=torch.float64)
    share, fixed = draw.choice([(0.0, 0.01), (0.0, 0.01), (0.004, 0.0)])
    with ctx.workprec(computed_turns.BITS):
        balls = acb_mat(A.tolist()), acb_mat([[x] for x in B.tolist()])

        def errors(sizes):
            return [arb(share) * x + arb(fixed) for x in sizes]

        try:
            said = ComputedTurns(*balls, errors, lambda h, e, right: {}, 3, steps).off
        except Refusal:
            return None
    h, e, power = torch.zeros(d).double(), torch.zeros(d).double(), torch.eye(d).double()
    worst = torch.zeros(d).double()
    for _ in range(steps):
        moved = A @ e
        e, h = moved + torch.where(moved < 0, -1.0, 1.0) * (share * (h + e).abs() + fixed), A @ h + B
        worst, power = worst + power.abs().sum(1) * fixed, power @ A
    ends = torch.maximum(worst, e.abs()).tolist()  # of fixed pushes the worst that any signs lead to
    return all(x <= y * (1 + 1e-9) for x, y in zip(ends, map(float, said), strict=True))


def test_states_that_are_pushed_off_stay_as_near_as_is_said():
    found = [pushed(seed) for seed in range(40)]
    assert found.count(True) > 20 and False not in found


FAULTS = [
    (ComputedTurns, "_moved", "count * self._coordinate(i, d)", "count * self._coordinate(i, d) / 2"),
    (ComputedTurns, "_moved", "count * self._coordinate(i, d)", "self._coordinate(i, d)"),
    (ComputedTurns, "_coordinate", "abs(y) * x", "y * x"),
    (ComputedTurns, "_moved", "self.errors([(abs(x) + y).upper()", "self.errors([(0 * y).upper()"),
    (ComputedTurns, "_moved", "(abs(rate) ** self.last).max(arb(1))", "arb(1)"),
]
OF_LINES = [
    (ComputedTurns, "ends", "self.off", "[arb(0)] * len(self.off)"),
    (turning, "_moved", "first.union(first + (high - low) // k * step)", "first"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_bound_is_seen(fault):
    with planted(*fault):
        assert False in map(pushed, range(60))


@pytest.mark.parametrize("fault", OF_LINES)
def test_a_fault_in_what_is_said_of_lines_is_seen(fault):
    with planted(*fault):
        assert not all(map(inside, range(4)))
