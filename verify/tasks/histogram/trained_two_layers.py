"""Document A's Figures 20 and 21: trained models of one layer and of two, exact on all sequences (App. E.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from verify.experiments.experiment import DecidedModel, GridSize, Result, Setting, Summary
from verify.frame.certificate import Verdict
from verify.tasks.histogram import trained_models as one_layer
from verify.tasks.histogram.catalogue import MODELS
from verify.tasks.histogram.trained_models import SIZE, UNIFORM, mean, sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from constructions.histogram import HistogramTransformer
    from constructions.training import Recipe
    from constructions.two_layers import TwoLayerTransformer

LAYERS = (1, 2)
ALPHABET = {GridSize.LAPTOP: (6, 4), GridSize.PAPER: (32, 10)}  # T, L
SIZES = {
    GridSize.LAPTOP: ((6, 6),),  # d, p
    GridSize.PAPER: tuple(product(one_layer.SIZES[GridSize.PAPER], repeat=2)),
}
BUDGET = {GridSize.LAPTOP: 400.0, GridSize.PAPER: 60.0}  # seconds for a verdict; on a laptop one takes about two


@dataclass(frozen=True)
class LayersTrial:
    """One model of one layer or two, of one size; all layers have the same d and p, and share nothing."""

    grid: GridSize
    model: str
    layers: int
    d: int
    p: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.model}_layers{self.layers}_d{self.d}_p{self.p}_s{self.seed}"

    @property
    def described(self) -> Mapping[str, object]:
        return one_layer.described(self, ALPHABET[self.grid], recipe(self.grid))

    @property
    def settings(self) -> dict[str, Setting]:
        return {"model": self.model, "layers": self.layers, "d": self.d, "p": self.p, "seed": self.seed}

    def run(self) -> DecidedModel:
        from constructions.files import state_bytes
        from constructions.training import train

        module, (T, L) = initialised(self), ALPHABET[self.grid]
        how = recipe(self.grid)
        training = train(module, partial(one_layer.loss, module, how.batch), how, self.seed)
        module.requires_grad_(False).eval()
        wrong, exact = judged(module, T, L, BUDGET[self.grid])
        verdict = Verdict.REFUTED if wrong else Verdict.PROVED if exact[0] == 1 else Verdict.UNKNOWN
        found = Result(self.settings, one_layer.sampled(module, self.seed), verdict, {UNIFORM: exact}, wrong)
        header = {"model": self.model, "layers": self.layers, "T": T, "L": L, "d": self.d, "p": self.p}
        return DecidedModel(found, state_bytes(module, "weightproof.layers", header), training.to_dict())


def recipe(grid: GridSize) -> Recipe:
    """A's own, or on a laptop that of the models of one layer with fewer steps."""
    usual = one_layer.recipe(grid)
    return usual if grid is GridSize.PAPER else replace(usual, steps=1200, batch=128)


def initialised(trial: LayersTrial) -> HistogramTransformer | TwoLayerTransformer:
    """The model before its training, drawn as those of one layer are."""
    from constructions.histogram import HistogramTransformer
    from constructions.two_layers import TwoLayerTransformer

    T, L = ALPHABET[trial.grid]
    kind = HistogramTransformer if trial.layers == 1 else TwoLayerTransformer
    module: HistogramTransformer | TwoLayerTransformer = kind(trial.model, T=T, L=L, d=trial.d, p=trial.p)
    one_layer.initialise(module, trial.seed)
    return module.requires_grad_(True)


def judged(
    module: nn.Module, T: int, L: int, budget: float
) -> tuple[dict[str, object] | None, tuple[Fraction, Fraction]]:
    """A wrong input where there is one, and the share of right (sequence, position) pairs in real arithmetic.

    Each position is decided by itself, as a module with one answer.
    """
    from verify.module import certify, tokens

    wrong, right, undecided = None, 0, 0
    for position in range(L):
        due = partial(counts_before, position=position)
        found = certify(module, inputs=tokens([T] * L), expected=due, position=position, budget=budget / L)
        counts = found.extra["counts"]
        right, undecided = right + int(counts["right"]), undecided + int(counts["undecided"])
        if wrong is None and found.counterexample is not None:
            wrong = in_counts(found.counterexample, position)
    pairs = T**L * L
    return wrong, (Fraction(right, pairs), Fraction(right + undecided, pairs))


