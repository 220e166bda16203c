"""One rotation by a stored angle in a format: against fractions in drawn orders, and closed forms of many digits."""

from __future__ import annotations

import math
import random
import re
from fractions import Fraction

import mpmath
import pytest
import torch
from flint import arb, fmpq
from models.crafted import FAMILIES, crafted
from models.selection import first
from test_recurrent_rounded import nearest

from constructions.errors import BadInput
from constructions.recurrent import diagonal
from constructions.recurrent.linear import RotationModel
from tests.clocks import looks
from tests.planted import planted
from verify.arithmetic import contract
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, precision_named
from verify.arithmetic.readings import Rounded
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import turned
from verify.tasks.recurrent.off import StepErrors
from verify.tasks.recurrent.task import Homogeneous

SEED, ANGLE = re.compile(r"cosine (\S+) and sine (\S+), within"), FAMILIES.index("rotation angle")
P16, DIGITS = precision_named("p16"), 100


def rotation(m, off):
    """The built rotation of period m, off by a part of its angle."""
    built = diagonal.rotation(m=m, dtype=torch.float64)
    omega = torch.tensor([2 * math.pi / m + off], dtype=torch.float64)
    return RotationModel(omega, built.readout.weight.clone(), built.readout.bias.clone())


def asked(model, m, fmt, length=None, effort=4000):
    problem = Homogeneous(model, Task.of("modular", modulus=m), length)
    return certify(problem, Rounded(fmt), Effort(budget=looks(effort)))


class Turn:
    """A run in fractions. What `rng` draws decides cosine, sine, each order, and what is rounded where it is read."""

    def __init__(self, model, fmt, rng, pair=None):
        self.fmt, self.rng = fmt, rng
        omega = nearest(Fraction(model.cell.omega[0].item()), fmt)
        own = (math.cos(omega), math.sin(omega))
        self.c, self.s = (Fraction(x) for x in pair) if pair else (self.off(x) for x in own)
        self.V = [[nearest(Fraction(x), fmt) for x in row] for row in model.readout.weight.tolist()]
        self.b = [nearest(Fraction(x), fmt) for x in model.readout.bias.tolist()]
        self.re = self.im = Fraction(0)

    def off(self, x):
        """A number within 2 units in the last place, always at one end or the other."""
        unit = Fraction(2) ** (math.frexp(x)[1] - self.fmt.p)
        return Fraction(x) + self.rng.choice([-1, 1]) * unit * Fraction(63, 32)

    def once(self, x):
        return x if self.rng is None or self.rng.random() < 0.3 else Fraction(nearest(x, self.fmt))

    def product(self, x, y):
        return self.once(self.once(x) * self.once(y))

    def sum(self, values):
        if self.rng is not None:
            self.rng.shuffle(values)
        total = values[0]
        for x in values[1:]:
            total = self.once(total + x)
        return total

    def step(self):
        c, s, x, y = self.c, self.s, self.re, self.im
        self.re = self.sum([self.product(c, x), self.product(-s, y), Fraction(1)])
        self.im = self.sum([self.product(s, x), self.product(c, y)])

    def margin(self, right):
        factor = [Fraction(nearest(x, self.fmt)) for x in (self.re, self.im)]
        logits = [self.sum([*(Fraction(v) * x for v, x in zip(row, factor, strict=True)), Fraction(c)])
                  for row, c in zip(self.V, self.b, strict=True)]  # fmt: skip
        return logits[right] - max(x for j, x in enumerate(logits) if j != right)


def wrong_lengths(run, m, most):
    found = []
    for t in range(1, most + 1):
        run.step()
        if not run.margin((t - 1) % m) > 0:
            found.append(t)
    return found


CASES = [(5, 2e-2), (5, 2e-3), (3, -1.5e-3), (8, 3e-3), (4, 1e-9), (6, -4e-3)]


def contradictions(cases, draws=3):
    """How many drawn runs are not as what is said of every run, and how many lengths were asked about."""
    found, lengths = 0, 0
    for m, off in cases:
        model = rotation(m, off)
        said = asked(model, m, P16)
        right, case = said.extra["right_to"], said.counterexample
        assert said.verdict is Verdict.REFUTED
        is_every = case["evaluation"] == contract.EVERY
        for k in range(draws):
            wrong = wrong_lengths(Turn(model, P16, random.Random(k)), m, min(600, 2 * case["length"]))
            found += bool(wrong) and wrong[0] <= right
            found += is_every and case["length"] <= 600 and case["length"] not in wrong
            lengths += 1
    return found, lengths


@pytest.mark.parametrize(("m", "off"), first(1, CASES))
def test_no_drawn_run_is_wrong_before_what_is_said(m, off):
    found, lengths = contradictions([(m, off)])
    assert (found, lengths) == (0, 3)


