"""The documents' exact weights, with e not rounded, as a model the exact procedure can decide."""

from __future__ import annotations

from fractions import Fraction

from verify.arithmetic.exact_reals import exponentials
from verify.tasks.count01.real import ExactModel
from verify.tasks.count01.task import EOS, EQUALS, FIVE, FOUR

CLASSES = 8


def symbolic_model(N: int, labels: str, skip: bool = True) -> ExactModel:
    """The exact weights of `bounds.count01.tables`: logits are multiplied by 1 + e > 0, which clears a = N + e/(1+e).

    >>> from verify.tasks.count01.real import largest_noise
    >>> largest_noise(symbolic_model(10, "majority-ones"), "majority-ones", max_digits=None)
    1497
    """
    more_ones, rest = (FOUR, FIVE) if labels == "majority-ones" else (FIVE, FOUR)
    scale, stream = exponentials({0: 1, 1: 1}), N + int(skip)
    threshold = exponentials({0: stream, 1: stream + 1})  # (1 + e) (a + 1), without the skip connection (1 + e) a
    slopes, heights = {more_ones: 1, rest: -1, EOS: 4}, {more_ones: -threshold, rest: threshold}
    heights[EOS] = scale * (-12 * (N + 1))
    embedding = [Fraction(x) for x in (0, N, N + 1, 0, 1, N * N, N * N, 0)]
    W_out = [scale * slopes.get(c, 0) for c in range(CLASSES)]
    b_out = [heights.get(c, exponentials({})) for c in range(CLASSES)]
    queries = (EQUALS, FOUR, FIVE)
    return ExactModel(
        classes=CLASSES,
        scores=({last: [embedding[last] * x for x in embedding] for last in queries},),
        values=([[w * x for w in W_out] for x in embedding],),
        constant={
            last: [b + (w * embedding[last] if skip else 0) for w, b in zip(W_out, b_out, strict=True)]
            for last in queries
        },
        scale=scale,
    )
