"""Count01 models built for what their heads show: separation on all of N^3 by d_h, and heads that need each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from constructions import count01_heads_arrays
from constructions.count01 import FOUR as FOUR
from constructions.count01 import Count01Transformer
from constructions.model_arrays import name_of


def counting_pair(*, dtype: torch.dtype = torch.float64) -> Count01Transformer:
    """Two heads that need each other: one says the share of 0s, the other that of 1s, and the readout compares them.

    Claim: H-4; constructions.count01_heads_arrays.counting_pair says why it is right.
    Shapes: d = 4, heads = 2, d_h = 1.

    >>> counting_pair().next_logits(torch.tensor([0, 2, 1, 2, 3, 4])).argmax().item() == FOUR
    True
    """
    return count01_heads_arrays.counting_pair(dtype=name_of(dtype)).made(Count01Transformer)


def interval_pair(*, M: int, dtype: torch.dtype = torch.float64) -> Count01Transformer:
    """Two heads that need each other: one separates where there are at most M - 1 2s, the other from there to 2M - 2.

    Claim: H-6; constructions.count01_heads_arrays.interval_pair says why it is right.
    Shapes: d = 4, heads = 2, d_h = 1.
    Raises: BadInput for M that is no power of two up to 2^10: shares of 1/(2M) are stored exactly.

    >>> interval_pair(M=8).next_logits(torch.tensor([0, 2, 1, 2, 3, 4])).argmax().item() == FOUR
    True
    """
    return count01_heads_arrays.interval_pair(M=M, dtype=name_of(dtype)).made(Count01Transformer)


def uniform_head(values: Mapping[str, Sequence[float]], readout: Sequence[float]) -> Count01Transformer:
    """One head that attends uniformly, with any value vectors for BOS, 0, 1, 2 and "=", and a readout of its output.

    Claim: H-1; constructions.count01_heads_arrays.uniform_head says when it separates.
    Shapes: values: d_h numbers for each token, zero where none are given; readout (d_h,).
    Raises: BadInput for an unknown token, or vectors of different lengths.

    >>> uniform_head({"BOS": [-0.5], "0": [-1], "1": [1]}, [1.0]).generate([0, 2, 4])[0][0] == FOUR
    True
    """
    return count01_heads_arrays.uniform_head(values, readout).made(Count01Transformer)
