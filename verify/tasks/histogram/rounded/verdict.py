"""Histogram models in the reading "dtype, any order": proved by certified errors, refuted by a run in some order."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from constructions.histogram_arrays import HistogramArrays
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import KERNEL_NAMES, Format
from verify.arithmetic.readings import Rounded
from verify.frame import decide
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget
from verify.frame.decide import Effort, Finding, silent
from verify.tasks.histogram.agreement import rounded_module
from verify.tasks.histogram.record import Record
from verify.tasks.histogram.rounded.cells import RoundedReadout, cell_margins
from verify.tasks.histogram.rounded.forward import rounded_model
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.rounded.refutation import SimulatedFailure, search
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import Progress

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from verify.tasks.histogram.array_problem import ArrayHistogram
    from verify.tasks.histogram.problem import Histogram

ARGUMENT = "a lower bound on every computed margin"
PROVING = 0.8  # of the budget; the rest is for the search for a failure


def certify(
    model: HistogramTransformer | HistogramArrays,
    *,
    fmt: Format,
    accumulate: Format | None = None,
    L: int | None = None,
    claim: str | None = None,
    budget: float | Budget = 30.0,
    progress: Progress | None = None,
    seed: int = 0,
) -> Certificate:
    """Decides a model whose weights and operations are rounded to a format, in every order of evaluation.

    Claim: any histogram claim, in the reading of docs/precision.md.
    Units: budget in seconds; it limits the splitting of cells and the search for a failure.
    Raises: BadInput for weights that are not finite, an L that the model cannot be judged at, or an
        accumulation with fewer bits than the format.

    >>> from constructions import relation_counting
    >>> from verify.arithmetic.formats import FORMATS
    >>> certify(relation_counting.bos(T=8, L=4, d=16), fmt=FORMATS["float16"]).verdict.value
    'PROVED'
    """
    problem: Histogram | ArrayHistogram
    if isinstance(model, HistogramArrays) and L in (None, model.L):
        from verify.tasks.histogram.array_problem import ArrayHistogram

        problem = ArrayHistogram.of(model, claim, prove)
    else:
        from verify.tasks.histogram.problem import Histogram

        problem = Histogram.of(model.module() if isinstance(model, HistogramArrays) else model, L, claim, prove)
    return decide.certify(problem, Rounded(fmt, accumulate), Effort(budget, seed, progress or silent))


def prove(problem: Histogram | ArrayHistogram, reading: Rounded, effort: Effort) -> Finding:
    """Proves by a lower bound on each computed margin, cell by cell. Else inputs of open cells run in many orders."""
    deadline, fmt, accumulate = effort.deadline(), reading.format, reading.accumulate
    stored = rounded_model(problem.stored, Evaluation(fmt))
    margins, positions, reduction, record = np.full((1, stored.T, stored.L), -np.inf), [0], None, Record()
    if is_finite(stored):
        reduction = RoundedReduction(stored, RoundedArithmetic.of(fmt, accumulate))
        margins = cell_margins(reduction, deadline.part(PROVING).is_up, record)
        positions = [row.positions[0] for row in reduction.rows]
    if (margins > 0).all():
        tokens, position, expected = tightest(stored, margins, positions)
        return Finding.proved(
            ARGUMENT,
            float(margins.min()),
            margin_per_count=tuple(float(m) for m in margins.min((0, 1))),
            tightest={"tokens": tokens, "position": position, "expected": expected},
            extra={"tree": record.to_json()} if record.number or record.is_full else {},
            telling=((tuple(tokens), position),),
        )
    failure = search(stored, margins, positions, fmt, accumulate, deadline, effort.seed, effort.progress)
    if failure is None:
        reason = (
            f"rounding may cost more than the margin for {(~(margins > 0)).sum()} of {margins.size} pairs of a token "
            "and its count, and no evaluation that was tried is wrong"
        )
        return Finding.open(ARGUMENT, reason)
    is_in_every_order = reduction is not None and RoundedReadout(reduction).is_wrong_in_every_order(
        failure.tokens, failure.position
    )
    found = counterexample(problem, stored, fmt, failure)
    found |= {"fails_in": "every order" if is_in_every_order else "some order"}
    margin = failure.margin if failure.margin == failure.margin else None
    return Finding.refuted("a run in the dtype", decide.Failure(found, margin))


def tightest(stored: StoredModel, margins: np.ndarray, positions: list[int]) -> tuple[list[int], int, int]:
    """An input of the cell with the smallest bound: its token, one other token in all other places."""
    row, t, k = (int(i) for i in np.unravel_index(int(margins.argmin()), margins.shape))
    position, other = positions[row], (t + 1) % stored.T
    rest = [t] * k + [other] * (stored.L - 1 - k)
    return [*rest[:position], t, *rest[position:]], position, k + 1


def is_finite(stored: StoredModel) -> bool:
    """Whether rounding the weights made none of them infinite."""
    values = (getattr(stored, field.name) for field in fields(stored))
    return all(bool(np.isfinite(W).all()) for W in values if isinstance(W, np.ndarray))


def counterexample(
    problem: Histogram | ArrayHistogram, stored: StoredModel, fmt: Format, failure: SimulatedFailure
) -> dict[str, object]:
    """The failing input, the evaluation that fails, and what torch itself answers where it has such a kernel."""
    answer = None
    if fmt.name in KERNEL_NAMES:
        import torch

        with torch.no_grad():
            copy = rounded_module(problem.module, stored, fmt)
            answer = int(copy.predict(torch.tensor([failure.tokens]))[0, failure.position])
    return {
        "input": failure.tokens,
        "tokens": failure.tokens,
        "position": failure.position,
        "expected": failure.tokens.count(failure.tokens[failure.position]),
        "predicted": failure.predicted,
        "is_tie": failure.margin == 0,
        "module_predicts": answer,
        "is_smallest": False,
        "order": failure.order,
        **({} if failure.evaluation is None else {"run_as": failure.evaluation}),
    }