def largest_share(draws):
    """Of what is counted for one step, the largest part by which a drawn one is off; cos omega is just above 1/2."""
    model, rng, at, most = rotation(6, -1e-3), random.Random(7), RoundedArithmetic.of(P16), Fraction(0)
    c, s = (Fraction(x) for x in turned._nearest(model, P16))
    errors = turned._errors(turned._network(model, P16, float(c), float(s)), at)
    for _ in range(draws):
        x, y = (Fraction(rng.uniform(0.5, 1)) * scale for scale in rng.choice([(100, 1), (1, 100), (1, 1)]))
        run = Turn(model, P16, rng)
        run.re, run.im = x, y
        run.step()
        off = abs(run.re - (c * x - s * y + 1)), abs(run.im - (s * x + c * y))
        bound = errors.of_step([arb(fmpq(z.numerator, z.denominator)) for z in (x, y)], 0)
        most = max(most, *(a / Fraction(float(b)) for a, b in zip(off, bound, strict=True)))
    return most


def test_a_step_is_off_by_no_more_than_is_counted():
    assert largest_share(200) <= 1
    with planted(turned, "_errors", "12 * fmt.u", "0 * fmt.u"):
        assert largest_share(200) > 1


@pytest.mark.deep
def test_runs_that_are_not_rounded_are_found():
    with planted(StepErrors, "of_step", "self.keeps_steps", "True"):
        assert contradictions([(5, 4e-4)], 6)[0] > 0


def margin_in_digits(model, fmt, pair, t, m):
    """The margin after t tokens of the run that keeps its states, in closed form."""
    with mpmath.mp.workdps(DIGITS):
        rate = mpmath.mpc(*map(float, pair))
        h = (1 - rate**t) / (1 - rate)
        factor = [mpmath.mpf(rounded_fraction(x, fmt)) for x in (h.real, h.imag)]
        V = [[nearest(Fraction(x), fmt) for x in row] for row in model.readout.weight.tolist()]
        b = [nearest(Fraction(x), fmt) for x in model.readout.bias.tolist()]
        logits = [mpmath.fdot(row, factor) + c for row, c in zip(V, b, strict=True)]
        right = (t - 1) % m
        return logits[right] - max(x for j, x in enumerate(logits) if j != right)


def rounded_fraction(x, fmt):
    return nearest(Fraction(int(x * mpmath.mpf(2) ** 300), 2**300), fmt)


def check_in_digits(seed, name):
    """The verdict on a crafted rotation: the numbers that it names are cosine and sine, and its run is wrong there."""
    case, fmt = crafted(seed), FORMATS[name]
    m = case.task.m
    found = asked(case.model, m, fmt, effort=2500)
    if found.verdict is not Verdict.REFUTED:
        return found.verdict
    wrong, said = found.counterexample["length"], SEED.search(found.counterexample["evaluation"])
    assert found.extra["right_to"] < wrong
    omega = nearest(Fraction(case.model.cell.omega[0].item()), fmt)
    pair = said.groups() if said else (math.cos(omega), math.sin(omega))
    with mpmath.mp.workdps(DIGITS):
        for x, value in zip(pair, (mpmath.cos(omega), mpmath.sin(omega)), strict=True):
            unit = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(value), 2)) + 1 - fmt.p)
            assert abs(mpmath.mpf(float(x)) - value) <= 2 * unit
    if said is None or "kept exactly" in found.counterexample["evaluation"]:
        assert margin_in_digits(case.model, fmt, pair, wrong, m) <= 0, (seed, name)
    else:
        run = Turn(case.model, fmt, None, pair)
        assert wrong_lengths(run, m, wrong)[:1] == [wrong], (seed, name)
    return found.verdict


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float32", "float64"]))
def test_a_wrong_length_is_wrong_in_a_hundred_digits(name):
    assert check_in_digits(ANGLE, name) is Verdict.REFUTED


@pytest.mark.deep
@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64"])
def test_wrong_lengths_of_many_rotations(name):
    verdicts = [check_in_digits(ANGLE + 19 * k, name) for k in range(4)]
    assert verdicts.count(Verdict.REFUTED) > 2


@pytest.mark.parametrize("length", first(1, [2, 7, 60]))
def test_up_to_a_length_where_all_runs_are_right(length):
    found = asked(rotation(5, 1e-5), 5, FORMATS["float32"], length)
    assert found.verdict is Verdict.PROVED
    run = Turn(rotation(5, 1e-5), FORMATS["float32"], random.Random(1))
    for t in range(1, length + 1):
        run.step()
        assert run.margin((t - 1) % 5) >= found.margin


def test_candidates_are_within_two_units():
    with mpmath.mp.workdps(DIGITS):
        for fmt in (P16, FORMATS["bfloat16"]):
            for omega in (0.3, 1.0471975511965976, 1.5, 3.1, 5.5):
                model = rotation(3, 0.0)
                with torch.no_grad():
                    model.cell.omega[0] = omega
                stored = nearest(Fraction(omega), fmt)
                for c, s in turned._turning(model, fmt, 3):
                    for x, value in ((c, mpmath.cos(stored)), (s, mpmath.sin(stored))):
                        unit = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(value), 2)) + 1 - fmt.p)
                        assert x == nearest(Fraction(x), fmt) and abs(x - value) <= 2 * unit


def test_formats_that_are_not_followed_are_refused():
    with pytest.raises(BadInput, match="one format"):
        asked(rotation(5, 1e-5), 5, FORMATS["tf32"])
