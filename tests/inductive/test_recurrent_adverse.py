"""Runs in a format against an answer: each of their results is allowed, and what they refute is not proved."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from flint import arb, ctx
from models.crafted import FAMILIES, crafted
from test_recurrent_rounded import asked, nearest

from constructions.recurrent.gated import DiagonalCell, GatedModel, PositionWise
from constructions.recurrent.linear import LinearModel
from tests.clocks import endless, looks
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import ends
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import adverse, computed, exact, gated, grid, representable
from verify.tasks.recurrent.network import step
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous, network_of

NAMES = ("bfloat16", "float32")


def kept(x):
    """With the bits of float64, to nearest."""
    return Fraction(float(x))


def either(x, fmt):
    return {kept(x), Fraction(nearest(Fraction(x), fmt))}


def all_sums(products, added, fmt):
    """Every result of a sum from left to right, in every order, each product and partial sum rounded or kept."""
    found = set()
    for terms in itertools.permutations([either(w * x, fmt) for w, x in products] + [{b} for b in added]):
        totals = set(terms[0])
        for term in terms[1:]:
            totals = {y for total in totals for x in term for y in either(total + x, fmt)}
        found |= totals
    return found


def numbers(rng, fmt, *shape):
    return np.vectorize(lambda x: nearest(Fraction(float(x)), fmt))(rng.normal(size=shape) * 2.0 ** rng.integers(-9, 3))


def outside(name, draws):
    """How many results of sums, operations and functions are none that the reading allows."""
    fmt, rng, found = FORMATS[name], np.random.default_rng(5), 0
    on = adverse.Choosing(fmt)
    for _ in range(draws):
        W, b, is_up = numbers(rng, fmt, 2, 2), numbers(rng, fmt, 2), rng.random(2) < 0.5
        x = rng.normal(size=2) if rng.random() < 0.5 else numbers(rng, fmt, 2)
        factors = [Fraction(nearest(Fraction(float(y)), fmt)) for y in x]
        for row, shift, total in zip(W, b, on.sums(adverse.Sum(((W, x),), (b,)), is_up), strict=True):
            products = [(Fraction(w), y) for w, y in zip(row.tolist(), factors, strict=True)]
            found += Fraction(float(total)) not in all_sums(products, [Fraction(float(shift))], fmt)
        on.steer([np.where(is_up, 1.0, -1.0)] * 3)
        halves = numbers(rng, fmt, 2) * (1 + fmt.u * rng.choice([0.0, 1.0, 0.3], size=2))
        for y, z in zip(halves, on.on.result(halves), strict=True):
            found += Fraction(float(z)) not in either(Fraction(float(y)), fmt)
        for f, own in ((on.on.tanh, arb.tanh), (on.on.sigmoid, lambda v: 1 / (1 + (-v).exp()))):
            at = rng.normal(size=2) * 4
            for y, z in zip(at, f(at), strict=True):
                with ctx.workprec(200):
                    true = own(arb(float(y)))
                    unit = arb(2) ** (math.frexp(float(true))[1] - fmt.p)
                    found += not abs(arb(float(z)) - true) < 2 * unit
    return found


@pytest.mark.parametrize("name", NAMES)
def test_each_result_is_one_that_the_reading_allows(name):
    assert outside(name, 60) == 0


@pytest.mark.parametrize(
    ("attribute", "own", "fault"),
    [
        ("_off", "np.ldexp(OFF,", "np.ldexp(1.2 * OFF,"),
        ("_towards", "near = self.near(x)\n", "near = self.near(x * (1 + self._fmt.u))\n"),
        ("sums", "W * self.near(y)", "W * y"),
    ],
)
def test_results_that_are_not_allowed_are_found(attribute, own, fault):
    with planted(adverse.Choosing, attribute, own, fault):
        assert outside("bfloat16", 60) > 0


def zeros_moved(sign):
    """What tanh makes of 0, and sigmoid of what float64 takes for 0."""
    on = adverse.Choosing(FORMATS["bfloat16"])
    on.steer([np.array([sign])] * 2)
    return float(on.on.tanh(np.zeros(1))[0]), float(on.on.sigmoid(np.array([-800.0]))[0])


def test_a_function_that_is_zero_is_not_off():
    for sign in (1.0, -1.0):
        assert zeros_moved(sign) == (0.0, 0.0)
    with planted(adverse.Choosing, "_off", "np.where(y == 0, 0.0,", "np.where(False, 0.0,"):
        assert min(map(abs, zeros_moved(1.0))) > 0.007


def test_the_tuned_candidate_is_one_that_tanh_may_be_and_goes_further():
    fmt, further = FORMATS["bfloat16"], 0
    for h, x, z in ((0.31, 0.3, 1.0), (0.5, -0.25, 1.0), (-0.7, 0.2, 1.0), (3.0, 1.0, 0.99), (0.3, 0.3, 1.004)):
        for sign in (1.0, -1.0):
            on = adverse.Choosing(fmt)
            on.steer([np.array([sign])] * 9)
            n = on.on.tanh(np.array([x]))
            tuned = on.on.tuned(np.array([z]), n, np.array([h]))
            unit = math.ldexp(1.0, math.frexp(math.tanh(x))[1] - fmt.p)
            assert abs(tuned[0] - math.tanh(x)) < 2 * unit
            after, plain = (on.on.add(m, on.on.multiply(z, on.on.add(np.array([h]), -m)))[0] for m in (tuned, n))
            assert sign * after >= sign * plain
            further += after != plain
    assert further > 4


def networks(seed, name):
    """A crafted network as all its tables may be computed, and as one run has them."""
    case, at = crafted(seed), RoundedArithmetic.of(FORMATS[name])
    if isinstance(case.model, GatedModel):
        return case, at, gated.network(case.model, at), gated.network(gated.stored_in(case.model, at.stored))
    near = network_of(case.model).rounded(at.stored)
    return case, at, near, near


FITTING = [name for name in FAMILIES if name not in ("subnormal", "overflow", "rotation angle", "number line")]


def beyond_boxes(seeds, name, tokens):
    """How many states and margins of runs against an answer are not in the boxes of all runs."""
    found = 0
    for seed in seeds:
        case, at, net, run = networks(seed, name)
        line, boxes = asked(case), grid.Boxes(net, asked(case), at)
        along = adverse.Gradient(run, line, tokens, endless().deadline())
        on, state, box = (
            adverse.Choosing(at.stored, adverse._exponentials(net, run, at.stored)),
            adverse.zeros(run),
            boxes.start(),
        )
        for t, signs in enumerate(along.against(tokens) if boxes.can_run else ()):
            on.steer(signs)
            state, box = [on.on.value(x) for x in step(run, state, line.at(t), on.on)], boxes.step(box, t)
            low, high = ends(box)
            found += not ((low <= np.concatenate(state)) & (np.concatenate(state) <= high)).all()
            others = np.arange(len(run.b)) != line.expected(t + 1)
            logits = on.sums(on.on.linear(run.V, state[-run.parts], run.b), others)
            margin = adverse.judged(logits.tolist(), line.expected(t + 1))[0]
            found += not boxes.margin(box, t + 1)[0] <= margin
    return found


@pytest.mark.parametrize("name", NAMES)
def test_runs_against_answers_lie_in_the_boxes_of_all_runs(name):
    assert beyond_boxes([FAMILIES.index(x) for x in FITTING[:: 1 if name == NAMES[0] else 3]], name, 6) == 0


def test_a_run_that_is_not_allowed_leaves_the_boxes():
    with mock.patch.object(adverse, "OFF", 12.0):
        assert beyond_boxes([FAMILIES.index("gru first"), FAMILIES.index("lstm first")], "bfloat16", 12) > 0


def refuted(seed, name, seconds=30.0):
    case, at, net, run = networks(seed, name)
    for found in adverse.runs(net, run, asked(case), None, at, 0, endless(seconds).deadline()):
        if found.wrong_at is not None:
            return found.wrong_at
    return None


@pytest.mark.parametrize("seed", [12, 31, 36, 55])
def test_rotations_and_cycles_that_every_plain_run_has_right_are_refuted(seed):
    case, at, net, run = networks(seed, "bfloat16")
    assert case.family in ("rotation matrix", "disturbed cycle")
    assert refuted(seed, "bfloat16") <= 40


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "family"), [(1, "gru swings"), (35, "tanh creeps"), (27, "mamba first")])
def test_units_that_drift_for_ever_are_refuted_later(seed, family):
    assert crafted(seed).family == family and 100 < refuted(seed, "bfloat16") < 10_000


@pytest.mark.deep
@pytest.mark.parametrize("share", range(4))
def test_a_proved_network_is_right_in_runs_against_its_answers(share):
    """Those that boxes or ellipsoids prove in this format for 24 tokens."""
    proved = 0
    for seed in range(share, 4 * len(FAMILIES), 4):
        if FAMILIES[seed % len(FAMILIES)] not in FITTING:
            continue
        case = crafted(seed)
        found = certify(Homogeneous(case.model, case.task, 24), Rounded(FORMATS["bfloat16"]), Effort(budget=looks(300)))
        if found.verdict is Verdict.PROVED:
            proved += 1
            _, at, net, run = networks(seed, "bfloat16")
            runs = adverse.runs(net, run, asked(case), 24, at, 0, endless().deadline())
            assert all(x.wrong_at is None for x in runs), seed
    assert proved > 0


# ---- runs in real arithmetic whose states are numbers of the format


def is_representable(model, steps, fmt):
    """Whether all states of so many tokens are numbers of the format, in Python's fractions."""
    A = [[Fraction(x) for x in row] for row in model.cell.A.tolist()]
    B, h = [Fraction(x) for x in model.cell.B.tolist()], [Fraction(0)] * len(A)
    for _ in range(steps):
        h = [sum(a * x for a, x in zip(row, h, strict=True)) + b for row, b in zip(A, B, strict=True)]
        if any(Fraction(nearest(x, fmt)) != x for x in h):
            return False
    return True


