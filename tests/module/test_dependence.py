"""Which tokens each number of a graph depends on: never fewer than those that change it when they are changed."""

import pytest
import torch
from models.one_layer import Einsum, Encoder, Nano, Plain
from models.selection import every, first
from torch import nn
from torch.nn import functional as F

from tests.planted import planted
from verify.engine import dependence
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import capture
from verify.engine.dtypes import is_float
from verify.engine.run import call, enclosed_weights

L, V = 4, 5
AT = Arithmetic()


class Moves(nn.Module):
    """Every operation whose dependence is known by name, on its own."""

    def __init__(self, d=3):
        super().__init__()
        self.E, self.W = nn.Embedding(V, d), nn.Parameter(torch.randn(d, d))
        self.bias, self.norm = nn.Parameter(torch.randn(d)), nn.LayerNorm(d)
        self.out = nn.Linear(d, V)

    def forward(self, t):
        x = self.E(t)  # (1, L, d)
        rows = x[0]
        every = [
            torch.cat([x[:, :1], x.flip(1)], 1).sum(1),
            torch.stack([x, 2 * x], 1)[:, 0].amax(1),
            F.pad(x, (0, 0, 1, 2))[:, 1 : L + 1].mean(1),
            x[:, torch.tensor([2, 0, 1])][:, 0],
            torch.addmm(self.bias, rows, self.W)[1:2],
            torch.addmm(rows[2], self.W, self.W)[:1],
            torch.baddbmm(x, x @ self.W, self.W.unsqueeze(0))[:, 3],
            self.W[:1] @ rows[:3],
            self.norm(x)[:, 0],
            F.softmax(x, -1)[:, 1],
            F.softmax(x, 1)[:, 2],
            F.log_softmax(x, -1)[:, 3],
            x.var(1),
            x.var(2).matmul(torch.ones(L, 3)),
            torch.where(t[:, 1:2] > 2, x[:, 2], x[:, 3]),
            self.E.weight[t[:, 1]],
            x.split(2, 1)[1][:, 0] + x.unbind(1)[0],
            x.cumsum(1)[:, 1],
            F.batch_norm(x.transpose(1, 2), self.bias.detach(), self.bias.detach().abs() + 1)[:, :, 2],
            torch.ops.aten._fused_rms_norm.default(x, [3], self.bias, 1e-5)[0][:, 1],
            self.out(x)[:, 2, :3],
        ]
        return self.out(torch.stack(every).sum(0))


def dependences(graph):
    """The dependence of every node, all positions followed, as the layer follows them."""
    found, known = {}, {}
    for node in graph.program.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            found[node] = dependence.nothing(node, L)
            if node.name in graph.stored:
                if not graph.stored[node.name].is_floating_point():
                    known[node] = graph.stored[node.name]
            else:
                found[node][torch.arange(L), 0, torch.arange(L)] = True
            continue
        found[node] = dependence.through(node, found, L, known)
        value = node.meta.get("val")
        is_whole = isinstance(value, torch.Tensor) and not is_float(value.dtype)
        if is_whole and not found[node].any() and all(x in known for x in node.all_input_nodes):
            known[node] = call(node, known, AT, torch.device("cpu"))
    return found


def values(graph, row):
    found, stored = {}, enclosed_weights(graph, AT)
    for node in graph.program.nodes:
        if node.op == "placeholder":
            found[node] = stored.get(node.name, row.unsqueeze(0))
        elif node.op != "output":
            found[node] = call(node, found, AT, torch.device("cpu"))
    return found


def parts(value):
    several = value if isinstance(value, list | tuple) else [value]
    return [part.mid if isinstance(part, Ball) else part for part in several]


def missed(module):
    """Nodes with a number that a token changes, and that is not said to depend on it."""
    graph, wrong = capture(module.double().eval(), L), []
    said, row = dependences(graph), torch.tensor([1, 3, 0, 2])
    before = values(graph, row)
    for i in range(L):
        for token in range(V):
            changed = row.clone()
            changed[i] = token
            after = values(graph, changed)
            for node, deps in said.items():
                several = deps if isinstance(deps, list) else [deps]
                for old, new, dep in zip(parts(before[node]), parts(after[node]), several, strict=False):
                    if isinstance(old, torch.Tensor) and bool(((old != new) & ~dep[i]).any()):
                        wrong.append(str(node.target))
    return wrong


MODULES = {
    "moves": Moves,
    "plain": lambda: Plain(V, L, norm="layer", bos=True),
    "nano": lambda: Nano(V, L),
    "encoder": lambda: Encoder(V, L),
    "einsum": lambda: Einsum(V, L),
}


@pytest.mark.parametrize("name", every(8, MODULES))
def test_every_change_is_a_dependence(name):
    torch.manual_seed(0)
    assert not missed(MODULES[name]())


FAULTS = [
    ("product", "x.any(-1, keepdim=True)", "x[..., :1]"),
    ("product", "y.any(-2, keepdim=True)", "y[..., :1, :]"),
    ("linear", "given[x].any(-1, keepdim=True)", "(given[x] & False)[..., :1]"),
    ("addmm", "spread(bias, shape) |", ""),
    ("addmm", "| by_rows", ""),
    ("along", "x.any(axis % n + 1, keepdim=True)", "x.select(axis % n + 1, 0).unsqueeze(axis % n + 1)"),
    ("normalised", "x.any(axis, keepdim=True)", "x.select(axis, 0).unsqueeze(axis)"),
    ("norm", "given[x].any(-1, keepdim=True)", "(given[x] & False)[..., :1]"),
    ("by_stored_moments", "[given[x], *", "[given[x].flip(-1), *"),
    ("joined", "torch.cat(parts,", "torch.cat(parts[::-1],"),
    ("embedding", "tokens.unsqueeze(-1)", "(tokens & False).unsqueeze(-1)"),
    ("padded", "widths, 0", "[0, 0, widths[3], widths[2]], 0"),
    ("index", "rows.reshape", "(rows & False).reshape"),
    ("taken", "torch.ops.aten.index.Tensor(x, where)", "torch.ops.aten.index.Tensor(x.flip(1), where)"),
    ("union", "empty | every.reshape(-1, *[1] * (empty.ndim - 1))", "empty"),
    ("move", "*arguments(node)[1:]", "*(([0],) if name == 'flip' else arguments(node)[1:])"),
    ("known", "reduce(torch.logical_or, parts)", "parts[0]"),
]


@pytest.mark.parametrize("name, right, wrong", first(1, FAULTS))
def test_faults_in_the_dependence_are_caught(name, right, wrong):
    torch.manual_seed(0)
    with planted(dependence, name, right, wrong):
        rules = {key: getattr(dependence, rule.__name__) for key, rule in dependence.RULES.items()}
        dependence.RULES, kept = rules, dependence.RULES
        try:
            assert missed(Moves())
        finally:
            dependence.RULES = kept
