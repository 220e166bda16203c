"""How many parameters each model needs: counted at every proved corner of (d, p)."""

from __future__ import annotations

from dataclasses import dataclass

from constructions.histogram import HistogramTransformer
from verify.tasks.histogram.catalogue import MODELS
from verify.tasks.histogram.phase import corners


@dataclass(frozen=True)
class Fewest:
    """The proved size with the fewest parameters of one model."""

    model: str
    d: int
    p: int
    parameters: int
    claim: str


def number_of_parameters(model: str, *, T: int, L: int, d: int, p: int) -> int:
    """All stored numbers: tokens, mixing (with BOS), W_1, b_1, W_2 and b_2.

    >>> number_of_parameters("dot", T=32, L=10, d=31, p=1)
    2966
    """
    module = HistogramTransformer(model, T=T, L=L, d=d, p=p)
    return sum(x.numel() for x in module.parameters())


def fewest_parameters(T: int, L: int) -> list[Fewest]:
    """One entry per model: the corner with the fewest parameters; larger sizes that are proved have more.

    Claim: A, Fig. 2, with proved weights in place of trained ones.

    >>> [(one.model, one.d, one.p, one.parameters) for one in fewest_parameters(6, 3)][-1]
    ('bos+sftm', 3, 1, 49)
    """
    found = []
    for model in MODELS:
        sizes = [
            Fewest(model, c.d, c.p, number_of_parameters(model, T=T, L=L, d=c.d, p=c.p), c.claim)
            for c in corners(model, T, L)
        ]
        found.append(min(sizes, key=lambda one: one.parameters))
    return found
