"""Lines in a format: boxes of computed numbers and single runs, against runs in plain Python whose orders are drawn."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from models.crafted import FAMILIES, crafted
from models.selection import every, first

from constructions.errors import BadInput
from constructions.recurrent import counters, holding
from constructions.recurrent.gated import GatedModel
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import RecurrentModel, load
from tests.clocks import endless, looks
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Kernel, Rounded
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import computed, enclosures, gated, grid, logged
from verify.tasks.recurrent.enclosures import Off, Roundings
from verify.tasks.recurrent.network import Network, nonzeros, orbit
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.task import Homogeneous, network_of

NAMES = ("bfloat16", "float32", "float64")


def nearest(x, fmt):
    """A fraction rounded to the format, ties to even, of numbers that are not subnormal."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x)))
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    unit = Fraction(2) ** (exponent - fmt.p + 1)
    return float(round(x / unit) * unit)


class Line:
    """A run of a recurrent network on one token in plain Python; what `pick` does decides each order and each kept bit.

    A sum is taken in any order, and each partial result is rounded, or kept as the fraction that it is. Where sums have
    a `wider` format, matrix products and biases are one such sum, or some are stored, and then added as stored numbers.
    """

    def __init__(self, model, fmt, rng=None, wider=None):
        self.fmt, self.rng, self.wider = fmt, rng, wider
        stored = {name: numbers(value.double().tolist(), fmt) for name, value in model.state_dict().items()}
        self.V, self.b = stored["readout.weight"], stored["readout.bias"]
        if isinstance(model, LinearModel):
            self.kind, self.f = "rnn", lambda x: x
            W, own = stored["cell.A"], stored["cell.B"]
            self.parts = [[0.0]] * len(W), W, [0.0] * len(W), own
        else:
            self.kind = model.kind
            self.f = self.tanh if model.activation == "tanh" else lambda x: max(x, 0)
            self.parts = tuple(stored[f"cell.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        self.H = len(self.V[0])
        self.h, self.c = [0.0] * self.H, [0.0] * self.H

    def once(self, x, fmt=None):
        """A result, rounded or kept."""
        if self.rng is not None and self.rng.random() < 0.5:
            return x
        return nearest(Fraction(x), fmt or self.fmt)

    def sum(self, *parts):
        """Products of pairs and numbers, in the order of this run; each part is a matrix product and what is added."""
        if self.wider is None:
            return self.in_order([t for part in parts for t in part], self.fmt)
        groups = [group for part in parts for group in self.groups(part)]
        if self.rng is not None and self.rng.random() < 0.3:
            groups = [[t for group in groups for t in group]]
        stored = [self.once(self.in_order(group, self.wider)) for group in groups if group]
        return self.in_order(stored, self.fmt)

    def groups(self, part):
        """A matrix product and its biases, as one sum or, as they are stored, one by one."""
        products, biases = ([t for t in part if isinstance(t, tuple) is kind] for kind in (True, False))
        return [part] if self.rng is None or self.rng.random() < 0.5 else [products, *([b] for b in biases)]

    def in_order(self, terms, fmt):
        """One sum, whose products and partial results have a format."""
        terms = [t for t in terms if not isinstance(t, tuple) or t[0] != 0]
        values = [self.once(Fraction(t[0]) * Fraction(t[1]), fmt) if isinstance(t, tuple) else t for t in terms]
        if self.rng is not None:
            self.rng.shuffle(values)
        total = Fraction(0)
        for value in values:
            total = self.once(Fraction(total) + Fraction(value), fmt)
        return total

    def rows(self, h):
        """W_x + b_x and W_h h + b_h, each row as its terms; a factor is a number of the format."""
        factor = [nearest(Fraction(x), self.fmt) for x in h]
        W_x, W_h, b_x, b_h = self.parts
        given = [[(w[0], 1.0), b] for w, b in zip(W_x, b_x, strict=True)]
        own = [[*zip(w, factor, strict=True), b] for w, b in zip(W_h, b_h, strict=True)]
        return given, own

    def tanh(self, x):
        return self.once(Fraction(math.tanh(x)))

    def sigmoid(self, x):
        return self.once(Fraction(1 / (1 + math.exp(-x))))

    def times(self, x, y):
        return self.once(Fraction(x) * Fraction(y))

    def plus(self, x, y):
        return self.once(Fraction(x) + Fraction(y))

    def joined(self, given, own):
        """Both parts as one sum, or, from left to right, one after the other."""
        if self.rng is None:
            return self.plus(self.sum(given), self.sum(own))
        return self.sum(given, own)

    def step(self):
        """One more token; the margins of the logits are those of `logits`."""
        given, own = self.rows(self.h)
        H = self.H
        if self.kind == "rnn":
            self.h = [self.f(self.joined(*pair)) for pair in zip(given, own, strict=True)]
        elif self.kind == "gru":
            r, z = ([self.sigmoid(self.joined(given[k * H + j], own[k * H + j])) for j in range(H)] for k in (0, 1))
            a, u = ([self.sum(x[2 * H + j]) for j in range(H)] for x in (given, own))
            n = [self.tanh(self.plus(a[j], self.times(r[j], u[j]))) for j in range(H)]
            self.h = [self.plus(self.times(self.plus(1, -z[j]), n[j]), self.times(z[j], self.h[j])) for j in range(H)]
        else:
            a = [self.joined(*pair) for pair in zip(given, own, strict=True)]
            i, f, o = ([self.sigmoid(x) for x in a[k * H : k * H + H]] for k in (0, 1, 3))
            g = [self.tanh(x) for x in a[2 * H : 3 * H]]
            self.c = [self.plus(self.times(f[j], self.c[j]), self.times(i[j], g[j])) for j in range(H)]
            self.h = [self.times(o[j], self.tanh(self.c[j])) for j in range(H)]

    def margin(self, right):
        factor = [nearest(Fraction(x), self.fmt) for x in self.h]
        logits = [self.sum([*zip(row, factor, strict=True), c]) for row, c in zip(self.V, self.b, strict=True)]
        return logits[right] - max(x for j, x in enumerate(logits) if j != right)


def numbers(x, fmt):
    return [numbers(y, fmt) for y in x] if isinstance(x, list) else nearest(Fraction(x), fmt)


READ = ("lstm swings", "gru swings", "relu swings", "ring creeps", "linear creeps", "lstm first", "gru first",
        "rotation matrix", "near tie", "exact tie", "tanh creeps", "disturbed cycle")  # fmt: skip
SEEDS = [FAMILIES.index(name) + 19 * k for name in READ for k in (0, 3)]


def asked(case):
    problem = Homogeneous(case.model, case.task, None)
    return problem._line(problem.lines[0])


WIDER = [("bfloat16", None, 2), ("bfloat16", "float32", 4), ("bfloat16", "float32", 1), ("float32", "float64", 1),
         ("float32", None, 1), ("float64", None, 1)]  # fmt: skip


@pytest.mark.parametrize(("name", "accumulate", "every_nth"), first(2, WIDER))
def test_boxes_hold_the_states_and_margins_of_all_orders(name, accumulate, every_nth):
    """Of runs whose orders and kept bits are drawn, and of the one that rounds all."""
    fmt, wider, held = FORMATS[name], FORMATS.get(accumulate), 0
    for seed in SEEDS[::every_nth]:
        case, rng = crafted(seed), random.Random(seed)
        line, at = asked(case), RoundedArithmetic.of(fmt, wider)
        boxes = grid.Boxes(network_of(case.model).rounded(at.stored), line, at)
        if not boxes.can_run:
            continue
        runs, state = [Line(case.model, fmt, r, wider) for r in (None, rng, rng)], boxes.start()
        for t in range(6):
            state = boxes.step(state, t)
            low, high = ends(state)
            least, most, _ = boxes.margin(state, t + 1)
            for run in runs:
                run.step()
                numbers_of = run.h if len(low) == run.H else run.h + run.c
                assert all(a <= x <= b for a, x, b in zip(low, numbers_of, high, strict=True)), (seed, t)
                assert least <= run.margin(line.expected(t + 1)) <= most, (seed, t)
                held += 1
    assert held > 6 * 3 * 15 // every_nth


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float32"]))
@pytest.mark.deep
def test_the_run_that_rounds_all_is_that_of_fractions(name):
    """First wrong lengths, or as far as both were followed."""
    fmt, wrong = FORMATS[name], 0
    for seed in SEEDS:
        case = crafted(seed)
        line, at = asked(case), RoundedArithmetic.of(fmt)
        found = computed.run(network_of(case.model).rounded(fmt), line, 40, at, endless().deadline())
        run = Line(case.model, fmt)
        for t in range(1, 41):
            run.step()
            if not run.margin(line.expected(t)) > 0:
                break
        else:
            t = None
        assert found.wrong_at == t, seed
        wrong += t is not None
    assert wrong > 1


def test_a_run_ends_where_a_state_comes_again():
    model = counters.ring(m=5)
    at, net = RoundedArithmetic.of(FORMATS["bfloat16"]), Network.of(model)
    line = OrbitQuestion((), 0, lambda t: (t - 1) % 5, 5)
    found = computed.run(net, line, None, at, endless().deadline())
    assert found.repeats and found.steps < 30
    late = OrbitQuestion((), 0, lambda t: 0 if t == 12 else (t - 1) % 5, 5, 12)
    with mock.patch.object(computed, "Logged", side_effect=AssertionError("a run is logged once it is asked for")):
        wrong = computed.run(net, late, None, at, endless().deadline())
    assert wrong.wrong_at == 12  # settled after 12 tokens
    said = wrong.numbers()
    assert len(said["numbers"]) == 12 and computed.judged(said["logits"], 0) == (wrong.margin, wrong.predicted)
    with mock.patch.object(logged, "MOST_NUMBERS", 12 * len(said["numbers"][0]) - 1):
        assert wrong.numbers() is None


def relu_sum(f, add, push):
    """h' = relu(1 - h) swings, and s' = f s + add is taken from the right class."""
    model = RecurrentModel("rnn", hidden=2, classes=2, activation="relu", dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.cell.weight_hh_l0.copy_(torch.tensor([[-1.0, 0.0], [0.0, f]], dtype=torch.float64))
        model.cell.bias_ih_l0.copy_(torch.tensor([1.0, add], dtype=torch.float64))
        model.readout.weight.copy_(torch.tensor([[2.0, -push], [0.0, 0.0]], dtype=torch.float64))
        model.readout.bias[0] = -1.0
    return model


SWING = Task.of("modular", modulus=2)


def outside(name, draws, accumulate=None):
    """How many sums of products with drawn factors from wide boxes, in drawn orders, are outside the box of the sum."""
    fmt, rng, found = FORMATS[name], random.Random(7), 0
    at, line = RoundedArithmetic.of(fmt, FORMATS.get(accumulate)), object.__new__(Line)
    line.fmt, line.rng, line.wider = fmt, rng, FORMATS.get(accumulate)

    def number():
        return float(nearest(Fraction(rng.choice([0.0, 1.0, rng.gauss(0, 1), rng.gauss(0, 1) * 2.0**-20])), fmt))

    for _ in range(draws):
        k = rng.randint(1, 3)
        W, b = np.array([[number() for _ in range(k)]]), np.array([number()])
        pairs = [sorted((number(), number())) for _ in range(k)]
        low, high = ends(at.rows(W, Ball.between(*np.array(pairs).T), b))
        for at_ends in (True, True, True, False):
            x = [rng.choice(pair) if at_ends else float(nearest(Fraction(rng.uniform(*pair)), fmt)) for pair in pairs]
            total = line.sum([*zip(W[0], x, strict=True), b[0]])
            found += not low[0] <= total <= high[0]
            found += not low[0] <= nearest(Fraction(total), fmt) <= high[0]
    return found


SUMS = [("bfloat16", 150, None), ("bfloat16", 100, "float32"), ("bfloat16", 400, None), ("bfloat16", 800, "float32"),
        ("float32", 400, "float64"), ("float32", 400, None)]  # fmt: skip


@pytest.mark.parametrize(("name", "sums", "accumulate"), first(2, SUMS))
def test_sums_of_wide_boxes_hold_those_of_all_factors_in_all_orders(name, sums, accumulate):
    assert outside(name, sums, accumulate) == 0


def stored_four_times():
    """1 is stored as a product; then a bias, a product and a bias are added: what share of the bound is rounded, and
    whether the box holds it.
    """
    fmt, at = FORMATS["bfloat16"], RoundedArithmetic.of(FORMATS["bfloat16"], FORMATS["float32"])
    small = 2.0**-8 * (1 + 2.0**-7)
    W_x, W_h, b, total = np.array([[1.0, small]]), np.array([[small]]), np.array([small]), Fraction(1)
    for _ in range(4):
        total = Fraction(nearest(total + Fraction(small), fmt))
    on, terms = Roundings(at), nonzeros(W_x, b) + nonzeros(W_h, b)
    off = on.whole(on.linear(W_x, np.ones(2), b, terms), on.linear(W_h, np.ones(1), b, terms))
    low, high = ends(at.rows(np.hstack([W_x, W_h]), Ball.exact(np.ones(3)), b, b))
    return float(total - 1 - 4 * Fraction(small)) / off.error[0], bool(low[0] <= total <= high[0])


def test_a_product_in_a_wider_format_is_stored_before_the_other_and_both_biases_are_added():
    """To 1 four times a little more than half a unit of bfloat16 is added: two roundings do not bound this."""
    share, is_held = stored_four_times()
    assert 0.9 < share <= 1 and is_held
    with mock.patch.object(enclosures, "STORED", 2):
        assert stored_four_times()[0] > 1
    with planted(RoundedArithmetic, "rows", "parts - 2 +", "parts - 4 +"):
        assert not stored_four_times()[1]


def test_factors_of_fewer_bits_have_no_such_sums():
    """In tf32 a weight is rounded as a factor, too, which the ends of such a sum do not count."""
    with pytest.raises(AssertionError, match="one format"):
        RoundedArithmetic.of(FORMATS["tf32"]).rows(np.ones((1, 1)), Ball.exact(np.ones(1)))


def test_bounds_from_the_corners_without_their_rounding_are_found():
    with planted(RoundedArithmetic, "_between_corners", "replace(of, size=size)", "replace(of, size=0 * size)"):
        assert outside("bfloat16", 150) > 0


def test_a_creeping_ring_is_proved_where_only_bounds_from_both_ends_close():
    """What rounding takes from the far end of a box is more than a step adds at its near end."""
    case = crafted(60)
    assert case.family == "ring creeps" and case.oracle() is None
    for name, owner in (("float32", None), ("float32", RoundedArithmetic), ("float64", None)):
        at = RoundedArithmetic.of(FORMATS[name])
        boxes = grid.Boxes(network_of(case.model).rounded(at.stored), asked(case), at)
        if owner is None:
            assert boxes.follow(None, looks(100).deadline()).entered is not None
            continue
        with mock.patch.object(owner, "_between_corners", lambda self, whole, *rest: whole):
            assert boxes.follow(None, looks(100).deadline()).entered is None


FADING = [("bfloat16", 1 - 2.0**-7), ("float32", 1 - 2.0**-20), ("float64", 1 - 2.0**-30), ("float64", 1 - 2.0**-38)]


@pytest.mark.parametrize(("name", "f"), every(4, FADING))
def test_a_sum_that_fades_slowly_is_proved_for_ever_where_its_limit_is_right(name, f):
    """Its limit is add / (1 - f); boxes reach there at once. With a larger push the limit is wrong."""
    add = (1 - f) / 4
    found = certify(Homogeneous(relu_sum(f, add, 1.0), SWING, None), Rounded(FORMATS[name]), Effort(budget=looks(2000)))
    assert found.verdict is Verdict.PROVED and 0 < found.margin <= 1.0
    case = certify(Homogeneous(relu_sum(f, add, 8.0), SWING, None), Rounded(FORMATS[name]), Effort(budget=looks(2000)))
    assert case.verdict is not Verdict.PROVED


@pytest.mark.deep
def test_a_sum_that_stalls_in_the_format_is_proved_and_one_that_does_not_yet_is_refuted_exactly():
    """s + 2^-9 stalls at 1 in bfloat16, as a factor; 513 tokens before, 2^-9 n is exact, and a tie is wrong."""
    fmt = Rounded(FORMATS["bfloat16"])
    right = certify(Homogeneous(relu_sum(1.0, 2.0**-9, 0.5), SWING, None), fmt, Effort(budget=looks(6000)))
    assert right.verdict is Verdict.PROVED
    wrong = certify(Homogeneous(relu_sum(1.0, 2.0**-9, 8.0), SWING, None), fmt, Effort(budget=looks(6000)))
    assert wrong.verdict is Verdict.REFUTED and wrong.counterexample["length"] == 65
    assert wrong.counterexample["is_first"] and wrong.extra["right_to"] == 64


@pytest.mark.parametrize("length", every(2, [None, 200]))
def test_an_infinite_number_times_a_weight_0_is_nan_as_torch_has_it(length):
    """s' = 2 s + 1 overflows after 128 tokens, and the readout has weights 0 for it."""
    model = relu_sum(2.0, 1.0, 0.0).float()
    found = certify(Homogeneous(model, SWING, length), Rounded(FORMATS["float32"]), Effort(budget=looks(2000)))
    assert model(torch.zeros(1, 200, dtype=torch.long)).isnan().any(-1).tolist()[0].index(True) == 127
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 128
    assert found.counterexample["is_first"] and found.extra["right_to"] == 127


def test_gated_decays_are_decided_in_a_format():
    for name in NAMES:
        case = crafted(FAMILIES.index("s4 first"))
        found = certify(Homogeneous(case.model, case.task, None), Rounded(FORMATS[name]), Effort(budget=looks(4000)))
        assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == case.oracle()


def boxed(seed, name):
    """The boxes of a crafted network, and what is known of the line."""
    case, fmt = crafted(seed), FORMATS[name]
    is_gated = isinstance(case.model, GatedModel)
    at = RoundedArithmetic.of(fmt)
    net = gated.network(case.model, at) if is_gated else Network.of(case.model).rounded(fmt)
    boxes = grid.Boxes(net, asked(case), at)
    return boxes, boxes.follow(None, looks(100).deadline())


LIMITS = [(198, "mamba first", "FOLLOWING", 0), (111, "tanh creeps", "AHEAD", (0.0,))]


@pytest.mark.parametrize(("seed", "family", "constant", "less"), first(1, LIMITS))
def test_boxes_are_looked_for_round_limits(seed, family, constant, less):
    """What is read of a slow state reaches as far as that, and a unit passes one fixed point on its way to another."""
    assert crafted(seed).family == family
    boxes, found = boxed(seed, "float32")
    assert found.entered is not None and found.margin > 0
    with mock.patch.object(grid, constant, less):
        assert boxed(seed, "float32")[1].entered is None
    low, high = np.array(boxes.kept["low"]), np.array(boxes.kept["high"])
    tokens = boxes.line.tokens(0, boxes.kept["entry"] + 5000 * boxes.kept["turn"])
    last = orbit(boxes.net, tokens)[boxes.kept["entry"] :: boxes.kept["turn"]]
    assert ((low <= last) & (last <= high)).all()


PLANTED = {
    "a box that is not kept": (grid, "is_within", lambda inner, outer: True),
    "a margin that is never below": (grid.Boxes, "margin", lambda self, state, t: (1.0, math.inf, 0)),
}


@pytest.mark.parametrize("kind", first(1, ["rnn", "gru", "lstm"]))
def test_a_sum_that_overflows_before_its_activation_proves_nothing(kind):
    """One unit beside a right network adds A + A - A - A; in pairs it is inf - inf in float32, and logits are NaN.

    With A a quarter as large every partial sum is a number, and the same network is proved.
    """
    for scale, verdict in ((1.0, Verdict.UNKNOWN), (0.25, Verdict.PROVED)):
        model = RecurrentModel(kind, hidden=4, classes=2, dtype=torch.float64)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
            W, b, A = model.cell.weight_hh_l0, model.cell.bias_ih_l0, scale * 1.5 * 2.0**127
            own = {"rnn": 0, "gru": 8, "lstm": 8}[kind]  # where the candidate's rows start
            if kind == "gru":
                b[4:8] = -40.0  # h' is the candidate
                b[:4] = 40.0
            if kind == "lstm":
                b[:4], b[4:8], b[12:] = 40.0, -40.0, 40.0
            W[own, 0], b[own] = -4.0, 2.0
            b[own + 1 : own + 3] = 30.0
            at = own + 3 if kind == "rnn" else 3
            W[at, 1], W[at, 2], b[at], model.cell.bias_hh_l0[at] = A, -A, A, -A
            model.readout.weight[0, 0] = 1.0
        task = Task.of("modular", modulus=2)
        found = certify(Homogeneous(model, task, None), Rounded(FORMATS["float32"]), Effort(budget=looks(200)))
        assert found.verdict is verdict, (kind, scale)


@pytest.mark.parametrize("name", every(2, PLANTED))
def test_planted_faults_prove_what_is_wrong(name):
    """A sum whose limit is wrong: a fault in the lemma's premises proves it, so that they are what refuses it."""
    owner, attribute, fault = PLANTED[name]
    model, at = relu_sum(1 - 2.0**-20, 2.0**-22, 8.0), RoundedArithmetic.of(FORMATS["float32"])
    line = asked(mock.Mock(model=model, task=SWING))
    boxes = grid.Boxes(Network.of(model), line, at)
    assert boxes.follow(None, looks(400).deadline()).entered is None
    with mock.patch.object(owner, attribute, fault):
        assert boxes.follow(None, looks(400).deadline()).entered is not None


def test_a_kernel_runs_every_line_to_its_length():
    """Vanilla counting ends at the largest number word, and shifted starts are lines of their own."""
    model = holding.counter(N=9)
    found = certify(Homogeneous(model, Task.of("vanilla", vocabulary=9), None), Kernel())
    assert found.verdict is Verdict.PROVED and found.reading == "bit-exact"
    with torch.no_grad():
        model.readout.bias[4] -= 100.0
    found = certify(Homogeneous(model, Task.of("vanilla", vocabulary=9), 8), Kernel())
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 4


@pytest.mark.parametrize("length", [0, 10**9])
def test_a_length_that_is_too_large_is_refused_before_a_line_is_made(length):
    with pytest.raises(BadInput, match=f"length={length}: must be a whole number from 1 to 1000000"):
        Homogeneous(counters.ring(m=5), Task.of("modular", modulus=5), length)


def test_sums_in_a_wider_format_are_refuted_by_the_run_that_keeps_results():
    """The same run in torch's float64, its factors cast to bfloat16, is wrong first at the length that is said."""
    path = Path(__file__).parents[1] / "data" / "recurrent" / "lstm_seed6_stop0.25.safetensors"
    model, task = load(path), Task.of("modular", modulus=10)
    reading = Rounded(FORMATS["bfloat16"], FORMATS["float32"])
    found = certify(Homogeneous(model, task, None), reading, Effort(looks(2000)))
    assert found.verdict is Verdict.REFUTED and found.counterexample["evaluation"] == computed.KEPT
    n, stored = found.counterexample["length"], {x: y.bfloat16().double() for x, y in model.state_dict().items()}
    W_x, W_h, b_x, b_h = (stored[f"cell.{x}_l0"] for x in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h = c = torch.zeros(model.hidden, dtype=torch.float64)
    margins = []
    for t in range(n):
        i, f, g, o = (W_x[:, 0] + W_h @ h.bfloat16().double() + b_x + b_h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        logits = stored["readout.weight"] @ h.bfloat16().double() + stored["readout.bias"]
        margins.append(float(logits[t % 10] - logits[torch.arange(10) != t % 10].max()))
    assert margins[-1] == pytest.approx(found.margin, abs=1e-9) and margins[-1] <= 0 < min(margins[:-1])


def blended(seed, accumulate):
    """Whether a blend of drawn numbers is within its bound, whichever way each result is rounded by one unit round-off.

    What one operation reads rounded, another may read as it is kept.
    """
    rng, u = random.Random(seed), Fraction(FORMATS["bfloat16"].u)
    at = RoundedArithmetic.of(FORMATS["bfloat16"], FORMATS.get(accumulate))
    z, n, h = (Fraction(rng.randint(0, 64), 64) * rng.choice(signs) for signs in ([1], [-1, 1], [-1, 1]))

    def ways(f, *args):
        return {f(*x) * r for x in product(*args) for r in (1 - u, 1 + u)}

    read = ways(lambda x: x, {z}), ways(lambda x: x, {n}), ways(lambda x: x, {h})
    rest = ways(lambda x: 1 - x, {z})
    found = ways(Fraction.__add__, ways(Fraction.__mul__, rest, {n}), ways(Fraction.__mul__, read[0], read[2]))
    apart = ways(Fraction.__sub__, read[2], read[1])
    found |= ways(Fraction.__add__, {n}, ways(Fraction.__mul__, {z}, apart))
    said = Roundings(at).blend(*(Off(Ball.exact(np.array([float(x)])), np.zeros(1)) for x in (z, n, h)))
    exact = (1 - z) * n + z * h
    return all(abs(y - exact) <= Fraction(float(said.error[0] + said.value.rad[0])) for y in found)


@pytest.mark.parametrize("accumulate", [None, "float32"])
def test_a_blend_may_read_a_gate_kept_and_rounded(accumulate):
    assert all(blended(seed, accumulate) for seed in range(40))


@pytest.mark.parametrize("part", ["_reread", "_kept"])
def test_a_blend_that_reads_each_number_once_is_seen(part):
    with mock.patch.object(Roundings, part, lambda self, x: x):
        assert not all(blended(seed, "float32") for seed in range(40))
