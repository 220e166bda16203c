"""What is read off a graph as one layer: its tables hold exact logits, and what is read wrongly is caught."""

import pytest
import torch
from flint import arb, ctx
from models.one_layer import Einsum, Nano, Plain
from models.selection import every, first
from models.tabled import by_tables
from torch import nn

from tests.module.test_cells import DOMAIN, Seen, build, violations
from tests.planted import planted
from verify.engine import exact
from verify.engine.capture import capture
from verify.engine.one_layer import after, layer
from verify.engine.one_layer.after import Atoms
from verify.engine.one_layer.layer import Affine, NotOneLayer, Numbers, OneLayer
from verify.module import largest

V = L = 4


class Waves(Einsum):
    def forward(self, t):
        return torch.sin(super().forward(t))


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


@pytest.mark.parametrize("build_one", every(3, [Waves, Gated, Pairs]))
def test_tokens_that_are_added_to_others_are_fixed(build_one):
    torch.manual_seed(0)
    if build_one is Waves:
        with pytest.raises(NotOneLayer):
            Seen(Waves(V, L), [range(V)] * L, largest)
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
    tabled = {
        tuple(row): (mid, rad)
        for tokens, logits in by_tables(seen.layer, seen.part)
        for row, mid, rad in zip(tokens.tolist(), logits.mid.tolist(), logits.radius.tolist(), strict=True)
    }
    one = seen.layer.layer([seen.sets[i][0] for i in seen.layer.fixed])
    first_of_all = one.values.mid[..., 0].sum(-1) / one.weights.mid[..., 0].sum(-1)[one.head]
    if bool((first_of_all.abs() > one.largest * (1 + 1e-9)).any()):
        return True
    with ctx.workprec(200):
        for row in seen.rows[::4]:
            mids, rads = tabled[tuple(row.tolist())]
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


class Larger(Plain):
    """The larger and the smaller of two logits, and powers of one."""

    def __init__(self, *args, is_power=False, **options):
        super().__init__(*args, **options)
        self.is_power = is_power

    def forward(self, t):
        x = super().forward(t)
        if self.is_power:
            return x**3 + 1 / (x.sigmoid() + 1) + x.exp()
        return torch.maximum(x, x.flip(-1) * 2) - torch.minimum(x, 0.3 * x.flip(-1))


SEEN = {
    "gated mlp": lambda: build("-silu*", 4),
    "rms": lambda: moved(build("rms-silu*", 2)),
    "fused rms": lambda: build("fused_rms-none", 2),
    "written rms": lambda: build("written_rms-relu", 3),
    "written norm": lambda: build("written_norm-none", 5),
    "deviation": lambda: build("deviation-none", 4),
    "uncentred": lambda: build("uncentred-none", 4),
    "relu6": lambda: build("-relu6", 4),
    "leaky": lambda: build("-leaky_relu", 4),
    "abs": lambda: build("-abs", 4),
    "softplus, elu": lambda: build("-softplus", 4),
    "elu": lambda: build("-elu", 4),
    "gelu written": lambda: build("-gelu_written", 4),
    "groups": lambda: Plain(V, L, heads=4, groups=2),
    "larger": lambda: Larger(V, L, hidden=0),
    "powers": lambda: Larger(V, L, hidden=0, is_power=True),
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


@pytest.mark.parametrize("name", first(1, [name for name in SEEN if name != "pairs"]))
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
    ("encoder", Numbers, "_norm", "more[0] is not None", "more[0] is None"),
    ("norms", Numbers, "_norm", "float(more[-1])", "float(more[-1]) + 1e-3"),
    ("tanh form", Atoms, "operation", '== "tanh"', '== "none"'),
    ("gated mlp", Atoms, "_product", "0.25", "0.24"),
    ("gated mlp", Atoms, "_product", "subtract(*squares)", "add(*squares)"),
    ("gated mlp", Atoms, "_product", "Ball(1 / s)", "Ball(0.5 / s)"),
    ("fused rms", Numbers, "_norm", "kind, self.forms[x]", "'norm', self.forms[x]"),
    (
        "written rms",
        layer,
        "written_norm",
        "if x is of and kind == RMS:\n            return kind",
        "if x is of and kind == RMS:\n            return NORM",
    ),
    ("written rms", after, "root", "eps = nodes[0], float(numbers[0])", "eps = nodes[0], 0.1"),
    ("uncentred", layer, "written_norm", "kind == NORM and is_centred(x, of)", "kind == NORM"),
    ("deviation", Atoms, "_variance", "(1 if correction is None else correction)", "0"),
    ("deviation", Atoms, "_of_two", '"reciprocal", y', '"reciprocal", x'),
    ("deviation", Atoms, "_variance", "subtract(x, means(x, axes, True))", "x"),
    ("relu6", Atoms, "_by_relu", "relu(subtract(x, most))", "relu(subtract(x, add(most, 0.1)))"),
    ("leaky", Atoms, "_by_relu", "subtract(x, above), more[0]", "x, more[0]"),
    ("abs", Atoms, "_by_relu", "multiply(relu(x), 2.0)", "multiply(relu(x), 1.9)"),
    ("larger", Atoms, "_of_two", "add(y, self.of", "add(x, self.of"),
    ("larger", Atoms, "_of_two", "subtract(x, self.of", "subtract(y, self.of"),
    ("powers", Atoms, "operation", "POWERS[more[0]]", "POWERS[2]"),
    (
        "groups",
        layer,
        "for_heads",
        "x.repeat_interleave(heads // x.shape[-3], -3)",
        "torch.cat([x] * (heads // x.shape[-3]), -3)",
    ),
    ("gated mlp", Affine, "renamed", "number[s]: part", "-1: part"),
    ("plain", Numbers, "_assembled", "place[int(h)] for", "0 * place[int(h)] for"),
    ("plain", Numbers, "_affine", "form.rad[0]), parts", "form.rad[0] * 0), {}"),
    ("nano", OneLayer, "runs", "found[:, i] = token", "found[:, i] = 0"),
]


@pytest.mark.parametrize("name, owner, function, right, wrong", first(2, FAULTS))
def test_faults_in_what_is_read_are_caught(name, owner, function, right, wrong):
    with planted(owner, function, right, wrong):
        is_built, is_seen = True, False
        try:
            is_seen = is_caught(name)
        except (RuntimeError, IndexError, KeyError, ValueError):
            is_built = False  # the wrong layer cannot be built
        assert is_seen or not is_built
