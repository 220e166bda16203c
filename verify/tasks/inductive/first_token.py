"""Which token is the first, in a dtype: cells of strings in real arithmetic, less what the logits drift."""

from __future__ import annotations

import math

import numpy as np

from constructions.decoder_arrays import DecoderArrays
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import OF_FEW
from verify.counting.tasks import FIRST, Task
from verify.frame.clock import Budget
from verify.tasks.inductive import boxes, cells, drift
from verify.tasks.inductive.boxes import Found
from verify.tasks.inductive.noisy import Allowed

ARGUMENT = "cells of token and another: forms in the counts, less what a dtype's logits are off by"
LARGEST = 1 << 24  # beyond what the numbers of weights that are built for a length hold


def applies(model: DecoderArrays, task: Task) -> bool:
    """Whether the argument speaks of a model: one layer of equal weights, ReLUs, no biases, the first token asked."""
    return task.name in FIRST and cells.unfit(model) is None


@np.errstate(all="ignore")
def decide(
    model: DecoderArrays, task: Task, longest: int | None, reading: Real | Rounded, budget: float | Budget
) -> Found:
    """The longest length up to which every string is found right, by halving, within some seconds."""
    found = Found(0, math.inf, math.inf)
    if isinstance(reading, Real):
        return found  # cells alone have decided it
    at = Allowed.of(reading)
    exact = drift.stored(model, at)
    low, high, n = 0, LARGEST if longest is None else longest, longest or 1
    if exact is None:
        return found._replace(ended_by=boxes.REREAD)
    deadline = Budget.of(budget).deadline()
    while low < high:
        if deadline.is_up():
            return found._replace(ended_by=boxes.CUT)
        margin = least_margin(at, exact, task, n)
        if margin > 0:
            low, found = n, Found(n, margin, margin)  # a margin is no less than itself, times D >= 1
        else:
            high = n - 1
        n = (low + high + 1) // 2
    return found


def least_margin(at: Allowed, model: DecoderArrays, task: Task, n: int) -> float:
    """A lower bound on the margins of every string of up to n tokens, 0 or less where none is proved."""
    proof = cells.decide(model, task, n, Real())
    if proof.margin_scaled is None:
        return 0.0
    keys = n + int(model.has_bos)
    off, of_s = drift.undivided(at, model, keys)
    undivided = proof.margin_scaled * proof.divisor / keys * (1 - OF_FEW) - off
    return undivided * (1 - of_s) / proof.divisor * (1 - OF_FEW) if of_s <= 0.5 else 0.0
