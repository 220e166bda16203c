"""Recurrent networks in a format: runs, boxes and lines that are saved, what is forged, and faults in the checker."""

import copy
import hashlib
import json
import random
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from unittest import mock

import mpmath
import pytest
import torch
from flint import arb, ctx, fmpq
from models import crafted
from models.certificates import swinging
from models.rechecked import decided, outcome
from models.recurrent import random_network
from models.selection import first
from oracles.hulls import Hulls

from constructions.recurrent import counters, holding
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import load
from tests.clocks import looks
from tests.oracles.loose_steps import loose_steps
from tests.oracles.rounded import nearest
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, Format, precision_named
from verify.arithmetic.readings import Rounded, reading_of
from verify.checker import rounded, rounded_boxes, rounded_lines, rounded_runs
from verify.checker.computed_orders import EveryOrder
from verify.checker.formats import NAMED, BinaryFormat, format_of, of_sums
from verify.checker.inductive import check
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, Refusal
from verify.checker.recurrent import network
from verify.checker.rounded import BITS, box_of, reach_of, stored_in
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import adverse, computed, grid
from verify.tasks.recurrent.logged import Logged
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous, network_of

DATA = Path(__file__).parents[1] / "data"


def modular(model, m, length=None):
    return Homogeneous(model, Task.of("modular", modulus=m), length)


def trained(name, length=None):
    return modular(load(DATA / "recurrent" / f"{name}.safetensors"), 10, length)


def of_family(seed):
    found = crafted.crafted(seed)
    return Homogeneous(found.model, found.task, None)


def strings(name):
    model = load(DATA / "recurrent_selective" / f"{name}.safetensors")
    return Selective(model, Task.of("selective", types=2, max_count=2), None)


CASES = {
    "up to a length": lambda: (modular(counters.cycle(m=3), 3, 20), "p14"),
    "wrong in every order": lambda: (of_family(14), "bfloat16"),
    "wrong in every order, lstm": lambda: (of_family(19), "float32"),
    "a run, gru": lambda: (trained("gru_seed2_stop0.5"), "bfloat16"),
    "a run, lstm": lambda: (trained("lstm_seed6_stop0.25"), "bfloat16"),
    "a run, tanh": lambda: (trained("rnn_seed3_stop0.5"), "bfloat16"),
    "a run, a tie": lambda: (of_family(5), "bfloat16"),
    "a run, rounded": lambda: (modular(swinging(1.0, 8.0), 2), "bfloat16"),
    "boxes": lambda: (modular(swinging(1.0, 0.5), 2), "bfloat16"),
    "boxes, tanh": lambda: (modular(counters.cycle(m=3), 3), "bfloat16"),
    "boxes, a sum that creeps": lambda: (of_family(40), "bfloat16"),
    "boxes, wider sums": lambda: (modular(swinging(1.0, 0.5), 2), "bfloat16+float32"),
    "boxes, wider sums, lstm": lambda: (modular(holding.rings(types=1, m=2), 2), "bfloat16+float32"),
    "a string": lambda: (strings("gru_K2_C2_seed1"), "real"),
    "a string, the first": lambda: (strings("lstm_K2_C2_seed14"), "real"),
}
WRONG = [name for name in CASES if "wrong" in name or name.startswith("a ")]


@cache
def saved(name):
    problem, precision = CASES[name]()
    return decided(problem, precision, Effort(budget=looks(3000)))


QUICK = ("up to a length", "boxes, wider sums", "wrong in every order", "a run, rounded", "a string")


def quick(names, of=str):
    """All of these, of which those about quick cases run by default."""
    return [pytest.param(name, marks=() if of(name) in QUICK else pytest.mark.deep) for name in names]


@pytest.mark.parametrize("name", quick(CASES))
def test_honest_certificates_hold(name):
    weights, certificate = saved(name)
    assert ("run" in certificate, "boxes" in certificate) == (name.startswith("a run"), name.startswith("boxes"))
    assert outcome(weights, certificate) == ("REFUTED" if name in WRONG else "PROVED")


