"""Wrong runs that a certificate only names: run by other means, forged, and faults in the checker."""

import hashlib
import json
import math
from fractions import Fraction
from unittest import mock

import pytest
import torch
from flint import arb, ctx, fmpq, fmpq_mat
from models import crafted
from models.certificates import honest, swinging
from models.rechecked import outcome
from mpmath import mp
from oracles import forged_named, slow_units

from constructions.recurrent.gated import DiagonalCell, GatedModel
from constructions.recurrent.linear import LinearModel
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import exact_runs, kept_gates, named_runs
from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.kept_gates import KeptGates
from verify.checker.named_runs import AGAINST, KEPT, ROUNDED, NamedRun, SortedRun, plain_network
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, read_tensors, tables_of
from verify.checker.recurrent import network
from verify.checker.rounded import stored_in
from verify.checker.steady import FractionSteps
from verify.tasks.recurrent.models import bytes_of

OPEN = "relu, against an answer, wrong, bfloat16"
QUICK = [OPEN, "relu, named, wrong, no number, float64", "relu, even turns, wrong, float64"]
SLOW = ["relu, named, wrong, float32", "gru, named, wrong, float32", "gru, named askew, wrong, float32",
        "lstm, named, wrong, float32", "ssm, named, wrong, float32", "s4, named, wrong, bfloat16"]  # fmt: skip


def saved(name):
    weights, text = honest(name)
    return weights, json.loads(text)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.deep) for name in SLOW)])
def test_what_is_named_holds_and_another_length_class_margin_or_name_does_not(name):
    weights, c = saved(name)
    case, n = c["counterexample"], c["counterexample"]["length"]
    assert "run" not in c and outcome(weights, c) == "REFUTED"
    moved = [{"length": n + k} for k in (-1, 1)] + [{"predicted": case["expected"]}, {"predicted": 9}]
    moved += [
        {"is_first": not case["is_first"]},
        {"expected": case["expected"] + 1},
        {"evaluation": case["evaluation"] + " "},
    ]
    forged = [c | {"counterexample": case | x} for x in moved] + [c | {"margin": 0.5}]
    forged += [c | {"right_to": c["right_to"] - 1 if case["is_first"] else n - 1}]
    forged += [c | {"margin": 0.0 if c["margin"] is None else 2.0**20 * c["margin"]}]
    assert {outcome(weights, x) for x in forged} <= {FAILS, NOT_CHECKABLE}


# ---- runs token by token


def said_of(model, precision):
    said = {"model": model.kind, "units": model.hidden, "layers": 1, "dtype": "float64", "precision": precision}
    return said | ({"activation": model.activation} if model.kind == "rnn" else {})


def drawn(kind, seed):
    """Two or three units with drawn weights, some of them 0, 1 or -1; some grow beyond all formats."""
    draw, d = torch.Generator().manual_seed(seed), 2 + seed % 2

    def numbers(*shape):
        x = torch.randn(*shape, generator=draw, dtype=torch.float64) * (1 + 2 * (seed % 3))
        return torch.where(torch.rand(*shape, generator=draw) < 0.4, x.sign() * (x.abs() > 0.5), x)

    V, b = numbers(2, d), numbers(2)
    if kind == "s4":
        return GatedModel(DiagonalCell(numbers(d).tanh(), numbers(1, d), numbers(d)), V, b)
    if kind == "ssm":
        return LinearModel("ssm", numbers(d, d), numbers(d), V, b)
    model = crafted.blank("rnn", d, 2, "relu")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(numbers(*p.shape))
    return model


RULES = [(ROUNDED, "float32"), (ROUNDED, "float64"), (KEPT, "bfloat16"), (KEPT, "float32")]


