"""What is read off a graph as one layer: its tables hold exact logits, and what is read wrongly is caught."""

import pytest
import torch
from flint import arb, ctx
from models.one_layer import Einsum, Nano, Plain
from models.selection import first
from torch import nn

from tests.module.test_cells import DOMAIN, Seen, build, violations
from tests.planted import planted
from verify.engine import exact
from verify.engine.capture import capture
from verify.engine.one_layer import layer
from verify.engine.one_layer.layer import NotOneLayer, Numbers, OneLayer
from verify.module import cells, largest

V = L = 4


class Squared(Einsum):
    def forward(self, t):
        out = super().forward(t)
        return out * out


class Gated(Einsum):
    """The residual stream of a token that is not fixed comes after the attention."""

    def forward(self, t):
        return super().forward(t) + self.e(t[:, 1])[:, :V]


class Pairs(Einsum):
    """Values of two tokens each."""

    def forward(self, t):
        x = self.e(t) + self.p(torch.arange(t.shape[1]))
        a = torch.softmax(x @ self.query[0], -1)
        return (a.unsqueeze(1) @ (x + x.flip(1))).squeeze(1)[:, :V]


@pytest.mark.parametrize("build_one", [Squared, Gated, Pairs])
def test_tokens_that_are_added_to_others_are_fixed(build_one):
    torch.manual_seed(0)
    if build_one is Squared:
        with pytest.raises(NotOneLayer):
            Seen(Squared(V, L), [range(V)] * L, largest)
        return
    seen = Seen(build_one(V, L), [range(V)] * L, largest)
    assert seen.layer.fixed == ((1,) if build_one is Gated else (1, 3)), "what is added to another token is fixed"
    assert not seen.search()[2]


def test_a_score_of_two_tokens_spoils_its_row():
    scores = torch.zeros(3, 2, 2, dtype=torch.bool)  # two tokens and the channel of what is lost
    scores[:2, 0, 1] = True
    assert layer.alone(scores, -1)[-1].tolist() == [[True, True], [False, False]]


def test_whole_numbers_are_no_forms():
    graph = capture(Plain(V, L).double().eval(), L)
    said = {str(x.target): layer.gives_floats(x) for x in graph.program.nodes if "val" in x.meta and x.op != "output"}
    assert not said["tokens" if "tokens" in said else next(iter(name for name in said if "arange" in name))]
    assert all(is_float for name, is_float in said.items() if "mm" in name or "embedding" in name)


def points_apart(module):
    """Whether an atom is beyond its size, or a logit by tables off its radius, on every fourth input.

    The logits are those of the graph in balls of many bits.
    """
    seen = Seen(module, DOMAIN, largest)
    by_tables = {
        tuple(row): (mid, rad)
        for tokens, logits in cells.by_tables(seen.layer, seen.part)
        for row, mid, rad in zip(tokens.tolist(), logits.mid.tolist(), logits.radius.tolist(), strict=True)
    }
    one = seen.layer.layer([seen.sets[i][0] for i in seen.layer.fixed])
    first_of_all = one.values.mid[..., 0].sum(-1) / one.weights.mid[..., 0].sum(-1)[one.head]
    if bool((first_of_all.abs() > one.largest * (1 + 1e-9)).any()):
        return True
    with ctx.workprec(200):
        for row in seen.rows[::4]:
            mids, rads = by_tables[tuple(row.tolist())]
            real = exact.evaluate(seen.graph, row).reshape(-1, len(mids))[-1]
            if any(abs(x - arb(m)) > arb(r) for x, m, r in zip(real, mids, rads, strict=True)):
                return True
    return False


def moved(module):
    """Norms with weights and biases of their own."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name or name.startswith(("n1", "n2", "n3", "ln")):
                parameter.add_(torch.randn_like(parameter) / 4)
    return module


def offset(module):
    """Scores of some millions that differ by little, so that their rounding is seen in the weights."""
    module.k.bias = nn.Parameter(torch.full((8,), 1e6))
    return module


SEEN = {
    "plain": lambda: Plain(V, L, hidden=0, bos=True),
    "offset": lambda: offset(Plain(V, L, hidden=0)),
    "masked": lambda: Nano(V, L, at=1),
    "gated": lambda: Gated(V, L),
    "pairs": lambda: Pairs(V, L),
    "norms": lambda: moved(build("layer-gelu", 4)),
    "tanh form": lambda: build("-gelu_tanh", 4),
    "nano": lambda: build("nano", 2),
    "encoder": lambda: moved(build("encoder", 2)),
    "einsum": lambda: build("einsum", 1),
}


@pytest.mark.parametrize("name", first(2, [name for name in SEEN if name != "pairs"]))
def test_logits_by_tables_hold_the_exact_ones(name):
    torch.manual_seed(1)
    assert not points_apart(SEEN[name]())


def is_caught(name):
    torch.manual_seed(1)
    module = SEEN[name]()
    return (
        points_apart(module) or bool(violations(module, DOMAIN, 0)) or bool(Seen(module, DOMAIN, largest).search()[2])
    )


FAULTS = [
    ("pairs", OneLayer, "_mixture", "(pairs.sum(0) <= 1) & ~pairs[-1]", "~pairs[-1]"),
    ("gated", OneLayer, "_checked", "if bool(found.any())", "if False"),
    ("masked", Numbers, "_exponentials", "torch.where(is_masked, 0.0, x) for", "x for"),
    ("plain", layer, "summed", "by_place(terms.mid), by", "by_place(terms.mid.flip(0)), by"),
    ("offset", layer, "summed", "is_one, off, rad", "is_one, 0 * off, 0 * rad"),
    ("offset", Numbers, "_mix", "v.size).amax(0)", "0 * v.size).amax(0)"),
    ("masked", Numbers, "_mix", "torch.where(is_zero, 0.0, terms.mid)", "terms.mid + is_zero.double()"),
    ("encoder", Numbers, "_norm", "if weight is not None", "if weight is None"),
    ("encoder", Numbers, "_norm", "if bias is not None", "if bias is None"),
    ("norms", Numbers, "_norm", "float(eps), shape", "float(eps) + 1e-3, shape"),
    ("tanh form", Numbers, "_function", '== "tanh"', '== "none"'),
    ("plain", Numbers, "_assembled", "number[int(h)] for", "0 * number[int(h)] for"),
    ("plain", Numbers, "_affine", "form.rad[0]), parts", "form.rad[0] * 0), {}"),
    ("nano", OneLayer, "runs", "found[:, i] = token", "found[:, i] = 0"),
]


@pytest.mark.parametrize("name, owner, function, right, wrong", first(4, FAULTS))
def test_faults_in_what_is_read_are_caught(name, owner, function, right, wrong):
    with planted(owner, function, right, wrong):
        is_built, is_seen = True, False
        try:
            is_seen = is_caught(name)
        except (RuntimeError, IndexError, KeyError, ValueError):
            is_built = False  # the wrong layer cannot be built
        assert is_seen or not is_built
