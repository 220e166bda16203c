"""Runs inputs that are drawn at random: a model that is often wrong is refuted before a search comes to such an input.

What is computed in float64 only chooses: the exact forward pass judges the inputs that look wrong.
"""

from __future__ import annotations

import random

import numpy as np

from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import FORMATS
from verify.frame.clock import Deadline
from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.rounded.forward import margins
from verify.tasks.histogram.stored import StoredModel

SEED = 0
AT_ONCE, MOST = 1 << 9, 1 << 14  # inputs that are run together, and in all
MOST_JUDGED = 4  # of those run together: exponentials of rationals take up to a tenth of a second each


def run_some(stored: StoredModel, exact: ExactForward, smallest: Smallest, deadline: Deadline) -> None:
    """Adds wrong inputs to `smallest`: at least those of one batch are run, and no more once a wrong one is known."""
    rng = random.Random(SEED)
    for _ in range(0, MOST, AT_ONCE):
        tokens = np.array([_drawn(stored, rng) for _ in range(AT_ONCE)], dtype=np.int64)
        found = margins(stored, tokens, Evaluation(FORMATS["float64"]))
        worst = np.argsort(np.where(np.isnan(found), np.inf, found), axis=None)[:MOST_JUDGED]
        for i, position in np.stack(np.unravel_index(worst, found.shape), axis=1).tolist():
            sequence = tuple(tokens[i].tolist())
            if not found[i, position] > 0 and not exact.judge(sequence, position).is_right:
                smallest.add(Candidate(len(set(sequence)), sequence, position))
        if smallest.candidate is not None or deadline.is_up():
            return


def _drawn(stored: StoredModel, rng: random.Random) -> list[int]:
    """One input, whose tokens are some few of all in every other draw, so that large counts come up as well."""
    number = rng.choice((stored.T, rng.randint(1, min(stored.T, stored.L))))
    return rng.choices(rng.sample(range(stored.T), number), k=stored.L)
