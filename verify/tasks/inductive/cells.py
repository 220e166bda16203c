"""Every string over K types at once: one layer of equal weights with BOS, by linear forms in the counts.

Let c be the counts of all types up to a position, t its own token, k = c_t, and D the sum of c, and 1 more with BOS, so
that BOS and every token weigh 1/D. Without LayerNorm, D times a neuron's input is affine in c, and so is D times a
logit where each neuron is known to be on or off. A cell is a pair (t, k); in it the other counts are any numbers >= 0,
with sum at most N - k where the length is at most N. An affine form's least value there is its constant plus the least
of 0 and its least coefficient times N - k; without an end of the length it exists only where no coefficient is
negative.

LayerNorm divides by a number that depends on c. Before the heads it is one number for each token and position, and an
interval holds what it makes of them. Before the MLP it scales all neurons alike, which changes no sign where they have
no bias; so the logits' differences are A/D + B/(D s), with forms A of the stream and B of the MLP, and s > 0. Where A
is 0 identically the sign is B's; elsewhere s is enclosed. The last LayerNorm scales all differences alike.

For the first token there are two kinds of cells: t alone; and t, one more token s, and any others, where another
answer is due. Where the first two tokens differ, so do t and some token before or after it: s runs over the others.

Positions add to the stream: an interval holds a token's numbers at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from constructions.decoder_arrays import DecoderArrays, NormArrays
from verify.arithmetic.exact_reals import rational
from verify.arithmetic.intervals import Interval, Numbers
from verify.arithmetic.layer_norm import deviation, squared_deviation
from verify.arithmetic.norms import root_mean_square
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG, LEAST, U
from verify.arithmetic.stored import exact_product, fractions, rationals
from verify.counting.tasks import FIRST, Task
from verify.reduction.domains import Counts, Forms
from verify.reduction.leaf import each, leaf
from verify.tasks.inductive import uniform

ARGUMENT = "cells of token and count: forms in the counts, for every string"


@dataclass(frozen=True)
class Cell:
    """Positions of token t where each type is there `base` times, and the `free` types any number of times more.

    They are `length` tokens or more, and class `right` is due.
    """

    name: str
    t: int
    base: Numbers
    free: Numbers
    right: int

    @property
    def length(self) -> int:
        return int(self.base.sum())


def cells_of(task: Task, longest: int | None) -> Iterator[Cell]:
    """Cells that hold every judged position of every string of the task."""
    K = task.K
    assert K is not None
    unit = np.eye(K)
    for t in range(K):
        if task.name in FIRST:
            yield Cell(f"token {t} alone", t, unit[t], np.zeros(K), 1)
            others = (s for s in range(K) if s != t or not task.has_distinct_start)
            pairs = (Cell(f"token {t} beside {s}", t, unit[t] + unit[s], np.ones(K), 0) for s in others)
            yield from (pair for pair in pairs if longest is None or pair.length <= longest)
            continue
        assert task.C is not None
        for k in range(1, task.C + 1):
            if longest is None or k <= longest:
                yield Cell(f"token {t} and count {k}", t, k * unit[t], 1 - unit[t], task.class_of(k))


@dataclass(frozen=True)
class CellsDecided:
    """A proof, or a `reason` why there is none; `margin_scaled` bounds the margin times D, and `divisor` what the last
    LayerNorm divides by."""

    reason: str | None = None
    margin_scaled: float | None = None
    divisor: float = 1.0


def read_by(x: Numbers, W: Numbers) -> Interval:
    """x W at each position, (tokens, positions, d): exactly where a token has one, else in float64 rounded outwards."""
    if x.shape[1] == 1:
        return Interval.of(exact_product(x[:, 0], W))[:, None]
    return Interval.of(x) @ Interval.of(W)


def centred(W: Numbers, layer: NormArrays | None) -> Numbers:
    """What a matrix reads after a LayerNorm, its division left out: the stream less its mean, times the weight."""
    if layer is None:
        return W
    W = fractions(layer.weight)[:, None] * W
    centre: Numbers = W.sum(0, keepdims=True) / len(W)
    return np.asarray(W - centre)


def divisors(x: Numbers, layer: NormArrays | None) -> Interval:
    """1 / sqrt(variance + eps) of each row of the stream, exactly 1 without LayerNorm."""
    if layer is None:
        ones = np.ones(x.shape[:-1])
        return Interval(ones, ones)
    square = squared_deviation(list(np.moveaxis(x, -1, 0)), np.array(rational(Fraction(layer.eps))))
    return Interval.of(square).inverse_root()


def decide(model: DecoderArrays, task: Task, longest: int | None, reading: Real | Rounded) -> CellsDecided:
    """Whether the decoder is right on every string of the task, up to a length or at all."""
    reason = unfit(model)
    if reason is None and isinstance(reading, Rounded):
        reason = "in a dtype"
    if reason is not None:
        return CellsDecided(f"no proof over all strings is known {reason}")
    with np.errstate(all="ignore"):  # a row of one number, with eps 0, is 0/0: NaN, which decides nothing
        return _by_cells(model, task, longest)


def unfit(model: DecoderArrays) -> str | None:
    """Why the argument does not speak of a model, None where it does."""
    block = model.blocks[0]
    if not uniform.applies(model):
        return "for several layers, or where scores differ"
    if block.mlp is not None and block.mlp.activation != "relu":
        return "for neurons that are no ReLUs"
    weights = [np.abs(W) for W in model.stored.values()]
    if any(bool(((W > 0) & (W < 2.0**-100) | ~(W < 2.0**100)).any()) for W in weights):
        return "for weights beyond 2^100 or within 2^-100 of zero"
    after = [block.attention.b_V, block.attention.b_O, model.b_U]
    after += [] if block.mlp is None else [block.mlp.b_in, block.mlp.b_out]
    norms = [part for part in (block.norm_1, block.norm_2, model.norm) if part is not None]
    if not all(0 <= part.eps < np.inf for part in norms):
        return "for LayerNorms whose eps is negative or no number"
    after += [part.bias for part in norms]
    if any(b is not None and bool(b.any()) for b in after):
        return "where there are biases"
    return None


@dataclass(frozen=True)
class FormShares:
    """Forms D f = sum_j c_j (own[t] + shared[j]) + (own[t] + shared[BOS]) for many f at once.

    Shapes: own (K, f), shared (K, f), first (f,): the share of BOS, zero where there is none.
    """

    own: Interval
    shared: Interval
    first: Interval

    def on(self, cell: Cell, has_bos: bool) -> Forms[Interval]:
        """The forms in how many more than its base there are of each type, which are 0 of those that are not free."""
        slopes = self.shared + self.own[cell.t]
        present = np.flatnonzero(cell.base)
        parts = [Interval.exact(np.array(float(cell.base[s]))) * slopes[s] for s in present]
        if has_bos:
            parts.append(self.first + self.own[cell.t])
        return Forms(reduce(Interval.__add__, parts), each(slopes, lambda end: end * cell.free[:, None]))


Reader = Callable[[Numbers], Interval]  # what a matrix reads of each token


def shares(own: Interval, shared: Interval, has_bos: bool, K: int) -> FormShares:
    zero = np.zeros(shared.lower.shape[1])
    return FormShares(own[:K], shared[:K], shared[K] if has_bos else Interval.exact(zero))


def _by_cells(model: DecoderArrays, task: Task, longest: int | None) -> CellsDecided:
    block = model.blocks[0]
    K, bos = task.K, model.has_bos
    assert K is not None
    x = _streams(model)  # (tokens, positions, d)
    own_of, shared_of = _readers(model, x)
    readout = centred(fractions(model.W_U), model.norm)
    W_in, W_out = _neurons(model)
    neurons = shares(own_of(W_in), shared_of(W_in), bos, K)
    gains = Interval.of(exact_product(W_out, readout))  # (p, classes)
    direct = shares(own_of(readout), shared_of(readout), bos, K)
    second, last = _largest_divisors(model, x, shared_of)
    smallest = float("inf")
    is_plain = block.norm_2 is None
    for cell in cells_of(task, longest):
        rivals = [c for c in range(task.classes) if c != cell.right]
        if not rivals:
            continue
        own = direct.on(cell, bos)
        own_parts = [_difference(part, cell.right, rivals) for part in (own.constant, own.slopes)]
        if not is_plain:  # A s + B with 0 < s <= second
            own_parts = [_scaled(part, second) for part in own_parts]
        more = 0.0 if not cell.free.any() else np.inf if longest is None else float(longest - cell.length)
        found = leaf(Counts(np.array(more)), neurons.on(cell, bos), _difference(gains, cell.right, rivals),
                     Forms(*own_parts))  # fmt: skip
        if np.isinf(found.tops).any():
            return CellsDecided(f"for {cell.name} a neuron may be on or off")
        worst = found.range.lower
        if not (worst > 0).all():
            return CellsDecided(f"for {cell.name} the least margin times D may be {worst.min():.3g}")
        smallest = min(smallest, float(worst.min()))
    return CellsDecided(None, max(0.0, smallest / (second * last) * (1 - 8 * U) - LEAST), last)


def _neurons(model: DecoderArrays) -> tuple[Numbers, Numbers]:
    """What neurons read, LayerNorm's division left out, and what they write; one that writes 0 where there is none."""
    block, d = model.blocks[0], model.W_U.shape[0]
    if block.mlp is None:
        return fractions(np.zeros((d, 1))), fractions(np.zeros((1, d)))
    return centred(fractions(block.mlp.W_in), block.norm_2), fractions(block.mlp.W_out)


