"""The histogram task, and the procedure that decides a model on all T^L sequences and all positions.

Task: at every position, the class with strictly the largest logit stands for the number of times the
position's token occurs in the sequence. A tie is a failure: the argmax of a tie is an accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypedDict

from verify.arithmetic.outward import decimal
from verify.arithmetic.readings import Real
from verify.frame import decide
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget
from verify.frame.decide import Effort, Failure, Finding, Item, silent
from verify.tasks.histogram.exact_forward import ExactForward, Judgement
from verify.tasks.histogram.reduction import Reduction, Row
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import Progress, histogram
from verify.tasks.histogram.vertices import DecidedCells, decide_cells

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer

VERTICES, SPLIT = "vertices", "vertices, then multisets one by one or in regions"

# Largest d (d + T) for which the tightest input of a proof is also evaluated exactly, a matter of milliseconds.
EXACT_TIGHTEST_UP_TO = 1 << 15
MOST_SPLIT = 8  # cells that were split, of which an input is run beside the proof


def certify(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    claim: str | None = None,
    budget: float | Budget = 30.0,
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
    from verify.tasks.histogram.problem import Histogram

    effort = Effort(budget, progress=progress or silent)
    return decide.certify(
        Histogram.of(module, L, claim, lambda problem, _, effort: prove(problem, effort)), Real(), effort
    )


class TightestInput(TypedDict):
    """The input of the smallest margin, as the certificate has it."""

    tokens: list[int]
    position: int
    expected: int
    margin: float


class CountProblem(Protocol):
    """What the proof needs of a problem: the stored numbers, and what the model that runs answers."""

    @property
    def stored(self) -> StoredModel:
        """The numbers that are judged."""

    def predict(self, tokens: Sequence[int], position: int) -> int:
        """The count that the model answers at a position."""


def prove(problem: CountProblem, effort: Effort) -> Finding:
    """By the vertices of every cell, and by branch and bound where they leave some open."""
    deadline, stored = effort.deadline(), problem.stored
    reduction, exact = Reduction(stored), ExactForward(stored)
    cells = decide_cells(reduction)
    if not cells.open:
        return _proved(VERTICES, reduction, exact, cells, {})
    from verify.tasks.histogram.by_cost import decide_open

    outcome = decide_open(reduction, exact, cells.open, deadline, effort.progress)
    wrong = outcome.exact_wrong_pairs
    found: dict[str, object] = {
        "error_share": outcome.error_share,
        "extra": {"wrong_pairs": None if wrong is None else decimal(wrong), "tree": outcome.record.to_json()},
    }
    if outcome.counterexample is not None:
        found_at = outcome.counterexample
        failure = exact_failure(problem, exact, found_at.tokens, found_at.position, outcome.is_smallest)
        return Finding.refuted(SPLIT, failure, **found)
    if outcome.open_pairs:
        reason = f"the {effort.limit} ended with undecided inputs and no counterexample"
        return Finding.open(SPLIT, reason, **found)
    return _proved(SPLIT, reduction, exact, cells, outcome.right_margin, **found)


def _proved(
    argument: str,
    reduction: Reduction,
    exact: ExactForward,
    cells: DecidedCells,
    split_margin: dict[int, float],
    **found: object,
) -> Finding:
    stored = reduction.stored
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
        telling=_telling(reduction, cells, tightest),
        **found,
    )


def _tightest(stored: StoredModel, exact: ExactForward, cells: DecidedCells) -> tuple[TightestInput | None, str | None]:
    """The input with the smallest margin among the vertices of the tightest cell, evaluated exactly."""
    if not cells.tightest:
        return None, None
    margin, row, t, k = min(cells.tightest.values(), key=lambda cell: cell.margin)
    inputs = _vertices(stored, row, t, k)
    if stored.d * (stored.d + stored.T) > EXACT_TIGHTEST_UP_TO:
        tokens, position = inputs[0]
        return {"tokens": tokens, "position": position, "expected": k, "margin": margin}, None
    judged = [(exact.judge(tokens, position), tokens, position) for tokens, position in inputs]
    judgement, tokens, position = min(judged, key=lambda item: item[0].margin[0])
    found: TightestInput = {"tokens": tokens, "position": position, "expected": k, "margin": judgement.margin[0]}
    return found, judgement.margin_exact


def _telling(reduction: Reduction, cells: DecidedCells, tightest: TightestInput | None) -> tuple[tuple[Item, int], ...]:
    """The tightest input, one of the tightest cell of each other way, and one each of a few cells that were split."""
    ways = sorted(cells.tightest.values(), key=lambda cell: cell.margin)
    kinds = [(cell.row, cell.t, cell.k) for cell in ways[1:]]
    opened = islice(cells.open.items(), MOST_SPLIT)
    split = [(reduction.rows[row], t, k) for (row, t), counts in opened for k in counts[:1]]
    inputs = [_vertices(reduction.stored, *cell)[0] for cell in kinds + split]
    first = [] if tightest is None else [(tightest["tokens"], tightest["position"])]
    return tuple((tuple(tokens), position) for tokens, position in first + inputs)


def _vertices(stored: StoredModel, row: Row, t: int, k: int) -> list[tuple[list[int], int]]:
    """Two inputs of a cell: its token k times, and one other token, the first or the last, in all other places."""
    others = [s for s in range(stored.T) if s != t][:: max(1, (stored.T - 2))][:2] if k < stored.L else [t]
    return [_two_token_input(stored, row, t, s, k) for s in others]


def _two_token_input(stored: StoredModel, row: Row, t: int, s: int, k: int) -> tuple[list[int], int]:
    position = row.positions[0]
    rest = [t] * (k - 1) + [s] * (stored.L - k)
    return [*rest[:position], t, *rest[position:]], position


def exact_failure(
    problem: CountProblem, exact: ExactForward, tokens: Sequence[int], position: int, is_smallest: bool
) -> Failure:
    """A wrong input, replayed in exact arithmetic."""
    judgement = exact.judge(tokens, position)
    if judgement.is_right:
        raise AssertionError(f"the search and the exact forward pass disagree on {tokens} at {position}")
    found = counterexample(problem, tokens, position, judgement, is_smallest)
    return Failure(found, judgement.margin[1], judgement.margin_exact)


def counterexample(
    problem: CountProblem, tokens: Sequence[int], position: int, judgement: Judgement, is_smallest: bool
) -> dict[str, object]:
    """A wrong input, what is expected and predicted there, and what the torch module itself answers."""
    expected = histogram(tokens)[position]
    others = [count for count in judgement.winners if count != expected]
    return {
        "input": list(tokens),
        "tokens": list(tokens),
        "position": position,
        "expected": expected,
        "predicted": others[0],
        "is_tie": len(judgement.winners) > 1,
        "module_predicts": problem.predict(tokens, position),
        "is_smallest": is_smallest,
    }
