"""Lines whose states creep: certificates against runs with 100 digits and closed forms, forgeries, planted faults."""

import contextlib
import copy
import hashlib
import json
import random
from functools import cache
from unittest import mock

import pytest
import torch
from flint import arb, ctx
from models.crafted import blank, crafted
from models.judged_crafted import decided
from models.rechecked import outcome
from models.selection import first
from mpmath import mp, mpf
from oracles import recurrent_digits, slow_units

from tests.planted import planted
from verify.checker import corners, creeping, recurrent
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.tasks.recurrent.models import bytes_of

FAR = [20, 476, 215, 309, 100]  # REFUTED: GRU that swings twice, first token by GRU, and by LSTM twice
KEPT = [329, 234, 1, 380, 111, 206, 290]  # PROVED: the same kinds, and tanh that creeps


@pytest.fixture(autouse=True)
def one_try():
    """What does not creep from 256 tokens on is not tried from later on, or step by step: it takes long, and says the
    same."""
    with (
        mock.patch.multiple(creeping, ENTRIES=(256,), PERIODS_OF_TURN=(1,)),
        mock.patch.object(recurrent, "MOST_STEPS", 20_000),
    ):
        yield


@pytest.mark.deep
def test_later_tokens_are_tried():
    weights, c = said(206)
    assert outcome(weights, c) == "PROVED"
    with mock.patch.multiple(creeping, ENTRIES=(2,), PERIODS_OF_TURN=(1,)):
        assert outcome(weights, c) == NOT_CHECKABLE
    with mock.patch.multiple(creeping, ENTRIES=(2, 256), PERIODS_OF_TURN=(1,)):
        assert outcome(weights, c) == "PROVED"


@cache
def certified(seed):
    case = crafted(seed)
    weights = bytes_of(case.model)
    return weights, decided(case, "real", 2000).about(weights).to_json()


def said(seed):
    weights, text = certified(seed)
    return weights, json.loads(text)


@pytest.mark.parametrize("seed", first(1, FAR))
def test_a_first_wrong_length_holds_and_no_other_does(seed):
    weights, c = said(seed)
    n, k = c["counterexample"]["length"], c["parameters"].get("modulus", 1)
    assert n > creeping.LONG and outcome(weights, c) == "REFUTED"
    for m in (n - k, n - 1, n + 1, n + k):
        forged = at(c, m)
        assert outcome(weights, forged) in (FAILS, NOT_CHECKABLE), m
        assert k > 1 and (m - n) % k or outcome(weights, forged | {"margin": -1e-300}) in (FAILS, NOT_CHECKABLE)


def at(c, n):
    """The same certificate about another length, which has the same right class or says another."""
    new, m = copy.deepcopy(c), c["parameters"].get("modulus")
    right = (n - 1) % m + 1 if m else 0
    new["counterexample"] |= {"length": n, "input": f"token 0, {n} times", "expected": right}
    new["counterexample"]["predicted"] = 3 - right if m else 1
    return new | {"right_to": n - 1}


def test_margins_are_above_zero_however_small():
    """With a readout of 2^-1000 the same length is the first wrong one, step by step and in turns."""
    far, near = crafted(FAR[0]), crafted(FAR[0]).model
    _, c = said(FAR[0])
    with torch.no_grad():
        near.cell.bias_ih_l0.view(3, 2)[1, 1] = 1.0
        for model in (far.model, near):
            model.readout.weight.mul_(2.0**-1000)
            model.readout.bias.mul_(2.0**-1000)
    n = next(t for t, x in enumerate(recurrent_digits.margins(near, 2, 100), 1) if x <= 0)
    for model, m in ((near, n), (far.model, c["counterexample"]["length"])):
        weights = bytes_of(model)
        found = [outcome(weights, stated(model, weights, t, 0.0, True)) for t in (m - 2, m, m + 2)]
        assert found == [FAILS, "REFUTED", FAILS], m