# ---- forgeries


def with_logits(c, weights):
    """The logits that follow from the last state, in some order."""
    fmt = BinaryFormat(*NAMED[c["parameters"]["precision"]])
    with ctx.workprec(BITS):
        net = stored_in(network(weights, c["parameters"]), fmt)
        on, H = rounded_runs.ReplayedRun(net, fmt), net.hidden
        h = c["run"]["numbers"][-1][-H:]
        V, b = rounded_runs.matrix_of(net.V), rounded_runs.floats(net.b)
        h = [on.once.tensor(v) for v in h]
        rows = [[(w, v) for w, v in zip(row, h, strict=True) if w] for row in V]
        c["run"]["logits"] = [next(on._totals([(row, x)])) for row, x in zip(rows, b, strict=True)]
    return judged(c)


def judged(c):
    """The margin and the class that the logits say."""
    logits, due = c["run"]["logits"], c["counterexample"]["expected"] - 1
    others = [y for j, y in enumerate(logits) if j != due]
    c["margin"] = logits[due] - max(others)
    c["counterexample"]["predicted"] = logits.index(max(others)) + 1
    return c


def moved_by(places, at):
    """The last state off by so many units in the last place of bfloat16, and what follows from it."""

    def change(c, weights):
        row = c["run"]["numbers"][-1]
        for i in at:
            row[i] += places * 2.0**-8
        return with_logits(c, weights)

    return change


def logits_of(values):
    def change(c, weights):
        c["run"]["logits"] = values(c["run"]["logits"])
        return judged(c)

    return change


def put(*places, value):
    def change(c, weights):
        inner = c
        for place in places[:-1]:
            inner = inner[place]
        inner[places[-1]] = value(inner[places[-1]]) if callable(value) else value
        return c

    return change


def as_first(c, weights):
    n = c["counterexample"]["length"]
    c["counterexample"]["is_first"], c["right_to"] = True, n - 1
    return c


def ten_later(c, weights):
    """The same run, of a length ten tokens later, at which the same class is right."""
    case = c["counterexample"]
    case.update(length=case["length"] + 10, input=[0] * (case["length"] + 10), is_first=False)
    c["right_to"] = 0
    return c


def no_more(factor):
    """A margin just beyond what is shown."""

    def change(c, weights):
        while outcome(weights, c) == c["verdict"]:
            c["margin"] *= factor
        return c

    return change


def in_float32(c, weights):
    c["parameters"]["precision"] = "float32"
    return c


def above(c, weights):
    c["boxes"]["low"][1], c["boxes"]["high"][1] = 1.5, 1.5 + 2.0**-9
    c["margin"] = 2.0**-4
    return c


