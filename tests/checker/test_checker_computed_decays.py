"""Lines of gated decays in a format at any length: certificates, forged ones, drawn evaluations, and faults."""

import copy
import json
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from models.crafted import crafted
from models.judged_crafted import SHARE_OF, asked, decided, kept, margins_in_torch
from models.rechecked import outcome
from models.selection import every, first
from oracles.rounded import nearest
from oracles.slow_units import margin_after
from test_checker_computed_gates import FlushedGates, OneSided, _are_in, stored

from constructions.recurrent import gated
from tests.planted import planted
from verify.arithmetic.formats import FORMATS, Format
from verify.checker import computed_decays, formats, kept_runs
from verify.checker.computed_decays import ComputedStates
from verify.checker.computed_tables import StoredCell
from verify.checker.kept_runs import KeptRun
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.tasks.recurrent.models import bytes_of

CRAFTED = [(180, "float64"), (444, "float64"), (330, "float64"), (389, "float32"), (7, "float32"), (198, "float64")]
CRAFTED += [
    (360, "bfloat16"),
    (407, "float32"),
    (180, "bfloat16"),
]  # margins that nothing is rounded of, or next to nothing
KEPT = [(482, "float32"), (65, "float32"), (26, "bfloat16"), (254, "float32"), (66, "float32")]


def certified(seed, name):
    case = crafted(seed)
    found, weights = decided(case, name, 2000), bytes_of(case.model)
    return case, weights, json.loads(found.about(weights).to_json())


def moved_to(c, n):
    """The same certificate with another wrong length."""
    found = copy.deepcopy(c)
    case = found["counterexample"] | {"length": n, "input": f"token 0, {n} times"}
    return found | {"counterexample": case, "right_to": min(n - 1, c["right_to"])}


@pytest.mark.parametrize(("seed", "name"), every(6, CRAFTED))
def test_lines_hold_at_any_length_and_a_larger_margin_does_not(seed, name):
    case, weights, c = certified(seed, name)
    assert outcome(weights, c) == c["verdict"]
    larger = min(margins_in_torch(case, name)) * 1.0625 if c["margin"] > 0 else c["margin"] - 1.0
    assert outcome(weights, c | {"margin": larger}) in (FAILS, NOT_CHECKABLE)
    if c["verdict"] == "REFUTED":
        assert outcome(weights, moved_to(c, c["right_to"])) in (FAILS, NOT_CHECKABLE)


