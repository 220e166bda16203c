"""How the numbers of a model that adds modulo P are changed: its readout, on all pairs."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from safetensors.torch import save
from torch import nn

from constructions.adder import transformer
from constructions.adder.transformer import AdderTransformer
from constructions.decoder import Decoder, to_progress_measures
from constructions.errors import BadInput
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, of_kind
from verify.frame.decide import Decidable
from verify.tasks.addition.modular import grokking
from verify.tasks.addition.modular.task import ModularAddition


def load(path: str) -> AdderTransformer | Decoder:
    """The model of a file, of ours or of the grokking layout."""
    checkpoint = grokking.read(path)
    if checkpoint is None:
        return transformer.load(path)[0]
    return grokking.problem_of(checkpoint, int(checkpoint["embed.W_E"].shape[-1]) - 1)[1]


def changeable(module: AdderTransformer | Decoder) -> Changeable:
    """The model on all P^2 pairs, P being one less than its tokens.

    Raises: BadInput for a model with more logits than numbers.
    """
    E, W = (module.W_E, module.W_U) if isinstance(module, Decoder) else (module.E, module.W_out)
    P, C = len(E) - 1, W.shape[1]
    if C != P:
        raise BadInput(f"weights: {C} logits for the numbers below {P}; a readout is changed where all take part.")

    def questions() -> Iterator[Questions]:
        pairs = torch.cartesian_prod(torch.arange(P), torch.arange(P))
        tokens = torch.cat([pairs, torch.full((P * P, 1), P)], dim=1)
        yield Questions(tokens, torch.full((P * P,), 2), pairs.sum(1) % P)

    judged = of_kind(nn.Module, lambda changed, _: problem(changed, P), file)
    return captured.changeable(deepcopy(module).eval(), 3, questions, *judged)


def problem(module: nn.Module, P: int) -> Decidable:
    """What the task decides of a model of either layout."""
    if isinstance(module, AdderTransformer):
        return ModularAddition(module, P)
    assert isinstance(module, Decoder)
    return grokking.problem_of(to_progress_measures(module), P)[0]


def file(module: nn.Module) -> bytes:
    """The model's file, in its own layout."""
    if isinstance(module, AdderTransformer):
        return transformer.to_bytes(module)
    assert isinstance(module, Decoder)
    return save(to_progress_measures(module))
