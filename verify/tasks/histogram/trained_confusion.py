"""Document A's Figure 5: what trained `dot` models of small d answer at each true count, over all inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

from verify.frame.experiment import DecidedModel, GridSize, Result, Setting
from verify.tasks.histogram.trained_models import ALPHABET, OWN, UNIFORM, HistogramTrial, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.histogram import HistogramTransformer
    from verify.tasks.histogram.confusion import Confusion

MODEL = "dot"
WIDTHS = {GridSize.LAPTOP: (1, 2, 4, 8), GridSize.PAPER: (2, 4, 8, 16, 32)}  # d; A names p, and its d in a picture
TOO_MANY, TOO_FEW = "too many", "too few"
PLACES = 4  # decimals of an overlap, which is drawn only


@dataclass(frozen=True)
class ConfusionTrial:
    """One `dot` model with as many neurons as tokens: A-Fig-1's of the same size and seed."""

    grid: GridSize
    d: int
    seed: int

    @property
    def model(self) -> HistogramTrial:
        return HistogramTrial(self.grid, MODEL, self.d, ALPHABET[self.grid][0], self.seed)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def described(self) -> Mapping[str, object]:
        return self.model.described

    @property
    def settings(self) -> dict[str, Setting]:
        return {"d": self.d, "p": self.model.p, "seed": self.seed}

    def run(self) -> DecidedModel:
        model, module, found = trained(self.model)
        assert found is not None, f"{MODEL} has no positions"
        exact = {UNIFORM: model.result.exact[UNIFORM], OWN: found.accuracy, **wrong_ways(found)}
        shown = {"confusion": found.to_dict(), "overlaps": overlaps(module)}
        return replace(model, result=replace(model.result, settings=self.settings, exact=exact, shown=shown))


def wrong_ways(found: Confusion) -> dict[str, tuple[Fraction, Fraction]]:
    """How often a larger count is answered than is there, and how often a smaller one; a tie is neither.

    >>> from constructions.relation_counting import bos
    >>> from verify.tasks.histogram.confusion import confusion
    >>> from verify.tasks.histogram.stored import StoredModel
    >>> wrong_ways(confusion(StoredModel.of(bos(T=3, L=2, as_printed=True), None)))["too many"]
    (Fraction(2, 3), Fraction(2, 3))
    """
    left, zero = sum(found.undecided, Fraction(0)), Fraction(0)
    larger, smaller = zero, zero
    for k, row in enumerate(found.answered):
        right = k + 1 - found.first_count
        larger += sum(row[right + 1 :], zero)
        smaller += sum(row[:right], zero)
    return {TOO_MANY: (larger, larger + left), TOO_FEW: (smaller, smaller + left)}


def overlaps(module: HistogramTransformer) -> dict[str, list[float]]:
    """Inner products of the embeddings of a token with itself, and of two different tokens."""
    import torch

    products = (module.E @ module.E.T).detach().double()
    above = torch.triu_indices(module.T, module.T, offset=1)
    same, different = products.diagonal(), products[above[0], above[1]]
    return {name: [round(float(x), PLACES) for x in of] for name, of in (("same", same), ("different", different))}


def trials(grid: GridSize, seeds: int) -> list[ConfusionTrial]:
    """Every width."""
    return [ConfusionTrial(grid, d, seed) for d, seed in product(WIDTHS[grid], range(seeds))]


def overcounted(results: Sequence[Result]) -> list[str]:
    """Whether small models answer too much, as A's text says of them."""
    lines = []
    for d in dict.fromkeys(found.settings["d"] for found in results):
        group = [found for found in results if found.settings["d"] == d]
        more = sum(found.exact[TOO_MANY][0] > found.exact[TOO_FEW][1] for found in group)
        less = sum(found.exact[TOO_FEW][0] > found.exact[TOO_MANY][1] for found in group)
        lines.append(
            f"d = {d}: of {len(group)} models, {more} answer too large a count more often than too small a one, and "
            f"{less} too small a one more often"
        )
    return lines


def drawing(results: Sequence[Result]) -> Figure:
    """A row of models for each seed: their exact confusion matrices by d, and the overlaps of their embeddings."""
    from verify.tasks.histogram.drawings.trained_confusion import side_by_side

    seeds = list(dict.fromkeys(found.settings["seed"] for found in results))
    rows = [[found for found in results if found.settings["seed"] == seed] for seed in seeds]
    return side_by_side([[(f"d={f.settings['d']}, seed {f.settings['seed']}", f.shown) for f in row] for row in rows])