RUN, LINE, BOXES = rounded_runs.ReplayedRun, rounded_lines.ComputedLine, rounded_boxes.ComputedBoxes
FORGED = {  # a case, what is changed, and a fault in the checker with which it holds: in which function, what for what
    "a result": ("a run, lstm", moved_by(3, range(-6, 0)), RUN, "chosen", "x in y", "True"),
    "a function": ("a run, tanh", moved_by(3, range(-8, 0)), RUN, "are_near", "arb(OFF)", "arb(99)"),
    "a sum": ("a run, rounded", logits_of(lambda x: [min(x) - 1, max(x)]), RUN, "sums", "y == total", "True"),
    "a margin of a run": (
        "a run, rounded", put("margin", value=-9.0), rounded_runs, "check_run",
        'c["margin"] == margin <= 0', "True",
    ),
    "another class": (
        "a run, gru", put("counterexample", "predicted", value=lambda x: x % 10 + 1), rounded_runs, "check_run",
        "0 <= wrong < len(logits) and logits[wrong] == max(logits)", "True",
    ),
    "the first, by a run": ("a run, lstm", as_first, rounded_runs, "decide", 'c["right_to"] if is_first else 0', "0"),
    "another length": ("a run, rounded", ten_later, rounded_runs, "check_run", "len(rows) == n", "True"),
    "a margin of all lengths": ("up to a length", no_more(1.001), LINE, "right_to", "low >= margin and", ""),
    "a margin in every order": (
        "wrong in every order", no_more(1.01), rounded_lines, "is_wrong",
        "any(high <= arb(margin) for _, high in ends)", "True",
    ),
    "boxes of another format": ("boxes", in_float32, rounded_boxes, "for_ever", "is_within(after, box)", "True"),
    "boxes not entered": ("boxes", above, rounded_boxes, "for_ever", "is_within(state, box)", "True"),
    "a margin of boxes": (
        "boxes, tanh", put("margin", value=lambda x: x * 1.1), BOXES, "wins", "gap >= exact(margin)", "True",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(FORGED, lambda name: FORGED[name][0]))
def test_what_is_forged_is_refused_and_a_fault_in_that_line_is_seen(name):
    of, change, owner, function, right, wrong = FORGED[name]
    weights, certificate = saved(of)
    changed = change(copy.deepcopy(certificate), weights)
    assert outcome(weights, changed) in (FAILS, NOT_CHECKABLE)
    with planted(owner, function, right, wrong):
        assert outcome(weights, changed) == changed["verdict"]


@pytest.mark.parametrize("name", quick(name for name in CASES if name not in ("a run, lstm", "a string")))
def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit(name):
    weights, certificate = saved(name)
    changed = bytearray(weights)
    changed[-1] ^= 0x40  # the exponent of the readout's last number
    fitted = certificate | {"weights_sha256": hashlib.sha256(bytes(changed)).hexdigest()}
    assert outcome(bytes(changed), certificate) == FAILS
    assert outcome(bytes(changed), fitted) in (FAILS, NOT_CHECKABLE, UNREADABLE)


@pytest.mark.deep
def test_a_box_beyond_the_largest_number_is_refused_for_its_overflow():
    """It was once called malformed."""
    weights, certificate = saved("boxes")
    changed = in_float32(copy.deepcopy(certificate), weights)
    changed["boxes"]["high"][0] = 1e300
    with planted(rounded_boxes, "for_ever", "is_within(state, box)", "True"), pytest.raises(Refusal, match="overflow"):
        check(weights, json.dumps(changed).encode())


# ---- what may be computed, drawn


def sums_of(terms, fmt, kept=(53,)):
    """All sums of products and numbers, ((w, x), ..), each result rounded, or kept with so many bits."""
    wide = [Format("kept", bits, -1000, 2.0**1000) for bits in kept]

    def either(x):
        found = {Fraction(nearest(x, f)) for f in (fmt, *wide)}
        if len(kept) > 1:  # more than a run of the checker's does: flushed, and rounded once more
            found |= {Fraction(nearest(y, fmt)) for y in found} | ({Fraction(0)} if abs(x) < fmt.tiny else set())
        return found

    def join(parts):
        if len(parts) == 1:
            return either(parts[0][0] * parts[0][1])
        found = set()
        for chosen in range(1, 2 ** (len(parts) - 1)):
            sides = [tuple(x for i, x in enumerate(parts) if (chosen >> i & 1) == side) for side in (0, 1)]
            found |= {y for a, b in product(*map(join, sides)) for y in either(a + b)}
        return found

    return join(tuple(terms))


def drawn_terms(draw, p, k):
    """Products of numbers of p bits, and one that may bring their sum near half-way."""
    of = [(Fraction(draw.randrange(-(2**p) + 1, 2**p)), Fraction(draw.randrange(1, 2**p))) for _ in range(k)]
    return [*of, (Fraction(1), Fraction(draw.choice([-1, 1])) * Fraction(2) ** draw.choice([-60, -50, 0, 3]))]


HALF_WAY = [(Fraction(7), Fraction(37)), (Fraction(1), -(Fraction(2) ** -60))]  # 259 is half-way between 258 and 260


def allowed(terms):
    """Whether all sums that the checker takes for allowed are results of some order."""
    on = rounded_runs.ReplayedRun.__new__(rounded_runs.ReplayedRun)
    bfloat16, wide = (BinaryFormat(*NAMED[name]) for name in ("bfloat16", "float64"))
    on.once, on.kept = (rounded_runs.RoundedOperations(fmt, fmt, False) for fmt in (bfloat16, wide))
    *products, (_, b) = terms
    found = on._totals([([(float(w), float(x)) for w, x in products], float(b))])
    return {Fraction(x) for x in found} <= sums_of(terms, FORMATS["bfloat16"])


def test_sums_that_a_run_may_have_are_results_of_some_order():
    def are_allowed(seeds):
        return all(allowed(drawn_terms(random.Random(seed), 8, 1 + seed % 3)) for seed in range(seeds))

    assert allowed(HALF_WAY) and are_allowed(40)
    with planted(rounded_runs.ReplayedRun, "_driven", "min(kept, near)", "min(kept, near) - 1"):
        assert not are_allowed(40)


def least_of(on, terms):
    products = [fmpq(w.numerator, w.denominator) * fmpq(x.numerator, x.denominator) for w, x in terms]
    return Fraction(str(on._least_sum(products, 4, len(terms))))


def holds_all(on, draw):
    """Whether no order of some drawn sums is below the least that the checker says."""
    k = draw.randrange(1, 4)
    terms = drawn_terms(draw, 8, k)[draw.randrange(2) :]
    scale = Fraction(2) ** draw.choice([0, 0, -136, -140])
    terms = [(w * scale, x) for w, x in terms]
    return all(least_of(on, terms) <= y for y in sums_of(terms, FORMATS["bfloat16"], (18, 20, 53)))


SUM_FAULTS = [
    (EveryOrder, "down", "return min(self.nearest(kept), kept)", "return x"),
    (EveryOrder, "down", "return min(self.nearest(kept), kept)", "return kept"),
    (EveryOrder, "down", "return fmpq(0) if x >= 0 else -self.tiny", "return x"),
    (
        BOXES,
        "_least_sum",
        "return self.down(total - exact(self._off(terms, arb(size), parts, products).upper()))",
        "return total",
    ),
    (BOXES, "_least_sum", "size <= fmpq(2) ** (self.fmt.p + unit)", "True"),
    (BOXES, "_least_sum", "unit >= self.fmt.least and", ""),
    (BOXES, "_least_sum", "return self.down(sum(map(self.down, terms), fmpq(0)))", "return sum(terms, fmpq(0))"),
]


def box_sums(wider=None):
    """The sums of boxes in bfloat16."""
    on = BOXES.__new__(BOXES)
    on.fmt, on.is_exact = BinaryFormat(*NAMED["bfloat16"]), False
    on.wider = format_of(wider)
    on.every, on.first = EveryOrder(on.fmt), None if wider is None else EveryOrder(on.wider)
    return on


def test_no_order_of_a_sum_is_below_the_least_one():
    with ctx.workprec(BITS):
        assert all(holds_all(box_sums(), random.Random(seed)) for seed in range(25))


@pytest.mark.parametrize(("owner", "function", "right", "wrong"), first(2, SUM_FAULTS))
def test_a_fault_in_the_least_sum_is_seen(owner, function, right, wrong):
    with ctx.workprec(BITS), planted(owner, function, right, wrong):
        assert not all(holds_all(box_sums(), random.Random(seed)) for seed in range(600))


def least_in_a_wider_format(wider, terms, stored):
    """Whether the least of a sum and of a result, in bfloat16 with wider sums, are not above what one order makes."""
    on, fmt, total = box_sums(wider), FORMATS["bfloat16"], Fraction(0)
    for x in terms:
        total = Fraction(nearest(total + x, fmt))
    twice = Fraction(nearest(Fraction(nearest(stored, precision_named(wider))), fmt))
    found = on._least_sum([fmpq(x.numerator, x.denominator) for x in terms], 4, len(terms) - 2)
    least = on.down(fmpq(stored.numerator, stored.denominator))
    return Fraction(str(found)) <= total and Fraction(str(least)) <= twice


HALF = Fraction(-129, 2**15)  # a little more than half a unit of bfloat16 beside 1
ROUNDED_TWICE = -1 - Fraction(3, 2**8) + Fraction(1, 2**12)  # half-way in 10 bits, and then to the even number below
WIDER_SUMS = [("p10", [Fraction(-1), *[HALF] * 4]), ("bfloat16", [Fraction(-1), *[HALF] * 8])]
WIDER_FAULTS = [
    (0, BOXES, "_off", "min(n, parts) - 2", "min(n, parts) - 4"),
    (1, BOXES, "_off", "growth += self.wider.growth(n - 1 + is_hard) * (1 + growth)", "pass"),
    (0, BOXES, "down", "self.first.down(x) if self.first else x", "x"),
]


def test_sums_in_a_wider_format_are_stored_up_to_four_times_and_results_rounded_twice():
    with ctx.workprec(BITS):
        assert all(least_in_a_wider_format(*case, ROUNDED_TWICE) for case in WIDER_SUMS)
        for i, owner, function, right, wrong in WIDER_FAULTS:
            with planted(owner, function, right, wrong):
                assert not least_in_a_wider_format(*WIDER_SUMS[i], ROUNDED_TWICE), wrong


def test_a_proof_holds_whose_few_parts_of_sums_are_stored():
    """Of a ring that is off by some hundredths: in float16 what may be flushed counts only where a sum is stored."""
    model = counters.ring(m=2)
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.02 * torch.sin(torch.arange(p.numel()) + i + 1.0).view_as(p))
    reading = Rounded(FORMATS["float16"], FORMATS["float32"])
    found = certify(Homogeneous(model, Task.of("modular", modulus=2), 4), reading, Effort(budget=2))
    assert outcome(bytes_of(model), json.loads(found.about(bytes_of(model)).to_json())) == "PROVED"


