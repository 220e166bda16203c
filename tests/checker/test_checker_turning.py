"""State spaces in closed form: rotations that are wrong late, and forgeries against runs in fractions, with faults."""

import copy
import json
import math
import random
from fractions import Fraction
from unittest import mock

import pytest
import torch
from models.crafted import crafted
from models.judged_crafted import decided
from models.rechecked import decided as proved
from models.rechecked import outcome
from models.selection import every, first

from constructions.recurrent.linear import LinearModel, RotationModel
from tests.planted import planted
from verify.checker import closed_lines, linear, turning
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.turning import TurningStates
from verify.counting.tasks import Task
from verify.frame.decide import Effort
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

CRAFTED = [259, 183, 487, 240, 31, 164]  # rotations wrong first after 509 to 71,243,096,941 tokens
RUN = 40  # tokens of a run in fractions


def moved_to(c, n, m):
    """The same certificate with another first wrong length."""
    found = copy.deepcopy(c)
    case = found["counterexample"] | {"length": n, "input": f"token 0, {n} times", "expected": (n - 1) % m + 1}
    return found | {"counterexample": case, "right_to": n - 1}


@pytest.mark.parametrize("seed", every(3, CRAFTED))
def test_rotations_that_fail_late_hold_at_the_first_wrong_length_alone(seed):
    case = crafted(seed)
    found, weights = decided(case, "real", 2000), bytes_of(case.model)
    c = json.loads(found.about(weights).to_json())
    n, m = c["counterexample"]["length"], case.task.m
    assert n == case.oracle() and outcome(weights, c) == "REFUTED"
    assert {outcome(weights, moved_to(c, n + off, m)) for off in (-m, -1, 1, m)} == {FAILS}


def test_a_state_space_that_fades_is_right_for_ever_by_its_ellipsoids():
    A = torch.tensor([[0.5, -0.25], [0.25, 0.5]], dtype=torch.float64)
    V, b = torch.tensor([[1.0, 1.0], [0.0, 0.0]]).double(), torch.tensor([-1.1, 0.0]).double()
    problem = Homogeneous(
        LinearModel("ssm", A, torch.tensor([1.0, 0.0]).double(), V, b), Task.of("first-homogeneous"), None
    )
    weights, c = proved(problem, "real", Effort())
    assert "invariant" in c and outcome(weights, c) == c["verdict"] == "PROVED"
    assert outcome(weights, c | {"margin": 0.5}) == FAILS


def drawn(seed):
    """Two or three units that turn, swing, fade or grow, right after one token, and margins of the first tokens."""
    draw, d = random.Random(seed), 2 + seed % 2
    small = [x / 8 for x in range(-8, 9)]
    c, s, f = (
        draw.choice([0.75, 0.5, -0.5, 1.0, 0.0]),
        draw.choice([0.75, -0.5, 0.25]),
        draw.choice([0.5, -0.75, 0.0, -1.0, 1.125, 1.0625]),
    )
    A = [[c, -s, 0.0], [s, c, 0.0], [draw.choice([0.0, 0.25]), 0.0, f]]
    A, B = [row[:d] for row in A[:d]], [draw.choice(small) for _ in range(d)]
    V = [draw.choice(small) for _ in range(d)]
    b = -sum(v * x for v, x in zip(V, B, strict=True)) - draw.choice([0.0625, 0.25, 1.0])
    numbers = [torch.tensor(x, dtype=torch.float64) for x in (A, B, [V, [0.0] * d], [b, 0.0])]
    h, margins = [Fraction(0)] * d, []
    for t in range(RUN):
        h = [
            sum(Fraction(w) * x for w, x in zip(row, h, strict=True)) + Fraction(y) for row, y in zip(A, B, strict=True)
        ]
        gap = sum(Fraction(v) * x for v, x in zip(V, h, strict=True)) + Fraction(b)
        margins.append(gap if t else -gap)
    return LinearModel("ssm", *numbers), margins


def forged(draw, d, margins):
    """The fields that are read here, which may be true."""
    said = {"task": "first-homogeneous", "model": "ssm", "units": d, "layers": 1, "dtype": "float64"}
    if draw.random() < 0.6:
        n = next((t for t, x in enumerate(margins, 1) if x <= 0), 9) + draw.choice([0, 0, 0, -1, 1])
        case = {"input": [0] * n, "length": n, "expected": 0, "predicted": 1, "is_first": True}
        margin = min(0.0, draw.choice([2.0**-30, 2.0**-30, -0.25]) + float(margins[min(n, RUN) - 1]))
        return said, {"verdict": "REFUTED", "length": "all", "margin": margin, "inputs_covered": "1",
                      "right_to": n - 1, "counterexample": case}  # fmt: skip
    length = draw.choice(["all", draw.randint(2, RUN)])
    least = min(margins if length == "all" else margins[:length])
    covered = "infinite" if length == "all" else str(length)
    return said, {"verdict": "PROVED", "length": length, "inputs_covered": covered,
                  "margin": max(float(least), 2.0**-6) * draw.choice([0.75, 0.9375, 1.25])}  # fmt: skip


def is_true(c, margins):
    if c["verdict"] == "REFUTED":
        n = c["counterexample"]["length"]
        return min(margins[: n - 1], default=1) > 0 >= margins[n - 1] and margins[n - 1] <= Fraction(c["margin"])
    return min(margins if c["length"] == "all" else margins[: c["length"]]) >= Fraction(c["margin"])


