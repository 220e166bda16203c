"""Which (d, p) are proved to count, which are proved impossible, and which are open: a phase diagram's corners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch

from constructions import fewer_dimensions, inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer, check_sizes
from verify.certificate import Verdict
from verify.histogram.kept import kept_table
from verify.histogram.verdict import certify

# No weights count with one neuron here, for any d (claim W-5, for T >= 2 and L >= 2).
ONE_NEURON_IMPOSSIBLE = ("lin", "lin+sftm", "dot+sftm")

INVENTORY = {
    "lin": (inventory_counting.lin, "A-4.3"),
    "lin+sftm": (inventory_counting.lin_sftm, "A-4.3"),
    "dot": (inventory_counting.dot, "W-1"),
    "dot+sftm": (inventory_counting.dot_sftm, "A-B.1"),
    "bos": (inventory_counting.bos, "W-1"),
    "bos+sftm": (inventory_counting.bos_sftm, "W-1"),
}

RELATION = {"dot": (relation_counting.dot, "A-4.2"), "bos": (relation_counting.bos, "A-4.1")}


@dataclass(frozen=True)
class Corner:
    """Weights of this size are PROVED, and so, by zero padding, is every larger d and p (claim A-pad)."""

    d: int
    p: int
    claim: str


def corners(model: str, T: int, L: int) -> tuple[Corner, ...]:
    """The smallest proved sizes: constructions, built and proved on the spot, and the kept frontier table.

    Claim: A-4.1 to A-4.3, A-B.1, W-1, W-3 and W-4 in float64; W-2 from the table of `verify frontier`, whose weights
        the tests prove again.
    Raises: BadInput for sizes that make no sense.

    >>> corners("dot", 8, 4)
    (Corner(d=7, p=1, claim='W-4'),)
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    found = [Corner(m.d, m.p, claim) for m, claim in _built(model, T, L) if certify(m).verdict is Verdict.PROVED]
    for row in kept_table():
        if (row["model"], row["T"], row["L"]) == (model, T, L):
            found.append(Corner(row["d"], row["p"], "W-2"))
    return tuple(
        corner
        for corner in sorted({(c.d, c.p): c for c in reversed(found)}.values(), key=lambda c: (c.p, c.d))
        if not any(c.d <= corner.d and c.p <= corner.p and (c.d, c.p) != (corner.d, corner.p) for c in found)
    )


def _built(model: str, T: int, L: int) -> Iterator[tuple[HistogramTransformer, str]]:
    """The constructions with the fewest dimensions or neurons that need no search."""
    double = torch.float64
    builder, claim = INVENTORY[model]
    yield builder(T=T, L=L, dtype=double), claim
    with suppress(BadInput):  # not for these T and L
        if model == "bos+sftm":
            yield fewer_dimensions.sphere(model, T=T, L=L, d=3, dtype=double), "W-3"
        if model in RELATION:
            builder, claim = RELATION[model]
            yield builder(T=T, L=L, dtype=double), claim
            yield fewer_dimensions.simplex(model, T=T, L=L, d=T - 1, dtype=double), "W-4"
