"""Bounds on cells and single inputs of drawn layers hold the exact numbers to the last bit; planted faults do not."""

import itertools
import random
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from flint import arb, ctx
from models.selection import first

from tests.models.drawn_layers import PLACES, RANKS, Drawn
from tests.oracles.exact_layer import FUNCTIONS
from tests.planted import planted
from verify.engine.balls import Ball
from verify.engine.one_layer import bounds, lines, points
from verify.engine.one_layer.bounds import Cells
from verify.engine.one_layer.points import Points
from verify.module.cells import entries_of
from verify.reduction import quotients
from verify.reduction.quotients import Quotients, Tables

INPUTS = list(itertools.product(range(RANKS), repeat=PLACES))
MASKS = [np.array(rows) for rows in itertools.product([[True, False], [False, True], [True, True]], repeat=PLACES)]


def outside(low, high, numbers):
    """Whether some numbers surely lie outside bounds; what is no number bounds nothing."""
    low, high = float(low), float(high)
    return (np.isfinite(low) and any(x < arb(low) for x in numbers)) or (
        np.isfinite(high) and any(x > arb(high) for x in numbers)
    )


def inside_violations(cells, layer, i, found):
    """What does not hold of a cell's own numbers: 1 / Z, arguments, results, sizes, and 1 / s."""
    wrong = []
    quotients = cells.quotients
    for h in range(quotients.n_heads):
        zeta, delta = (float(x[i, h]) for x in (quotients.zeta, quotients.delta))
        if np.isfinite(delta) and any(abs(one.zetas[h] - zeta) > delta for one in found):
            wrong.append("zeta")
    for b, block in enumerate(layer.blocks):
        ends = cells._results(b)
        for k in range(block.size):
            results = [one.results[b][k] for one in found]
            if outside(ends[0][i, k], ends[1][i, k], results):
                wrong.append("results")
            if outside(-cells.sizes[b][i, k], cells.sizes[b][i, k], results):
                wrong.append("size")
            if b in cells.ends:
                arguments = [one.arguments[b][k] for one in found]
                if outside(cells.ends[b][0][i, k], cells.ends[b][1][i, k], arguments):
                    wrong.append("ends")
        if b in cells.roots and outside(
            cells.roots[b].least[i, 0], cells.roots[b].most[i, 0], [one.roots[b] for one in found]
        ):
            wrong.append("root")
    return wrong


def token_violations(bounds, entries, i, mask, real, right, rivals):
    """Listed tokens and rivals whose bound is above the gap of an input of cell i with that token there."""
    found = []
    for entry, at in zip(bounds.T, entries.at[i].tolist(), strict=True):
        p, k = divmod(at, entries.tokens)
        if p == PLACES:
            continue
        inside = [r for r in INPUTS if r[p] == k and all(mask[q, r[q]] for q in range(PLACES))]
        assert inside, "a token of the cell"
        for bound, rival in zip(entry.tolist(), rivals, strict=True):
            if np.isfinite(bound) and any(real[r][right] - real[r][rival] < arb(bound) for r in inside):
                found.append("by_token")
    return found


def violations(drawn):
    """What does not hold of a drawn layer: "least", "low", "high" of gaps on cells, "point" of logits, and inside."""
    layer, classes = drawn.layer, len(drawn.layer.logits.constant.mid)
    found = []
    with ctx.workprec(700):
        every = {ranks: drawn.exact((*ranks, 0)) for ranks in INPUTS}
        real = {ranks: one.logits for ranks, one in every.items()}
        entries = entries_of(np.stack(MASKS))
        cells = Cells(layer, entries)
        for i, mask in enumerate(MASKS):
            on_it = [every[r] for r in INPUTS if all(mask[p, r[p]] for p in range(PLACES))]
            found += inside_violations(cells, layer, i, on_it)
        for right in range(classes):
            rivals = torch.tensor([[c for c in range(classes) if c != right]] * len(MASKS))
            gaps = cells.gaps(torch.full((len(MASKS),), right), rivals)
            least, _, _, by_token = cells.least(gaps, by_token=True)
            low, high = cells.range(gaps)
            for i, mask in enumerate(MASKS):
                inside = [real[r] for r in INPUTS if all(mask[p, r[p]] for p in range(PLACES))]
                found += token_violations(by_token[i], entries, i, mask, real, right, rivals[i].tolist())
                for j, rival in enumerate(rivals[i].tolist()):
                    gap = [logits[right] - logits[rival] for logits in inside]
                    ends = (("least", least, 1), ("low", low, 1), ("high", high, -1))
                    for name, end, sign in ends:
                        bound = float(end[i, j])
                        if np.isfinite(bound) and any(sign * g < sign * arb(bound) for g in gap):
                            found.append(name)
        points = Points(layer)(torch.tensor(INPUTS))
        for i, ranks in enumerate(INPUTS):
            for c in range(classes):
                mid, rad = arb(float(points.mid[i, c])), float(points.radius[i, c])
                if np.isfinite(rad) and abs(real[ranks][c] - mid) > arb(rad):
                    found.append("point")
    return found


