"""Lines that creep for ever in a format: drawn evaluations against boxes, forged certificates, planted faults."""

import contextlib
import hashlib
import json
import random
from fractions import Fraction
from unittest import mock

import pytest
import torch
from flint import arb, ctx, fmpq
from models.crafted import blank, crafted
from models.judged_crafted import decided, margins_in_torch
from models.rechecked import outcome
from models.selection import first

from tests.oracles.loose_steps import loose_steps
from tests.oracles.rounded import nearest
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import computed_creeps, creeping
from verify.checker.computed_creeps import ComputedCreeps
from verify.checker.corners import CornerBox
from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.recurrent import due_of, network
from verify.checker.rounded import stored_in
from verify.tasks.recurrent.models import bytes_of

NAMES = ("float64", "float32", "bfloat16")
SAVED = {  # networks whose certificates save no set of states: GRU, tanh and LSTM, and how far they are known
    "float64": [158, 248, 168, 139, 134, 290, 96, 267],
    "float32": [35, 343, 290],
}


def claim(model, name, margin, m=None):
    """A certificate that all lengths are right in a format."""
    said = {"task": "modular", "modulus": m} if m else {"task": "first-homogeneous"}
    said |= {"model": model.kind, "units": model.hidden, "layers": 1, "dtype": "float64", "length": "all"}
    said |= {"precision": name} | ({"activation": model.activation} if model.kind == "rnn" else {})
    return {
        "schema": "weightproof/1", "claim": None, "task": "inductive", "reading": "dtype, any order",
        "method": "certified", "argument": "drawn", "margin_exact": None, "margin_per_count": None, "assumptions": [],
        "error_share": None, "reason": None, "seconds": 0.0, "parameters": said, "verdict": "PROVED",
        "weights_sha256": hashlib.sha256(bytes_of(model)).hexdigest(), "margin": margin, "length": "all",
        "inputs_covered": "infinite", "counterexample": None, "tightest": {"length": 1, "margin": margin},
    }  # fmt: skip


def said_of(model, name, margin, m=None):
    """What the checker says where turns begin early."""
    with mock.patch.multiple(creeping, ENTRIES=(8,), PERIODS_OF_TURN=(1,)):
        return outcome(bytes_of(model), claim(model, name, margin, m))


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "name"), [(seed, name) for name, seeds in SAVED.items() for seed in seeds])
def test_a_certificate_without_sets_of_states_holds_and_no_margin_above_that_of_torch(seed, name):
    case = crafted(seed)
    weights = bytes_of(case.model)
    c = json.loads(decided(case, name, 2000).about(weights).to_json())
    assert not {"boxes", "invariant"} & {*c} and outcome(weights, c) == "PROVED"
    more = (1 + 1e-9) * min(margins_in_torch(case, name))
    assert more > c["margin"] and outcome(weights, c | {"margin": more}) in (FAILS, NOT_CHECKABLE)
    with mock.patch.object(computed_creeps, "MOST_WORK", 100):
        assert outcome(weights, c) == NOT_CHECKABLE


# ---- a unit that swings, and one that creeps, with a run of them


def swinging(kind, rate):
    """Unit 0 swings at every token, and unit 1 comes nearer to its limit by about that share of what is left."""
    model = blank(kind, 2, 2)
    with torch.no_grad():
        if kind == "gru":
            gates, weights = model.cell.bias_ih_l0.view(3, 2), model.cell.weight_hh_l0.view(3, 2, 2)
            gates[:, 0], weights[2, 0, 0] = torch.tensor([6.0, -6.0, 0.1]), -4.0
            gates[:, 1] = torch.tensor([0.0, torch.logit(torch.tensor(1 - rate).double()).item(), 0.5])
        else:
            model.cell.weight_hh_l0.copy_(torch.tensor([[-4.0, 0.0], [0.0, 1 - rate]]))
            model.cell.bias_ih_l0.copy_(torch.tensor([0.1, rate]))
        model.readout.weight.copy_(torch.tensor([[2.0, -0.25], [-2.0, 0.25]]))
    return model