@pytest.mark.parametrize("seed", first(1, FAR))
def test_lines_are_right_up_to_that_length_and_no_further(seed):
    weights, c = said(seed)
    n = c["counterexample"]["length"]
    for length in (n - 1, n, n + 1, n + 2):
        new = copy.deepcopy(c) | {"verdict": "PROVED", "length": length, "inputs_covered": str(length)}
        new |= {"margin": 1e-300, "counterexample": None, "tightest": {"length": 1, "margin": 1e-300}}
        new["parameters"]["length"] = length
        del new["right_to"]
        assert outcome(weights, new) == "PROVED" if length < n else outcome(weights, new) in (FAILS, NOT_CHECKABLE)


@pytest.mark.parametrize("seed", first(1, KEPT))
def test_what_is_right_for_ever_holds_and_no_larger_margin_does(seed):
    weights, c = said(seed)
    assert "invariant" not in c and c["verdict"] == outcome(weights, c) == "PROVED"
    if seed in (111, 206):  # a tanh unit has no closed form
        return
    least = least_margin(crafted(seed))
    assert c["margin"] <= least
    for share, is_true in ((1 - 1e-12, True), (1 + 1e-12, False)):
        found = outcome(weights, c | {"margin": float(least * share)})
        assert found == "PROVED" if is_true else found in (FAILS, NOT_CHECKABLE)


def least_margin(case):
    """Of all lengths: of the first ones, and of those far away."""
    turn = case.task.m or 1
    cell = slow_units.Cell(case.model)

    def due(t):
        return (t - 1) % turn if case.task.m else int(t == 1)

    early = [slow_units.margin_after(cell, n, due, turn) for n in range(1, 12)]
    return min(early + [slow_units.margin_after(cell, 10**30 + n, due, turn) for n in range(turn)])


@pytest.mark.deep
def test_what_creeps_at_a_rate_that_changes_is_run():
    weights, c = said(2182)
    n, most = c["counterexample"]["length"], 20_000
    assert n > most and crafted(2182).oracle() == n
    assert outcome(weights, c) == NOT_CHECKABLE
    with mock.patch.object(recurrent, "MOST_STEPS", n):
        assert outcome(weights, c) == "REFUTED"
        assert FAILS == outcome(weights, at(c, n - 2)) == outcome(weights, at(c, n - 1))


def test_lines_that_take_too_long_are_not_begun():
    """17 LSTM units take minutes for 100,000 tokens; and turns take no more than there is."""
    model = blank("lstm", 17, 2)
    weights = bytes_of(model)
    with mock.patch.multiple(recurrent, MOST_STEPS=200_000, step=mock.Mock(side_effect=AssertionError)):
        assert outcome(weights, stated(model, weights, 100_000, 1e-3, False)) == NOT_CHECKABLE
    weights, c = said(KEPT[0])
    with mock.patch.object(creeping, "AT_LEAST", 1 << 20):
        assert outcome(weights, c) == NOT_CHECKABLE


# ---- moderate lengths, which are run


def drawn(seed):
    """A unit that swings, or that tells the first token, and one or two that creep; the readout is blank."""
    draw = random.Random(seed)
    kind, H = draw.choice(["lstm", "gru", "rnn"]), draw.choice([2, 2, 3])
    model = blank(kind, H, 2)
    with torch.no_grad():
        if kind == "rnn":
            weights, given = model.cell.weight_hh_l0, model.cell.bias_ih_l0
            weights[0, 0], given[0] = -4.0, 0.1
            for j in range(1, H):
                weights[j, j], given[j] = draw.choice([1.0, 0.999, 0.99]), draw.choice([1e-3, -1e-4])
            return model, 0
        swing = {"lstm": [6.0, -6.0, 0.1, 6.0], "gru": [6.0, -6.0, 0.1]}[kind]
        gates = model.cell.bias_ih_l0.view(len(swing), H)
        weights = model.cell.weight_hh_l0.view(len(swing), H, H)
        gates[:, 0], weights[2, 0, 0] = torch.tensor(swing), -4.0
        for j in range(1, H):
            slow = [draw.uniform(-1, 1), draw.uniform(4, 9), draw.choice([-1, 1]) * 10 ** draw.uniform(-3, 0), 0.3]
            gates[:, j] = torch.tensor(slow[: len(swing)])
            weights[:, j, 0] = torch.tensor([draw.gauss(0, 0.3) for _ in swing])
    return model, 0