KINDS = {
    "attention": [],
    "relu": [("relu", 3)],
    "norm": [("norm", 3)],
    "curved": [("gelu", 2)],
    "mlp": [("norm", 3), ("relu", 2), ("norm", 3)],
    "deep": [("silu", 2), ("norm", 2), ("tanh", 2)],
    "tanh form": [("gelu_tanh", 2), ("sigmoid", 2)],
    "rms": [("rms", 3)],
    "gated": [("rms", 2), ("silu", 2), ("square", 2), ("rms", 2)],
    "powers": [("cube", 2), ("square", 1), ("rsqrt", 2), ("reciprocal", 2)],
    "soft": [("softplus", 2), ("elu", 2), ("exp", 2), ("sqrt", 2)],
}
SCALES = {"one": (0,), "wide": (0, 40, -40), "far": (0, 300, -300, 500, -520)}


def draw(kind, scale, seed):
    heads = 1 + seed % 2
    return Drawn(seed, KINDS[kind], heads=heads, scales=SCALES[scale], radius=seed % 3 > 0, classes=2 + seed % 2,
                 faint=[0, 0, -400, -1000][seed // 2 % 4])  # fmt: skip


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 200), marks=pytest.mark.deep)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
def test_bounds_hold_exactly(kind, scale, seeds):
    """By machine code where it is at hand, and by torch for every third layer."""
    for seed in seeds:
        drawn = draw(kind, scale, seed)
        assert not violations(drawn), seed
        if seed % 3 == 1 or kind == "relu":
            with mock.patch.object(quotients, "is_compiled", lambda: False):
                assert not violations(drawn), seed


@pytest.fixture
def _in_torch(monkeypatch):
    """What machine code does is done by torch, whose lines have the faults."""
    monkeypatch.setattr(quotients, "is_compiled", lambda: False)


