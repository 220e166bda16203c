"""Gated decays, rotations and state spaces in a format: certificates, forged ones, drawn evaluations, faults."""

import hashlib
import json
import random
from fractions import Fraction
from unittest import mock

import pytest
import torch
from flint import arb, ctx
from models.certificates import changed as changed_model
from models.certificates import counted, honest, modular
from models.selection import every, first
from oracles.forged import falsehood
from oracles.hulls import Hulls
from test_forgeries import outcome

from constructions.recurrent import diagonal, gated
from constructions.recurrent.linear import LinearModel
from tests.oracles.loose_gates import LooseGates
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import reading_of
from verify.checker import computed_decays, computed_gates, computed_tables, computed_turns, formats, linear, rounded
from verify.checker.computed_strings import ComputedStrings
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.checker.rounded_runs import ReplayedRun
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import turned
from verify.tasks.recurrent.counted import CountedStrings
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.precise import Followed
from verify.tasks.recurrent.selective import Selective

NAMES = ["mamba, float32", "mamba, wrong, float32", "rwkv, p18", "rwkv, held, p18", "rotation, float32"]
NAMES += ["ssm, bfloat16", "decay, wrong, float32"]


def changed(name, **fields):
    weights, text = honest(name)
    return outcome(weights, json.dumps(json.loads(text) | fields))[0]


@pytest.mark.parametrize("name", every(2, NAMES))
def test_certificates_hold_and_margins_that_are_larger_do_not(name):
    weights, text = honest(name)
    c = json.loads(text)
    assert outcome(weights, text)[0] == 0 and falsehood(weights, text) is None
    by = 1.05 if c["margin"] > 0 else 1.01
    assert changed(name, margin=c["margin"] * by + 1e-4 * (c["margin"] > 0)) != 0
    for field, value in (("inputs_covered", "7"), ("length", 3), ("margin", -c["margin"])):
        assert changed(name, **{field: value}) != 0
    precise = c["parameters"] | {"precision": "bfloat16"}
    assert "bfloat16" in name or changed(name, parameters=precise) != 0  # whose roundings are larger
    numbers = bytearray(weights)
    numbers[-1] ^= 0x40
    fitted = c | {"weights_sha256": hashlib.sha256(bytes(numbers)).hexdigest()}
    assert outcome(bytes(numbers), json.dumps(fitted))[0] != 0


@pytest.mark.parametrize("name", ["mamba, wrong, float32", "decay, wrong, float32"])
def test_a_class_below_the_first_is_not_one_that_is_left_open(name):
    """Classes modulo m are said from 1 on; null says that none is predicted in every order."""
    case = json.loads(honest(name)[1])["counterexample"]
    assert changed(name, counterexample=case | {"predicted": 0}) == 1
    assert changed(name, counterexample=case | {"predicted": None}) == 0
    with planted(linear, "wrong_at", "predicted >= first", "True"):
        assert changed(name, counterexample=case | {"predicted": 0}) == 0


@pytest.mark.parametrize("name", ["mamba, wrong, float32", "decay, wrong, float32"])
def test_shorter_lengths_are_not_right_as_a_later_wrong_one_says(name):
    """Length 8 is wrong as well as length 5, and not the first: so nothing shows that lengths up to 6 are right."""
    c = json.loads(honest(name)[1])
    assert c["counterexample"]["length"] == 5
    case = c["counterexample"] | {"length": 8, "input": [0] * 8, "expected": 2, "predicted": None, "is_first": False}
    for right_to in (6, 0):
        assert changed(name, counterexample=case, right_to=right_to, margin=-0.0) == NOT_CHECKABLE
    owner = computed_decays if "mamba" in name else computed_turns
    with planted(owner, "wrong_after", '"evaluation" not in case', "False"):
        assert changed(name, counterexample=case, right_to=6, margin=-0.0) == 0