TOKENS = 200


def with_push(model, seed):
    """A readout with which it is wrong first near a length that is drawn, and that length; exact in the push."""
    draw, H = random.Random(seed), model.hidden
    push = torch.tensor([draw.choice([1.0, -1.0]) for _ in range(H - 1)], dtype=torch.float64)
    found = []
    for size in (0.0, 1.0):
        with torch.no_grad():
            model.readout.weight.copy_(torch.tensor([[2.0] + [0.0] * (H - 1), [-2.0] + [0.0] * (H - 1)]))
            model.readout.weight[0, 1:] -= size * push
            model.readout.weight[1, 1:] += size * push
        found.append(recurrent_digits.margins(model, 2, TOKENS))
    sizes = [g / (g - p) for g, p in zip(*found, strict=True) if g != p]
    at, is_up = draw.randrange(120, TOKENS - 10), draw.random() < 0.8
    size = float(sizes[at]) * (1.001 if is_up else 0.999)
    with torch.no_grad():
        model.readout.weight[0, 1:] = -size * push
        model.readout.weight[1, 1:] = size * push
    with mp.workdps(100):
        margins = [g + mpf(size) * (p - g) for g, p in zip(*found, strict=True)]
    return next((t for t, x in enumerate(margins, 1) if x <= 0), None), margins


BLANK = {
    "schema": "weightproof/1", "claim": None, "task": "inductive", "reading": "real", "method": "certified",
    "argument": "drawn", "margin_exact": None, "margin_per_count": None, "assumptions": [], "error_share": None,
    "reason": None, "seconds": 0.0,
}  # fmt: skip


def stated(model, weights, n, margin, is_wrong):
    """A certificate that says wrong first after n tokens, or right up to n."""
    said = {"task": "modular", "modulus": 2, "model": model.kind, "units": model.hidden, "layers": 1,
            "dtype": "float64", "length": "all" if is_wrong else n}  # fmt: skip
    said |= {"activation": "tanh"} if model.kind == "rnn" else {}
    right = (n - 1) % 2 + 1
    case = {"input": f"token 0, {n} times", "length": n, "expected": right, "predicted": 3 - right,
            "is_first": True, "float64_predicts": None}  # fmt: skip
    found = BLANK | {"parameters": said, "weights_sha256": hashlib.sha256(weights).hexdigest(), "margin": margin}
    if is_wrong:
        found |= {"verdict": "REFUTED", "inputs_covered": "1", "length": "all", "right_to": n - 1}
        return found | {"counterexample": case, "tightest": None}
    found |= {"verdict": "PROVED", "inputs_covered": str(n), "length": n}
    return found | {"counterexample": None, "tightest": {"length": 1, "margin": margin}}


@contextlib.contextmanager
def creeps_early():
    """All lengths beyond 100 tokens are taken many turns at once, and what rests may change by more."""
    with (
        mock.patch.multiple(creeping, LONG=0, ENTRIES=(60, 90), REST=2.0**-120),
        mock.patch.object(recurrent, "MOST_STEPS", 100),
        mock.patch.multiple(corners, REST=2.0**-120, STILL=2.0**-110, MOVING=2.0**-60),
    ):
        yield


