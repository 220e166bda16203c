"""Modules of one attention layer by cells: what is true is accepted, counts are those of enumeration, nothing else."""

import itertools
import json
from functools import cache
from unittest import mock

import pytest
import torch
from models.one_layer import Plain
from models.saved_modules import as_proof, of_other_weights, outcome, saved
from models.selection import every, first
from oracles.graph_runs import falsehood
from torch import nn

from constructions.largest import steep
from tests.planted import planted
from verify.checker import cells, halving, module
from verify.checker.graphs import BYTES
from verify.checker.one_head import OneHeadCell, OneHeadTables
from verify.checker.questions import Statement
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_tiles
from verify.engine import margins
from verify.engine.guard import Guard
from verify.frame import decide
from verify.module import Task, largest, smallest, tokens
from verify.module import program as program_of

FEW = 10  # inputs that are followed one by one


@pytest.fixture(autouse=True)
def few():
    """Small domains are decided as large ones are."""
    with mock.patch.object(module, "MOST_INPUTS", FEW), mock.patch.object(program_of, "MOST_INPUTS", FEW):
        yield


def drawn(seed, V=4, L=3, size=1.0, **options):
    torch.manual_seed(seed)
    model = Plain(V, L, d=6, **{"heads": 1, "hidden": 0, **options})
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn_like(W) * size)
    return model


def trained(V, L, steps, seed=0):
    torch.manual_seed(seed)
    model = Plain(V, L, d=16, heads=1, hidden=0)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        rows = torch.randint(0, V, (256, L))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(rows), rows.amax(1)).backward()
        optimiser.step()
    return model


def mutated(model):
    with torch.no_grad():
        for i, W in enumerate(model.parameters()):
            W[0] += 1.5 * (i % 3 - 1)
    return model


MODELS = {
    "built": lambda: (steep(V=8, n=3), Task(tokens([8] * 3), largest)),
    "built, subsets": lambda: (steep(V=6, n=3), Task(tokens([[0, 2, 5], 6, [1, 4]]), largest)),
    "trained": lambda: (trained(5, 3, 150), Task(tokens([5] * 3), largest)),
    "half trained": lambda: (trained(5, 3, 25), Task(tokens([5] * 3), largest)),
    "mutated": lambda: (mutated(trained(4, 3, 60)), Task(tokens([4] * 3), largest)),
    "smallest": lambda: (drawn(1), Task(tokens([4] * 3), smallest)),
    "layer norm before": lambda: (LayerNormed(4), Task(tokens([4] * 3), largest)),
}


class LayerNormed(nn.Module):
    """A norm of each token before the attention, written out, with a causal mask; all positions, one answers."""

    def __init__(self, V, d=6):
        super().__init__()
        torch.manual_seed(2)
        self.E, self.P, self.norm = nn.Embedding(V, d), nn.Embedding(3, d), nn.LayerNorm(d)
        self.qkv, self.o, self.U = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, V)

    def forward(self, t):
        x = self.E(t) + self.P.weight
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(1), -torch.inf)
        return self.U(x - 2 * self.o(scores.softmax(-1) @ v))


@cache
def kept(name):
    return saved(*MODELS[name]())


@pytest.mark.parametrize("name", every(4, MODELS))
def test_what_the_prover_says_holds(name):
    weights, text = kept(name)
    said = json.loads(text)
    due = {"built": "PROVED", "built, subsets": "PROVED", "trained": "PROVED"}.get(name, "REFUTED")
    assert said["verdict"] == due and (name.startswith("built") or falsehood(weights, text) is None)
    assert outcome(weights, text) == (0, due)
    assert "sets" in said["program"]["inputs"][0] and "rule" in said["program"]["answers"]


def counted(files_, margin=0.0):
    weights, text = files_
    tensors, _ = read_tiles(weights, BYTES)
    return cells.count(Statement(json.loads(text)["program"], tensors), margin)


def enumerated(model, V, L, rule):
    rows = torch.tensor([*itertools.product(range(V), repeat=L)])
    with torch.no_grad():
        return int((model.double()(rows).argmax(1) == rule(rows)).sum())


@pytest.mark.parametrize("seeds", first(1, [range(2), *(range(i, i + 20) for i in range(2, 302, 20))]), ids=str)
def test_counts_are_those_of_enumeration(seeds):
    for seed in seeds:
        model, rule = drawn(seed, size=(0.3, 1.0, 3.0)[seed % 3]), (largest, smallest)[seed % 2]
        weights, text = saved(model, Task(tokens([4] * 3), rule))
        found = counted((weights, text))
        right = enumerated(model, 4, 3, rule)
        assert found == (right, 64 - right, []), seed


