"""Random decoders, on which arguments about all weights are checked."""

from __future__ import annotations

import torch
from torch import Tensor

from constructions.decoder import Decoder

MODELS = 60  # random ones per property
CLASSES = 10


def random_decoder(
    seed: int, *, pe: str, bos: bool = False, layers: int | None = None, vocabulary: int = 2, std: float = 0.6
) -> Decoder:
    """A decoder of 1 to 3 layers and 1 or 2 heads with random weights; by the seed with LayerNorm, ReLU or neither.

    >>> model = random_decoder(0, pe="rope")
    >>> len(model.blocks), model(torch.tensor([0, 1])).shape
    (1, torch.Size([2, 10]))
    """
    model = Decoder(
        vocabulary=vocabulary,
        d=8,
        d_head=4,
        d_mlp=16,
        n_heads=1 + seed % 2,
        n_layers=1 + seed // 2 % 3 if layers is None else layers,
        layernorm=seed // 6 % 2 == 1,
        activation="gelu" if seed // 12 % 2 else "relu",
        classes=CLASSES,
        positions=512,
        pe=pe,
        bos=bos,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            value.copy_(value + 0.1 * noise if value.ndim == 1 else std * noise)
    return model


def relative_logits(tokens: Tensor, seed: int, *, is_causal: bool = True, vocabulary: int = 2) -> Tensor:
    """Logits (n, CLASSES) of two causal layers whose scores get any bias by distance, as ALiBi's and T5's are.

    Without the mask there is no bias either: a bidirectional model without positions.

    >>> relative_logits(torch.tensor([0, 1, 0]), 0).shape
    torch.Size([3, 10])
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        drawn: Tensor = torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5
        return drawn

    d, n = 6, len(tokens)
    x = 2 * normal(vocabulary, d)[tokens]
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    for _ in range(2):
        by_distance = 3 * normal(512)
        normed = torch.nn.functional.layer_norm(x, (d,)) if seed % 2 else x
        scores = normed @ normal(d, d) @ normed.T
        if is_causal:
            scores = (scores + by_distance[distance.clamp(min=0)]).masked_fill(distance < 0, -torch.inf)
        x = x + torch.softmax(scores, dim=-1) @ normed @ normal(d, d)
        x = x + torch.relu(x @ normal(d, 2 * d) + normal(1, 2 * d)) @ normal(2 * d, d)
    return x @ normal(d, CLASSES)


def spread(logits: Tensor) -> float:
    """How far the rows of logits (n, classes) lie apart at most."""
    return float((logits - logits[:1]).abs().max())
