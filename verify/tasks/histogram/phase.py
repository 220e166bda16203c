"""Which (d, p) are proved to count, which are proved impossible, and which are open: a phase diagram's corners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import torch

from bounds.even_readings import fewest_in_the_regime
from bounds.exact_laws import fewest_dimensions_of_one_neuron, fewest_neurons, lin_needs_dimensions, lin_needs_neurons
from constructions import fewer_dimensions
from constructions.codes.kept import smallest_kept
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer, check_sizes
from constructions.histogram_sizes import CARRIER
from constructions.two_layers import after, distance
from verify.frame.certificate import Verdict
from verify.tasks.histogram.catalogue import CONSTRUCTIONS, SizesAsked, built
from verify.tasks.histogram.frontier_table import kept_table
from verify.tasks.histogram.handed_on import counts_as_one_layer, is_right_on_pairs
from verify.tasks.histogram.proof import certify

# of each model, besides inventory: the constructions with fewer dimensions or neurons that need no search
FEWER = {
    "lin": ("balanced",),
    "lin+sftm": ("balanced",),
    "dot": ("relation", "rational"),
    "dot+sftm": ("logarithmic",),
    "bos": ("relation", "rational"),
    "bos+sftm": ("sphere",),
}


@dataclass(frozen=True)
class Corner:
    """Weights of this size are PROVED, and so, by zero padding, is every larger d and p (claim A-pad)."""

    d: int
    p: int
    claim: str


@dataclass(frozen=True)
class Excluded:
    """No weights of at most d dimensions and p neurons count (None: of any number), or none in the regime of W-18."""

    d: int | None
    p: int | None
    claim: str
    is_for_all_weights: bool = True


@lru_cache(maxsize=64)
def corners(model: str, T: int, L: int) -> tuple[Corner, ...]:
    """The smallest proved sizes: constructions, built and proved on the spot, and the kept frontier table.

    Claim: A-4.1 to A-4.3, A-B.1, W-1 to W-4 and W-13 to W-15 in float64; W-2 from the table of `verify frontier`, whose
        weights the tests prove again.
    Raises: BadInput for sizes that make no sense.

    >>> corners("dot", 8, 4)
    (Corner(d=7, p=1, claim='W-14'),)
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    found = [Corner(m.d, m.p, claim) for m, claim in _built(model, T, L) if certify(m).verdict is Verdict.PROVED]
    for row in kept_table():
        if (row["model"], row["T"], row["L"]) == (model, T, L):
            found.append(Corner(row["d"], row["p"], "W-2"))
    return _smallest(found)


def excluded_of_two(model: str, T: int, L: int) -> tuple[Excluded, ...]:
    """The sizes that are proved too small for two layers: one neuron in lin+sftm (W-27).

    >>> excluded_of_two("lin+sftm", 2, 2)
    (Excluded(d=None, p=1, claim='W-27', is_for_all_weights=True),)
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    is_monotone = model == "lin+sftm" and T >= 2 and L >= 2
    return (Excluded(None, 1, "W-27"),) if is_monotone else ()


def _smallest(found: list[Corner]) -> tuple[Corner, ...]:
    """Those that no other one is below in both sizes; of equal sizes the first."""
    return tuple(
        corner
        for corner in sorted({(c.d, c.p): c for c in reversed(found)}.values(), key=lambda c: (c.p, c.d))
        if not any(c.d <= corner.d and c.p <= corner.p and (c.d, c.p) != (corner.d, corner.p) for c in found)
    )


@lru_cache(maxsize=64)
def corners_of_two(model: str, T: int, L: int) -> tuple[Corner, ...]:
    """The smallest sizes for which two layers are proved: what hands on one layer's neurons, and W-26's at L = 2.

    Claim: A-E.8, with p <= d, and p >= T for two softmaxes of scores; W-26, by all T^2 sequences.
    Raises: BadInput for sizes that make no sense.

    >>> corners_of_two("dot", 8, 4), corners_of_two("lin", 8, 2)
    ((Corner(d=7, p=1, claim='A-E.8'),), (Corner(d=1, p=1, claim='W-26'),))
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    found = []
    for one, _ in _built(model, T, L):
        with suppress(BadInput):  # where a second layer cannot hand on its neurons
            if counts_as_one_layer(after(one)):
                found.append(Corner(one.d, one.p, "A-E.8"))
    if model == "lin" and L == 2 and is_right_on_pairs(distance(T, dtype=torch.float64)):
        found.append(Corner(1, 1, "W-26"))
    return _smallest(found)


def excluded(model: str, T: int, L: int) -> tuple[Excluded, ...]:
    """The largest sizes that are proved too small, for all weights or in the regime of even readings.

    Claim: W-5, W-16 (neurons), W-17, W-18 (dimensions), W-24 (both, in lin).

    >>> [(e.d, e.p, e.is_for_all_weights) for e in excluded("dot", 32, 10)]
    [(28, 1, True), (7, None, False)]
    >>> excluded("dot+sftm", 32, 10)
    (Excluded(d=None, p=5, claim='W-16', is_for_all_weights=True),)
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    found = []
    if L >= 2 and model in ("lin+sftm", "dot+sftm"):
        found.append(Excluded(None, fewest_neurons(T) - 1, "W-16"))
    if L >= 2 and model == "lin":
        found.append(Excluded(None, 1, "W-5"))
    if model in ("lin", "lin+sftm"):
        found += [Excluded(None, T - 1, "W-24")] if lin_needs_neurons(T, L) else []
        found += [Excluded(T - 2, T, "W-24")] if lin_needs_dimensions(T, L, T) else []
    one_neuron = fewest_dimensions_of_one_neuron(T, L)
    if model in ("dot", "bos") and one_neuron > 1:
        found.append(Excluded(one_neuron - 1, 1, "W-17" if L >= T // 2 + 1 else "W-18"))
    if not model.endswith("+sftm") or model == "lin+sftm":
        least = fewest_in_the_regime(model, T, L)
        found += [Excluded(least - 1, None, "W-18", False)] if least > 1 else []
    return tuple(found)


def _built(model: str, T: int, L: int) -> Iterator[tuple[HistogramTransformer, str]]:
    """The constructions with the fewest dimensions or neurons that need no search."""

    def made(name: str, d: int | None = None) -> tuple[HistogramTransformer, str]:
        return built(SizesAsked(model, T, L, d), name, "float64").module(), CONSTRUCTIONS[model, name][1]

    yield made("inventory")
    with suppress(BadInput):  # not for these T and L
        for name in FEWER[model]:
            if name != "balanced" or L >= 2:
                yield made(name, 3 if name == "sphere" else None)
    d = smallest_kept(CARRIER[model], T, L) if model in CARRIER else None
    if d is not None and d < T - 2:
        yield fewer_dimensions.code(model, T=T, L=L, d=d, dtype=torch.float64), "W-2"
