"""Crafted networks that drift, tie, flush or overflow: first wrong lengths from 1 to 10^20, against closed forms."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from flint import fmpq
from models.crafted import FAMILIES, crafted
from models.judged_crafted import MANY, faults_in_real
from models.selection import every
from oracles.exact_lines import LONGEST

from constructions.recurrent.model import RecurrentModel
from tests.clocks import endless
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import exact, steady
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous

LONGEST_BESIDE = 20_000
SLOWLY_RUN = ("tanh creeps",)  # its oracle takes seconds
QUICK = [seed for seed, name in enumerate(FAMILIES) if name not in SLOWLY_RUN]


def decided(case, length=None):
    return certify(Homogeneous(case.model, case.task, length), None, Effort(budget=endless()))


def check(seed):
    """The verdict on a network, which must be true of it; at the lengths beside its first wrong one, too."""
    case = crafted(seed)
    wrong, found = case.oracle(), decided(case)
    told = [why for is_fault, why in faults_in_real(case, found, wrong) if is_fault]
    assert not told, (seed, case.family, told)
    assert not case.by_run or wrong is None or wrong <= LONGEST
    if wrong is not None and 1 < wrong < LONGEST_BESIDE and found.verdict is Verdict.REFUTED:
        before, there = decided(case, wrong - 1), decided(case, wrong)
        assert before.verdict is not Verdict.REFUTED and there.verdict is not Verdict.PROVED, (seed, case.family)
    return case.family, found.verdict


@pytest.mark.parametrize("seed", every(6, QUICK), ids=[FAMILIES[seed] for seed in QUICK])
def test_a_verdict_is_true_and_a_first_wrong_length_exact(seed):
    assert check(seed)[1] is not Verdict.UNKNOWN


@pytest.mark.deep
@pytest.mark.parametrize("share", range(10))
def test_nine_of_ten_of_500_are_decided_and_none_wrongly(share):
    verdicts = Counter(check(seed)[1] for seed in range(share, MANY, 10))
    assert verdicts[Verdict.UNKNOWN] <= MANY // 10 // 10, verdicts


def relu_units(W, given, V, b):
    model = RecurrentModel("rnn", hidden=len(W), classes=len(V), activation="relu", dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.as_tensor(W))
        model.cell.bias_ih_l0.copy_(torch.as_tensor(given))
        model.readout.weight.copy_(torch.as_tensor(V))
        model.readout.bias.copy_(torch.as_tensor(b))
    return model


def run_in_fractions(model, due, steps):
    """The first wrong length, in Python's fractions."""

    def numbers(x):
        return [numbers(y) for y in x] if isinstance(x, list) else Fraction(x)

    stored = {name: numbers(value.tolist()) for name, value in model.state_dict().items()}
    W, given = stored["cell.weight_hh_l0"], stored["cell.bias_ih_l0"]
    h = [Fraction(0)] * len(W)
    for t in range(1, steps + 1):
        h = [
            max(Fraction(0), sum(w * x for w, x in zip(row, h, strict=True)) + g)
            for row, g in zip(W, given, strict=True)
        ]
        rows = zip(stored["readout.weight"], stored["readout.bias"], strict=True)
        logits = [sum(v * x for v, x in zip(row, h, strict=True)) + c for row, c in rows]
        if any(y >= logits[due(t)] for j, y in enumerate(logits) if j != due(t)):
            return t
    return None


def few_units(seed):
    """A swing, a sum that grows or dies out, and a unit that is on beyond a threshold; sums meet it exactly."""
    g = np.random.default_rng(seed)
    keep, add = float(g.choice([1.0, 1.0, 1.0, 0.5, 1.25])), float(g.integers(1, 5)) / 16
    reach = add * float(g.integers(2, 60))
    side = float(g.choice([1.0, -1.0]))
    W = np.array(
        [[-1.0, 0.0, 0.0], [float(g.choice([0.0, 0.125])), keep, 0.0], [0.0, side, float(g.choice([0.0, 0.0, 0.5]))]]
    )
    given = np.array([1.0, add, -side * reach])
    pushes = g.choice([0.0, 1.0, -1.0, 0.25], size=2) / float(g.choice([1.0, 16.0]))
    V, b = np.array([[2.0, *pushes], [0.0, 0.0, 0.0]]), np.array([-1.0, 0.0])
    b[0] -= float(g.choice([0.0, pushes[1] * reach]))
    return relu_units(W, given, V, b), lambda t: (t - 1) % 2, OrbitQuestion((), 0, lambda t: (t - 1) % 2, 2)


RUN = 400


def compare_with_fractions(seeds):
    """How many were decided by steady turns; a verdict must be that of a run of RUN tokens."""
    leapt = 0
    for seed in seeds:
        model, due, line = few_units(seed)
        found, wrong = exact.run(model, line, None, endless()), run_in_fractions(model, due, RUN)
        leapt += found.is_steady
        if found.wrong_at is not None and found.wrong_at <= RUN:
            assert found.wrong_at == wrong, seed
        else:
            assert wrong is None or (found.right_to is not None and found.right_to < wrong), seed
    return leapt


@pytest.mark.deep
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_steady_turns_are_what_fractions_say(seeds):
    assert compare_with_fractions(seeds) > len(seeds) / 4


PLANTED = {
    "reaches": lambda right: (
        lambda self, s, beyond: (lambda n: None if n is None else n + 1)(right(self, s, beyond=beyond))
    ),
    "limit": lambda right: lambda self: fmpq(1) if self.factor == 1 else right(self),
    "sum": lambda right: lambda self, n: right(self, n) + 1,
}


@pytest.mark.parametrize("name", every(3, PLANTED))
def test_planted_faults_are_found(name):
    with (
        mock.patch.object(steady.Steady, name, PLANTED[name](getattr(steady.Steady, name))),
        pytest.raises(AssertionError),
    ):
        compare_with_fractions(range(200))


def test_a_side_that_is_not_kept_is_found():
    with mock.patch.object(steady.Steady, "of", classmethod(without_sides)), pytest.raises(AssertionError):
        compare_with_fractions(range(200))


def without_sides(cls, *args):
    found = right_of(*args)
    return None if found is None else replace(found, sides=[])


right_of = steady.Steady.of
