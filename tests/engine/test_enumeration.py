"""Plain runs with one radius for a whole domain: 60-digit runs, shuffled orders and all scales stay within it."""

import itertools
import math
from fractions import Fraction
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from models.selection import first
from torch import nn
from torch.nn import functional as F

from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.engine import enumeration, radius
from verify.engine.balls import Arithmetic, Ball, Step
from verify.engine.capture import capture
from verify.engine.enumeration import Enumeration
from verify.engine.margins import Question
from verify.engine.plain import Plain
from verify.engine.rules import linear, movement, normalisation
from verify.engine.tables import NoRadius, Tables

V, L, D, H, M = 3, 3, 4, 2, 6
ALL = torch.tensor(list(itertools.product(range(V), repeat=L)))
SETS = [range(V)] * L


class Layers(nn.Module):
    """Causal layers of attention and an MLP, as strangers write them."""

    def __init__(self, layers=2, norm=False, act="relu", written=False, scale=1.0, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.act, self.written, self.layers, self.norm = act, written, layers, norm
        self.e, self.p, self.u = nn.Embedding(V, D), nn.Embedding(L, D), nn.Linear(D, V)
        self.qkv, self.o, self.up, self.down = (
            nn.ModuleList(nn.Linear(*size) for _ in range(layers)) for size in ((D, 3 * D), (D, D), (D, M), (M, D))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2 * layers + 1))
        for value in self.parameters():
            value.data.mul_(scale)

    def normed(self, i, x):
        return self.norms[i](x) if self.norm else x

    def attend(self, q, k, v):
        if not self.written:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        s = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        hidden = torch.ones(L, L, dtype=torch.bool, device=q.device).triu(1)
        return s.masked_fill(hidden, -math.inf).softmax(-1) @ v

    def forward(self, t):
        b, n = t.shape
        x = self.e(t) + self.p(torch.arange(n, device=t.device))
        for i in range(self.layers):
            parts = self.qkv[i](self.normed(2 * i, x)).split(D, -1)
            q, k, v = (y.view(b, n, H, D // H).transpose(1, 2) for y in parts)
            x = x + self.o[i](self.attend(q, k, v).transpose(1, 2).reshape(b, n, D))
            x = x + self.down[i](getattr(F, self.act)(self.up[i](self.normed(2 * i + 1, x))))
        return self.u(self.normed(2 * self.layers, x))


def shuffled(model, seed):
    """The same function, its sums in another order: coordinates of the stream and hidden units in another one."""
    found = Layers(model.layers, model.norm, model.act, model.written).to(model.u.weight.dtype)
    found.load_state_dict(model.state_dict())
    draw = torch.Generator().manual_seed(seed)
    s = torch.randperm(D, generator=draw)
    with torch.no_grad():
        for part in (found.e, found.p, found.u):
            part.weight.data = part.weight[:, s]
        for i in range(model.layers):
            m = torch.randperm(M, generator=draw)
            found.qkv[i].weight.data = found.qkv[i].weight[:, s]
            found.o[i].weight.data, found.o[i].bias.data = found.o[i].weight[s], found.o[i].bias[s]
            found.up[i].weight.data, found.up[i].bias.data = found.up[i].weight[m][:, s], found.up[i].bias[m]
            found.down[i].weight.data, found.down[i].bias.data = found.down[i].weight[s][:, m], found.down[i].bias[s]
        for norm in found.norms:
            norm.weight.data, norm.bias.data = norm.weight[s], norm.bias[s]
    return found.eval()


def exact(model, tokens):
    """The logits of the last position, from the stored numbers, in 60 digits."""
    mp = mpmath.mp
    W = {name: [[mp.mpf(v) for v in row] for row in torch.atleast_2d(x.detach().double()).tolist()]
         for name, x in model.state_dict().items()}  # fmt: skip

    def affine(name, x):
        return [mpmath.fdot(row, x) + b for row, b in zip(W[name + ".weight"], W[name + ".bias"][0], strict=True)]

    def normed(i, x):
        if not model.norm:
            return x
        mean = mpmath.fsum(x) / D
        s = mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in x) / D + mp.mpf(1e-5))
        w, b = W[f"norms.{i}.weight"][0], W[f"norms.{i}.bias"][0]
        return [(v - mean) / s * a + c for v, a, c in zip(x, w, b, strict=True)]

    def activated(x):
        return [max(v, mp.mpf(0)) if model.act == "relu" else v * (1 + mpmath.erf(v / mpmath.sqrt(2))) / 2 for v in x]

    def added(x, y):
        return [a + b for a, b in zip(x, y, strict=True)]

    x = [added(W["e.weight"][t], W["p.weight"][i]) for i, t in enumerate(tokens)]
    for i in range(model.layers):
        qkv = [affine(f"qkv.{i}", normed(2 * i, row)) for row in x]
        out = []
        for n in range(L):
            mixed = []
            for h in range(H):
                a, w = h * D // H, D // H
                scores = [mpmath.fdot(qkv[n][a : a + w], qkv[k][D + a : D + a + w]) / mpmath.sqrt(w)
                          for k in range(n + 1)]  # fmt: skip
                e = [mpmath.exp(s - max(scores)) for s in scores]
                mixed += [
                    mpmath.fdot(e, [qkv[k][2 * D + a + j] for k in range(n + 1)]) / mpmath.fsum(e) for j in range(w)
                ]
            out.append(added(x[n], affine(f"o.{i}", mixed)))
        x = [added(row, affine(f"down.{i}", activated(affine(f"up.{i}", normed(2 * i + 1, row))))) for row in out]
    return affine("u", normed(2 * model.layers, x[-1]))


