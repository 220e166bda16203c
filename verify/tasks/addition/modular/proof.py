"""All P^2 pairs of a modular adder in real arithmetic: by sums alone where attention is uniform, else pair by pair.

Read at "=", a softmax over three tokens needs the exponentials of 2P + 1 scores a head. Everything else is a few matrix
products over the pairs, in float64 with a proved error radius; what stays undecided is decided in balls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq

from verify.arithmetic import softmax
from verify.arithmetic.balls import Ball, joined, relu
from verify.arithmetic.exact_reals import rational
from verify.arithmetic.outward import float_at_most
from verify.arithmetic.stored import numbers
from verify.frame.clock import Deadline
from verify.frame.decide import silent
from verify.tasks.addition import exact
from verify.tasks.addition.modular.lines import depends_on_sum, margins_by_sum, streams
from verify.tasks.addition.pairs import Pair

if TYPE_CHECKING:
    from verify.tasks.addition.model import Adder

MOST_LISTED = 1000  # wrong pairs


@dataclass
class DecidedPairs:
    """How many pairs are right and wrong, the wrong ones first, and the least margin.

    `is_whole` says whether all pairs were looked at.
    """

    right: int = 0
    wrong: list[Pair] = field(default_factory=list)
    wrong_count: int = 0
    undecided: list[Pair] = field(default_factory=list)
    margin: float = float("inf")
    tightest: Pair | None = None
    is_whole: bool = True

    def add(self, pair: Pair, answer: exact.Answer | None, alike: list[Pair]) -> None:
        """Counts pairs that are alike by the answer to one, as undecided where balls do not tell or there is none."""
        if answer is None or answer.is_right is None:
            self.undecided += alike
        elif answer.is_right:
            self.right += len(alike)
            self.narrow(pair, answer.margin)
        else:
            self.wrong_count += len(alike)
            self.wrong += alike

    def narrow(self, pair: Pair, margin: float) -> None:
        """Keeps the least margin of the right pairs, and where it is."""
        if margin < self.margin:
            self.margin, self.tightest = margin, pair


# Sums alone: one dimension, uniform attention, numbers on a line


def by_sums(model: Adder, P: int) -> DecidedPairs | None:
    """Decides in O(P) where the stream has one dimension and is linear in a + b; None elsewhere.

    The logits are lines in the stream y. Where slopes grow with the class and the points at which neighbours meet do
    too, the lines are an upper envelope in their order: the right one is highest, by its margin over all others, iff
    it is above its neighbours.
    """
    if len(model.blocks) != 1 or model.W_out.shape[0] != 1 or not depends_on_sum(model, P):
        return None
    slopes, heights = ([rational(w) for w in W.flatten()] for W in (numbers(model.W_out), numbers(model.b_out)))
    steps = [b - a for a, b in zip(slopes, slopes[1:], strict=False)]
    if not steps or not all(step > 0 for step in steps):
        return None  # a single class has no neighbours
    meets = [(a - b) / step for a, b, step in zip(heights, heights[1:], steps, strict=False)]
    if any(b < a for a, b in zip(meets, meets[1:], strict=False)):
        return None
    decided = DecidedPairs()
    least: fmpq | None = None
    for z, (y,) in enumerate(streams(model, P)):
        c = z % P
        margins = [(y - meets[c - 1]) * steps[c - 1]] if c else []
        margins += [(meets[c] - y) * steps[c]] if c < P - 1 else []
        margin = min(margins)
        pairs = min(z, P - 1) - max(0, z - P + 1) + 1
        first = (max(0, z - P + 1), min(z, P - 1))
        if margin > 0:
            decided.right += pairs
        else:
            decided.wrong_count += pairs
            decided.wrong += of_sum(z, P)
        if least is None or margin < least:
            least, decided.tightest = margin, first
    assert least is not None
    decided.margin = float_at_most(least)
    decided.wrong = sorted(decided.wrong)[:MOST_LISTED]
    return decided


# Pair by pair


@dataclass(frozen=True)
class TokenTables:
    """Everything that depends on one token only, for one head: exponentials of scores, and weighted values."""

    weights: tuple[Ball, Ball, Ball]
    values: tuple[Ball, Ball, Ball]


def pair_by_pair(
    model: Adder, P: int, until: Deadline | None = None, progress: Callable[[float], None] = silent
) -> DecidedPairs:
    """Decides every pair from the stored numbers, in time; where logits depend on a + b alone, one for each sum."""
    until = until or Deadline.never()
    decided, heads, is_by_sum = DecidedPairs(), tables(model, P), depends_on_sum(model, P)
    blocks = list(pairs_by_sum(_still_open(model, P, decided), P) if is_by_sum else every_pair(P))
    for i, (a, b) in enumerate(blocks):
        if until.is_up():
            decided.is_whole = False
            break
        margins = margins_of_pairs(model, P, heads, a, b)
        sure, never = np.asarray(margins.lower > 0), np.asarray(margins.upper <= 0)
        worst = margins.lower.min(1)
        is_right, is_wrong = np.asarray(sure.all(1)), np.asarray(never.any(1))
        z = a + b
        number = how_many(z, P) if is_by_sum else np.ones_like(z)
        decided.right += int(number[is_right].sum())
        decided.wrong_count += int(number[is_wrong].sum())

        def alike(j: np.intp, a: np.ndarray = a, b: np.ndarray = b) -> list[Pair]:
            return of_sum(int(a[j] + b[j]), P) if is_by_sum else [(int(a[j]), int(b[j]))]

        for j in np.nonzero(is_wrong)[0] if len(decided.wrong) < MOST_LISTED or is_by_sum else ():
            decided.wrong += alike(j)
        for j in np.nonzero(~is_right & ~is_wrong)[0]:
            pair = (int(a[j]), int(b[j]))
            decided.add(pair, None if len(decided.undecided) >= MOST_LISTED else _answer(model, P, pair), alike(j))
        least = int(np.where(is_right, worst, np.inf).argmin())
        if is_right[least]:
            decided.narrow((int(a[least]), int(b[least])), float(worst[least]))
        progress((i + 1) / len(blocks))
    decided.wrong = sorted(decided.wrong)[:MOST_LISTED]
    return decided


def every_pair(P: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All pairs, P at a time."""
    b = np.arange(P)
    return ((np.full(P, a), b) for a in range(P))


