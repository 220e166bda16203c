"""A decoder written in lanes: directions of the stream with a meaning each, with or without LayerNorm.

LayerNorm subtracts a mean and divides by a length. Where every lane v is kept twice, as v and -v, the mean is 0; where
a lane of padding brings every token to one length, the divisor is one number for all tokens. Reading a lane then means
half its difference from its mirror, and everything read is what it was without LayerNorm, times a positive number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.decoder_positions import EPS
from constructions.model_arrays import Array, ModelArrays, name_of

LOUD = 2.0**20  # how much larger than a position's vector the lanes are that must not hear it


def zeros(*shape: int) -> Array:
    return np.zeros(shape)


@dataclass(frozen=True)
class Design:
    """Matrices of a one-layer decoder over lanes: one head with equal weights, and an MLP whose neurons share a bias.

    Shapes: E (tokens [+ 1 for BOS], lanes); mixed (lanes, lanes), what a mean of tokens adds to the stream; W_in
    (lanes, p) and W_out (p, lanes), p = 0 for no MLP; W_U (lanes, classes); taken (lanes,), what the MLP adds with all
    its neurons at rest, in units of the bias, and is to be taken away.
    """

    E: Array
    mixed: Array
    W_in: Array
    W_out: Array
    W_U: Array
    activation: str = "relu"
    bias: float = 0.0
    taken: Array | None = None

    @property
    def lanes(self) -> int:
        return int(self.E.shape[1])


def decoder(
    design: Design,
    *,
    pe: str,
    bos: bool,
    layernorm: bool,
    positions: int,
    n_heads: int = 1,
    dtype: DType = "float64",
) -> ModelArrays:
    """The design as a decoder: W_Q = 0, so that all scores are 0 under every embedding, rotations included.

    A table of positions (ape) is zero; where positions enter lanes unasked (sine, and spe under LayerNorm), the lanes
    are LOUD times as large, and in float16 without LayerNorm as loud as `above_subnormal` says.
    """
    mirror = Mirror.of(design, layernorm)
    loud = LOUD if pe == "sine" or (pe == "spe" and layernorm) else 1.0
    if loud == 1 and name_of(dtype) == "float16" and not layernorm:
        loud = above_subnormal(design.W_U)
    gain = loud if layernorm else 1.0  # LayerNorm takes the loudness out, and what is added to the stream has it again
    d = mirror.size + (pe == "spe")
    d += d % 2 if pe == "rope" else 0
    model = blank(
        vocabulary=len(design.E) - bos,
        d=d,
        n_heads=n_heads,
        d_head=d,
        d_mlp=design.W_in.shape[1],
        classes=design.W_U.shape[1],
        positions=positions,
        pe=pe,
        activation=design.activation,
        layernorm=layernorm,
        eps=EPS,
        bos=bos,
        dtype=dtype,
    )
    parts = {
        "W_E": mirror.tokens(design.E) * loud,
        "W_V": mirror.reading(design.mixed) * mirror.divisor(d, loud),
        "W_O": mirror.writing(np.eye(design.lanes)) * gain,
        "W_U": mirror.reading(design.W_U),
        "W_in": mirror.reading(design.W_in),
        "W_out": mirror.writing(design.W_out) * gain,
    }
    if design.taken is not None:
        bias = design.bias * (1.0 if layernorm else loud)  # without LayerNorm neurons read the loud lanes themselves
        parts["b_in"] = np.full(design.W_in.shape[1], bias)
        parts["b_out"] = mirror.writing(-bias * design.taken[None])[0] * gain
    return filled(model, parts)


def above_subnormal(W_U: Array) -> float:
    """How loud lanes are in float16: shares are small, and numbers below 2^-14 may be flushed to zero.

    Without LayerNorm a scale of E is one of all logits. Lines j (K x) - (j^2 / 2) x about their centre, with a share x
    of at most 1, are together at most three times the largest entry of W_U, and stay below 2^14 of float16's 2^16.
    """
    room = 2.0**14 / (3 * max(float(np.abs(W_U).max()), 1.0))
    return 2.0 ** min(8, max(0, math.floor(math.log2(room))))


@dataclass(frozen=True)
class Mirror:
    """How lanes lie in the stream: once each, or as v and -v with `padding` more lanes of both."""

    lanes: int
    padding: int | None

    @classmethod
    def of(cls, design: Design, layernorm: bool) -> Mirror:
        """With LayerNorm as many padding lanes as bring the longest token to the length at which LayerNorm divides by
        1: half the stream's size times 1 - EPS, the square of what is kept twice."""
        if not layernorm:
            return cls(design.lanes, None)
        longest = float((design.E**2).sum(1).max())
        padding = 1
        while (design.lanes + padding) * (1 - EPS) < longest:
            padding += 1
        return cls(design.lanes, padding)

    def divisor(self, d: int, loud: float) -> float:
        """What LayerNorm divides a loud token by, in units of its loudness: about 1."""
        if self.padding is None or (loud == 1 and d == self.size):
            return 1.0
        return math.sqrt(2 * self.square / d + EPS / loud**2)

    @property
    def square(self) -> float:
        """The sum of squares of the lanes of a token, each taken once."""
        return (self.lanes + (self.padding or 0)) * (1 - EPS)

    @property
    def size(self) -> int:
        return self.lanes if self.padding is None else 2 * (self.lanes + self.padding)

    def tokens(self, E: Array) -> Array:
        if self.padding is None:
            return E
        rest = np.sqrt((self.square - (E**2).sum(1, keepdims=True)) / self.padding)
        half = np.concatenate([E, np.broadcast_to(rest, (len(E), self.padding))], 1)
        return np.concatenate([half, -half], 1)

    def reading(self, W: Array) -> Array:
        if self.padding is None:
            return W
        rest = zeros(self.padding, W.shape[1])
        return np.concatenate([W, rest, -W, rest]) / 2

    def writing(self, W: Array) -> Array:
        if self.padding is None:
            return W
        rest = zeros(len(W), self.padding)
        return np.concatenate([W, rest, -W, rest], 1)