# a layer that shows the fault, and the fault
FAULTS = [
    (("attention", "one", 0), Quotients, "_range", "delta * largest", "0 * largest"),
    (("attention", "one", 0), Quotients, "_range", "constant + mu.sum(0)", "constant + 0.9 * mu.sum(0)"),
    (
        ("attention", "one", 0),
        Quotients,
        "_range",
        "mul_(zeta.unsqueeze(-1))",
        "mul_(zeta.unsqueeze(-1) / 2)",
    ),
    (("attention", "one", 0), Quotients, "less", "torch.sub", "torch.add"),
    (("attention", "one", 1), Quotients, "__init__", "self.few / 2 + self.many / 2", "self.many"),
    (("attention", "one", 0), Quotients, "__init__", "(self.many / 2 - self.few / 2)", "0 * self.few"),
    (("attention", "one", 1), Quotients, "_above_chords", "(mu + b).sum(0)", "mu.sum(0)"),
    (
        ("attention", "one", 1),
        Quotients,
        "_above_chords",
        "torch.minimum((many - a) * low, (few - a) * high)",
        "0 * low",
    ),
    (
        ("attention", "one", 0),
        Quotients,
        "_chords_in_torch",
        "self.least_sum(combined)",
        "self.greatest_sum(combined)",
    ),
    (("attention", "one", 0), Quotients, "_above_chords", "-= combined", "-= -0.1 + combined"),
    (("relu", "one", 1), Quotients, "_above_chords", "alpha=1 - 4 * U", "alpha=2"),
    (("norm", "one", 0), Cells, "least", "widened(low, at(extra), -1)", "low"),
    (("relu", "one", 1), Quotients, "_chords_in_torch", "mul_(a.unsqueeze(-1))", "mul_(a.unsqueeze(-1) / 2)"),
    (("attention", "one", 0), Quotients, "least_sum", ".amin(-1)", ".mean(-1)"),
    (("attention", "one", 0), Quotients, "greatest_sum", ".amax(-1)", ".mean(-1)"),
    (("norm", "one", 0), Quotients, "spread", "(found + off", "(0 * found + off"),
    (
        ("norm", "one", 0),
        Quotients,
        "spread",
        "delta * (length + rounding + underflow)",
        "0 * (length + rounding + underflow)",
    ),
    (("relu", "one", 0), lines, "of_relu", "torch.where(on | off, 0.0, over)", "torch.where(on | off, 0.0, 0 * over)"),
    (("relu", "wide", 1), lines, "of_relu", "(high > -low).double()", "2 * (high > -low).double()"),
    (("mlp", "one", 0), lines, "of_relu", "size + nothing", "0 * size + nothing"),
    (("curved", "one", 0), lines, "of_curved", "((rest - off).amin(0) - bent)", "((rest - off).amax(0) - bent)"),
    (("curved", "one", 0), lines, "of_curved", "((rest + off).amax(0) + bent)", "((rest + off).amin(0) + bent)"),
    (("relu", "one", 0), Cells, "_by_lines", "a >= 0", "a < 0"),
    (("relu", "one", 0), Cells, "_by_lines", "f.constant + moved.sum(-1)", "f.constant"),
    (("relu", "one", 0), Cells, "_through", "c @ part.mid", "0.9 * c @ part.mid"),
    (("relu", "one", 0), Cells, "_through", "parts[source] + new", "new"),
    (("mlp", "one", 0), Cells, "_through", "f.constant + constant", "f.constant"),
    (("norm", "one", 0), Cells, "_argument", "a - a.mean(-1, keepdim=True)", "a"),
    (("rms", "one", 0), Cells, "_argument", "== RMS", "!= RMS"),
    (("rms", "one", 0), Cells, "_root", "return x if block.function == RMS", "return x if block.function != RMS"),
    (("rms", "one", 0), Cells, "_root", "if block.function != RMS", "if block.function == RMS"),
    (("rms", "one", 0), Points, "_result", "== RMS", "!= RMS"),
    (("powers", "one", 1), Points, "_result", "value(block.function, ball)", "value(block.function, Ball(mid))"),
    (("norm", "one", 0), Cells, "_through_root", "(half * largest) * ENLARGE", "0 * (half * largest)"),
    (("norm", "one", 0), Cells, "_through_root", "root.least / 2 + root.most / 2", "root.most"),
    (
        ("norm", "one", 0),
        Cells,
        "_through_root",
        "(root.most / 2 - root.least / 2)",
        "0 * (root.most / 2 - root.least / 2)",
    ),
    (("deep", "wide", 0), Cells, "_through_root", "f.constant + shift", "f.constant"),
    (
        ("norm", "one", 0),
        Cells,
        "_through_root",
        "parts[source] + scaled if source in parts",
        "scaled if source in parts",
    ),
    (("norm", "one", 0), Cells, "_root", "far = (length + distance)", "far = length"),
    (("norm", "one", 0), Cells, "_root", " - distance)", ")"),
    (("norm", "one", 0), Cells, "_root", "distance + self.quotients.spread(u)", "distance"),
    (("mlp", "one", 0), Cells, "_root", "middle + ((low / 2 + high / 2)", "middle + (0 * (low / 2 + high / 2)"),
    (("deep", "one", 0), Cells, "_root", "distance + (half @", "distance + (0 * half @"),
    (("norm", "one", 0), Cells, "_root", "middle - middle.mean(-1, keepdim=True)", "middle"),
    (("norm", "one", 0), Cells, "_root", "+ block.eps) * (1 - 8 * U)", "+ 2 * block.eps) * (1 - 8 * U)"),
    (("attention", "one", 0), Cells, "gaps", "- part.mid[rivals]", "- 0.9 * part.mid[rivals]"),
    (("relu", "one", 0), Cells, "gaps", "c[right].unsqueeze(1) - c[rivals]", "c[right].unsqueeze(1) - 0.9 * c[rivals]"),
    (("norm", "wide", 1), Cells, "_by_root", "torch.minimum(low * root.least, low * root.most)", "low * root.most"),
    (("norm", "wide", 1), Cells, "_by_root", "torch.maximum(high * root.least, high * root.most)", "high * root.most"),
    (
        ("norm", "one", 0),
        Cells,
        "_by_root",
        "widened(low, extra, -1), widened(high, extra, 1)",
        "low, widened(high, extra, 1)",
    ),
    (
        ("norm", "one", 0),
        Cells,
        "_by_root",
        "widened(low, extra, -1), widened(high, extra, 1)",
        "widened(low, extra, -1), high",
    ),
    (
        ("norm", "wide", 1),
        Cells,
        "least",
        "torch.minimum(low * at(root.least), low * at(root.most))",
        "low * at(root.most)",
    ),
    (("norm", "one", 0), Cells, "least", "widened(low, at(extra), -1)", "low"),
    (("attention", "one", 11), Tables, "rows", "(self.weights - self.weight_radii)", "self.weights"),
    (
        ("attention", "one", 4),
        Tables,
        "rows",
        "clamp(min=0), self.weights + self.weight_radii",
        "clamp(min=0), self.weights",
    ),
    (
        ("attention", "wide", 4),
        Tables,
        "weight_errors",
        "self.rounding * self.weights + self.weight_radii",
        "self.rounding * self.weights",
    ),
    (
        ("relu", "one", 1),
        Cells,
        "_rounding",
        "(g * given.constant.mid.abs() + given.constant.radius)",
        "(g * given.constant.mid.abs())",
    ),
    (("curved", "one", 1), Cells, "_rounding", "(g * absolute + part.radius)", "(g * absolute)"),
    (("attention", "one", 1), Cells, "gaps", "r[right].unsqueeze(1) + r[rivals] + 2", "2"),
    (("relu", "one", 1), Cells, "gaps", "part.radius[right].unsqueeze(1) + part.radius[rivals] + 2", "2"),
    (
        ("attention", "wide", 4),
        Points,
        "__init__",
        "share(values.radius, at) + r * w_share",
        "share(values.radius, at)",
    ),
    (("relu", "wide", 6), Points, "__init__", "rest(values.radius, at) + r * w_rest", "r * w_rest"),
    (("attention", "one", 14), Points, "__init__", "rest(values.radius, at) + r * w_rest", "rest(values.radius, at)"),
    (("relu", "wide", 6), Points, "__init__", "by_share + by_rest", "by_share"),
    (("relu", "one", 1), Points, "_affine", "absolute @ off + part", "part"),
    (("curved", "one", 1), Points, "_affine", "absolute @ off + part.radius @ largest", "absolute @ off"),
    (
        ("attention", "one", 1),
        Points,
        "_affine",
        "mid, rad = given.constant.mid, given.constant.radius",
        "mid, rad = given.constant.mid, 0 * given.constant.radius",
    ),
    (("relu", "one", 1), Points, "_result", "found.radius.amax(0) + off", "found.radius.amax(0)"),
    (("relu", "wide", 12), Quotients, "errors", "(share + mu.abs() * w_share", "(0 * share + mu.abs() * w_share"),
    (("relu", "wide", 6), Quotients, "errors", "(rest + mu.abs() * w_rest", "(0 * rest + mu.abs() * w_rest"),
    (("attention", "one", 14), Quotients, "errors", "(rest + mu.abs() * w_rest", "(rest + 0 * w_rest"),
    (("attention", "far", 6), Quotients, "errors", "self.places * ENLARGE) + self.faint", "self.places * ENLARGE)"),
    (
        ("attention", "one", 14),
        Quotients,
        "_above_chords",
        "share + rest * many + a * (share * by_head(self.most) + rest)",
        "0 * a",
    ),
    (("attention", "wide", 4), Quotients, "_range", "(zeta * wrong * 2 + delta", "(delta"),
    (
        ("attention", "one", 2),
        Quotients,
        "_above_chords",
        "off = error + (",
        "off = 0 * error + (",
    ),
    (("deep", "wide", 6), lines, "of_curved", "off = found.radius + 4", "off = 4"),
    (("attention", "one", 1), Cells, "_atoms", "(f.error + self.added * f.size)", "(self.added * f.size)"),
    (("relu", "one", 1), Cells, "_by_lines", "f.error + gamma", "gamma"),
    (
        ("relu", "one", 1),
        Cells,
        "_through",
        "f.error + self._weighed(c.abs(), self.rounding[b]) + count * LEAST",
        "f.error + count * LEAST",
    ),
    (("relu", "one", 1), Cells, "_through", "f.error + self._weighed", "self._weighed"),
    (("mlp", "one", 4), Cells, "_plus_constant", "f.error + self", "self"),
    (
        ("mlp", "one", 1),
        Cells,
        "_through_root",
        "f.error + (middle * q.error) * ENLARGE + LEAST",
        "(middle * q.error) * ENLARGE + LEAST",
    ),
    (("deep", "one", 2), Cells, "_through_root", "f.error + (middle * q.error) * ENLARGE + LEAST", "f.error + LEAST"),
    (("curved", "wide", 0), Points, "_affine", "(rad + g * size)", "rad"),
    (("norm", "one", 0), Quotients, "longest", " + torch.stack(apart).sum(0) * ENLARGE", ""),
]