def of_relu():
    """A state space h' = 1 - 2 h that counts modulo 2, and a certificate with a run of it with ReLU, which does not."""
    model = LinearModel("ssm", *(torch.tensor(x) for x in ([[-2.0]], [1.0], [[1.0], [-1.0]], [0.0, 0.0])))
    weights = bytes_of(model)
    c = json.loads(certify(modular(model, 2, 9), reading_of("bfloat16"), Effort(budget=2)).about(weights).to_json())
    case = {"input": [0, 0], "length": 2, "expected": 2, "predicted": 1, "float64_predicts": 1, "is_first": True}
    run = {"numbers": [[1.0, 1.0], [-1.0, 0.0]], "logits": [0.0, 0.0]}
    c |= {"verdict": "REFUTED", "margin": 0.0, "inputs_covered": "1", "tightest": None, "right_to": 1, "run": run}
    return weights, c | {"counterexample": case | {"evaluation": "one"}}


def test_a_run_of_another_network_refutes_nothing():
    weights, c = of_relu()
    assert outcome(weights, json.dumps(c))[0] == FAILS
    with planted(ReplayedRun, "_step", 'if net.activation == "relu":', 'if net.activation != "tanh":'):
        assert outcome(weights, json.dumps(c))[0] == 0  # 1, then max(0, 1 - 2), a tie


def beyond():
    """An RWKV-like cell whose read state is 2^160, which 2^-126 brings back, and a certificate in float32 about it."""
    numbers = ([[0.0]], [[2.0**60]], [[1.0]], [[2.0**100]], [[2.0**-126], [0.0]], [0.0, 0.0])
    *tables, V, b = map(torch.tensor, numbers)
    weights = bytes_of(gated.GatedModel(gated.RwkvCell(*tables), V, b))
    c = json.loads(honest("rwkv, p18")[1])
    sizes = {"units": 1, "modulus": 2, "length": 1, "dtype": "float32", "precision": "float32"}
    c |= {"parameters": c["parameters"] | sizes, "length": 1, "inputs_covered": "1", "margin": 1.0}
    return weights, json.dumps(c | {"weights_sha256": hashlib.sha256(weights).hexdigest()})


def test_a_read_state_that_overflows_proves_nothing():
    weights, text = beyond()
    assert falsehood(weights, text) and outcome(weights, text)[0] == NOT_CHECKABLE
    with planted(
        computed_gates, "sharp_gaps", "gap_ends(net, fmt, read, h, x, right)", "gaps_of(net, fmt, read, h, x, right)"
    ):
        assert outcome(weights, text)[0] == NOT_CHECKABLE
        with planted(computed_gates, "logit_errors", "rounding(fmt, abs(r) * x, 1)", "pass"):
            assert outcome(weights, text)[0] == 0


def at_the_end(k):
    """An RWKV-like cell with the state k, which 2^-14 brings back, and a true certificate in float16 about it."""
    *tables, V, b = map(torch.tensor, ([[0.0]], [[k]], [[1.0]], [[1.0]], [[2.0**-14], [0.0]], [0.0, 0.0]))
    weights = bytes_of(gated.GatedModel(gated.RwkvCell(*tables), V, b))
    c = json.loads(honest("rwkv, p18")[1])
    sizes = {"units": 1, "modulus": 2, "length": 1, "dtype": "float32", "precision": "float16"}
    c |= {"parameters": c["parameters"] | sizes, "length": 1, "inputs_covered": "1", "margin": 2.0**-3}
    return weights, json.dumps(c | {"weights_sha256": hashlib.sha256(weights).hexdigest()})


def test_what_overflows_in_the_checkers_bounds_alone_is_not_called_false():
    """The largest number of float16, times 1, is itself in every order."""
    assert outcome(*at_the_end(2.0**14))[0] == 0 and outcome(*at_the_end(1.0))[0] == 1
    assert falsehood(*at_the_end(65504.0)) is None and outcome(*at_the_end(65504.0))[0] == NOT_CHECKABLE


# ---- evaluations, drawn


def stored(model):
    return {name: v.detach().double().reshape(-1, v.shape[-1]).tolist() for name, v in model.state_dict().items()}


def with_neurons(kind, d=2, p=3):
    """A model of one token with neurons after its states."""
    a, c = torch.zeros(d, dtype=torch.float64), torch.zeros(1, d, dtype=torch.float64)
    cell = gated.DiagonalCell(a, c, a.clone()) if kind == "s4" else gated.decays(kind=kind, m=3, s=d, N=4).cell
    V, W = torch.zeros(3, p, dtype=torch.float64), torch.zeros(p, d, dtype=torch.float64)
    return gated.GatedModel(cell, V, V[:, 0].clone(), gated.PositionWise(W, V[:1].clone()))


