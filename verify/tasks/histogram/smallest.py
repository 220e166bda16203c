"""The smallest sizes at (T, L): printed, proved, proved too small for all weights or in a regime, and open."""

from __future__ import annotations

from dataclasses import dataclass

from bounds.even_readings import fewest_in_the_regime
from bounds.exact_laws import (
    fewest_dimensions_of_blocks,
    fewest_dimensions_of_one_neuron,
    fewest_neurons,
    lin_needs_dimensions,
    lin_needs_neurons,
    printed_dimensions,
)
from constructions.codes.kept import smallest_kept
from constructions.histogram_sizes import CARRIER
from verify.tasks.histogram.frontier_table import kept_table


@dataclass(frozen=True)
class SmallestSize:
    """The least d or p of a model. Smaller ones than `needed` are impossible for all weights; None where no bound is
    known.

    The regime is that of W-18: neurons keep their sides on counts 1 and 2 of a token, or only one changes.
    """

    model: str
    size: str
    printed: int
    proved: int
    needed: int | None
    needed_in_the_regime: int | None = None

    @property
    def open(self) -> str | None:
        """The sizes that are neither proved nor proved impossible.

        >>> SmallestSize("dot; p=T", "d", 8, 8, None, 8).open, SmallestSize("dot; p=1", "d", 30, 31, 29).open
        ('1..7 outside the regime', '29..30')
        """
        from_regime = max(self.needed or 1, self.needed_in_the_regime or 1)
        inside = _range(from_regime, self.proved - 1)
        outside = _range(self.needed or 1, from_regime - 1)
        told = [inside, f"{outside} outside the regime" if outside else None]
        return ", ".join(text for text in told if text) or None


def _range(least: int, most: int) -> str | None:
    return None if most < least else str(least) if most == least else f"{least}..{most}"


def smallest_sizes(T: int, L: int) -> list[SmallestSize]:
    """The dimensions of every model with the p of its proposition, then the neurons.

    >>> [(s.proved, s.needed_in_the_regime) for s in smallest_sizes(32, 10)[:3]]
    [(29, 29), (31, None), (8, 8)]
    """
    one_neuron = fewest_dimensions_of_one_neuron(T, L)
    lin, dot = (fewest_in_the_regime(model, T, L) for model in ("lin", "dot"))
    printed = printed_dimensions(T, L)
    p = fewest_neurons(T)
    long_d = T - 1 if lin_needs_dimensions(T, L, T) else None
    long_p = T if lin_needs_neurons(T, L) else 1
    return [
        SmallestSize("lin, lin+sftm; p=T", "d", printed[0], proved_dimensions("lin", T, L), long_d, lin),
        SmallestSize("dot, bos; p=1", "d", printed[1], proved_dimensions("dot", T, L, is_one_neuron=True), one_neuron),
        SmallestSize("dot, bos; p=T", "d", printed[2], proved_dimensions("dot", T, L), None, dot),
        SmallestSize("bos+sftm; p=1", "d", printed[3], proved_dimensions("bos+sftm", T, L, is_one_neuron=True), None),
        SmallestSize("dot+sftm; p=T", "d", printed[4], proved_dimensions("dot+sftm", T, L), None),
        SmallestSize("dot+sftm; d=T-1", "p", T, p, p),
        SmallestSize("lin+sftm; d=T-1", "p", T, T, max(p, long_p)),
        SmallestSize("lin; d=T-1", "p", T, T, max(2, long_p)),
        SmallestSize("dot, bos; d=T-1", "p", 1, 1, None),
        SmallestSize("bos+sftm; d=3", "p", 1, 1, None),
    ]


def proved_dimensions(model: str, T: int, L: int, *, is_one_neuron: bool = False) -> int:
    """The smallest d at which weights are built and proved: constructions for all sizes, and the kept frontier table.

    Claim: W-3 (bos+sftm), W-13 (dot+sftm), W-14 (dot, bos), W-15 (lin, lin+sftm), W-2 (kept).

    >>> proved_dimensions("dot", 31, 10, is_one_neuron=True), proved_dimensions("lin", 31, 10)
    (30, 28)
    """
    if model == "bos+sftm":
        return min(3, T)
    found = [max(1, T - 1)]
    if model in ("lin", "lin+sftm") and L >= 2:
        found.append(fewest_dimensions_of_blocks(T, L))
    if not is_one_neuron:
        found += [row["d"] for row in kept_table() if (row["model"], row["L"]) == (model, L) and row["T"] == T]
        kept = smallest_kept(CARRIER[model], T, L)
        found += [] if kept is None else [kept]
    return min(found)