@pytest.mark.usefixtures("_in_torch")
@pytest.mark.parametrize("shown_by, owner, function, right, wrong", first(8, FAULTS))
def test_a_fault_in_a_bound_is_caught(shown_by, owner, function, right, wrong):
    with planted(owner, function, right, wrong):
        assert violations(draw(*shown_by))


@pytest.mark.usefixtures("_in_torch")
@pytest.mark.parametrize(
    "end, right, wrong",
    [
        ("few", "clamp(max=0.0)", "clamp(min=0.0)"),
        ("many", "clamp(min=0.0)", "clamp(max=0.0)"),
        ("few", "(at.least - g", "(at.least + 1e13 * g"),
        ("many", "(at.most + g", "(at.most - 1e13 * g"),
    ],
)
def test_a_line_of_any_slope_is_below_both_ends(end, right, wrong):
    """The chord's slope makes both ends equal, so that either line alone would do."""
    layers = [draw("attention", "one", seed) for seed in range(4)]
    with planted(Quotients, "_chords_in_torch", "torch.minimum(torch.maximum(a, few), many)", f"{end}.expand_as(a)"):
        assert not any(map(violations, layers))
        with planted(Quotients, "_above_chords", right, wrong):
            assert any(map(violations, layers))


NONE = {"U": 0.0, "LEAST": 0.0, "ENLARGE": 1.0, "FAINT_SQUARES": 0.0, "gamma": lambda n: 0.0}
ROUNDINGS = [
    (("attention", "one", 0), [quotients], NONE),
    (("relu", "one", 0), [quotients], ["gamma"]),
    (("norm", "far", 1), [bounds], NONE),
    (("norm", "wide", 3), [bounds], ["gamma"]),
    (("tanh form", "far", 6), [lines], NONE),
    (("attention", "one", 0), [points], ["gamma"]),
    (("attention", "far", 6), [quotients, bounds, lines, points], ["LEAST"]),
]


