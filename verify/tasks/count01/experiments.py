"""Documents D's and E's experiments: trained Count01 models, exact on all strings of the test's law."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.experiments.experiment import Experiment, GridSize, Result
from verify.tasks.count01 import halving, halving_course, trained_heads
from verify.tasks.count01.noisy_majority import D_STRINGS, LAW, RATES, RECIPES, NoisyMajorityTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ((2, 1), (8, 4), (32, 16))  # d, heads
SPEEDS = (1e-4, 1e-3, 1e-2, 1e-1)


def by_size(grid: GridSize, seeds: int) -> list[NoisyMajorityTrial]:
    """Figure 2: sizes, at E's rate, or ours on a laptop."""
    return [NoisyMajorityTrial(grid, d, heads, RATES[grid], seed) for (d, heads), seed in product(SIZES, range(seeds))]


def by_rate(grid: GridSize, seeds: int) -> list[NoisyMajorityTrial]:
    """Figure 3: learning rates, at d = 2 with one head."""
    return [NoisyMajorityTrial(grid, 2, 1, rate, seed) for rate, seed in product(SPEEDS, range(seeds))]


def drawing(by: tuple[str, ...], law: str, results: Sequence[Result]) -> Figure:
    from verify.experiments.figures import dots

    return dots(results, by=by, law=law)


def sizes(results: Sequence[Result]) -> Figure:
    from verify.experiments.figures import heat_maps

    return heat_maps(results, panel="attention reads", x="d", y="heads", law=D_STRINGS.law)


def figures_of_heads(results: Sequence[Result]) -> list[str]:
    """How one of these models, which is kept, is drawn as D draws its own."""
    file = "tests/data/count01/d_fig2_s0.safetensors"
    return [
        f"`verify figure heads {file} --out heads.svg` draws the model of LayerNorm(x), d 32, heads 16, seed 0 as D's "
        "Figs. 3, 5 to 7 and 11 to 13 draw theirs, with exact shares; `verify figure contributions` does as Fig. 1 and "
        "`verify figure subsets` as Fig. 4. `verify figure ratios` draws Figs. 8 and 9, whose ratios are set by hand"
    ]


def experiments() -> tuple[Experiment, ...]:
    """D's Figure 2 and Table 1; E's Figures 2, 3, 9 and 10, and Table 1."""
    return of_d() + of_e()


def of_d() -> tuple[Experiment, ...]:
    sampling = "1,500 strings of D's test set: n0, n1 uniform in [151, 200], n2 in [0, 200]"
    law = D_STRINGS.law
    return (
        Experiment(
            "D-Fig-2",
            "D, Fig. 2 (and the models that Figs. 1, 3 to 7, 11 to 13 and 15 draw)",
            "Do more heads and a wider stream make a model that counts?",
            "More heads and a larger d make learning more robust; d = 32 with 16 heads almost always reaches near "
            "perfect test accuracy. The rest is a picture.",
            f"{sampling}, after the best validation score",
            {law: "the 502,500 triples (n0, n1, n2) of D's test set"},
            trained_heads.RECIPES,
            {GridSize.LAPTOP: 9.0, GridSize.PAPER: 25.0},
            trained_heads.by_size,
            sizes,
            figures_of_heads,
        ),
        Experiment(
            "D-Table-1",
            "D, Table 1 (App. B)",
            "How often does training find a head of dimension 1 whose output separates?",
            "Of heads trained alone without layer norm, separation accuracy at least 98 % (and 100 %) have, at d = 32: "
            "74 % (17 %), 16: 54 % (11 %), 8: 48 % (9 %), 4: 22 % (1 %), 2: 9.7 % (1.7 %), 1: 0.6 % (0 %); of 64 "
            "trained together at d = 2: 2.0 % (0.2 %), and at d = 1: 0.3 % (0 %).",
            f"{sampling}, by the classifier that App. C fits to a head's outputs on the training set; 1,500 for each "
            "head",
            {
                law: "the classifier of a head is right on {} % of the 502,500 triples (n0, n1, n2) of D's test set, "
                "on average over the heads",
                "successful": "{} % of the heads have a classifier that is right on at least 98 % of these triples",
                "perfect": "{} % of the heads have a classifier that is right on all of these triples",
                "separable": "{} % of the heads have outputs that some line separates on all of these triples",
            },
            trained_heads.RECIPES,
            {GridSize.LAPTOP: 7.0, GridSize.PAPER: 30.0},
            trained_heads.minimal,
            partial(drawing, ("d", "heads"), law),
            trained_heads.counted,
        ),
    )


def of_e() -> tuple[Experiment, ...]:
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
            partial(drawing, ("d", "heads"), LAW),
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
            partial(drawing, ("learning rate",), LAW),
        ),
        Experiment(
            "E-Fig-9",
            "E, Fig. 9",
            "Do 64 heads of dimension 2 know the majority more often than one, and are they better heads?",
            "At d = 2, 64 heads with an output matrix reach a high accuracy about twice as often as one head, of 100 "
            "runs each; of 640 heads each, far fewer of those trained together have a high separation accuracy.",
            sampling,
            laws
            | {
                "classifiers": "the classifier of a single head (Def. 5.2) is right on {} % of these strings, on "
                "average over the heads",
                "separable": "{} % of the heads have outputs that some line separates on all of these strings",
            },
            RECIPES,
            {GridSize.LAPTOP: 45.0, GridSize.PAPER: 600.0},
            trained_heads.many,
            partial(drawing, ("heads",), LAW),
        ),
        Experiment(
            "E-Fig-10",
            "E, Fig. 10",
            "What does a model lose when half of its heads are masked, and does it recover?",
            "Three curves of validation accuracy at d = 32, a = 16, with 4 halvings each: small drops that are soon "
            "made up; a large drop after the fourth halving that is made up, too; and rarely one that is not.",
            f"{sampling}; the curves: 1,500 strings of 101 to 150 digits, the validation set",
            laws,
            {grid: halving.RECIPES[grid] for grid in GridSize},
            {GridSize.LAPTOP: 55.0, GridSize.PAPER: 1200.0},
            halving_course.trials,
            halving_course.drawing,
            halving_course.described,
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
            partial(drawing, ("heads kept by",), LAW),
            also=("E-Fig-11",),
        ),
    )
