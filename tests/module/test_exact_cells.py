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


def violations(drawn):
    """What does not hold of a drawn layer: "least", "low", "high" of gaps on cells, "point" of logits."""
    layer, classes = drawn.layer, len(drawn.layer.logits.constant.mid)
    found = []
    with ctx.workprec(700):
        real = {ranks: drawn.exact((*ranks, 0)) for ranks in INPUTS}
        cells = Cells(layer, ranks_of(np.stack(MASKS)))
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