def differing(rule, precision, seeds, tokens=60):
    """The drawn networks of which the run is not that of numpy."""
    fmt, found = BinaryFormat(*NAMED[precision]), []
    for kind in ("rnn", "ssm", "s4"):
        for seed in seeds:
            model = drawn(kind, seed)
            weights = bytes_of(model)
            rows = tables_of(read_tensors(weights)[0], ("cell.B", "cell.a", "cell.c") if kind != "rnn" else ())
            with ctx.workprec(kept_gates.BITS):
                own = NamedRun.of(weights, said_of(model, precision), fmt, rule).logits(tokens)
            other = forged_named.stepped(rows, kind, FORMATS[precision], tokens, is_kept=rule == KEPT)
            is_same = all(x == y or x != x and y != y for x, y in zip(own, other, strict=True))
            found += [] if is_same else [(kind, seed)]
    return found


@pytest.mark.parametrize(("rule", "precision"), RULES)
def test_a_run_is_the_one_of_numpy(rule, precision):
    assert differing(rule, precision, range(6)) == []


OF_RUNS = [
    ("sums", "cell[0] = w * x[i]\n", "cell[0] = w\n", 0),
    ("sums", "cell[0] = total + b", "cell[0] = b", 0),
    ("sums", "cell[0] += given", "pass", 0),
    ("logits", "[*map(self.factor, h)]", "h", 2),
    ("logits", "[*map(self.factor, y)]", "y", 2),
    ("logits", "rows = self.rows  #", "pass  #", 0),
    ("logits", "self.rounded(r * x)", "r * x", 0),
]


@pytest.mark.parametrize("fault", OF_RUNS)
def test_a_fault_in_a_run_is_seen(fault):
    name, right, wrong, number = fault
    with planted(NamedRun, name, right, wrong):
        assert differing(*RULES[number], range(6), 300)


def test_a_factor_beyond_the_format_is_infinite_where_its_number_is_kept():
    """Unit 0 is 2^17 - 1 when unit 1 reads it with weight 0."""
    tables = ([[2.0, 0.0], [0.0, 0.0]], [1.0, 1.0], [[1.0, 0.5], [-1.0, -0.5]], [0.0, 0.0])
    model = LinearModel("ssm", *(torch.tensor(x, dtype=torch.float64) for x in tables))
    with ctx.workprec(kept_gates.BITS):
        run = NamedRun.of(bytes_of(model), said_of(model, "float16"), BinaryFormat(*NAMED["float16"]), KEPT)
    assert run.logits(16) == [math.inf, -math.inf] and all(map(math.isnan, run.logits(17)))


def test_a_tie_has_a_margin():
    """One unit is 1 in both classes, whatever is read."""
    _, c = saved(QUICK[1])
    rows = ([[0.0]], [1.0], [[1.0], [1.0]], [0.0, 0.0])
    own = bytes_of(LinearModel("ssm", *(torch.tensor(x, dtype=torch.float64) for x in rows)))
    said = {"model": "ssm", "units": 1, "layers": 1, "dtype": "float64", "precision": "float64", "length": "all"}
    case = c["counterexample"] | {"input": "token 0, 4 times", "length": 4, "expected": 2, "predicted": 1}
    c |= {"parameters": said | {"task": "modular", "modulus": 2}, "counterexample": case | {"evaluation": ROUNDED}}
    c |= {"right_to": 0, "weights_sha256": hashlib.sha256(own).hexdigest()}
    assert outcome(own, c | {"margin": 0.0}) == "REFUTED"
    assert outcome(own, c | {"margin": None}) == outcome(own, c | {"margin": -1.0}) == FAILS


def test_runs_of_other_formats_cells_and_of_many_tokens_are_not_checked():
    weights, c = saved(SLOW[0])
    said = c["parameters"]
    assert outcome(weights, c | {"parameters": said | {"precision": "bfloat16"}}) == NOT_CHECKABLE
    n = c["counterexample"]["length"] + 10**9 * said["modulus"]
    far = {"length": n, "input": f"token 0, {n} times"}
    assert outcome(weights, c | {"counterexample": c["counterexample"] | far}) == NOT_CHECKABLE
    with ctx.workprec(256), pytest.raises(Refusal, match="of such a name"):
        NamedRun.of(weights, said, BinaryFormat(*NAMED["float32"]), kept_gates.KEPT)


