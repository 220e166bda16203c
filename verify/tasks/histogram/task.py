"""The histogram task: the right answer, and what a certificate says of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from inspect import signature
from math import ceil, floor
from typing import TYPE_CHECKING, cast

from verify.tasks.histogram.stored import StoredModel

if TYPE_CHECKING:
    import torch

Progress = Callable[[float], None]
BRACKET = 1000  # parts of a share that progress tells
RIGHT = "right means: the right class has strictly the largest logit"


def histogram(tokens: Sequence[int]) -> list[int]:
    """The right answer: how often each position's token occurs.

    >>> histogram([5, 3, 3])
    [1, 2, 2]
    """
    return [list(tokens).count(token) for token in tokens]


def tell_bracket(progress: Progress, share: float, least: Fraction, most: Fraction) -> None:
    """Reports the finished share and, to a progress that takes words, between which shares are wrong so far.

    >>> tell_bracket(lambda share, doing="": print(doing), 0.5, Fraction(1, 3), Fraction(2, 3))
    deciding: between 0.333 and 0.667 are wrong
    """
    if len(signature(progress).parameters) < 2:
        progress(share)
        return
    low, high = floor(least * BRACKET) / BRACKET, ceil(most * BRACKET) / BRACKET
    with_words = cast(Callable[[float, str], None], progress)
    with_words(share, f"deciding: between {low:.3f} and {high:.3f} are wrong")


def parameters(stored: StoredModel, dtype: torch.dtype | str) -> dict[str, object]:
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
