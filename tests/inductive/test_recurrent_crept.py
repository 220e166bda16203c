"""Lines that creep in a format, in tubes widened by rounding: against fractions in drawn orders and closed forms."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from flint import arb
from models.crafted import FAMILIES, crafted
from models.selection import first
from test_recurrent_rounded import SWING, Line, asked

from constructions.recurrent.gated import DiagonalCell, GatedModel
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import RecurrentModel
from tests.clocks import ENDLESS, endless, looks
from tests.planted import planted
from verify.arithmetic import contract
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, precision_named
from verify.arithmetic.readings import Rounded
from verify.checker import creeping_pieces
from verify.checker.inductive import check
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import computed, gated, rounded, slow
from verify.tasks.recurrent.enclosures import Off, Roundings
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.off import StepErrors
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion, crept_along, first_states
from verify.tasks.recurrent.slow import Creeping
from verify.tasks.recurrent.task import Homogeneous, network_of

D, MOST = torch.float64, 1300
FORMAT = precision_named("p16")


def linear(f, add, push, beside=0.0):
    """h' = 1 - h swings, s' = f s + add is taken from the right class, and both logits have one number more."""
    A, B = torch.diag(torch.tensor([-1.0, f], dtype=D)), torch.tensor([1.0, add], dtype=D)
    V, b = torch.tensor([[2.0, -push], [0.0, 0.0]], dtype=D), torch.tensor([beside - 1.0, beside], dtype=D)
    return LinearModel("ssm", A, B, V, b)


def gru(push):
    """One unit swings, the other creeps towards what the readout takes from the right class."""
    model = RecurrentModel("gru", hidden=2, classes=2, dtype=D)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        gates, weights = model.cell.bias_ih_l0.view(3, 2), model.cell.weight_hh_l0.view(3, 2, 2)
        gates[:, 0], gates[:, 1] = torch.tensor([6.0, -6.0, 0.1], dtype=D), torch.tensor([1.0, 5.5, 0.5], dtype=D)
        weights[2, 0, 0] = -4.0
        weights[:, 1, 0] = torch.tensor([0.1, 0.2, -0.1], dtype=D)
        model.readout.weight.copy_(torch.tensor([[2.0, -push], [-2.0, push]]))
    return model


MODELS = {
    "adds soon": linear(1.0, 58.45 * 2.0**-16, 4.0),
    "adds": linear(1.0, 58.45 * 2.0**-16, 1.0),
    "fades": linear(1 - 2.0**-10, 1.6e-3, 1.0),
    "logits": linear(1.0, 0.9e-3, 1.2, 60000.0),
    "gru": gru(9.0),
    "for ever": gru(3.0),
}


def kept_beside_its_factor(at, v):
    """A GRU's step, as a share of what is counted for it: h has more bits than its factor, and each rounding adds v."""
    model = RecurrentModel("gru", hidden=1, classes=2, dtype=D)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.bias_ih_l0.copy_(torch.tensor([0.0, 11.0, 0.25], dtype=D))
    net = network_of(model).rounded(at.stored)
    _, z, n = net.layers[0].b_x
    z, n, factor = 1 / (1 + math.exp(-z)), math.tanh(n), 0.5
    kept = factor * (1 + v)
    exact = (1 - z) * n + z * factor
    more = 1 + v
    high = z * (1 + 4 * v) * more
    computed_as = ((1 - high) * more * n * more * more + high * kept * more) * more
    (bound,) = StepErrors(net, Roundings(at)).of_step([arb(factor)], 0)
    return abs(computed_as - exact) / float(bound)


def test_a_state_that_is_kept_with_more_bits_than_its_factor_is_counted():
    wide, tf32 = (RoundedArithmetic.of(FORMATS[a], b) for a, b in (("bfloat16", FORMATS["float32"]), ("tf32", None)))
    for at in (wide, tf32, RoundedArithmetic.of(FORMATS["bfloat16"])):
        assert kept_beside_its_factor(at, at.stored.u) <= 1
    with mock.patch.object(Roundings, "_kept", lambda self, x: x):
        assert kept_beside_its_factor(wide, wide.stored.u) > 1


