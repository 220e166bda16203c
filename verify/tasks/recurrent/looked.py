"""What is run beside a proof: single inputs in float64, of arrays without making their module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from constructions.model_arrays import ModelArrays
from constructions.recurrent import arrays
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import OneRun, margins_between, margins_of
from verify.arithmetic.readings import Reading, Real, Rounded
from verify.arithmetic.slack import Array
from verify.frame.certificate import Verdict
from verify.frame.decide import Finding, Item

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

AGREES = 1e-6  # of the logits: by how much a run in float64 may be off real arithmetic; no bound is derived
DRAWN = 8  # inputs that are run beside a proof of arrays; of a module the frame runs more


def logits_at_end(model: AnyModel, tokens: Sequence[int]) -> Array:
    """The logits at the end of an input in float64.

    >>> from constructions.recurrent import counters, counters_arrays
    >>> [logits_at_end(kind.ring(m=2), (0, 0)).tolist() for kind in (counters, counters_arrays)]
    [[0.0, 1.0], [0.0, 1.0]]
    """
    if isinstance(model, ModelArrays):
        return arrays.logits(model, tokens)
    import torch

    with torch.no_grad():
        found: Array = deepcopy(model).double()(torch.tensor([tokens]))[0, -1].numpy()
    return found


def one_run(model: AnyModel, tokens: Sequence[int], right: int, reading: Reading) -> OneRun:
    """What no proved margin of this answer may exceed: that of a run in float64.

    A proof in float64 is of all of its runs, this one among them. Beside one in real arithmetic the run is off by its
    rounding, for which AGREES of the logits stand. Of other readings it says nothing.
    """
    is_own = isinstance(reading, Rounded) and reading == Rounded(FORMATS["float64"])
    if not is_own and not isinstance(reading, Real):
        return OneRun()
    logits = logits_at_end(model, tokens)
    if np.isnan(margins_of(logits, right)):
        return OneRun(at_most=-np.inf)
    off = 0.0 if is_own else AGREES * (1 + float(np.abs(logits).max()))
    return OneRun(at_most=float(margins_between(logits, logits, right)[1]) + off)


def with_drawn(finding: Finding, drawn: Iterator[tuple[Item, int]]) -> Finding:
    """A proof of arrays with drawn inputs that are looked at too: no module of them is run."""
    if finding.verdict is not Verdict.PROVED:
        return finding
    return replace(finding, telling=(*finding.telling, *drawn))