@pytest.mark.parametrize("name", ["float16", "p7", "float33"])
def test_sums_in_a_format_that_holds_less_are_not_checked(name):
    weights, certificate = saved("boxes, wider sums")
    certificate = copy.deepcopy(certificate)
    certificate["parameters"]["accumulate"] = name
    with pytest.raises(Refusal, match=f"sums in '{name}' are not checked"):
        check(weights, json.dumps(certificate).encode())


def is_least(on, x):
    """Whether nothing that a result x may be computed as, rounded or kept with more bits, is below the least."""
    kept = [Fraction(nearest(x, Format("kept", bits, -1000, 2.0**1000))) for bits in (18, 19, 25, 53)]
    all_ways = [*kept, *(Fraction(nearest(y, FORMATS["bfloat16"])) for y in kept)]
    return Fraction(str(on.down(fmpq(x.numerator, x.denominator)))) <= min(all_ways)


def are_least(draws=400):
    draw = random.Random(3)
    numbers = [Fraction(draw.getrandbits(40) - 2**39, 2 ** draw.randrange(30, 50)) for _ in range(draws)]
    return all(is_least(box_sums(), x) for x in numbers)


def test_a_result_is_not_below_its_least_and_faults_are_seen():
    assert are_least()
    for right, wrong in (("2**bits", "2 ** (bits + 1)"), ("max(cut, x", "max(cut, x + abs(x) / 2**bits")):
        with planted(EveryOrder, "down", right, wrong):
            assert not are_least()