AFTER = {
    "relu": lambda y, x: torch.relu(y),
    "self": lambda y, x: y * y,
    "token": lambda y, x: y * x,
    "inverse": lambda y, x: 1 / (2 + y),
    "added": lambda y, x: y + 3.0,
    "left": lambda y, x: 2.0 - y,
    "twice": lambda y, x: y + y,
    "scaled": lambda y, x: y / 2,
    "alpha": lambda y, x: torch.add(x, y, alpha=2),
}


TABLES = {  # that tokens choose rows of, but no rows of floats
    "whole": lambda V, d: torch.arange(V * d).view(V, d) % 5 - 2,
    "line": lambda V, d: torch.arange(V) / 4,
    "boxes": lambda V, d: (torch.arange(V * d) % 3 / 4).view(V, 2, 2),
}


class Odd(nn.Module):
    """A layer with something that is not an affine map of one attention on tokens by themselves."""

    def __init__(self, what, V=4, d=4):
        super().__init__()
        torch.manual_seed(3)
        self.what, self.E, self.P = what, nn.Embedding(V, d), nn.Embedding(3, d)
        self.q, self.k, self.v, self.U = (nn.Linear(d, n) for n in (d, d, d, V))
        if what in TABLES:
            self.register_buffer("table", TABLES[what](V, d))

    def forward(self, t):
        what = self.what
        x = self.E((t * 3) % 4 if what == "tokens" else t.flip(1) if what == "flip" else t) + self.P.weight
        x = x + self.table[t].view(len(t), 3, -1) if what in TABLES else x
        x = x.cumsum(1) if what == "sums" else x + x.mean(1, keepdim=True) if what == "means" else x
        q, k, v = self.q(x), self.k(x), self.v(x)
        v = v.flip(1) if what == "values" else v
        shares = (q @ k.transpose(-2, -1)).softmax(-2 if what == "axis" else -1)
        shares = shares.flip(-1) if what == "shares" else shares.square() if what == "squares" else shares
        shares = shares.transpose(-2, -1) if what == "transposed" else shares
        y = shares @ v
        y = AFTER.get(what, lambda y, x: y)(y, x)
        return self.U(y if what in ("token", "alpha") else x - y)[:, -1]


NOT_ONE = ["tokens", "axis", "shares", "squares", "transposed", "relu", "self", "token", "inverse", "flip", "sums"]
NOT_ONE += ["means", "left", "alpha", "values"]
ALSO = ["", "added", "twice", "scaled"]


@pytest.mark.parametrize("what", every(14, [*NOT_ONE, *ALSO]))
def test_another_layer_is_counted_right_or_not_at_all(what):
    model = Odd(what)
    weights, text = saved(model, Task(tokens([4] * 3), largest))
    right = enumerated(model, 4, 3, largest)
    try:
        found = counted((weights, text))
    except Refusal as refusal:
        assert refusal.exit_code == NOT_CHECKABLE and what in NOT_ONE, refusal
    else:
        assert found.right <= right and found.wrong <= 64 - right
        assert found.right + found.wrong + len(found.open) == 64 and (what in NOT_ONE or not found.open)


@pytest.mark.parametrize("what", first(1, TABLES))
def test_balls_are_made_of_rows_of_floats_alone(what):
    """python-flint reads memory that is none of its own where it is handed whole numbers as balls."""
    with pytest.raises(Refusal, match="more than one attention and affine maps") as refusal:
        counted(saved(Odd(what), Task(tokens([4] * 3), largest)))
    assert refusal.value.exit_code == NOT_CHECKABLE


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 10) for i in range(1, 101, 10))]), ids=str)
@pytest.mark.parametrize("name", every(3, [*MODELS][1:]))
def test_a_forged_proof_of_other_weights_holds_only_where_it_is_true(name, seeds):
    weights, text = kept(name)
    for moved, forged, drawn_by in of_other_weights(weights, text, name, seeds):
        code, answer = outcome(moved, forged)
        assert code or falsehood(moved, forged) is None, (drawn_by, answer)


def changed(said):
    """Certificates that say more than is so."""
    one = said["counterexample"] and said["counterexample"]["input"]
    yield as_proof(said, 1e-9)
    right, wrong = (int(said["counts"][name]) for name in ("right", "wrong"))
    yield said | {"counts": {"right": str(right + 1), "wrong": str(wrong - 1), "undecided": "0"}}
    yield said | {"counts": {"right": str(right - 1), "wrong": str(wrong + 1), "undecided": "0"}}
    yield said | {"wrong_inputs": said["wrong_inputs"][1:]}
    yield said | {"wrong_inputs": [*said["wrong_inputs"][1:], [0, 0, 5]]}
    yield said | {"counterexample": {**said["counterexample"], "input": [*one[:2], 7]}}
    program = said["program"]
    for answers in ({"rule": "smallest token"}, {"rule": "sum of the tokens modulo 5"}, {"rule": None}):
        yield said | {"program": {**program, "answers": answers}}
    (part,) = program["inputs"]
    yield said | {"program": {**program, "inputs": [{**part, "sets": [[0, 1, 2, 3], *part["sets"][1:]]}]}}
    yield said | {"program": {**program, "inputs": [{**part, "sets": [[0, 1, 2, 3, 9], *part["sets"][1:]]}]}}