def tried(seed):
    """Whether a length in which a drawn network is first wrong holds, and every lie about it that holds."""
    model, _ = drawn(seed)
    n, margins = with_push(model, seed)
    if n is None or n < 110:
        return False, []
    weights = bytes_of(model)
    with creeps_early():
        is_shown = outcome(weights, stated(model, weights, n, below(margins[n - 1]), True)) == "REFUTED"
        lies = []
        for m in (n - 2, n - 1, n + 1, n + 2):
            margin = min(below(margins[m - 1]), 0.0)
            lies += [(m, "wrong")] * (outcome(weights, stated(model, weights, m, margin, True)) == "REFUTED")
            least = min(margins[:m])
            found = outcome(weights, stated(model, weights, m, 1e-12, False))
            lies += [(m, "right")] * (found == "PROVED" and least < 1e-12)
        lies += [("all", "right")] * (outcome(weights, stated_for_ever(model, weights, 1e-12)) == "PROVED")
    return is_shown, lies


def below(x):
    """A float that is no less: the margin of a certificate."""
    found = float(x)
    return (
        found if mpf(found) >= x else float(torch.nextafter(torch.tensor(found).double(), torch.tensor(1.0).double()))
    )


@pytest.mark.parametrize("seed", first(1, range(60)))
def test_drawn_lengths_are_those_of_a_run(seed):
    _, lies = tried(seed)
    assert not lies


# ---- adversarial kinds: what rests and grows later, what creeps and sees what creeps, a limit that is behind


def growing():
    """A unit swings; another one is 2^-1000 and grows by half in each step, so that it is wrong after 1,712 tokens."""
    model = blank("rnn", 2, 2)
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_(torch.tensor([[-4.0, 0.0], [0.0, 1.5]]))
        model.cell.bias_ih_l0.copy_(torch.tensor([0.1, 2.0**-1000]).double())
        model.readout.weight.copy_(torch.tensor([[2.0, -8.0], [-2.0, 8.0]]))
    return model


def stated_for_ever(model, weights, margin):
    c = stated(model, weights, 1, margin, False) | {"length": "all", "inputs_covered": "infinite"}
    c["parameters"]["length"] = "all"
    return c


def claims_too_much():
    """Whether it holds that what grows from 2^-1000 is right for ever, or up to 30,000."""
    model = growing()
    weights = bytes_of(model)
    said = [stated_for_ever(model, weights, 1e-3), stated(model, weights, 30_000, 1e-3, False)]
    with mock.patch.multiple(creeping, ENTRIES=(256,), PERIODS_OF_TURN=(1,)):
        return [outcome(weights, c) == "PROVED" for c in said]


def test_what_rests_and_grows_later_is_not_right_for_ever():
    assert claims_too_much() == [False, False]


def seeing(weight):
    """Two GRU units that creep, of which the second sees the first."""
    model, _ = drawn(9)
    with torch.no_grad():
        model.cell.weight_hh_l0.view(3, 3, 3)[2, 2, 1] = weight
    return model


def holding_lengths(model, near):
    """In which lengths about these it holds that a network is wrong first, and in which it is."""
    n, margins = with_push(model, 9)
    weights, found = bytes_of(model), []
    for m in near(n):
        with creeps_early():
            holds = outcome(weights, stated(model, weights, m, min(below(margins[m - 1]), -1e-300), True)) == "REFUTED"
        found += [m] * holds
    return n, found


# ---- the parts


def drawn_network(seed):
    """A cell with weights of any size, in the checker's numbers, and in the oracle's."""
    draw, kind = random.Random(seed), ("rnn", "gru", "lstm")[seed % 3]
    model = blank(kind, 2, 2, draw.choice(["tanh", "relu"]) if kind == "rnn" else "tanh")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.tensor([draw.choice([0.0, 1.0, draw.gauss(0, 3)]) for _ in range(p.numel())]).view_as(p))
    said = stated(model, b"", 1, 1.0, False)["parameters"]
    said |= {"activation": model.activation} if kind == "rnn" else {}
    return model, recurrent.network(bytes_of(model), said), draw


