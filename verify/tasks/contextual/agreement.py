"""The tightest cell of a proof, run through the module: does float evaluation contradict what was proved?

A run can tell where the cell is proved in the module's dtype, in any order: then every evaluation names the right
count, and a wrong one means that the module is not what was proved about, or that the proof is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from constructions.contextual.transformer import ContextualCountingTransformer
from verify.arithmetic.formats import KERNELS, format_of
from verify.arithmetic.torch_settings import lowered
from verify.tasks.contextual.dtype import RoundedCells
from verify.tasks.contextual.runs import fillings
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.contextual.task import StringDomain, answers, written

LONGEST_RUN = 2048  # tokens: attention holds the square of it


def contradiction(
    module: ContextualCountingTransformer,
    stored: StoredContextual,
    domain: StringDomain,
    tightest: dict[str, Any] | None,
) -> str | None:
    """Runs the tightest cell's plainest string, and says what contradicts the proof. None where nothing does, or the
    run cannot tell.
    """
    fmt = format_of(module.dtype)
    if not tightest or fmt.name not in KERNELS or lowered(fmt):
        return None
    r, k, M = tightest["prompt"], tightest["count"], tightest["regions"][0]
    tokens = next(filter(domain.has, fillings(r, M, k, domain)), None)
    if tokens is None or len(tokens) > LONGEST_RUN:
        return None
    with torch.no_grad():
        said = int(module(torch.tensor(tokens, dtype=torch.long))[r - 1].argmax())
    right = answers(tokens, module.R)[r - 1]
    if said == right or not is_proved_in(stored, domain, fmt, r, k, M):
        return None
    return f"the module counts {said} at prompt {r} of {written(tokens)}, where {right} is right"


def is_proved_in(stored: StoredContextual, domain: StringDomain, fmt: Any, r: int, k: int, M: int) -> bool:
    """Whether count k of prompt r, in strings with M regions, is right in a format in every order."""
    with np.errstate(all="ignore"):
        proof = RoundedCells(stored, domain, fmt)
        margins = proof.cells(proof.weigh(r - 1), r, M, M).margin
    return k < len(margins) and bool(margins[k] > 0)
