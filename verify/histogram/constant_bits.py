"""A histogram model in constant-bit arithmetic, reading bit-exact: every sequence, or a search for a wrong one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from constructions.histogram import HistogramTransformer
from verify.certificate import Certificate, Verdict
from verify.histogram import runs
from verify.histogram.stored import StoredModel
from verify.histogram.verdict import Progress

FASTEST = 100  # batches per second that no machine reaches: beyond, an estimate would be a waste of time


def certify(
    module: HistogramTransformer,
    s: int,
    *,
    L: int | None = None,
    claim: str | None = None,
    budget: float = 30.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Certificate:
    """Decides a model in s-bit arithmetic by all its T^L sequences, if the budget holds them.

    Otherwise it tries the sequences at which readouts turn, and random ones: they refute, and never prove.
    Claim: any of A-4.1 to A-B.4, in the arithmetic of E, Sec. 3.3.
    Units: budget in seconds.

    >>> from constructions import relation_counting
    >>> certify(relation_counting.bos(T=4, L=3), s=4).verdict.value
    'PROVED'
    """
    started = time.perf_counter()
    stored = StoredModel.of(module, L)
    run = runs.runner(module, s)
    can_be_all = runs.BATCH * FASTEST * max(budget, 1) >= stored.T**stored.L
    if can_be_all and runs.seconds_for_all(run, stored) <= budget / 2:
        return runs.exhaustive(module, L=L, claim=claim, budget=budget, progress=progress, s=s)
    shared = runs.common(module, stored, "certified", claim, s)
    tried = 0
    for tokens in _telling_sequences(stored, np.random.default_rng(seed)):
        margins = runs.run_margins(run, tokens, stored.first_count)
        tried += len(tokens)
        if bool((margins > 0).all()):
            if time.perf_counter() - started > budget:
                break
            continue
        row, position = (int(i) for i in (~(margins > 0)).nonzero()[0])
        found = runs.counterexample(run, stored, tokens[row].tolist(), position, False)
        return Certificate(
            Verdict.REFUTED,
            inputs_covered=1,
            margin=float(margins[row, position]),
            counterexample=found,
            seconds=time.perf_counter() - started,
            **shared,
        )
    return Certificate(
        Verdict.UNKNOWN,
        inputs_covered=tried,
        reason=f"{tried} of {stored.T}^{stored.L} sequences run without a failure: all take longer than the budget",
        seconds=time.perf_counter() - started,
        **shared,
    )


def _telling_sequences(stored: StoredModel, rng: np.random.Generator) -> Iterator[Tensor]:
    """Batches: each count of each token before one other token, then random sequences of few and of many tokens."""
    T, L = stored.T, stored.L
    for t in range(T):
        others = [s for s in range(T) if s != t]
        yield torch.tensor([[t] * k + [s] * (L - k) for k in range(1, L + 1) for s in others])
    for _ in range(T):
        alphabet = rng.integers(1, T + 1, (256, 1))
        offset = rng.integers(0, T, (256, 1))
        yield torch.from_numpy((rng.integers(0, T, (256, L)) % alphabet + offset) % T)
