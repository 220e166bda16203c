"""What a model computes on one input, as the page of --report draws it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
import torch

from constructions.histogram import HistogramTransformer
from verify.report.page import Case, LookAt, ModelView


def look_at(module: HistogramTransformer) -> LookAt:
    """A run in float64 of the input of a case: the logits at its position, and what the position attends to.

    >>> from constructions import relation_counting
    >>> look = look_at(relation_counting.bos(T=3, L=2))({"tokens": [1, 1], "position": 0})
    >>> max(look.logits, key=look.logits.get), [name for name, _ in look.attention]
    (2, ['BOS', '1', '1'])
    """
    exact = copy.deepcopy(module).double()

    def look(case: Case) -> ModelView:
        tokens, position = case["tokens"] if "tokens" in case else case["input"], case["position"]
        assert isinstance(tokens, Sequence) and isinstance(position, SupportsIndex)
        attention = mixing_matrix(module, tokens)[position].tolist()
        with torch.no_grad():
            logits = exact(torch.tensor(tokens))[position].tolist()
        names = ["BOS"] * exact.has_bos + [str(token) for token in tokens]
        return ModelView(dict(enumerate(logits, exact.first_count)), list(zip(names, attention, strict=True)))

    return look


def mixing_matrix(module: HistogramTransformer, tokens: Sequence[int]) -> np.ndarray:
    """A(x) in float64: (L, L), or (L, L + 1) with BOS in front."""
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        x = exact.E[torch.tensor(tokens)]
        mixing: np.ndarray = exact.mixing(x, torch.cat([exact.e_BOS[None], x]) if exact.has_bos else x).numpy()
    return mixing