def network(seed, has_neurons=False):
    """A model of one token, which forgets slowly, or turns."""
    g, kind = torch.Generator().manual_seed(seed), ("mamba", "rwkv", "s4")[seed % 3]
    model = diagonal.rotation(m=3) if kind == "s4" else gated.decays(kind=kind, m=3, s=2, N=4)
    model = with_neurons(kind) if has_neurons else model
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn(value.shape, generator=g, dtype=torch.float64))
            if name in ("cell.w", "cell.delta"):
                value.sub_(4)
    return model, kind


class FlushedGates(LooseGates):
    """Each operation may also read a subnormal number as zero, whatever others read."""

    def near(self, x):
        found = super().near(x)
        return Fraction(0) if abs(found) < Fraction(self.fmt.tiny) and self.draw.random() < 0.5 else found


class OneSided(random.Random):
    """Functions are off by as much as they may, to one side; results are rounded, half of them kept first."""

    def __init__(self, side):
        super().__init__(side)
        self.side = side

    def choice(self, listed):
        return listed[min(self.side, len(listed) - 1)]

    def randrange(self, n):
        return n - 3


def _is_in(x, low, high):
    x = arb(x.numerator) / x.denominator
    return not x < low and not x > high


def _are_near(x, balls):
    return all(_is_in(y, v - e, v + e) for y, v, e in zip(x, balls.value, balls.error, strict=True))


def inside(seed, name, steps=24, *, has_neurons=False):
    """Whether drawn evaluations stay within what the checker says of states and of differences of logits."""
    model, kind = network(seed, has_neurons)
    said = {"neurons": 3} if has_neurons else {}
    said |= {
        "model": kind,
        "units": 1 if kind == "s4" and not has_neurons else 2,
        "layers": 1,
        "dtype": "float64",
        "precision": name,
    }
    draw = random.Random(seed)
    with ctx.workprec(rounded.BITS):
        fmt = formats.named(said)
        net = computed_tables.StoredCell.of(bytes_of(model), said, fmt)
        draws = [draw, draw, OneSided(0), OneSided(4)]
        runs = [FlushedGates(stored(model), kind, FORMATS[name], x) for x in draws]
        follow = (computed_gates.turning if "omega" in net.rows else computed_gates.fading)(net, fmt)
        states, h = [run.start() for run in runs], rounded.ComputedBalls([arb(0)] * 2, [arb(0)] * 2)
        for _ in range(steps):
            states, (gaps, follow) = [run.step(x) for run, x in zip(runs, states, strict=True)], follow(0)
            found = gaps(0)
            if "omega" not in net.rows:
                keep, add, _ = computed_gates.gates(net, fmt)
                drawn = [(x, of[0]) for run in runs for x, of in zip(run.gates(0), (keep, add), strict=True)]
                if not all(_are_near(x, balls) for x, balls in drawn):
                    return False
                h = computed_gates.sharp_after(fmt, keep[0], add[0], h)
                if not all(_are_near(x, h) for x in states):
                    return False
            if not all(_are_in(run.logits(x), found, 0) for run, x in zip(runs, states, strict=True)):
                return False
    return True


def _are_in(logits, found, right):
    return all(_is_in(logits[right] - logits[j], low, high) for j, (low, high) in found.items())


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float16", "float32"]))
def test_drawn_evaluations_stay_within_what_the_checker_says(name):
    assert all(inside(seed, name) for seed in range(3 if name == "bfloat16" else 30))


FAULTS = [
    ("after", "abs(f) * e", "0"),
    ("logit_gaps", "off[right] + off[j]", "arb(0)"),
    ("sharp_after", "on.times(_ends(keep), _ends(h))", "_ends(h)"),
    ("gap_ends", "arb(low - b)", "arb(low - a)"),
    ("gap_ends", "on.times(_ends(read), _ends(h))", "_ends(h)"),
    ("_ends", "exact((v + e).upper())", "exact(v)"),
    ("after", "d * x + g + rounding(fmt, k * x + a, terms)", "0"),
    ("gates", "fmt.of_values(y)", "0"),
    ("turning", "own[0] ** 2 + own[1] ** 2", "zero"),
    ("turning", "h[-1].error[0] + ", ""),
]