# ---- runs of a name that leaves open what is rounded


def differing_in_order(precision, seeds, tokens=60):
    """The drawn networks of which the run with sorted sums is not that of torch."""
    fmt, found = BinaryFormat(*NAMED[precision]), []
    for kind, seed in ((kind, seed) for kind in ("rnn", "ssm") for seed in seeds):
        model = drawn(kind, seed)
        weights = bytes_of(model)
        rows = tables_of(read_tensors(weights)[0], ("cell.B",) if kind == "ssm" else ())
        with ctx.workprec(kept_gates.BITS):
            own = SortedRun(plain_network(weights, said_of(model, precision), fmt), fmt).logits(tokens)
        other = forged_named.ascending(rows, FORMATS[precision], tokens)
        is_same = all(x == y or x != x and y != y for x, y in zip(own, other, strict=True))
        found += [] if is_same else [(kind, seed)]
    return found


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float32"])
def test_a_run_with_sorted_sums_is_the_one_of_torch(precision):
    assert differing_in_order(precision, range(4)) == []


OF_SORTED_RUNS = [
    ("sums", "sorted(terms)", "terms"),
    ("sums", "self.on.add, sorted", "max, sorted"),
    ("sums", ", b[i])", ", 0.0)"),
    ("logits", "y > 0 or math.isnan(y)", "True"),
    ("logits", " or math.isnan(y)", ""),
    ("logits", "*self.of_token, ", ""),
]


@pytest.mark.parametrize("fault", OF_SORTED_RUNS)
def test_a_fault_in_a_run_with_sorted_sums_is_seen(fault):
    with planted(SortedRun, *fault):
        assert any(differing_in_order("bfloat16", range(6), tokens) for tokens in (20, 300))


def said_to_be_no_number(model, n, *, is_first):
    """A network of two units modulo 2, of which it is said that no number is answered after n tokens."""
    weights, (_, c) = bytes_of(model), saved(OPEN)
    case = {"input": f"token 0, {n} times", "length": n, "expected": (n - 1) % 2 + 1, "is_first": is_first}
    return weights, c | {
        "weights_sha256": hashlib.sha256(weights).hexdigest(), "right_to": n - 1 if is_first else 0,
        "counterexample": c["counterexample"] | case,
    }  # fmt: skip


@pytest.mark.parametrize("is_first", [True, False])
def test_no_number_is_answered_from_where_the_named_run_overflows(is_first):
    """The sum is 2^-9 (2^t - 1) after t tokens, and infinite from 137 tokens on, where 2^128 is reached."""

    def found(n, model=None):
        return outcome(*said_to_be_no_number(model or swinging(2.0, 0.0), n, is_first=is_first))

    later = NOT_CHECKABLE if is_first else "REFUTED"
    assert [found(n) for n in (2, 135, 136, 137, 138)] == [NOT_CHECKABLE] * 3 + ["REFUTED", later]
    assert found(137, swinging(1.0, 0.0)) == NOT_CHECKABLE  # which is right for ever


def test_a_first_length_of_a_named_run_is_one_before_which_every_order_is_right():
    """The sum is 2^-9 (2^t - 1), which takes more than 1 from the right class after nine tokens and more."""
    wrong_before = said_to_be_no_number(swinging(2.0, 2.0**-8), 137, is_first=True)
    assert outcome(*wrong_before) == NOT_CHECKABLE
    with planted(named_runs, "decide", "right_to(n - 1", "right_to(0"):
        assert outcome(*wrong_before) == "REFUTED"


def test_an_open_name_says_nothing_of_margins_other_cells_and_long_runs():
    weights, c = said_to_be_no_number(swinging(2.0, 0.0), 137, is_first=False)
    far = {"length": 10**8 + 1, "input": f"token 0, {10**8 + 1} times"}
    for change in ({"margin": -1.0}, {"counterexample": c["counterexample"] | far}):
        assert outcome(weights, c | change) == NOT_CHECKABLE
    gru, other = growing(40_000, AGAINST)
    assert outcome(gru, other) == NOT_CHECKABLE