def readout(at, state):
    """What is counted for a readout of a thousand times one number."""
    net = network_of(linear(1.0, 0.0, 0.0))
    net = replace(net, V=np.array([[1000.0, 0.0], [0.0, 0.0]]))
    return float(StepErrors(net, Roundings(at)).of_logits([arb(state), arb(0)])[0])


def test_a_number_that_may_be_flushed_where_it_is_read_is_counted():
    at = RoundedArithmetic.of(FORMATS["float16"])
    small = at.stored.tiny * 0.99
    assert readout(at, small) > 1000 * small
    with mock.patch.object(Roundings, "held", lambda self, x: Off(x, np.zeros_like(x.mid))):
        assert readout(at, small) < 1000 * small


class Keeping:
    """In place of draws: every result is kept, and sums go from left to right."""

    def random(self):
        return 0.0

    def shuffle(self, values):
        pass


class Low(Line):
    """Sigmoids are low by a factor of 1 - 3u/2."""

    def sigmoid(self, x):
        return self.once((1 - 3 * Fraction(2) ** -(self.fmt.p + 1)) * Fraction(super().sigmoid(x)))


def first_wrong(model, rng, most=MOST, run_of=Line):
    line, run = asked(SimpleNamespace(model=model, task=SWING)), run_of(model, FORMAT, rng)
    for t in range(1, most + 1):
        run.step()
        if not run.margin(line.expected(t)) > 0:
            return t
    return None


def crept(model, fmt, *, keeps=False, steps=None):
    line, net = asked(SimpleNamespace(model=model, task=SWING)), network_of(model).rounded(fmt)
    on = Roundings.of_factors(fmt) if keeps else Roundings(RoundedArithmetic.of(fmt))
    return crept_in(net, line, on, fmt, steps)


def crept_in(net, line, on, fmt, steps=None, budget=ENDLESS, later=None):
    until = budget.deadline()
    return crept_along(net, line, first_states(net, line, until), steps, until, StepErrors(net, on, fmt.u), later)


@contextmanager
def counted_pieces():
    """The tokens before each piece of a tube that is tried."""
    right, found = Creeping._turn, []

    def counting(self, *rest):
        found.append(self.t)
        return right(self, *rest)

    with mock.patch.object(Creeping, "_turn", counting):
        yield found


def outside(names, draws=2):
    """How many runs of fractions contradict what is said of every run, or of the one that keeps all."""
    found = 0
    for name in names:
        runs = [(None, False), *((random.Random(k), False) for k in range(draws)), (Keeping(), True)]
        for rng, keeps in runs:
            said = crept(MODELS[name], FORMAT, keeps=keeps)
            wrong = first_wrong(MODELS[name], rng, 200 if name == "for ever" else MOST)
            found += wrong is not None and (said.entered is not None or wrong <= said.right_to)
            found += said.wrong_at is not None and said.wrong_at <= MOST and (wrong is None or wrong > said.wrong_at)
    return found


@pytest.mark.parametrize("name", first(1, MODELS))
def test_every_run_goes_wrong_within_what_is_said(name):
    assert outside([name]) == 0
    said = crept(MODELS[name], FORMAT)
    assert (said.entered is not None) == (name == "for ever")
    assert name in ("for ever", "logits") or said.wrong_at <= 4 * said.right_to