@pytest.mark.parametrize(("function", "right", "wrong"), first(2, FAULTS))
def test_a_fault_in_a_bound_is_seen_by_drawn_evaluations(function, right, wrong):
    with planted(computed_gates, function, right, wrong):
        assert not all(inside(seed, "bfloat16") for seed in range(60))


def all_inside(seed, name, steps=5):
    """Whether the ends of all evaluations at once are within what the checker says of gates and states."""
    draw, fmt, kind = random.Random(seed), formats.named({"precision": name}), ("rwkv", "mamba", "s4")[seed % 3]

    def numbers(*powers):
        return [[fmt.nearest(draw.choice((1, -1)) * draw.uniform(1, 2) * 2.0 ** draw.choice(powers)) for _ in "ab"]]

    small, any_size = (-3, -2, -1, 0), (-1, 0, 1, fmt.least // 2, fmt.least + 1)
    names = {"rwkv": ("w", "k", "v", "r"), "mamba": ("A", "delta", "B", "C"), "s4": ("a", "u", "c")}[kind]
    rows = {x: numbers(*(small if x in ("w", "A", "delta", "a") else any_size)) for x in names}
    on, net = Hulls(fmt.p, fmt.least), computed_tables.StoredCell(kind, rows, [], [])
    ends, (keep, add, _) = on.gates(rows, kind), computed_gates.gates(net, fmt)
    state, h = [(Fraction(0), Fraction(0))] * 2, computed_tables.as_stored([0.0, 0.0])
    found = [*zip(ends, (keep[0], add[0]), strict=True)]
    for _ in range(steps):
        state, h = on.step(*ends, state), computed_gates.sharp_after(fmt, keep[0], add[0], h)
        found.append((state, h))
    return all(_are_near(side, balls) for x, balls in found for side in zip(*x, strict=True))


@pytest.mark.parametrize("name", first(2, ["p4", "float16", "bfloat16", "float32"]))
def test_all_evaluations_at_once_stay_within_what_the_checker_says(name):
    with ctx.workprec(rounded.BITS):
        assert all(all_inside(seed, name) for seed in range(12))


@pytest.mark.parametrize(
    ("function", "right", "wrong"),
    [
        ("rounding", "fmt.once", "fmt.u**2 / 4"),
        ("after", "abs(f) * e + ", ""),
        ("gates", "fmt.of_values(y)", "fmt.of_values(y) / 2"),
    ],
)
def test_a_fault_in_a_bound_is_seen_by_all_evaluations_at_once(function, right, wrong):
    with ctx.workprec(rounded.BITS), planted(computed_gates, function, right, wrong):
        assert not all(all_inside(seed, "bfloat16") for seed in range(12))


def small_inside(seed):
    """Whether a drawn step and drawn logits of numbers about the smallest normal one are within what is said."""
    model, draw, fmt = network(1)[0], random.Random(seed), formats.named({"precision": "float16"})
    tensors = stored(model) | {"readout.bias": [[0.0] * 3], "readout.weight": [[8.0, 8.0], [8.0, -8.0], [0.0, 0.0]]}
    net = computed_tables.StoredCell("rwkv", {}, tensors["readout.weight"], [0.0] * 3)
    run = FlushedGates(tensors | {"cell.r": [[1.0, 0.5]]}, "rwkv", FORMATS["float16"], draw)
    tiny = Fraction(FORMATS["float16"].tiny)
    f, h, a = ([Fraction(draw.randrange(4, 16), 8) for _ in range(2)] for _ in range(3))
    h, a = [tiny * max(x, 1) for x in h], [tiny * max(x, 1) * draw.choice([0, 0, 1, -1]) for x in a]
    run.gates = lambda token: (f, a)
    keep, state, add = (computed_tables.as_stored([float(x) for x in row]) for row in (f, h, a))
    found = computed_gates.gaps_of(net, fmt, computed_tables.as_stored([1.0, 0.5]), state, 0, 0)
    return _are_near(run.step(h), computed_gates.sharp_after(fmt, keep, add, state)) and _are_in(
        run.logits(h), found, 0
    )


def test_what_is_flushed_stays_within_what_the_checker_says():
    with ctx.workprec(rounded.BITS):
        assert all(map(small_inside, range(80)))


SMALL_FAULTS = [
    ("rounding", "2 * terms * fmt.tiny", "0"),
    ("rounding", "size == 0", "size < 1"),
    ("logit_errors", "+ flushed", ""),
]


@pytest.mark.parametrize(("function", "right", "wrong"), SMALL_FAULTS)
def test_a_fault_about_what_is_flushed_is_seen(function, right, wrong):
    with ctx.workprec(rounded.BITS), planted(computed_gates, function, right, wrong):
        assert not all(map(small_inside, range(80)))


def of_functions():
    """Whether every stored result is as near as is said, by values of three bits and more."""
    fmt, places = formats.named({"precision": "p3"}), [Fraction(k, 8) for k in range(-16, 17)]
    for y in (Fraction(n, 32) for n in range(32, 128)):
        unit = Fraction(1, 4) if y < 2 else Fraction(1, 2)
        off = fmt.of_values(arb(y.numerator) / y.denominator)
        if not all(off >= abs(float(Fraction(fmt.nearest(float(y + unit * place))) - y)) for place in places):
            return False
    return True


def test_a_stored_function_is_as_near_as_is_said():
    assert of_functions()
    with planted(formats.BinaryFormat, "of_values", "self.unit(size + two)", "self.unit(size)"):
        assert not of_functions()  # it may be rounded beyond the next power of two


def test_a_product_with_zero_is_zero_and_no_other_is():
    fault = ("a * b == 0", "a * b < 1")
    with planted(computed_gates, "gates", *fault):
        assert not all(inside(seed, "bfloat16") for seed in range(3))


def test_drawn_neurons_stay_within_what_the_checker_says():
    assert all(inside(seed, "bfloat16", has_neurons=True) for seed in range(4))


NEURON_FAULTS = [
    ("computed_sums", "rounding(fmt, size, len(own) + bool(c) or 1)", "0"),
    ("computed_sums", "w * e", "0"),
    ("neuron_sums", "abs(r) * e + rounding(fmt, abs(r) * size, 1)", "arb(0)"),
    ("neuron_gaps", "gap - off[right] - off[j], gap + off[right] + off[j]", "gap, gap"),
]


@pytest.mark.parametrize(("function", "right", "wrong"), first(1, NEURON_FAULTS))
def test_a_fault_in_a_bound_of_neurons_is_seen_by_drawn_evaluations(function, right, wrong):
    with planted(computed_gates, function, right, wrong):
        assert not all(inside(seed, "bfloat16", has_neurons=True) for seed in range(60))


def strings_inside(seed, name, length):
    """Whether drawn evaluations of drawn strings are within the ends of their counts, and so are their answers."""
    model, draw = gated.counters(kind=("mamba", "rwkv")[seed % 2], types=2, max_count=2), random.Random(seed)
    said = {"model": model.kind, "units": 2, "layers": 1, "dtype": "float64", "precision": name}
    with ctx.workprec(rounded.BITS):
        net = computed_tables.StoredCell.of(bytes_of(model), said, formats.named(said))
        on = ComputedStrings(net, formats.named(said), said | {"task": "selective", "types": 2, "max_count": 2})
        judged = {t: on._judged(t, length) for t in (0, 1)}
        for _ in range(60):
            run, seen = LooseGates(stored(model), model.kind, FORMATS[name], draw), [0, 0]
            h = run.start()
            for token in draw.choices((0, 1), k=length):
                h, seen[token] = run.step(h, token), seen[token] + 1
                ends = judged[token].get(seen[token], [])
                if not all(_is_in(x, *of) for x, of in zip(h, ends, strict=seen[token] <= 2)):
                    return False
                if ends and not _are_in(run.logits(h, token), on._gaps(token, ends, 0), 0):
                    return False
    return True


def test_strings_stay_within_the_ends_of_their_counts():
    assert all(strings_inside(seed, "bfloat16", 6) for seed in range(2))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self._step(other, ends)", "ends"),
        ("judged, n + 1, counted", "judged, n + 1, ends"),
        ("(True, False)", "(False, True)"),
    ],
)
def test_a_fault_about_strings_is_seen(right, wrong):
    with planted(ComputedStrings, "_judged", right, wrong):
        assert not all(strings_inside(seed, "bfloat16", 6) for seed in range(4))


