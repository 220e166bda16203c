"""The histogram task: the right answer, and what a certificate says of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from verify.histogram.stored import StoredModel

Progress = Callable[[float], None]


def histogram(tokens: Sequence[int]) -> list[int]:
    """The right answer: how often each position's token occurs.

    >>> histogram([5, 3, 3])
    [1, 2, 2]
    """
    return [list(tokens).count(token) for token in tokens]


def parameters(stored: StoredModel, dtype: torch.dtype) -> dict[str, Any]:
    """What identifies a model's shape in a certificate."""
    return {
        "model": stored.model,
        "T": stored.T,
        "L": stored.L,
        "d": stored.d,
        "p": stored.p,
        "dtype": str(dtype).removeprefix("torch."),
    }