FAULTS = {
    "steps that are not rounded": (StepErrors, "of_step", "if self.on is None", "if True"),
    "logits that are not rounded": (StepErrors, "of_logits", "if self.on is None", "if True"),
    "a margin that may be below 0": (Creeping, "_judge_on", "there[1] <= 0", "there[0] <= 0"),
    "factors that are not rounded": (Roundings, "_as_factor", "x.error + rounding", "x.error"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name):
    with planted(*FAULTS[name]):
        assert outside(["adds", "fades", "logits"], 4) > 0


def unsure_before(self, *rest):
    self.unsure = 1
    return walk(self, *rest)


walk = Creeping.walk


@pytest.mark.deep
def test_a_tube_that_is_kept_proves_nothing_after_an_unsure_margin():
    with mock.patch.object(Creeping, "walk", unsure_before), mock.patch.object(slow, "MOST_BEYOND", 1):
        assert crept(MODELS["for ever"], FORMAT).entered is None
        with planted(Creeping, "is_kept", "self.unsure is not None", "False"):
            assert crept(MODELS["for ever"], FORMAT).entered is not None


@pytest.mark.deep
def test_a_run_whose_sigmoids_are_low_is_wrong_where_it_is_said_to_be():
    """The gate is 1 but for 2^-30: a sigmoid that is low by 3/2 of 2^-16 forgets far sooner."""
    model = gru(9.0)
    with torch.no_grad():
        model.cell.bias_ih_l0[3] = 21.0
    line, net = asked(SimpleNamespace(model=model, task=SWING)), network_of(model).rounded(FORMAT)
    coarse = Roundings.of_factors(FORMAT)
    said = [crept_in(x, line, coarse, FORMAT) for x in (net, net.askew(FORMAT, sigmoids=-1.5))]
    assert said[1].right_to < said[1].wrong_at < said[0].right_to / 100


@pytest.mark.deep
def test_low_sigmoids_against_fractions():
    line, net = asked(SimpleNamespace(model=MODELS["gru"], task=SWING)), network_of(MODELS["gru"]).rounded(FORMAT)
    low = crept_in(net.askew(FORMAT, sigmoids=-1.5), line, Roundings.of_factors(FORMAT), FORMAT)
    assert low.right_to < first_wrong(MODELS["gru"], Keeping(), run_of=Low) <= low.wrong_at
    run = computed.run(
        net.askew(FORMAT, sigmoids=-1.5), line, MOST, RoundedArithmetic.of(FORMAT), endless().deadline(), keeps=True
    )
    assert run.wrong_at == first_wrong(MODELS["gru"], Keeping(), run_of=Low)


def gru_first(format_name):
    """A GRU whose gate is 1 but for 2^-46, on the line of seed 44, and two evaluations that bring its state past n."""
    case, fmt = crafted(44), precision_named(format_name)
    net, at = network_of(case.model).rounded(fmt), RoundedArithmetic.of(fmt)
    return case, asked(case), fmt, rounded._askew(net, at)[-1], at


class Past(Line):
    """Sigmoids low and tanh high until so many tokens are read, and then the other way round; 53 bits are kept."""

    def __init__(self, model, fmt, after):
        super().__init__(model, fmt)
        self.after, self.t, self.by = after, 0, Fraction(15, 8) * Fraction(2) ** -fmt.p

    def once(self, x):
        return Fraction(float(x))

    def step(self):
        self.sign = 1 if self.t < self.after else -1
        super().step()
        self.t += 1

    def sigmoid(self, x):
        return self.once((1 - self.sign * self.by) * Fraction(super().sigmoid(x)))

    def tanh(self, x):
        return self.once((1 + self.sign * self.by) * Fraction(super().tanh(x)))


def wrong_in_python(case, line, fmt, after, most):
    run = Past(case.model, fmt, after)
    for t in range(1, most + 1):
        run.step()
        if not run.margin(line.expected(t)) > 0:
            return t
    return None


@pytest.mark.deep
def test_a_state_that_is_brought_past_its_limit_against_plain_python():
    case, line, fmt, askew, at = gru_first("bfloat16")
    found = computed.run(askew.net, line, 3000, at, endless().deadline(), keeps=True, later=askew.later)
    assert found.wrong_at == wrong_in_python(case, line, fmt, askew.later.after, 3000) > askew.later.after
    assert computed.run(askew.net, line, 3000, at, endless().deadline(), keeps=True).wrong_at is None


@pytest.mark.deep
def test_its_tube_holds_the_run_that_changes_where_the_tube_does():
    case, line, fmt, askew, at = gru_first("p10")
    changed, errors = [], StepErrors(askew.net, Roundings.of_factors(fmt), fmt.u)
    right = Creeping.changed

    def recorded(self, net):
        changed.append(self.t)
        return right(self, net)

    until = endless().deadline()
    with mock.patch.object(Creeping, "changed", recorded):
        said = crept_along(askew.net, line, first_states(askew.net, line, until), None, until, errors, askew.later)
    ran = computed.run(askew.net, line, 60_000, at, until, keeps=True, later=replace(askew.later, after=changed[0]))
    assert said.right_to < ran.wrong_at <= said.wrong_at and changed[0] >= askew.later.after
    with mock.patch.object(Creeping, "changed", lambda self, net: right(self, self.net)):
        same = crept_along(askew.net, line, first_states(askew.net, line, until), None, until, errors, askew.later)
    assert same.wrong_at is None


def test_what_functions_are_off_by_is_within_two_units():
    for fmt in (FORMAT, FORMATS["bfloat16"], FORMATS["float64"]):
        for share in (rounded.LOW, rounded.HIGH, -rounded.HIGH):
            for v in (0.5, 0.75, 1 - fmt.u, 2.0**-9, 3 * 2.0**-7):
                unit = Fraction(2) ** (math.frexp(v)[1] - fmt.p)
                assert abs(Fraction(share) * Fraction(fmt.u) * Fraction(v)) < 2 * unit


@pytest.mark.deep
def test_a_long_piece_whose_end_says_nothing_is_cut():
    case, fmt = crafted(43), FORMATS["float32"]
    net, on = network_of(case.model).rounded(fmt), Roundings(RoundedArithmetic.of(fmt))
    assert crept_in(net, asked(case), on, fmt).right_to > 10**6
    with mock.patch.object(Creeping, "_check_fine", lambda self, *rest: None):
        assert crept_in(net, asked(case), on, fmt).right_to < 100


@pytest.mark.parametrize("steps", first(1, [1200, 100, 1750]))
def test_up_to_a_length_only_what_comes_before_it_is_said(steps):
    whole, said = crept(MODELS["adds"], FORMAT), crept(MODELS["adds"], FORMAT, steps=steps)
    assert 100 < whole.right_to < 1200 < whole.wrong_at < 1750
    assert said.wrong_at == (whole.wrong_at if steps == 1750 else None)
    assert said.right_to == min(steps, whole.right_to) and (said.stuck is None) == (steps != 1200)


@pytest.mark.parametrize(("steps", "right", "wrong"), [(20, 20, None), (36, 36, None), (38, 36, None), (60, 36, 39)])
def test_what_is_walked_turn_by_turn_ends_at_the_length_too(steps, right, wrong):
    """1 - 30 * 0.0009 t is just above 0 after 37 tokens, so that rounding may have it either way."""
    said = crept(linear(1.0, 0.9e-3, 30.0), FORMAT, steps=steps)
    assert (said.right_to, said.wrong_at) == (right, wrong) and (said.stuck is not None) == (steps == 38)


FAR = [("rwkv first", 64), ("gru swings", 20), ("lstm first", 24), ("linear creeps", 42)]


@pytest.mark.parametrize(("family", "seed"), first(1, FAR))
def test_late_failures_in_float64_are_where_the_closed_form_has_them(family, seed):
    """Real arithmetic is within what rounding may do: its first wrong length is between the two that are said."""
    case, fmt = crafted(seed), FORMATS["float64"]
    assert case.family == family == FAMILIES[seed % len(FAMILIES)]
    is_gated = isinstance(case.model, GatedModel)
    net = gated.network(case.model, RoundedArithmetic.of(fmt)) if is_gated else network_of(case.model)
    said = crept_in(net, asked(case), Roundings(RoundedArithmetic.of(fmt)), fmt)
    assert said.right_to < case.oracle() <= said.wrong_at < 1.1 * case.oracle()


def test_a_sum_beside_a_turn_of_ten_is_followed_in_boxes_as_wide_as_its_tube():
    """What rounding adds in a step grows within a turn, so that boxes of the first width hold two turns alone."""
    case, fmt = crafted(118), FORMATS["float64"]
    assert case.family == "linear creeps" and case.oracle() == 1_059_826

    net, on = network_of(case.model), Roundings(RoundedArithmetic.of(fmt))
    with counted_pieces() as few:
        said = crept_in(net, asked(case), on, fmt)
    assert (said.wrong_at, said.right_to) == (1_059_826, 1_059_825)
    with mock.patch.object(slow, "WIDEST", 0.0), counted_pieces() as many:
        said = crept_in(net, asked(case), on, fmt, budget=looks(150))
    assert said.wrong_at is None and 10 * len(few) < len(many)


@pytest.mark.deep
def test_tubes_that_grow_as_their_states_do_are_cut_into_few_pieces():
    """A gate above 1 takes a GRU's state away by e^40, of which each segment holds e^8."""
    case, fmt = crafted(120), FORMATS["float32"]
    net = network_of(case.model).rounded(fmt)
    past = rounded._askew(net, RoundedArithmetic.of(fmt))[-1]
    with counted_pieces() as pieces:
        said = crept_in(past.net, asked(case), Roundings.of_factors(fmt), fmt, later=past.later)
    assert past.later.after < said.right_to < said.wrong_at < said.right_to + 100
    assert len(pieces) < 200


def test_a_state_that_would_grow_and_stays_0_is_followed_like_any_other():
    """In one piece of 2^30 turns it would be multiplied by more than float64 holds."""
    D = torch.float64
    keep, add = torch.tensor([0.5, 1 - 2.0**-30, 1.5], dtype=D), torch.tensor([[1.0, 2.0**-33, 0.0]], dtype=D)
    V = torch.tensor([[40.0, 2.0, 1.0], [0.0, 0.0, 0.0]], dtype=D)
    net = gated.network(
        GatedModel(DiagonalCell(keep, add, torch.ones(3, dtype=D)), V, torch.tensor([-50.0, 0.0], dtype=D))
    )
    line, until = OrbitQuestion((), 0, lambda t: int(t == 1), 1, 1), endless().deadline()
    said = crept_along(net, line, first_states(net, line, until), 2**32, until)
    assert said.right_to == 2**32 and said.wrong_at is None


def certified(model, fmt, accumulate=None, length=None):
    """What tubes alone make of a model, and of its certificate the checker's exit code."""
    nothing, names = OrbitOutcome(0, math.inf, 0, reason="it is not asked"), ("for_ever", "finite")
    asked_of_none = {name: lambda *rest: nothing for name in names} | {"_boxed": lambda *rest: None}
    with mock.patch.multiple(rounded, **asked_of_none):
        found = certify(Homogeneous(model, SWING, length), Rounded(fmt, accumulate), Effort(budget=looks(3000)))
    weights = bytes_of(model)
    return found, checked(weights, found.about(weights).to_json().encode())


def checked(weights, certificate):
    """The exit code of the checker."""
    try:
        check(weights, certificate)
    except Refusal as refusal:
        return refusal.exit_code
    return 0


SAVED = [
    ("adds soon", "p16", None, 60, Verdict.PROVED, 0),
    ("adds soon", "p16", None, None, Verdict.REFUTED, 0),
    ("for ever", "p16", None, None, Verdict.PROVED, 0),
    ("adds soon", "tf32", None, 30, Verdict.PROVED, NOT_CHECKABLE),
    ("adds soon", "bfloat16", "float32", 6, Verdict.PROVED, NOT_CHECKABLE),
]


@pytest.mark.parametrize(("name", "precision", "accumulate", "length", "verdict", "code"), first(2, SAVED))
def test_certificates_of_tubes_hold_in_one_format(name, precision, accumulate, length, verdict, code):
    """`verify check` decides lines of linear states by bounds of its own, and repeats no tubes."""
    wider = None if accumulate is None else FORMATS[accumulate]
    found, told = certified(MODELS[name], precision_named(precision), wider, length)
    assert (found.verdict, told) == (verdict, code)


def test_the_certificate_names_the_run_and_the_length_before_which_all_are_right():
    with mock.patch.object(creeping_pieces, "MOST_WORK", 100):  # steps, with any of which it is open
        found, told = certified(crafted(20).model, FORMATS["float64"])
    assert found.verdict is Verdict.REFUTED and found.counterexample["evaluation"] == contract.EVERY
    assert not found.counterexample["is_first"] and 10**11 < found.extra["right_to"] < found.counterexample["length"]
    assert told == NOT_CHECKABLE
