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

import numpy as np
import torch

from constructions.histogram import HistogramTransformer
from verify.certificate import READING_REAL, Certificate, Verdict
from verify.histogram.exact_forward import ExactForward, Judgement
from verify.histogram.reduction import Reduction, Row
from verify.histogram.stored import StoredModel
from verify.histogram.vertices import Cells, decide_cells
from verify.judged import check_seconds

Progress = Callable[[float], None]

# Largest d (d + T) for which the tightest input of a proof is also evaluated exactly, a matter of milliseconds.
EXACT_TIGHTEST_UP_TO = 1 << 15


def histogram(tokens: Sequence[int]) -> list[int]:
    """The right answer: how often each position's token occurs.

    >>> histogram([5, 3, 3])
    [1, 2, 2]
    """
    return [list(tokens).count(token) for token in tokens]


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
    started = time.perf_counter()
    check_seconds("budget", budget)
    stored = StoredModel.of(module, L)
    with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test below is false for them
        return _certify(module, stored, claim, started, budget, progress)


def _certify(
    module: HistogramTransformer,
    stored: StoredModel,
    claim: str | None,
    started: float,
    budget: float,
    progress: Progress | None,
) -> Certificate:
    reduction, exact = Reduction(stored), ExactForward(stored)
    cells = decide_cells(reduction)
    common: dict[str, Any] = {
        "claim": claim,
        "task": "histogram",
        "parameters": parameters(stored, module.dtype),
        "reading": READING_REAL,
        "method": "certified",
        "assumptions": assumptions(stored),
    }
    if not cells.open:
        return _proved(module, stored, exact, cells, {}, started, common)
    outcome = _branch_and_bound(reduction, exact, cells, started + budget, progress)
    common["error_share"] = outcome.error_share
    common["extra"] = {"wrong_pairs": None if outcome.open_pairs else str(outcome.wrong_pairs)}
    if outcome.counterexample is not None:
        return _refuted(module, stored, exact, outcome, started, common)
    if outcome.open_pairs:
        return Certificate(
            Verdict.UNKNOWN,
            inputs_covered=0,
            reason=f"the budget of {budget:g} s ended with undecided inputs and no counterexample",
            seconds=time.perf_counter() - started,
            **common,
        )
    return _proved(module, stored, exact, cells, outcome.right_margin, started, common)


def parameters(stored: StoredModel, dtype: torch.dtype) -> dict[str, Any]:
    """What identifies a model's shape in a certificate."""
    return {
        "model": stored.model,
        "T": stored.T,
        "L": stored.L,
        "d": stored.d,
        "p": stored.p,
        "dtype": str(dtype).removeprefix("torch."),
    }


def assumptions(stored: StoredModel) -> tuple[str, ...]:
    """What the certificate takes for granted."""
    mixing = "A" if stored.is_linear else "x W_Q W_K^T x^T / sqrt(d)"
    mixing = f"softmax({mixing})" if stored.is_softmax else mixing
    return (
        f"x' = x + {mixing} x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, evaluated in real arithmetic",
        "the weights are the stored numbers, exactly",
        "right means: the right class has strictly the largest logit",
    )


def _proved(
    module: HistogramTransformer,
    stored: StoredModel,
    exact: ExactForward,
    cells: Cells,
    split_margin: dict[int, float],
    started: float,
    common: dict[str, Any],
) -> Certificate:
    margins = [
        min(float(cells.margin_per_count[k - 1]), split_margin.get(k, float("inf"))) for k in range(1, stored.L + 1)
    ]
    tightest, margin_exact = _tightest(stored, exact, cells)
    return Certificate(
        Verdict.PROVED,
        inputs_covered=stored.T**stored.L,
        margin=min(margins),
        margin_exact=margin_exact,
        margin_per_count=tuple(margins),
        tightest=tightest,
        seconds=time.perf_counter() - started,
        **common,
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
    return len(row.positions) * sum(comb(stored.L - 1, k - 1) * others ** (stored.L - k) for k in counts)


def _report(progress: Progress | None, searches: Sequence[Any], total: int) -> None:
    if progress is not None:
        progress(1 - sum(search.open_pairs() for search in searches) / total)


def _refuted(
    module: HistogramTransformer,
    stored: StoredModel,
    exact: ExactForward,
    outcome: Outcome,
    started: float,
    common: dict[str, Any],
) -> Certificate:
    assert outcome.counterexample is not None
    tokens, position = outcome.counterexample
    judgement = exact.judge(tokens, position)
    if judgement.is_right:
        raise AssertionError(f"the search and the exact forward pass disagree on {tokens} at {position}")
    return Certificate(
        Verdict.REFUTED,
        inputs_covered=stored.T**stored.L if not outcome.open_pairs else 1,
        margin=judgement.margin[1],
        margin_exact=judgement.margin_exact,
        counterexample=counterexample(module, tokens, position, judgement, outcome.is_smallest),
        seconds=time.perf_counter() - started,
        **common,
    )


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
        module_predicts = int(module.predict(torch.tensor([list(tokens)]))[0, position])
    return {
        "tokens": list(tokens),
        "position": position,
        "expected": expected,
        "predicted": others[0],
        "is_tie": len(judgement.winners) > 1,
        "module_predicts": module_predicts,
        "is_smallest": is_smallest,
    }