def said_wrongly(fmt, count=80, steps=40):
    """How many networks are said to be run exactly and are not, and how many are said to be and are."""
    rng, wrong, right = np.random.default_rng(3), 0, 0
    for _ in range(count):
        A = np.tril(rng.choice([0.0, 1.0, -1.0, 0.5, 2.0], size=(2, 2), p=[0.3, 0.3, 0.2, 0.1, 0.1]))
        B = rng.integers(1, 2 ** int(rng.integers(1, fmt.p)), size=2) / 2.0 ** int(rng.integers(0, 20))
        V, b = torch.as_tensor(rng.normal(size=(2, 2))), torch.zeros(2, dtype=torch.float64)
        model = LinearModel("ssm", torch.as_tensor(A), torch.as_tensor(B), V, b)
        if representable.is_run_of(exact.Exact.of(model), steps, fmt):
            is_right = is_representable(model, steps, fmt)
            right, wrong = right + is_right, wrong + (not is_right)
    return wrong, right


def test_runs_that_are_said_to_be_exact_are():
    wrong, right = said_wrongly(FORMATS["bfloat16"])
    assert wrong == 0 and right > 10


def test_units_and_sizes_are_both_needed():
    with mock.patch.object(representable, "_sizes", lambda net, steps: ([arb(0)] * net.A.nrows(), [arb(0)])):
        assert said_wrongly(FORMATS["bfloat16"])[0] > 0
    with mock.patch.object(representable, "_units", lambda net: [0] * net.A.nrows()):
        assert said_wrongly(FORMATS["bfloat16"])[0] > 0


