"""Small stacks of whole blocks with drawn numbers."""

from __future__ import annotations

import torch
from torch import nn

from constructions.recurrent.residual import ResidualModel

SIZES = {
    "s4": {"states": 4},
    "mamba": {"inner": 6, "states": 2, "rank": 1, "window": 3},
    "rwkv": {"heads": 2, "mixed": 2, "decayed": 3, "neurons": 5},
}


def drawn(kind: str, seed: int, *, types: int, classes: int, layers: int = 2) -> ResidualModel:
    """Four numbers a token, in float64."""
    model = ResidualModel(
        kind, d=4, layers=layers, types=types, classes=classes, dtype=torch.float64, **SIZES[kind]
    ).double()
    torch.manual_seed(seed)
    for value in model.parameters():
        nn.init.normal_(value, std=0.7)
    return model