def _scaled(x: Interval, most: float) -> Interval:
    """x times any number from 0 to `most`."""
    low, high = np.minimum(x.lower * most, 0), np.maximum(x.upper * most, 0)
    return Interval(low * (1 + 8 * U) - (x.lower < 0) * 2 * LEAST, high * (1 + 8 * U) + (x.upper > 0) * 2 * LEAST)


def _difference(x: Interval, right: int, rivals: list[int]) -> Interval:
    return x[..., [right]] + Interval(-x.upper[..., rivals], -x.lower[..., rivals])


def _streams(model: DecoderArrays) -> Numbers:
    """The stream of each token, BOS last, at each position before the block: (tokens, positions, d), exact."""
    E = rationals(model.W_E)[:, None]
    if model.pe not in ("ape", "sine", "spe"):
        return E
    table = rationals(model.table)[None]
    if model.pe == "spe":
        E, table = (np.broadcast_to(a, (E.shape[0], table.shape[1], a.shape[2])) for a in (E, table))
        return np.concatenate([E, table], -1)
    if not table.any():
        return E
    return np.asarray(E + table)


def _readers(model: DecoderArrays, x: Numbers) -> tuple[Reader, Reader]:
    """Two functions of a matrix W (d, f): what W reads of each token's own stream, and of what it gives to the mean."""
    block = model.blocks[0]
    W_V, W_O = fractions(block.attention.W_V), fractions(block.attention.W_O)
    factor = divisors(x, block.norm_1)

    def own_of(W: Numbers) -> Interval:
        return read_by(x, W).hull(1)

    def shared_of(W: Numbers) -> Interval:
        exact = read_by(x, centred(exact_product(W_V, exact_product(W_O, W)), block.norm_1))
        is_plain = block.norm_1 is None
        return (exact if is_plain else exact * Interval(factor.lower[..., None], factor.upper[..., None])).hull(1)

    return own_of, shared_of


