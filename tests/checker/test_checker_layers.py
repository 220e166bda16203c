"""Modules of several heads, with neurons and norms behind the attention, by cells: nothing holds that is not so."""

import json
import random
from functools import cache
from unittest import mock

import pytest
import torch
from flint import arb
from models.one_layer import Nano, Plain
from models.saved_modules import of_other_weights, outcome, saved
from models.selection import first
from oracles.graph_runs import falsehood
from test_checker_cells import attempt, counted, drawn, enumerated
from torch import nn

from tests.planted import planted
from verify.checker import cells, lines, module, relaxed, stages, whole_stages
from verify.checker.lines import SMOOTH, UNIT, K, NoBound
from verify.checker.reading import NOT_CHECKABLE
from verify.engine import margins
from verify.engine.guard import Guard
from verify.frame import decide
from verify.module import Task, largest, smallest, tokens
from verify.module import program as program_of

FEW = 10  # inputs that are followed one by one
KINDS = {
    "heads": {"heads": 2},
    "relu": {"heads": 2, "hidden": 8},
    "one head, relu": {"hidden": 8},
    "gelu": {"heads": 2, "hidden": 8, "act": "gelu"},
    "gelu, by tanh": {"heads": 3, "hidden": 8, "act": "gelu_tanh"},
    "silu, gated": {"heads": 2, "hidden": 8, "act": "silu", "gated": True},
    "tanh": {"heads": 2, "hidden": 8, "act": "tanh"},
    "sigmoid": {"heads": 2, "hidden": 8, "act": "sigmoid"},
    "squares": {"heads": 2, "hidden": 8, "act": "square"},
    "layer norm": {"heads": 2, "hidden": 8, "norm": "layer"},
    "rms norm": {"heads": 2, "hidden": 8, "norm": "rms", "act": "silu"},
    "rms norm, written": {"heads": 2, "norm": "written_rms"},
    "norm, written": {"heads": 2, "hidden": 8, "norm": "written_norm"},
    "deviation": {"heads": 2, "norm": "deviation"},
}


@pytest.fixture(autouse=True)
def few():
    """Small domains are decided as large ones are."""
    with mock.patch.object(module, "MOST_INPUTS", FEW), mock.patch.object(program_of, "MOST_INPUTS", FEW):
        yield


def fitted(steps, V=5, **options):
    torch.manual_seed(0)
    model = Plain(V, 3, **{"d": 12, **options})
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        rows = torch.randint(0, V, (256, 3))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(rows), rows.amax(1)).backward()
        optimiser.step()
    return model


TRAINED = {
    "heads and neurons": (150, {"hidden": 8}),
    "half trained": (30, {"hidden": 8}),
    "norms": (150, {"hidden": 8, "norm": "layer", "act": "gelu"}),
}


@cache
def kept(name):
    steps, options = TRAINED[name]
    return saved(fitted(steps, **options), Task(tokens([5] * 3), largest))


@pytest.mark.deep
@pytest.mark.parametrize("name", TRAINED)
def test_what_the_prover_says_holds(name):
    weights, text = kept(name)
    said = json.loads(text)
    assert said["verdict"] == ("REFUTED" if name == "half trained" else "PROVED") and falsehood(weights, text) is None
    assert outcome(weights, text) == (0, said["verdict"])


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 5) for i in range(1, 31, 5))]), ids=str)
@pytest.mark.parametrize("name", first(1, KINDS))
def test_counts_are_those_of_enumeration(name, seeds):
    for seed in seeds:
        rule = (largest, smallest)[seed % 2]
        model = drawn(seed, V=3, size=(1.0, 0.3, 2.0)[seed % 3], **KINDS[name])
        found = counted(saved(model, Task(tokens([3] * 3), rule)))
        right = enumerated(model, 3, 3, rule)
        assert found.right + len(found.open) >= right >= found.right, seed
        assert found.right + found.wrong + len(found.open) == 27 and len(found.open) <= 2, seed


def test_cells_of_tokens_with_little_weight_are_decided():
    """Scores so far apart that what is left on a cell is below 2^-270 of the largest weight."""
    files_ = saved(drawn(17, V=3, size=2.0, heads=2), Task(tokens([3] * 3), smallest))
    right = enumerated(drawn(17, V=3, size=2.0, heads=2), 3, 3, smallest)
    assert counted(files_) == (right, 27 - right, [])
    with planted(cells, "_by_own_token", "2 * max(", "0 * max("):
        assert counted(files_).open


