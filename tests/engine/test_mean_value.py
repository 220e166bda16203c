"""The mean value form: it holds exact and rounded runs of every kind of module, and wrong slopes are caught."""

from functools import partial
from unittest import mock

import pytest
import torch
from flint import arb, ctx
from models.selection import every, first
from torch import nn
from torch.nn import functional as F

from tests.engine.test_against_torch import everywhere
from tests.models.small_modules import JUDGED
from verify.arithmetic.formats import FORMATS
from verify.engine import exact, mean_value
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import capture
from verify.engine.rules import activations, linear, movement, normalisation, pointwise
from verify.engine.run import enclose

LENGTH = 3
TOKENS = torch.tensor([[0, 4, 2], [3, 3, 1]])


def traced(build, dtype=torch.float64):
    torch.manual_seed(0)
    module = build().eval().to(dtype)
    return module, capture(module, LENGTH)


def bounds(graph, at, tokens=TOKENS):
    """The gap between the first two numbers of the last position, enclosed for each input."""
    size = graph.output.numel()
    first = torch.full((len(tokens),), size - graph.output.shape[-1])
    return mean_value.gaps(graph, at)(tokens, first, first + 1)


def true_gap(graph, row):
    logits = exact.evaluate(graph, row).reshape(-1, graph.output.shape[-1])[-1]
    return logits[0] - logits[1]


def holds_exactly(graph):
    low, high = bounds(graph, Arithmetic())
    with ctx.workprec(160):
        gaps = [true_gap(graph, row) for row in TOKENS]
        is_held = all(arb(float(a)) <= gap <= arb(float(b)) for a, gap, b in zip(low, gaps, high, strict=True))
    return is_held, float((high - low).max())


@pytest.mark.parametrize("name", first(1, [name for name in JUDGED if name != "group norm"]))
def test_exact_and_rounded_gaps_are_held(name):
    module, graph = traced(JUDGED[name])
    is_held, width = holds_exactly(graph)
    assert is_held and width < 1e-12
    single = module.float()
    low, high = bounds(capture(single, LENGTH), Arithmetic(FORMATS["float32"]))
    with torch.no_grad():
        runs = torch.cat([single(row[None]) for row in TOKENS]).double()
    runs = runs.reshape(len(TOKENS), -1, runs.shape[-1])[:, -1]
    gaps = runs[:, 0] - runs[:, 1]
    assert ((low <= gaps) & (gaps <= high)).all() and (high - low).max() < 1e-2


