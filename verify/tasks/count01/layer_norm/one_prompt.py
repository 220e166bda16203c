"""One prompt through the stored numbers in balls of many bits, in the order in which the module runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from flint import arb, arb_mat, ctx

from constructions.model_arrays import Array, ModelArrays
from verify.arithmetic.arb_matrices import attended, leads, plus_row, stored
from verify.arithmetic.layer_norm import centred, squared_deviation

BITS = 256


def least_lead(model: ModelArrays, prompt: Sequence[int], right: int) -> arb:
    """(right logit) - (largest other logit) after a prompt, for any number of heads, with or without layer norm.

    >>> from constructions.count01_arrays import normed
    >>> least_lead(normed(), [0, 2, 1, 2, 4], 5) > 0, least_lead(normed(), [0, 2, 1, 2, 4], 6) < 0
    (True, True)
    """
    with ctx.workprec(BITS):
        E = model.E[list(prompt)]
        x = arb_mat([_normed(model, row) for row in E]) if model.has_norm else stored(E)
        stream = stored(E[-1]) * int(model.has_skip)
        for h in range(model.heads):
            W_Q, W_K, W_V, W_O = (stored(W[h]) for W in (model.W_Q, model.W_K, model.W_V, model.W_O))
            query = arb_mat(1, x.ncols(), x.entries()[-x.ncols() :])
            stream = stream + attended(query * W_Q, x * W_K, x * W_V, is_causal=False) * W_O
        return reduce(arb.min, leads(plus_row(stream * stored(model.W_out), model.b_out), 0, right))


def _normed(model: ModelArrays, row: Array) -> list[arb]:
    """An embedding behind layer norm."""
    numbers = [arb(x) for x in row.tolist()]
    root = squared_deviation(numbers, arb(model.norm_eps)).sqrt()
    terms = zip(centred(numbers), model.norm_weight.tolist(), model.norm_bias.tolist(), strict=True)
    return [part / root * weight + bias for part, weight, bias in terms]