@pytest.mark.deep
def test_a_block_as_nanogpt_writes_it_is_counted_right():
    torch.manual_seed(1)
    model = Nano(3, 3)
    right = enumerated(model, 3, 3, largest)
    assert counted(saved(model, Task(tokens([3] * 3), largest))) == (right, 27 - right, [])


SMALL = {
    "relu": {"hidden": 4},
    "layer norm, gelu": {"hidden": 4, "norm": "layer", "act": "gelu"},
    "rms norm, gated": {"hidden": 4, "norm": "rms", "act": "silu", "gated": True},
}


@cache
def small(name):
    return saved(fitted(100, V=3, d=4, **SMALL[name]), Task(tokens([3] * 3), largest))


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 29) for i in range(1, 117, 29))]), ids=str)
@pytest.mark.parametrize("name", first(1, SMALL))
def test_a_forged_proof_of_other_weights_holds_only_where_it_is_true(name, seeds):
    """Three margins for each: 1,053 forgeries in all."""
    weights, text = small(name)
    for moved, forged, drawn_by in of_other_weights(weights, text, name, seeds):
        code, answer = outcome(moved, forged)
        assert code or falsehood(moved, forged) is None, (drawn_by, answer)


@pytest.mark.deep
def test_a_fault_in_the_prover_is_found():
    """The least rival for the largest: a proof of a model that is wrong, its runs beside left out."""
    right = "put(-1, index, -math.inf).amax(-1)"
    with (
        planted(margins, "own_and_rival", right, "put(-1, index, math.inf).amin(-1)"),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
        mock.patch.object(Guard, "check", lambda *_: None),
    ):
        weights, text = saved(fitted(30, hidden=8), Task(tokens([5] * 3), largest))
    assert json.loads(text)["verdict"] == "PROVED" and falsehood(weights, text)
    assert outcome(weights, text)[0] in (1, NOT_CHECKABLE)


