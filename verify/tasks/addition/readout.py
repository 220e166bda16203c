"""The neurons and the readout on a box of the stream's directions: the least margin there, in rationals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.slack import ENLARGE_LONG, INFLATION, OF_MANY, Array
from verify.arithmetic.stored import numbers
from verify.tasks.addition.rounded import apart_from_factors, sum_error
from verify.tasks.addition.shares import exactly

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder, AdderLayer

Box = list[tuple[fmpq, fmpq]]  # the range of each lane
DEEPEST = 10
ZERO = fmpq(0)


class Overflows(Exception):
    """A sum that may exceed the largest number of the format."""


@dataclass(frozen=True)
class Readout:
    """Logits as functions of the lanes at one column and query token: linear, with one ReLU per neuron.

    Neuron k reads slopes[k] . x + offsets[k] and has weight gains[k][c] in the logit of c, which has also
    direct[c] . x + constants[c].
    """

    slopes: list[list[fmpq]]
    offsets: list[fmpq]
    gains: list[list[fmpq]]
    direct: list[list[fmpq]]
    constants: list[fmpq]

    @classmethod
    def of(cls, model: Adder, lanes: tuple[int, ...], embedded: list[fmpq], layer: AdderLayer | None = None) -> Readout:
        """The readout after a layer (default: the first), where `lanes` vary and every other direction is embedded."""
        layer = layer or model.blocks[0]
        W_1, b_1, W_2 = numbers(layer.W_1), numbers(layer.b_1), numbers(layer.W_2)
        W_out, b_out = numbers(model.W_out), numbers(model.b_out)
        others = [j for j in range(len(W_1)) if j not in lanes and embedded[j]]

        def affine(W: Array, b: Array, column: int) -> tuple[list[fmpq], fmpq]:
            fixed = sum((embedded[j] * exactly(W[j, column]) for j in others if W[j, column]), ZERO)
            return [exactly(W[lane, column]) for lane in lanes], fixed + exactly(b[column])

        read = [affine(W_1, b_1, k) for k in range(W_1.shape[1])]
        out = [affine(W_out, b_out, c) for c in range(W_out.shape[1])]
        gains = []
        for k in range(W_2.shape[0]):
            used = [j for j in range(W_2.shape[1]) if W_2[k, j]]
            gains.append(
                [sum((exactly(W_2[k, j]) * exactly(W_out[j, c]) for j in used), ZERO) for c in range(W_out.shape[1])]
            )
        return cls([s for s, _ in read], [o for _, o in read], gains, [d for d, _ in out], [c for _, c in out])

    def ranges(self, box: Box) -> list[tuple[fmpq, fmpq]]:
        """Returns the range of each neuron's input on the box, before ReLU."""
        return [linear_range(slopes, offset, box) for slopes, offset in zip(self.slopes, self.offsets, strict=True)]

    def least_margin(self, box: Box, right: int, slack: list[fmpq] | None = None) -> fmpq:
        """A lower bound on (logit of `right`) - (largest other logit) over the box; exact with one lane."""
        others = [c for c in range(len(self.constants)) if c != right]
        if len(box) == 1:
            points = [self.logits([x]) for x in self.points(box[0])]
            found = [(min(y[right] - y[c] for y in points), c) for c in others]
        else:
            found = [(self._bound(box, right, c, DEEPEST), c) for c in others]
        return min((m - slack[c] if slack else m for m, c in found))

    def is_wrong(self, x: tuple[fmpq, fmpq], right: int) -> bool:
        """Whether one class is at least as large as the right one on all of a range of the only lane."""
        points = [self.logits([p]) for p in self.points(x)]
        return any(all(y[c] >= y[right] for y in points) for c in range(len(self.constants)) if c != right)

    def points(self, x: tuple[fmpq, fmpq]) -> Iterable[fmpq]:
        """The ends of a range of the only lane, and the kinks inside: between them all logits are linear."""
        kinks = {-o / s[0] for s, o in zip(self.slopes, self.offsets, strict=True) if s[0]}
        return sorted({*x, *(k for k in kinks if x[0] < k < x[1])})

    def logits(self, x: list[fmpq]) -> list[fmpq]:
        """The logits at one point."""
        y = [
            constant + sum((w * v for w, v in zip(direct, x, strict=True) if w), ZERO)
            for direct, constant in zip(self.direct, self.constants, strict=True)
        ]
        for slopes, offset, gains in zip(self.slopes, self.offsets, self.gains, strict=True):
            reading = offset + sum((w * v for w, v in zip(slopes, x, strict=True) if w), ZERO)
            if reading > 0:
                y = [a + reading * g if g else a for a, g in zip(y, gains, strict=True)]
        return y

    def _bound(self, box: Box, right: int, c: int, depth: int) -> fmpq:
        """A lower bound on one logit difference: neurons of unknown sign lie between two lines; halves where open."""
        slopes = [a - b for a, b in zip(self.direct[right], self.direct[c], strict=True)]
        constant = self.constants[right] - self.constants[c]
        is_open = False
        for k, (low, high) in enumerate(self.ranges(box)):
            gain = self.gains[k][right] - self.gains[k][c]
            if high <= 0 or not gain:
                continue
            if low >= 0:
                share, offset = fmpq(1), ZERO
            elif gain > 0:  # ReLU is at least 0 and at least its reading
                is_open, share, offset = True, fmpq(1 if high > -low else 0), ZERO
            else:  # and at most the chord
                share = high / (high - low)
                is_open, offset = True, -low * share
            slopes = [s + gain * share * w for s, w in zip(slopes, self.slopes[k], strict=True)]
            constant += gain * (share * self.offsets[k] + offset)
        bound = linear_range(slopes, constant, box)[0]
        if bound > 0 or not is_open or depth == 0:
            return bound
        widths = [(high - low) * sum((abs(s[j]) for s in self.slopes), ZERO) for j, (low, high) in enumerate(box)]
        j = max(range(len(box)), key=lambda j: widths[j])
        low, high = box[j]
        middle = (low + high) / 2
        halves = ([*box[:j], (low, middle), *box[j + 1 :]], [*box[:j], (middle, high), *box[j + 1 :]])
        return min(self._bound(half, right, c, depth - 1) for half in halves)