def inside(seed, steps, name, wider=None):
    """Whether drawn evaluations stay within the checker's boxes, and in one format within what it says that roundings
    move.
    """
    draw, (model, _) = random.Random(seed), random_network(seed)
    weights = bytes_of(model)
    said = {"model": model.kind, "units": model.hidden, "layers": 1, "dtype": "float64", "precision": name}
    said |= {"activation": model.activation} if model.kind == "rnn" else {}
    with ctx.workprec(BITS):
        net, fmt = rounded.stored_network(weights, said)
        on = rounded_boxes.ComputedBoxes(net, fmt, of_sums({"accumulate": wider}, fmt))
        line = loose_steps(model, name, draw, wider)
        box, states = [(fmpq(0), fmpq(0))] * net.size, [[Fraction(0)] * net.size for _ in range(30)]
        centre, generators = [arb(0)] * net.size, []
        for _ in range(steps):
            states = [line.step(state) for state in states]
            box = on.step(box)
            centre, generators = rounded_lines.moved(net, fmt, centre, generators)
            around = box_of(centre, [reach_of(G) for G in generators])
            for state in states:
                found = [fmpq(x.numerator, x.denominator) for x in state]
                in_box = all(a <= x <= b for x, (a, b) in zip(found, box, strict=True))
                if not in_box or not (wider or all(ball.contains(x) for x, ball in zip(found, around, strict=True))):
                    return False
            logits = on.sums([(on.V, box[: net.hidden], on.b)])
            for state in states:
                found = [fmpq(x.numerator, x.denominator) for x in line.logits(state)]
                if not all(a <= x <= b for x, (a, b) in zip(found, logits, strict=True)):
                    return False
    return True