def test_a_margin_of_strings_is_asked():
    margin = json.loads(honest("rwkv, held, p18")[1])["margin"] * 1.05
    assert changed("rwkv, held, p18", margin=margin) != 0
    with planted(ComputedStrings, "prove", "positive_margin(c)", "arb(0)"):
        assert changed("rwkv, held, p18", margin=margin) == 0


def test_strings_that_are_right_are_not_right_modulo_a_number():
    """The class of a count is another one modulo m, even with as many classes."""
    said = json.loads(honest("rwkv, held, p18")[1])["parameters"] | {"task": "selective-modular", "modulus": 3}
    assert changed("rwkv, held, p18", parameters=said) == 1
    with planted(ComputedStrings, "prove", "self.due.of(n) or 0", "n"):
        assert changed("rwkv, held, p18", parameters=said) == 0


def test_strings_modulo_a_number_hold():
    model = gated.decays(kind="rwkv", m=2, s=3, N=4, types=2)
    problem = Selective(model, Task.of("selective-modular", types=2, max_count=4, modulus=2), 5)
    weights, found = bytes_of(model), certify(problem, reading_of("float32"), Effort(budget=5))
    text = found.about(weights).to_json()
    assert json.loads(text)["verdict"] == "PROVED" and outcome(weights, text)[0] == 0


