"""The same decoder with GELU in place of ReLU: neurons so steep that between two counts they are one or the other."""

from __future__ import annotations

from dataclasses import replace

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays

GELUS = ("gelu", "gelu_tanh")
STEEP = 128  # of neurons that read whole numbers, up to 1/8: 16 from a kink on, GELU is ReLU up to 1e-50
STEEPER = 64  # times the length, of neurons that read a whole number's share of it


def curved(model: ModelArrays, activation: str, steep: float) -> ModelArrays:
    """Makes a decoder of ReLU neurons one of GELU neurons: what they read times `steep`, what they say over it.

    GELU(steep z) / steep differs from ReLU(z) by |z| Phi(-steep |z|) < 0.17 / steep, and by next to nothing from
    16 / steep on. Where z is a whole number less a kink between two, or at one, 128 is steep enough; where it is such a
    number's share of n tokens, so is a multiple of n, and the weights hold the largest n.
    Claim: C-T13 (ours; C trains GPT-2's block, whose neurons are GELUs).
    Raises: BadInput for another activation, a `steep` that is no power of two, or a decoder without ReLU neurons.

    >>> from constructions.inductive.positional import spe
    >>> model = curved(spe(task="modular", N=8, m=3), "gelu", STEEP)
    >>> import torch
    >>> model.module(torch.zeros(1, 8, dtype=int), shift=5).argmax(-1).tolist()
    [[0, 1, 2, 0, 1, 2, 0, 1]]
    """
    if activation not in GELUS:
        raise BadInput(f"activation={activation!r}: must be one of {', '.join(GELUS)}")
    if not (steep >= 1 and float(steep).is_integer() and int(steep).bit_count() == 1):
        raise BadInput(f"steep={steep}: must be a power of two, 1 or more, so that no weight is rounded")
    if not model.arguments["d_mlp"] or model.arguments["activation"] != "relu":
        raise BadInput("model: must have ReLU neurons, which are made GELUs; this one has none, or others")
    factors = {"W_in": steep, "b_in": steep, "W_out": 1 / steep}
    weights = {path: x * factors.get(path.split(".")[-1], 1.0) for path, x in model.weights.items()}
    return replace(model, weights=weights, arguments={**model.arguments, "activation": activation}).rounded()


def steep_for(length: int) -> int:
    """The steepness for shares of up to `length` tokens: the power of two at STEEPER times it, or the next.

    >>> steep_for(100), steep_for(128)
    (8192, 8192)
    """
    return 1 << (STEEPER * max(1, length) - 1).bit_length()