SEEDS = [
    (seed, name, None) for name in ("bfloat16", "float16") for seed in range(1, 12) if (seed, name) != (7, "float16")
]
SEEDS += [(seed, name, "float32") for name in ("bfloat16", "float16") for seed in (2, 3, 5, 8)]


@pytest.mark.parametrize(("seed", "name", "wider"), first(1, SEEDS))
def test_drawn_evaluations_stay_within_what_the_checker_says(seed, name, wider):
    assert inside(seed, 4, name, wider)


FAULTS = [
    (BOXES, "_increasing", "a - off(a, b)", "a"),
    (BOXES, "sums", "(w < 0) != up", "up"),
    (BOXES, "times", "for b in others", "for b in others[:1]"),
    (rounded, "moved", "delta = rounding_of_step(net, box, fmt)", "delta = [arb(0)] * net.size"),
]


@pytest.mark.parametrize(("owner", "function", "right", "wrong"), first(1, FAULTS))
def test_a_fault_in_a_bound_is_seen_by_drawn_evaluations(owner, function, right, wrong):
    with planted(owner, function, right, wrong), mock.patch.object(rounded_lines, "moved", rounded.moved):
        assert not all(inside(seed, 4, "bfloat16") for seed in range(12))


def reached(many, steps=7):
    """How far computed states reach from those in real arithmetic, where so many errors are followed on their own."""
    said = {"model": "ssm", "units": 2, "layers": 1, "dtype": "float32", "precision": "bfloat16"}
    numbers = [[0.875, -0.5], [0.25, 0.75]], [1.0, -0.5], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]
    weights = bytes_of(LinearModel("ssm", *map(torch.tensor, numbers)))
    with ctx.workprec(BITS), mock.patch.object(rounded, "NEW_ERRORS", many):
        net, fmt = rounded.stored_network(weights, said)
        state, generators = [arb(0)] * net.size, []
        for _ in range(steps):
            state, generators = rounded.moved(net, fmt, state, generators)
        assert len(generators) <= min(2 * many + 1, steps)
        return [sum(column, arb(0)) for column in zip(*map(reach_of, generators), strict=True)]


