"""The largest token: one attention head that weighs each token by a power of its own size."""

from __future__ import annotations

import torch

from constructions.decoder import Decoder
from constructions.decoder_model import Block
from constructions.errors import BadInput

MOST_SCORE = 600  # e^-600 is far above float64's smallest number


def steep(*, V: int, n: int, steepness: float | None = None) -> Decoder:
    """Builds a decoder of one head, without MLP and LayerNorm, whose last position says the largest of n tokens.

    Claim: W-25 (ours). Token t has the score s t at every position and is its own class, so that the logit of class c
    is the share of e^(s c) among the weights e^(s t): right for all inputs iff e^s > n - 1. Here e^s = 2 n, or `s` is
    the steepness that is given.
    Shapes: d = 2 V: the first half says which token, the second which class.
    Raises: BadInput for fewer than two tokens, or a vocabulary whose weights leave the range of exponentials.

    >>> steep(V=5, n=3)(torch.tensor([[2, 4, 0]]), position=-1).argmax(-1)
    tensor([4])
    """
    for name, value in (("V", V), ("n", n)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 2:
            raise BadInput(f"{name}={value!r}: must be a whole number, 2 or more")
    s = float(torch.tensor(2.0 * n, dtype=torch.float64).log()) if steepness is None else steepness
    if s * (V - 1) > MOST_SCORE:
        raise BadInput(f"V={V}: scores go up to {s * (V - 1):.0f}, more than {MOST_SCORE}; take fewer tokens")
    model = Decoder(
        vocabulary=V, d=2 * V, n_heads=1, d_mlp=0, positions=n, pe="nope", layernorm=False, attention_bias=False
    )
    (block,) = model.blocks
    assert isinstance(block, Block)
    attention, token, own_class = block.attention, slice(0, V), slice(V, 2 * V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_E[:, token] = torch.eye(V)
        attention.W_Q[token, 0] = (2 * V) ** 0.5  # the scores are divided by it
        attention.W_K[token, 0] = s * torch.arange(V, dtype=torch.float64)
        attention.W_V[token, token] = torch.eye(V)
        attention.W_O[token, own_class] = torch.eye(V)
        model.W_U[own_class] = torch.eye(V)
    model.eval()
    return model