def test_a_margin_that_does_not_show_is_not_called_wrong():
    """Of a margin as certified, one a little larger, and one that no order has."""
    model = gated.counters(kind="rwkv", types=2, max_count=2)
    weights = bytes_of(model)
    c = json.loads(certify(counted(model, 2, 3), reading_of("float16"), Effort(budget=5)).about(weights).to_json())
    answers = [outcome(weights, json.dumps(c | {"margin": by * c["margin"]}))[0] for by in (1.0, 1.05, 1.2)]
    assert c["verdict"] == "PROVED" and answers == [0, NOT_CHECKABLE, 1]


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_counters_hold_in_float16(kind):
    model = gated.counters(kind=kind, types=2, max_count=2)
    found = certify(counted(model, 2, 9), reading_of("float16"), Effort(budget=5))
    weights = bytes_of(model)
    assert found.verdict.value == "PROVED" and outcome(weights, found.about(weights).to_json())[0] == 0


@pytest.mark.parametrize("name", ["ssm, bfloat16", "rotation, float32"])
def test_neurons_are_said_of_cells_that_may_have_them_alone(name):
    assert changed(name, parameters=json.loads(honest(name)[1])["parameters"] | {"neurons": 5}) == 1


# ---- faults in the prover


def weak(kind):
    """Counters that are wrong at once."""
    return changed_model(gated.counters(kind=kind, types=2, max_count=2), "readout.bias", 1, 3.0)


ABSOLUTE = (Followed, "take", "    if low > 0:", "    low = abs(low)\n    if low > 0:")
OF_PROVER = {  # each takes the size of a margin for the margin, or another angle
    "mamba": (lambda: modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3, 9), ABSOLUTE),
    "decay": (lambda: modular(diagonal.decays(m=3, s=2, N=4), 3, 9), ABSOLUTE),
    "strings": (lambda: counted(weak("rwkv"), 2, 9),
                (CountedStrings, "_margins", "low[rows, right] =", "low = np.abs(low); low[rows, right] =")),
    "rotation": (lambda: modular(changed_model(diagonal.rotation(m=3), "cell.omega", 0, 2.0**-6), 3, 200),
                 (turned, "_angle", 'rounded(stored(model)["cell.omega"][:1], fmt)[0]', "2 * np.pi / 3")),
}  # fmt: skip


@pytest.mark.parametrize("name", first(1, OF_PROVER))
def test_what_a_faulty_prover_proves_is_refused(name):
    made, fault = OF_PROVER[name]
    problem = made()
    right = certify(problem, reading_of("float32"), Effort(budget=5)).verdict.value
    with planted(*fault), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        found = certify(problem, reading_of("float32"), Effort(budget=5))
    weights = bytes_of(problem.model)
    text = found.about(weights).to_json()
    assert found.verdict.value == "PROVED" and (right == "REFUTED" or falsehood(weights, text))
    assert outcome(weights, text)[0] in (1, NOT_CHECKABLE)
