"""Histogram models in the reading "dtype, any order": proved by certified errors, refuted by a run in some order."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from constructions.histogram import HistogramTransformer
from verify.arithmetic.any_order import Arithmetic
from verify.arithmetic.contract import Contract
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import KERNELS, Format
from verify.certificate import READING_DTYPE, Certificate, Verdict
from verify.histogram.rounded.cells import RoundedReadout, cell_margins
from verify.histogram.rounded.forward import rounded_model
from verify.histogram.rounded.reduction import RoundedReduction
from verify.histogram.rounded.refutation import Failure, search
from verify.histogram.stored import StoredModel
from verify.histogram.verdict import Progress, parameters
from verify.judged import check_judged, unparametrized

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def certify(
    module: HistogramTransformer,
    *,
    fmt: Format,
    accumulate: Format | None = None,
    L: int | None = None,
    claim: str | None = None,
    budget: float = 30.0,
    progress: Progress | None = None,
    seed: int = 0,
) -> Certificate:
    """Decides a model whose weights and operations are rounded to a format, in every order of evaluation.

    Claim: any histogram claim, in the reading of docs/precision.md.
    Units: budget in seconds; it only limits the search for a failure.
    Raises: BadInput for weights that are not finite, an L that the model cannot be judged at, or an
        accumulation with fewer bits than the format.

    >>> from constructions import relation_counting
    >>> from verify.arithmetic.formats import FORMATS
    >>> certify(relation_counting.bos(T=8, L=4, d=16), fmt=FORMATS["float16"]).verdict.value
    'PROVED'
    """
    started = time.perf_counter()
    arithmetic = Arithmetic.of(fmt, accumulate)
    check_judged(module, HistogramTransformer)
    module = unparametrized(module)
    given = StoredModel.of(deepcopy(module).float() if module.dtype in FLOAT8 else module, L)
    stored = rounded_model(given, Evaluation(fmt))
    margins, positions, reduction = np.full((1, stored.T, stored.L), -np.inf), [0], None
    if is_finite(stored):
        with np.errstate(all="ignore"):  # overflow and NaN decide nothing: every test is false for them
            reduction = RoundedReduction(stored, arithmetic)
            margins, positions = cell_margins(reduction), [row.positions[0] for row in reduction.rows]
    common: dict[str, Any] = {
        "claim": claim,
        "task": "histogram",
        "parameters": parameters(stored, module.dtype) | {"precision": fmt.name, "accumulate": arithmetic.inner.name},
        "reading": READING_DTYPE,
        "method": "certified",
        "assumptions": assumptions(fmt, arithmetic),
    }
    if (margins > 0).all():
        return Certificate(
            Verdict.PROVED,
            inputs_covered=stored.T**stored.L,
            margin=float(margins.min()),
            margin_per_count=tuple(float(m) for m in margins.min((0, 1))),
            seconds=time.perf_counter() - started,
            **common,
        )
    failure = search(stored, margins, positions, fmt, accumulate, started + budget, seed, progress)
    if failure is None:
        reason = (
            f"rounding may cost more than the margin for {(~(margins > 0)).sum()} of {margins.size} pairs of a token "
            "and its count, and no evaluation that was tried is wrong"
        )
        return Certificate(
            Verdict.UNKNOWN, inputs_covered=0, reason=reason, seconds=time.perf_counter() - started, **common
        )
    with np.errstate(all="ignore"):
        is_in_every_order = reduction is not None and RoundedReadout(reduction).is_wrong_in_every_order(
            failure.tokens, failure.position
        )
    return Certificate(
        Verdict.REFUTED,
        inputs_covered=1,
        margin=failure.margin,
        counterexample=counterexample(module, stored, fmt, failure)
        | {"fails_in": "every order" if is_in_every_order else "some order"},
        seconds=time.perf_counter() - started,
        **common,
    )


def is_finite(stored: StoredModel) -> bool:
    """Whether rounding the weights made none of them infinite."""
    values = (getattr(stored, field.name) for field in fields(stored))
    return all(bool(np.isfinite(W).all()) for W in values if isinstance(W, np.ndarray))


def assumptions(fmt: Format, arithmetic: Arithmetic) -> tuple[str, ...]:
    """What the certificate takes for granted."""
    scores = (
        f"scores divided by sqrt(d), or times its reciprocal, each rounded to {arithmetic.inner.name} or not at all"
    )
    right = "right means: the right class has strictly the largest computed logit"
    return (*Contract(scores=scores).text(fmt, arithmetic.inner), right)


def rounded_module(module: HistogramTransformer, stored: StoredModel, fmt: Format) -> HistogramTransformer:
    """The module with rounded weights, in the dtype of the format or else in one that holds its numbers exactly."""
    dtype = KERNELS.get(fmt.name, torch.float32 if fmt.p <= 24 else torch.float64)
    copy = deepcopy(module).to(dtype)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            parameter.copy_(torch.from_numpy(getattr(stored, name)))
    return copy


def counterexample(module: HistogramTransformer, stored: StoredModel, fmt: Format, failure: Failure) -> dict[str, Any]:
    """The failing input, the evaluation that fails, and what torch itself answers where it has such a kernel."""
    answer = None
    if fmt.name in KERNELS:
        with torch.no_grad():
            copy = rounded_module(module, stored, fmt)
            answer = int(copy.predict(torch.tensor([failure.tokens]))[0, failure.position])
    return {
        "tokens": failure.tokens,
        "position": failure.position,
        "expected": failure.tokens.count(failure.tokens[failure.position]),
        "predicted": failure.predicted,
        "is_tie": failure.margin == 0,
        "module_predicts": answer,
        "is_smallest": False,
        "order": failure.order,
    }