@pytest.mark.parametrize("shown_by, files, names", ROUNDINGS)
def test_bounds_without_a_files_roundings_are_caught(shown_by, files, names):
    """The terms for rounding cover each other in part, so that they are taken away together."""
    drawn = draw(*shown_by)
    patches = [
        mock.patch.multiple(file, **{name: NONE[name] for name in names if hasattr(file, name)}) for file in files
    ]
    for patch in patches:
        patch.start()
    try:
        assert violations(drawn)
    finally:
        for patch in patches:
            patch.stop()


def lines_apart(function, near=None):
    """Whether a line or a size does not hold somewhere on intervals of all widths, densely; some near 0, or 20."""
    rng = np.random.default_rng(0)
    low = torch.from_numpy(np.concatenate([rng.normal(size=200) * 3, [0.0, -1.0, -1.0, 0.5]]))
    if near is not None:
        low = low.abs() * near if function != "softplus" else 20 + low * near
    width = torch.from_numpy(np.concatenate([np.exp(rng.normal(size=200) * 2), [1.0, 1.0, 2.0, 0.0]])) * (near or 1.0)
    high = low + width
    found = lines.lines(function, low, high)
    z = low + width * torch.linspace(0, 1, 400, dtype=torch.float64).unsqueeze(1)
    z = torch.minimum(z, high)
    f = lines.value(function, Ball(z)).mid
    slack = 1e-13 * (1 + z.abs())
    return bool(
        (
            (found.below * z + found.under > f + slack * (1 + f.abs()))
            | (found.above * z + found.over < f - slack * (1 + f.abs()))
            | (f.abs() > found.size + slack * (1 + f.abs()))
        ).any()
    )