def _largest_divisors(model: DecoderArrays, x: Numbers, shared_of: Reader) -> tuple[float, float]:
    """Upper bounds on what the LayerNorm before the MLP and the last one divide by, 1 where there is none."""
    block, second, last = model.blocks[0], 1.0, 1.0
    if block.norm_2 is None and model.norm is None:
        return second, last
    d = x.shape[-1]
    identity = np.array([[Fraction(int(i == j)) for j in range(d)] for i in range(d)], dtype=object)
    entries = Interval.of(x).size.max((0, 1)) + shared_of(identity).size.max(0)
    across = root_mean_square(entries)[1]
    after = across
    if block.norm_2 is not None:
        second = float(deviation(across, across, block.norm_2.eps)[1][0])
    if block.mlp is not None:  # it adds at most |row| |W_in| |W_out| in the Frobenius norms
        read = across if block.norm_2 is None else float(np.abs(block.norm_2.weight).max())
        W_in, W_out = (root_mean_square(W.ravel())[1] * np.sqrt(W.size) for W in (block.mlp.W_in, block.mlp.W_out))
        after = after + (read * W_in + LEAST) * W_out * ENLARGE_LONG + LEAST
    if model.norm is not None:
        last = float(deviation(after, after, model.norm.eps)[1][0])
    return second, last
