"""Adding two numbers digit by digit, most significant digit first: the carry comes from attention alone.

E describes trained models in terms of base functions and carries and gives no weights; these are ours, those of
constructions.addition_arrays as modules.
"""

from __future__ import annotations

import torch

from constructions import addition_arrays
from constructions.adder.digits import Digits as Digits
from constructions.adder.transformer import AdderTransformer
from constructions.addition_arrays import DIGIT as DIGIT
from constructions.addition_arrays import HEADS as HEADS
from constructions.model_arrays import name_of


def one_head(*, n: int, B: int = 10, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """One layer, one head, two ReLUs: attention reads U = sum_j<=i (d_j + e_j) B^(j-i), the digit is floor(U) mod B.

    Claim: W-E4.1 (ours); constructions.addition_arrays.one_head says why it is right.
    Shapes: d = n + 4, d_h = n + 2, d_v = 1, p = 2.
    Raises: NotKnown where B^(n+1) - 1 has more bits than the dtype.

    >>> one_head(n=3).generate(torch.tensor([Digits(3).prompt(95, 905)]), 4)
    tensor([[1, 0, 0, 0]])
    """
    return addition_arrays.one_head(n=n, B=B, dtype=name_of(dtype)).made(AdderTransformer)


def two_heads(*, n: int, B: int = 10, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """One layer, two heads, four ReLUs: steps turn the lower columns' sum into the carry, and the margin is 1/2.

    Claim: W-E4.2 (ours); constructions.addition_arrays.two_heads says why it is right.
    Shapes: d = n + 7, d_h = n + 2, d_v = 1, p = 4.
    Raises: NotKnown where the steepest reading has more bits than the dtype.

    >>> two_heads(n=3, dtype=torch.float32).generate(torch.tensor([Digits(3).prompt(95, 905)]), 4)
    tensor([[1, 0, 0, 0]])
    """
    return addition_arrays.two_heads(n=n, B=B, dtype=name_of(dtype)).made(AdderTransformer)


def two_layers(*, n: int, B: int = 10, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """Two layers of one head: a column generates a carry, propagates or stops it; the nearest that decides does.

    Claim: W-E4.3 (ours); constructions.addition_arrays.two_layers says why it is right.
    Shapes: d = n + 8, d_h = n + 4, d_v = 1, p = 3 + 2.
    Raises: NotKnown where the scores, up to 24 n + 120, have more bits than the dtype.

    >>> two_layers(n=3).generate(torch.tensor([Digits(3).prompt(95, 905)]), 4)
    tensor([[1, 0, 0, 0]])
    """
    return addition_arrays.two_layers(n=n, B=B, dtype=name_of(dtype)).made(AdderTransformer)


def lookahead(k: int = 2, *, n: int, B: int = 10, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """E's scheme: base add on the own column, and carries from the k columns below, one head for each column.

    Claim: E-4; constructions.addition_arrays.lookahead says why it is right.
    Shapes: d = n + 4, d_h = n + 2, heads = k + 1, d_v = 1, p = 2.
    Raises: BadInput for k < 0; NotKnown where B^(k+1) has more bits than the dtype.

    >>> model = lookahead(2, n=5)
    >>> model.generate(torch.tensor([Digits(5).prompt(1, 99), Digits(5).prompt(1, 999)]), 6)
    tensor([[0, 0, 0, 1, 0, 0],
            [0, 0, 0, 0, 0, 0]])
    """
    return addition_arrays.lookahead(k, n=n, B=B, dtype=name_of(dtype)).made(AdderTransformer)