def pairs_by_sum(z: np.ndarray, P: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The first pair of each of some sums, P at a time."""
    a = np.maximum(0, z - P + 1)
    return ((a[i : i + P], (z - a)[i : i + P]) for i in range(0, len(z), P))


def how_many(z: np.ndarray, P: int) -> np.ndarray:
    """How many pairs below P have each of some sums."""
    number: np.ndarray = np.minimum(z, P - 1) - np.maximum(0, z - P + 1) + 1
    return number


def _still_open(model: Adder, P: int, decided: DecidedPairs) -> np.ndarray:
    """The sums whose margin is not above 0 for sure; the pairs of the others are counted as right."""
    z = np.arange(2 * P - 1)
    margins = margins_by_sum(model, P)
    is_right = margins > 0
    decided.right += int(how_many(z[is_right], P).sum())
    if is_right.any():
        least = int(np.where(is_right, margins, np.inf).argmin())
        first = max(0, least - P + 1)
        decided.narrow((first, least - first), float(margins[least]))
    return z[~is_right]


def of_sum(z: int, P: int) -> list[Pair]:
    """The pairs below P with a sum.

    >>> of_sum(3, 3)
    [(1, 2), (2, 1)]
    """
    return [(a, z - a) for a in range(max(0, z - P + 1), min(z, P - 1) + 1)]


def _answer(model: Adder, P: int, pair: Pair) -> exact.Answer:
    """Decides one pair in balls of growing precision."""
    a, b = pair
    return exact.answers(model, [a, b, P], [2], [(a + b) % P])[0]


def tables(model: Adder, P: int) -> list[TokenTables]:
    """By head: the exponentials and the values of a first, a second number, and "="."""
    layer = model.blocks[0]
    E, X = numbers(model.E), numbers(model.positions)
    x = [
        Ball.exact(E[:P]) + Ball.exact(X[:1]),
        Ball.exact(E[:P]) + Ball.exact(X[1:2]),
        Ball.exact(E[P:]) + Ball.exact(X[2:]),
    ]
    heads = []
    for W_Q, W_K, W_V in zip(*map(numbers, (layer.W_Q, layer.W_K, layer.W_V)), strict=True):
        query = x[2] @ Ball.exact(W_Q)
        scores = joined(*(((key @ Ball.exact(W_K)) @ query.T).T for key in x))
        w = softmax.weights(scores).T
        heads.append(TokenTables((w[:P], w[P : 2 * P], w[2 * P :]), tuple(v @ Ball.exact(W_V) for v in x)))  # type: ignore[arg-type]
    return heads


def margins_of_pairs(model: Adder, P: int, heads: list[TokenTables], a: np.ndarray, b: np.ndarray) -> Ball:
    """The margins (pairs, classes) of the pairs (a, b), infinite for the right class."""
    layer = model.blocks[0]
    own = Ball.exact(numbers(model.E)[P:]) + Ball.exact(numbers(model.positions)[2:])
    W_O, W_1, b_1, W_2 = map(numbers, (layer.W_O, layer.W_1, layer.b_1, layer.W_2))
    x = own if model.has_skip else None
    for head, W in zip(heads, W_O, strict=True):
        w, v = head.weights, head.values
        total = w[0][a] + w[1][b] + w[2]
        mixed = (w[0][a] * v[0][a] + w[1][b] * v[1][b] + w[2] * v[2]) / total
        part = mixed @ Ball.exact(W)
        x = part if x is None else x + part
    assert x is not None
    read = x @ Ball.exact(W_1) + Ball.exact(b_1)
    written = relu(read) @ Ball.exact(W_2)
    y = x + written if model.has_skip else written
    logits = y @ Ball.exact(numbers(model.W_out)) + Ball.exact(numbers(model.b_out))
    right, pair = (a + b) % P, np.arange(len(a))
    margins = logits[pair, right][:, None] - logits
    margins.mid[pair, right], margins.rad[pair, right] = np.inf, 0.0
    return margins
