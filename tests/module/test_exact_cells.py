"""Bounds on cells and single inputs of drawn layers hold the exact numbers to the last bit; planted faults do not."""

import itertools

import numpy as np
import pytest
import torch
from flint import arb, ctx

from tests.models.drawn_layers import PLACES, RANKS, Drawn
from verify.engine.one_layer.bounds import Cells
from verify.engine.one_layer.points import Points
from verify.module.cells import ranks_of

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


def violations(drawn):
    """What does not hold of a drawn layer: "least", "low", "high" of gaps on cells, "point" of logits, and inside."""
    layer, classes = drawn.layer, len(drawn.layer.logits.constant.mid)
    found = []
    with ctx.workprec(700):
        every = {ranks: drawn.exact((*ranks, 0)) for ranks in INPUTS}
        real = {ranks: one.logits for ranks, one in every.items()}
        cells = Cells(layer, ranks_of(np.stack(MASKS)))
        for i, mask in enumerate(MASKS):
            on_it = [every[r] for r in INPUTS if all(mask[p, r[p]] for p in range(PLACES))]
            found += inside_violations(cells, layer, i, on_it)
        for right in range(classes):
            rivals = torch.tensor([[c for c in range(classes) if c != right]] * len(MASKS))
            gaps = cells.gaps(torch.full((len(MASKS),), right), rivals)
            least, _ = cells.least(gaps)
            low, high = cells.range(gaps)
            for i, mask in enumerate(MASKS):
                inside = [real[r] for r in INPUTS if all(mask[p, r[p]] for p in range(PLACES))]
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
}
SCALES = {"one": (0,), "wide": (0, 40, -40), "far": (0, 300, -300, 500, -520)}


def draw(kind, scale, seed):
    heads = 1 + seed % 2
    return Drawn(seed, KINDS[kind], heads=heads, scales=SCALES[scale], radius=seed % 3 > 0, classes=2 + seed % 2,
                 faint=[0, 0, -400, -1000][seed // 2 % 4])  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
def test_bounds_hold_exactly(kind, scale):
    for seed in range(6):
        assert not violations(draw(kind, scale, seed)), seed