def test_a_run_of_more_tokens_than_a_machine_word_counts_is_not_said_to_be_exact():
    """A sum of the least subnormal number is wrong after 10^20 tokens: no number of float64 counts them."""
    case = crafted(428)
    assert case.family == "subnormal" and case.oracle() > 2**64
    found = certify(Homogeneous(case.model, case.task, None), Rounded(FORMATS["float64"]), Effort(budget=looks(60)))
    assert found.verdict is Verdict.UNKNOWN and found.extra["right_to"] < case.oracle()


def test_a_sum_of_subnormal_numbers_is_refuted_at_its_first_wrong_length_in_float64():
    case = crafted(10)
    assert case.family == "subnormal"
    found = certify(Homogeneous(case.model, case.task, None), Rounded(FORMATS["float64"]), Effort(budget=looks(400)))
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == case.oracle()
    assert found.counterexample["evaluation"].startswith("every result kept exactly")


# ---- what overflows


def grows(first, reads, V, b, layer=None):
    """A state that each token raises by `first`, beside one that stays 1."""
    D = torch.float64
    on, added, by = (torch.tensor(x, dtype=D) for x in ([1.0, 0.0], [[first, 1.0]], reads))
    return GatedModel(DiagonalCell(on, added, by), torch.tensor(V, dtype=D), torch.tensor(b, dtype=D), layer)


