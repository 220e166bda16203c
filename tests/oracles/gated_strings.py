"""Gated decays on every short string with 40 digits, from the formulas of the papers; and random ones."""

from __future__ import annotations

import mpmath
import torch

from constructions.recurrent import gated

mpmath.mp.dps = 40


def numbers(x):
    return [[mpmath.mpf(y) for y in row] for row in x.detach().double().reshape(-1, x.shape[-1]).tolist()]


def by_hand(model):
    """What each token keeps, adds and reads, from the formulas of the papers, with 40 digits."""
    part = {name: numbers(x) for name, x in model.cell.named_parameters()}
    if model.kind == "s4":
        return part["a"] * model.inputs, part["u"], part["c"] * model.inputs
    if model.kind == "rwkv":
        keep = [[mpmath.exp(-mpmath.exp(w)) for w in row] for row in part["w"]]
        return (
            keep,
            [[k * v for k, v in zip(*r, strict=True)] for r in zip(part["k"], part["v"], strict=True)],
            part["r"],
        )
    step = [[mpmath.log1p(mpmath.exp(d)) for d in row] for row in part["delta"]]
    keep = [[mpmath.exp(-s * mpmath.exp(a)) for s, a in zip(row, part["A"][0], strict=True)] for row in step]
    return keep, [[s * b for s, b in zip(*r, strict=True)] for r in zip(step, part["B"], strict=True)], part["C"]


def strings(model, K, length):
    """Every string of 1..length tokens: its last token, how often it was read, the state, and the logits."""
    keep, add, read = by_hand(model)
    V, b = numbers(model.readout.weight), numbers(model.readout.bias)[0]
    layer = None if model.layer is None else (numbers(model.layer.W), numbers(model.layer.U))
    queue = [((), [mpmath.mpf(0)] * model.hidden)]
    for string, before in queue:
        for x in range(K) if len(string) < length else ():
            h = [k * c + a for k, c, a in zip(keep[x], before, add[x], strict=True)]
            y = [r * c for r, c in zip(read[x], h, strict=True)]
            if layer is not None:
                y = [max(mpmath.mpf(0), mpmath.fdot(row, y) + u) for row, u in zip(layer[0], layer[1][x], strict=True)]
            whole = (*string, x)
            queue.append((whole, h))
            yield whole, h, [mpmath.fdot(row, y) + c for row, c in zip(V, b, strict=True)]


def random_model(kind, seed, *, has_layer, K=2, d=3, p=4, classes=3):
    """Random numbers, negative decays of S4 among them, and many neurons that may be on or off."""
    torch.manual_seed(seed)
    shapes = {"s4": [(d,), (K, d), (d,)], "mamba": [(d,), *[(K, d)] * 3], "rwkv": [(K, d)] * 4}[kind]
    cell = gated.CELLS[kind](*(torch.randn(shape, dtype=torch.float64) for shape in shapes))
    layer = gated.PositionWise(torch.randn(p, d).double(), torch.randn(K, p).double()) if has_layer else None
    V, b = torch.randn(classes, p if has_layer else d).double(), torch.randn(classes).double()
    return gated.GatedModel(cell, V, b, layer)