def bends_apart(function):
    """Whether a function is steeper or bends more on an interval than is said, by differences of exact values."""
    rng, found = random.Random(0), False
    with ctx.workprec(200):
        for _ in range(40):
            low = rng.choice([1e-3, 0.1, 1.0, 3.0]) * (1 + rng.random()) - (
                4.0 if function in ("square", "cube") else 0.0
            )
            high, h = low * (1 + rng.random()) if low > 0 else low + 5 * rng.random(), arb(2) ** -60
            curvature, steepest = (
                float(x) for x in lines.bends(function, *torch.tensor([[low], [high]], dtype=torch.float64))
            )
            for z in (low, high, (low + high) / 2):
                f = [FUNCTIONS[function](arb(z) + i * h) for i in (-1, 0, 1)]
                found |= bool(abs(f[2] - f[0]) / (2 * h) > arb(steepest) * (1 + 1e-9))
                found |= bool(abs(f[2] - 2 * f[1] + f[0]) / h**2 > arb(curvature) * (1 + 1e-9))
    return found


@pytest.mark.parametrize("function", lines.LOCAL)
def test_functions_bend_no_more_than_is_said(function):
    assert not bends_apart(function)


@pytest.mark.parametrize(
    "function, name, right, wrong",
    [
        ("reciprocal", "off_zero", "torch.minimum(low.abs(), high.abs())", "torch.maximum(low.abs(), high.abs())"),
        ("sqrt", "above_zero", "low, torch.nan", "1 + low, torch.nan"),
        ("rsqrt", "above_zero", "low, torch.nan", "1.1 * low, torch.nan"),
        ("cube", "largest", "torch.maximum(low.abs(), high.abs())", "torch.minimum(low.abs(), high.abs())"),
        ("square", "bends", "bound * ENLARGE", "0.9 * bound"),
        ("exp", "bends", "bound * ENLARGE", "0.9 * bound"),
    ],
)
def test_a_fault_in_a_bend_is_caught(function, name, right, wrong):
    with planted(lines, name, right, wrong):
        assert bends_apart(function)


@pytest.mark.parametrize("function", [*lines.LOCAL, "softplus"])
def test_lines_hold_where_functions_are_steep(function):
    assert not lines_apart(function)
    assert not lines_apart(function, 1e-3)


@pytest.mark.parametrize("function", lines.SLOPES)
def test_lines_hold_on_dense_points(function):
    assert not lines_apart(function)
    z = torch.linspace(-12, 12, 24001, dtype=torch.float64)
    f = lines.value(function, Ball(z)).mid
    assert float((f.diff() / z.diff()).abs().max()) <= lines.SLOPES[function]
    if function in lines.CURVED:
        curvature = float((f.diff().diff() / 1e-6).abs().max())
        assert 0.9 * lines.CURVED[function][0] < curvature <= lines.CURVED[function][0] + 1e-6


@pytest.mark.parametrize(
    "function, name, right, wrong",
    [
        ("gelu", "of_curved", "curvature / 8 *", "0 *"),
        ("square", "of_curved", "(found.size.amax(0) + steepest * gap)", "0 * low"),
        ("reciprocal", "off_zero", "high.abs()), torch.nan", "high.abs()), high - low"),
        ("softplus", "of_curved", "+ FALLS.get(function, 0.0)", ""),
        (
            "tanh",
            "of_curved",
            "(steepest * torch.maximum(low.abs(), high.abs()) + AT_ZERO.get(function, 0.0))",
            "0 * low",
        ),
        ("relu", "of_relu", "slope + nothing", "0.5 * slope + nothing"),
    ],
)
def test_a_fault_in_a_line_is_caught(function, name, right, wrong):
    with planted(lines, name, right, wrong):
        assert lines_apart(function) or lines_apart(function, 1e-3)


