"""Document A's experiments: its trained models over the sizes d and p, their confusion, and two layers of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from verify.experiments.experiment import Experiment, GridSize, Result, Setting, Summary
from verify.tasks.histogram import trained_confusion, trained_two_layers
from verify.tasks.histogram.trained_models import OWN, SAMPLES, SIZE, UNIFORM, mean, recipe, sizes, trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAWS = {UNIFORM: "all (sequence, position) pairs", OWN: "the pairs as App. D draws them (models without positions)"}
RECIPES = {
    GridSize.LAPTOP: "ours, which learns in fewer steps: {}; T = 8, L = 5, so that every share is exact",
    GridSize.PAPER: "A's own (Sec. 3): {}; T = 32, L = 10; A does not say how weights are drawn at first",
}
SAMPLING = f"{SAMPLES} sequences of App. D, as A takes them (Sec. 3); positions are counted"


def drawing(results: Sequence[Result]) -> Figure:
    """One panel for each model, its exact shares over d and p: the mean of the seeds, and below it the best one."""
    from verify.experiments.figures import heat_maps

    seeds = len({found.settings["seed"] for found in results})
    best = [] if seeds == 1 else [replace(found, settings=named(found, f"best of {seeds}")) for found in bests(results)]
    return heat_maps([*results, *best], panel="model", x="p", y="d", law=UNIFORM)


def named(found: Result, more: str) -> dict[str, Setting]:
    return {**found.settings, "model": f"{found.settings['model']}, {more}"}


def bests(results: Sequence[Result]) -> list[Result]:
    """Of each size the model that is right most often at least, the first of equal ones."""
    return [max(group, key=lambda found: found.exact[UNIFORM][0]) for group in sizes(results).values()]


def by_seed(results: Sequence[Result]) -> list[str]:
    """Of each seed the mean of the exact shares over all sizes of a model, and which model has the larger one."""
    from verify.experiments.table import share

    lines = []
    for seed in dict.fromkeys(found.settings["seed"] for found in results):
        means = []
        for model in dict.fromkeys(found.settings["model"] for found in results):
            low, high = mean([r for r in results if (r.settings["model"], r.settings["seed"]) == (model, seed)])
            means.append((low, f"{model} {share(low, high)} %"))
        said = ", ".join(text for _, text in sorted(means, reverse=True))
        lines.append(f"seed {seed}: the mean of the exact shares over all sizes is, from the largest on, {said}")
    return lines


def mean_and_best(results: Sequence[Result]) -> Summary:
    """Of each size the mean of the exact shares (Fig. 1), and the best one (Fig. 10)."""
    from verify.experiments.table import share

    rows = []
    for size, group in sizes(results).items():
        best = [max(ends) for ends in zip(*(found.exact[UNIFORM] for found in group), strict=True)]
        rows.append((*size, len(group), share(*mean(group)), share(best[0], best[1])))
    return Summary((*SIZE, "models", f"mean, exact, {UNIFORM}", f"best, exact, {UNIFORM}"), tuple(rows))


def recipes() -> dict[GridSize, str]:
    return {grid: text.format(recipe(grid)) for grid, text in RECIPES.items()}


def experiments() -> tuple[Experiment, ...]:
    """Figures 1, 5, 12 and 20, and what the same models show."""
    return (
        Experiment(
            "A-Fig-1",
            "A, Fig. 1 (and Fig. 2, the same models by their parameters, and Fig. 10, the best of the seeds)",
            "At which sizes d and p does a trained model count, and is what looks like 100 % right everywhere?",
            "Colours for mean accuracies of 5 runs at T = 32, L = 10; a white star where one run has 100 %; bos and "
            "bos+sftm reach (close to) 100 % whenever d > T. Fig. 10 has the best accuracy that one of the 5 runs had "
            "at any time; here it is the best one at the end of the runs.",
            SAMPLING,
            LAWS,
            recipes(),
            {GridSize.LAPTOP: 6.0, GridSize.PAPER: 900.0},
            trials,
            drawing,
            by_seed,
            summary=mean_and_best,
            also=("A-Fig-2", "A-Fig-10"),
        ),
        Experiment(
            "A-Fig-12",
            "A, Fig. 12",
            "What is lost where the embeddings stay as they are drawn?",
            "Differences in colour: below d = T frozen embeddings are worse, most of all for bos+sftm.",
            SAMPLING,
            LAWS,
            recipes(),
            {GridSize.LAPTOP: 6.0, GridSize.PAPER: 900.0},
            partial(trials, is_frozen=True),
            drawing,
            by_seed,
        ),
        Experiment(
            "A-Fig-5",
            "A, Fig. 5",
            "What does a trained dot of small d answer at each true count?",
            "Confusion matrices of trained dot models at T = 32, L = 10, p = 32 by d: models with smaller d tend to "
            "overcount (Sec. 4.2). Below them the overlaps of equal and of different embeddings.",
            SAMPLING,
            LAWS
            | {
                trained_confusion.TOO_MANY: "on {} % of the pairs as App. D draws them it answers too large a count",
                trained_confusion.TOO_FEW: "on {} % of these pairs it answers too small a count",
            },
            {grid: f"{text}; p = T. On a laptop these are A-Fig-1's models" for grid, text in recipes().items()},
            {GridSize.LAPTOP: 6.0, GridSize.PAPER: 900.0},
            trained_confusion.trials,
            trained_confusion.drawing,
            trained_confusion.overcounted,
        ),
        Experiment(
            "A-Fig-20",
            "A, Fig. 20 and 21 (App. E.8)",
            "Does a second layer make a trained model count more often?",
            "Differences in colour at T = 32, L = 10: two layers are generally better, and slightly extend the sizes "
            "at which perfect models are found; the general picture does not change.",
            SAMPLING,
            {UNIFORM: LAWS[UNIFORM]},
            {
                GridSize.LAPTOP: f"{trained_two_layers.recipe(GridSize.LAPTOP)} (ours); T = 6, L = 4, so that every "
                "sequence is decided; layers of the same d and p, as A has them",
                GridSize.PAPER: recipes()[GridSize.PAPER],
            },
            {GridSize.LAPTOP: 5.0, GridSize.PAPER: 2000.0},
            trained_two_layers.trials,
            trained_two_layers.drawing,
            trained_two_layers.compared,
            trained_two_layers.gained,
            also=("A-Fig-21",),
        ),
    )
