"""The search for an input and an order of evaluation in which a rounded model is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from verify.arithmetic.evaluation import ORDERS, Evaluation, Tokens
from verify.arithmetic.formats import Format
from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.histogram.rounded.directed import DIRECTED_ORDERS, Directed
from verify.tasks.histogram.rounded.forward import logits
from verify.tasks.histogram.rounded.forward import margins as computed_margins
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import Progress

FIRST, MOST = 20, 4096  # inputs tried in the first round and at most; the rounds grow fourfold
RANDOM_TREES = 4
PRODUCTS = 1 << 18  # between two looks at the clock
DIRECTED_RUNS = 4 * len(DIRECTED_ORDERS)  # a position against two rivals, products fused and not
DIRECTED = 20  # inputs tried at a time, each sum of each by its own worst order
MOST_PAIRS, MOST_DIRECTED = 1 << 13, 500


@dataclass(frozen=True)
class SimulatedFailure:
    """An input, a position and an evaluation whose right logit is not strictly the largest (NaN included)."""

    tokens: list[int]
    position: int
    predicted: int | None
    margin: float
    order: str
    evaluation: dict[str, object] | None  # where it can be named


class Paced:
    """A deadline that is looked at once for so many products, so that a step is as much work in every model."""

    def __init__(self, deadline: Deadline, products_of_a_position: int) -> None:
        self.deadline, self.weight = deadline, products_of_a_position
        self.ahead = PRODUCTS  # the first look is taken at once

    def is_up(self, positions: int) -> bool:
        """Whether it is over, before so many positions are run once more."""
        self.ahead += positions * self.weight
        looks, self.ahead = divmod(self.ahead, PRODUCTS)
        return any(self.deadline.is_up() for _ in range(looks))


def products(stored: StoredModel) -> int:
    """The products of one position once its scores are known."""
    return (stored.L + 1) * stored.d + stored.p * (stored.d + stored.classes)


def search(
    stored: StoredModel,
    margins: Array,
    positions: list[int],
    fmt: Format,
    accumulate: Format | None,
    deadline: Deadline,
    seed: int,
    progress: Progress | None = None,
) -> SimulatedFailure | None:
    """Runs inputs of the undecided cells (rows, T, L), smallest margins first, in one order after another.

    Every order sees a few inputs before any order sees many; a plain order is named where one fails.
    """
    inputs, paced = candidates(stored, margins, positions, seed), Paced(deadline, products(stored))
    start, size = 0, FIRST
    while start < len(inputs):
        batch = inputs[start : start + size]
        for i, evaluation in enumerate(evaluations(fmt, accumulate, stored)):
            if i and paced.is_up(len(batch) * stored.L):
                return None
            failure = first_failure(stored, batch, evaluation)
            if failure is not None:
                return failure
        failure = directed_search(stored, batch, positions, fmt, accumulate, paced)
        if failure is None and start <= FIRST < start + size:  # once: before it gets long
            tightest = tightest_pairs(stored, margins, positions, Evaluation(fmt, accumulate))
            failure = directed_search(stored, tightest, positions, fmt, accumulate, paced)
        if failure is not None:
            return failure
        if progress is not None:
            progress((start + len(batch)) / len(inputs))
        start, size = start + len(batch), size * 4
    return None


def directed_search(
    stored: StoredModel, inputs: Tokens, positions: list[int], fmt: Format, accumulate: Format | None, paced: Paced
) -> SimulatedFailure | None:
    """The first failure among these inputs of sums in their worst order, a few inputs at a time."""
    stores = (False, True) if stored.is_softmax and accumulate is not None else (False,)
    rounds = (True, False) if fmt.name == "tf32" else (True,)
    for i in range(0, len(inputs), DIRECTED):
        for choices in product(stores, rounds):
            if paced.is_up(len(inputs[i : i + DIRECTED]) * len(positions) * DIRECTED_RUNS):
                return None
            directed = Directed(Evaluation(fmt, accumulate), *choices)
            failure = directed_failure(stored, inputs[i : i + DIRECTED], positions, directed)
            if failure is not None:
                return failure
    return None


def tightest_pairs(stored: StoredModel, margins: Array, positions: list[int], evaluation: Evaluation) -> Tokens:
    """The inputs of open cells with one other token whose margin is smallest in one evaluation, smallest first."""
    cells = np.argwhere(~(margins > 0))
    cells = cells[np.argsort(margins[tuple(cells.T)], kind="stable")][: MOST_PAIRS // stored.T]
    inputs, at = [], []
    for row, t, k in cells.tolist():
        for s in range(stored.T):
            if s != t:
                rest = [t] * k + [s] * (stored.L - 1 - k)
                inputs.append([*rest[: positions[row]], t, *rest[positions[row] :]])
                at.append(positions[row])
    if not inputs:
        return np.zeros((0, stored.L), dtype=np.int64)
    found = computed_margins(stored, np.array(inputs), evaluation)[np.arange(len(at)), at]
    return np.array(inputs)[np.argsort(found, kind="stable")][:MOST_DIRECTED]


def evaluations(fmt: Format, accumulate: Format | None, stored: StoredModel) -> Iterator[Evaluation]:
    """Plain orders first, then fused, driven and random ones, with a reciprocal of sqrt(d), and flushed."""
    for fused in (False, True):
        for order in ORDERS:
            for seed in range(RANDOM_TREES if order == "random" else 1):
                yield Evaluation(fmt, accumulate, order, fused=fused, seed=seed)
    if not stored.is_linear and int(np.sqrt(stored.d)) ** 2 != stored.d:
        for order in ("left to right", "upwards", "downwards", "pairwise"):
            yield Evaluation(fmt, accumulate, order, reciprocal=True)
    yield Evaluation(fmt, accumulate, flush=True)


def first_failure(stored: StoredModel, inputs: Tokens, evaluation: Evaluation) -> SimulatedFailure | None:
    """The failure with the fewest distinct tokens among these inputs, in this evaluation."""
    values = logits(stored, inputs, evaluation)
    right = (inputs[:, :, None] == inputs[:, None, :]).sum(-1) - stored.first_count
    with np.errstate(invalid="ignore"):
        margin = margins_of(values, right)
    wrong = np.argwhere(~(margin > 0))
    if not len(wrong):
        return None
    n, position = min(wrong.tolist(), key=lambda pair: (len(set(inputs[pair[0]].tolist())), pair))
    others = [c for c in range(stored.classes) if c != right[n, position]]
    is_number = not np.isnan(margin[n, position])
    predicted = max(others, key=values[n, position].__getitem__) + stored.first_count if is_number else None
    return SimulatedFailure(
        inputs[n].tolist(), position, predicted, float(margin[n, position]), description(evaluation), evaluation.named()
    )


def directed_failure(
    stored: StoredModel, inputs: Tokens, positions: list[int], directed: Directed
) -> SimulatedFailure | None:
    """The worst of these inputs, where every sum is taken in the order that hurts most against a neighbouring count."""
    worst: SimulatedFailure | None = None
    order = "each sum in its worst order" + ", softmax stored step by step" * directed.stores_softmax
    order += ", factors not rounded" * (not directed.rounds_factors)
    for position in positions:
        at = np.full(len(inputs), position)
        right = (inputs == inputs[:, [position]]).sum(1) - stored.first_count
        for rival in (right - 1, right + 1):
            possible = np.nonzero((rival >= 0) & (rival < stored.classes))[0]
            if not len(possible):
                continue
            with np.errstate(all="ignore"):
                found = directed.margins(stored, inputs[possible], at[possible], rival[possible])
            i = int(np.nanargmin(found)) if not np.isnan(found).all() else 0
            if found[i] <= 0 and (worst is None or found[i] < worst.margin):
                tokens, predicted = inputs[possible[i]].tolist(), int(rival[possible[i]]) + stored.first_count
                one = [x[possible[[i]]] for x in (inputs, at, rival)]
                worst = SimulatedFailure(
                    tokens, position, predicted, float(found[i]), order, directed.named(stored, *one)
                )
    return worst


def description(evaluation: Evaluation) -> str:
    """The evaluation in words."""
    words = [f"sums {evaluation.order}" if evaluation.order != "random" else f"a random tree (seed {evaluation.seed})"]
    words += ["products fused"] * evaluation.fused + ["subnormals flushed"] * evaluation.flush
    words += ["times 1/sqrt(d)"] * evaluation.reciprocal
    return ", ".join(words)


def candidates(stored: StoredModel, margins: Array, positions: list[int], seed: int) -> Tokens:
    """Inputs of the open cells: with one other token, every other token in turn, and with several.

    All counts take turns, each with its tightest tokens first. A position class is tried at its first position,
    given for each row.
    """
    rng = np.random.default_rng(seed)
    rank = np.argsort(np.argsort(margins, axis=1, kind="stable"), axis=1)
    rows, t, k = np.nonzero(~(margins > 0))
    order = np.lexsort((margins[rows, t, k], rank[rows, t, k]))
    inputs: list[list[int]] = []
    for turn in range(1, stored.T):
        for row, token, count in zip(rows[order].tolist(), t[order].tolist(), (k[order] + 1).tolist(), strict=True):
            others = [(token + turn) % stored.T] * (stored.L - count)
            if len(inputs) % 4 == 3:
                others = [(token + 1 + int(s)) % stored.T for s in rng.integers(stored.T - 1, size=len(others))]
            rest = [token] * (count - 1) + others
            if len(inputs) % 2:
                rng.shuffle(rest)
            inputs.append([*rest[: positions[row]], token, *rest[positions[row] :]])
            if len(inputs) == MOST:
                return np.array(inputs)
    return np.array(inputs)