def holds(weights, c, said):
    try:
        turning.in_closed_form(weights, c, said)
    except Refusal as refusal:
        assert refusal.exit_code in (FAILS, NOT_CHECKABLE)
        return False
    return True


def sweep(seeds):
    """Of which verdicts forgeries hold that are true, and those that are false."""
    true, false = [], []
    for seed in seeds:
        model, margins = drawn(seed)
        if min(margins[:2]) > 0:
            weights, draw = bytes_of(model), random.Random(seed)
            for said, c in (forged(draw, model.hidden, margins) for _ in range(6)):
                if holds(weights, c, said):
                    true += [(c["verdict"], c["length"])] if is_true(c, margins) else []
                    false += [] if is_true(c, margins) else [(seed, c)]
    return true, false


@pytest.mark.parametrize("seeds", first(1, [range(40), range(40, 1500)]))
def test_forgeries_that_hold_are_true(seeds):
    true, false = sweep(seeds)
    assert {verdict for verdict, _ in true} == {"PROVED", "REFUTED"} and ("PROVED", "all") in true and false == []


SEEN = (0, 4, 5, 11, 22, 133, 584, 707)  # networks of which a forgery holds by one of the faults
FAULTS = [
    (turning, "_moved", "sizes.union(size**high)", "sizes"),
    (turning, "_moved", "first.union(first + (high - low) // k * step)", "first"),
    (turning, "_moved", "arb(0).union(sizes), first if step == 0 else arb(0, 4)", "arb(0), first"),
    (turning, "_moved", 'size < 1), "an eigenvalue may be 1 or more"', 'True), ""'),
    (turning, "_eigenvalues", "acb(x.real) if _is_alone(x, i, found) else x", "acb(x.real)"),
    (turning, "_sum", "w.real - abs(w)", "w.real + abs(w)"),
    (TurningStates, "_gap", "self.b[right] - self.b[j]", "arb(0)"),
    (TurningStates, "__init__", "x / (1 - rate)", "x / (1 + rate)"),
    (turning, "_angle", "+ arb.pi() if", "if"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_checker_is_seen(fault):
    with planted(*fault):
        assert any(sweep([seed])[1] for seed in SEEN)


def test_eigenvectors_that_balls_do_not_tell_apart_are_no_lie():
    """A shift of 12 units with 1e-156 in its corner: right for ever, and not shown."""
    d = 12
    A = [[0.5 if i == j else float(j == i + 1) for j in range(d)] for i in range(d)]
    A[-1][0] = 1e-156
    numbers = (A, [0.0] * (d - 1) + [1.0], [[1.0] * d, [0.0] * d], [-1.25, 0.0])
    weights = bytes_of(LinearModel("ssm", *(torch.tensor(x, dtype=torch.float64) for x in numbers)))
    said = {"task": "first-homogeneous", "model": "ssm", "units": d, "layers": 1, "dtype": "float64"}
    with pytest.raises(Refusal) as refused:
        turning.in_closed_form(
            weights, {"verdict": "PROVED", "length": 10**6, "inputs_covered": "1000000", "margin": 0.125}, said
        )
    assert refused.value.exit_code == NOT_CHECKABLE


@pytest.mark.parametrize("owner", [linear, closed_lines])
def test_lines_that_take_too_long_are_not_checked(owner):
    """In fractions and in closed form there is an end to the work."""
    model = LinearModel("ssm", *(torch.tensor(x).double() for x in ([[0.5]], [1.0], [[1.0], [0.0]], [-1.25, 0.0])))
    weights, said = bytes_of(model), {"task": "first-homogeneous", "model": "ssm", "units": 1, "layers": 1}
    c = {"verdict": "PROVED", "length": 50, "inputs_covered": "50", "margin": 0.125}
    decide = linear.exact if owner is linear else turning.in_closed_form
    decide(weights, c, said | {"dtype": "float64"})
    with mock.patch.object(owner, "MOST_WORK", 40), pytest.raises(Refusal) as refused:
        decide(weights, c, said | {"dtype": "float64"})
    assert refused.value.exit_code == NOT_CHECKABLE


def test_a_rotation_that_steps_over_the_arc_that_is_wrong_is_no_lie():
    """By omega = 9/8, Re h is 1, 1 + cos omega, 1 + cos omega + cos 2 omega: right by 1/16, and not shown."""
    parts = [sum(math.cos(9 / 8 * k) for k in range(t)) for t in (1, 2, 3)]
    assert min((19 / 16 - x) * (-1) ** t for t, x in enumerate(parts)) > 1 / 16
    numbers = ([9 / 8], [[-1.0, 0.0], [0.0, 0.0]], [19 / 16, 0.0])
    weights = bytes_of(RotationModel(*(torch.tensor(x, dtype=torch.float64) for x in numbers)))
    said = {"task": "modular", "modulus": 2, "model": "s4", "units": 1, "layers": 1, "dtype": "float64"}
    c = {"verdict": "PROVED", "length": 3, "inputs_covered": "3"}
    for margin, code in ((1 / 16, NOT_CHECKABLE), (1 / 4, FAILS)):
        with pytest.raises(Refusal) as refused:
            linear.rotation(weights, c | {"margin": margin}, said)
        assert refused.value.exit_code == code
