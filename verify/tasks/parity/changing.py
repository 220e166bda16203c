"""How the numbers of a parity model are changed: its readout, on every bag of other tokens."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import combinations_with_replacement
from math import comb

import torch

from constructions import parity
from constructions.parity import ParityTransformer
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, check_listed, of_kind
from verify.tasks.parity.task import Parity


def load(path: str, *, L: int | None = None) -> ParityTransformer:
    """The model of a file."""
    return parity.load(path, L=L)


def changeable(module: ParityTransformer) -> Changeable:
    """The model on all T^L sequences and all positions: a position sees its own token and a bag of others."""

    def questions() -> Iterator[Questions]:
        check_listed(module.T * comb(module.T + module.L - 2, module.L - 1), module.p + 1, module.L, "T, L")
        others = torch.tensor(list(combinations_with_replacement(range(module.T), module.L - 1)))
        others = others.reshape(-1, module.L - 1)
        for own in range(module.T):
            tokens = torch.cat([torch.full((len(others), 1), own), others], dim=1)
            first = torch.zeros(len(tokens), dtype=torch.long)
            yield Questions(tokens, first, (tokens == own).sum(1) % 2)

    judged = of_kind(ParityTransformer, lambda changed, _: Parity(changed), parity.as_bytes)
    return captured.changeable(deepcopy(module).eval(), module.L, questions, *judged)
