"""Document E's experiments: trained Count01 models, exact on all strings of its test's lengths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.experiments.experiment import Experiment, GridSize, Result
from verify.tasks.count01 import halving
from verify.tasks.count01.noisy_majority import LAW, RECIPES, NoisyMajorityTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ((2, 1), (8, 4), (32, 16))  # d, heads
RATES = (1e-4, 1e-3, 1e-2, 1e-1)


def by_size(grid: GridSize, seeds: int) -> list[NoisyMajorityTrial]:
    """Figure 2: sizes, at E's rate, or ours on a laptop."""
    rate = 1e-3 if grid is GridSize.PAPER else 3e-3
    return [NoisyMajorityTrial(grid, d, heads, rate, seed) for (d, heads), seed in product(SIZES, range(seeds))]


def by_rate(grid: GridSize, seeds: int) -> list[NoisyMajorityTrial]:
    """Figure 3: learning rates, at d = 2 with one head."""
    return [NoisyMajorityTrial(grid, 2, 1, rate, seed) for rate, seed in product(RATES, range(seeds))]


def drawing(by: tuple[str, ...], results: Sequence[Result]) -> Figure:
    from verify.figures.experiments import dots

    return dots(results, by=by, law=LAW)


def experiments() -> tuple[Experiment, ...]:
    """Figures 2 and 3, and Table 1."""
    sampling = "1,500 strings of E's test set, whose lengths are uniform in [151, 200], after the best validation score"
    laws = {LAW: "all strings of 151 to 200 digits, every length as likely"}
    seconds = {GridSize.LAPTOP: 13.0, GridSize.PAPER: 200.0}
    return (
        Experiment(
            "E-Fig-2",
            "E, Fig. 2 (and the row Normal of Table 1)",
            "Does a model that is right on the whole test set know the majority?",
            "Table 1: 100 % on the test set have 34 of 100 models with d = 32, a = 16, 9 with d = 8, a = 4, and 2 with "
            "d = 2, a = 1.",
            sampling,
            laws,
            RECIPES,
            seconds,
            by_size,
            partial(drawing, ("d", "heads")),
        ),
        Experiment(
            "E-Fig-3",
            "E, Fig. 3",
            "Which learning rate does the smallest model need?",
            "Higher rates help, too large ones are unstable (the caption has a = 2, the text a = 1).",
            sampling,
            laws,
            RECIPES,
            seconds,
            by_rate,
            partial(drawing, ("learning rate",)),
        ),
        Experiment(
            "E-Table-1",
            "E, Table 1, d = 8 and a = 4 (and Fig. 11, the same models by their accuracies)",
            "Does a model that ends with one head know the majority more often if it began with many?",
            "100 % on the test set have of 100 models with d = 8, a = 4: normal 9, SVC 13, masking a - 1 heads 7, "
            "Shapley SVC 19, which is left out here.",
            sampling,
            laws,
            halving.RECIPES,
            {GridSize.LAPTOP: 9.0, GridSize.PAPER: 330.0},
            halving.trials,
            partial(drawing, ("heads kept by",)),
        ),
    )
