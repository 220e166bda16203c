"""Reading "dtype, any order": the cells of the real proof, widened by the rounding of every operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from constructions.contextual_counting_arrays import BOS, ZERO
from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, point
from verify.arithmetic.formats import Format, format_of
from verify.arithmetic.readings import Kernel
from verify.arithmetic.slack import ENLARGE, INFLATION, Array
from verify.arithmetic.softmax import Arguments, exponential_error, quotient_error, total_error
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import Effort, Finding, Item
from verify.tasks.contextual.cells import PromptCells, PromptProof, Weighed, weighed
from verify.tasks.contextual.proof import CellsInTime, where
from verify.tasks.contextual.readout import LineReadout
from verify.tasks.contextual.rounding import Queries, lowest_bit, position_errors
from verify.tasks.contextual.runs import candidates, margins, telling
from verify.tasks.contextual.stream import DecidableRegions, Encoded, Kinds, Positions, StoredContextual, see
from verify.tasks.contextual.task import StringDomain

if TYPE_CHECKING:
    from constructions.contextual.transformer import ContextualCountingTransformer
    from verify.tasks.contextual.model import ContextualModel

ARGUMENT = "cells of strings, margin above error bound"
# strings tried, their tokens, and attention scores computed, in search of a failing run
MOST_RUNS, MOST_TOKENS, RUN_BUDGET = 400, 10**6, 2 * 10**8


class RoundedCells(PromptProof):
    """The cells with every number replaced by all that can be computed for it in a format."""

    def __init__(
        self, stored: StoredContextual, domain: StringDomain, fmt: Format, until: Deadline | None = None
    ) -> None:
        super().__init__(stored, domain, LineReadout(stored.W["W_out"], stored.W["b_out"], fmt), until)
        self.fmt = fmt

    @cached_property
    def queries(self) -> Queries:
        """Those of all prompts.

        Raises: TimeIsUp.
        """
        return Queries.of(self.stored, self.fmt, self.until)

    def see(self, kinds: Kinds, encoded: Encoded) -> Positions:
        """What can be computed of them."""
        exact = see(self.stored, encoded, self.reader)
        errors = position_errors(self.stored, kinds, encoded, self.queries, self.fmt)
        scores = Ball(exact.scores.mid, (exact.scores.rad + errors.scores) * ENLARGE)
        return Positions(scores, Ball(exact.values.mid, exact.values.rad + errors.values))

    def weigh(self, prompt: int) -> Weighed:
        """Computed weights; a score that is exact and the largest of all has weight 1 wherever it occurs."""
        scores = self.seen.scores[:, prompt]
        found = Arguments.of(scores, RoundedArithmetic.of(self.fmt))
        relative = np.where(found.is_top, 0.0, exponential_error(found.distance + found.off, self.fmt))
        exact = weighed(Ball(scores.mid, found.off), self.seen.values)
        upper = exact.weights.upper * (1 + relative) * INFLATION
        weights = Ball.between(np.maximum(exact.weights.lower * (1 - relative) / INFLATION, 0.0), upper)
        weights = Ball(weights.mid, np.where(np.isnan(weights.mid), np.inf, weights.rad))
        return Weighed(weights, exact.values, weights[:, None] * exact.values, found.is_top)

    def outputs(self, weighed: Weighed, r: int, fewest: int, most: int, k: np.ndarray) -> tuple[Array, Array]:
        """Bounds on the computed output: those of the computed weights, and the rounding of the sums."""
        low, high = self.mean(weighed, r, fewest, most, k)
        sizes = point(weighed.values.magnitude)
        # the mean of the values' sizes is what the sums' errors are relative to
        sized = replace(weighed, values=sizes, products=weighed.weights[:, None] * sizes)
        error = self.sum_error(weighed, r, fewest, most, k)[:, None] * self.mean(sized, r, fewest, most, k)[1]
        error = (error + self.flushed(weighed, most)) * INFLATION
        # weighed before it is normalised, a sum can overflow where the mean does not
        is_there = (self.kinds.m <= 2 * most) | (self.kinds.tokens == BOS)
        largest = (self.domain.N + 1) * sizes.mid[is_there].max(axis=0)
        error = np.where(largest < self.fmt.largest / 2, error, np.inf)
        return np.nextafter(low - error, -np.inf), np.nextafter(high + error, np.inf)

    def flushed(self, weighed: Weighed, most: int) -> float:
        """Bounds the cost of underflow: zero where each share that counts stays normal and all values have one sign."""
        is_there = (self.kinds.m <= 2 * most) | (self.kinds.tokens == BOS)
        valued = is_there & (weighed.values.magnitude > 0).any(axis=1)
        if not valued.any():
            return 0.0
        values = weighed.values[valued]
        smallest = np.maximum(values.lower, -values.upper).min()
        has_one_sign = bool((values.lower > 0).all() or (values.upper < 0).all())
        share = float(weighed.weights.lower[valued].min()) / (self.domain.N + 2)
        if has_one_sign and share * min(1.0, smallest) > 2 * self.fmt.tiny:
            return 0.0
        return 4 * (self.domain.N + 1) * self.fmt.tiny * (1 + float(values.magnitude.max()))

    def sum_error(self, weighed: Weighed, r: int, fewest: int, most: int, k: np.ndarray) -> Array:
        """The relative error (counts,) of total, quotient, products and sum, with respect to the mean size."""
        tokens, m, at = self.kinds.tokens, self.kinds.m, RoundedArithmetic.of(self.fmt)
        is_there = (m <= 2 * most) | (tokens == BOS)
        has_value = np.asarray((weighed.values.magnitude > 0).any(axis=1))
        least, ones = self.count(weighed.is_one, r, fewest, most, k)
        _, valued = self.count(has_value, r, fewest, most, k)
        others = is_there & ~weighed.is_one
        heaviest = weighed.weights.upper[others].max() if others.any() else 0.0
        terms = self.domain.N + 1
        total = total_error(at, terms, ones, terms * heaviest * INFLATION, least >= 1, is_one_format=True)
        return quotient_error(total, at.growth_of_products(np.maximum(valued - 1, 0) + 3))

    def count(self, chosen: np.ndarray, r: int, fewest: int, most: int, k: np.ndarray) -> tuple[Array, Array]:
        """At least and at most how many positions of a cell are of the chosen kinds."""
        tokens, m = self.kinds.tokens, self.kinds.m
        is_target, is_free = self.digits_of(r, most)
        delimiters = [int((chosen & ~self.is_digit & ((m <= 2 * M) | (tokens == BOS))).sum()) for M in (fewest, most)]
        target = k * int((chosen & is_target).any())
        zeros = self.domain.zeros or 0
        at_least, at_most = delimiters[0] + target, delimiters[1] + target
        if self.domain.zeros is not None:
            is_zero = is_free & (tokens == ZERO)
            at_least = at_least + zeros * int(chosen[is_zero].all() and is_zero.any())
            at_most = at_most + zeros * int(chosen[is_zero].any())
            is_free &= tokens != ZERO
        room = self.domain.N - 2 * fewest - zeros - k
        return at_least, at_most + room * int((chosen & is_free).any())


def prove(problem: DecidableRegions, fmt: Format, effort: Effort) -> Finding:
    """Decides every cell with its errors. Where one stays open, looks for a string that the module itself gets wrong.

    Raises: BadInput for weights that the format does not hold.
    """
    module, stored, domain = problem.module, problem.stored, problem.domain
    check_representable(stored, fmt)
    until = effort.deadline()
    decided = CellsInTime.of(RoundedCells(stored, domain, fmt, until), effort)
    if decided.margin > 0:
        at = where(decided.tightest)
        return Finding.proved(ARGUMENT, decided.margin, tightest=at, telling=telling(decided.cells, domain))
    try:
        found = failing_run(module, decided.cells, domain, until) if format_of(module.dtype) == fmt else None
    except TimeIsUp:
        return Finding.open(ARGUMENT, decided.ended(effort))
    if found is not None:
        return Finding.refuted(ARGUMENT, problem.replay(*found, Kernel()))
    if not decided.are_all:
        return Finding.open(ARGUMENT, decided.ended(effort))
    return Finding.open(ARGUMENT, f"the error bound exceeds the margin at {decided.place}; no failing run found")


def check_representable(stored: StoredContextual, fmt: Format) -> None:
    """Raises BadInput unless every stored number is one of the format's."""
    for name, W in stored.W.items():
        size = np.abs(W[W != 0])
        span = np.frexp(size)[1] - lowest_bit(size)
        if len(size) and not ((span <= fmt.p).all() and size.max() <= fmt.largest and size.min() >= fmt.tiny):
            raise BadInput(
                f"precision={fmt.name}: {name} holds numbers that {fmt.name} does not; round the weights first"
            )


def round_weights(module: ContextualCountingTransformer, fmt: Format) -> ContextualCountingTransformer:
    """Rounds the stored numbers to the nearest with fmt.p significant bits, in place."""
    import torch

    with torch.no_grad():
        for weight in module.parameters():
            fraction, exponent = torch.frexp(weight.double())
            weight.copy_(torch.ldexp(torch.round(fraction * 2.0**fmt.p) / 2.0**fmt.p, exponent))
    return module


def failing_run(
    module: ContextualModel, cells: Iterable[PromptCells], domain: StringDomain, until: Deadline
) -> tuple[Item, int] | None:
    """A string, and a prompt of it, that the module itself gets wrong in its dtype.

    Raises: TimeIsUp.
    """
    spent = 0
    for tokens in islice(candidates(cells, domain), 1 + min(MOST_RUNS, MOST_TOKENS // domain.N)):
        spent += (len(tokens) + 1) ** 2
        if spent > RUN_BUDGET:
            return None
        until.check()
        is_right = margins(module, [tuple(tokens)])[0] > 0
        if not is_right.all():
            return tuple(tokens), int(is_right.argmin())
    return None
