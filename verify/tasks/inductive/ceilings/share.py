"""C-I7: how long BOS's share alone counts, which RoPE makes a sum of waves."""

from __future__ import annotations

import torch

from bounds.rope_share import is_impossible
from constructions.decoder import Decoder
from constructions.decoder_model import Block
from constructions.inductive_waves import build
from verify.frame.impossibility import Impossibility, seeds

HEAD, LARGEST = 32, 10.0  # dimensions of the head that is shown, and its coefficients' size
REACHED, BEYOND = 30, 43  # what weights are built for, and the first length that none reach
HEADS, ROOM = 200, 60


def few_waves(seed: int = 0) -> Impossibility:
    """C-I7: one head with RoPE and BOS and no MLP counts modulo 10 up to a length that its dimensions bound.

    Claim: C-I7 (ours).
    """
    model = build(REACHED, d_head=HEAD, largest=LARGEST, positions=ROOM + 1)
    reached = right_up_to(model)
    is_shown = is_impossible(HEAD, BEYOND, LARGEST)
    others = [right_up_to(_changed(REACHED - 2 * (own % 8), own)) for own in seeds(seed, HEADS)]
    return Impossibility(
        "C-I7",
        "one layer with RoPE and BOS, one head of d_h dimensions that scores all a alike, and no MLP: with "
        f"coefficients of BOS's score up to {LARGEST:g} no head of {HEAD} dimensions counts modulo 10 up to {BEYOND}",
        (
            "BOS's share at length n is 1/(1 + n e^-(g(n) - s)), g a sum of the head's d_h waves, s the score of an a",
            "logits are affine in the share, so each answer has an interval of it: one has the highest, one the lowest",
            "g(n) - ln n is above a threshold exactly at the lengths of the one, below another exactly at those of the "
            "other",
            "for each of the 90 choices of the two, weights of these conditions sum up to a contradiction, in balls",
            "with an MLP there is no such end: C-T3 counts up to any length, with neurons as C-I5 asks for them",
        ),
        {"d_h": HEAD, "coefficients up to": LARGEST, "impossible up to": BEYOND},
        {
            "contradictions for all choices": is_shown,
            f"weights for {REACHED} lengths, right up to": reached,
            "heads built and changed": HEADS,
            "longest of them": max(others),
            "not covered": "several heads, scores of a that depend on the distance, a LayerNorm with a bias at the end",
        },
        is_shown and reached >= REACHED and max(reached, *others) < BEYOND,
    )


def right_up_to(model: Decoder, m: int = 10) -> int:
    """The largest n with: on a^n the answers are right at every length, up to the table of positions."""
    room = model.positions - 1
    with torch.no_grad():
        wrong = torch.nonzero(model(torch.zeros(room, dtype=torch.long)).argmax(-1) != torch.arange(room) % m)
    return int(wrong[0]) if len(wrong) else room


def _changed(N: int, seed: int) -> Decoder:
    """A head built for N lengths whose coefficients are changed a little, and stay within LARGEST."""
    model = build(N, d_head=HEAD, largest=LARGEST, positions=ROOM + 1)
    block = model.blocks[0]
    assert isinstance(block, Block)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        W, end = block.attention.W_Q, LARGEST * HEAD**0.5
        noise = torch.randn(W.shape[1], generator=generator, dtype=W.dtype)
        W[0] = (W[0] + noise * 10.0 ** -(seed % 5) * HEAD**0.5).clamp(-end, end)
    return model