# ---- even turns


def even(precision, turns=25, start=9):
    """1 - s 2^-turns+9, s the sum of 2^-start: wrong first after 2^turns + 1 tokens, which is said of a format."""
    model = swinging(1.0, 2.0 ** (start - turns))
    with torch.no_grad():
        model.cell.bias_ih_l0[1] = 2.0**-start
    weights, (_, c) = bytes_of(model), saved("relu, even turns, wrong, float64")
    n = 2**turns + 1
    case = c["counterexample"] | {"length": n, "input": f"token 0, {n} times", "expected": 1, "predicted": 2}
    said = c["parameters"] | {"precision": precision, "dtype": str(model.readout.weight.dtype)[6:]}
    return weights, c | {
        "weights_sha256": hashlib.sha256(weights).hexdigest(), "parameters": said, "counterexample": case,
        "margin": -(2.0**-turns), "leaps": [{"after": 3, "turn": 2, "turns": None}],
    }  # fmt: skip


def test_turns_are_taken_where_every_state_is_a_number_of_the_format():
    assert outcome(*even("float64")) == "REFUTED"
    assert outcome(*even("float32", 23)) == "REFUTED"
    assert outcome(*even("float32")) == NOT_CHECKABLE  # 2^25 - 1 has 25 bits
    with planted(exact_runs, "_are_of", 'require(is_of, "a state', 'require(True, "a state'):
        assert outcome(*even("float32")) == "REFUTED"


@pytest.mark.parametrize("change", [{"after": 4}, {"turn": 4}, {"turns": 2**24}, {"after": 2**25 + 1}, {"turn": 3}])
def test_other_leaps_lead_to_the_same_run_or_are_refused(change):
    weights, c = even("float64")
    found = outcome(weights, c | {"leaps": [c["leaps"][0] | change]})
    assert found == "REFUTED" if change in ({"after": 4}, {"turn": 4}) else found in (FAILS, NOT_CHECKABLE)


@pytest.mark.parametrize(("weight", "state"), [(2.0**-100, 2.0**-100), (2.0**100, 2.0**100), (1.0, 2.0**-150)])
def test_results_beyond_the_format_are_not_kept(weight, state):
    one, none = fmpq_mat(1, 1, [fmpq(*weight.as_integer_ratio())]), fmpq_mat(1, 1)
    x = exact_runs.EvenNumbers(fmpq(*state.as_integer_ratio()), fmpq(0), fmpq(0))
    with pytest.raises(Refusal):
        exact_runs._are_of(BinaryFormat(*NAMED["float32"]), FractionSteps(none, none, one, none, True), [[x]])


# ---- gates


def read(model, precision, share, n, period):
    """What the readout reads after n tokens of the run whose sigmoids are a share of u high."""
    fmt = BinaryFormat(*NAMED[precision])
    with ctx.workprec(kept_gates.BITS):
        net = stored_in(network(bytes_of(model), said_of(model, precision)), fmt)
        run = KeptGates(net, fmt, arb(share))
        return [*map(Fraction, run.rounded(run.read_after(n, period), [True] * net.hidden))]


def run_to(model, precision, share, n):
    """The same, token by token in 60 digits."""
    with mp.workdps(60):
        cell = slow_units.KeptCell(model, FORMATS[precision], share)
        state = cell.start()
        for _ in range(n):
            state = cell.step(state)
        return [Fraction(float(cell.near(h))) for h in state[0]]


GATES = {"lstm swings": (0, 2), "gru swings": (96, 2), "lstm first": (24, 1), "gru first": (215, 1)}


def is_run_again(name, precision, share, n):
    seed, period = GATES[name]
    model = crafted.crafted(seed).model
    return read(model, precision, share, n, period) == run_to(model, precision, share, n)


