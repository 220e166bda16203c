"""How far a dtype's logits may be from the exact ones: one layer of equal weights, on every string up to a length.

A proof in real arithmetic bounds each margin from below; that less what both of its logits drift is a bound in the
dtype. Each number of a run is enclosed twice: `exact` holds what real arithmetic makes of any token at any place of any
string, and `off` bounds how far the same number is from that in any order of evaluation. Means over strings lie in the
hull of all values; LayerNorm divides by at least the root of eps; ReLU takes no two numbers further apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from constructions.decoder_arrays import DecoderArrays, NormArrays
from verify.arithmetic.layer_norm import deviation, deviation_near, of_root
from verify.arithmetic.norms import root_mean_square
from verify.arithmetic.operations import ULPS
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import U, gamma
from verify.tasks.inductive import boxes, noisy, uniform
from verify.tasks.inductive.noisy import Allowed, Noisy

REAL = Allowed()
STEEPEST = 1.25  # GELU's slope is at most 1.13 in both forms


@dataclass(frozen=True)
class Drift:
    """Rows (..., d) of exact numbers, and how far computed ones are from them: a bound for each.

    `centre` (..., 1) bounds the exact mean of a row, which may be far below the size of its numbers.
    """

    exact: Noisy
    off: np.ndarray
    centre: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """A bound on what is computed."""
        return np.asarray((self.exact.size + self.off) * ENLARGE)

    @property
    def computed(self) -> Noisy:
        """A box that holds what is computed."""
        return Noisy(self.exact.mid, (self.exact.noise + self.off) * ENLARGE)


def by_length(model: DecoderArrays, reading: Real | Rounded) -> tuple[DecoderArrays, Callable[[int], float]] | None:
    """The decoder as it is stored, and how much less than exact its margins may be where n keys are seen.

    None where a stored number may be read as another.
    """
    if isinstance(reading, Real):
        return model, lambda n: 0.0
    at = Allowed.of(reading)
    exact = stored(model, at)
    if exact is None:
        return None
    known = cache(lambda bits: most(at, exact, 1 << bits))
    return exact, lambda n: known((n - 1).bit_length())


def stored(model: DecoderArrays, at: Allowed) -> DecoderArrays | None:
    """The decoder of the numbers that the dtype stores; None where one may be read as another number."""
    are_read = True

    def read(x: np.ndarray) -> np.ndarray:
        nonlocal are_read
        found = at.tensor(x)
        are_read &= not (found.own.any() or np.isinf(x).any())
        return found.mid

    found = model.each(read)
    return found if are_read else None


@np.errstate(all="ignore")
def most(at: Allowed, model: DecoderArrays, n: int) -> float:
    """How much less than exact a margin may be where at most n keys are seen; infinite or NaN where nothing is known.

    A margin is a difference of two logits, each of which drifts by at most `off`.
    """
    logits = linear(at, normalised(at, before_last(at, model, n), model.norm), model.W_U, model.b_U)
    return float(2 * logits.off.max() * ENLARGE)


def before_last(at: Allowed, model: DecoderArrays, n: int) -> Drift:
    """The stream before the last LayerNorm, of each token at each position; unbounded where a score is not surely 0."""
    block = model.blocks[0]
    attention, mlp = block.attention, block.mlp
    x = streams(at, model)
    seen = normalised(at, x, block.norm_1)
    if uniform.may_overflow(at, attention, seen.computed):
        return Drift(x.exact, np.full_like(x.off, math.inf), x.centre)
    mixed = mean(at, linear(at, seen, attention.W_V, attention.b_V), n)
    x = plus(at, x, linear(at, mixed, attention.W_O, attention.b_O))
    if mlp is None:
        return x
    hidden = activated(at, linear(at, normalised(at, x, block.norm_2), mlp.W_in, mlp.b_in), mlp.activation)
    return plus(at, x, linear(at, hidden, mlp.W_out, mlp.b_out))


def streams(at: Allowed, model: DecoderArrays) -> Drift:
    """The stream of each token at each position: (tokens, positions, d)."""
    exact = boxes.streams(REAL, model).boxed()
    is_sum = model.pe in ("ape", "sine")
    off = (at.u * exact.size + at.tiny) * ENLARGE if is_sum else np.zeros_like(exact.mid)
    return Drift(exact, at.checked(exact.size, off), mean_of(exact))


def mean_of(x: Noisy) -> np.ndarray:
    """A bound on the mean of each row of a box: (..., 1)."""
    d = x.mid.shape[-1]
    return np.asarray(
        (np.abs(x.mid.mean(-1, keepdims=True)) + (x.noise + gamma(d + 8) * x.size).mean(-1, keepdims=True)) * ENLARGE
    )


def linear(at: Allowed, x: Drift, W: np.ndarray, b: np.ndarray | None) -> Drift:
    """x W + b of stored numbers, the bias one more term of the sum, or added to what is stored."""
    d = len(W)
    exact = noisy.product(REAL, x.exact, Noisy.exact(W)).boxed()
    centre = (x.exact.size @ mean_of(Noisy.exact(W))) * (1 + gamma(d + 8))
    terms, k = x.size @ np.abs(W) * (1 + gamma(d + 8)), d
    if b is not None:
        bias = Noisy.exact(np.broadcast_to(b, exact.mid.shape))
        exact, centre = noisy.plus(REAL, exact, bias), (centre + mean_of(bias)) * ENLARGE
        terms, k = (terms + np.abs(bias.mid)) * ENLARGE, d + 2
    off = x.off @ np.abs(W) * (1 + gamma(d + 8)) + (at.sums(k) + at.u) * terms + at.lost_in_sums(k)
    return Drift(exact, at.checked(2 * terms, off * ENLARGE), centre + d * at.tiny)


def plus(at: Allowed, x: Drift, y: Drift) -> Drift:
    exact, centre = noisy.plus(REAL, x.exact, y.exact), (x.centre + y.centre) * ENLARGE
    sizes = (x.size + y.size) * ENLARGE
    return Drift(exact, at.checked(sizes, (x.off + y.off + at.u * sizes + at.tiny) * ENLARGE), centre)


def mean(at: Allowed, values: Drift, n: int) -> Drift:
    """The mean of at most n values of any tokens at any positions: (1, 1, inner)."""
    low, high = (values.exact.mid - values.exact.noise), (values.exact.mid + values.exact.noise)
    exact = noisy.box(low.min((0, 1), keepdims=True), high.max((0, 1), keepdims=True))
    off, size = (part.max((0, 1), keepdims=True) for part in (values.off, values.size))
    weight = float(uniform.weight(at, np.array([float(n)]))[0])
    off = off + (weight + at.sums(n) * (1 + weight)) * size + at.lost_in_sums(n)
    return Drift(exact, at.checked(2 * size, off * ENLARGE), mean_of(exact))


def activated(at: Allowed, x: Drift, activation: str) -> Drift:
    exact = noisy.activate(REAL, x.exact, activation).boxed()
    off = x.off
    if activation != "relu":
        off = (STEEPEST * off + ULPS * at.u * x.size + 4 * at.tiny) * ENLARGE
    return Drift(exact, off, mean_of(exact))


class Centred(NamedTuple):
    """What LayerNorm divides: each number of a row less the mean.

    `reach` bounds both numbers, and `off` how far the difference is off before it is rounded itself. The computed 1/s
    is off by `of_s` relatively, and the exact one is `steep` at most.
    """

    reach: np.ndarray
    off: np.ndarray
    steep: np.ndarray
    of_s: np.ndarray


def centred(at: Allowed, x: Drift, eps: float) -> Centred:
    """Rows less their means, and the drift of 1/s, s = sqrt(variance + eps).

    s moves by no more than the root mean square of what its row does. The mean square of a row, to which the rounding
    of the variance is relative, is the variance and the square of the mean.
    """
    d, size, off = x.exact.mid.shape[-1], x.size, x.off
    of_mean = (off + at.off_in_mean(d) * size).mean(-1, keepdims=True) * ENLARGE + at.lost_in_sums(d)
    reach = (size + x.centre + of_mean) * ENLARGE
    middle = x.exact.mid - x.exact.mid.mean(-1, keepdims=True)
    least, _ = deviation_near(middle, x.exact.noise, x.exact.size, eps)
    steep = np.nan_to_num(1 / least, nan=np.inf) * (1 + 4 * U)
    moved = root_mean_square(off)[1] * steep * ENLARGE
    is_some = moved <= 0.25
    low = (1 - np.where(is_some, moved, 0.0)) / steep * (1 - 2.0**-40)  # of s of the computed row
    share = np.minimum(np.square(size).mean(-1, keepdims=True), np.square(low) + np.square(x.centre + of_mean))
    of_s = of_root(at, d, share / np.square(low) * ENLARGE, low)
    of_s = np.where(is_some, ((1 + of_s) / (1 - moved) - 1) * ENLARGE + 2.0**-48, np.inf)
    of_c = (off + of_mean) * ENLARGE
    return Centred(reach, at.checked(np.square(size).sum(-1, keepdims=True) * 2, of_c), steep, of_s)


def normalised(at: Allowed, x: Drift, layer: NormArrays | None) -> Drift:
    """LayerNorm of rows: c / s, which is sqrt(d) at most, times the weight and plus the bias."""
    if layer is None:
        return x
    d, c = x.exact.mid.shape[-1], centred(at, x, layer.eps)
    weight, bias = np.abs(layer.weight), np.abs(layer.bias)
    quotient = np.minimum(c.reach * c.steep, math.sqrt(d) * ENLARGE)
    found = quotient * c.of_s + (c.off + 5 * at.u * c.reach) * c.steep * (1 + c.of_s)
    found = found * weight + 5 * at.u * bias + 8 * at.tiny * (1 + weight) * (1 + c.reach) * (1 + c.steep)
    exact = noisy.layer_norm(REAL, x.exact, layer, "norm").boxed()
    most = noisy.loudest(c.reach, c.steep * (1 + c.of_s), weight, bias)
    return Drift(exact, at.checked(most, found * ENLARGE), mean_of(exact))


@np.errstate(all="ignore")
def undivided(at: Allowed, model: DecoderArrays, n: int) -> tuple[float, float]:
    """As `most`, of margins times s, what the last LayerNorm divides by; and how far 1/s is computed off, relatively.

    Whatever number the computed 1/s is, all logits of a position are multiplied by it. So their differences have the
    signs of those of c W_U, c being the row less its mean, times the weight.
    """
    x, layer = before_last(at, model, n), model.norm
    if layer is None:
        return float(2 * linear(at, x, model.W_U, model.b_U).off.max() * ENLARGE), 0.0
    logits = linear(at, normalised(at, x, layer), model.W_U, None)
    if bool(layer.bias.any()) or model.b_U is not None or not bool(np.isfinite(logits.off).all()):
        return math.inf, math.inf
    c, weight = centred(at, x, layer.eps), np.abs(layer.weight)
    across = root_mean_square(x.size)[1]
    most_of_s = 2 * deviation(across, across, layer.eps)[1]
    lost = 8 * at.tiny * (1 + weight) * (1 + c.reach) * (1 + most_of_s)
    rows = Drift(box_of(c.reach * weight), ((c.off + 5 * at.u * c.reach) * weight + lost) * ENLARGE, x.centre)
    logits = linear(at, rows, model.W_U, None)
    return float(2 * (logits.off + at.lost_in_sums(len(model.W_U)) * most_of_s).max() * ENLARGE), float(c.of_s.max())


def box_of(size: np.ndarray) -> Noisy:
    return Noisy(np.zeros_like(size), size * ENLARGE)