def test_radii_of_values_are_in_their_errors():
    """Drawn models do not show it: what a value may be off goes to the errors of every function."""

    def error():
        one, zero = torch.ones(1, 2, 3, dtype=torch.float64), torch.zeros(1, 2, 3, dtype=torch.float64)
        tables = Tables(one, zero, zero, one / 2, torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.float64))
        share, rest = tables.value_errors
        return float(share[0] + rest[0])

    assert error() >= 0.5
    with planted(Tables, "value_errors", "self.values.abs() + self.value_radii", "self.values.abs()"):
        assert error() < 0.1


def least_of_sharp(faint, value, radius):
    """The lower bound on one atom: a token of weight 1 and value 5, or one of a faint weight, as what is fixed has."""
    numbers = torch.tensor([[[1.0, faint], [faint, faint]]], dtype=torch.float64)
    values = torch.tensor([[[5.0, faint * value], [0.0, 0.0]]], dtype=torch.float64)
    off = torch.tensor([[[0.0, faint * radius], [0.0, 0.0]]], dtype=torch.float64)
    tables = Tables(numbers, 0 * numbers, values, off, torch.zeros(1, dtype=torch.long), torch.full((1,), 9.0).double())
    one, zero = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    return float(Quotients(tables, entries_of(np.ones((1, 1, 2), dtype=bool))).least(one, zero, zero).low)


@pytest.mark.parametrize("faint", [1e-8, 1e-25, 1e-60, 2.0**-700])
@pytest.mark.parametrize("value", [-3.0, 0.5, 4.0])
def test_a_head_that_sees_one_token_alone_is_bounded_by_what_it_sees_else(faint, value):
    """1 / Z is between 1 and 1 / (2 faint), and the least quotient is value / 2, where Z is least."""
    assert value / 2 - 1e-4 < least_of_sharp(faint, value, 1e-9) <= value / 2 - 0.5e-9
    assert least_of_sharp(faint, value, 1.0) <= value / 2 - 0.5


@pytest.mark.parametrize("name, right, wrong", [("_above_chords", "share + rest * many + a", "share + a")])
def test_radii_of_faint_values_are_divided_by_the_least_sum(name, right, wrong):
    with planted(Quotients, name, right, wrong):
        assert least_of_sharp(2.0**-700, 0.5, 1.0) > -0.25


def beyond_faint_values():
    """How many lower bounds are above a difference of two equal atoms, times some 2^150, of weights of 2^-1020.

    The values are so faint that what float64 rounds of them underflows, and what it rounds of their products does not.
    """
    rng, found = np.random.default_rng(0), 0
    one, zero = torch.ones(2, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(50):
        w, x = (torch.tensor(np.ldexp(rng.random((1, 1, 2)) + 0.5, power)) for power in (-1020, -1050))
        values = torch.cat([x, x])
        tables = Tables(w, 0 * w, values, 0 * values, torch.zeros(2, dtype=torch.long), one)
        large = np.ldexp(rng.random() + 1, 150)
        u = torch.tensor([[[large, -np.nextafter(large, np.inf)]]], dtype=torch.float64)
        factor = sum(map(Fraction, u.flatten().tolist()))
        least = min(factor * Fraction(a) / Fraction(b) for a, b in zip(x[0, 0].tolist(), w[0, 0].tolist(), strict=True))
        low = Quotients(tables, quotients.Entries.of(np.ones((1, 1, 2), dtype=bool))).least(u, zero, zero).low
        found += Fraction(float(low)) > least
    return found


def test_what_underflows_in_an_error_is_multiplied_as_well():
    assert beyond_faint_values() == 0
    with planted(Tables, "_shares", "errors + LEAST, (", "errors, ("):
        assert beyond_faint_values() > 10