def least_of_runs(model, name, tokens=60):
    """The least margin of some drawn evaluations."""
    found = []
    for seed in range(2):
        line = loose_steps(model, name, random.Random(seed))
        state = line.start()
        for t in range(tokens):
            state = line.step(state)
            logits = line.logits(state)
            found.append(float(logits[t % 2] - logits[1 - t % 2]))
    return min(found)


@pytest.mark.parametrize(
    ("kind", "name"), first(2, [(k, n) for n in ("float32", "float64", "bfloat16") for k in ("rnn", "gru")])
)
def test_what_creeps_is_right_for_ever_with_no_more_than_the_margin_of_a_run(kind, name):
    model = swinging(kind, 0.125)
    least = least_of_runs(model, name, 12)
    assert least > 0.05 and said_of(model, name, 0.5 * least, 2) == "PROVED"
    assert said_of(model, name, least + 1e-9, 2) in (FAILS, NOT_CHECKABLE)
    assert said_of(model, name, 4 * least + 4, 2) == FAILS


def test_forged_statements_are_refused():
    model = swinging("rnn", 0.125)
    weights, c = bytes_of(model), claim(model, "float32", 1e-3, 2)
    with mock.patch.multiple(creeping, ENTRIES=(8,), PERIODS_OF_TURN=(1,)):
        assert outcome(weights, c) == "PROVED"
        changes = [{"inputs_covered": "9"}, {"length": 9}, {"margin": 0.0}, {"margin": None}, {"counterexample": {}}]
        for change in changes:
            assert outcome(weights, c | change) == FAILS, change
        for change in (
            {"modulus": 1},
            {"modulus": 3},
            {"units": 3},
            {"precision": "float31"},
            {"accumulate": "float64"},
        ):
            assert outcome(weights, c | {"parameters": c["parameters"] | change}) in (FAILS, NOT_CHECKABLE), change


def test_turns_that_settle_in_real_arithmetic_and_not_in_a_format_are_left_open():
    """What is left falls by 2^-12 of it at each token, of which bfloat16 rounds all away."""
    model = swinging("gru", 2.0**-12)
    assert said_of(model, "float64", 1e-3, 2) == "PROVED"
    assert said_of(model, "bfloat16", 1e-3, 2) == NOT_CHECKABLE


# ---- one step, and the readout


def boxed(seed):
    """How a step and the readout of a drawn network are off on a drawn box: states outside, and margins not met."""
    draw, kind = random.Random(seed), ("rnn", "gru", "lstm")[seed % 3]
    name = draw.choice(NAMES)
    model = blank(kind, 2, 2, draw.choice(["tanh", "relu"]) if kind == "rnn" else "tanh")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.tensor([draw.choice([0.0, 1.0, draw.gauss(0, 1)]) for _ in range(p.numel())]).view_as(p))
    said, fmt = claim(model, name, 1.0)["parameters"], BinaryFormat(*NAMED[name])
    low = [nearest(Fraction(draw.gauss(0, 1)), FORMATS[name]) for _ in range(2 * (1 + (kind == "lstm")))]
    high = [x + draw.choice([0.0, 0.0, 2.0**-4]) for x in low]
    line = loose_steps(model, name, draw)
    states = [[Fraction(draw.choice(ends)) for ends in zip(low, high, strict=True)] for _ in range(6)]
    with ctx.workprec(computed_creeps.BITS):
        net = stored_in(network(bytes_of(model), said), fmt)
        turns = ComputedCreeps(net, fmt, due_of(2, said), arb(1))
        box = CornerBox([arb(x) for x in low], [arb(x) for x in high])
        after, logits = turns.step(box), [line.logits(state) for state in states]
        ends = [[Fraction(int(x.p), int(x.q)) for x in pair] for pair in computed_creeps._ends(after)]
        is_out = any(not a <= x <= b for state in states for x, (a, b) in zip(line.step(state), ends, strict=True))
        gaps = [arb(fmpq(x.numerator, x.denominator)) for x in (y[0] - y[1] for y in logits)]
        return is_out, _said(turns, box, min(gaps) + 2.0**-150), _said(turns, box, max(gaps) - 2.0**-150)