def outside(seed, points=12):
    """How many states one step after those of drawn boxes lie outside of the image that is said."""
    model, net, draw = drawn_network(seed)
    n, found = net.size, 0
    for _ in range(3):
        low = [draw.gauss(0, 1) for _ in range(n)]
        high = [x + draw.choice([0.0, 2.0**-60, 0.1, 2.0]) for x in low]
        with ctx.workprec(256):
            image, _ = corners.image(net, corners.CornerBox([arb(x) for x in low], [arb(x) for x in high]))
        with mp.workdps(60):
            stored, _, _ = recurrent_digits.stored_numbers(model)
            ends = [[mpf(float(x)) for x in side] for side in image]
            for _ in range(points):
                state = [draw.choice([a, b, a + (b - a) * draw.random()]) for a, b in zip(low, high, strict=True)]
                state = [max(a, min(b, x)) for x, a, b in zip(state, low, high, strict=True)]
                parts = [[mpf(x) for x in state[i : i + 2]] for i in range(0, n, 2)]
                after = [x for part in recurrent_digits.step(net.kind, stored, parts, net.activation) for x in part]
                off = [1e-15 * (1 + abs(x)) for x in after]  # of the ends as floats
                found += any(x < a - e or x > b + e for x, a, b, e in zip(after, *ends, off, strict=True))
    return found


@pytest.mark.parametrize("seed", first(6, range(300)))
def test_one_step_stays_in_the_image_of_a_box(seed):
    assert outside(seed) == 0


def test_the_ends_of_an_image_are_attained():
    """A wide box of a unit that is increasing: known to far more than the thirty bits of a ball's radius."""
    _, net, _ = drawn_network(0)
    model = blank("rnn", 1, 2)
    with torch.no_grad():
        model.cell.weight_hh_l0.fill_(0.5)
    net = recurrent.network(bytes_of(model), stated(model, b"", 1, 1.0, False)["parameters"])
    with ctx.workprec(400):
        box, slope = corners.image(net, corners.CornerBox([arb(-1)], [arb(3)]))
        for end, x in zip((box.low[0], box.high[0]), (-1, 3), strict=True):
            assert abs(end - (arb(x) / 2).tanh()) < 2.0**-380
        assert slope[0, 0] > 0


def is_off(seed):
    """Whether a sum of changes and factors, each drawn from two balls, lies outside of what is said of them."""
    draw = random.Random(seed)
    factor, change = draw.choice([0.5, 1 - 2.0**-20, 1.25, 0.0]), draw.choice([1.0, -(2.0**-30), 3.0])
    with ctx.workprec(256):
        balls = [arb(x, abs(x) * draw.choice([0.0, 2.0**-40, 2.0**-8])) for x in (factor, change)]
        total, q = arb(0), draw.randrange(1, 30)
        for _ in range(q):
            f, m = ((y.lower(), y.upper(), y.mid())[draw.randrange(3)] for y in balls)
            total = f * total + m
        return not creeping._changed(*balls, q).overlaps(total)


@pytest.mark.parametrize("seed", first(20, range(1000)))
def test_sums_of_drawn_changes_lie_in_the_closed_form(seed):
    assert not is_off(seed)


def is_loose(factor, change):
    """Whether a sum is said that changes of both signs, or factors of both, may leave."""
    with contextlib.suppress(Refusal), ctx.workprec(64):
        creeping._changed(factor, change, 3)
        return True
    return False


def test_changes_and_factors_of_both_signs_are_not_summed():
    assert not is_loose(arb(0.5), arb(0, 1)) and not is_loose(arb(0.25, 0.5), arb(1))


@pytest.mark.deep
def test_what_sees_another_number_that_creeps_is_not_summed_alone():
    n, found = holding_lengths(seeing(0.0), lambda n: range(n - 1, n + 2))
    assert found == [n]
    assert holding_lengths(seeing(0.5), lambda n: range(n - 1, n + 2))[1] == []


def misses(model, turns=20):
    """Whether the state after so many turns of two steps is not where it is said to be."""
    net = recurrent.network(bytes_of(model), stated(model, b"", 1, 1.0, False)["parameters"])
    with creeps_early(), ctx.workprec(1024), contextlib.suppress(Refusal):
        states = [[arb(0)] * net.size]
        for _ in range(60 + 2 * turns):
            states.append(recurrent.step(net, recurrent.point(states[-1])).value)
        x, there = states[60], states[-1]
        low, high = creeping._creep(net, x, 2, turns).between(turns, turns)
        return any(y < a or y > b for a, y, b in zip(low, there, high, strict=True))
    return False