def wrong_runs(model, fmt, due):
    """The lengths at which a run is wrong, of those against answers and of plain ones, where `due` is always due."""
    at, line = RoundedArithmetic.of(fmt), OrbitQuestion((), 0, due, 1, 1)
    net, run = gated.network(model, at), gated.network(gated.stored_in(model, fmt))
    ran = [
        *adverse.runs(net, run, line, 4, at, 0, endless().deadline()),
        *computed.runs(run, line, 4, at, endless().deadline()),
    ]
    return [x.wrong_at for x in ran if x.wrong_at is not None]


@pytest.mark.parametrize(("name", "far"), [("float16", 40000.0), ("bfloat16", 2.5e38)])
def test_an_infinite_number_is_not_multiplied_by_what_pads(name, far):
    """One neuron reads two states, and its network has a second row of zeros, which the model has not."""
    layer = PositionWise(*(torch.tensor(x, dtype=torch.float64) for x in ([[1.0, 1.0]], [[-0.75 * far]])))
    model = grows(far, [1.0, 1.0], [[1.0], [-1.0]], [-0.75 * far, 0.75 * far], layer)
    ran = deepcopy(model).to(getattr(torch, name))(torch.zeros(1, 4, dtype=torch.long))[0]
    assert ran[1].tolist() == [math.inf, -math.inf] and ran.argmax(-1).tolist() == [1, 0, 0, 0]
    assert wrong_runs(model, FORMATS[name], lambda t: int(t == 1)) == []


def test_no_run_against_an_answer_keeps_what_saturates():
    """448 is the largest number of e4m3: half of it is below 232, and half of 576, which would be kept, is not."""
    model = grows(192.0, [0.5, 0.0], [[-1.0, 0.0], [1.0, 0.0]], [448.0, -16.0])
    at, line = RoundedArithmetic.of(FORMATS["e4m3"]), OrbitQuestion((), 0, lambda t: 0, 1, 1)
    net = gated.network(model, at)
    ran = list(adverse.runs(net, net, line, 4, at, 0, endless().deadline()))
    assert ran and all(x.wrong_at is None for x in ran)


def test_what_is_kept_beyond_the_largest_number_refutes():
    """80,000 is infinite where it is rounded to float16, which answers 1; where it is kept, half of it answers 0."""
    model = grows(40000.0, [0.5, 0.0], [[-1.0, 0.0], [1.0, 0.0]], [42496.0, -42496.0])
    assert wrong_runs(model, FORMATS["float16"], lambda t: int(t > 1)) == [2]
    assert 2 in wrong_runs(model, FORMATS["float16"], lambda t: 0)


# ---- what certificates say of functions


def test_a_certificate_names_the_functions_that_its_network_has():
    cells = {
        "lstm first": "tanh and sigmoid are",
        "gru first": "tanh and sigmoid are",
        "mamba first": "exp and softplus are",
        "rwkv first": "exp is",
        "tanh creeps": "tanh is",
        "ring creeps": None,
        "rotation matrix": None,
    }
    for family, said in cells.items():
        case = crafted(FAMILIES.index(family))
        told = Homogeneous(case.model, case.task, None).assumptions(Rounded(FORMATS["bfloat16"]))
        about = [sentence for sentence in told if "units in the last place" in sentence]
        assert len(about) == (said is not None) and all(x.startswith(said) for x in about), family