@pytest.mark.parametrize("many", [1, 2, 3])
def test_errors_that_are_followed_together_reach_no_less(many):
    assert all(a > b for a, b in zip(reached(many), reached(99), strict=True))
    with planted(rounded, "moved", "sum(column, arb(0)).upper()", "column[0] / 2"):
        assert not all(a > b for a, b in zip(reached(many), reached(99), strict=True))
    with planted(rounded, "moved", "*generators[-NEW_ERRORS:]", ""):
        assert not all(a > b for a, b in zip(reached(many), reached(99), strict=True))


def blended(seed):
    """Whether what a format makes of drawn z, n and h, in either order, is within what is said of all that are near."""
    draw = random.Random(seed)
    exact = [draw.choice([0, 1, 7, 8, 15, 16]) / 16, draw.uniform(-1, 1), draw.choice([1.0, 4.0]) * draw.uniform(-1, 1)]
    errors = [draw.choice([0.0, 2.0**-5, 2.0**-3]) for _ in exact]
    computed = [Fraction(x) + draw.choice([-1, 1]) * Fraction(e) for x, e in zip(exact, errors, strict=True)]
    return is_blended(exact, errors, computed, [x * (1 + Fraction(draw.choice([-1, 0, 1]), 16)) for x in computed])


def is_blended(exact, errors, computed, others):
    """Whether it is where operations read z, n and h as they are computed, or in these other forms."""
    fmt = BinaryFormat(4, -126, 127)
    on, hulls = rounded.Rounding(fmt), Hulls(fmt.p, fmt.least)
    z, n, other_z, other_n, h = ((x, x) for x in (*computed[:2], *others))
    rest, away = hulls.plus((1, 1), (-other_z[0], -other_z[0])), hulls.plus(h, (-other_n[0], -other_n[0]))
    found = hulls.plus(hulls.times(rest, n), hulls.times(z, h)), hulls.plus(n, hulls.times(z, away))
    with ctx.workprec(BITS):
        balls = (rounded.ComputedBalls([arb(x)], [arb(e)]) for x, e in zip(exact, errors, strict=True))
        said = on.blend(*balls)
        ends = [fmpq(x.numerator, x.denominator) for pair in found for x in pair]
        return all(not abs(arb(x) - said.value[0]) > said.error[0] for x in ends)


def is_far_blended():
    """The same of a gate of 1 that a difference reads as 15/16, where all else is rounded up by half a unit."""
    exact = [1.0, 17 / 32, 0.5]
    return is_blended(exact, [0.0] * 3, [*map(Fraction, exact)], [Fraction(15, 16), Fraction(17, 32), Fraction(17, 32)])


@pytest.mark.parametrize("start", first(1, range(0, 2000, 100)))
def test_what_a_gru_keeps_and_adds_is_within_what_is_said(start):
    assert all(map(blended, range(start, start + 100)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("dn * abs(1 - v)", "0"),
        ("dh * abs(v)", "0"),
        ("dz * abs(x - y)", "0"),
        ("e.max(f)", "arb(0)"),
    ],
)
def test_a_fault_in_what_a_gru_keeps_and_adds_is_seen(right, wrong):
    with planted(rounded.Rounding, "blend", right, wrong):
        assert not all(map(blended, range(300)))


def test_a_gate_that_two_operations_read_differently_is_within_what_is_said():
    assert is_far_blended()
    with planted(rounded.Rounding, "blend", "_minus(self._reread(Z))", "_minus(Z)"):
        assert not is_far_blended()
    with planted(BinaryFormat, "apart", "(1 + self.u) * size", "0"):
        assert not is_far_blended()
    with planted(BinaryFormat, "once", "(1 + self.u) * ", ""):
        assert not all(map(blended, range(100)))