@pytest.mark.parametrize(("seed", "name"), first(0, KEPT))
def test_a_run_that_keeps_all_holds_where_it_is_wrong_alone(seed, name):
    case, weights, c = certified(seed, name)
    assert outcome(weights, c) == "REFUTED"
    n, (due, turn, _) = c["counterexample"]["length"], asked(case)
    cell = kept(case, name, SHARE_OF[c["counterexample"]["evaluation"]])
    for other in (n - 1, n - n // 3, n // 4):
        is_right = margin_after(cell, other, due, turn) > 0
        assert (outcome(weights, moved_to(c, other)) == "REFUTED") is not is_right or c["margin"] < 0
    for factor in (1 + 2.0**-4, 1 - 2.0**-40, 1.0 + 2.0**-20):
        run = {"kept": [x * factor for x in c["run"]["kept"]]}
        assert outcome(weights, c | {"run": run}) == FAILS
    others = [x for x in SHARE_OF if x != c["counterexample"]["evaluation"]]
    assert {outcome(weights, c | {"counterexample": c["counterexample"] | {"evaluation": x}}) for x in others} <= {
        FAILS,
        NOT_CHECKABLE,
    } or case.model.kind == "s4"


# ---- drawn evaluations


def network(seed):
    """A cell of one token and two states that forget fast or slowly."""
    g, kind = torch.Generator().manual_seed(seed), ("mamba", "rwkv", "s4")[seed % 3]
    cells = {"mamba": (gated.MambaCell, 4), "rwkv": (gated.RwkvCell, 4), "s4": (gated.DiagonalCell, 3)}
    of, number = cells[kind]
    numbers = [torch.randn(2, generator=g, dtype=torch.float64) for _ in range(number)]
    if kind == "s4":
        numbers[0] = 1 - torch.rand(2, generator=g, dtype=torch.float64) ** 2 * (2 if seed % 2 else 1)
    else:
        numbers[0] -= 3
    alone = {"mamba": (0,), "rwkv": (), "s4": (0, 2)}[kind]  # which have no row a token
    numbers = [x if i in alone else x[None] for i, x in enumerate(numbers)]
    V = torch.randn(3, 2, generator=g, dtype=torch.float64)
    return gated.GatedModel(of(*numbers), V, torch.randn(3, generator=g, dtype=torch.float64)), kind


def _is_between(states, h, t):
    """Whether a computed state is between what is said of it after so many tokens."""
    for x, sign, low, high in zip(h, states.signs, states.least, states.most, strict=True):
        y = sign * arb(x.numerator) / x.denominator
        if abs(y) > high.after(t) or low is not None and y < low.after(t):
            return False
    return True


def inside(seed, name, steps=20):
    """Whether drawn evaluations stay within what is said of one length, of all to the last, and of all for ever."""
    model, kind = network(seed)
    said = {"model": kind, "units": 2, "layers": 1, "dtype": "float64", "precision": name}
    draw, fmt = random.Random(seed), formats.named(said)
    with ctx.workprec(computed_decays.BITS):
        states = ComputedStates(StoredCell.of(bytes_of(model), said, fmt), fmt)
        draws = [draw, draw, OneSided(0), OneSided(4)]
        runs = [FlushedGates(stored(model), kind, FORMATS[name], x) for x in draws]
        here = [run.start() for run in runs]
        told = [states.ends(1, steps, 0)]
        if all(x.factor < 1 for x in states.most):
            told.append(states.ends(1, None, 0))
        for t in range(1, steps + 1):
            here = [run.step(x) for run, x in zip(runs, here, strict=True)]
            if not all(_is_between(states, x, t) for x in here):
                return False
            for found in (states.ends(t, t, 0), *told):
                if not all(_are_in(run.logits(x), found, 0) for run, x in zip(runs, here, strict=True)):
                    return False
    return True


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float16", "float32"]))
def test_drawn_evaluations_stay_within_what_is_said(name):
    assert all(inside(seed, name) for seed in range(3 if name == "bfloat16" else 40))


SEEN = (0, 2, 17, 43)  # networks by which one of the faults is seen
BOUNDS = [
    (ComputedStates, "__init__", "((1 + r) * (abs(f) + d))", "abs(f)"),
    (ComputedStates, "__init__", "((1 - r) * (f - d))", "f"),
    (ComputedStates, "__init__", "((1 + r) * end + z)", "(end / 2)"),
    (ComputedStates, "__init__", "(abs(a) + g).upper()", "abs(a).upper()"),
    (ComputedStates, "__init__", "low if low.factor >= 0 and low.added >= 0 else None", "low"),
    (computed_decays, "_lowest", "first.min(last) if last.is_finite() else first", "last"),
    (computed_decays.Growth, "after", "** (t - 1)", "** t"),
    (computed_decays.Growth, "limit", "self.added / (1 - self.factor)", "self.added"),
]


@pytest.mark.parametrize("fault", BOUNDS)
def test_a_fault_in_a_bound_is_seen(fault):
    with planted(*fault):
        assert not all(inside(seed, "bfloat16", 6) for seed in SEEN)


# ---- the run that keeps all


def run_is_said(seed, steps=12):
    """Whether an RWKV-like run's margins are within what is said, and what exp may not be is refused."""
    model, said = network(3 * seed + 1)[0], {"model": "rwkv", "units": 2, "layers": 1, "dtype": "float64"}
    fmt, draw = formats.named({"precision": "p5"}), random.Random(seed)
    near = Format("p5", 5, -126, (2 - 2.0**-4) * 2.0**127)
    with ctx.workprec(computed_decays.BITS), mpmath.workdps(60):
        net = StoredCell.of(bytes_of(model), said, fmt)
        w, k, v, r = (net.rows[name][0] for name in "wkvr")
        exact = [mpmath.exp(-mpmath.exp(x)) for x in w]
        share = draw.choice([-1.5, 0.0, 1.875, 1.875, 3.0, -5.0])
        kept = [float(x) * (1 + share / 32) for x in exact]
        units = [mpmath.ldexp(1, mpmath.frexp(x)[1] - 5) for x in exact]
        may_be = all(abs(f - x) <= 2 * unit for f, x, unit in zip(kept, exact, units, strict=True))
        try:
            run = kept_runs.decaying_run(net, fmt, kept, arb(share))
        except Refusal:
            return not may_be
        if not may_be:
            return False
        h = [Fraction(0)] * 2
        for t in range(1, steps + 1):
            h = [Fraction(f) * x + Fraction(a) * Fraction(b) for f, x, a, b in zip(kept, h, k, v, strict=True)]
            factors = [Fraction(nearest(Fraction(a) * x, near)) for a, x in zip(r, h, strict=True)]
            logits = [sum(Fraction(a) * x for a, x in zip(row, factors, strict=True)) + Fraction(c)
                      for row, c in zip(net.V, net.b, strict=True)]  # fmt: skip
            if not _are_in(logits, run.gaps(t, 0), 0):
                return False
    return True


def test_a_run_that_keeps_all_is_within_what_is_said():
    assert all(map(run_is_said, range(20)))


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    [
        (kept_runs, "decaying_run", "x == f or is_near", "True"),
        (kept_runs, "decaying_run", "r * Growth", "Growth"),
        (KeptRun, "_factors", "self.fmt.closest(*scaled(exact(x)))", "x"),
        (KeptRun, "_gap", "arb(b[right]) - arb(b[j])", "arb(0)"),
    ],
)
def test_a_fault_in_the_run_is_seen(owner, name, right, wrong):
    with planted(owner, name, right, wrong):
        assert not all(map(run_is_said, range(20)))


