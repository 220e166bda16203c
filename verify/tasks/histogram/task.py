"""The histogram task: the right answer, and what a certificate says of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from verify.tasks.histogram.stored import StoredModel

if TYPE_CHECKING:
    import torch

Progress = Callable[[float], None]
RIGHT = "right means: the right class has strictly the largest logit"


def histogram(tokens: Sequence[int]) -> list[int]:
    """The right answer: how often each position's token occurs.

    >>> histogram([5, 3, 3])
    [1, 2, 2]
    """
    return [list(tokens).count(token) for token in tokens]


def parameters(stored: StoredModel, dtype: torch.dtype | str) -> dict[str, Any]:
    """Returns the fields that identify a model's shape in a certificate."""
    return {
        "model": stored.model,
        "T": stored.T,
        "L": stored.L,
        "d": stored.d,
        "p": stored.p,
        "dtype": str(dtype).removeprefix("torch."),
    }


def formula(stored: StoredModel) -> str:
    """The model in one line."""
    mixing = "A" if stored.is_linear else "x W_Q W_K^T x^T / sqrt(d)"
    mixing = f"softmax({mixing})" if stored.is_softmax else mixing
    return f"x' = x + {mixing} x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, evaluated in real arithmetic"
