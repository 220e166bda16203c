"""The histogram task, and the procedure that decides a model on all T^L sequences and all positions.

Task: at every position, the class with strictly the largest logit stands for the number of times the
position's token occurs in the sequence. A tie is a failure: the argmax of a tie is an accident.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import torch

from constructions.histogram import HistogramTransformer
from verify import decide
from verify.arithmetic.outward import decimal
from verify.arithmetic.readings import Real
from verify.certificate import Certificate
from verify.decide import Effort, Failure, Finding, silent
from verify.histogram.exact_forward import ExactForward, Judgement
from verify.histogram.problem import Histogram
from verify.histogram.reduction import Reduction, Row
from verify.histogram.stored import StoredModel
from verify.histogram.task import Progress, histogram
from verify.histogram.vertices import Cells, decide_cells

VERTICES, SPLIT = "vertices", "vertices, then branch and bound"

# Largest d (d + T) for which the tightest input of a proof is also evaluated exactly, a matter of milliseconds.
EXACT_TIGHTEST_UP_TO = 1 << 15


def certify(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    claim: str | None = None,
    budget: float = 30.0,
    progress: Progress | None = None,
) -> Certificate:
    """Decides a model, hand-built, loaded or mutated, on all T^L sequences in real arithmetic.

    Claim: any of A-4.1 to A-B.4; reductions 1-4 of the architecture page.
    Units: budget in seconds; it only limits branch and bound.
    Raises: BadInput for weights that are not finite or an L that the model cannot be judged at.

    >>> from constructions import relation_counting
    >>> certificate = certify(relation_counting.dot(T=32, L=10, d=32))
    >>> certificate.verdict.value, certificate.inputs_covered
    ('PROVED', 1125899906842624)
    """
    effort = Effort(budget, progress=progress or silent)
    return decide.certify(Histogram.of(module, L, claim, prove), Real(), effort)


def prove(problem: Histogram, reading: Real, effort: Effort) -> Finding:
    """By the vertices of every cell, and by branch and bound where they leave some open."""
    started, stored = time.perf_counter(), problem.stored
    reduction, exact = Reduction(stored), ExactForward(stored)
    cells = decide_cells(reduction)
    if not cells.open:
        return _proved(VERTICES, stored, exact, cells, {})
    outcome = _branch_and_bound(reduction, exact, cells, started + effort.budget, effort.progress)
    found: dict[str, Any] = {
        "error_share": outcome.error_share,
        "extra": {"wrong_pairs": None if outcome.open_pairs else decimal(outcome.wrong_pairs)},
    }
    if outcome.counterexample is not None:
        tokens, position = outcome.counterexample
        failure = exact_failure(problem.module, exact, tokens, position, outcome.is_smallest)
        return Finding.refuted(SPLIT, failure, **found)
    if outcome.open_pairs:
        reason = f"the budget of {effort.budget:g} s ended with undecided inputs and no counterexample"
        return Finding.open(SPLIT, reason, **found)
    return _proved(SPLIT, stored, exact, cells, outcome.right_margin, **found)


def _proved(
    argument: str,
    stored: StoredModel,
    exact: ExactForward,
    cells: Cells,
    split_margin: dict[int, float],
    **found: Any,
) -> Finding:
    margins = [
        min(float(cells.margin_per_count[k - 1]), split_margin.get(k, float("inf"))) for k in range(1, stored.L + 1)
    ]
    tightest, margin_exact = _tightest(stored, exact, cells)
    return Finding.proved(
        argument,
        min(margins),
        margin_exact=margin_exact,
        margin_per_count=tuple(margins),
        tightest=tightest,
        **found,
    )


def _tightest(stored: StoredModel, exact: ExactForward, cells: Cells) -> tuple[dict[str, Any] | None, str | None]:
    """The input with the smallest margin among the vertices of the tightest cell, evaluated exactly."""
    if cells.tightest is None:
        return None, None
    margin, row, t, k = cells.tightest
    others = [s for s in range(stored.T) if s != t][:: max(1, (stored.T - 2))][:2] if k < stored.L else [t]
    inputs = [_two_token_input(stored, row, t, s, k) for s in others]
    if stored.d * (stored.d + stored.T) > EXACT_TIGHTEST_UP_TO:
        tokens, position = inputs[0]
        return {"tokens": tokens, "position": position, "expected": k, "margin": margin}, None
    judged = [(exact.judge(tokens, position), tokens, position) for tokens, position in inputs]
    judgement, tokens, position = min(judged, key=lambda item: item[0].margin[0])
    found = {"tokens": tokens, "position": position, "expected": k, "margin": judgement.margin[0]}
    return found, judgement.margin_exact


def _two_token_input(stored: StoredModel, row: Row, t: int, s: int, k: int) -> tuple[list[int], int]:
    position = row.positions[0]
    rest = [t] * (k - 1) + [s] * (stored.L - k)
    return [*rest[:position], t, *rest[position:]], position


@dataclass
class Outcome:
    """What branch and bound found: exact counts, bracket, and the smallest counterexample."""

    wrong_pairs: int
    open_pairs: int
    error_share: tuple[Fraction, Fraction]
    right_margin: dict[int, float]
    counterexample: tuple[tuple[int, ...], int] | None
    is_smallest: bool


def _branch_and_bound(
    reduction: Reduction,
    exact: ExactForward,
    cells: Cells,
    deadline: float,
    progress: Progress | None,
) -> Outcome:
    """First in order of distinct tokens, so that the smallest counterexample comes first; then by weight."""
    from verify.histogram.branch_and_bound import Search

    stored = reduction.stored
    half_time = (time.perf_counter() + deadline) / 2
    waiting_cells = list(cells.open.items())
    searches: list[Search] = []

    def start_searches(end: float) -> None:
        """Turns open cells into searches, at least one, until the time is up."""
        while waiting_cells and (not searches or time.perf_counter() < end):
            (row, t), counts = waiting_cells.pop(0)
            searches.append(Search(reduction, exact, reduction.rows[row], t, counts))

    start_searches(half_time)
    total = stored.L * stored.T**stored.L

    def is_over(end: float) -> Callable[[], bool]:
        return lambda: time.perf_counter() > end

    is_smallest = False
    for level in range(1, stored.T + 1):
        for search in searches:
            search.run_level(level, is_over(half_time))
        if any(search.pending.get(level) for search in searches):
            break
        if any(c.distinct <= level for search in searches for c in search.candidates):
            is_smallest = not waiting_cells
            break
        _report(progress, searches, total)
    while not is_over(deadline)():
        waiting = [search for search in searches if not search.is_finished]
        if not waiting:
            if not waiting_cells:
                break
            start_searches(min(deadline, time.perf_counter() + 1.0))
            continue
        for search in waiting:
            search.run_heaviest(is_over(deadline))
        _report(progress, searches, total)
    open_pairs = sum(search.open_pairs() for search in searches)
    open_pairs += sum(_pairs(stored, reduction.rows[row], counts) for (row, _), counts in waiting_cells)
    wrong_pairs = sum(search.wrong_pairs for search in searches)
    candidates = [c for search in searches for c in search.candidates]
    best = min(candidates) if candidates else None
    is_smallest |= not open_pairs and all(search.G <= 1 for search in searches)
    margins: dict[int, float] = {}
    for search in searches:
        for k, margin in search.right_margin.items():
            margins[k] = min(margin, margins.get(k, float("inf")))
    return Outcome(
        wrong_pairs,
        open_pairs,
        (Fraction(wrong_pairs, total), Fraction(min(total, wrong_pairs + open_pairs), total)),
        margins,
        None if best is None else (best.tokens, best.position),
        is_smallest,
    )


def _pairs(stored: StoredModel, row: Row, counts: Sequence[int]) -> int:
    """How many (sequence, position) pairs the cells of one token with these own counts hold."""
    others = stored.T - 1
    result: int = len(row.positions) * sum(comb(stored.L - 1, k - 1) * others ** (stored.L - k) for k in counts)
    return result


def _report(progress: Progress | None, searches: Sequence[Any], total: int) -> None:
    if progress is not None:
        progress(1 - sum(search.open_pairs() for search in searches) / total)


def exact_failure(
    module: HistogramTransformer, exact: ExactForward, tokens: Sequence[int], position: int, is_smallest: bool
) -> Failure:
    """A wrong input, replayed in exact arithmetic."""
    judgement = exact.judge(tokens, position)
    if judgement.is_right:
        raise AssertionError(f"the search and the exact forward pass disagree on {tokens} at {position}")
    found = counterexample(module, tokens, position, judgement, is_smallest)
    return Failure(found, judgement.margin[1], judgement.margin_exact)


def counterexample(
    module: HistogramTransformer,
    tokens: Sequence[int],
    position: int,
    judgement: Judgement,
    is_smallest: bool,
) -> dict[str, Any]:
    """A wrong input, what is expected and predicted there, and what the torch module itself answers."""
    expected = histogram(tokens)[position]
    others = [count for count in judgement.winners if count != expected]
    with torch.no_grad():
        module_predicts = int(module.predict(torch.tensor([list(tokens)], device=module.E.device))[0, position])
    return {
        "input": list(tokens),
        "tokens": list(tokens),
        "position": position,
        "expected": expected,
        "predicted": others[0],
        "is_tie": len(judgement.winners) > 1,
        "module_predicts": module_predicts,
        "is_smallest": is_smallest,
    }