def overflowing(seed):
    """Whether infinite factors are told from others, and the answers that are wrong there, as float64 has them."""
    draw = random.Random(seed)
    V = [[draw.choice([-1.0, 0.0, 1.0, 2.0]) for _ in "ab"] for _ in "012"]
    reads = [draw.choice([1.0, -1.0]) * draw.choice([1.0, 2.0**127, 2.0**128, (2 - 2.0**-5) * 2.0**127]) for _ in "ab"]
    fmt = formats.named({"precision": "p5"})
    net = StoredCell("rwkv", {}, V, [0.0] * 3)
    factors = [fmt.closest(*formats.scaled(x)) for x in reads]
    run = KeptRun(net, fmt, lambda t: list(map(arb, reads)))
    logits = np.array(V) @ np.array(factors) if all(map(np.isfinite, factors)) else [
        sum(np.float64(v) * x for v, x in zip(row, factors, strict=True)) for row in V
    ]  # fmt: skip
    is_wrong = not all(logits[0] > y for y in logits[1:])
    said = run.is_no_number(1, 0)
    return said == (is_wrong and not all(map(np.isfinite, factors)))


@pytest.mark.parametrize("w", [800.0, 2.0**1023])
def test_a_rate_beyond_the_largest_number_is_left_open(w):
    net = StoredCell("rwkv", {"w": [[w]], "k": [[1.0]], "v": [[1.0]], "r": [[1.0]]}, [[1.0], [2.0]], [0.0, 0.0])
    fmt = formats.BinaryFormat(*formats.NAMED["float64"])
    with ctx.workprec(computed_decays.BITS), pytest.raises(Refusal, match="may overflow") as refusal:
        ComputedStates(net, fmt)
    assert refusal.value.exit_code == NOT_CHECKABLE


def test_answers_beyond_the_largest_number_are_those_of_float64():
    with ctx.workprec(computed_decays.BITS), np.errstate(all="ignore"):
        assert all(map(overflowing, range(300)))
