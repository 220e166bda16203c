"""Document B's four position codes, trained until all samples are right: how many strings are wrong still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verify.experiments.experiment import Experiment, GridSize, Result
from verify.tasks.contextual import experiments as usual

if TYPE_CHECKING:
    from constructions.training import Recipe

CODES = (("nope", 0.0), ("ape", 0.0), ("rope", 0.0), ("alibi", 0.05))
STEPS = {GridSize.LAPTOP: 6000, GridSize.PAPER: 100_000}


@dataclass(frozen=True)
class LongerTrial(usual.PositionTrial):
    """One model of one position code, trained for longer than those of B-Fig-2."""

    @property
    def how(self) -> Recipe:
        return recipe(self.grid)


def recipe(grid: GridSize) -> Recipe:
    """That of B-Fig-2 with more steps."""
    return replace(usual.recipe(grid), steps=STEPS[grid])


def trials(grid: GridSize, seeds: int) -> list[LongerTrial]:
    """Every code, and every seed of it."""
    return [LongerTrial(grid, pe, slope, seed) for pe, slope in CODES for seed in range(seeds)]


def remarks(results: Sequence[Result]) -> list[str]:
    """Which models keep what they learnt on other strings, as the three solutions of Fig. 5 do or do not."""
    found = []
    for name, other in (("shorter strings", usual.SHORTER), ("fewer regions", usual.FEWER)):
        pairs = [(r.exact["both regions"][0], r.exact[other][1]) for r in results if r.exact]
        kept = sum(after >= before for before, after in pairs)
        found.append(f"On {name} {kept} of {len(pairs)} models are right on no smaller share than on those trained on")
    return found


def experiment() -> Experiment:
    """Fig. 5: solutions that are alike on the strings they learn from, and not on others."""
    return Experiment(
        "B-Fig-5",
        "B, Fig. 5 (models of close to 100 % accuracy, on their own strings, shorter ones, and fewer regions)",
        "Which strings are wrong where all samples are right, and which other ones?",
        "Three models with good predictions on their own strings: one keeps them on shorter strings and on fewer "
        "regions, one on shorter strings alone, one on fewer regions alone.",
        usual.SAMPLING,
        usual.laws(),
        usual.recipes({grid: recipe(grid) for grid in GridSize}),
        {GridSize.LAPTOP: 35.0, GridSize.PAPER: 36_000.0},
        trials,
        usual.drawing,
        remarks,
    )