class Block(nn.Module):
    """A block before LayerNorm, as torch initialises it: queries, keys and values are parts of one product."""

    def __init__(self, d, h):
        super().__init__()
        self.h, self.norm_1, self.norm_2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.up, self.down = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Linear(d, 4 * d),
            nn.Linear(4 * d, d),
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (y.view(b, n, self.h, d // self.h).transpose(1, 2) for y in self.qkv(self.norm_1(x)).split(d, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Written(nn.Module):
    """A decoder as people write it, with torch's own initialisation."""

    def __init__(self, layers, d=64, heads=4, vocabulary=16, positions=8):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocabulary, d), nn.Embedding(positions, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


@pytest.mark.deep
def test_four_layers_as_torch_initialises_them():
    """Pre-LN, d = 64: radii of logits below 1e-8 by l2 norms, gaps within 1e-12 by mean values, and flint agrees."""
    torch.manual_seed(0)
    graph = capture(Written(4).double().eval(), LENGTH)
    run = enclose(graph, Arithmetic(has_norms=True), lambda out, t, a: (out.radius.amax(),))
    assert run(TOKENS, TOKENS)[0].max() < 1e-8
    low, high = bounds(graph, Arithmetic())
    assert (high - low).max() < 1e-12
    with ctx.workprec(160):
        assert arb(float(low[0])) <= true_gap(graph, TOKENS[0]) <= arb(float(high[0]))


class Steep(nn.Module):
    """Stored numbers whose rounding shows: one operation between two layers, and nothing else is off by much."""

    def __init__(self, through):
        super().__init__()
        self.embed, self.first, self.out = nn.Embedding(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.through = through

    def forward(self, tokens):
        return self.out(self.through(self.first(self.embed(tokens))))


def held(graph, places, by=1e-3):
    """Whether the gap is held where one number after the first layer is off by as much as its step says, or half.

    Nothing else is off by more than rounding, so that the bound is sharp to first order.
    """
    original = linear.product

    def off(at, x, y, more=0, *, place, sign):
        out = original(at, x, y, more)
        if at.tape is None or x.rad is not None or len(at.tape) > 1:
            return out
        step = at.tape.pop()
        local = torch.where(torch.arange(out.mid.numel()).reshape(out.mid.shape) == place, by, 0.0).double()
        return at.record(Ball(out.mid + sign * local, out.radius + local), step.inputs, step.local + local, step.pull)

    for place in places:
        for sign in (1.0, -1.0, 0.5):
            with mock.patch.object(linear, "product", partial(off, place=place, sign=sign)):
                low, high = bounds(graph, Arithmetic(), TOKENS[:1])
            with ctx.workprec(160):
                if not arb(float(low[0])) <= true_gap(graph, TOKENS[0]) <= arb(float(high[0])):
                    return False
    return True


OPERATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "exp": torch.exp,
    "layer norm": lambda x: F.layer_norm(x, (6,)),
    "rms norm": lambda x: F.rms_norm(x, (6,), eps=1e-5),
    "softmax": lambda x: torch.softmax(3 * x, -1),
    "log softmax": lambda x: torch.log_softmax(x, -1),
    "attention": lambda x: F.scaled_dot_product_attention(2 * x, 2 * x, x, is_causal=True),
    "products": lambda x: x * x.flip(-1) - x.roll(1, -1) / 3 + x / (x.square() + 1).sqrt(),
    "cumulative sum": lambda x: x.cumsum(-1),
    "parts": lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.split(2, -1))], -1) + x.mean(-1, keepdim=True),
    "views": lambda x: (x.view(1, LENGTH, 2, 3).transpose(2, 3) @ x.view(1, LENGTH, 2, 3)).sum(2).repeat(1, 1, 2),
    "softplus": lambda x: F.softplus(x) + F.softplus(x, 0.5, 0.1) / 4,
    "elu": lambda x: F.elu(x, 0.7) - F.celu(x, 0.3),
    "norms": lambda x: x / (1 + x.norm(dim=-1, keepdim=True)) + F.normalize(x, dim=1),
    "in order": lambda x: x.sort(-1).values + x.topk(2, -1).values.sum(-1, keepdim=True),
    "batch norm": lambda x: F.batch_norm(x[0], torch.ones(6).double() / 3, torch.ones(6).double() / 5)[None],
    "grouped queries": lambda x: (
        F.scaled_dot_product_attention(
            x.view(1, LENGTH, 6, 1).transpose(1, 2),
            x[..., :3].view(1, LENGTH, 3, 1).transpose(1, 2),
            x[..., 3:].view(1, LENGTH, 3, 1).transpose(1, 2),
            enable_gqa=True,
        )
        .transpose(1, 2)
        .reshape(1, LENGTH, 6)
    ),
    "maximum": lambda x: torch.maximum(x, x.amax(-1, keepdim=True) / 2) + x.abs(),
}


LAST = range(6 * LENGTH - 6, 6 * LENGTH)


@pytest.mark.parametrize("name", first(1, OPERATIONS))
def test_errors_of_the_first_layer_are_carried_to_the_end(name):
    """Midpoints that are wrong by 1e-3 before an operation: the bound still holds the exact gap."""
    _, graph = traced(lambda: Steep(OPERATIONS[name]))
    assert held(graph, (0, 7, *LAST))


