"""A histogram model in constant-bit arithmetic, reading bit-exact: every sequence, or a search for a wrong one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from verify.arithmetic.readings import ConstantBits
from verify.frame import decide
from verify.frame.clock import Clock
from verify.frame.decide import Effort, Finding, Run
from verify.tasks.histogram import runs
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.stored import StoredModel

SEARCH = "a search among telling sequences, run"
FASTEST = 100  # batches per second that no machine reaches: beyond, an estimate would be a waste of time


def prove(problem: Histogram, reading: ConstantBits, effort: Effort) -> Finding:
    """By running every sequence, or the telling ones where that would outlast half the budget."""
    deadline, stored, size = effort.deadline(), problem.stored, problem.size()
    run = problem.runner(reading)
    can_be_all = runs.BATCH * FASTEST * max(effort.seconds, 1) >= size
    if can_be_all and seconds_for_all(run, problem, effort.clock) <= effort.seconds / 2:
        return decide.run_all(problem, reading, effort)
    tried = 0
    for tokens in _telling_sequences(stored, np.random.default_rng(effort.seed)):
        is_wrong, tried = run(tokens).is_wrong, tried + len(tokens)
        if is_wrong.any():
            row, position = (int(i) for i in np.argwhere(is_wrong)[0])
            return Finding.refuted(SEARCH, problem.replay(tuple(tokens[row].tolist()), position, reading))
        if deadline.is_up():
            break
    reason = f"{tried} of {stored.T}^{stored.L} sequences run without a failure: all take longer than the budget"
    return Finding.open(SEARCH, reason)


def seconds_for_all(run: Run, problem: Histogram, clock: Clock) -> float:
    """About how long a run on all sequences takes; 0 where one batch holds them."""
    if problem.size() <= runs.BATCH:
        return 0.0
    probe = next(problem.batches())[: runs.BATCH // 16]
    run(probe)
    before = clock()
    run(probe)
    return (clock() - before) / len(probe) * problem.size()


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