class Cancelling(nn.Module):
    """A coefficient that 384 bits do not tell from 0, of a neuron that decides the largest token."""

    def __init__(self, B=1e80 + 1e64):
        super().__init__()
        self.E, self.up = nn.Embedding(3, 2), nn.Linear(2, 1)
        self.wide, self.U = nn.Linear(1, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.double()
        with torch.no_grad():
            self.E.weight.copy_(torch.tensor([[0.0, 1], [1, 0], [1, 1]]))
            self.up.weight.fill_(1.0)
            self.up.bias.fill_(5.0)
            self.wide.weight.copy_(torch.tensor([[B], [1.0], [B]], dtype=torch.double))
            for i, row in enumerate(self.U.weight):
                row.copy_(torch.tensor([B, 2.0 * i, -B], dtype=torch.double))

    def forward(self, t):
        x = self.E(t)
        a = nn.functional.scaled_dot_product_attention(x[:, -1:], x, x)[:, 0]
        return self.U(self.wide(torch.relu(self.up(a)))) + a[:, [0, 0, 0]] + torch.tensor([1.0, 0, 0])


@pytest.mark.deep
def test_what_is_not_told_from_zero_is_no_zero():
    weights, text = saved(Cancelling(), Task(tokens([3] * 3), largest))
    assert isinstance(attempt((weights, text), 0.0), str)


EXACT = {"relu": lambda x: max(x, arb(0)), "square": lambda x: x * x, "product": lambda x, y: x * y}


def lines_hold(name, draw):
    """Whether a function is between its lines and its ends, at drawn points between drawn ends; None without lines."""
    f = EXACT[name] if name in EXACT else SMOOTH[name][0]
    shift, width = draw.choice((-3, 0, 2, 5)), draw.choice((0.001, 0.5, 3, 20))
    ends = [
        sorted(int((shift + draw.uniform(-1, 1) * width) * UNIT) for _ in range(2))
        for _ in range(1 + (name == "product"))
    ]
    try:
        found = lines.lines(name, *(x for pair in ends for x in pair))
    except NoBound:
        return None
    unit = arb(2) ** -K
    for t in (0, 1, *(draw.random() for _ in range(6))):
        at = [arb(low + int(t * (high - low))) * unit for low, high in ends]
        y = f(*at)
        below, above = (
            sum((s * unit * x for s, x in zip(slopes, at, strict=True)), added * unit)
            for slopes, added in zip(found.slopes, found.added, strict=True)
        )
        if below > y or above < y or found.results[0] * unit > y or found.results[1] * unit < y:
            return False
    return True


@pytest.mark.parametrize("name", [*EXACT, *SMOOTH])
def test_lines_are_below_and_above_their_function(name):
    draw = random.Random(name)
    found = [lines_hold(name, draw) for _ in range(40)]
    assert False not in found and found.count(True) >= 10


LINE_FAULTS = [
    ("relu", "relu", "max(-(chord * low >> K), high - (chord * high >> K))", "0"),
    ("relu", "relu", "UNIT if high > -low else 0,", "2 * UNIT if high > -low else -UNIT,"),
    ("square", "square", "-((low + high) ** 2) // 4 >> K", "-(low * high >> K)"),
    ("square", "square", "0 if low <= 0 <= high else min(ends) >> K", "min(ends) >> K"),
    ("product", "product", "-(a * b + error) >> K", "-(a * b - error) >> K"),
    ("gelu", "wide", "(-3 * UNIT // 8, above)", "(0, above)"),
    ("silu", "_on_piece", "(slope_of(piece) - p) * (piece - middle)", "0"),
    ("exp", "smooth", "value + tangent", "value + 1 + tangent"),
    ("rsqrt", "smooth", "max(-_floor(-x) for x in over)", "min(-_floor(-x) for x in over)"),
]


@pytest.mark.parametrize("name, function, right, wrong", LINE_FAULTS)
def test_faults_in_lines_show(name, function, right, wrong):
    with planted(lines, function, right, wrong):
        draw = random.Random(name)
        assert False in [lines_hold(name, draw) for _ in range(60)]


FAULTS = [  # each in what decides cells, with the kinds whose counts it changes
    (stages, "centred", "minus(x, mean(x, [-1], True))", "x", "layer norm"),
    (stages.StagesAfterAttention, "_normed", "ADDED(square.constant, eps)", "ADDED(eps, 3.0)", "layer norm"),
    (stages.StagesAfterAttention, "_normed", "scaled(y.constant, weight, *bias or [None])", "y.constant", "layer norm"),
    (stages.StagesAfterAttention, "_followed", 'other if base == "mul" else self.stage("reciprocal", other)', "other",
     "norm, written"),
    (stages.StagesAfterAttention, "needed", "not row[e].is_zero()", "not row[e].is_zero() and r < 3", "relu"),
    (whole_stages, "_with_constants", "near(own[e])", "0 * near(own[e])", "relu"),
    (whole_stages.RelaxedLayer, "_coefficients", "near(rows[s][e])", "near(-rows[s][e])", "heads"),
    (relaxed.RelaxedCell, "_least_quotient", "return m, rest", "return m, numbers", "heads"),
    (relaxed.RelaxedCell, "_by_heads", "found[f] += m", "found[f] -= m", "heads"),
    (relaxed.RelaxedCell, "_through", "row[0] += sum", "row[0] += 0 * sum", "tanh"),
    (relaxed.RelaxedCell, "_through", "x + (int(y) >> K)", "x - (int(y) >> K)", "relu"),
    (relaxed.RelaxedCell, "_by_heads", "[row[0] for row in rows]", "[0 * row[0] for row in rows]", "heads"),
    (relaxed.RelaxedCell, "_gaps", "sign * (x - y)", "sign * (y - x)", "heads"),
    (relaxed.RelaxedCell, "is_behind", "-1))[0] >= 4", "1))[0] <= 4", "heads"),
    (relaxed.RelaxedCell, "_least", "[*map(min, parts)]", "[*map(max, parts)]", "heads"),
    (cells, "_weights", "(x - top).exp()", "(top - x).exp()", "heads"),
]  # fmt: skip


def tallies(files_):
    """What cells say of models, with three margins."""
    return [attempt(each, margin) for each in files_ for margin in (0.0, 0.3, 1.0)]


@cache
def some(name):
    """A few drawn models of a kind, saved, with what cells say of them."""
    options = {"V": 3, **KINDS[name]}
    files_ = [saved(drawn(seed, size=0.4, **options), Task(tokens([3] * 3), largest)) for seed in range(4)]
    return files_, tallies(files_)


@pytest.mark.deep
@pytest.mark.parametrize("owner, name, right, wrong, kind", FAULTS)
def test_faults_in_the_checker_show_in_counts(owner, name, right, wrong, kind):
    files_, due = some(kind)
    with planted(owner, name, right, wrong):
        assert tallies(files_) != due
