"""Verdicts from running the module itself: on every sequence, or on sampled ones that are then shrunk.

It runs as torch runs it, or, where a number s of bits is given, in constant-bit arithmetic.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from constructions.constant_bits.run import constant_bit
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.arithmetic.contract import constant_bits
from verify.certificate import READING_BIT_EXACT, Certificate, Verdict
from verify.histogram.stored import StoredModel
from verify.histogram.verdict import Progress, histogram, parameters
from verify.judged import unparametrized

BATCH = 1 << 14
EXAMPLES = 1000
Run = Callable[[Tensor], Tensor]


def runner(module: HistogramTransformer, s: int | None) -> Run:
    """The module as torch runs it, or in s-bit arithmetic."""
    return module if s is None else constant_bit(unparametrized(module), s)


def exhaustive(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    claim: str | None = None,
    budget: float = 30.0,
    progress: Progress | None = None,
    s: int | None = None,
) -> Certificate:
    """Runs the module as it is on all T^L sequences and counts every wrong (sequence, position) pair.

    Claim: any of A-4.1 to A-B.4, in the reading bit-exact: this torch, this dtype, this batch shape; or, given s,
        arithmetic of s bits (E, Sec. 3.3).
    Units: budget in seconds.
    Raises: BadInput when the run would take longer than the budget, with the estimated time.

    >>> from constructions import relation_counting
    >>> exhaustive(relation_counting.dot(T=4, L=3)).inputs_covered
    64
    """
    started = time.perf_counter()
    stored = StoredModel.of(module, L)
    n, run = stored.T**stored.L, runner(module, s)
    _refuse_beyond(budget, run, stored)
    wrong, best, margin, done = 0, None, float("inf"), 0
    for tokens in _all_sequences(stored.T, stored.L):
        margins = run_margins(run, tokens, stored.first_count)
        wrong += int((~(margins > 0)).sum())
        margin = min(margin, float(margins.min()))
        best = _smaller(best, _smallest_wrong(tokens, margins))
        done += len(tokens)
        if progress is not None:
            progress(done / n)
    share = Fraction(wrong, n * stored.L)
    return Certificate(
        Verdict.PROVED if best is None else Verdict.REFUTED,
        inputs_covered=n,
        margin=margin,
        counterexample=None if best is None else counterexample(run, stored, best[1], best[2], True),
        error_share=(share, share),
        extra={"wrong_pairs": str(wrong)},
        seconds=time.perf_counter() - started,
        **common(module, stored, "exhaustive", claim, s),
    )


def sampled(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    claim: str | None = None,
    seed: int = 0,
    s: int | None = None,
) -> Certificate:
    """Runs the module on sequences drawn by recursive partitions; shrinks a failure, and never proves.

    Claim: A-D for the sampler; the reading is bit-exact, one sequence at a time.

    >>> from constructions import relation_counting
    >>> wrong = sampled(relation_counting.bos(T=4, L=3, as_printed=True))
    >>> wrong.verdict.value, wrong.counterexample["tokens"]
    ('REFUTED', [0, 0, 1])
    """
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import NoSuchExample

    from verify.strategies import histogram_sequences

    started = time.perf_counter()
    stored = StoredModel.of(module, L)
    run = runner(module, s)

    def is_wrong(tokens: list[int]) -> bool:
        return not bool((run_margins(run, torch.tensor([tokens]), stored.first_count) > 0).all())

    chosen = settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    shared = common(module, stored, "sampled", claim, s)
    try:
        tokens = find(histogram_sequences(stored.T, stored.L), is_wrong, settings=chosen, random=random.Random(seed))
    except NoSuchExample:
        return Certificate(
            Verdict.UNKNOWN,
            inputs_covered=EXAMPLES,
            reason=f"no failure among {EXAMPLES} sampled sequences, and sampling never proves",
            seconds=time.perf_counter() - started,
            **shared,
        )
    margins = run_margins(run, torch.tensor([tokens]), stored.first_count)[0]
    position = int((~(margins > 0)).nonzero()[0])
    return Certificate(
        Verdict.REFUTED,
        inputs_covered=1,
        margin=float(margins[position]),
        counterexample=counterexample(run, stored, tokens, position, False),
        seconds=time.perf_counter() - started,
        **shared,
    )


@torch.no_grad()
def run_margins(run: Run, tokens: Tensor, first_count: int = 1) -> Tensor:
    """(logit of the right class) - (largest other logit) as they are computed: (n, L), NaN where a logit is."""
    logits = run(tokens).double()
    right = ((tokens[:, :, None] == tokens[:, None, :]).sum(-1) - first_count)[..., None]
    at_right = logits.gather(-1, right)[..., 0]
    if logits.shape[-1] == 1:
        return torch.where(at_right.isnan(), at_right, torch.inf)
    others = logits.scatter(-1, right, -torch.inf).max(-1).values  # max propagates NaN
    return at_right - others


def _refuse_beyond(budget: float, run: Run, stored: StoredModel) -> None:
    n, seconds = stored.T**stored.L, seconds_for_all(run, stored)
    if seconds > budget:
        raise BadInput(
            f"method=exhaustive: {n} sequences take about {readable_time(seconds)} here, more than the budget of "
            f"{budget:g} s. Use --method certified, or --budget {seconds * 1.5:.0f}."
        )


def seconds_for_all(run: Run, stored: StoredModel) -> float:
    """About how long a run on all sequences takes; 0 where one batch holds them."""
    n = stored.T**stored.L
    if n <= BATCH:
        return 0.0
    probe = next(_all_sequences(stored.T, stored.L))[: BATCH // 16]
    run_margins(run, probe, stored.first_count)
    before = time.perf_counter()
    run_margins(run, probe, stored.first_count)
    return (time.perf_counter() - before) / len(probe) * n


def readable_time(seconds: float) -> str:
    """Seconds in the unit that people use.

    >>> readable_time(90), readable_time(3e9)
    ('1.5 minutes', '95.1 years')
    """
    for unit, size in (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds"


def _all_sequences(T: int, L: int) -> Iterator[Tensor]:
    """All T^L sequences in lexicographic order, in batches of one shape (the last one may be shorter)."""
    n = T**L
    place = torch.tensor([T**e for e in reversed(range(L))]) if n < 1 << 62 else None
    for start in range(0, n, BATCH):
        index = torch.arange(start, min(n, start + BATCH))[:, None]
        if place is None:  # only ever asked for its first batch, to estimate the time
            low = torch.tensor([T**e if T**e < 1 << 62 else 1 << 62 for e in reversed(range(L))])
            yield index // low % T
        else:
            yield index // place % T


Wrong = tuple[int, list[int], int]


def _smallest_wrong(tokens: Tensor, margins: Tensor) -> Wrong | None:
    """Fewest distinct tokens, then lexicographic, then the first position."""
    is_wrong = ~(margins > 0)
    rows = is_wrong.any(1).nonzero()[:, 0]
    if not len(rows):
        return None
    ordered = tokens[rows].sort(1).values
    distinct = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    row = rows[distinct.argmin()]  # the first of them: the batch is in lexicographic order
    return int(distinct.min()), tokens[row].tolist(), int(is_wrong[row].nonzero()[0, 0])


def _smaller(a: Wrong | None, b: Wrong | None) -> Wrong | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def counterexample(
    run: Run, stored: StoredModel, tokens: list[int], position: int, is_smallest: bool
) -> dict[str, Any]:
    """What the run answers at a wrong position."""
    with torch.no_grad():
        logits = run(torch.tensor([tokens]))[0, position].double()
    expected = histogram(tokens)[position]
    best = (logits == logits.max()).nonzero()[:, 0] + stored.first_count
    others = [int(count) for count in best if int(count) != expected]
    predicted = int(logits.argmax()) + stored.first_count
    return {
        "tokens": tokens,
        "position": position,
        "expected": expected,
        "predicted": others[0] if others else None,
        "is_tie": len(best) > 1,
        "module_predicts": predicted,
        "is_smallest": is_smallest,
    }


def common(
    module: HistogramTransformer, stored: StoredModel, method: str, claim: str | None, s: int | None
) -> dict[str, Any]:
    """What every certificate of the reading bit-exact says."""
    shape = f"batches of {BATCH}" if method == "exhaustive" else "one sequence at a time"
    by_torch = (
        f"torch {torch.__version__} on CPU, {str(module.dtype).removeprefix('torch.')}, {shape}: "
        "another kernel, batch shape or device may round differently"
    )
    return {
        "claim": claim,
        "task": "histogram",
        "parameters": parameters(stored, module.dtype) | ({} if s is None else {"precision": f"s{s}"}),
        "reading": READING_BIT_EXACT,
        "method": method,
        "assumptions": (
            by_torch if s is None else constant_bits(s),
            "right means: the right class has strictly the largest logit",
        ),
    }