@pytest.mark.parametrize("seed", first(2, [s for s in range(60) if drawn(s)[0].kind != "rnn"]))
def test_the_state_after_many_turns_is_where_it_is_said_to_be(seed):
    assert not misses(drawn(seed)[0])


FAULTS = [
    (corners, "image", "least = [a if s >= 0", "least = [b if s >= 0", lambda: any(map(outside, range(6)))),
    (corners, "image", "b if s <= 0 else y for", "b for", lambda: any(map(outside, range(30)))),
    (corners, "win", "(low >= least and low > 0)", "(high >= least and high > 0)", lambda: bool(tried(13)[1])),
    (creeping, "_creep", "stay and box.holds", "box.holds", lambda: claims_too_much()[1]),
    (creeping, "_creep", "sum(beside, moved[c])", "moved[c]", lambda: misses(seeing(0.5))),
    (creeping, "_kept", "require(box.holds(boxes[-1])", "require(True", lambda: claims_too_much()[0]),
    (creeping, "_changed", "powers * factor + 1, p", "powers + 1, p", lambda: any(map(is_off, range(20)))),
    (creeping, "_changed", "change > 0 or change < 0", "True", lambda: is_loose(arb(0.5), arb(0, 1))),
    (creeping, "_changed", "bool(factor >= 0)", "True", lambda: is_loose(arb(0.25, 0.5), arb(1))),
    (creeping, "_reached", "n - t - k * q", "n - t - k * q + k", lambda: bool(tried(7)[1])),
]


@pytest.mark.parametrize("number", first(1, range(len(FAULTS))))
def test_a_part_that_is_wrong_is_found(number):
    owner, name, right, wrong, is_found = FAULTS[number]
    assert not is_found()
    with planted(owner, name, right, wrong), contextlib.ExitStack() as stack:
        if owner is corners and hasattr(creeping, name):
            stack.enter_context(mock.patch.object(creeping, name, getattr(corners, name)))
        assert is_found()


# ---- any network


def told(seed, tokens=100):
    """Whether it holds that a drawn network tells the first token from all others, and how far a run falls short.

    The readout takes the sides of a plane near to where the states come to, which may still cross it.
    """
    model, _, draw = drawn_network(seed)
    h = model.cell(torch.ones(1, tokens, 1, dtype=torch.float64))[0][0].detach()
    d = h[0] - h[-1]
    with torch.no_grad():
        model.readout.weight.copy_(torch.stack([-d, d]))
        at = draw.choice([0.5, 1e-2, 1e-6, -1e-6]) * d + h[-1]
        model.readout.bias.copy_(torch.stack([(d * at).sum(), -(d * at).sum()]))
    weights = bytes_of(model)
    c = stated_for_ever(model, weights, draw.choice([1e-300, 1e-9, 1e-3]))
    c["parameters"] |= {"activation": model.activation} if model.kind == "rnn" else {}
    c["parameters"]["task"] = "first-homogeneous"
    del c["parameters"]["modulus"]
    if outcome(weights, c) != "PROVED":
        return False, 0.0
    alternately = recurrent_digits.margins(model, 2, tokens)  # of class 0, 1, 0, and so on
    margins = [x if (t > 0) == (t % 2 == 0) else -x for t, x in enumerate(alternately)]
    return True, max(0.0, float(c["margin"] - min(margins)))


@pytest.mark.parametrize("start", first(1, range(0, 3000, 60)))
def test_no_drawn_network_that_holds_for_ever_falls_short(start):
    found = [told(seed) for seed in range(start, start + 60)]
    assert not any(short for _, short in found)
    assert start > 0 or any(holds for holds, _ in found)