QUESTION = Question((L - 1,), None)


def enumerated(model, fmt=None):
    return Enumeration(capture(model.eval(), L), QUESTION, SETS, None if fmt is None else FORMATS[fmt])


def far(found, logits, tokens):
    """How far logits are from those in 60 digits, less the radius: more than 0 where they are not within it."""
    with mpmath.workdps(60):
        return max(
            float(abs(mpmath.mpf(v) - e) - r)
            for row, right in zip(logits.tolist(), (exact(found, t) for t in tokens.tolist()), strict=True)
            for v, e, r in zip(row, right, found.radius, strict=True)
            if r == r
        )


def is_held(model, fmt=None, tokens=ALL):
    """Whether plain runs, and runs in other orders, are within the radius of 60 digits where it is a number."""
    found = enumerated(model, fmt)
    model.radius = found.radius[0].tolist()
    plain, deviations = found.plain(tokens)
    is_covered = (deviations >= found.thresholds).all(1)
    runs = [plain[is_covered][:, 0, -1]]
    tokens = tokens[is_covered]
    with torch.no_grad():
        runs += [shuffled(model, seed)(tokens)[:, -1].double() for seed in range(4)]
    return all(not far(model, run, tokens) > 0 for run in runs)


KINDS = [
    {"layers": 1}, {"layers": 2, "norm": True}, {"layers": 2, "act": "gelu", "written": True},
    {"layers": 1, "norm": True, "act": "gelu"}, {"layers": 3, "norm": True, "written": True},
]  # fmt: skip


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_runs_in_float64_are_within_the_radius(kind):
    model = Layers(**kind).double().eval()
    assert is_held(model) and max(model.radius) < 1e-4
    found = enumerated(model)
    answers = torch.zeros(len(ALL), 1, dtype=torch.long)
    low, high = found(ALL, answers)
    with mpmath.workdps(60):
        for row, a, b in list(zip(ALL.tolist(), low.tolist(), high.tolist(), strict=True))[::6]:
            own, *others = exact(model, row)
            assert math.isnan(a) or a <= own - max(others) <= b
    assert float((~low.isnan()).double().mean()) > 0.8


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_runs_in_float32_are_within_the_radius(kind):
    model = Layers(**kind).float().eval()
    try:
        assert is_held(model, "float32")
    except NoRadius:
        assert kind["layers"] > 1