def is_held(seed):
    """Whether sigmoids of a drawn set, two units in the last place off, are within the ends that are said of them."""
    draw, fmt, of_hull = random.Random(seed), BinaryFormat(4, -126, 127), Hulls(4, -126)
    x = draw.randint(-96, 96)
    x = x, x + draw.choice([0, 1, 4, 32])
    with mpmath.workdps(60):
        low, high = (Fraction(int(mpmath.ldexp(1 / (1 + mpmath.exp(-mpmath.mpf(v) / 16)), 99)), 2**99) for v in x)
    values = [low, high, *(Fraction(2) ** k for k in range(-12, 1) if low <= Fraction(2) ** k <= high)]
    found = [v + side * of_hull.unit(v) for v in values for side in (-2, 2)]
    found += [Fraction(fmt.closest(y.numerator, y.denominator.bit_length() - 1)) for y in found]
    with ctx.workprec(BITS):
        a, b = rounded_boxes.ComputedEnds(fmt).sigmoid([(fmpq(x[0], 16), fmpq(x[1], 16))])[0]
    return all(a <= fmpq(y.numerator, y.denominator) <= b for y in found)


def test_functions_of_a_set_are_within_its_ends():
    assert all(map(is_held, range(150)))
    for right, wrong in (("abs(end).max(abs(other))", "abs(end)"), ("self.of_function(abs(end)).min(", "(0 * ")):
        with planted(BinaryFormat, "beyond", right, wrong):
            assert not all(map(is_held, range(150)))
    with planted(BinaryFormat, "unit", "max(top, self.least + 1)", "max(top - 1, self.least + 1)"):
        assert not all(map(is_held, range(150)))


def test_functions_of_two_bits_are_not_followed():
    with ctx.workprec(BITS), pytest.raises(Refusal) as refusal:
        BinaryFormat(2, -126, 127).of_function(arb(1))
    assert refusal.value.exit_code == NOT_CHECKABLE


# ---- a fault in the prover

OF_PROVER = {
    "functions that are off by more": ("a run, gru", adverse, "OFF", 3.9),
    "boxes without functions' errors": ("boxes, tanh", grid, "ULPS", -1),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", OF_PROVER)
def test_what_a_faulty_prover_saves_is_refused(name):
    of, owner, constant, value = OF_PROVER[name]
    problem, precision = CASES[of]()
    with mock.patch.object(owner, constant, value):
        found = certify(problem, reading_of(precision), Effort(budget=looks(3000)))
    weights = bytes_of(problem.model)
    certificate = json.loads(found.about(weights).to_json())
    assert certificate["verdict"] == saved(of)[1]["verdict"] and ("run" in certificate or "boxes" in certificate)
    assert outcome(weights, certificate) in (FAILS, NOT_CHECKABLE)


# ---- runs whose functions are low or high


def askew_is_followed(name, by):
    """Whether every number of a run whose sigmoids, and tanh of a GRU, are off by `by` times u is allowed."""
    problem, fmt = trained(name), FORMATS["bfloat16"]
    candidates = -by if name.startswith("gru") else 0.0
    net = network_of(problem.model).rounded(fmt).askew(fmt, sigmoids=by, candidates=candidates)
    line, at = OrbitQuestion((), 0, lambda t: (t - (t < 20)) % 10, 10), RoundedArithmetic.of(fmt)  # wrong from 20 on
    found = computed.run(net, line, 400, at, Budget.of(1e9).deadline(), keeps=True)
    run, said = found.numbers(), problem.parameters(reading_of("bfloat16")) | {"precision": "bfloat16"}
    with ctx.workprec(BITS):
        on = rounded_runs.ReplayedRun(*rounded.stored_network(bytes_of(problem.model), said))
        try:
            on.follow(run["numbers"], run["logits"], [0] * found.wrong_at)
        except Refusal:
            return False
    return True


@pytest.mark.parametrize("name", ["lstm_seed6_stop0.25", "gru_seed2_stop0.5"])
def test_runs_whose_functions_are_low_or_high_are_followed_as_far_as_these_may_be(name):
    assert askew_is_followed(name, 1.875) and askew_is_followed(name, -1.5)
    assert not askew_is_followed(name, 4.5)
    with planted(Logged, "multiply", "del self.rows[-1][-count:]", "pass"):
        assert not askew_is_followed(name, 1.875)