def linear_range(slopes: list[fmpq], constant: fmpq, box: Box) -> tuple[fmpq, fmpq]:
    """The least and the greatest value of a linear function on a box."""
    low = high = constant
    for slope, (a, b) in zip(slopes, box, strict=True):
        if slope > 0:
            low, high = low + slope * a, high + slope * b
        elif slope < 0:
            low, high = low + slope * b, high + slope * a
    return low, high


def slack(
    model: Adder,
    readout: Readout,
    lanes: tuple[int, ...],
    embedded: list[fmpq],
    box: Box,
    right: int,
    arithmetic: RoundedArithmetic,
    layer: AdderLayer | None = None,
) -> list[fmpq]:
    """By how much rounding of neurons, stream and readout can lower (logit of `right`) - (logit of c), on a box.

    The neurons are those of a layer, the first where none is given.
    Raises: Overflows where a sum may leave the format.
    """
    layer = layer or model.blocks[0]
    W_1, b_1, W_2 = numbers(layer.W_1), numbers(layer.b_1), numbers(layer.W_2)
    W_out, b_out = numbers(model.W_out), numbers(model.b_out)
    x = np.array([float(abs(e)) for e in embedded])
    for lane, (low, high) in zip(lanes, box, strict=True):
        x[lane] = float(max(abs(low), abs(high))) * INFLATION
    reads = np.array([float(max(abs(low), abs(high))) for low, high in readout.ranges(box)]) * INFLATION
    e_1 = sum_error(x, W_1, (b_1,), reads, arithmetic)
    top = np.array([float(high) for _, high in readout.ranges(box)])
    is_off = top * (1 - OF_MANY) + e_1 < 0  # however it is computed, it stays below 0
    e_1 = np.where(is_off, 0.0, e_1)
    hidden = np.where(is_off, 0.0, np.maximum(top, 0.0) * INFLATION + e_1)
    written = written_sizes(readout, W_2, lanes, embedded, box) + e_1 @ np.abs(W_2) * INFLATION
    e_2 = sum_error(hidden, W_2, (x,), written, arithmetic) + apart_from_factors(x, arithmetic)
    stream = written + e_2
    e_2 = np.where(((W_2 != 0) & (hidden[:, None] != 0)).any(0), e_2, 0.0)
    e_3 = sum_error(stream, W_out, (b_out,), None, arithmetic)
    jump = np.abs(W_out - W_out[:, [right]])  # what an error of the stream does to a difference of logits
    gains = np.array([[float(g) for g in row] for row in readout.gains]).reshape(len(e_1), len(b_out))
    through = np.abs(gains - gains[:, [right]]) * ENLARGE_LONG
    total = (e_1 @ through + e_2 @ jump + e_3 + e_3[right]) * INFLATION
    if not np.isfinite(total).all():
        raise Overflows("a sum may overflow")
    return [exactly(t) for t in total]


def written_sizes(readout: Readout, W_2: Array, lanes: tuple[int, ...], embedded: list[fmpq], box: Box) -> Array:
    """Bounds the absolute values of the stream after the neurons, by direction. Exact where all signs are known."""
    sizes = []
    read = readout.ranges(box)
    for direction in range(W_2.shape[1]):
        slopes = [fmpq(int(lane == direction)) for lane in lanes]
        constant = ZERO if direction in lanes else embedded[direction]
        low = high = ZERO
        for k, weight in enumerate(W_2[:, direction]):
            if not weight or read[k][1] <= 0:
                continue
            gain = exactly(weight)
            if read[k][0] >= 0:
                slopes = [a + gain * b for a, b in zip(slopes, readout.slopes[k], strict=True)]
                constant += gain * readout.offsets[k]
            else:
                low, high = low + min(ZERO, gain * read[k][1]), high + max(ZERO, gain * read[k][1])
        least, most = linear_range(slopes, constant, box)
        sizes.append(float(max(abs(least + low), abs(most + high))) * INFLATION)
    return np.array(sizes)