@pytest.mark.parametrize("kind", first(1, [{"layers": 1}, {"layers": 2, "norm": True}, {"layers": 1, "act": "gelu"}]))
@pytest.mark.parametrize("power", first(2, [-1060, 500, -540, *range(-1040, 1021, 60)]))
@pytest.mark.deep
def test_models_of_all_sizes(kind, power):
    """Stored numbers times 2^power: what underflows or overflows is in the radius, or there is none."""
    model = Layers(**kind).double().eval()
    for part in model.parameters():
        part.data.mul_(2.0 ** (power // 2)).mul_(2.0 ** (power - power // 2))
    try:
        assert is_held(model, tokens=ALL[::4])
    except NoRadius:
        assert power >= 40


def perturbed(model, by):
    """Whether runs whose tables are off by `by` stay within a radius that was told so."""
    original = Tables.balls

    def off(self, at):
        found = original(self, at)
        draw = torch.Generator().manual_seed(1)

        def moved(x):
            if isinstance(x, list):
                return [moved(part) for part in x]
            shift = by * (1 - 2 * torch.rand(x["mid"].shape, generator=draw).double())
            return {"mid": x["mid"] + shift, "rad": x["rad"] + shift.abs()}

        return [moved(x) for x in found]

    with mock.patch.object(Tables, "balls", off):
        found = enumerated(model)
    model.radius = found.radius[0].tolist()
    logits, deviations = found.plain(ALL)
    is_covered = (deviations >= found.thresholds).all(1)
    return not far(model, logits[is_covered][:, 0, -1], ALL[is_covered]) > 0


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_errors_of_the_tables_are_carried_to_the_end(kind):
    assert perturbed(Layers(**kind).double().eval(), 1e-5)


FAULTS = [
    (radius, "hull", "2 * rad.amax(0)", "0 * rad.amax(0)"),
    (radius, "hull", "(mid - rad).amin(0), (mid + rad).amax(0)", "(mid - rad)[0], (mid + rad)[0]"),
    (radius, "difference", "found = found + off(g, step.local)", "pass"),
    (linear, "product", "(SLOPES, slope, turned(y))", "(SLOPES, slope, Ball(0 * turned(y).mid))"),
    (radius, "_hulls", 'hull(found["mid"], found["rad"], at)', 'Ball(found["mid"][0], None)'),
]


@pytest.mark.parametrize("owner, name, right, wrong", first(2, FAULTS))
def test_wrong_radii_are_caught(owner, name, right, wrong):
    model = Layers(layers=1).double().eval()
    with planted(owner, name, right, wrong):
        try:
            assert name == "hull" and "amin" in right or not perturbed(model, 1e-5)
        except NoRadius:
            raise AssertionError("a fault that leaves no radius catches nothing") from None


def softmax_slopes(seed):
    """How much of its bound the difference of two softmaxes takes, one slope for each number."""
    draw = torch.Generator().manual_seed(seed)
    s = 4 * torch.randn(2, 5, generator=draw).double()
    g = torch.randn(5, generator=draw).double()
    weights = torch.softmax(s, -1)
    middle, apart = weights.mean(0), (weights[0] - weights[1]).abs() / 2
    steps = torch.linspace(0, 1, 2001).double()[:, None]
    p = torch.softmax(s[0] + steps * (s[1] - s[0]), -1)
    spread = (p - middle).abs().amax(0)
    pulled = normalisation.spread_of(Ball(g), Ball(middle, torch.maximum(spread, apart) + 1e-9), -1)
    low, high = pulled.ends
    slopes = p * (g - (p * g).sum(-1, keepdim=True))
    return bool(((slopes.amin(0) >= low - 1e-12) & (slopes.amax(0) <= high + 1e-12)).all())


def test_slopes_of_softmax():
    assert all(softmax_slopes(seed) for seed in range(50))
    for right, wrong in (("0.25", "0.1"), ("(p.mid + p.radius)", "0.3 * (p.mid + p.radius)")):
        with planted(normalisation, "spread_of", right, wrong):
            assert not all(softmax_slopes(seed) for seed in range(50))


def norm_slopes(seed):
    """Whether LayerNorm moves by no more than its slopes say between two vectors of a wide ball."""
    draw = torch.Generator().manual_seed(seed)
    d = 4
    x = torch.randn(d, generator=draw).double()
    x = x - x.mean()
    x = 0.5 * x / x.square().mean().sqrt()
    y = torch.randn(d, generator=draw).double()
    y = y - y.mean() - x * (x * y).sum() / x.square().sum()
    y = x + 1e-4 * y
    tape: list[Step] = []
    at = Arithmetic(FORMATS["float64"], has_norms=True, tape=tape)
    wide = Ball(torch.zeros(d).double(), torch.full((d,), 3.0).double())
    out, *_ = normalisation.layer_norm(at, wide, [d], None, None, 1e-12, least=0.4999)
    a, b = (v / v.square().mean().sqrt() for v in (x, y))
    g = (a - b) / (a - b).norm()
    pulled = tape[0].pull(Ball(g))[0]
    moved, bound = (a - b).norm(), pulled.deviation(-1)[0] * (x - y).norm()
    return bool(moved <= bound * (1 + 1e-6)) and bool(((out.mid - out.rad <= a) & (a <= out.mid + out.rad)).all())


def test_slopes_of_layer_norm_in_a_wide_ball():
    assert all(norm_slopes(seed) for seed in range(20))
    with planted(normalisation, "normal_slopes", "length(g)) / least", "0.5 * length(g)) / least"):
        assert not all(norm_slopes(seed) for seed in range(20))


def mixed_rows(seed):
    """Whether weights that move far keep their products with values within the ball."""
    draw = torch.Generator().manual_seed(seed)
    mid = torch.softmax(3 * torch.randn(1, 4, generator=draw).double(), -1)
    weights = torch.softmax(9 * torch.randn(64, 4, generator=draw).double(), -1)
    weights = torch.cat([weights, torch.eye(4).double()])
    values, off = torch.randn(4, 3, generator=draw).double(), 0.1
    x = Ball(mid, torch.ones(1, 4).double(), l1=torch.full((1, 1), 2.0).double())
    y = Ball(values, torch.full_like(values, off))
    low, high = linear.product(Arithmetic(FORMATS["float64"], has_norms=True, tape=[]), x, y).ends
    signs = torch.sign(torch.randn(64, 4, 3, generator=draw)).double()
    found = torch.cat([weights @ (values + off * s) for s in (signs[0], -signs[0], torch.ones(4, 3).double())])
    return bool(((low <= found) & (found <= high)).all())


def test_products_with_weights_that_sum_to_one():
    assert all(mixed_rows(seed) for seed in range(20))
    with planted(linear, "sharper", "by_sum = x.l1 * largest", "by_sum = 0.4 * x.l1 * largest"):
        assert not all(mixed_rows(seed) for seed in range(20))


def test_where_moves_slopes_to_what_was_chosen():
    condition = torch.tensor([True, False])
    x, y = (Ball(torch.tensor(v).double(), torch.ones(2).double()) for v in ([1.0, 2.0], [3.0, 4.0]))
    slope = Ball(torch.tensor([5.0, 7.0]).double())
    found = movement.chosen(slope, condition, x, y)
    assert [part.mid.tolist() for part in found] == [[5.0, 0.0], [0.0, 7.0]]


def test_inputs_on_which_layer_norm_divides_by_little_are_left():
    model = Layers(layers=1, norm=True).double().eval()
    with mock.patch.object(enumeration, "FLOOR", 1.1):
        low, high = enumerated(model)(ALL, torch.zeros(len(ALL), 1, dtype=torch.long))
    assert low.isnan().any() and (low.isnan() == high.isnan()).all()


def test_what_has_no_radius():
    model = Layers(layers=1).double().eval()
    with pytest.raises(NoRadius, match="4097 tokens"):
        Enumeration(capture(model, L), QUESTION, [range(4097)] * L)
    loud = Layers(layers=1).double()
    for part in loud.parameters():
        part.data.mul_(1e120)
    with pytest.raises(NoRadius, match="unbounded"):
        Enumeration(capture(loud.eval(), L), QUESTION, SETS)


def test_tables_are_looked_up_for_each_position():
    """Positions with token sets of their own, in any order of the axes."""
    model = Layers(layers=2, norm=True).double().eval()
    graph, sets = capture(model, L), [[2], [0, 2], [1, 2]]
    found = Enumeration(graph, QUESTION, sets)
    tokens = torch.tensor(list(itertools.product(*sets)))
    with torch.no_grad():
        assert (found.plain(tokens)[0][:, 0] - model(tokens)).abs().max() < 1e-13
    assert isinstance(found.plain, Plain) and found.tables.frontier


SAID_BY_IEEE = """
addmm baddbmm bmm cumsum dot linear matmul mean mm mv sum var _to_copy abs add all amax amin any bitwise_and
bitwise_not bitwise_or bitwise_xor clamp div eq ge gt hardtanh le leaky_relu logical_and logical_not
logical_or logical_xor lt maximum minimum mul ne neg reciprocal relu rsqrt rsub sqrt sub _unsafe_view alias
cat clone constant_pad_nd contiguous copy detach diagonal embedding expand flip gather index index_select
lift_fresh lift_fresh_copy permute repeat reshape roll select select_scatter slice slice_scatter split
split_with_sizes squeeze stack t transpose tril triu unbind unsqueeze view where _fused_rms_norm
_native_batch_norm_legit_no_training native_group_norm argmax argmin sort topk
""".split()  # noqa: SIM905


def test_every_operation_is_one_of_ieee_or_has_a_table_or_is_not_run():
    """A new rule fails here until somebody has said which of the three it is."""
    from verify.engine.plain import FOREIGN, OWN
    from verify.engine.rules.registry import RULES

    said = {name for name in RULES if name.split(".")[1] in SAID_BY_IEEE}
    powers = {"aten.pow.Tensor_Scalar"}  # by its exponent
    assert not (said & FOREIGN or said & set(OWN) or FOREIGN & set(OWN))
    assert said | FOREIGN | set(OWN) | powers == set(RULES)


@pytest.mark.parametrize("function", [F.softplus, F.elu, torch.log1p, lambda x: x**4, lambda x: F.log_softmax(x, -1)])
def test_a_function_of_a_library_is_not_run(function):
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.E = nn.Parameter(torch.rand(4, 3))

        def forward(self, x):
            return function(self.E[x].sum(1))

    graph = capture(Small().double().eval(), 2)
    with pytest.raises(NoRadius, match="has no table in float64"):
        Enumeration(graph, Question(None, range(3)), [range(4)] * 2)


def test_a_token_before_the_others():
    """Rows of an embedding that are computed from tokens are looked at in the tables."""

    class Begun(Layers):
        def forward(self, t):
            return super().forward(torch.cat([torch.zeros_like(t[:, :1]), t], 1)[:, : t.shape[1]])

    class Shifted(Layers):
        def forward(self, t):
            return super().forward(t - 1)

    begun, shifted = Begun(layers=1).double().eval(), Shifted(layers=1).double().eval()
    with torch.no_grad():
        assert (enumerated(begun).plain(ALL)[0][:, 0] - begun(ALL)).abs().max() < 1e-13
    with pytest.raises(NoRadius, match="fails on some token"):
        enumerated(shifted)


def drawn_margins(seed):
    """Logits of all sizes with radii of all sizes, and the right classes."""
    rng = np.random.default_rng(seed)
    N, positions, classes = 6, int(rng.integers(1, 4)), int(rng.integers(2, 5))
    size = (N, positions, classes)
    logits = rng.normal(size=size) * 2.0 ** rng.integers(-40, 10, size=size) + rng.choice([0.0, 2.0**20])
    radius = rng.random(size[1:]) * 2.0 ** rng.integers(-60, -20, size=size[1:])
    radius[rng.random(radius.shape) < 0.2] = 0.0
    return (*map(torch.from_numpy, (logits, radius)), torch.from_numpy(rng.integers(classes, size=(N, positions))))


def exact_margins(logits, radius, answers):
    """The ends of each input's least margin in fractions."""
    for row, right in zip(logits.tolist(), answers.tolist(), strict=True):
        low, high = [], []
        for own, numbers, radii in zip(right, row, radius.tolist(), strict=True):
            x, r = [*map(Fraction, numbers)], [*map(Fraction, radii)]
            rivals = [i for i in range(len(x)) if i != own]
            low.append(x[own] - r[own] - max(x[i] + r[i] for i in rivals))
            high.append(x[own] + r[own] - max(x[i] - r[i] for i in rivals))
        yield min(low), min(high)


def faults_in_margins():
    """How many bounds are too narrow, or wider than roundings of the largest logit account for."""
    found = 0
    for seed in range(60):
        given = drawn_margins(seed)
        slack = Fraction(2.0**-38) * (Fraction(float(given[0].abs().max())) + Fraction(float(given[1].max())))
        bounds = zip(*(x.tolist() for x in enumeration.margins_within(*given)), strict=True)
        for (low, high), (least, most) in zip(bounds, exact_margins(*given), strict=True):
            low, high = Fraction(low), Fraction(high)
            found += not least - slack <= low <= least or not most <= high <= most + slack
    return found


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("4 * U * (most + radius)", "0 * radius"),
        ("(most + radius)", "radius"),
        ("(own_down - rival_up).amin(1)", "(own_down - rival_up)[:, 0]"),
        ("(own_up - rival_down)", "(own_up - rival_up)"),
    ],
)
def test_margins_of_plain_runs_are_bounded(right, wrong):
    assert faults_in_margins() == 0
    with planted(enumeration, "margins_within", right, wrong):
        assert faults_in_margins() > 0


def test_logits_that_are_no_numbers_decide_nothing():
    """An infinite rival is no proof that an input is wrong, and changes no other input's bounds."""
    logits = torch.tensor([[[1.0, 0.0]], [[1.0, torch.inf]], [[torch.nan, 0.0]], [[torch.inf, 0.0]]]).double()
    low, high = enumeration.margins_within(
        logits, torch.full((1, 2), 0.25).double(), torch.zeros(4, 1, dtype=torch.long)
    )
    assert low.isnan().tolist() == high.isnan().tolist() == [False, True, True, True]
    assert 0.49 < float(low[0]) <= 0.5 and 1.5 <= float(high[0]) < 1.51
    low, high = enumeration.margins_within(
        logits[:1], torch.tensor([[0.0, torch.inf]]).double(), torch.zeros(1, 1).long()
    )
    assert float(low[0]) == -torch.inf and float(high[0]) == torch.inf
