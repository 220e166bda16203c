"""Attention layers whose products pass the least float64 number: their tables against 300-bit arithmetic."""

import itertools

import mpmath
import pytest
import torch
from models.every_size import traced_once
from models.selection import every, first
from models.tabled import by_tables

from constructions.decoder import Decoder
from tests.clocks import ENDLESS
from verify.engine.margins import margins
from verify.frame.certificate import Verdict
from verify.frame.clock import Deadline
from verify.module import ModuleProblem, Task, cells, certify, largest, problem, smallest, tokens

V, N = 4, 4
mpmath.mp.prec = 300
captured = traced_once(problem.capture)


@pytest.fixture(autouse=True)
def traced_few_times(monkeypatch):
    monkeypatch.setattr(problem, "capture", captured)


def layer(scale, gap, seed=0, at="W_U", n_heads=1, dtype=torch.float64):
    """Token 0 has `gap` more than the others in its score; attention speaks against what it sees."""
    model = Decoder(
        vocabulary=V, d=6, n_layers=1, n_heads=n_heads, d_mlp=0, layernorm=False, pe="nope", attention_bias=False,
        classes=V, d_head=6, dtype=dtype,
    )  # fmt: skip
    attention, generator = model.blocks[0].attention, torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter))
        model.W_E[:, :V] = torch.eye(V)
        model.W_E[:, V] = 1
        for h in range(n_heads):
            attention.W_Q[V, 6 * h] = 1
            attention.W_K[0, 6 * h] = gap * 6**0.5
            attention.W_V[:V, 6 * h : 6 * h + V] = torch.eye(V)
            attention.W_O[6 * h : 6 * h + V, :V] = -(2.5 + torch.rand(V, generator=generator)).diag() / n_heads
        model.W_U[:V] = torch.eye(V)
        scaled = model.W_U if at == "W_U" else getattr(attention, at)
        scaled.copy_(scaled.double() * scale)
    return model.eval()


def numbers(x):
    return mpmath.matrix([[mpmath.mpf(v) for v in row] for row in x.detach().double().tolist()])


class Oracle:
    """The logits of a string, of every multiset once, in mpmath."""

    def __init__(self, model):
        a = model.blocks[0].attention
        self.E, self.U = numbers(model.W_E), numbers(model.W_U)
        self.Q, self.K, self.V, self.O = (numbers(x) for x in (a.W_Q, a.W_K, a.W_V, a.W_O))
        self.heads, self.d, self.known = a.n_heads, a.d_head, {}

    def logits(self, row):
        key = (row[-1], tuple(sorted(row)))
        if key not in self.known:
            x = mpmath.matrix([list(self.E[t, :]) for t in row])
            q, k, v = x[len(row) - 1, :] * self.Q, x * self.K, x * self.V
            mixed = []
            for h in range(self.heads):
                at = range(h * self.d, (h + 1) * self.d)
                scores = [sum(q[c] * k[i, c] for c in at) / mpmath.sqrt(self.d) for i in range(len(row))]
                weights = [mpmath.exp(s) for s in scores]
                total = sum(weights)
                mixed += [sum(w * v[i, c] for i, w in enumerate(weights)) / total for c in at]
            self.known[key] = (x[len(row) - 1, :] + mpmath.matrix([mixed]) * self.O) * self.U
        return self.known[key]

    def margin(self, row, right):
        logits = self.logits(row)
        return logits[right] - max(logits[j] for j in range(len(logits)) if j != right)


def one_layer(model, expected):
    """The layer as it is read off the graph, and the domain."""
    asked = ModuleProblem(model, Task(tokens([V] * N), expected))
    (part,) = asked.given.inputs.parts
    return cells.one_layer(asked.graphs[N], asked.given.question(N), part), part


SCALES = [(1.0, 640.0), (1e-60, 640.0), (2.0**-600, 600.0), (2.0**-1000, 50.0), (2.0**-1070, 3.0), (2.0**900, 640.0)]
BY_TURNS = [((i + j) % 2 + 1, *scale) for i, scale in enumerate(SCALES) for j in range(2)]


@pytest.mark.parametrize("at", first(1, ["W_U", "W_O", "W_V"]))
@pytest.mark.parametrize("n_heads, scale, gap", every(3, BY_TURNS))
def test_tables_of_scaled_layers_hold_the_exact_margins(scale, gap, n_heads, at):
    model = layer(scale, gap, at=at, n_heads=n_heads)
    oracle, layered, part = Oracle(model), *one_layer(model, largest)
    seen = 0
    for rows, logits in by_tables(layered, part):
        low, high = margins(logits, rows[:, -1])
        for row, least, most in zip(rows.tolist(), low.tolist(), high.tolist(), strict=True):
            margin = oracle.margin(row, row[-1])
            assert not (least > margin or most < margin), (row, least, most, margin)
            seen += 1
    assert seen == V**N


@pytest.mark.parametrize("n_heads, scale, gap", every(12, BY_TURNS))
def test_products_of_scaled_layers_are_decided_as_their_margins_are(scale, gap, n_heads, monkeypatch):
    model, proved = layer(scale, gap, n_heads=n_heads), 0
    oracle = Oracle(model)
    monkeypatch.setattr(cells, "RUN", 1)
    for expected in (largest, smallest):
        layered, part = one_layer(model, expected)
        search = cells.Search(layered, part, expected, lambda length, label: label)
        search.start(Deadline.never())
        answers = max if expected is largest else min
        real = {row: oracle.margin(row, answers(row)) for row in itertools.product(range(V), repeat=N)}
        right = wrong = 0
        for found in itertools.chain.from_iterable(search.run(Deadline.never())):
            right, wrong = right + found.right, wrong + found.wrong
            ends = zip(found.tokens.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
            assert not any(low > real[tuple(row)] or high < real[tuple(row)] for row, low, high in ends)
        assert right <= sum(m > 0 for m in real.values()) and wrong <= sum(m <= 0 for m in real.values())
        proved += right
    assert proved or scale < 1e-30


@pytest.mark.parametrize("scale, gap, dtype", first(1, [(1e-38, 665.0, torch.float32), (1e-60, 640.0, torch.float64)]))
def test_nothing_false_is_proved_of_a_scaled_layer(scale, gap, dtype):
    """196,608 inputs: on 10,467 of them the last token is outvoted."""
    model, length = layer(scale, gap, dtype=dtype), 9
    with torch.no_grad():
        model.blocks[0].attention.W_O[:V, :V] = torch.eye(V) * -2.9
    wrong = 0
    for row in itertools.product(range(V), repeat=length - 1):
        if 0 not in row:
            n = [row.count(c) for c in range(V)]
            for last in (1, 2, 3):
                counts = [c + (i == last) for i, c in enumerate(n)]
                wrong += 29 * counts[last] - 10 * length >= min(29 * c for i, c in enumerate(counts) if i != last)
    assert wrong == 10_467
    inputs = tokens([V] * (length - 1) + [[1, 2, 3]])
    found = certify(model, inputs=inputs, expected=lambda t: t[:, -1], budget=ENDLESS)
    assert found.verdict is Verdict.REFUTED and int(found.extra["counts"]["wrong"]) <= wrong
    assert int(found.extra["counts"]["right"]) <= V ** (length - 1) * 3 - wrong
