"""The module run as torch runs it, or in constant-bit arithmetic: margins, all sequences, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from constructions.histogram import HistogramTransformer
from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import ConstantBits
from verify.frame.judged import unparametrized
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import histogram

BATCH = 1 << 14
ELEMENTS = 1 << 24  # of the mixing matrices of one batch, or of what is run at a time: 128 MiB
Forward = Callable[[Tensor], Tensor]


def runner(module: HistogramTransformer, s: int | None) -> Forward:
    """The module as torch runs it on its own device, or in s-bit arithmetic."""
    if s is not None:
        return ConstantBits(s).forward(unparametrized(module))
    return lambda tokens: module(tokens.to(module.E.device)).cpu()


@torch.no_grad()
def run_margins(run: Forward, tokens: Tensor, first_count: int = 1) -> Tensor:
    """(logit of the right class) - (largest other logit) as they are computed: (n, L), NaN where a logit is."""
    at_a_time = max(1, ELEMENTS // tokens.shape[1] ** 2)
    parts = [tokens[start : start + at_a_time] for start in range(0, len(tokens), at_a_time)]
    logits = torch.cat([run(part) for part in parts]).double()
    equal = [(part[:, :, None] == part[:, None, :]).sum(-1) for part in parts]
    return margins_of(logits, torch.cat(equal) - first_count)


def all_sequences(T: int, L: int) -> Iterator[Tensor]:
    """All T^L sequences in lexicographic order, in batches of one shape (the last one may be shorter)."""
    n = T**L
    place = torch.tensor([T**e for e in reversed(range(L))]) if n < 1 << 62 else None
    length = max(1, min(BATCH, ELEMENTS // L**2))
    for start in range(0, n, length):
        index = torch.arange(start, min(n, start + length))[:, None]
        if place is None:  # only ever asked for its first batch, to estimate the time
            low = torch.tensor([T**e if T**e < 1 << 62 else 1 << 62 for e in reversed(range(L))])
            yield index // low % T
        else:
            yield index // place % T


def smallest_wrong(tokens: Tensor, is_wrong: np.ndarray) -> tuple[tuple[int, list[int]], tuple[int, ...], int]:
    """Of a batch in lexicographic order the wrong answer with the fewest distinct tokens: its rank, item, position."""
    rows = np.flatnonzero(is_wrong.any(1))
    ordered = np.sort(tokens.numpy()[rows], axis=1)
    distinct = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    row = int(rows[distinct.argmin()])
    item = tokens[row].tolist()
    return (int(distinct.min()), item), tuple(item), int(is_wrong[row].argmax())


def counterexample(
    run: Forward, stored: StoredModel, tokens: list[int], position: int, is_smallest: bool
) -> dict[str, object]:
    """Describes a wrong position: the input, the due answer, and the one that the run gives."""
    with torch.no_grad():
        logits = run(torch.tensor([tokens]))[0, position].double()
    expected = histogram(tokens)[position]
    best = (logits == logits.max()).nonzero()[:, 0] + stored.first_count
    others = [int(count) for count in best if int(count) != expected]
    predicted = int(logits.argmax()) + stored.first_count
    return {
        "input": tokens,
        "tokens": tokens,
        "position": position,
        "expected": expected,
        "predicted": others[0] if others else None,
        "is_tie": len(best) > 1,
        "module_predicts": predicted,
        "is_smallest": is_smallest,
    }
