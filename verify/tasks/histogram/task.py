"""The histogram task: the right answer, and what a certificate says of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.contract import Contract
from verify.arithmetic.readings import ConstantBits, Reading, Rounded
from verify.frame.over_time import Bracket, OverTime
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


class BracketBar:
    """A progress bar that says between which shares are wrong so far, and keeps how they became narrow.

    Each search tells its own bracket, which may be wider than an earlier one: what was known stays known.

    >>> bar = BracketBar(lambda share, doing: print(share, doing))
    >>> bar.tell(0.5, wrong=10, open_pairs=10, pairs=30)
    0.5 deciding: between 0.333 and 0.667 are wrong
    >>> bar.tell(0.6, wrong=12, open_pairs=15, pairs=30)
    0.6 deciding: between 0.400 and 0.667 are wrong
    """

    def __init__(self, bar: Callable[[float, str], None]) -> None:
        self.bar, self.doing, self.over_time = bar, "deciding", OverTime()
        self.right = self.wrong = self.pairs = 0

    def __call__(self, share: float) -> None:
        self.bar(share, self.doing)

    def tell(self, share: float, wrong: int, open_pairs: int, pairs: int) -> None:
        """Of all pairs of a sequence and a position, so many are known to be wrong, and so many are open."""
        self.pairs = pairs
        self.right, self.wrong = max(self.right, pairs - wrong - open_pairs), max(self.wrong, wrong)
        self.over_time.see(self.right, self.wrong)
        low, high = self.wrong * BRACKET // pairs, -((self.right - pairs) * BRACKET // pairs)
        self.doing = f"deciding: between {low / BRACKET:.3f} and {high / BRACKET:.3f} are wrong"
        self(share)

    def brackets(self, wrong: tuple[Fraction, Fraction] | None) -> list[Bracket]:
        """Seconds, and between which shares the accuracy was known to lie; `wrong` is what the certificate says."""
        if wrong is None or not self.over_time.points:
            return []
        low, high = wrong
        self.over_time.see(floor((1 - high) * self.pairs), floor(low * self.pairs), is_last=True)
        return self.over_time.brackets(self.pairs)


def tell_bracket(progress: Progress, share: float, wrong: int, open_pairs: int, pairs: int) -> None:
    """Reports the finished share and, to a bar that shows it, how many pairs are wrong and how many are open."""
    if isinstance(progress, BracketBar):
        progress.tell(share, wrong, open_pairs, pairs)
    else:
        progress(share)


def parameters(stored: StoredModel, dtype: torch.dtype | str, reading: Reading) -> dict[str, object]:
    """Returns the fields that identify a model's shape, and the precision of the reading, in a certificate."""
    precision: dict[str, object] = {}
    if isinstance(reading, Rounded):
        inner = RoundedArithmetic.of(reading.format, reading.accumulate).inner.name
        precision = {"precision": reading.format.name, "accumulate": inner}
    elif isinstance(reading, ConstantBits):
        precision = {"precision": f"s{reading.s}"}
    return {
        "model": stored.model,
        "T": stored.T,
        "L": stored.L,
        "d": stored.d,
        "p": stored.p,
        "dtype": str(dtype).removeprefix("torch."),
        **precision,
    }


def assumptions_in(reading: Rounded) -> tuple[str, ...]:
    """What a proof in a format assumes."""
    inner = RoundedArithmetic.of(reading.format, reading.accumulate).inner
    scores = f"scores divided by sqrt(d), or times its reciprocal, each rounded to {inner.name} or not at all"
    right = "right means: the right class has strictly the largest computed logit"
    return (*Contract(scores=scores).text(reading.format, inner), right)


def formula(stored: StoredModel) -> str:
    """The model in one line."""
    mixing = "A" if stored.is_linear else "x W_Q W_K^T x^T / sqrt(d)"
    mixing = f"softmax({mixing})" if stored.is_softmax else mixing
    return f"x' = x + {mixing} x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, evaluated in real arithmetic"