def _said(turns, box, least):
    """The exit code of what is said after two tokens, 0 where the first class wins by so much."""
    turns.least = least
    with contextlib.suppress(Refusal):
        turns.wins(box, 2)
        return 0
    try:
        turns.wins(box, 2)
    except Refusal as refusal:
        return refusal.exit_code


def lies(seeds):
    """Which of the three kinds of error are seen: a state outside, a margin too large, and one that is met refused."""
    found = [boxed(seed) for seed in seeds]
    return (
        any(is_out for is_out, *_ in found),
        any(code == 0 for _, code, _ in found),
        any(code == FAILS for *_, code in found),
    )


@pytest.mark.parametrize("start", first(1, range(0, 600, 4)))
def test_drawn_evaluations_stay_within_what_is_said(start):
    assert lies(range(start, start + 4)) == (False, False, False)


# ---- what lies between the first lengths and the limit


def overtaking():
    """Of two units that come to 1 one is faster, and what they differ by is seen two tokens later: a bump, that is
    over at the limit, and is not there at first.
    """
    model = blank("rnn", 5, 2, "relu")
    with torch.no_grad():
        W, b = model.cell.weight_hh_l0, model.cell.bias_ih_l0
        W.copy_(torch.diag(torch.tensor([0.5, 0.875, 1 - 2.0**-6, 0.0, 0.0])))
        W[3, 1], W[3, 2], W[4, 3] = 2.0, -2.0, 1.0
        b.copy_(torch.tensor([0.5, 0.125, 2.0**-6, 0.0, 0.0]))
        model.readout.weight.copy_(torch.tensor([[1.0, 0, 0, 0, -0.5], [0.0, 0, 0, 0, 0]]))
        model.readout.bias.copy_(torch.tensor([-0.625, 0.0]))
    return model


def is_taken():
    """Whether the bump is taken to be right for ever."""
    with mock.patch.multiple(creeping, ENTRIES=(3,), PERIODS_OF_TURN=(1,)):
        model = overtaking()
        return outcome(bytes_of(model), claim(model, "float32", 1e-3)) == "PROVED"


def test_a_bump_on_the_way_to_the_limit_is_not_passed_over():
    line = loose_steps(overtaking(), "float32", random.Random(1))
    state, found = line.start(), []
    for _ in range(20):
        state = line.step(state)
        logits = line.logits(state)
        found.append(logits[0] > logits[1])
    assert found[:4] == [False, True, True, True] and not all(found[1:])
    assert not is_taken()


FAULTS = [
    ("step", "rounding_of_step(self.net, box.hull, self.fmt)", "[arb(0)] * self.net.size", lambda: lies([2])[0]),
    ("gaps", "(low - e).lower()", "(low + e).lower()", lambda: lies(range(3))[1]),
    ("gaps", "arb(a - y)", "arb(b - y)", lambda: lies(range(3))[1]),
    ("gaps", "(high + e).upper()", "(high - 2 * e).upper()", lambda: lies(range(3))[2]),
    ("gaps", "arb(b - x)", "arb(a - x)", lambda: lies(range(3))[2]),
    ("_keep", "require(is_kept,", "require(True,", is_taken),
]


@pytest.mark.parametrize("number", first(1, range(len(FAULTS))))
def test_a_part_that_is_wrong_is_found(number):
    name, right, wrong, is_found = FAULTS[number]
    assert not is_found()
    with planted(ComputedCreeps, name, right, wrong):
        assert is_found()
