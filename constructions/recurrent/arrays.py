"""Recurrent networks before their modules are made: weights that builders fill in, a run of them, and their file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from flint import arb, ctx

from constructions.model_arrays import Array, ModelArrays, file_of, name_of, rounded_to

if TYPE_CHECKING:
    import torch

METADATA_KEY = "weightproof"
CELLS = "constructions.recurrent.model:RecurrentModel"
LINEAR = "constructions.recurrent.linear:LinearModel"
ROTATION = "constructions.recurrent.linear:RotationModel"
GATED = "constructions.recurrent.gated:GatedModel"
RESIDUAL = "constructions.recurrent.residual:ResidualModel"
KINDS = {"rnn": 1, "gru": 3, "lstm": 4}  # rows of weight_hh for each hidden unit
ACTIVATIONS = ("tanh", "relu")
TABLES = {"mamba": ("A", "delta", "B", "C"), "rwkv": ("w", "k", "v", "r"), "s4": ("a", "u", "c")}
BITS = 128  # of functions that are rounded once


def of_cells(
    kind: str, *, hidden: int, classes: int, inputs: int = 1, activation: str = "tanh", dtype: torch.dtype | str
) -> ModelArrays:
    """One layer of RNN, GRU or LSTM cells and a readout, all numbers 0: a RecurrentModel.

    >>> sorted(of_cells("lstm", hidden=3, classes=2, dtype="float32").weights)[:2]
    ['cell.bias_hh_l0', 'cell.bias_ih_l0']
    """
    sizes = {"kind": kind, "hidden": hidden, "classes": classes, "inputs": inputs, "activation": activation}
    rows = KINDS[kind] * hidden
    shapes = {
        "cell.weight_ih_l0": (rows, inputs), "cell.weight_hh_l0": (rows, hidden), "cell.bias_ih_l0": (rows,),
        "cell.bias_hh_l0": (rows,), "readout.weight": (classes, hidden), "readout.bias": (classes,),
    }  # fmt: skip
    return ModelArrays.zeros(CELLS, name_of(dtype), sizes, shapes, layers=1, types=None, vocabulary=inputs)


def of_one_token(
    made_by: str, kind: str, cell: dict[str, Array], V: Array, b: Array, dtype: torch.dtype | str
) -> ModelArrays:
    """A recurrence of one repeated token with these weights, rounded: a LinearModel, or a RotationModel.

    >>> of_one_token(LINEAR, "ssm", {"A": np.eye(1), "B": np.ones(1)}, np.ones((2, 1)), np.zeros(2), "float64").hidden
    1
    """
    sizes = {"kind": kind, "hidden": len(next(iter(cell.values()))), "classes": len(b)}
    weights = _copied(
        {f"cell.{name}": value for name, value in cell.items()} | {"readout.weight": V, "readout.bias": b}
    )
    facts = {"inputs": 1, "layers": 1, "types": None, "vocabulary": 1, "activation": "none"}
    return ModelArrays(f"{made_by}.zeros", name_of(dtype), sizes, weights, facts).rounded()


def of_gated(
    kind: str,
    cell: dict[str, Array],
    V: Array,
    b: Array,
    dtype: torch.dtype | str,
    layer: dict[str, Array] | None = None,
) -> ModelArrays:
    """A layer of positive decays with these weights, rounded, and the neurons W and U after it, if any: a GatedModel.

    >>> one = np.ones((1, 1))
    >>> of_gated("s4", {"a": one[0] / 2, "u": one, "c": one[0]}, one, one[0], "float64").activation
    'none'
    """
    inputs, hidden = cell[TABLES[kind][1]].shape
    sizes = {"kind": kind, "inputs": inputs, "hidden": hidden, "classes": len(b), "neurons": V.shape[1] if layer else 0}
    weights = {f"cell.{name}": value for name, value in cell.items()}
    weights |= {f"layer.{name}": value for name, value in (layer or {}).items()}
    weights |= {"readout.weight": V, "readout.bias": b}
    facts = {"layers": 1, "types": None, "vocabulary": inputs, "activation": "relu" if layer else "none"}
    return ModelArrays(f"{GATED}.zeros", name_of(dtype), sizes, _copied(weights), facts).rounded()


def _copied(weights: dict[str, Array]) -> dict[str, Array]:
    """Arrays of their own in place of parts of others."""
    return {name: np.array(x, np.float64, order="C") for name, x in weights.items()}


def nearest(function: Callable[[arb], arb], x: Array) -> Array:
    """The float64 numbers nearest to a function's values, in whose last bit libraries and machines differ.

    >>> nearest(arb.tanh, np.array([0.0, 1.0])).tolist()
    [0.0, 0.7615941559557649]
    """
    with ctx.workprec(BITS):
        return np.array([float(function(arb(v))) for v in x.tolist()])


def tables(kind: str, cell: dict[str, Array], dtype: str) -> tuple[Array, Array, Array]:
    """What each token keeps, adds and reads of each state (K, d), each operation rounded to the dtype.

    >>> tables("rwkv", {name: np.zeros((1, 1)) for name in "wkvr"}, "float16")[0]
    array([[0.36791992]])
    """

    def of(x: Array) -> Array:
        return rounded_to(dtype, x)

    if kind == "s4":
        a, u, c = (cell[name] for name in TABLES[kind])
        return np.broadcast_to(a, u.shape), u, np.broadcast_to(c, u.shape)
    if kind == "rwkv":
        return of(np.exp(-of(np.exp(cell["w"])))), of(cell["k"] * cell["v"]), cell["r"]
    step = softplus(cell["delta"], dtype)
    return of(np.exp(-of(step * of(np.exp(cell["A"]))))), of(step * cell["B"]), cell["C"]


def softplus(x: Array, dtype: str) -> Array:
    """ln(1 + e^x), rounded once.

    >>> softplus(np.zeros(1), "float64")
    array([0.69314718])
    """
    return rounded_to(dtype, np.log1p(np.exp(x)))


def logits(model: ModelArrays, tokens: Sequence[int]) -> Array:
    """The logits at the end of a string, from a run of the stored numbers in float64.

    >>> from constructions.recurrent.counters_arrays import ring
    >>> logits(ring(m=3), [0, 0]).tolist()
    [0.0, 1.0, 0.0]
    """
    w, seen = model.weights, np.zeros(0)
    V, b = w["readout.weight"], w["readout.bias"]
    h, c = np.zeros(model.hidden), np.zeros(model.hidden)
    if model.made_by == CELLS:
        inputs = np.eye(model.inputs)
        for token in tokens:
            a = w["cell.weight_ih_l0"] @ inputs[token] + w["cell.bias_ih_l0"] + w["cell.bias_hh_l0"]
            a = a + w["cell.weight_hh_l0"] @ h
            if model.kind == "lstm":
                i, f, g, o = a.reshape(4, -1)
                c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
                h = _sigmoid(o) * np.tanh(c)
            else:
                assert model.kind == "rnn"
                h = np.tanh(a) if model.activation == "tanh" else np.maximum(a, 0.0)
        seen = h
    elif model.made_by.startswith(LINEAR):
        for _ in tokens:
            h = w["cell.A"] @ h + w["cell.B"]
        seen = h
    elif model.made_by.startswith(ROTATION):
        turn, z = np.exp(1j * w["cell.omega"]), np.zeros(model.hidden, complex)
        for _ in tokens:
            z = turn * z + 1
        seen = np.concatenate([z.real, z.imag])
    else:
        cell = {name: w[f"cell.{name}"] for name in TABLES[model.kind]}
        keep, add, read = tables(model.kind, cell, "float64")
        for token in tokens:
            h = keep[token] * h + add[token]
            seen = read[token] * h
            if model.neurons:
                seen = np.maximum(w["layer.W"] @ seen + w["layer.U"][token], 0.0)
    result: Array = V @ seen + b
    return result


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def as_bytes(model: ModelArrays) -> bytes:
    """The safetensors file of a network, its kind in the metadata.

    >>> from constructions.recurrent import counters, counters_arrays, model
    >>> as_bytes(counters_arrays.ring(m=3)) == model.as_bytes(counters.ring(m=3))
    True
    """
    header = {"activation": model.activation} if model.made_by == CELLS else {}
    return file_of(model, {}, {METADATA_KEY: json.dumps(header | {"model": model.kind})})
