"""Diagonal state spaces: decays that count exactly as far as any can, and a rotation by a stored angle."""

from __future__ import annotations

import cmath
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
import torch

from bounds.recurrent import decays, rotation_limit
from constructions.recurrent import diagonal
from tests.command import as_json, run
from tests.models.selection import first
from tests.planted import planted
from verify.counting.tasks import Task
from verify.frame.decide import certify
from verify.tasks.recurrent import rotation
from verify.tasks.recurrent.task import Homogeneous

SIZES = [(2, 1), (3, 2), (10, 3), (10, 4), *((m, s) for s in range(1, 5) for m in range(2, 11))]


def right_for(model, m):
    """How many first lengths are right, in plain fractions."""
    A, B = (x.double().tolist() for x in (model.cell.A, model.cell.B))
    V, b = model.readout.weight.double().tolist(), model.readout.bias.double().tolist()
    h, t = [Fraction(0)] * len(B), 0
    while True:
        h = [
            sum(Fraction(a) * x for a, x in zip(row, h, strict=True)) + Fraction(c) for row, c in zip(A, B, strict=True)
        ]
        logits = [
            sum(Fraction(a) * x for a, x in zip(row, h, strict=True)) + Fraction(c) for row, c in zip(V, b, strict=True)
        ]
        if any(x >= logits[t % m] for j, x in enumerate(logits) if j != t % m):
            return t
        t += 1


@pytest.mark.parametrize(("m", "s"), first(4, SIZES))
def test_decays_reach_the_bound_and_no_more(m, s):
    N = decays(m, s)
    model = diagonal.decays(m=m, s=s, N=N)
    assert right_for(model, m) == N
    for length, verdict in ((N, "PROVED"), (None, "REFUTED")):
        found = certify(Homogeneous(model, Task.of("modular", modulus=m), length))
        assert found.verdict.value == verdict
    assert found.counterexample["length"] == N + 1


def test_the_command_says_what_is_reached_and_what_cannot_be(capsys):
    asked = ("inductive", "--task", "modular", "--model", "decay")
    code, found = as_json(capsys, *asked, "--length", "20")
    assert code == 0 and found["parameters"]["units"] == 3 and found["claim"] == "C-R13"
    for options in ((), ("--d", "3", "--length", "21")):
        code, _, err = run(capsys, *asked, *options)
        assert code == 2 and "impossible (C-R2)" in err
    code, found = as_json(capsys, "inductive", "--task", "modular", "--model", "s4", "--dtype", "float32")
    assert (
        code == 1 and found["claim"] == "C-R14" and found["counterexample"]["length"] == found["right_to"] + 1 > 10**6
    )
    code, found = as_json(capsys, "inductive", "--task", "modular", "--model", "s4", "--length", "1000")
    assert code == 0 and found["margin"] > 0
    code, found = as_json(capsys, "inductive", "--impossible", "C-R15")
    assert code == 0 and found["holds"]


@cache
def rotations():
    """Models, moduli, and the first wrong lengths of float64 runs in Python's own complex numbers."""
    found = []
    for m, change in product((2, 3, 5, 10), (0.0, 0.001, -0.003)):
        model = diagonal.rotation(m=m, dtype=torch.bfloat16).double()
        with torch.no_grad():
            model.cell.omega += change
        h, turn, states = 0j, cmath.exp(1j * float(model.cell.omega[0])), []
        for _ in range(5000):
            h = turn * h + 1
            states.append([h.real, h.imag])
        said = model.readout(torch.tensor(states, dtype=torch.float64)).argmax(-1)
        found.append((model, m, int((said != torch.arange(5000) % m).int().argmax())))
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_rotation_reaches_nine_tenths_of_its_bound(dtype):
    for m in range(2, 11):
        model = diagonal.rotation(m=m, dtype=dtype)
        limit = rotation_limit(m, float(model.cell.omega[0]))
        assert 0.9 * limit < rotation.count(model, m).right_to <= limit


def mistakes():
    """How often the closed form and a run name another first wrong length, or the bound is exceeded."""
    found = 0
    for model, m, right_to in rotations():
        counted = rotation.count(model, m)
        found += counted is None or counted.right_to != right_to
        found += counted is not None and counted.right_to > rotation_limit(m, float(model.cell.omega[0]))
    return found


def test_the_closed_form_agrees_with_runs():
    assert mistakes() == 0
    for name, right, wrong in (
        ("_leaves", "(w + u) / -epsilon", "(w - u) / -epsilon"),
        ("_leaves", "(w - u) / epsilon if", "w / epsilon if"),
        ("_leaves", "-E / rho", "E / rho"),
    ):
        with planted(rotation, name, right, wrong):
            assert mistakes() > 0