MISSHAPEN = {  # a node's operation, and what is said of it that it cannot be
    "no axis": ("aten._softmax.default", lambda node: {"args": node["args"][:1]}),
    "no tensor": ("aten._softmax.default", lambda node: {"shape": None, "dtype": None}),
    "no factors": ("aten.bmm.default", lambda node: {"args": []}),
    "a product that is none": ("aten.bmm.default", lambda node: {"shape": None, "dtype": None}),
}


@pytest.mark.parametrize("name", MISSHAPEN)
def test_operations_that_cannot_be_are_refused(name):
    weights, text = kept("layer norm before")
    said = json.loads(text)
    op, changes = MISSHAPEN[name]
    nodes = said["program"]["graphs"][0]["nodes"]
    last = max(i for i, node in enumerate(nodes) if node["op"] == op)
    nodes[last] |= changes(nodes[last])
    code, answer = outcome(weights, json.dumps(said))
    assert code in (1, NOT_CHECKABLE) and answer.startswith("program: "), answer


def test_forged_fields_are_refused():
    weights, text = kept("half trained")
    said = json.loads(text)
    assert outcome(weights, json.dumps(said)) == (0, "REFUTED")
    forged = [*changed(said)]
    assert [outcome(weights, json.dumps(c))[0] for c in forged].count(0) == 0 and len(forged) == 11


@pytest.mark.deep
def test_a_larger_margin_is_refused_and_a_smaller_one_holds():
    weights, text = kept("trained")
    said = json.loads(text)
    for factor, code in ((0.5, {0}), (1.000001, {1, NOT_CHECKABLE}), (2.0, {1, NOT_CHECKABLE})):
        assert outcome(weights, json.dumps(as_proof(said, said["margin"] * factor)))[0] in code


def test_a_fault_in_the_prover_is_found():
    """The least rival for the largest: a proof of a model that is wrong, its runs beside left out."""
    right = "put(-1, index, -math.inf).amax(-1)"
    with (
        planted(margins, "own_and_rival", right, "put(-1, index, math.inf).amin(-1)"),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
        mock.patch.object(Guard, "check", lambda *_: None),
    ):
        weights, text = saved(trained(5, 3, 25), Task(tokens([5] * 3), largest))
    assert json.loads(text)["verdict"] == "PROVED" and falsehood(weights, text)
    assert outcome(weights, text)[0] == 1


FAULTS = [
    (OneHeadTables, "_table", "y_low - c_high", "y_high - c_low"),
    (OneHeadTables, "_table", "y_high - c_low", "y_low - c_high - (1 << 600)"),
    (OneHeadCell, "_sum", "(min, max)[end]", "(max, min)[end]"),
    (OneHeadCell, "is_behind", "<= 0 for c", "< 1 << 600 for c"),
    (halving, "halves", "in (lower, upper)", "in (lower, lower)"),
    (halving.HalvedCells, "_by_answer", "in ((top,), rest)", "in (rest, rest)"),
    (halving.HalvedCells, "count", "if x < 0 or", "if x < -(1 << 600) or"),
]


@pytest.mark.parametrize("owner, name, right, wrong", first(1, FAULTS))
def test_faults_in_the_checker_show_in_counts(owner, name, right, wrong):
    """Of drawn models, whose counts are those of enumeration, and of one on which classes tie in pairs."""
    tied = drawn(2)
    with torch.no_grad():
        tied.U.weight[1::2] = tied.U.weight[::2]
    files_ = [saved(model, Task(tokens([4] * 3), largest)) for model in (drawn(0), drawn(1), tied)]
    due = [attempt(each) for each in files_]
    with planted(owner, name, right, wrong):
        assert [attempt(each) for each in files_] != due


def attempt(files_, margin=0.0):
    try:
        return counted(files_, margin)
    except (Refusal, ValueError) as error:
        return str(error)


@pytest.mark.deep
def test_max_of_four_over_64_holds():
    with mock.patch.object(module, "MOST_INPUTS", 1 << 18), mock.patch.object(program_of, "MOST_INPUTS", 1 << 18):
        weights, text = saved(steep(V=64, n=4), Task(tokens([64] * 4), largest))
        assert json.loads(text)["inputs_covered"] == str(64**4)
        assert outcome(weights, text) == (0, "PROVED")