@pytest.mark.parametrize("name", GATES)
def test_turns_of_gates_lead_where_steps_lead(name):
    for precision, share, n in (("float32", 0, 131), ("float32", 1.875, 200), ("bfloat16", -1.5, 160)):
        assert is_run_again(name, precision, share, n), (precision, share, n)


OF_GATES = [
    (KeptGates, "_turned", "(tokens - 1) // k", "tokens // k"),
    (KeptGates, "_after", "S * gates.keep[i] + gates.add[i]", "S + gates.add[i]"),
    (KeptGates, "_after", "power * y +", "y +"),
    (KeptGates, "_gates", "self.high * logistic", "logistic"),
    (KeptGates, "rounded", "self.fmt.of_ball(y) if used", "float(y) if used"),
    (kept_gates.GateStep, "shown", "o * v.tanh()", "v.tanh()"),
]


@pytest.mark.parametrize("fault", OF_GATES)
def test_a_fault_in_gates_is_seen(fault):
    with planted(*fault):
        assert not all(is_run_again(name, "bfloat16", 1.875, n) for name in GATES for n in (129, 130))


def test_factors_that_change_on_the_way_are_no_turns():
    """A unit that creeps and that a candidate reads: some turn has the factors of the one before, later ones do not."""
    model = crafted.crafted(96).model
    with torch.no_grad():
        model.cell.bias_ih_l0[3], model.cell.bias_ih_l0[5], model.cell.weight_hh_l0[4, 1] = 14.0, 5.0, 1000.0
    with mock.patch.object(kept_gates, "ENTRIES", (1200,)):
        due = read(model, "bfloat16", 0, 1200, 2)
    with mock.patch.object(kept_gates, "ENTRIES", range(600, 660)):
        with pytest.raises(Refusal, match="do not repeat"):
            read(model, "bfloat16", 0, 1200, 2)
        with planted(KeptGates, "_turned", "!= due:", "is None:"):
            assert read(model, "bfloat16", 0, 1200, 2) != due


def growing(n, name):
    """A GRU whose gate is at 1, so that sigmoids that are high let h grow: said to answer no number after n tokens."""
    model = crafted.blank("gru", 2, 2)
    with torch.no_grad():
        model.cell.bias_ih_l0.copy_(torch.tensor([0.0, 0.0, 40.0, 40.0, 1.0, -1.0]))
        model.readout.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    weights, (_, c) = bytes_of(model), saved("relu, named, wrong, no number, float64")
    said = said_of(model, "bfloat16") | {"task": "first-homogeneous", "length": "all"}
    case = {"input": f"token 0, {n} times", "length": n, "expected": 0, "predicted": None, "evaluation": name}
    return weights, c | {
        "weights_sha256": hashlib.sha256(weights).hexdigest(), "parameters": said, "right_to": 0, "margin": None,
        "counterexample": c["counterexample"] | case,
    }  # fmt: skip


def test_a_state_that_grows_is_no_number_from_where_it_is_beyond_the_largest():
    low, high = kept_gates.OF_53_BITS
    rate = 1 + 15 / 8 * 2.0**-8
    # h = -tanh(1) (rate^n - 1) after n tokens, and infinite from (2 - 2^-8) 2^127 on
    first = math.ceil(math.log1p((2 - 2.0**-8) * 2.0**127 / math.tanh(1)) / math.log(rate))
    assert [outcome(*growing(n, high)) for n in (first - 1, first, 2 * first)] == [FAILS, "REFUTED", "REFUTED"]
    assert outcome(*growing(first, low)) == outcome(*growing(0, high)) == FAILS
    weights, c = growing(first, high)
    assert outcome(weights, c | {"counterexample": c["counterexample"] | {"is_first": True}}) in (FAILS, NOT_CHECKABLE)
    assert outcome(weights, c | {"counterexample": c["counterexample"] | {"predicted": 1}}) == FAILS
