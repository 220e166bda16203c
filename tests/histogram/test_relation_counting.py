"""A-neg: with dot+sftm a direction common to all tokens carries no count."""

import pytest
import torch
from flint import fmpq

from constructions.histogram import HistogramTransformer
from verify.arithmetic.exact_reals import Combination
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.stored import StoredModel


@pytest.mark.parametrize("seed", range(20))
def test_a_common_direction_carries_no_count(seed):
    """For random weights and any sequence the component times D is exactly 2 c D: zero as an exponential sum."""
    g = torch.Generator().manual_seed(seed)
    T, L, d = 5, 6, 4
    module = HistogramTransformer("dot+sftm", T=T, L=L, d=d, p=1, dtype=torch.float64)
    c = 1.5
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
        module.W_1.copy_(torch.tensor([[1.0], [0.0], [0.0], [0.0]]))  # the direction w = e_1
        module.b_1.zero_()
        module.E[:, 0] = c  # common to all tokens
    exact = ExactForward(StoredModel.of(module))
    for tokens in torch.randint(0, T, (10, L), generator=g).tolist():
        pooled = D = Combination(exact.basis, {})
        for m, token in enumerate(tokens):
            weight = exact.mixing_weight(tokens, 0, m)
            D = D + weight
            pooled = pooled + weight.scaled(exact.features.entry(token, 0))
        component = D.scaled(exact.features.entry(tokens[0], 0)) + pooled
        assert (component - D.scaled(fmpq(3))).sign() == 0
        assert not D.is_zero