def counts_before(x: Tensor, position: int) -> Tensor:
    """The class of one position: how many others hold its token. Shapes: x (N, L) -> (N,)."""
    return (x == x[:, position, None]).sum(1) - 1


def in_counts(case: Mapping[str, object], position: int) -> dict[str, object]:
    """A wrong input with counts, which are classes plus one, as the models of one layer have it.

    >>> in_counts({"input": [0, 1], "expected": 0, "predicted": 1}, 1)
    {'input': [0, 1], 'position': 1, 'expected': 1, 'predicted': 2}
    """
    classes = {name: case[name] for name in ("expected", "predicted")}
    counts = {name: found + 1 for name, found in classes.items() if isinstance(found, int)}
    return {"input": case["input"], "position": position, **counts}


def trials(grid: GridSize, seeds: int) -> list[LayersTrial]:
    """Every model at every size, with one layer and with two."""
    combined = product(MODELS, LAYERS, SIZES[grid], range(seeds))
    return [LayersTrial(grid, model, layers, d, p, seed) for model, layers, (d, p), seed in combined]


def gained(results: Sequence[Result]) -> Summary:
    """Fig. 21: the mean share of one layer, that of two, and by how many points two are better, of each size."""
    from verify.experiments.table import share

    rows: list[tuple[Setting | None, ...]] = []
    for size, group in sizes(results).items():
        if {found.settings["layers"] for found in group} != set(LAYERS):
            continue  # nothing to compare
        one, two = (mean([each for each in group if each.settings["layers"] == layers]) for layers in LAYERS)
        is_exact = one[0] == one[1] and two[0] == two[1]
        rows.append((*size, share(*one), share(*two), points(two[0] - one[0]) if is_exact else None))
    return Summary((*SIZE, "one layer, mean", "two layers, mean", "two less one, points"), tuple(rows))


def points(of: Fraction) -> str:
    """A difference of shares in hundredths, to the nearest hundredth of one.

    >>> points(Fraction(-1, 3))
    '-33.33'
    """
    return f"{round(10_000 * of) / 100:+.2f}"


def compared(results: Sequence[Result]) -> list[str]:
    """How often two layers are better than one, by seed, so that it is seen whether the seeds say the same."""
    lines = []
    for seed in dict.fromkeys(found.settings["seed"] for found in results):
        one, two = (of_layers(results, seed, layers) for layers in LAYERS)
        better = sum(two[size].exact[UNIFORM][0] > one[size].exact[UNIFORM][1] for size in two)
        worse = sum(two[size].exact[UNIFORM][1] < one[size].exact[UNIFORM][0] for size in two)
        proved = [sum(each.is_proved for each in of.values()) for of in (one, two)]
        lines.append(
            f"seed {seed}: two layers are right on more pairs than one layer in {better} of {len(two)} comparisons, "
            f"and on fewer in {worse}; PROVED are {proved[0]} models of one layer and {proved[1]} of two"
        )
    return lines


def of_layers(results: Sequence[Result], seed: Setting, layers: int) -> dict[tuple[Setting, ...], Result]:
    """The models of one seed and so many layers, by model, d and p."""
    found = [each for each in results if (each.settings["seed"], each.settings["layers"]) == (seed, layers)]
    return {size: group[0] for size, group in sizes(found).items()}


def drawing(results: Sequence[Result]) -> Figure:
    """The exact shares of each model by its size, of one layer above and of two below."""
    from verify.experiments.figures import heat_maps

    words, sized = {1: "one layer", 2: "two layers"}, []
    for of in results:
        more = {"size": "d={d}, p={p}".format(**of.settings), "layers": words[int(of.settings["layers"])]}
        sized.append(replace(of, settings={**of.settings, **more}))
    return heat_maps(sized, panel="layers", x="size", y="model", law=UNIFORM)