FAULTS = [
    (pointwise, "times", "times(SLOPES, slope, y)", "times(SLOPES, slope, Ball(0 * y.mid))", "products"),
    (linear, "product", "(SLOPES, slope, turned(y))", "(SLOPES, slope, Ball(0.5 * turned(y).mid))", "relu"),
    (linear, "plus", "unbroadcast(slope, x.mid.shape)", "unbroadcast(Ball(0 * slope.mid), x.mid.shape)", "parts"),
    (normalisation, "normal_slopes", "mid = (g - ", "mid = (0.9 * g - ", "layer norm"),
    (normalisation, "normal_slopes", "apart = (width", "apart = 0 * (width", "layer norm"),
    (normalisation, "spread_of", "negated(SLOPES, mean_slope)", "mean_slope", "softmax"),
    (
        normalisation,
        "repeated",
        "record_move(at, move, (x, -3, whose), {}, out)",
        "record_move(at, move, (x, -3, 0 * whose), {}, out)",
        "grouped queries",
    ),
    (activations, "elu", "torch.where(below, where_below.mid, between[0])", "0 * where_below.mid", "elu"),
    (
        activations,
        "softplus",
        "torch.where(is_beyond, 1.0, between.mid)",
        "torch.where(is_beyond, 0.0, 0 * between.mid)",
        "softplus",
    ),
    (pointwise, "slopes", "bend * x.radius", "0 * x.radius", "gelu"),
    (pointwise, "slopes", "return Ball(at_middle,", "return Ball(0.5 * at_middle,", "tanh"),
    (movement, "back", "moved_back(v) for v in (slope.mid,", "moved_back(v) for v in (0 * slope.mid,", "parts"),
    (mean_value, "by_balls", "for ball, g in slopes.values()", "for ball, g in ()", "cumulative sum"),
]


@pytest.mark.parametrize("owner, name, right, wrong, operation", every(8, FAULTS))
def test_wrong_slopes_are_caught(owner, name, right, wrong, operation):
    _, graph = traced(lambda: Steep(OPERATIONS[operation]))
    with everywhere(owner, name, right, wrong):
        assert not held(graph, LAST)


# a dtype: each operation reads a result rounded, or kept


READERS = {
    "sum": lambda x: x,
    "view": lambda x: x.view(1, 1, 1).squeeze(0),
    "opposite": lambda x: torch.neg(torch.neg(x)),
    "relu": torch.relu,
    "largest": lambda x: torch.amax(x.unsqueeze(0), 0),
    "one of two": lambda x: torch.where(x > 0, x, 0 * x),
    "sum in a linear layer": lambda x: F.linear(x.sum(0), torch.ones(1, 1), torch.zeros(1)).unsqueeze(0),
    "widened": lambda x: x.square().sqrt(),
}


class TwoReaders(nn.Module):
    """(x - 128) - (x - 127) = -1 and 0, of a sum x = 128 7/16 that 8 bits round to 128."""

    def __init__(self, through):
        super().__init__()
        self.a, self.b, self.through = nn.Embedding(1, 1), nn.Embedding(1, 1), through
        self.a.weight.data.fill_(128.0)
        self.b.weight.data.fill_(7 / 16)

    def forward(self, t):
        x = self.through(self.a(t[:, -1]) + self.b(t[:, -1]))
        gap = (x - 128.0) - (x - 127.0)
        return torch.cat([gap, 0 * gap], -1)


def both_forms_are_held(name, reading):
    """Whether the bounds hold the gaps of one operation that reads 128 and another that reads 128 7/16."""
    graph = capture(TwoReaders(READERS[name]).eval(), 1, is_real=False)
    zero = torch.zeros(1, dtype=torch.long)
    low, high = mean_value.gaps(graph, reading)(zero[None], zero, zero + 1)
    return float(low) <= -1 - 7 / 16 and float(high) >= -1 + 7 / 16 and float(high - low) < 40


@pytest.mark.parametrize("name", first(2, READERS))
def test_two_operations_read_one_result_in_two_forms(name):
    assert both_forms_are_held(name, Arithmetic(FORMATS["bfloat16"]))


FORM_FAULTS = [
    (mean_value, "followed", "size = sizes.pop(id(step.out), None)", "size = None", "sum"),
    (mean_value, "followed", "if through is None else through.size", "", "opposite"),
    (mean_value, "followed", "Ball(sizes[key]) if key in sizes else g", "g", "largest"),
    (linear, "negated", "is_same=True", "is_same=False", "opposite"),
    (linear, "widened", "is_same=True", "is_same=False", "sum in a linear layer"),
    (pointwise, "relu", "is_same=True", "is_same=False", "relu"),
    (movement, "record_move", "is_same=True", "is_same=False", "view"),
]


@pytest.mark.parametrize("owner, name, right, wrong, operation", every(4, FORM_FAULTS))
def test_forms_that_are_taken_as_one_are_caught(owner, name, right, wrong, operation):
    with everywhere(owner, name, right, wrong):
        assert not both_forms_are_held(operation, Arithmetic(FORMATS["bfloat16"]))
